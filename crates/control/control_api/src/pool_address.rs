//! The service address of a pool: where clients reach what is on it, whichever node has it.

use std::fmt;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Code, PoolConfig, Problem, parse_network};

/// A service address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceAddress {
    /// The address.
    pub ip: IpAddr,
    /// Bits of its network.
    pub prefix: u8,
    /// The interface that gets it on each node; absent for the one that has another address of the network.
    pub interface: Option<String>,
}

impl fmt::Display for ServiceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

impl ServiceAddress {
    /// An address as `ADDRESS/BITS`, and the name of an interface.
    ///
    /// # Errors
    /// When it cannot be an address that clients reach.
    pub fn parse(text: &str, interface: Option<&str>) -> Result<Self, Problem> {
        let bad = |why: &str| {
            Problem::new(Code::InvalidRequest, format!("{text:?} can't be a service address: {why}."))
                .todo("Give an address of the clients' network that no machine has, with the bits of the network, as 192.0.2.50/24 or 2001:db8::50/64.")
        };
        let Some((ip, prefix)) = parse_network(text).filter(|_| text.contains('/')) else {
            return Err(bad("it is not ADDRESS/BITS with a number address"));
        };
        if ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || prefix == 0 {
            return Err(bad("clients of other machines cannot connect to it"));
        }
        match ip {
            IpAddr::V4(ip) if ip.is_link_local() || ip.is_broadcast() => {
                return Err(bad("clients of other machines cannot connect to it"));
            }
            IpAddr::V4(ip) if prefix < 31 => {
                let hosts = u32::MAX >> prefix;
                if ip.to_bits() & hosts == 0 || ip.to_bits() & hosts == hosts {
                    return Err(bad("it is the network itself, or its broadcast address"));
                }
            }
            IpAddr::V6(ip) if ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some() => {
                return Err(bad("clients cannot connect to it without naming an interface"));
            }
            _ => {}
        }
        if let Some(name) = interface {
            let fine = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
            // IFNAMSIZ of Linux is 16 with the zero at the end.
            if name.is_empty() || name.len() >= 16 || !name.chars().all(fine) {
                return Err(Problem::new(
                    Code::InvalidRequest,
                    format!("{name:?} is no name of an interface."),
                )
                .todo("`ip link` shows the names, as eth1. All nodes need an interface of that name."));
            }
        }
        Ok(Self { ip, prefix, interface: interface.map(str::to_owned) })
    }

    /// That of a pool; none when it has none.
    #[must_use]
    pub fn of(pool: &PoolConfig) -> Option<Self> {
        Self::parse(pool.address.as_deref()?, pool.interface.as_deref()).ok()
    }
}

/// What is to change of a pool. What is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PoolUpdate {
    /// Its service address, as `192.0.2.50/24`; empty for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The interface that gets it on each node, as `eth1`; empty for the one that has another address of its network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Nodes of the cluster where it should be, the preferred one first; empty for any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home: Option<Vec<String>>,
}

/// The service address of a pool, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolAddress {
    /// The address with the bits of its network.
    pub address: String,
    /// The interface that is named for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Whether this node has it now.
    pub here: bool,
    /// Why not, where this node should have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_clients_cannot_reach_are_refused() {
        for good in ["10.0.0.50/24", "192.0.2.1/32", "192.0.2.0/31", "fd00::50/64"] {
            let parsed = ServiceAddress::parse(good, Some("eth1")).expect(good);
            assert_eq!(parsed.to_string(), good);
        }
        for bad in [
            "",
            "10.0.0.50",
            "10.0.0.50/33",
            "10.0.0.50/0",
            "10.0.0.0/24",
            "10.0.0.255/24",
            "0.0.0.0/8",
            "127.0.0.1/8",
            "224.0.0.1/4",
            "169.254.1.1/16",
            "255.255.255.255/32",
            "::/64",
            "::1/128",
            "fe80::1/64",
            "ff02::1/64",
            "::ffff:10.0.0.1/120",
            "host/24",
            "10.0.0.50/24/1",
            "10.0.0.50/x",
        ] {
            assert_eq!(ServiceAddress::parse(bad, None).expect_err(bad).code, Code::InvalidRequest, "{bad}");
        }
        for bad in ["", "a name", "an-interface-too", "eth0;"] {
            assert_eq!(
                ServiceAddress::parse("10.0.0.50/24", Some(bad)).expect_err(bad).code,
                Code::InvalidRequest,
                "{bad}"
            );
        }
    }
}
