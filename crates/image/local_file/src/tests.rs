//! A file here does what the model in memory does; who may open what; where the data is.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_conformance::Rng;
use block_device::Durability;
use file_store::{
    Access, Attributes, FileKind, FileStore, MemoryStore, NewFile, OpenFile, OpenOptions, StoreErrorKind,
};
use shard_runtime::Shards;

use crate::{LocalFile, Purpose};

/// Runs on a shard, which has an engine.
fn on_shard<F, T>(make: impl FnOnce() -> F + Send + 'static) -> T
where
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let shards = Shards::start(1).expect("a shard");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let done = runtime.block_on(shards.next().run(make)).expect("done");
    shards.stop();
    done
}

async fn model() -> Arc<dyn OpenFile> {
    let store = MemoryStore::new(1 << 40);
    let new = NewFile { kind: FileKind::File, attributes: Attributes::default(), security: Vec::new() };
    let id = store.create(store.root(), "f", new).await.expect("made");
    store.open(id, OpenOptions::shared(Access::READ_WRITE)).await.expect("opened")
}

async fn content(file: &Arc<dyn OpenFile>) -> Vec<u8> {
    file.read(0, IoBuf::new(1 << 20)).await.expect("read").to_vec()
}

/// One operation, the same on both; what it answers.
async fn step(file: &Arc<dyn OpenFile>, mut rng: Rng) -> Result<Option<u64>, StoreErrorKind> {
    let (offset, len) = (rng.below(200_000), rng.below(60_000));
    let fill = rng.below(255) as u8;
    let data = IoBuf::copy_from(&vec![fill; len as usize]).freeze();
    let durability = if rng.one_in(4) { Durability::Durable } else { Durability::Volatile };
    let done = match rng.below(8) {
        0..3 => file.write(offset, data, durability).await,
        3 => file.punch_hole(offset, len).await,
        4 => file.zero_range(offset, len, durability).await,
        5 => file.set_size(offset).await,
        6 => file.allocate(offset, len, rng.one_in(2)).await,
        _ => {
            let expected = file.read(offset, IoBuf::new(len as usize)).await.expect("read");
            let mut expected =
                IoBuf::copy_from(&[&expected[..], &vec![0; len as usize - expected.len()]].concat());
            if rng.one_in(2) && len > 10 {
                expected[10] ^= 1;
            }
            let compared = file.compare_and_write(offset, expected.freeze(), data).await;
            return compared.map_err(|error| error.kind());
        }
    };
    done.map(|()| None).map_err(|error| error.kind())
}

#[test]
fn it_does_what_the_model_does() {
    on_shard(|| async {
        let folder = tempfile::tempdir().expect("a folder");
        let file: Arc<dyn OpenFile> =
            LocalFile::open(&folder.path().join("f"), Purpose::Create).expect("made");
        let model = model().await;
        for seed in 0..400 {
            let (done, wanted) = (step(&file, Rng::new(seed)).await, step(&model, Rng::new(seed)).await);
            assert_eq!(done, wanted, "{seed}");
            assert_eq!(file.size(), model.size(), "{seed}");
            assert!(content(&file).await == content(&model).await, "{seed}");
        }
        file.flush().await.expect("flushed");
        for end in [u64::MAX, file_store::FILE_SIZE_MAX + 1] {
            let refused = file.write(end - 1, IoBuf::zeroed(10).freeze(), Durability::Volatile).await;
            assert_eq!(refused.map_err(|error| error.kind()), Err(StoreErrorKind::InvalidArgument));
        }
    });
}

#[test]
fn one_writes_or_many_read() {
    on_shard(|| async {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("f");
        assert!(LocalFile::open(&path, Purpose::Read).is_err());
        let first = LocalFile::open(&path, Purpose::Create).expect("made");
        assert!(LocalFile::open(&path, Purpose::Create).is_err());
        for purpose in [Purpose::Read, Purpose::Write] {
            let refused = LocalFile::open(&path, purpose).err().expect("refused");
            assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
        }
        drop(first);
        let readers = [(); 2].map(|()| LocalFile::open(&path, Purpose::Read).expect("opened"));
        assert!(LocalFile::open(&path, Purpose::Write).is_err());
        let refused = readers[0].write(0, IoBuf::zeroed(1).freeze(), Durability::Volatile).await;
        assert_eq!(refused.map_err(|error| error.kind()), Err(StoreErrorKind::AccessDenied));
        assert!(LocalFile::open(folder.path(), Purpose::Read).is_err(), "a folder");
    });
}

#[test]
fn holes_are_seen() {
    on_shard(|| async {
        let folder = tempfile::tempdir().expect("a folder");
        let file = LocalFile::open(&folder.path().join("f"), Purpose::Create).expect("made");
        file.set_size(100 << 20).await.expect("grown");
        let data = IoBuf::copy_from(&[1; 65536]).freeze();
        for offset in [10 << 20, 50 << 20] {
            file.write(offset, data.clone(), Durability::Volatile).await.expect("written");
        }
        let ranges = file.allocated_ranges(0, 100 << 20, 10).await.expect("looked");
        let holds =
            |at: u64| ranges.iter().any(|range| (range.offset..range.offset + range.len).contains(&at));
        assert!(holds(10 << 20) && holds((50 << 20) + 65535));
        assert!(ranges.windows(2).all(|pair| pair[0].offset + pair[0].len < pair[1].offset), "{ranges:?}");
        let some = file.allocated_ranges(10 << 20, 40 << 20, 1).await.expect("looked");
        assert_eq!(some.len(), 1);
        assert!(some[0].offset == 10 << 20 && some[0].len >= 65536 && some[0].len <= 40 << 20);
    });
}

/// Polls once, and waits until the kernel has made the file so long, which nobody here has been told of.
async fn written_behind(writing: &mut file_store::StoreFuture<'_, ()>, path: &std::path::Path, end: u64) {
    std::future::poll_fn(|context| {
        let _ = writing.as_mut().poll(context);
        std::task::Poll::Ready(())
    })
    .await;
    io_engine::flush();
    while std::fs::metadata(path).expect("there").len() < end {
        std::hint::spin_loop();
    }
}

#[test]
fn growing_a_file_does_not_cut_what_others_write_behind() {
    on_shard(|| async {
        // Not in memory, where writes are done at once.
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
        for reserves in [false, true] {
            let path = folder.path().join(format!("{reserves}"));
            let file = LocalFile::open(&path, Purpose::Create).expect("made");
            let data = IoBuf::copy_from(&[7; 4096]).freeze();
            let mut writing = file.write(1 << 20, data, Durability::Volatile);
            written_behind(&mut writing, &path, (1 << 20) + 4096).await;
            let growing = if reserves {
                file.allocate(0, 8192, true)
            } else {
                file.zero_range(0, 8192, Durability::Volatile)
            };
            let (grown, written) = tokio::join!(growing, writing);
            grown.expect("grown");
            written.expect("written");
            let read = file.read(1 << 20, IoBuf::new(4096)).await.expect("read");
            assert!(read.len() == 4096 && read.iter().all(|byte| *byte == 7), "{reserves}");
        }
    });
}

#[test]
fn pipes_are_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("it runs").success());
    for purpose in [Purpose::Read, Purpose::Write] {
        let refused = LocalFile::open(&pipe, purpose).err().expect("refused");
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    }
}
