//! What one host may take of places that all hosts share: sessions of a target, connections of a portal and of the node.
//!
//! Who answers for what a login takes is its *owner*: the CHAP user that it has proved to be, for whoever knows that secret may give
//! itself any of the user's names; without CHAP the network that it comes from, for there a name proves nothing. Users are a target's:
//! those of two targets are two, whatever their names are. An owner may be several hosts (a user for a whole group, a gateway), told
//! apart by their initiators' names.
//!
//! The rule is that of [`Shares`], for owners: half of the places are kept for the first [`FIRST`] of each, so no owner finds none as
//! long as fewer than `limit / 2 / FIRST` others have theirs. Of its owner's places each initiator has its first ones as long as the owner
//! may have any, and a quarter of what an owner comes to is kept for them: beyond them an initiator takes one only from the other three
//! quarters, and only while it holds fewer than are left to its owner.
//!
//! What comes instead of something of its host takes the places of that, so it is refused for nobody's sake; and what goes for it goes
//! only when it has all of its own.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use iscsi_protocol::IscsiName;
use iscsi_protocol::chap::ChapUser;
use parking_lot::Mutex;
use scsi_core::Shares;
use tcp_service::network_of;

/// Places of an owner, and of an initiator, that are refused for no other's sake: a host with eight ways to its storage.
pub(crate) const FIRST: usize = 8;

/// Who answers for what is taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// A user of a target.
    User(IscsiName, String),
    Network(IpAddr),
}

/// Who takes a place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Host {
    owner: Owner,
    initiator: IscsiName,
}

impl Host {
    pub(crate) fn new(
        target: &IscsiName,
        initiator: &IscsiName,
        user: Option<&ChapUser>,
        remote: IpAddr,
    ) -> Self {
        let owner = match user {
            Some(user) => Owner::User(target.clone(), user.name.clone()),
            None => Owner::Network(network_of(remote)),
        };
        Self { owner, initiator: initiator.clone() }
    }
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// None that has none.
    of: BTreeMap<Owner, BTreeMap<IscsiName, usize>>,
}

/// What there are places of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Sessions of a target.
    Session,
    /// Connections of a portal.
    Portal,
    /// Connections of the node.
    Node,
}

/// Places of one kind.
#[derive(Debug)]
pub(crate) struct Places {
    kind: Kind,
    taken: Mutex<Taken>,
}

/// A place, until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    host: Host,
}

impl Place {
    /// Whether it is one of these, and the host's: what takes the place of something of a host takes its place here, too, whatever others
    /// have come to hold since.
    fn is(&self, places: &Arc<Places>, host: &Host) -> bool {
        Arc::ptr_eq(&self.places, places) && self.host == *host
    }

    /// Whether it does for one of these if it must: a place at another portal, which goes on counting there.
    fn stands_in(&self, places: &Arc<Places>, host: &Host) -> bool {
        self.places.kind == places.kind && self.host == *host
    }
}

impl Places {
    pub(crate) fn of(kind: Kind) -> Arc<Self> {
        Arc::new(Self { kind, taken: Mutex::default() })
    }

    /// Whether something that has these places can be replaced without a further one.
    pub(crate) fn is_replaced_by(self: &Arc<Self>, kept: &[Place], host: &Host) -> bool {
        kept.iter().any(|place| place.stands_in(self, host))
    }

    /// One of the `kept` places, which something had that goes, or else a further one as [`Places::take`] gives it, or one of those
    /// that do for it.
    pub(crate) fn take_over(
        self: &Arc<Self>,
        kept: &mut Vec<Place>,
        limit: usize,
        host: &Host,
    ) -> Option<Place> {
        if let Some(at) = kept.iter().position(|place| place.is(self, host)) {
            return Some(kept.swap_remove(at));
        }
        self.take(limit, host).or_else(|| {
            let at = kept.iter().position(|place| place.stands_in(self, host))?;
            Some(kept.swap_remove(at))
        })
    }

    /// A place for a host, of `limit` that there are; `None` when it has its share, or there are none.
    pub(crate) fn take(self: &Arc<Self>, limit: usize, host: &Host) -> Option<Place> {
        let mut taken = self.taken.lock();
        let names = taken.of.get(&host.owner);
        let held = names.map_or(0, |names| names.values().sum());
        let own = names.and_then(|names| names.get(&host.initiator)).copied().unwrap_or(0);
        let shares = Shares::half_kept(limit, FIRST);
        if !shares.may_take(taken.all, held)
            || (held >= FIRST && !may_have(own, held, shares.open(taken.all)))
        {
            return None;
        }
        taken.all += 1;
        let names = taken.of.entry(host.owner.clone()).or_default();
        *names.entry(host.initiator.clone()).or_insert(0) += 1;
        Some(Place { places: Arc::clone(self), host: host.clone() })
    }
}

/// Whether an initiator that holds `own` of the `held` places of its owner may have one more, where so many are open for all. Each that
/// the owner takes leaves it two fewer to take: one for being taken, one for being held. So it comes to `held + left / 2`.
fn may_have(own: usize, held: usize, open: usize) -> bool {
    let left = open.saturating_sub(held);
    own < FIRST || (own < left && 4 * held < 3 * (held + left / 2))
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        taken.all -= 1;
        let Some(names) = taken.of.get_mut(&self.host.owner) else { return };
        if let Some(count) = names.get_mut(&self.host.initiator) {
            *count -= 1;
            if *count == 0 {
                names.remove(&self.host.initiator);
            }
        }
        if names.is_empty() {
            taken.of.remove(&self.host.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(name: &str) -> IscsiName {
        IscsiName::parse(&format!("iqn.2026-01.org.example:{name}")).expect("name")
    }

    fn host(user: &str, name: &str) -> Host {
        host_at("disk", user, name)
    }

    fn host_at(disk: &str, user: &str, name: &str) -> Host {
        let user = ChapUser { name: user.into(), secret: iscsi_protocol::chap::Secret::new("s") };
        let name = IscsiName::parse(&format!("iqn.2026-01.org.example:{name}")).expect("name");
        Host::new(&target(disk), &name, Some(&user), IpAddr::from([127, 0, 0, 1]))
    }

    fn at(address: &str, name: &str) -> Host {
        let name = IscsiName::parse(&format!("iqn.2026-01.org.example:{name}")).expect("name");
        Host::new(&target("disk"), &name, None, address.parse().expect("address"))
    }

    /// All that a host gets.
    fn grab(places: &Arc<Places>, limit: usize, host: &Host) -> Vec<Place> {
        std::iter::from_fn(|| places.take(limit, host)).collect()
    }

    #[test]
    fn whoever_comes_later_finds_its_first_places() {
        let places = Places::of(Kind::Portal);
        let mut kept = Vec::new();
        for n in 0..64 {
            let got = grab(&places, 1024, &host(&format!("greedy {n}"), "host"));
            assert!(got.len() >= FIRST, "host {n} got {}", got.len());
            kept.extend(got);
        }
        assert!(kept.len() <= 1024);
    }

    #[test]
    fn one_alone_leaves_half_of_what_is_open_and_two_share_it() {
        let places = Places::of(Kind::Portal);
        let names = |n: usize| grab(&places, 2048, &host("one", &format!("host-{n}")));
        let first: Vec<_> = (0..100).flat_map(names).collect();
        assert_eq!(first.len(), 512, "also under a hundred names: a 64-node cluster with 8 paths each");
        let second = grab(&places, 2048, &host("two", "host"));
        assert!((FIRST..=256).contains(&second.len()), "{}", second.len());
        drop(first);
        assert_eq!(places.taken.lock().all, second.len());
        assert_eq!(places.taken.lock().of.len(), 1, "who has none is not remembered");
    }

    #[test]
    fn one_initiator_leaves_places_to_others_of_its_user() {
        let places = Places::of(Kind::Portal);
        let first = grab(&places, 2048, &host("group", "a"));
        assert!(first.len() > 300, "{}: one that is alone gets many", first.len());
        let second = grab(&places, 2048, &host("group", "b"));
        assert!(second.len() >= FIRST, "{}", second.len());
        // Many come after the greedy ones, and each of them finds its first.
        let mut others = Vec::new();
        for n in 0..16 {
            let got = grab(&places, 2048, &host("group", &format!("late-{n}")));
            assert!(got.len() >= FIRST, "{} for {n}", got.len());
            others.extend(got);
        }
    }

    #[test]
    fn a_cluster_of_one_user_fits_at_each_of_its_targets() {
        let portal = Places::of(Kind::Portal);
        let mut all = Vec::new();
        for disk in 0..7 {
            for (node, path) in (0..64).flat_map(|node| [(node, 0), (node, 1)]) {
                let host = host_at(&format!("disk-{disk}"), "cluster", &format!("node-{node}"));
                let place = portal.take(2048, &host);
                all.push(place.unwrap_or_else(|| panic!("target {disk}, node {node}, path {path}")));
            }
        }
    }

    #[test]
    fn what_comes_over_another_portal_has_its_place_where_it_was() {
        let (one, two) = (Places::of(Kind::Portal), Places::of(Kind::Portal));
        let host = host("one", "host");
        let mut kept = vec![one.take(64, &host).expect("a place")];
        // As long as there is one, it has one of its own.
        let own = two.take_over(&mut kept, 64, &host).expect("a place");
        assert!(own.is(&two, &host) && kept.len() == 1);
        let full = grab(&two, 64, &host);
        assert!(two.is_replaced_by(&kept, &host));
        let place = two.take_over(&mut kept, 64, &host).expect("the one that it had");
        assert!(place.is(&one, &host) && kept.is_empty());
        assert!(two.take_over(&mut kept, 64, &host).is_none());
        // Nobody else's, and none of another kind.
        let mut kept = vec![place];
        let other = self::host("two", "host");
        assert!(!two.is_replaced_by(&kept, &other));
        assert!(two.take_over(&mut kept, 0, &other).is_none() && kept.len() == 1);
        assert!(!Places::of(Kind::Node).is_replaced_by(&kept, &host));
        drop((own, full));
    }

    #[test]
    fn what_is_replaced_keeps_its_place_whatever_others_hold() {
        let places = Places::of(Kind::Portal);
        let one = host("one", "host");
        let mut first = grab(&places, 1024, &one);
        let second = grab(&places, 1024, &host("two", "host"));
        let mut kept = vec![first.pop().expect("a place")];
        assert!(places.take(1024, &one).is_none(), "it has more than its share by now");
        assert!(places.take_over(&mut kept, 1024, &host("three", "host")).is_some() && kept.len() == 1);
        assert!(places.take_over(&mut kept, 1024, &one).is_some() && kept.is_empty());
        drop((first, second));
    }

    #[test]
    fn without_chap_a_network_answers_whatever_names_it_gives() {
        let places = Places::of(Kind::Portal);
        let names = |n: usize| grab(&places, 2048, &at(&format!("2001:db8::{n:x}"), &format!("host-{n}")));
        let all: Vec<_> = (1..200).flat_map(names).collect();
        assert_eq!(all.len(), 512);
        assert!(!grab(&places, 2048, &at("2001:db8:0:1::1", "host")).is_empty(), "the next network");
        assert_eq!(
            at("::ffff:192.0.2.1", "host"),
            at("192.0.2.1", "host"),
            "one host, whichever way its address is written"
        );
    }

    #[test]
    fn never_more_than_there_are() {
        for limit in [0, 1, 7, 16, 100] {
            let places = Places::of(Kind::Portal);
            let all: Vec<_> =
                (0..limit + 40).flat_map(|n| grab(&places, limit, &host(&n.to_string(), "host"))).collect();
            assert!(all.len() <= limit, "{} of {limit}", all.len());
        }
    }
}
