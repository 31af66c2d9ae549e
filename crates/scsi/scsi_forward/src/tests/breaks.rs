//! Connections that break, owners that are away, permits that end.

use std::time::Duration;

use super::*;

#[test]
fn what_was_sent_and_may_have_been_done_is_not_called_undone() {
    run(async {
        let rig = Rig::ready().await;
        rig.unit.detach();
        let mut waiting = [rig.send(0, &write(0, 1), &[3; 512]), rig.send(0, &read(0, 1), &[]), {
            let mut out = [0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0];
            out[1] = 6;
            rig.send(0, &out, &[0; 24])
        }];
        for _ in 0..20 {
            let _ = futures_util::poll!(waiting[0].as_mut());
            let _ = futures_util::poll!(waiting[1].as_mut());
            tokio::task::yield_now().await;
        }
        break_all();
        let [write, read, out] = waiting;
        assert_eq!(rig.said(write).await, BUSY, "doing it again makes no different");
        assert_eq!(rig.said(read).await, BUSY);
        // Sent over the next connection.
        assert_eq!(rig.said(out).await, (6, 0x2900), "the nexus is a new one there");
    });
}

#[test]
fn an_owner_that_is_away_is_busy_and_comes_back() {
    run(async {
        let rig = Rig::new().await;
        rig.world.reachable.store(false, Ordering::SeqCst);
        let inquiry = rig.send(0, &[0x12, 1, 0x83, 0, 255, 0], &[]).await.expect("answered");
        assert_eq!(inquiry.status, ScsiStatus::Good, "who it is is known");
        let groups = rig.send(0, &[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0], &[]).await.expect("answered");
        assert_eq!(groups.status, ScsiStatus::Good);
        rig.world.reachable.store(true, Ordering::SeqCst);
        assert_eq!(rig.said(rig.send(0, &TUR, &[])).await, (6, 0x2900));
        assert_eq!(rig.said(rig.send(0, &TUR, &[])).await, (0, 0));
        break_all();
        let mut ended = (0, 1);
        for _ in 0..20 {
            ended = rig.said(rig.send(0, &TUR, &[])).await;
            if ended == (0, 0) {
                break;
            }
            assert!([BUSY, (6, 0x2900)].contains(&ended), "{ended:?}");
            shard_runtime::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(ended, (0, 0));
    });
}

#[test]
fn a_command_that_is_dropped_ends_there_too() {
    run(async {
        let rig = Rig::ready().await;
        rig.unit.detach();
        let mut dropped = rig.send(0, &write(0, 1), &[3; 512]);
        for _ in 0..20 {
            assert!(futures_util::poll!(dropped.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
        drop(dropped);
        rig.near.settled().await;
        let disk = Arc::new(MemoryDisk::new(BLOCKS * 512, 512));
        rig.unit.attach(Arc::new(DeviceBacking::new(disk)), Arc::new(NoReservationStore));
        let back = rig.straight(&read(0, 1), &[]).await.expect("answered");
        assert_eq!(back.data_in.expect("data")[..], [0; 512], "it has not been written");
    });
}

#[test]
fn nothing_is_sent_without_a_permit_or_in_a_later_life() {
    run(async {
        let rig = Rig::ready().await;
        rig.world.life.store(0, Ordering::SeqCst);
        assert_eq!(rig.said(rig.send(0, &write(0, 1), &[3; 512])).await, BUSY);
        rig.world.life.store(2, Ordering::SeqCst);
        assert_eq!(
            rig.said(rig.send(0, &write(0, 1), &[3; 512])).await,
            BUSY,
            "its session is of an earlier life"
        );
        let back = rig.straight(&read(0, 1), &[]).await.expect("answered");
        assert_eq!(back.data_in.expect("data")[..], [0; 512]);
        rig.near.nexus_lost(&rig.hosts[0]);
        rig.near.nexus_established(&rig.hosts[0]);
        // Over a connection of this life: that of the one before has ended, though nothing was wrong with it.
        let mut said = BUSY;
        for _ in 0..100 {
            said = rig.said(rig.send(0, &write(0, 1), &[3; 512])).await;
            if said == (0, 0) {
                break;
            }
            assert!([BUSY, (6, 0x2900)].contains(&said), "{said:?}");
            shard_runtime::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(said, (0, 0));
    });
}
