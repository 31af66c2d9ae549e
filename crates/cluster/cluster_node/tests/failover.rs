//! Three nodes and a real etcd: who owns a pool when nodes stand still, end, move it, or lose etcd. In all of it the recorder looks for
//! two permits at once.

mod scene;

use std::cell::Cell;
use std::time::Duration;

use cluster_node::{Order, Phase, Settings, boot_time};
use scene::{Site, patient};
use test_etcd::is_installed;

/// A pool begins in order on a node.
const BEGIN: [Order; 4] = [Order::Fence, Order::Open, Order::Restore, Order::Publish];

#[test]
fn an_owner_that_stands_still_loses_its_pool_and_comes_back() {
    if !is_installed() {
        return;
    }
    for etcds in [1, 3] {
        let mut site = Site::start(etcds, Settings::default());
        let seen = Cell::new(None);
        let (first, epoch) =
            site.served("a node serves the pool, and its permit was renewed", |node, epoch| {
                let until = site.recorder.published_by(node, epoch).permit.until();
                let before = seen.replace(Some((epoch, until)));
                before.is_some_and(|(earlier, given)| earlier == epoch && given < until)
            });
        assert!(site.recorder.orders_of(first, epoch).starts_with(&BEGIN));
        let old = site.recorder.published_by(first, epoch);
        site.node_mut(first).freeze();
        site.served("another node serves it", |node, later| node != first && later > epoch);
        assert!(!old.permit.may_answer(), "it has ended by itself: nobody could tell it");
        site.node_mut(first).thaw();
        site.wait("the old owner has stopped it", |site| {
            site.recorder.orders_of(first, epoch).last() == Some(&Order::Stop)
        });
        assert!(old.permit.is_revoked());
        site.wait("and takes part again, in another life", |site| {
            let status = site.node(first).status();
            status.phase == Some(Phase::Member) && status.incarnation >= 2
        });
        site.served("the pool is served", |_, later| later > epoch);
    }
}

#[test]
fn an_owner_that_ends_and_is_started_again() {
    if !is_installed() {
        return;
    }
    let mut site = Site::start(1, Settings::default());
    for _ in 0..2 {
        let (first, epoch) = site.served("a node serves the pool", |_, _| true);
        let before = site.node(first).status().incarnation;
        site.kill(first);
        site.restart(first);
        site.wait("it takes part in another life", |site| {
            let status = site.node(first).status();
            status.phase == Some(Phase::Member) && status.incarnation > before
        });
        site.served("somebody serves the pool, in another epoch", |_, later| later > epoch);
    }
}

#[test]
fn a_pool_that_is_moved_and_a_node_that_stops() {
    if !is_installed() {
        return;
    }
    let mut site = Site::start(1, patient());
    let (first, epoch) = site.served("a node serves the pool", |_, _| true);
    let second = first % 3 + 1;
    // Asked for again as long as it cannot be done yet.
    let (_, later) = site.served("the other node serves it", |node, _| {
        if node == first {
            site.node(first).move_pool(second);
        }
        node == second
    });
    let stopped = [BEGIN.as_slice(), &[Order::Stop]].concat();
    assert_eq!(site.recorder.orders_of(first, epoch), stopped, "it was stopped before it went");
    let old = site.recorder.published_by(second, later);
    let running = site.nodes[usize::from(second) - 1].take().expect("it runs");
    running.stop();
    assert!(old.permit.is_revoked());
    assert_eq!(site.recorder.orders_of(second, later), stopped, "a node that stops, stops its pools");
    site.served("another node serves it", |node, _| node != second);
}

/// Losing etcd alone stops nothing: the members promise each other not to claim.
#[test]
fn etcd_that_is_away_stops_nothing() {
    if !is_installed() {
        return;
    }
    let settings = patient();
    let mut site = Site::start(1, settings);
    let before = site.served("a node serves the pool", |_, _| true);
    let gone = boot_time();
    site.etcd.kill(0);
    // Beyond the permit of any beat that was committed.
    let long = (settings.permit + settings.beat_every).max(Duration::from_secs(10));
    site.wait("it serves by promises", |site| {
        boot_time().since(gone) > long && site.serving() == Some(before)
    });
    let promised = site.recorder.published_by(before.0, before.1).permit.until();
    assert!(promised < boot_time().after(settings.promise_used), "no beat could have given it");
    site.etcd.restart(0);
    site.etcd.wait_until_healthy();
    site.wait("it beats again", |site| {
        let permit = site.recorder.published_by(before.0, before.1).permit;
        permit.until() > boot_time().after(settings.promise_used)
    });
    assert_eq!(scene::owner(&site.papers[0]).epoch, before.1, "the same owner in the same epoch");
}

/// But losing etcd and a member does: that member might have claimed.
#[test]
fn etcd_and_a_member_that_are_away_end_the_permit() {
    if !is_installed() {
        return;
    }
    let mut site = Site::start(3, Settings::default());
    let (owner, epoch) = site.served("a node serves the pool", |_, _| true);
    let old = site.recorder.published_by(owner, epoch);
    let other = owner % 3 + 1;
    site.node_mut(other).freeze();
    (0..3).for_each(|number| site.etcd.freeze(number));
    site.wait("the permit ends", |site| site.serving().is_none());
    site.wait("and stays so", |_| boot_time().since(old.permit.until()) > Duration::from_secs(2));
    assert!(!old.permit.may_answer());
    (0..3).for_each(|number| site.etcd.thaw(number));
    site.served("somebody serves again", |_, _| true);
    site.node_mut(other).thaw();
    site.wait("all take part", |site| {
        (1..=3).all(|node| site.node(node).status().phase == Some(Phase::Member))
    });
    site.served("and the pool is served", |_, _| true);
}
