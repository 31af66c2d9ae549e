//! Power that goes during a repair: what was not done is done by the next one, and nothing is lost by it.

use super::*;
use crate::tests::devices::Fickle;

/// Damage of each kind that a repair mends: a superblock, a length record, and tables.
async fn break_all(device: &Device) {
    damage(device, |txn| {
        txn.open_table(SHARES.definition).expect("table").retain(|_, _| false).expect("retain");
        txn.open_table(INODES.definition).expect("table").insert(3, [1u8, 0].as_slice()).expect("insert");
        txn.open_table(ENTRIES.definition).expect("table").remove((6, "NOTES")).expect("remove");
    });
    let block = device.read(0, IoBuf::new(4096)).await.expect("read");
    let lengths = Superblock::decode(&block).expect("superblock").length_start;
    let mut numbers = Vec::new();
    for at in [lengths, lengths + 4096] {
        let block = device.read(at, IoBuf::new(4096)).await.expect("read");
        numbers.push(volume_format::LengthRecord::decode(&block).map(|r| r.number).unwrap_or(0));
    }
    let older = if numbers[0] > numbers[1] { lengths + 4096 } else { lengths };
    for at in [Superblock::OFFSETS[1], older] {
        let junk = IoBuf::copy_from(&[0x55; 4096]).freeze();
        device.write(at, junk, Durability::Durable).await.expect("write");
    }
    device.flush().await.expect("flush");
}

async fn quick(device: &Device, repair: Repair) -> Vec<Finding> {
    verify(Arc::clone(device), environment(), CheckOptions { deep: false, repair }).await.expect("verify")
}

#[test]
fn a_repair_that_was_cut_short_is_finished_by_the_next_one() {
    on_shard(async {
        let broken = Arc::new(Fickle::new(SIZE, 1));
        let device: Device = broken.clone();
        prepare(&device).await;
        break_all(&device).await;
        let copy = Arc::new(broken.after_power_cut(0));
        let whole: Device = copy.clone();
        let planned = quick(&whole, Repair::Plan).await;
        assert!(planned.len() >= 5 && planned.iter().all(|found| found.repair.is_some()), "{planned:#?}");
        let before = copy.requests();
        assert_eq!(quick(&whole, Repair::Apply).await, planned);
        let requests = copy.requests() - before;
        assert!(requests > 4, "{requests}");
        let (mut part, mut none) = (0, 0);
        for cut in 1..=requests {
            let disk = Arc::new(broken.after_power_cut(0));
            disk.cut_after(cut);
            let options = CheckOptions { deep: false, repair: Repair::Apply };
            let _ = verify(disk.clone(), environment(), options).await;
            let left: Device = Arc::new(disk.after_power_cut(cut));
            let rest = quick(&left, Repair::Plan).await;
            let known = |found: &Finding| {
                planned
                    .iter()
                    .any(|planned| planned.structure == found.structure && planned.place == found.place)
            };
            assert!(rest.iter().all(known), "cut {cut}: {rest:#?}");
            part += usize::from(!rest.is_empty() && rest.len() < planned.len());
            none += usize::from(rest.is_empty());
            assert_eq!(quick(&left, Repair::Apply).await, rest, "cut {cut}");
            assert_eq!(look(&left, Repair::No).await, Vec::new(), "cut {cut}");
            let volume = Volume::open(left, environment()).await.expect("open");
            for path in ["/luns/web", "/luns/golden", "/luns/copy"] {
                let id = volume.resolve(path).await.expect("path");
                assert_eq!(
                    read(&open(&volume, id).await, 0, content().len()).await,
                    content(),
                    "{cut}: {path}"
                );
            }
            volume.close().await.expect("close");
        }
        assert!(part > 0 && none > 0, "{part} repairs were cut in the middle, {none} at the end");
    });
}
