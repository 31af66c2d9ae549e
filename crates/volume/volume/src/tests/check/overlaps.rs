//! Extents of one stream that overlap, any number of them: a repair leaves each cluster to one, and loses none.

use std::collections::BTreeSet;

use super::*;
use crate::tables::EXTENTS;

/// Clusters of the volume that nobody uses.
const UNUSED: u64 = 500;
/// Where in the stream of `/luns/web` the extents are put, behind what it has; in clusters.
const FROM: u64 = 20;
const WEB: u64 = 3;

/// Rows of a stream: where each begins, on the device and how many clusters.
type Rows = Vec<(u64, u64, u64)>;

/// Clusters of the device that extents use.
fn used(device: &Device) -> BTreeSet<u64> {
    let (told, answer) = std::sync::mpsc::channel();
    damage(device, move |txn| {
        let table = txn.open_table(EXTENTS.definition).expect("table");
        let clusters = table.iter().expect("iter").flat_map(|row| {
            let (start, count, _) = row.expect("row").1.value();
            start..start + count
        });
        told.send(clusters.collect()).expect("told");
    });
    answer.recv().expect("the clusters")
}

async fn repairs(what: &str, rows: Rows) {
    let device = prepared().await;
    let inserted = rows.clone();
    damage(&device, move |txn| {
        for (first, start, count) in inserted {
            extent(txn, (WEB, 0, FROM + first), (start, count, 0));
        }
    });
    let before = used(&device);
    let planned = look(&device, Repair::Plan).await;
    assert_eq!(look(&device, Repair::Apply).await, planned, "{what}: what was planned is done");
    assert_eq!(look(&device, Repair::No).await, Vec::new(), "{what} is repaired: {rows:?}");
    assert_eq!(used(&device), before, "{what}: no cluster is lost, none is new: {rows:?}");
    let volume = Volume::open(device, environment()).await.expect("a repaired volume opens");
    for path in ["/luns/web", "/luns/golden", "/luns/copy", "/docs/image", "/docs/linked"] {
        let id = volume.resolve(path).await.expect("it is there");
        let file = open(&volume, id).await;
        assert!(read(&file, 0, content().len()).await == content(), "{what}: {path}");
    }
    volume.close().await.expect("close");
}

#[test]
fn what_is_left_of_an_extent_takes_nobodys_place() {
    on_shard(async {
        // The second ends within the third, which begins where the first ends.
        repairs("three", vec![(0, UNUSED, 5), (2, UNUSED + 10, 6), (5, UNUSED + 20, 2)]).await;
        // What is left of the second meets a fourth, and that a fifth.
        let chain = vec![(0, 500, 5), (2, 510, 10), (5, 520, 2), (7, 525, 2), (9, 530, 8)];
        repairs("five", chain).await;
    });
}

#[test]
fn any_number_of_overlaps_is_repaired() {
    for seed in 0..40 {
        on_shard(async {
            let mut rng = Rng::new(seed);
            let mut start = UNUSED;
            let mut rows = Rows::new();
            let mut firsts = BTreeSet::new();
            for _ in 0..2 + rng.below(10) {
                let (first, count) = (rng.below(16), 1 + rng.below(8));
                if firsts.insert(first) {
                    rows.push((first, start, count));
                    start += count;
                }
            }
            repairs(&format!("seed {seed}"), rows).await;
        });
    }
}
