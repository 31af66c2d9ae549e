//! The administrator ends what initiators hold of a unit.

use std::sync::atomic::{AtomicBool, Ordering};

use file_store::{StoreError, StoreErrorKind};

use super::*;

const CONFLICT: (u8, u16) = (0, 0x18);
const PREEMPTED: (u8, u16) = (6, 0x2a03);

/// Both are registered, and the first holds the unit against the second; both as they would outlive a loss of power.
async fn held(rig: &Rig, kind: u8) {
    assert_eq!(rig.prout(0, 0, 0, (0, 0xa), true).await, (0, 0));
    assert_eq!(rig.prout(1, 0, 0, (0, 0xb), true).await, (0, 0));
    assert_eq!(rig.prout(0, 1, kind, (0xa, 0), true).await, (0, 0));
}

async fn writes(rig: &Rig, who: usize) -> (u8, u16) {
    rig.sense(who, &rw(0x2a, 0, 0, 1), &[0; 512]).await
}

#[test]
fn what_a_host_that_is_gone_holds_fences_until_it_is_cleared() {
    run(async {
        let rig = Rig::new().await;
        held(&rig, 1).await;
        rig.device.nexus_lost(&rig.nexuses[0]);
        assert_eq!(writes(&rig, 1).await, CONFLICT);
        let before = rig.unit.clear_reservations().await.unwrap();
        assert_eq!(before.holders().map(|r| r.port.initiator_name()).collect::<Vec<_>>(), [INITIATORS[0]]);
        assert_eq!((before.registrations.len(), before.aptpl), (2, true));
        // Told as by CLEAR, once, and then nothing keeps it off.
        assert_eq!(writes(&rig, 1).await, PREEMPTED);
        assert_eq!(writes(&rig, 1).await, (0, 0));
        let now = rig.unit.reservations();
        assert!(now.registrations.is_empty() && now.reservation.is_none());
        assert_eq!(now.generation, before.generation + 1);
        // Who comes back is not registered, and is told as others are.
        assert_eq!(rig.prout(1, 1, 1, (0xb, 0), true).await, CONFLICT, "its registration is gone, too");
        // It stays cleared.
        let again = Rig::over(rig.rows.clone()).await;
        assert_eq!(again.unit.reservations().registrations, []);
        assert_eq!(writes(&again, 1).await, (0, 0));
    });
}

#[test]
fn the_holder_is_told_when_it_is_there() {
    run(async {
        let rig = Rig::new().await;
        held(&rig, 8).await;
        assert_eq!(
            rig.unit.clear_reservations().await.unwrap().holders().count(),
            2,
            "all registrants hold it"
        );
        for who in 0..2 {
            assert_eq!(writes(&rig, who).await, PREEMPTED);
            assert_eq!(writes(&rig, who).await, (0, 0));
        }
        // One of SCSI-2 as well.
        rig.good(0, &[0x16, 0, 0, 0, 0, 0], &[]).await;
        assert_eq!(
            (rig.unit.reserved_by().as_deref(), writes(&rig, 1).await),
            (Some(INITIATORS[0]), CONFLICT)
        );
        rig.unit.clear_reservations().await.unwrap();
        assert_eq!((rig.unit.reserved_by(), writes(&rig, 1).await), (None, (0, 0)));
    });
}

/// Rows that cannot be written any more, at will.
#[derive(Default)]
struct Stuck(Rows, AtomicBool);

impl ReservationStore for Stuck {
    fn load<'a>(&'a self, key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>> {
        self.0.load(key)
    }

    fn save<'a>(&'a self, key: &'a [u8], value: Option<Vec<u8>>) -> StoreFuture<'a, ()> {
        match self.1.load(Ordering::SeqCst) {
            true => Box::pin(async { Err(StoreError::new(StoreErrorKind::Stopped, "stuck")) }),
            false => self.0.save(key, value),
        }
    }
}

#[test]
fn what_cannot_be_made_durable_stays_as_it_was() {
    run(async {
        let disk = Arc::new(MemoryDisk::new((BLOCKS * 512) as usize, 512));
        let rows = Arc::new(Stuck::default());
        let unit =
            LogicalUnit::open(unit_config(), Arc::new(DeviceBacking::new(disk)), rows.clone()).await.unwrap();
        let rig = Rig::with(unit, Arc::default(), INITIATORS).await;
        held(&rig, 1).await;
        rows.1.store(true, Ordering::SeqCst);
        assert!(matches!(rig.unit.clear_reservations().await, Err(ClearError::Store(_))));
        assert_eq!(rig.unit.reservations().registrations.len(), 2);
        assert_eq!(writes(&rig, 1).await, CONFLICT);
        assert_eq!(writes(&rig, 0).await, (0, 0), "nobody was told of anything");
    });
}

#[test]
fn it_is_for_whoever_serves_the_unit() {
    run(async {
        let rig = Rig::new().await;
        held(&rig, 1).await;
        for state in [UnitState::Elsewhere(Some(2)), UnitState::Busy] {
            rig.unit.set_state(state);
            assert!(matches!(rig.unit.clear_reservations().await, Err(ClearError::NotHere)));
        }
        rig.unit.set_state(UnitState::Online);
        assert_eq!(rig.unit.reservations().registrations.len(), 2);
        rig.unit.moves();
        assert!(matches!(rig.unit.clear_reservations().await, Err(ClearError::NotHere)));
    });
}
