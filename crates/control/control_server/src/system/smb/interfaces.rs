//! The machine's network: what clients are told of for further connections of a session.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use control_api::{SmbConfig, SmbInterface, parse_network};
use parking_lot::Mutex;
use smb_protocol::fsctl::network::{InterfaceCapabilities, NetworkInterface};
use smb_server::Interfaces;

/// Speed of an interface that does not say (bridges, virtual machines): clients prefer faster ones, so not too much.
const UNKNOWN_SPEED: u64 = 1_000_000_000;
/// Speed of the machine's own loopback.
const LOOPBACK_SPEED: u64 = 10_000_000_000;

/// An address of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    name: String,
    index: u32,
    address: IpAddr,
    link_speed: u64,
    rss: bool,
}

/// Which interfaces which clients may be told of.
#[derive(Clone, Debug, Default)]
struct Rules {
    interfaces: Vec<String>,
    constraints: Vec<control_api::SmbConstraint>,
}

/// The machine's addresses. Looked up now and then by the control plane, because a system call that asks a network card
/// can take milliseconds; answers come from memory.
#[derive(Default)]
pub(super) struct MachineInterfaces {
    known: Mutex<Vec<Known>>,
    rules: Mutex<Rules>,
    listeners: Mutex<Vec<SocketAddr>>,
}

impl MachineInterfaces {
    /// Looks at the machine.
    pub(super) fn look(&self) {
        match if_addrs::get_if_addrs() {
            Ok(found) => {
                // A service address moves away with its pool: it is nothing to open further connections to.
                let own = found.into_iter().filter(|each| !each.name.ends_with(service_address::LABEL));
                let known = own.filter(|each| is_up(&each.name)).map(|each| Known {
                    link_speed: link_speed(&each.name, each.is_loopback()),
                    rss: receive_queues(&each.name) > 1,
                    address: each.ip(),
                    index: each.index.unwrap_or_default(),
                    name: each.name,
                });
                *self.known.lock() = known.filter(|each| usable(each.address)).collect();
            }
            Err(error) => tracing::warn!(%error, "the machine's network addresses cannot be listed"),
        }
    }

    /// Sets which clients are told of what.
    pub(super) fn constrain(&self, config: &SmbConfig) {
        let (interfaces, constraints) = (config.interfaces.clone(), config.constraints.clone());
        *self.rules.lock() = Rules { interfaces, constraints };
    }

    /// Sets where the server listens.
    pub(super) fn listeners(&self, listeners: Vec<SocketAddr>) {
        *self.listeners.lock() = listeners;
    }

    /// What a client of another machine is told, one that no constraint names.
    pub(super) fn offered(&self) -> Vec<SmbInterface> {
        let listeners = self.listeners.lock().clone();
        let rules = self.rules.lock().interfaces.clone();
        let known = self.known.lock();
        let reached = |each: &&Known| listeners.iter().any(|listener| covers(listener, each.address));
        let offered = known.iter().filter(|each| !each.address.is_loopback() && allowed(each, &rules));
        let offered = offered.filter(reached).map(|each| SmbInterface {
            name: each.name.clone(),
            index: each.index,
            address: each.address.to_string(),
            link_speed: each.link_speed,
            rss: each.rss,
        });
        offered.collect()
    }

    fn choose(&self, local: SocketAddr, remote: SocketAddr) -> Vec<Known> {
        let (came_in, client) = (local.ip().to_canonical(), remote.ip().to_canonical());
        let rules = self.rules.lock().clone();
        let special =
            rules.constraints.iter().find(|each| is_in(client, &each.clients)).map(|each| &each.interfaces);
        let rules = special.unwrap_or(&rules.interfaces);
        // A client uses the port that it knows for the other addresses too.
        let listeners: Vec<SocketAddr> =
            self.listeners.lock().iter().filter(|each| each.port() == local.port()).copied().collect();
        let known = self.known.lock();
        let found = known.iter().filter(|each| {
            let loopback = each.address.is_loopback();
            loopback == came_in.is_loopback()
                && (loopback || allowed(each, rules))
                && listeners.iter().any(|listener| covers(listener, each.address))
        });
        let mut chosen: Vec<Known> = found.cloned().collect();
        if chosen.is_empty() && special.is_none() && rules.is_empty() {
            // An address that the machine does not list, as others of the loopback's network: an empty list would tell the
            // client that there is no way to where it is.
            let near = known.iter().find(|each| each.address.is_loopback() == came_in.is_loopback());
            chosen.extend(near.map(|near| Known { address: came_in, ..near.clone() }));
        }
        chosen
    }
}

impl Interfaces for MachineInterfaces {
    fn interfaces(&self, local: SocketAddr, remote: SocketAddr) -> Vec<NetworkInterface> {
        let chosen = self.choose(local, remote).into_iter().map(|each| NetworkInterface {
            index: each.index,
            capabilities: if each.rss {
                InterfaceCapabilities::RSS_CAPABLE
            } else {
                InterfaceCapabilities::NONE
            },
            link_speed: each.link_speed,
            address: each.address,
        });
        chosen.collect()
    }
}

/// Whether who listens there takes connections to `address`. A listener on `[::]` takes those to IPv4 addresses too.
fn covers(listener: &SocketAddr, address: IpAddr) -> bool {
    match listener.ip() {
        IpAddr::V4(any) if any.is_unspecified() => address.is_ipv4(),
        IpAddr::V6(any) if any.is_unspecified() => true,
        one => one.to_canonical() == address,
    }
}

/// Whether clients can be told of an address: link-local ones mean something only together with an interface.
fn usable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_link_local(),
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    }
}

fn allowed(each: &Known, rules: &[String]) -> bool {
    rules.is_empty() || rules.iter().any(|rule| *rule == each.name || is_in(each.address, rule))
}

/// Whether an address is in a network, written as `ADDRESS` or `ADDRESS/BITS`.
fn is_in(address: IpAddr, network: &str) -> bool {
    let Some((network, bits)) = parse_network(network) else { return false };
    let (address, network, all) = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return false,
    };
    let rest = all - u32::from(bits);
    rest == 128 || (address ^ network) >> rest == 0
}

fn system(name: &str) -> std::path::PathBuf {
    // Aliases as eth0:1 are the interface before the colon.
    Path::new("/sys/class/net").join(name.split(':').next().unwrap_or(name))
}

/// Bits per second.
fn link_speed(name: &str, loopback: bool) -> u64 {
    if loopback {
        return LOOPBACK_SPEED;
    }
    // In megabits per second; -1 or an error where nobody knows.
    let text = std::fs::read_to_string(system(name).join("speed")).unwrap_or_default();
    text.trim()
        .parse::<u64>()
        .ok()
        .filter(|speed| *speed > 0)
        .map_or(UNKNOWN_SPEED, |speed| speed * 1_000_000)
}

/// How many queues it receives by.
fn receive_queues(name: &str) -> usize {
    let Ok(entries) = std::fs::read_dir(system(name).join("queues")) else { return 0 };
    entries.flatten().filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"rx-")).count()
}

fn is_up(name: &str) -> bool {
    // "unknown" is what loopback and tunnels say.
    std::fs::read_to_string(system(name).join("operstate")).map_or(true, |state| state.trim() != "down")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str, address: &str) -> Known {
        let address = address.parse().expect("an address");
        Known { name: name.into(), index: 1, address, link_speed: 1, rss: false }
    }

    fn machine() -> MachineInterfaces {
        let machine = MachineInterfaces::default();
        *machine.known.lock() = vec![
            known("lo", "127.0.0.1"),
            known("eth0", "192.0.2.1"),
            known("eth1", "198.51.100.1"),
            known("eth1", "2001:db8::1"),
        ];
        machine.listeners(vec!["0.0.0.0:445".parse().expect("an address")]);
        machine
    }

    fn names(machine: &MachineInterfaces, local: &str, remote: &str) -> Vec<String> {
        let chosen = machine.choose(local.parse().expect("local"), remote.parse().expect("remote"));
        chosen.into_iter().map(|each| each.address.to_string()).collect()
    }

    #[test]
    fn clients_are_told_where_somebody_listens() {
        let machine = machine();
        assert_eq!(names(&machine, "192.0.2.1:445", "192.0.2.9:1"), ["192.0.2.1", "198.51.100.1"]);
        assert_eq!(names(&machine, "127.0.0.1:445", "127.0.0.1:1"), ["127.0.0.1"]);
        let odd = names(&machine, "127.0.44.5:4450", "127.0.0.1:1");
        assert_eq!(odd, ["127.0.44.5"], "where the client is, should there be nothing else");
        machine.listeners(vec!["[::]:445".parse().expect("an address")]);
        let all = ["192.0.2.1", "198.51.100.1", "2001:db8::1"];
        assert_eq!(names(&machine, "[::ffff:192.0.2.1]:445", "[::ffff:192.0.2.9]:1"), all);
        machine.listeners(vec!["198.51.100.1:445".parse().expect("an address")]);
        assert_eq!(names(&machine, "198.51.100.1:445", "192.0.2.9:1"), ["198.51.100.1"]);
        assert_eq!(machine.offered().len(), 1);
    }

    #[test]
    fn constraints_choose_by_client() {
        let machine = machine();
        machine.constrain(&SmbConfig {
            interfaces: vec!["eth0".into()],
            constraints: vec![control_api::SmbConstraint {
                clients: "198.51.100.0/24".into(),
                interfaces: vec!["198.51.0.0/16".into()],
            }],
            ..SmbConfig::default()
        });
        assert_eq!(names(&machine, "192.0.2.1:445", "192.0.2.9:1"), ["192.0.2.1"]);
        assert_eq!(names(&machine, "192.0.2.1:445", "198.51.100.9:1"), ["198.51.100.1"]);
        assert!(is_in([1, 2, 3, 4].into(), "0.0.0.0/0") && !is_in([1, 2, 3, 4].into(), "::/0"));
        assert!(is_in("fd00::1".parse().expect("an address"), "::/0"));
    }

    #[test]
    fn this_machine_has_a_loopback() {
        let machine = MachineInterfaces::default();
        machine.look();
        machine.listeners(vec!["127.0.0.1:445".parse().expect("an address")]);
        assert_eq!(names(&machine, "127.0.0.1:445", "127.0.0.1:1"), ["127.0.0.1"]);
    }
}
