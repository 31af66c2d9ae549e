//! Clients that could use more of the network than they do.

use std::collections::{BTreeMap, BTreeSet};

use control_api::{Session, Severity};
use network_facts::{Interface, Network};

use crate::finding::Finding;
use crate::units::many;

/// Interfaces that clients can reach this machine by.
pub(super) fn reachable(network: &Network) -> Vec<&Interface> {
    let local = |address: &String| {
        let ip = address.split('/').next().and_then(|ip| ip.parse::<std::net::IpAddr>().ok());
        ip.is_none_or(|ip| match ip {
            std::net::IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local(),
            std::net::IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local(),
        })
    };
    let each = network.interfaces.iter();
    each.filter(|each| each.carries() && each.addresses.iter().any(|address| !local(address))).collect()
}

/// Clients with one connection to a machine that has several interfaces.
pub(super) fn findings(network: &Network, sessions: &[Session]) -> Vec<Finding> {
    let ways = reachable(network).len() as u64;
    if ways < 2 {
        return Vec::new();
    }
    let mut initiators: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut clients: BTreeSet<(&str, &str)> = BTreeSet::new();
    for session in sessions {
        match &session.smb {
            // Before SMB 3 there is no multichannel (MS-SMB2, section 3.2.4.1.7).
            Some(smb) if session.connections < 2 && smb.dialect.starts_with('3') => {
                clients.insert((&smb.workstation, &session.address));
            }
            Some(_) => {}
            None if session.target.is_empty() => {}
            None => {
                *initiators.entry((&session.initiator, &session.target)).or_default() += session.connections
            }
        }
    }
    let interfaces = many(ways, "interface");
    let alone = initiators.into_iter().filter(|(_, connections)| *connections < 2);
    let paths = alone.map(|((initiator, target), _)| Finding {
        severity: Severity::Warning,
        subject: initiator.to_owned(),
        detail: format!("has one connection to {target}, although this machine has {interfaces}: when that way fails, its disks are gone"),
        todo: "Log in by an address of each interface, with multipath over them (docs/guide/initiators.md).".into(),
    });
    let channels = clients.into_iter().map(|(workstation, address)| Finding {
        severity: Severity::Info,
        subject: if workstation.is_empty() {
            address.to_owned()
        } else {
            format!("{workstation} ({address})")
        },
        detail: format!("uses SMB over one connection, although this machine has {interfaces}"),
        todo: "Let the client use SMB Multichannel; Linux does with the mount option multichannel.".into(),
    });
    paths.chain(channels).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_api::{Protocol, SmbSession};

    fn network(addresses: &[&str]) -> Network {
        let interface = |(number, address): (usize, &&str)| Interface {
            name: format!("eth{number}"),
            state: "up".into(),
            addresses: vec![(*address).to_owned(), "fe80::1/64".into()],
            ..Interface::default()
        };
        Network { interfaces: addresses.iter().enumerate().map(interface).collect(), ..Network::default() }
    }

    fn iscsi(initiator: &str, connections: u64) -> Session {
        Session { initiator: initiator.into(), target: "t".into(), connections, ..Session::default() }
    }

    fn smb(dialect: &str, connections: u64) -> Session {
        let smb = SmbSession { dialect: dialect.into(), workstation: "W".into(), ..SmbSession::default() };
        Session { protocol: Protocol::Smb, connections, smb: Some(smb), ..Session::default() }
    }

    #[test]
    fn one_way_of_several_is_told() {
        let two = network(&["192.0.2.1/24", "198.51.100.1/24"]);
        let sessions =
            [iscsi("a", 1), iscsi("b", 1), iscsi("b", 1), iscsi("c", 2), smb("3.1.1", 1), smb("3.0", 2)];
        let subjects: Vec<_> = findings(&two, &sessions).into_iter().map(|finding| finding.subject).collect();
        assert_eq!(subjects, ["a", "W ()"]);
        let old = [smb("2.1", 1), Session { initiator: "discovers".into(), ..Session::default() }];
        assert_eq!(findings(&two, &old), []);
    }

    #[test]
    fn one_interface_has_one_way() {
        for addresses in
            [&["192.0.2.1/24"][..], &["192.0.2.1/24", "127.0.0.2/8"], &["192.0.2.1/24", "nothing"]]
        {
            assert_eq!(findings(&network(addresses), &[iscsi("a", 1)]), []);
        }
    }
}
