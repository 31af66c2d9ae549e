//! A unit that discards what is written when it ends: whoever has written is told, flushed or not, and nobody else.

use super::storage::{disk, run_quickly};
use super::*;

const SYNC: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const WRITE_FUA: [u8; 10] = [0x2a, 8, 0, 0, 0, 8, 0, 0, 1, 0];
const UNMAP: [u8; 10] = [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0];
const COMPARE_AND_WRITE: [u8; 16] = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0];
const WRITE_ERROR: (u8, u16) = (4, 0x0c00);

async fn discarding(rows: Arc<Rows>) -> Rig {
    let config = UnitConfig { discards_writes: true, initiator_write_cache: false, ..unit_config() };
    let unit = LogicalUnit::open(config, disk(), rows.clone()).await.unwrap();
    Rig::with(unit, rows, INITIATORS).await
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
        rig.unit.attach(disk(), rig.rows.clone());
        assert_eq!(rig.sense(0, &SYNC, &[]).await, WRITE_ERROR);
        assert!(good(&rig.send(0, 1, &SYNC, &[]).await));
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
