//! Rules of clients: how they reach what is served, and whether others can read along.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use control_api::{Issue, PortalInfo, Protocol, Session, Severity, Share, ShareKind, many};

use crate::{FindingCode, issue};

/// Names that are said of many.
const NAMED: usize = 5;

/// The address of a client, without its port.
fn peer(text: &str) -> Option<IpAddr> {
    let with_port = text.parse::<SocketAddr>().map(|at| at.ip());
    with_port.or_else(|_| text.parse()).ok().map(|ip| ip.to_canonical())
}

fn few<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.len().checked_sub(NAMED).filter(|more| *more > 0) {
        Some(more) => format!("{} and {more} more", names.get(..NAMED).unwrap_or_default().join(", ")),
        None => names.join(", "),
    }
}

/// Initiators with one connection to a target that is served on addresses of several networks' sake: a cable that is cut ends their I/O.
/// Only where two portals listen at addresses of their own: otherwise there is no second way to be had here. Who is on the node itself needs none.
pub fn of_initiators(sessions: &[Session], portals: &[PortalInfo]) -> Vec<Issue> {
    let at = |portal: &PortalInfo| {
        let listening = portal.listening.as_deref()?.parse::<SocketAddr>().ok()?.ip().to_canonical();
        Some(listening).filter(|ip| !ip.is_unspecified() && !ip.is_loopback())
    };
    let ways: BTreeSet<IpAddr> = portals.iter().filter_map(at).collect();
    if ways.len() < 2 {
        return Vec::new();
    }
    let mut ways_of: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for session in sessions.iter().filter(|session| session.protocol == Protocol::Iscsi) {
        let local = peer(&session.address).is_some_and(|ip| ip.is_loopback() || ways.contains(&ip));
        if !session.target.is_empty() && !local {
            *ways_of.entry((&session.target, &session.initiator)).or_default() += session.connections.max(1);
        }
    }
    let mut by_target: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for ((target, initiator), _) in ways_of.into_iter().filter(|(_, count)| *count == 1) {
        by_target.entry(target).or_default().push(initiator);
    }
    let told = |(target, initiators): (&str, Vec<&str>)| {
        let detail = format!(
            "{} with one way to it only, of {} that it is served on ({}): when a cable, a switch or an interface fails, their disks are gone until it is back",
            many(initiators.len() as u64, "initiator"),
            ways.len(),
            few(initiators.into_iter())
        );
        let todo =
            "Log in at a second portal, and have multipath-tools (Linux) or MPIO (Windows) use both ways.";
        issue(FindingCode::InitiatorSinglePath, Severity::Warning, format!("target {target}"), detail, todo)
    };
    by_target.into_iter().map(told).collect()
}

/// Shares whose clients lose what they have open when the pool moves. `moves` says whether the pool of a volume may.
pub fn of_shares_on_clusters(shares: &[Share], moves: &dyn Fn(&Share) -> bool) -> Vec<Issue> {
    let plain = shares.iter().filter(|share| share.config.kind == ShareKind::Plain && moves(share));
    let told = |share: &Share| {
        let name = &share.config.name;
        let detail = "its pool may move to another node, and what clients have open does not go with it: they see errors then";
        let todo = format!(
            "`holdfast share set {name} --kind clustered` lets it go with the pool; clients connect anew once."
        );
        issue(FindingCode::ShareNotContinuous, Severity::Info, format!("share {name}"), detail, todo)
    };
    plain.map(told).collect()
}

/// Whether packets to and from this address stay in networks of one's own, as far as addresses tell.
fn is_private(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            // 100.64.0.0/10 is shared by a provider's customers: private to one network all the same.
            let shared = ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64;
            ip.is_private() || ip.is_loopback() || ip.is_link_local() || shared
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// Clients that could encrypt, come from outside of private networks, and do not encrypt.
/// Within a storage network of one's own, signed and not encrypted is what most have chosen: nothing is said of that.
pub fn of_unencrypted(sessions: &[Session], shares: &[Share]) -> Vec<Issue> {
    let encrypts: BTreeSet<&str> =
        shares.iter().filter(|share| share.config.encrypt).map(|share| share.config.name.as_str()).collect();
    let mut by_share: BTreeMap<&str, BTreeSet<IpAddr>> = BTreeMap::new();
    for smb in sessions.iter().filter_map(|session| session.smb.as_ref()) {
        if smb.encrypted || smb.cipher.is_none() {
            continue;
        }
        let outside = smb.addresses.iter().filter_map(|address| peer(address)).filter(|ip| !is_private(*ip));
        let outside: BTreeSet<IpAddr> = outside.collect();
        for share in smb.shares.iter().filter(|share| !encrypts.contains(share.as_str())) {
            if !outside.is_empty() && !share.eq_ignore_ascii_case("IPC$") {
                by_share.entry(share).or_default().extend(&outside);
            }
        }
    }
    let told = |(share, from): (&str, BTreeSet<IpAddr>)| {
        let names: Vec<String> = from.iter().map(IpAddr::to_string).collect();
        let detail = format!(
            "{} from outside of private networks use it without encryption ({}): whoever is on the way can read along",
            many(from.len() as u64, "client"),
            few(names.iter().map(String::as_str))
        );
        let todo =
            format!("`holdfast share set {share} --encrypt on` asks for encryption; these clients can.");
        issue(FindingCode::SmbUnencrypted, Severity::Warning, format!("share {share}"), detail, todo)
    };
    by_share.into_iter().map(told).collect()
}

#[cfg(test)]
mod tests;
