//! What the network of this machine is, and what about it costs speed or safety. Nothing is changed and nothing is sent.
//!
//! ```text
//!   /sys/class/net ───► interfaces ─┐
//!   /proc/net/*route ─► routes      ├─► Network ──► advice: what to do about it, worst first
//!   /proc/net/tcp* ───► connections │
//!   /etc/resolv.conf ─► name servers┘
//! ```
//!
//! Deliberately absent: IP addresses of interfaces, which the kernel tells by netlink only; whoever knows them adds them
//! ([`Network::add_address`]). Ways to other machines are the business of `network_paths`.

mod advice;
mod connections;
mod interfaces;
mod routes;
mod text;

use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

pub use advice::{Advice, Weight};
pub use connections::{PortUse, TcpCounters};
pub use interfaces::{Bond, Interface, Kind, Rdma};
pub use routes::Route;

/// Routes that are told at most.
const MOST_ROUTES: usize = 1000;

/// The network of a machine. What cannot be read is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Network {
    /// The machine's name.
    pub host: String,
    /// Processors that packets can be spread over.
    pub processors: u64,
    /// Interfaces, by name.
    pub interfaces: Vec<Interface>,
    /// Routes of the main table.
    pub routes: Vec<Route>,
    /// Servers that names are looked up at.
    pub name_servers: Vec<String>,
    /// Connections by port.
    pub ports: Vec<PortUse>,
    /// What TCP has counted.
    pub tcp: TcpCounters,
}

impl Network {
    /// The one that this process sees, without its IP addresses.
    #[must_use]
    pub fn here() -> Self {
        let mut network = Self::of(Path::new("/"));
        for interface in network.interfaces.iter_mut().filter(|each| each.kind == Kind::Physical) {
            interface.firmware = firmware(&interface.name).unwrap_or_default();
        }
        network
    }

    /// The same from a root folder with `sys`, `proc` and `etc` in it.
    fn of(root: &Path) -> Self {
        let file = |name: &str| text::read(root.join(name));
        let mut routes: Vec<Route> = routes::of_ipv4(&file("proc/net/route"))
            .chain(routes::of_ipv6(&file("proc/net/ipv6_route")))
            .take(MOST_ROUTES)
            .collect();
        routes.sort_by_key(|route| (route.destination.is_ipv6(), route.prefix, route.metric));
        Self {
            host: file("proc/sys/kernel/hostname"),
            processors: file("proc/cpuinfo").lines().filter(|line| line.starts_with("processor")).count()
                as u64,
            interfaces: interfaces::interfaces(&root.join("sys/class/net")),
            routes,
            name_servers: name_servers(&file("etc/resolv.conf")),
            ports: connections::by_port(&[&file("proc/net/tcp"), &file("proc/net/tcp6")]),
            tcp: connections::counters(&file("proc/net/snmp"), &file("proc/net/netstat")),
        }
    }

    /// Says that an interface has an address.
    pub fn add_address(&mut self, interface: &str, address: IpAddr, prefix: u8) {
        if let Some(found) = self.interfaces.iter_mut().find(|each| each.name == interface) {
            found.addresses.push(format!("{address}/{prefix}"));
        }
    }

    /// The interface that has an address.
    #[must_use]
    pub fn interface_of(&self, address: IpAddr) -> Option<&Interface> {
        let address = address.to_string();
        let has = |each: &&Interface| {
            each.addresses.iter().any(|own| own.split('/').next() == Some(address.as_str()))
        };
        self.interfaces.iter().find(has)
    }

    /// What about it costs speed or safety, and what to do, worst first.
    #[must_use]
    pub fn advice(&self) -> Vec<Advice> {
        advice::of(self)
    }
}

/// Of `/etc/resolv.conf` (resolv.conf(5)).
fn name_servers(text: &str) -> Vec<String> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next().map(str::to_owned)).flatten()
    });
    servers.collect()
}

/// What `ethtool -i` says of an adapter's firmware, where that program is installed.
fn firmware(interface: &str) -> Option<String> {
    let told = Command::new("ethtool")
        .args(["-i", interface])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let version = told.lines().find_map(|line| line.strip_prefix("firmware-version:"))?.trim();
    (!matches!(version, "" | "N/A")).then(|| version.to_owned())
}

#[cfg(test)]
mod tests;
