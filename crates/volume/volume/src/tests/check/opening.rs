//! What an opening makes of tables that cannot be: it refuses, or does no harm.

use super::cases::first;
use super::*;
use crate::free::Run;
use crate::tables::SECURITY;

/// Opens after a damage; whether that is refused as such, and possible after a repair.
async fn is_refused(what: &str, how: fn(&WriteTransaction)) {
    let device = prepared().await;
    damage(&device, how);
    let refused = Volume::open(Arc::clone(&device), environment()).await.map(drop);
    assert_eq!(refused.map_err(|error| error.kind()), Err(StoreErrorKind::Corrupt), "{what}");
    assert!(!look(&device, Repair::Apply).await.is_empty(), "{what}");
    assert_eq!(look(&device, Repair::No).await, Vec::new(), "{what}");
    let volume = Volume::open(device, environment()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    volume.close().await.expect("close");
}

#[test]
fn what_cannot_be_is_refused() {
    on_shard(async {
        is_refused("an extent of nothing", |txn| extent(txn, (3, 0, 900), (500, 0, 0))).await;
        is_refused("an extent beyond all files", |txn| extent(txn, (3, 0, u64::MAX), (500, 1, 0))).await;
        is_refused("an extent beyond the volume", |txn| extent(txn, (3, 0, 900), (500, u64::MAX, 1))).await;
        is_refused("two users who do not know", |txn| {
            let (device, ..) = first(txn, 3);
            extent(txn, (3, 0, 900), (device, 1, 0));
        })
        .await;
        is_refused("nothing that was freed", |txn| {
            drop(txn.open_table(FREED.definition).expect("table").insert(500, 0).expect("insert"));
        })
        .await;
        is_refused("no table", |txn| assert!(txn.delete_table(SECURITY.definition).expect("delete"))).await;
    });
}

#[test]
fn a_file_that_has_a_name_is_not_deleted_because_a_list_says_so() {
    on_shard(async {
        let device = prepared().await;
        damage(&device, |txn| {
            let mut table = txn.open_table(ORPHANS.definition).expect("table");
            table.insert(1, ()).expect("insert");
            table.insert(3, ()).expect("insert");
        });
        for turn in 0..2 {
            let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
            // The second look comes after all that the opening has begun.
            let found = volume.check().await.expect("check");
            assert_eq!(found.is_empty(), turn == 1, "{found:?}");
            let web = volume.resolve("/luns/web").await.expect("it is there");
            volume.close().await.expect("close");
            look(&device, Repair::Apply).await;
            let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
            assert_eq!(read(&open(&volume, web).await, 0, content().len()).await, content());
            volume.close().await.expect("close");
        }
    });
}

#[test]
fn no_cluster_counts_twice_whatever_the_counts_say() {
    on_shard(async {
        let device = prepared().await;
        damage(&device, |txn| {
            let mut table = txn.open_table(SHARES.definition).expect("table");
            for (start, row) in [(400, (20, 2)), (405, (3, 9)), (406, (0, 3)), (410, (u64::MAX, 4))] {
                table.insert(start, row).expect("insert");
            }
        });
        let volume = Volume::open(device, environment()).await.expect("open");
        let parts = volume.core.metadata.change(|session| session.users(Run { start: 395, count: 50 }));
        let parts = parts.await.expect("users");
        let mut at = 395;
        for (part, _) in &parts {
            assert!(part.start == at && part.count > 0, "{parts:?}");
            at = part.end();
        }
        assert_eq!(at, 445, "{parts:?}");
    });
}
