//! A metadata area that is full: refused, not stopped, and free again after what fills it has gone.

use file_store::{NewSnapshot, SnapshotStore, StoreError};
use futures_util::future::join_all;

use super::*;

const DIRECTORY: FileKind = FileKind::Directory;

async fn make_files(
    volume: &Volume,
    directory: FileId,
    from: u32,
    count: u32,
) -> Vec<Result<FileId, StoreError>> {
    let names: Vec<String> =
        (from..from + count).map(|n| format!("a file with a longer name, number {n}")).collect();
    join_all(names.iter().map(|name| volume.create(directory, name, file()))).await
}

async fn take(volume: &Volume, name: &str, source: FileId) -> Result<(), StoreError> {
    let new =
        NewSnapshot { name: name.into(), source, quiesce: false, maker: String::new(), path: String::new() };
    volume.take_snapshot(new).await.map(drop)
}

async fn settled(volume: &Volume, used: u64) {
    for _ in 0..4000 {
        if volume.usage().await.expect("usage").used == used
            && volume.snapshots().await.expect("list").is_empty()
        {
            return;
        }
        shard_runtime::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("{:?}", volume.usage().await);
}

#[test]
fn files_are_refused_before_the_database_fails() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let root = volume.root();
        let sparse = volume.create(root, "sparse", file()).await.expect("file");
        let sparse = open(&volume, sparse).await;
        sparse.set_size(32 << 20).await.expect("size");
        write(&sparse, 0, &[1; 4096], Durability::Durable).await;
        let mut made = 0;
        let refused = loop {
            let results = make_files(&volume, root, made, 64).await;
            let good = results.iter().filter(|result| result.is_ok()).count() as u32;
            made += 64;
            if let Some(error) = results.into_iter().find_map(Result::err) {
                break (error, good);
            }
            assert!(made < 100_000, "it is never full");
        };
        assert_eq!(refused.0.kind(), StoreErrorKind::NoSpace, "{}", refused.0);
        assert!(made > 1000, "full after {made} files");
        let shot = take(&volume, "s", root).await.map_err(|error| error.kind());
        assert_eq!(shot, Err(StoreErrorKind::NoSpace));
        // What was there is served, and can be written where it lies.
        write(&sparse, 0, &[2; 4096], Durability::Durable).await;
        assert_eq!(read(&sparse, 0, 2).await, [2, 2]);
        sparse.punch_hole(4 << 20, 1 << 20).await.expect("nothing is there");
        // So can what is not there yet: who makes files without end takes no room from who writes.
        for n in 1..32 {
            write(&sparse, n << 20, &[3; 4096], Durability::Durable).await;
        }
        // Over a restart, too.
        drop(sparse);
        let volume = reopen(&device, volume).await;
        let mut more = 0;
        while make_files(&volume, root, 1_000_000 + more, 64).await.iter().all(Result::is_ok) {
            more += 64;
            assert!(more < made / 2, "there is much more room after {made} files than before");
        }
        for n in 0..made - 64 {
            volume.remove(root, &format!("a file with a longer name, number {n}")).await.expect("removed");
        }
        shard_runtime::sleep(std::time::Duration::from_secs(3)).await;
        assert!(make_files(&volume, root, 2_000_000, 64).await.iter().all(Result::is_ok));
        take(&volume, "s", root).await.expect("snapshot");
        assert_eq!(volume.check().await.expect("check"), Vec::new());
    });
}

#[test]
fn snapshots_are_refused_before_the_database_fails() {
    on_shard(async {
        let (_device, volume) = fresh().await;
        let root = volume.root();
        let new = NewFile { kind: DIRECTORY, ..file() };
        let directory = volume.create(root, "tree", new).await.expect("directory");
        for result in make_files(&volume, directory, 0, 200).await {
            let made = open(&volume, result.expect("file")).await;
            write(&made, 0, &[3; 8192], Durability::Durable).await;
        }
        let used = volume.usage().await.expect("usage").used;
        let mut taken = 0;
        let refused = loop {
            if let Err(error) = take(&volume, &format!("s{taken}"), directory).await {
                break error;
            }
            taken += 1;
            assert!(taken < 1000, "it is never full");
        };
        assert_eq!(refused.kind(), StoreErrorKind::NoSpace, "{refused}");
        assert!(taken > 2, "full after {taken} snapshots");
        for snapshot in volume.snapshots().await.expect("list") {
            volume.delete_snapshot(snapshot.id).await.expect("deleted");
        }
        settled(&volume, used).await;
        shard_runtime::sleep(std::time::Duration::from_secs(3)).await;
        take(&volume, "again", directory).await.expect("snapshot");
        assert_eq!(volume.check().await.expect("check"), Vec::new());
    });
}

/// Short rows that lie in one page with a long one take that page, each change until the next commit another.
#[test]
fn changes_beside_long_rows_do_not_fill_the_area_before_they_are_committed() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let row = |number: u32, part: u8, len: usize| StateChange {
            table: "t".into(),
            key: [&number.to_be_bytes()[..], &[part]].concat(),
            value: Some(vec![part; len]),
        };
        let mut count = 0;
        loop {
            // The long one comes between the others, and takes what is before it into its page.
            let around = volume.state_write(vec![row(count, 0, 10), row(count, 2, 1500)]).await;
            let long = match around {
                Ok(()) => volume.state_write(vec![row(count, 1, 60 << 10)]).await,
                Err(error) => Err(error),
            };
            if let Err(error) = long {
                assert_eq!(error.kind(), StoreErrorKind::NoSpace, "{error}");
                break;
            }
            count += 1;
        }
        assert!(count > 5, "{count}");
        let mut refused = 0;
        for round in 0..5 {
            for number in 0..count {
                if let Err(error) = volume.state_write(vec![row(number, 0, 10 + round)]).await {
                    assert_eq!(error.kind(), StoreErrorKind::NoSpace, "row {number}, round {round}: {error}");
                    refused += 1;
                }
            }
        }
        assert!(refused < 5 * count, "some are refused, as it is full, and not all");
        let volume = reopen(&device, volume).await;
        assert_eq!(volume.check().await.expect("check"), Vec::new());
    });
}
