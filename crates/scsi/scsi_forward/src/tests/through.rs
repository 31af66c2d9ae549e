//! What initiators at another node find is what those at the owner find.

use super::*;

#[test]
fn data_goes_both_ways() {
    run(async {
        let rig = Rig::ready().await;
        let data: Vec<u8> = (0..64 * 512u32).map(|n| (n / 7) as u8).collect();
        assert_eq!(rig.said(rig.send(0, &write(9, 64), &data)).await, (0, 0));
        let straight = rig.straight(&read(9, 64), &[]).await.expect("answered");
        assert_eq!(straight.data_in.expect("data")[..], data[..]);
        let mut small = Rig::command(&read(9, 64), &[]);
        small.data_in_limit = 1000;
        let back = rig.near.execute(&rig.hosts[0], WireLun::from_number(3), small).await.expect("answered");
        assert_eq!(back.data_in.expect("data")[..], data[..1000]);
        assert_eq!(back.transfer_length, 64 * 512, "the transport tells of the rest");
        assert_eq!(rig.said(rig.send(0, &read(255, 1), &[])).await, (0, 0));
        let beyond = [0x28, 0, 0, 1, 0, 0, 0, 0, 1, 0];
        assert_eq!(rig.said(rig.send(0, &beyond, &[])).await, (5, 0x2100), "sense data comes back");
    });
}

#[test]
fn many_commands_at_once_end_as_they_began() {
    run(async {
        let rig = Rig::ready().await;
        let writes = (0..200u8).map(|n| rig.send(0, &write(n, 1), &[n; 512]));
        for response in futures_util::future::join_all(writes).await {
            assert_eq!(response.expect("answered").status, ScsiStatus::Good);
        }
        let reads = (0..200u8).map(|n| rig.send(0, &read(n, 1), &[]));
        for (n, response) in futures_util::future::join_all(reads).await.into_iter().enumerate() {
            assert_eq!(response.expect("answered").data_in.expect("data")[..], [n as u8; 512]);
        }
    });
}

#[test]
fn who_is_not_let_in_by_the_owner_is_not() {
    run(async {
        let rig = Rig::ready().await;
        assert_eq!(rig.said(rig.send(1, &write(0, 1), &[1; 512])).await, BUSY);
        let there = rig.straight(&read(0, 1), &[]).await.expect("answered").data_in.expect("data");
        assert_eq!(there[..], [0; 512], "nothing was written");
    });
}

#[test]
fn a_number_that_was_given_anew_reaches_no_other_unit() {
    run(async {
        let rig = Rig::ready().await;
        let disk = Arc::new(MemoryDisk::new(BLOCKS * 512, 512));
        let other = UnitConfig { id: [8; 16], ..config() };
        let store = Arc::new(NoReservationStore);
        let other =
            LogicalUnit::open(other, Arc::new(DeviceBacking::new(disk)), store).await.expect("opened");
        // In one step it would lead a host that is logged in nowhere.
        rig.world.device.configure(Vec::new());
        rig.world.device.configure(vec![group(&other, &[])]);
        assert_eq!(rig.said(rig.send(0, &write(0, 1), &[1; 512])).await, BUSY);
        let read = rig.straight(&read(0, 1), &[]);
        assert_eq!(rig.said(read).await.0, 6);
        let told = rig.straight(&super::read(0, 1), &[]).await.expect("answered");
        assert!(told.data_in.is_none_or(|data| data.iter().all(|byte| *byte == 0)));
    });
}

#[test]
fn reservations_hold_over_both_nodes() {
    run(async {
        let rig = Rig::ready().await;
        let out = |action: u8, kind: u8| [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
        let mut list = [0; 24];
        list[15] = 7;
        assert_eq!(rig.said(rig.send(0, &out(0, 0), &list)).await, (0, 0));
        (list[7], list[15]) = (7, 0);
        assert_eq!(rig.said(rig.send(0, &out(1, 5), &list)).await, (0, 0));
        let conflict = (0, ScsiStatus::ReservationConflict as u16);
        assert_eq!(rig.said(rig.straight(&write(0, 1), &[2; 512])).await, conflict);
        assert_eq!(rig.said(rig.straight(&read(0, 1), &[])).await, (0, 0), "it is for writes only");
        let state = rig.unit.reservations();
        let (_, holder) = state.reservation.expect("reserved");
        assert!(holder.is_of("iqn.2026-11.test:a"));
        assert_eq!((holder.target, holder.device.as_str()), (17, TARGET), "the port at the other node");
        // The host at the owner takes it over: the one at the other node hears of it.
        let mut own = [0; 24];
        own[15] = 8;
        assert_eq!(rig.said(rig.straight(&out(0, 0), &own)).await, (0, 0));
        (own[7], own[15]) = (8, 7);
        assert_eq!(rig.said(rig.straight(&out(4, 5), &own)).await, (0, 0));
        assert_eq!(rig.said(rig.send(0, &TUR, &[])).await, (6, 0x2a05));
        assert_eq!(rig.said(rig.send(0, &write(0, 1), &[2; 512])).await, conflict);
    });
}

#[test]
fn functions_and_sessions_end_there() {
    run(async {
        let rig = Rig::ready().await;
        rig.unit.detach();
        let mut waits = rig.send(0, &write(0, 1), &[3; 512]);
        for _ in 0..20 {
            assert!(futures_util::poll!(waits.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
        let lun = WireLun::from_number(3);
        let reset = rig.near.task_management(&rig.hosts[0], lun, TaskManagement::LogicalUnitReset);
        assert_eq!(reset.await, TaskManagementOutcome::Complete);
        assert!(waits.await.is_none(), "it was aborted, and is not answered");
        assert_eq!(rig.said(rig.straight(&TUR, &[])).await, (6, 0x2903));
        rig.near.nexus_lost(&rig.hosts[0]);
        rig.near.nexus_established(&rig.hosts[0]);
        assert_eq!(rig.said(rig.send(0, &read(0, 1), &[])).await, (6, 0x2900), "it is another session");
    });
}
