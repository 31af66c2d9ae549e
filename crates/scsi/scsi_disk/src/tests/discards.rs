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
