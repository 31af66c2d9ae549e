//! Long names and rows in a metadata area that becomes full: they pay what they take, and what must always work finds room.

use file_store::{StoreError, StoreFuture};
use futures_util::future::join_all;

use super::*;

/// Changes at once.
const DEPTH: u32 = 16;

/// The longest name that there is: 255 characters of three bytes each.
fn long(number: u32) -> String {
    let tail = format!("{number:07}");
    format!("{}{tail}", "\u{4e2d}".repeat(255 - tail.len()))
}

fn short(number: u32) -> String {
    format!("f{number}")
}

fn refused<T>(result: &Result<T, StoreError>) -> bool {
    match result {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), StoreErrorKind::NoSpace, "{error}");
            true
        }
    }
}

/// Makes the changes of numbers up to `end`, some at once; of how many was none refused for want of room.
async fn until_full<'a, T>(end: u32, change: impl Fn(u32) -> StoreFuture<'a, T>) -> u32 {
    for from in (0..end).step_by(DEPTH as usize) {
        let results = join_all((from..(from + DEPTH).min(end)).map(&change)).await;
        if results.iter().any(refused) {
            return from;
        }
    }
    end
}

fn create<'a>(volume: &'a Volume, name: String) -> StoreFuture<'a, FileId> {
    let root = volume.root();
    Box::pin(async move { volume.create(root, &name, file()).await })
}

async fn fill_with_short(volume: &Volume) -> u32 {
    let made = until_full(100_000, |n| create(volume, short(n))).await;
    assert!((1000..100_000).contains(&made), "full after {made} files");
    made
}

/// All is there, and goes on after a restart.
async fn is_sound(device: &Device, volume: Arc<Volume>) -> Arc<Volume> {
    assert_eq!(volume.why_stopped(), None);
    let volume = reopen(device, volume).await;
    assert_eq!(volume.check().await.expect("check"), Vec::new());
    volume
}

#[test]
fn files_with_long_names_are_refused_before_the_database_fails() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let made = until_full(20_000, |n| create(&volume, long(n))).await;
        assert!((300..20_000).contains(&made), "full after {made} files");
        let mut volume = is_sound(&device, volume).await;
        // Not after a restart either, which knows nothing of how long the rows are.
        let more = until_full(made, |n| create(&volume, long(1_000_000 + n))).await;
        assert!(more < made / 2, "there is much more room after {made} files than before: {more}");
        volume = is_sound(&device, volume).await;
        for n in 0..made {
            volume.remove(volume.root(), &long(n)).await.expect("removed");
        }
        shard_runtime::sleep(std::time::Duration::from_secs(3)).await;
        create(&volume, long(3_000_000)).await.expect("there is room again");
        is_sound(&device, volume).await;
    });
}

#[test]
fn names_that_become_longer_pay_for_that() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let made = fill_with_short(&volume).await;
        let root = volume.root();
        let rename = |n: u32| -> StoreFuture<'_, ()> {
            let volume = &volume;
            Box::pin(async move { volume.rename((root, &short(n)), (root, &long(n)), false).await })
        };
        let renamed = until_full(made, rename).await;
        assert!(renamed < made / 4, "{renamed} of {made} names have become longer");
        // One that does not become longer needs no more.
        volume.rename((root, &short(made - 1)), (root, "g1"), false).await.expect("as long as before");
        let volume = is_sound(&device, volume).await;
        for n in made / 2..made - 1 {
            volume.remove(root, &short(n)).await.expect("removed");
        }
        is_sound(&device, volume).await;
    });
}

#[test]
fn streams_and_links_with_long_names_pay_for_them() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let root = volume.root();
        let mut ids = Vec::new();
        for n in 0..64 {
            ids.push(volume.create(root, &short(n), file()).await.expect("create"));
        }
        let id = |n: u32| ids[n as usize % ids.len()];
        let stream = |n: u32| -> StoreFuture<'_, ()> {
            let volume = &volume;
            let options = OpenOptions {
                stream: long(n),
                create_stream: true,
                ..OpenOptions::shared(Access::READ_WRITE)
            };
            Box::pin(async move { volume.open(id(n), options).await.map(drop) })
        };
        let made = until_full(30_000, stream).await;
        assert!((200..30_000).contains(&made), "full after {made} streams");
        let link = |n: u32| -> StoreFuture<'_, ()> {
            let volume = &volume;
            Box::pin(async move { volume.link(id(n), (root, &long(n)), false).await })
        };
        let linked = until_full(5000, link).await;
        assert!(linked < 5000);
        for n in 0..made / 2 {
            volume.remove_stream(id(n), &long(n)).await.expect("removed");
        }
        let volume = is_sound(&device, volume).await;
        let renamed = until_full(1000, |n| -> StoreFuture<'_, ()> {
            let volume = &volume;
            let options = OpenOptions {
                stream: short(n),
                create_stream: true,
                ..OpenOptions::shared(Access::READ_WRITE)
            };
            Box::pin(async move {
                volume.open(id(n), options).await.map(drop)?;
                volume.rename_stream(id(n), &short(n), &long(1_000_000 + n), false).await
            })
        });
        renamed.await;
        is_sound(&device, volume).await;
    });
}

fn row(table: &str, number: u32, len: usize) -> Vec<StateChange> {
    vec![StateChange {
        table: table.into(),
        key: number.to_be_bytes().to_vec(),
        value: Some(vec![number as u8; len]),
    }]
}

/// Whoever has something open or reserved keeps it up to date, lets go of it, and reserves, however full the area is.
#[test]
fn rows_that_are_there_are_changed_and_reservations_made_when_the_area_is_full() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let root = volume.root();
        for n in 0..16 {
            volume.state_write(row("smb-open", n, 400)).await.expect("row");
        }
        let sparse = volume.create(root, "sparse", file()).await.expect("file");
        let sparse = open(&volume, sparse).await;
        let made = fill_with_short(&volume).await;
        // Opens of what is there have rows, too, and their own room.
        let opens = until_full(50_000, |n| volume.state_write(row("smb-open", 100 + n, 400))).await;
        assert!((16..50_000).contains(&opens), "{opens} more opens");
        for round in 0..20 {
            for n in 0..16 {
                volume.state_write(row("smb-open", n, 400 + 10 * (round % 3))).await.expect("changed");
                volume.state_write(row("scsi", n, 300 + 10 * (round % 3))).await.expect("reserved");
            }
        }
        // A size, of what has its place.
        sparse.set_size(1 << 40).await.expect("grown");
        let gone = |n: u32| StateChange {
            table: "smb-open".into(),
            key: (100 + n).to_be_bytes().to_vec(),
            value: None,
        };
        for n in 0..opens {
            volume.state_write(vec![gone(n)]).await.expect("closed");
        }
        for n in 0..made / 2 {
            volume.remove(root, &short(n)).await.expect("removed");
        }
        is_sound(&device, volume).await;
    });
}
