//! Each rule of the page, by an example.

use cluster_store::values::Incarnation;

use super::cluster::{Cluster, POOL, id};
use crate::{BootTime, Failure, Input, Message, Order, Phase};

#[test]
fn a_pool_is_taken_fenced_opened_restored_and_published_in_this_order() {
    let mut cluster = Cluster::new(1);
    cluster.run(1000);
    let orders: Vec<Order> = cluster.orders.iter().map(|(_, _, order)| *order).collect();
    assert_eq!(orders, [Order::Fence, Order::Open, Order::Restore, Order::Publish]);
    assert!(cluster.answers(0));
    assert_eq!(cluster.owner().epoch, 1);
}

#[test]
fn nobody_claims_while_the_owner_beats() {
    let mut cluster = Cluster::new(3);
    cluster.run(30_000);
    assert_eq!(cluster.owner().epoch, 1);
}

#[test]
fn a_silent_owner_is_followed_after_w_and_its_life_is_over() {
    let mut cluster = Cluster::new(3);
    cluster.run(2000);
    let owner = cluster.holder().expect("owned");
    cluster.asleep.insert(owner);
    cluster.run(2800);
    assert_eq!(cluster.holder(), Some(owner), "not before W");
    cluster.run(1500);
    let next = cluster.holder().expect("owned");
    assert_ne!(next, owner);
    assert!(cluster.answers(next));
    assert!(!cluster.answers(owner), "its permit is over before it knows anything");
    cluster.asleep.clear();
    cluster.run(1000);
    assert_eq!(cluster.nodes[owner].phase(), Phase::Over);
    assert!(cluster.orders.contains(&(owner, 1, Order::Stop)));
}

#[test]
fn the_store_alone_away_stops_nothing_and_one_member_away_with_it_ends_the_permit() {
    let mut cluster = Cluster::new(3);
    cluster.run(2000);
    let owner = cluster.holder().expect("owned");
    cluster.cut.extend([0, 1, 2]);
    cluster.run(30_000);
    assert!(cluster.answers(owner), "on promises");
    let other = (owner + 1) % 3;
    cluster.apart.insert((owner.min(other), owner.max(other)));
    cluster.run(3000);
    assert!(!cluster.answers(owner));
    cluster.cut.clear();
    cluster.run(5000);
    assert!((0..3).any(|node| cluster.answers(node)), "it goes on");
}

/// The owner alone is cut from the store: the others see it silent, and have promised.
#[test]
fn promises_keep_claims_away_while_they_are_asked_for() {
    let mut cluster = Cluster::new(3);
    cluster.run(2000);
    let owner = cluster.holder().expect("owned");
    cluster.cut.insert(owner);
    cluster.run(20_000);
    assert_eq!(cluster.holder(), Some(owner));
    assert!(cluster.answers(owner));
    let other = (owner + 1) % 3;
    cluster.apart.insert((owner.min(other), owner.max(other)));
    cluster.run(6000);
    assert_ne!(cluster.holder(), Some(owner), "one that hears nothing claims");
}

/// A member that the owner does not know was not asked: it waits for a beat.
#[test]
fn a_stranger_does_not_claim() {
    let mut cluster = Cluster::new(3);
    cluster.asleep.insert(2);
    // It has left, and the others know that.
    cluster.run(8000);
    let owner = cluster.holder().expect("owned");
    cluster.cut.insert(owner);
    cluster.run(200);
    cluster.asleep.clear();
    cluster.restart(2, 2);
    cluster.run(10_000);
    assert_eq!(cluster.holder(), Some(owner));
    assert!(cluster.answers(owner));
}

/// Two that have joined at the same moment know nothing of each other at first. One that is never heard again after that has
/// still shown the other that it knew it.
#[test]
fn who_learns_of_a_member_shows_it_at_once() {
    let mut cluster = Cluster::new(2);
    cluster.run(100);
    for (me, other) in [(0, 1), (1, 0)] {
        assert!(
            cluster.shows_that_it_knows(me, other),
            "within a tenth of a second, and the next beat is due after five"
        );
    }
    let owner = cluster.holder().expect("owned");
    cluster.asleep.insert(owner);
    cluster.run(5000);
    assert_eq!(cluster.holder(), Some(1 - owner));
}

/// A pool is not given to a node from which a member could not take it.
#[test]
fn a_pool_is_given_only_to_who_knows_all_members() {
    let mut cluster = Cluster::new(2);
    cluster.run(1000);
    let owner = cluster.holder().expect("owned");
    let other = 1 - owner;
    // The other one hears nothing of the member that came, and beats on.
    cluster.deaf.insert(other);
    cluster.add();
    cluster.run(1000);
    cluster.feed(owner, Input::Move(POOL, id(other)));
    cluster.run(1000);
    assert_eq!(cluster.holder(), Some(owner), "not yet");
    cluster.deaf.clear();
    cluster.run(1000);
    cluster.feed(owner, Input::Move(POOL, id(other)));
    cluster.run(1000);
    assert_eq!(cluster.holder(), Some(other));
}

/// A data directory that was copied: two processes look into the store before either has joined. The second one neither joins over the
/// first nor takes its beat for its own, also when that is the very first one.
#[test]
fn of_two_that_join_under_one_number_one_gives_way() {
    for only_joined in [false, true] {
        let mut cluster = Cluster::new(0);
        let empty = cluster.snapshot();
        if only_joined {
            cluster.unanswered.insert(0);
        }
        cluster.add();
        let twin = cluster.twin(0, 1 << 40, empty);
        assert!(cluster.nodes[twin].phase() >= Phase::Leaving);
        cluster.unanswered.clear();
        cluster.run(5000);
        assert!(cluster.answers(0) && !cluster.answers(twin));
        assert_eq!((cluster.nodes[0].phase(), cluster.owner().epoch), (Phase::Member, 1));
    }
}

#[test]
fn a_lost_answer_is_found_by_the_next_transaction() {
    let mut cluster = Cluster::new(2);
    cluster.run(1000);
    let owner = cluster.holder().expect("owned");
    cluster.unanswered.insert(owner);
    cluster.run(2000);
    assert!(cluster.answers(owner), "the permit is not over yet");
    cluster.unanswered.clear();
    cluster.run(6000);
    assert_eq!(cluster.holder(), Some(owner), "its beats were committed all the time");
    assert!(cluster.answers(owner));
}

#[test]
fn a_pool_that_is_moved_to_its_owner_is_stopped_and_opened_in_the_next_epoch() {
    let mut cluster = Cluster::new(2);
    cluster.run(1000);
    let owner = cluster.holder().expect("owned");
    let epoch = cluster.owner().epoch;
    cluster.stuck = Some(Order::Stop);
    cluster.feed(owner, Input::Move(POOL, id(owner)));
    cluster.run(200);
    assert!(!cluster.answers(owner), "it is being stopped");
    assert_eq!(cluster.owner().epoch, epoch);
    cluster.stuck = None;
    cluster.feed(owner, Input::Done(POOL, epoch, Order::Stop));
    cluster.run(200);
    assert_eq!((cluster.holder(), cluster.owner().epoch), (Some(owner), epoch + 1));
    assert!(cluster.answers(owner));
    // Once only.
    cluster.run(3000);
    assert_eq!((cluster.holder(), cluster.owner().epoch), (Some(owner), epoch + 1));
}

#[test]
fn a_move_stops_the_pool_before_it_is_handed_over() {
    let mut cluster = Cluster::new(2);
    cluster.run(1000);
    let owner = cluster.holder().expect("owned");
    cluster.stuck = Some(Order::Stop);
    cluster.feed(owner, Input::Move(POOL, id(1 - owner)));
    cluster.run(2000);
    assert!(!cluster.answers(owner), "no answers from when it is being stopped");
    assert_eq!(cluster.holder(), Some(owner), "it is not handed over while something is on its way");
    cluster.stuck = None;
    let epoch = cluster.owner().epoch;
    cluster.feed(owner, Input::Done(POOL, epoch, Order::Stop));
    cluster.run(200);
    assert_eq!((cluster.holder(), cluster.owner().epoch), (Some(1 - owner), epoch + 1));
    assert!(cluster.answers(1 - owner));
}

#[test]
fn a_fenced_pool_stops_at_once_and_comes_back_with_a_higher_epoch_only() {
    let mut cluster = Cluster::new(1);
    cluster.run(1000);
    cluster.feed(0, Input::Failed(POOL, 1, Failure::Fenced));
    assert!(cluster.orders.contains(&(0, 1, Order::Stop)));
    cluster.run(3000);
    assert!(cluster.answers(0));
    assert!(cluster.owner().epoch > 1);
    let fences: Vec<u64> = cluster
        .orders
        .iter()
        .filter(|(_, _, order)| *order == Order::Fence)
        .map(|(_, epoch, _)| *epoch)
        .collect();
    assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "{fences:?}");
}

#[test]
fn who_cannot_open_a_pool_leaves_it_to_others() {
    let mut cluster = Cluster::new(2);
    cluster.stuck = Some(Order::Fence);
    cluster.run(500);
    let first = cluster.holder().expect("claimed");
    let epoch = cluster.owner().epoch;
    cluster.stuck = None;
    cluster.feed(first, Input::Failed(POOL, epoch, Failure::Trouble));
    cluster.run(900);
    assert_eq!(cluster.holder(), Some(1 - first));
}

#[test]
fn a_pool_that_does_not_stop_is_told_of_again_and_again_and_taken_when_its_node_ends() {
    let mut cluster = Cluster::new(2);
    cluster.run(1000);
    let (owner, epoch) = (cluster.holder().expect("owned"), cluster.owner().epoch);
    cluster.stuck = Some(Order::Stop);
    cluster.feed(owner, Input::Failed(POOL, epoch, Failure::Trouble));
    let stops = cluster.now;
    cluster.run(44_000);
    assert!(cluster.hung.is_empty());
    cluster.run(50_000);
    let told: Vec<_> = cluster.hung.iter().map(|(node, at)| (*node, at.since(stops).as_secs())).collect();
    assert_eq!(told, [(owner, 45), (owner, 90)]);
    assert_eq!(cluster.holder(), Some(owner), "as long as it beats");
    cluster.asleep.insert(owner);
    cluster.run(5000);
    assert!(cluster.answers(1 - owner));
}

#[test]
fn a_draining_node_gives_its_pools_away_and_takes_none() {
    let mut cluster = Cluster::new(2);
    cluster.run(1000);
    let owner = cluster.holder().expect("owned");
    cluster.feed(owner, Input::Mode { paused: true, draining: true });
    cluster.run(3000);
    assert_eq!(cluster.holder(), Some(1 - owner));
    assert!(cluster.answers(1 - owner));
}

#[test]
fn answers_and_promises_of_another_life_count_for_nothing() {
    let mut cluster = Cluster::new(2);
    cluster.run(1000);
    let owner = cluster.holder().expect("owned");
    let before = cluster.nodes[owner].permit();
    let strange = Message::Promise { incarnation: Incarnation(77), round: 1 };
    cluster.feed(owner, Input::Message(id(1 - owner), strange));
    let unasked = Message::Promise { incarnation: Incarnation(1), round: 99 };
    cluster.feed(owner, Input::Message(id(1 - owner), unasked));
    assert_eq!(cluster.nodes[owner].permit(), before);
    assert!(before < BootTime::NEVER);
}

/// A node whose process was started anew takes its own pools back at once, wherever it stands in line for them.
#[test]
fn a_node_that_comes_back_waits_for_nobody_before_it_takes_its_own_pools() {
    let mut cluster = Cluster::new(3);
    cluster.run(2000);
    let first = cluster.holder().expect("owned");
    // Members before it stand before it in line.
    let owner = 2;
    cluster.feed(first, Input::Move(POOL, id(owner)));
    cluster.run(2000);
    assert_eq!(cluster.holder(), Some(owner));
    let epoch = cluster.owner().epoch;
    cluster.restart(owner, 2);
    cluster.run(100);
    assert_eq!((cluster.holder(), cluster.owner().epoch), (Some(owner), epoch + 1));
    assert!(cluster.answers(owner));
}

/// What a node knows of a store that has gone back is of another history: revisions that it saw come again, and mean something else.
#[test]
fn in_a_store_that_has_gone_back_every_life_ends() {
    let mut cluster = Cluster::new(2);
    cluster.run(2000);
    let backup = cluster.tree.clone();
    cluster.run(20_000);
    let owner = cluster.holder().expect("owned");
    assert!(cluster.answers(owner));
    cluster.restore(backup);
    cluster.run(600);
    for node in 0..2 {
        assert_eq!(cluster.nodes[node].phase(), Phase::Over, "{node}");
        assert!(cluster.nodes[node].store_went_back(), "{node}");
        assert!(!cluster.answers(node), "{node}");
    }
    for node in 0..2 {
        cluster.restart(node, 2);
        assert!(!cluster.nodes[node].store_went_back());
    }
    cluster.run(3000);
    let owner = cluster.holder().expect("owned");
    assert!(cluster.answers(owner));
}

/// The store may be older than the disks: whoever takes a pool goes above what they know, at once.
#[test]
fn a_pool_whose_disks_know_a_higher_epoch_is_taken_above_it() {
    let mut cluster = Cluster::new(1);
    cluster.stuck = Some(Order::Fence);
    cluster.run(1000);
    assert_eq!(cluster.owner().epoch, 1);
    cluster.stuck = None;
    cluster.feed(0, Input::Failed(POOL, 1, Failure::Behind(5_000_000)));
    cluster.run(1000);
    assert_eq!(cluster.owner().epoch, 5_000_001);
    assert!(cluster.answers(0));
}

/// Who has been removed takes part no more, whatever it has read before.
#[test]
fn a_node_that_was_removed_does_not_join() {
    for read_before in [false, true] {
        let mut cluster = Cluster::new(1);
        cluster.enter(1, false);
        let before = cluster.snapshot();
        cluster.enter(1, true);
        let read = if read_before { before } else { cluster.snapshot() };
        cluster.add();
        // What `add` began is replaced by a life that reads what this one is to have read.
        assert!(cluster.nodes[1].phase() >= Phase::Leaving, "{read_before}");
        cluster.late(1, 2, read);
        cluster.run(1000);
        assert!(cluster.nodes[1].phase() >= Phase::Leaving, "{read_before}");
        assert_eq!(cluster.nodes[0].members().count(), 1, "{read_before}");
    }
}
