//! Pools go to nodes that see their disks, and to nobody else.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::cluster::{Cluster, POOL, id};
use crate::{Failure, Input, Order, Sight};

/// The disks of the pool: a node sees those that are named for it.
const A: Uuid = Uuid::from_u128(1);
const B: Uuid = Uuid::from_u128(2);
const C: Uuid = Uuid::from_u128(3);

impl Cluster {
    /// A node sees these disks, from now on or from when it joins.
    fn sees(&mut self, node: usize, disks: &[Uuid]) {
        let sight = Sight { disks: disks.iter().copied().collect(), failed: BTreeSet::new() };
        self.sights.insert(node, sight.clone());
        if node < self.nodes.len() {
            self.feed(node, Input::Sight(sight));
        }
    }
}

/// A cluster of three whose pool is on a disk of the first one.
fn local() -> Cluster {
    let mut cluster = Cluster::new(0);
    cluster.needs(&[A], 1);
    for node in 0..3 {
        cluster.sees(node, if node == 0 { &[A] } else { &[B] });
        cluster.add();
    }
    cluster.run(2000);
    assert_eq!(cluster.holder(), Some(0));
    cluster
}

#[test]
fn a_pool_stays_with_the_only_node_that_sees_its_disks() {
    let mut cluster = local();
    let epoch = cluster.owner().epoch;
    cluster.feed(0, Input::Move(POOL, id(1)));
    cluster.run(3000);
    assert!(cluster.answers(0), "it is asked to move it");
    cluster.feed(0, Input::Mode { paused: true, draining: true });
    cluster.run(3000);
    assert!(cluster.answers(0), "it is drained");
    assert_eq!(cluster.owner().epoch, epoch, "nothing was given up");
    // As soon as another one can, that gets it.
    cluster.sees(2, &[A, C]);
    cluster.run(2000);
    assert_eq!(cluster.holder(), Some(2));
    assert!(cluster.answers(2));
}

/// For a minute: what is known of disks may be old, and then nobody would ever try.
#[test]
fn nobody_claims_at_once_what_it_does_not_see() {
    let mut cluster = local();
    cluster.asleep.insert(0);
    let epoch = cluster.owner().epoch;
    cluster.run(50_000);
    assert_eq!((cluster.holder(), cluster.owner().epoch), (Some(0), epoch), "it waits for its node");
    cluster.run(20_000);
    assert!(cluster.holder() != Some(0), "a pool is not a dead node's for ever");
    let mut cluster = local();
    cluster.asleep.insert(0);
    cluster.run(20_000);
    cluster.asleep.clear();
    cluster.sees(0, &[]);
    cluster.restart(0, 2);
    cluster.run(20_000);
    assert!(!cluster.answers(0), "it has not found its disks yet");
    cluster.sees(0, &[A]);
    cluster.run(100);
    assert!(cluster.answers(0), "and takes it as soon as it has");
}

/// What was known when a pool was given up may be over by the time at which it could be handed over.
#[test]
fn a_pool_that_was_given_up_in_vain_is_taken_again_by_a_node_that_is_drained() {
    let mut cluster = local();
    cluster.sees(1, &[A]);
    cluster.run(200);
    cluster.stuck = Some(Order::Stop);
    cluster.feed(0, Input::Mode { paused: true, draining: true });
    cluster.run(500);
    assert!(!cluster.answers(0), "it is being given up");
    cluster.sees(1, &[B]);
    cluster.run(100);
    cluster.stuck = None;
    let epoch = cluster.owner().epoch;
    cluster.feed(0, Input::Done(POOL, epoch, Order::Stop));
    cluster.run(3000);
    assert!(cluster.answers(0));
    assert!(!cluster.orders.iter().any(|(node, _, _)| *node == 1), "the other one never had it");
}

/// A node that got a pool and cannot open it gives it back, and says so: it is not given it again.
#[test]
fn a_pool_goes_back_from_a_node_that_cannot_open_it() {
    let mut cluster = local();
    cluster.sees(1, &[A]);
    cluster.run(200);
    cluster.stuck = Some(Order::Fence);
    cluster.feed(0, Input::Mode { paused: true, draining: true });
    cluster.run(1000);
    assert_eq!(cluster.holder(), Some(1));
    cluster.stuck = None;
    let failed = Sight { disks: [A].into(), failed: [POOL].into() };
    cluster.feed(1, Input::Sight(failed));
    let epoch = cluster.owner().epoch;
    cluster.feed(1, Input::Failed(POOL, epoch, Failure::Trouble));
    cluster.run(900 + 1000);
    assert!(cluster.answers(0), "{:?}", cluster.orders);
    let epoch = cluster.owner().epoch;
    cluster.run(20_000);
    assert_eq!(cluster.owner().epoch, epoch, "though it is drained still");
}

/// A process that was started anew sees its own disk first and those of others a moment later. It neither opens its pool with too few of them
/// nor keeps it from a node that has enough.
#[test]
fn a_node_that_comes_back_takes_its_pool_when_it_sees_enough_of_it() {
    let mut cluster = Cluster::new(0);
    cluster.needs(&[A, B, C], 2);
    for node in 0..3 {
        cluster.sees(node, &[A, B, C]);
        cluster.add();
    }
    cluster.run(2000);
    let epoch = cluster.owner().epoch;
    cluster.sees(0, &[A]);
    cluster.restart(0, 2);
    cluster.run(300);
    assert_eq!(cluster.owner().epoch, epoch, "one of three is not enough");
    cluster.sees(0, &[A, B]);
    cluster.run(50);
    assert!(cluster.answers(0));
    let epoch = cluster.owner().epoch;
    cluster.sees(0, &[A]);
    cluster.restart(0, 3);
    cluster.run(1500);
    assert_eq!((cluster.holder(), cluster.owner().epoch), (Some(1), epoch + 1), "another one has enough");
    assert!(cluster.answers(1));
}

/// What an owner has said of its disks may be old: who sees a part of them tries in the end.
#[test]
fn who_sees_too_few_disks_tries_last() {
    let mut cluster = Cluster::new(0);
    cluster.needs(&[A, B, C], 2);
    cluster.sees(0, &[A]);
    cluster.add();
    cluster.run(9000);
    assert_eq!(cluster.holder(), None);
    cluster.run(3000);
    assert_eq!(cluster.holder(), Some(0));
}

/// Who takes no pools takes none of others, whatever it sees.
#[test]
fn a_paused_node_takes_over_no_pool_of_a_node_that_has_failed() {
    let mut cluster = Cluster::new(0);
    cluster.needs(&[A], 1);
    for node in 0..2 {
        cluster.sees(node, &[A]);
        cluster.add();
    }
    cluster.run(1000);
    let owner = cluster.holder().expect("owned");
    cluster.feed(1 - owner, Input::Mode { paused: true, draining: false });
    cluster.run(1000);
    cluster.asleep.insert(owner);
    cluster.run(60_000);
    assert_eq!(cluster.holder(), Some(owner));
}
