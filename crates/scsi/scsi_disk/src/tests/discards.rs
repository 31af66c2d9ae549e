//! A unit that discards what is written when it ends: whoever has written is told, flushed or not, and nobody else.

use block_device::Durability;
use scsi_defs::asc;

use super::going_on::{Gate, pending};
use super::storage::{BECOMING_READY, disk, run_quickly};
use super::*;
use crate::departed::MAX_DEPARTED;
use crate::sanitize::Sanitize;

const SYNC: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const WRITE_FUA: [u8; 10] = [0x2a, 8, 0, 0, 0, 8, 0, 0, 1, 0];
const UNMAP: [u8; 10] = [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0];
const COMPARE_AND_WRITE: [u8; 16] = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0];
const WRITE_ERROR: (u8, u16) = (4, 0x0c00);

const POWER_ON: (u8, u16) = (6, asc::POWER_ON);

async fn discarding(rows: Arc<Rows>) -> Rig {
    discarding_on(disk(), rows).await
}

async fn discarding_on(backing: Arc<DeviceBacking>, rows: Arc<Rows>) -> Rig {
    Rig::with(discarding_unit(backing, rows.clone()).await, rows, INITIATORS).await
}

async fn discarding_unit(backing: Arc<DeviceBacking>, rows: Arc<Rows>) -> Arc<LogicalUnit> {
    let config = UnitConfig { discards_writes: true, initiator_write_cache: false, ..unit_config() };
    LogicalUnit::open(config, backing, rows).await.unwrap()
}

/// A session of a host that has others.
fn session(of: &str, id: u8) -> Arc<Nexus> {
    Arc::new(Nexus {
        id: u64::from(id),
        initiator: of.to_owned(),
        initiator_port: [id; 6],
        target: "iqn.a:disk".to_owned(),
        target_port: 1,
        io: IoTally::default(),
    })
}

fn good(response: &ScsiResponse) -> bool {
    response.status == ScsiStatus::Good
}

/// Each way to write names who did, and a flush or FUA changes nothing of that.
#[test]
fn who_has_written_is_told_when_the_unit_is_opened_next() {
    let unmap = [&[0, 22, 0, 16, 0, 0, 0, 0][..], &8_u64.to_be_bytes(), &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
    let ways: [(&[u8], Vec<u8>); 3] =
        [(&WRITE_FUA, vec![5; 512]), (&COMPARE_AND_WRITE, [[0; 512], [5; 512]].concat()), (&UNMAP, unmap)];
    for (cdb, data) in ways {
        run_quickly(async {
            let rows = Arc::new(Rows::default());
            let rig = discarding(rows.clone()).await;
            assert!(rig.unit.caches_writes());
            assert!(good(&rig.send(0, 1, cdb, &data).await), "{cdb:?}");
            for _ in 0..2 {
                assert!(good(&rig.send(0, 1, &SYNC, &[]).await));
                rig.unit.rest().await;
            }
            // The node ends without a word.
            let rig = discarding(rows.clone()).await;
            assert_eq!(rig.unit.lost_writes_of(), [INITIATORS[0]]);
            assert!(good(&rig.send(1, 1, &SYNC, &[]).await));
            assert_eq!(rig.sense(0, &SYNC, &[]).await, WRITE_ERROR);
            assert!(good(&rig.send(0, 1, &SYNC, &[]).await));
            // Told, and nothing written since.
            rig.unit.rest().await;
            let rig = discarding(rows.clone()).await;
            assert_eq!(rig.unit.lost_writes_of(), [""; 0]);
        });
    }
}

#[test]
fn closing_it_loses_what_was_written_as_well() {
    run_quickly(async {
        let rows = Arc::new(Rows::default());
        let rig = discarding(rows.clone()).await;
        assert!(good(&rig.send(1, 1, &WRITE_FUA, &[5; 512]).await));
        assert!(good(&rig.send(1, 1, &SYNC, &[]).await));
        assert_eq!(rig.unit.close().await, [""; 0], "it is kept with the data");
        let rig = discarding(rows).await;
        assert!(rig.unit.lost_writes_of().contains(&INITIATORS[1].to_owned()));
        assert_eq!(rig.sense(1, &SYNC, &[]).await, WRITE_ERROR);
    });
}

#[test]
fn storage_that_goes_and_comes_back_has_lost_what_was_flushed() {
    run_quickly(async {
        let rig = discarding(Arc::new(Rows::default())).await;
        assert!(good(&rig.send(0, 1, &WRITE_FUA, &[5; 512]).await));
        assert!(good(&rig.send(0, 1, &SYNC, &[]).await));
        rig.unit.detach();
        assert_eq!(rig.unit.would_lose_writes(), [""; 0], "it is lost already");
        rig.unit.attach(disk(), rig.rows.clone());
        // What it has read is not what the unit holds.
        assert_eq!(rig.sense(0, &SYNC, &[]).await, POWER_ON);
        assert_eq!(rig.sense(0, &SYNC, &[]).await, WRITE_ERROR);
        assert!(good(&rig.send(0, 1, &SYNC, &[]).await));
        assert!(good(&rig.send(1, 1, &SYNC, &[]).await), "it had not written");
        // What it writes now is lost with the storage that is there now.
        assert!(good(&rig.send(0, 1, &WRITE_FUA, &[6; 512]).await));
        assert_eq!(rig.unit.would_lose_writes(), [INITIATORS[0]]);
        rig.unit.rest().await;
        let after = discarding(rig.rows.clone()).await;
        assert_eq!(after.unit.lost_writes_of(), [INITIATORS[0]]);
    });
}

/// Each way to change something: carried out in the storage that has gone, it is not answered as if it were in the one that has come.
#[test]
fn what_waits_in_storage_that_goes_is_not_answered_good() {
    let unmap = [&[0, 22, 0, 16, 0, 0, 0, 0][..], &8_u64.to_be_bytes(), &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
    let (write_same, or_write) =
        ([0x41, 0, 0, 0, 0, 8, 0, 0, 1, 0], [0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0]);
    let write_verify = [0x2e, 0, 0, 0, 0, 8, 0, 0, 1, 0];
    // Whether it may be carried out once more.
    let ways: [(&[u8], Vec<u8>, bool); 6] = [
        (&WRITE_FUA, vec![5; 512], true),
        (&write_same, vec![5; 512], true),
        (&write_verify, vec![5; 512], true),
        (&UNMAP, unmap, true),
        (&COMPARE_AND_WRITE, [[0; 512], [5; 512]].concat(), false),
        (&or_write, vec![5; 512], false),
    ];
    for (cdb, data, again) in ways {
        run_quickly(async {
            let gate = Gate::new();
            let old = Arc::new(DeviceBacking::new(gate.clone()));
            let rig = discarding_on(old, Arc::new(Rows::default())).await;
            gate.0.set(true, false);
            let mut waits = Box::pin(rig.send(0, 1, cdb, &data));
            assert!(pending(&mut waits).await, "{cdb:x?}");
            rig.unit.detach();
            let new = disk();
            new.write(8 * 512, IoBuf::copy_from(&[9; 512]).freeze(), Durability::Durable).await.unwrap();
            rig.unit.attach(new.clone(), rig.rows.clone());
            gate.0.set(false, false);
            let answer = waits.await;
            let there = new.read(8 * 512, IoBuf::new(512)).await.unwrap();
            if again {
                assert!(good(&answer), "{cdb:x?}");
                assert_ne!(there[..], [9; 512], "{cdb:x?} is in what is there now");
            } else {
                let sense = (answer.sense[2], u16::from_be_bytes([answer.sense[12], answer.sense[13]]));
                assert_eq!(sense, BECOMING_READY, "{cdb:x?}");
                assert_eq!(there[..], [9; 512], "{cdb:x?}");
            }
            // That it had begun to write was lost, and is told.
            assert_eq!(rig.sense(0, &SYNC, &[]).await, POWER_ON, "{cdb:x?}");
            assert_eq!(rig.sense(0, &SYNC, &[]).await, WRITE_ERROR, "{cdb:x?}");
        });
    }
}

/// Several sessions of a host: the one that is told stands for all, and none of them keeps anybody waiting that has gone.
#[test]
fn a_host_that_was_told_over_one_session_is_waited_for_no_more() {
    run_quickly(async {
        let rows = Arc::new(Rows::default());
        let rig = discarding(rows.clone()).await;
        assert!(good(&rig.send(0, 1, &WRITE_FUA, &[5; 512]).await));
        let rig = discarding(rows.clone()).await;
        // One that only looks, and goes.
        let looks = session(INITIATORS[0], 11);
        rig.device.nexus_established(&looks);
        rig.device.nexus_lost(&looks);
        let stays = session(INITIATORS[0], 12);
        rig.device.nexus_established(&stays);
        assert_eq!(rig.sense(0, &SYNC, &[]).await, WRITE_ERROR);
        assert_eq!(rig.unit.lost_writes_of(), [""; 0]);
        rig.device.nexus_lost(&stays);
        assert_eq!(rig.unit.lost_writes_of(), [""; 0], "its host knows");
        // That is durable when it is told.
        assert_eq!(discarding(rows).await.unit.lost_writes_of(), [""; 0]);
    });
}

#[test]
fn a_host_that_has_gone_untold_is_told_over_another_session() {
    run_quickly(async {
        let rig = discarding(Arc::new(Rows::default())).await;
        assert!(good(&rig.send(0, 1, &WRITE_FUA, &[5; 512]).await));
        rig.device.nexus_lost(&rig.nexuses[0]);
        rig.unit.detach();
        rig.unit.attach(disk(), rig.rows.clone());
        assert_eq!(rig.unit.lost_writes_of(), [INITIATORS[0]]);
        let rig = Rig { nexuses: [session(INITIATORS[0], 11), rig.nexuses[1].clone()], ..rig };
        rig.device.nexus_established(&rig.nexuses[0]);
        assert_eq!(rig.sense(0, &SYNC, &[]).await, POWER_ON);
        assert_eq!(rig.sense(0, &SYNC, &[]).await, WRITE_ERROR);
        assert_eq!(rig.unit.lost_writes_of(), [""; 0]);
    });
}

#[test]
fn who_is_forgotten_is_so_whatever_becomes_of_the_node() {
    run_quickly(async {
        let rows = Arc::new(Rows::default());
        let rig = discarding(rows.clone()).await;
        assert!(good(&rig.send(0, 1, &WRITE_FUA, &[5; 512]).await));
        assert!(good(&rig.send(1, 1, &WRITE_FUA, &[5; 512]).await));
        let rig = discarding(rows.clone()).await;
        // The second one goes on writing, which it has to lose then.
        assert_eq!(rig.sense(1, &SYNC, &[]).await, WRITE_ERROR);
        assert!(good(&rig.send(1, 1, &WRITE_FUA, &[5; 512]).await));
        rig.device.nexus_lost(&rig.nexuses[0]);
        assert_eq!(rig.unit.forget_lost_writes(None).await.unwrap(), [INITIATORS[0]]);
        // The node ends without a word.
        assert_eq!(discarding(rows).await.unit.lost_writes_of(), [INITIATORS[1]]);
    });
}

/// More hosts than are remembered once they have gone.
#[test]
fn closing_it_forgets_nobody_who_has_written() {
    run_quickly(async {
        let rows = Arc::new(Rows::default());
        let rig = discarding(rows.clone()).await;
        for number in 0..=MAX_DEPARTED {
            let mut host = session(&format!("iqn.h{number}"), 9);
            Arc::get_mut(&mut host).unwrap().id = 100 + number as u64;
            rig.device.nexus_established(&host);
            for (cdb, data) in [(&[0; 6][..], &[][..]), (&WRITE_FUA, &[5; 512])] {
                let command = ScsiCommand {
                    cdb: cdb.to_vec(),
                    data_out: IoBuf::copy_from(data).freeze(),
                    data_in_limit: 0,
                    attribute: TaskAttribute::Simple,
                };
                rig.device.execute(&host, WireLun::from_number(1), command).await.unwrap();
            }
            rig.device.nexus_lost(&host);
        }
        assert_eq!(rig.unit.close().await, [""; 0], "it is kept with the data");
        assert_eq!(discarding(rows).await.unit.lost_writes_of().len(), MAX_DEPARTED + 1);
    });
}

/// What takes its place under its initiators, as at another node, tells them that it is not what they had.
#[test]
fn who_runs_on_while_the_unit_is_taken_over_hears_of_it_at_once() {
    run_quickly(async {
        let rows = Arc::new(Rows::default());
        let rig = discarding(rows.clone()).await;
        assert!(good(&rig.send(0, 1, &WRITE_FUA, &[5; 512]).await));
        let unit = discarding_unit(disk(), rows.clone()).await;
        let mapped = MappedUnit { unit: unit.clone(), read_only: false };
        rig.device.configure(vec![Group { luns: BTreeMap::from([(1, mapped)]), ..Group::default() }]);
        assert_eq!(rig.sense(0, &SYNC, &[]).await, POWER_ON);
        assert_eq!(rig.sense(0, &SYNC, &[]).await, WRITE_ERROR);
    });
}

/// Its file may have been a unit's that was sanitized without success, and the unit would serve nothing for good.
#[test]
fn a_failed_sanitize_can_be_left() {
    run_quickly(async {
        let exit = [0x48, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0];
        for may_exit in [true, false] {
            let rows = Arc::new(Rows::default());
            rows.0.lock().insert(LogicalUnit::row_key(&[7; 16], b's'), Sanitize::row(may_exit));
            let rig = discarding(rows).await;
            assert_eq!(rig.sense(0, &WRITE_FUA, &[5; 512]).await.0, 3);
            let left = rig.sense(0, &exit, &[]).await;
            assert_eq!(left == (0, 0), may_exit, "{left:x?}");
            assert_eq!(good(&rig.send(0, 1, &WRITE_FUA, &[5; 512]).await), may_exit);
        }
    });
}

/// It would leave what lies under the discarded writes, so nothing says that it was done, or that it can be.
#[test]
fn sanitize_is_no_command_of_it() {
    run_quickly(async {
        let rig = discarding(Arc::new(Rows::default())).await;
        let (erase, exit) = ([0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0], [0x48, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0]);
        let (unknown, overwrite) = ([0x48, 7, 0, 0, 0, 0, 0, 0, 0, 0], [0x48, 1, 0, 0, 0, 0, 0, 0, 8, 0]);
        for cdb in [erase, exit, unknown] {
            assert_eq!(rig.sense(0, &cdb, &[]).await, (5, 0x2000), "{cdb:x?}");
        }
        assert_eq!(rig.sense(0, &overwrite, &[1, 0, 0, 4, 1, 2, 3, 4]).await, (5, 0x2000));
        // REPORT SUPPORTED OPERATION CODES: all of them, and each by itself.
        let all = [0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0];
        let listed = rig.send(0, 1, &all, &[]).await.data_in.expect("a list");
        assert!(listed[4..].chunks(8).all(|entry| entry[0] != 0x48));
        assert!(listed[4..].chunks(8).any(|entry| entry[0] == 0x8b));
        let one = |how: u8| [0xa3, 0x0c, how, 0x48, 0, 2, 0, 0, 0, 64, 0, 0];
        for how in [1, 2, 3] {
            let told = rig.send(0, 1, &one(how), &[]).await.data_in.expect("an answer");
            assert_eq!(&told[..], [0, 1, 0, 0], "{how}");
        }
    });
}
