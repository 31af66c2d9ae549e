//! What about a network costs speed or safety. Each rule looks at facts only, so that it can be tried on any.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{Interface, Kind, Network};

/// From this speed on (Mbit/s) one processor cannot receive all packets, and long packets save much of its time.
const FAST_MBIT: u64 = 10_000;
/// What storage needs at least.
const SLOW_MBIT: u64 = 1_000;
/// Bytes of a long ("jumbo") packet.
const JUMBO: u64 = 9_000;
/// One damaged or dropped packet of so many is one too many.
const PACKETS_OF_AN_ERROR: u64 = 10_000;
/// One segment of so many may be sent again.
const SEGMENTS_OF_A_REPEAT: u64 = 100;
/// Shares are told of at least so many segments.
const ENOUGH_SEGMENTS: u64 = 100_000;

/// How much something matters, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// It does not work.
    Error,
    /// It costs speed or safety.
    Warning,
    /// It could be better.
    Info,
}

/// What about a network should be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// How much it matters.
    pub weight: Weight,
    /// The interface, or what else it is about.
    pub subject: String,
    /// What is so, and what follows.
    pub detail: String,
    /// What to do.
    pub todo: String,
}

fn advice(weight: Weight, subject: &str, detail: impl Into<String>, todo: impl Into<String>) -> Advice {
    Advice { weight, subject: subject.into(), detail: detail.into(), todo: todo.into() }
}

pub(crate) fn of(network: &Network) -> Vec<Advice> {
    let mut all = Vec::new();
    for interface in &network.interfaces {
        link(interface, &mut all);
        processors(interface, network.processors, &mut all);
        packets(interface, &mut all);
        members(interface, network, &mut all);
    }
    one_network_twice(network, &mut all);
    way_out(network, &mut all);
    tcp(network, &mut all);
    all.sort_by_key(|each| each.weight);
    all
}

fn link(interface: &Interface, all: &mut Vec<Advice>) {
    let name = interface.name.as_str();
    if interface.state == "down" && interface.kind != Kind::Loopback && !interface.addresses.is_empty() {
        all.push(advice(
            Weight::Error,
            name,
            format!("is down; whoever uses its address ({}) reaches nothing", interface.addresses.join(", ")),
            format!("Look at the cable and the switch's port, or switch it on: ip link set {name} up"),
        ));
    }
    if interface.kind != Kind::Physical || !interface.carries() {
        return;
    }
    if interface.half_duplex {
        all.push(advice(
            Weight::Warning,
            name,
            "sends or receives, but not both at once (half duplex): reads and writes wait for each other",
            "Let both ends negotiate; a fixed setting at one end only leads to this.",
        ));
    }
    if let Some(speed) = interface.speed_mbit.filter(|speed| *speed < SLOW_MBIT) {
        all.push(advice(
            Weight::Warning,
            name,
            format!("runs at {speed} Mbit/s, which is {} MB/s for all clients together", speed / 8),
            "Look at the cable and at what the switch's port is set to.",
        ));
    }
    if interface.speed_mbit.is_some_and(|speed| speed >= FAST_MBIT) && interface.mtu < JUMBO {
        all.push(advice(
            Weight::Info,
            name,
            format!("takes packets of {} bytes; with {JUMBO} large reads and writes cost less processor time", interface.mtu),
            format!("If the switches and all clients take them, too: ip link set {name} mtu {JUMBO}; then look whether they pass: holdfast net test CLIENT"),
        ));
    }
    if let Some(rdma) = &interface.rdma {
        all.push(advice(
            Weight::Info,
            name,
            format!(
                "can do RDMA ({}); Holdfast serves SMB and iSCSI over TCP and does not use it",
                rdma.device
            ),
            "Nothing; clients that try SMB Direct go on over TCP.",
        ));
    }
}

fn processors(interface: &Interface, processors: u64, all: &mut Vec<Advice>) {
    let fast = interface.speed_mbit.is_some_and(|speed| speed >= FAST_MBIT);
    let one = interface.receive_queues <= 1 && !interface.spread_by_kernel;
    if interface.kind == Kind::Physical && fast && one && processors > 1 {
        let name = interface.name.as_str();
        all.push(advice(
            Weight::Warning,
            name,
            format!("has one receive queue: one of {processors} processors handles all its packets, and is the limit"),
            format!("If the adapter has more (RSS): ethtool -L {name} combined {}; otherwise let the kernel spread them (RPS): echo a mask of processors to /sys/class/net/{name}/queues/rx-0/rps_cpus", processors.min(8)),
        ));
    }
}

fn packets(interface: &Interface, all: &mut Vec<Advice>) {
    if interface.errors > interface.packets / PACKETS_OF_AN_ERROR && interface.errors > 10 {
        all.push(advice(
            Weight::Warning,
            &interface.name,
            format!(
                "has dropped or damaged {} of {} packets since the machine started: TCP sends them again, and waits meanwhile",
                interface.errors, interface.packets
            ),
            format!("Look which ones: ip -s -s link show {}. Damaged ones are cable or port; dropped ones are queues that are too short.", interface.name),
        ));
    }
}

/// A bond or a bridge whose members do not fit each other.
fn members(whole: &Interface, network: &Network, all: &mut Vec<Advice>) {
    let parts: Vec<&Interface> = network
        .interfaces
        .iter()
        .filter(|each| each.part_of.as_deref() == Some(whole.name.as_str()))
        .collect();
    let different = |what: &str, values: Vec<String>| {
        let differ = values.windows(2).any(|pair| pair[0] != pair[1]);
        let list: Vec<String> =
            parts.iter().zip(&values).map(|(part, value)| format!("{} {value}", part.name)).collect();
        differ.then(|| format!("is made of interfaces of different {what}: {}", list.join(", ")))
    };
    if let Some(detail) = different("MTU", parts.iter().map(|part| part.mtu.to_string()).collect()) {
        all.push(advice(
            Weight::Warning,
            &whole.name,
            format!("{detail}; long packets are lost on some"),
            "Set the same on all of them.",
        ));
    }
    if whole.kind != Kind::Bond {
        return;
    }
    let speed =
        |part: &&Interface| part.speed_mbit.map_or_else(|| "?".into(), |speed| format!("{speed} Mbit/s"));
    if let Some(detail) = different("speed", parts.iter().map(speed).collect()) {
        all.push(advice(
            Weight::Warning,
            &whole.name,
            format!("{detail}; how fast a client is depends on chance"),
            "Use ports of one speed in a bond.",
        ));
    }
    let down: Vec<&str> =
        parts.iter().filter(|part| part.state == "down").map(|part| part.name.as_str()).collect();
    if !down.is_empty() {
        all.push(advice(
            Weight::Warning,
            &whole.name,
            format!("has lost {}; {} of {} are left", down.join(", "), parts.len() - down.len(), parts.len()),
            "Look at the cable and the switch's port.",
        ));
    }
    if whole.carries() && parts.len() < 2 {
        all.push(advice(
            Weight::Warning,
            &whole.name,
            "is a bond of one interface: nothing takes its place when that fails",
            "Add another one.",
        ));
    }
}

/// The network that an address is in, as text.
fn network_of(address: &str) -> Option<String> {
    let (ip, prefix) = address.split_once('/')?;
    let prefix: u32 = prefix.parse().ok()?;
    match ip.parse::<IpAddr>().ok()? {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32_u32.checked_sub(prefix)?).unwrap_or(0);
            Some(format!("{}/{prefix}", std::net::Ipv4Addr::from(ip.to_bits() & mask)))
        }
        IpAddr::V6(ip) if !ip.is_unicast_link_local() => {
            let mask = u128::MAX.checked_shl(128_u32.checked_sub(prefix)?).unwrap_or(0);
            Some(format!("{}/{prefix}", std::net::Ipv6Addr::from(ip.to_bits() & mask)))
        }
        IpAddr::V6(_) => None,
    }
}

/// Two interfaces in one network: answers leave by one of them, whichever was asked.
fn one_network_twice(network: &Network, all: &mut Vec<Advice>) {
    let mut networks: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for interface in network.interfaces.iter().filter(|each| each.carries()) {
        for inside in interface.addresses.iter().filter_map(|address| network_of(address)) {
            let names = networks.entry(inside).or_default();
            if !names.contains(&interface.name.as_str()) {
                names.push(&interface.name);
            }
        }
    }
    for (inside, names) in networks.iter().filter(|(_, names)| names.len() > 1) {
        all.push(advice(
            Weight::Warning,
            &names.join(", "),
            format!("are in one network ({inside}): all answers leave by one of them, so the others add neither speed nor safety"),
            "Give each its own network (SMB Multichannel and iSCSI multipath use both then), or make a bond of them.",
        ));
    }
}

fn way_out(network: &Network, all: &mut Vec<Advice>) {
    let carrying = network.interfaces.iter().filter(|each| {
        each.carries() && each.part_of.is_none() && matches!(each.kind, Kind::Physical | Kind::Bond)
    });
    let carrying: Vec<&Interface> = carrying.collect();
    if let [only] = carrying.as_slice()
        && only.kind == Kind::Physical
    {
        all.push(advice(
            Weight::Info,
            &only.name,
            "is the only way to this machine: when it fails, clients lose the node",
            "Connect a second port, in a network of its own or in a bond.",
        ));
    }
    if network.name_servers.is_empty() {
        all.push(advice(
            Weight::Info,
            "names",
            "no name server is configured (/etc/resolv.conf): only names of /etc/hosts are found",
            "Nothing, if all addresses are given as numbers.",
        ));
    }
}

fn tcp(network: &Network, all: &mut Vec<Advice>) {
    let tcp = network.tcp;
    if tcp.sent >= ENOUGH_SEGMENTS && tcp.sent_again > tcp.sent / SEGMENTS_OF_A_REPEAT {
        let share = tcp.sent_again as f64 * 100.0 / tcp.sent as f64;
        all.push(advice(
            Weight::Warning,
            "TCP",
            format!("{share:.1} % of the segments were sent again: packets are lost on the way, or arrive late"),
            "Find the way that loses them: holdfast net test CLIENT for each; then its cables, its switches, and whether all ends have one MTU.",
        ));
    }
    if tcp.not_taken > 0 {
        all.push(advice(
            Weight::Info,
            "TCP",
            format!("{} dropped since the program that listens did not take them in time (all programs, since the machine started)", connections(tcp.not_taken)),
            "If it grows while clients connect, the machine has too much to do at these moments, or net.core.somaxconn is too small.",
        ));
    }
}

fn connections(count: u64) -> String {
    if count == 1 { "1 connection was".into() } else { format!("{count} connections were") }
}
