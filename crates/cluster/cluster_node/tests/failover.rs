//! Three nodes and a real etcd: who owns a pool when nodes stand still, end, move it, or lose etcd. In all of it the recorder looks for
//! two permits at once.

mod scene;

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
        let (first, epoch) = site.serving().expect("served");
        assert_eq!(site.recorder.orders_of(first, epoch), BEGIN);
        let (_, old) = site.recorder.newest().expect("published");
        site.node_mut(first).freeze();
        site.wait("another node serves the pool", |site| {
            site.serving().is_some_and(|(node, _)| node != first)
        });
        assert!(
            !old.permit.may_answer() && !old.permit.is_revoked(),
            "it has ended by itself: nobody could tell it"
        );
        let (second, later) = site.serving().expect("served");
        assert!(later > epoch);
        site.node_mut(first).thaw();
        site.wait("the old owner has stopped it", |site| {
            site.recorder.orders_of(first, epoch).last() == Some(&Order::Stop)
        });
        site.wait("and takes part again, in another life", |site| {
            let status = site.node(first).status();
            status.phase == Some(Phase::Member) && status.incarnation == 2
        });
        site.wait("the pool is where it was", |site| site.serving().is_some_and(|(node, _)| node == second));
    }
}

#[test]
fn an_owner_that_ends_and_is_started_again() {
    if !is_installed() {
        return;
    }
    let mut site = Site::start(1, Settings::default());
    for life in 2..4 {
        let (first, epoch) = site.serving().expect("served");
        site.kill(first);
        site.restart(first);
        site.wait("it takes part in its next life", |site| {
            let status = site.node(first).status();
            status.phase == Some(Phase::Member) && status.incarnation == life
        });
        site.wait("somebody serves the pool", |site| site.serving().is_some_and(|(_, later)| later > epoch));
        // Back to where it was, so that the same node ends again.
        let (now, _) = site.serving().expect("served");
        if now != first {
            site.wait("it goes back", |site| {
                site.node(now).move_pool(first);
                site.serving().is_some_and(|(node, _)| node == first)
            });
        }
    }
}

#[test]
fn a_pool_that_is_moved_and_a_node_that_stops() {
    if !is_installed() {
        return;
    }
    let mut site = Site::start(1, Settings::default());
    let (first, epoch) = site.serving().expect("served");
    let second = first % 3 + 1;
    site.node(first).move_pool(second);
    site.wait("the other node serves the pool", |site| {
        site.serving().is_some_and(|(node, _)| node == second)
    });
    let stopped = [BEGIN.as_slice(), &[Order::Stop]].concat();
    assert_eq!(site.recorder.orders_of(first, epoch), stopped, "it was stopped before it went");
    let (_, epoch) = site.serving().expect("served");
    let (_, old) = site.recorder.newest().expect("published");
    let running = site.nodes[usize::from(second) - 1].take().expect("it runs");
    running.stop();
    assert!(old.permit.is_revoked());
    assert_eq!(site.recorder.orders_of(second, epoch), stopped, "a node that stops, stops its pools");
    site.wait("another node serves the pool", |site| site.serving().is_some_and(|(node, _)| node != second));
}

/// Losing etcd alone stops nothing: the members promise each other not to claim.
#[test]
fn etcd_that_is_away_stops_nothing() {
    if !is_installed() {
        return;
    }
    let settings = patient();
    let mut site = Site::start(1, settings);
    let before = site.serving().expect("served");
    let gone = boot_time();
    site.etcd.kill(0);
    // Far beyond the last beat's permit.
    let long = settings.permit.max(std::time::Duration::from_secs(10));
    site.wait("it serves by promises", |site| {
        boot_time().since(gone) > long && site.serving() == Some(before)
    });
    site.etcd.restart(0);
    site.etcd.wait_until_healthy();
    site.wait("it beats again", |site| {
        let (_, ownership) = site.recorder.newest().expect("published");
        ownership.permit.until() > boot_time().after(settings.promise_used)
    });
    assert_eq!(site.serving(), Some(before), "the same owner in the same epoch");
    assert_eq!(scene::owner(&site.papers[0]).epoch, before.1);
}

/// But losing etcd and a member does: that member might have claimed.
#[test]
fn etcd_and_a_member_that_are_away_end_the_permit() {
    if !is_installed() {
        return;
    }
    let mut site = Site::start(3, Settings::default());
    let before = site.serving().expect("served");
    let other = before.0 % 3 + 1;
    site.node_mut(other).freeze();
    (0..3).for_each(|number| site.etcd.freeze(number));
    site.wait("the permit ends", |site| site.serving().is_none());
    let (_, old) = site.recorder.newest().expect("published");
    assert!(!old.permit.is_revoked(), "it is still the owner, as far as it knows");
    (0..3).for_each(|number| site.etcd.thaw(number));
    site.wait("somebody serves again", |site| site.serving().is_some());
    site.node_mut(other).thaw();
    site.wait("all take part", |site| {
        (1..=3).all(|node| site.node(node).status().phase == Some(Phase::Member))
    });
    site.wait("and the pool is served", |site| site.serving().is_some());
}
