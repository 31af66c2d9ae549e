//! Where other nodes reach this one, and what it is called, as an administrator says it.

use std::net::{IpAddr, SocketAddr, TcpListener};

use cluster_identity::{MAX_ADDRESSES, NodeName};
use control_api::{Code, Problem};

/// The port of links; that of the API between members is the next one, then those of etcd for clients and members, and that of the bus.
pub(crate) const PORT: u16 = 7400;
/// How many ports a node uses, from that of links on.
const PORTS: u16 = 5;

/// Where a node is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// Links arrive here.
    pub(crate) link: SocketAddr,
    /// Members, and nodes that join, are answered here.
    pub(crate) api: SocketAddr,
}

/// Where a node whose links arrive there lends its disks to the others.
pub(crate) fn bus(link: SocketAddr) -> Option<SocketAddr> {
    Some(SocketAddr::new(link.ip(), link.port().checked_add(PORTS - 1)?))
}

/// The addresses of this machine that other machines may reach.
fn machine() -> Vec<IpAddr> {
    let of_a_link = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let all = if_addrs::get_if_addrs().unwrap_or_default().into_iter().map(|each| each.ip());
    let mut all: Vec<IpAddr> = all.filter(|ip| !ip.is_loopback() && !of_a_link(ip)).collect();
    all.sort();
    all.dedup();
    all
}

/// The addresses for this node's certificate: the given one and the machine's.
pub(crate) fn for_certificate(given: IpAddr) -> Vec<IpAddr> {
    let mut all = machine();
    all.truncate(MAX_ADDRESSES - 3);
    all.push(given);
    all.sort();
    all.dedup();
    all
}

/// The addresses that were asked for, which nobody uses yet.
///
/// # Errors
/// When they cannot be had, or none was given and the machine has several.
pub(crate) fn addresses(given: Option<&str>) -> Result<Addresses, Problem> {
    let invalid = |detail: String| Problem::new(Code::InvalidRequest, detail);
    let (ip, port) = match given {
        Some(text) => parse(text).ok_or_else(|| {
            invalid(format!("{text:?} is no address that other nodes can reach: IP or IP:PORT is wanted."))
                .todo(format!("As in --address 10.0.0.1 or --address 10.0.0.1:{PORT}."))
        })?,
        None => match machine().as_slice() {
            [only] => (*only, PORT),
            all => {
                let list: Vec<String> = all.iter().map(ToString::to_string).collect();
                return Err(invalid(match list.as_slice() {
                    [] => "This machine has no address that others can reach.".into(),
                    list => format!("This machine has several addresses: {}.", list.join(", ")),
                })
                .todo("Say with --address where the other nodes reach this one; a network of their own is best."));
            }
        },
    };
    if port.checked_add(PORTS - 1).is_none() || port == 0 {
        return Err(invalid(format!("A node needs {PORTS} ports from {port} on: there are not so many.")));
    }
    for each in port..port + PORTS {
        let at = SocketAddr::new(ip, each);
        TcpListener::bind(at).map_err(|error| {
            Problem::new(Code::InUse, format!("The address {at} cannot be used: {error}."))
                .todo(format!("A node in a cluster listens on {PORTS} ports from {port} on. Choose another address or port with --address."))
        })?;
    }
    Ok(Addresses { link: SocketAddr::new(ip, port), api: SocketAddr::new(ip, port + 1) })
}

fn parse(text: &str) -> Option<(IpAddr, u16)> {
    let (ip, port) = match text.parse::<SocketAddr>() {
        Ok(address) => (address.ip(), address.port()),
        Err(_) => (text.trim_start_matches('[').trim_end_matches(']').parse().ok()?, PORT),
    };
    (!ip.is_unspecified() && !ip.is_multicast()).then_some((ip, port))
}

/// The node's name in its cluster: the given one, or that of the machine.
///
/// # Errors
/// When it is none.
pub(crate) fn node_name(given: Option<&str>, configured: &str) -> Result<NodeName, Problem> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim().split('.').next().unwrap_or_default().to_owned();
    let own = if configured.is_empty() { host } else { configured.to_owned() };
    NodeName::new(given.unwrap_or(&own)).map_err(|why| {
        Problem::new(Code::InvalidRequest, format!("{why}."))
            .todo("Give the node a name in the cluster with --node-name.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_before_anything_is_done() {
        let found = addresses(Some("127.0.0.77:20111")).expect("free");
        assert_eq!(
            (found.link.to_string(), found.api.to_string()),
            ("127.0.0.77:20111".into(), "127.0.0.77:20112".into())
        );
        let _taken = TcpListener::bind("127.0.0.77:20116").expect("free");
        let problem = addresses(Some("127.0.0.77:20113")).expect_err("one of them is in use");
        assert_eq!(problem.code, Code::InUse);
        assert!(problem.detail.contains("127.0.0.77:20116"), "{problem}");
        for wrong in [
            "",
            "node1",
            "0.0.0.0",
            "[::]:7400",
            "10.0.0.1:x",
            "10.0.0.1:70000",
            "224.0.0.1",
            "10.0.0.1:65533",
            "10.0.0.1:0",
        ] {
            assert_eq!(addresses(Some(wrong)).expect_err(wrong).code, Code::InvalidRequest, "{wrong}");
        }
        // Not an address of this machine.
        assert_eq!(addresses(Some("192.0.2.1")).expect_err("another machine's").code, Code::InUse);
        assert_eq!(parse("::1"), Some(("::1".parse().expect("one"), PORT)));
        assert_eq!(parse("[::1]:5"), Some(("::1".parse().expect("one"), 5)));
    }

    #[test]
    fn names_are_those_of_hosts() {
        assert_eq!(node_name(Some("Alpha"), "x").expect("a name").as_str(), "alpha");
        assert_eq!(node_name(None, "beta").expect("a name").as_str(), "beta");
        assert_eq!(node_name(Some("a.b"), "").expect_err("none").code, Code::InvalidRequest);
    }
}
