//! A planned move of a unit, from what waited at its former owner on; and a unit that nobody serves for long.

use std::time::Duration;

use super::going_on::{Gate, pending};
use super::on_the_way::{BUSY, GOOD, Two, said, shows};
use super::*;

fn prout(action: u8, kind: u8) -> [u8; 10] {
    [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0]
}

fn keys(own: u64, key: u64) -> Vec<u8> {
    [own.to_be_bytes(), key.to_be_bytes(), [0; 8]].concat()
}

/// Between the moment when initiators see what stands for a unit and that when it is closed, its commands may get their turn.
#[test]
fn who_holds_a_reservation_hears_of_no_conflict_when_the_unit_moves() {
    run(async {
        let two = Two::new().await;
        let gate = Gate::new();
        let former = open_on(Arc::new(Rows::default()), gate.clone()).await;
        two.near.configure(shows(&former));
        assert_eq!(said(two.write(0, 1).await), (6, 0x2900));
        assert_eq!(said(two.send(0, &prout(0, 0), &keys(0, 5)).await), GOOD);
        assert_eq!(said(two.send(0, &prout(1, 3), &keys(5, 0)).await), GOOD);
        gate.set(true, false);
        let mut runs = two.write(0, 1);
        assert!(pending(&mut runs).await);
        let mut ordered = two.send_as(0, &rw(0x2a, 0, 2, 1), &[2; 512], TaskAttribute::Ordered);
        assert!(pending(&mut ordered).await);
        tokio::time::advance(Duration::from_millis(1)).await;
        let mut write = two.write(0, 3);
        let mut read = two.send(0, &rw(0x28, 0, 3, 1), &[]);
        assert!(pending(&mut write).await && pending(&mut read).await);
        former.moves();
        two.near.configure(shows(&two.absent));
        // What runs ends, so that the next is admitted, before the unit is closed.
        gate.set(false, false);
        assert_eq!(said(runs.await), GOOD);
        assert_eq!(said(ordered.await), BUSY, "one whose place among others counts is not held");
        assert!(pending(&mut write).await && pending(&mut read).await);
        assert_eq!(two.room.counts(), (2, 512));
        assert!(former.close().await.is_empty());
        two.taken_there().await;
        assert_eq!((said(write.await), said(read.await)), (GOOD, GOOD));
        assert_eq!(two.block(3).await, 3);
        let left = test_layers::DeviceLayer::read(&gate.0, 2 * 512, IoBuf::new(1024)).await.unwrap();
        assert_eq!((left[0], left[512]), (0, 0), "nothing was done where it was given up");
    });
}

#[test]
fn a_change_of_reservations_that_waits_for_another_is_no_conflict_either() {
    run(async {
        let two = Two::new().await;
        let former = open(Arc::new(Rows::default())).await;
        two.near.configure(shows(&former));
        assert_eq!(said(two.write(0, 1).await), (6, 0x2900));
        assert_eq!(said(two.send(0, &prout(0, 0), &keys(0, 5)).await), GOOD);
        let other = former.changes.lock().await;
        let mut reserves = two.send(0, &prout(1, 3), &keys(5, 0));
        assert!(pending(&mut reserves).await);
        former.moves();
        two.near.configure(shows(&two.absent));
        drop(other);
        assert_eq!(said(reserves.await), BUSY, "it is to come again where the unit has gone");
        assert!(former.reservations().reservation.is_none());
    });
}

/// The unit goes and comes back, while a command of old waits where it was.
#[test]
fn what_is_old_is_not_begun_where_the_unit_has_come_back() {
    run(async {
        let two = Two::new().await;
        let gate = Gate::new();
        let former = open_on(Arc::new(Rows::default()), gate.clone()).await;
        two.near.configure(shows(&former));
        assert_eq!(said(two.write(0, 1).await), (6, 0x2900));
        gate.set(true, false);
        let mut runs = two.write(0, 1);
        assert!(pending(&mut runs).await);
        let mut ordered = two.send_as(0, &rw(0x2a, 0, 2, 1), &[2; 512], TaskAttribute::Ordered);
        let mut behind = two.write(0, 3);
        assert!(pending(&mut ordered).await && pending(&mut behind).await);
        tokio::time::advance(Duration::from_secs(5)).await;
        former.moves();
        two.near.configure(shows(&two.unit));
        while two.unit.take_news(1).is_some() {}
        gate.set(false, false);
        assert_eq!((said(runs.await), said(ordered.await), said(behind.await)), (GOOD, BUSY, BUSY));
        assert_eq!((two.block(2).await, two.block(3).await), (0, 0));
        assert_eq!(said(two.write(0, 4).await), GOOD);
    });
}

#[test]
fn nothing_is_held_for_a_unit_that_nobody_has_served_for_long() {
    run(async {
        let two = Two::new().await;
        // Whether a command is held before it is told to come again.
        let held = async || {
            let began = two.road.now();
            assert_eq!(said(two.write(0, 1).await), BUSY);
            two.road.now() > began
        };
        let began = two.road.now();
        while two.road.now() - began < 14_000_000_000 {
            assert!(held().await);
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(!held().await);
        // Another node is to have it, does not answer, and so on: it is away as before.
        two.absent.set_state(UnitState::Elsewhere(Some(2)));
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(said(two.send(0, &[0x12, 0, 0, 0, 96, 0], &[]).await), GOOD, "what it is anybody may say");
        assert!(!held().await);
        assert_eq!(two.room.counts(), (0, 0));
        two.taken_there().await;
        assert_eq!(said(two.write(0, 2).await), GOOD);
        *two.road.owner.lock() = None;
        assert!(held().await, "it moves again");
        // Nobody asked for long: it may have been served well meanwhile.
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!(held().await);
    });
}
