//! A store every operation of which takes time before and after it is done, so that each wait for it is one at which a
//! request can be dropped.

use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::SharedBuf;
use block_device::Durability;
use file_store::{
    FileId, FileStore, InfoChange, NewFile, OpenFile, OpenOptions, StateChange, StoreError, StoreFuture,
};
use shard_runtime::{finish_anyway, sleep};

use crate::{FileLayer, Layered, StoreLayer};

/// How long an operation takes before it is done, and again until it is answered.
const STEP: Duration = Duration::from_millis(100);

/// What becomes of an operation that is dropped. A store promises neither, so that a user must stand both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDrop {
    /// It was not begun, or was done and nobody has heard of it.
    Stops,
    /// What changes something is done all the same, later.
    GoesOn,
}

async fn slowly<T>(work: impl Future<Output = T>) -> T {
    sleep(STEP).await;
    let done = work.await;
    sleep(STEP).await;
    done
}

/// A slow store before another one.
pub struct Slow {
    store: Arc<dyn FileStore>,
    on_drop: OnDrop,
}

struct SlowFile {
    file: Arc<dyn OpenFile>,
    on_drop: OnDrop,
}

/// Puts a slow store before `store`.
#[must_use]
pub fn slow(store: Arc<dyn FileStore>, on_drop: OnDrop) -> Arc<dyn FileStore> {
    Arc::new(Layered(Slow { store, on_drop }))
}

/// A change, which goes on where changes do.
fn change<'a, T: 'a + 'static>(
    on_drop: OnDrop,
    work: impl Future<Output = Result<T, StoreError>> + 'static,
) -> StoreFuture<'a, T> {
    match on_drop {
        OnDrop::Stops => Box::pin(work),
        OnDrop::GoesOn => Box::pin(finish_anyway(slowly(work))),
    }
}

impl Slow {
    fn change<'a, T: 'a + 'static, F: Future<Output = Result<T, StoreError>> + 'static>(
        &self,
        work: impl FnOnce(Arc<dyn FileStore>) -> F,
    ) -> StoreFuture<'a, T> {
        change(self.on_drop, work(Arc::clone(&self.store)))
    }
}

impl StoreLayer for Slow {
    fn below(&self) -> &dyn FileStore {
        &*self.store
    }

    fn answered<'a, T: 'a>(&'a self, answer: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        Box::pin(slowly(answer))
    }

    fn create<'a>(&'a self, directory: FileId, name: &'a str, new: NewFile) -> StoreFuture<'a, FileId> {
        let name = name.to_owned();
        self.change(|store| async move { store.create(directory, &name, new).await })
    }

    fn remove<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, ()> {
        let name = name.to_owned();
        self.change(|store| async move { store.remove(directory, &name).await })
    }

    fn rename<'a>(
        &'a self,
        from: (FileId, &'a str),
        to: (FileId, &'a str),
        replace: bool,
    ) -> StoreFuture<'a, ()> {
        let (from, to) = ((from.0, from.1.to_owned()), (to.0, to.1.to_owned()));
        self.change(|store| async move { store.rename((from.0, &from.1), (to.0, &to.1), replace).await })
    }

    fn set_info(&self, file: FileId, change: InfoChange) -> StoreFuture<'_, ()> {
        self.change(|store| async move { store.set_info(file, change).await })
    }

    fn set_security(&self, file: FileId, descriptor: Vec<u8>) -> StoreFuture<'_, ()> {
        self.change(|store| async move { store.set_security(file, descriptor).await })
    }

    fn remove_stream<'a>(&'a self, file: FileId, stream: &'a str) -> StoreFuture<'a, ()> {
        let stream = stream.to_owned();
        self.change(|store| async move { store.remove_stream(file, &stream).await })
    }

    fn open(&self, file: FileId, options: OpenOptions) -> StoreFuture<'_, Arc<dyn OpenFile>> {
        let on_drop = self.on_drop;
        self.change(move |store| async move {
            let file = store.open(file, options).await?;
            Ok(Arc::new(Layered(SlowFile { file, on_drop })) as Arc<dyn OpenFile>)
        })
    }

    fn clone_range(&self, source: (FileId, u64), target: (FileId, u64), len: u64) -> StoreFuture<'_, ()> {
        self.change(move |store| async move { store.clone_range(source, target, len).await })
    }

    fn state_write(&self, changes: Vec<StateChange>) -> StoreFuture<'_, ()> {
        self.change(|store| async move { store.state_write(changes).await })
    }
}

impl SlowFile {
    fn change<'a, T: 'a + 'static, F: Future<Output = Result<T, StoreError>> + 'static>(
        &self,
        work: impl FnOnce(Arc<dyn OpenFile>) -> F,
    ) -> StoreFuture<'a, T> {
        change(self.on_drop, work(Arc::clone(&self.file)))
    }
}

impl FileLayer for SlowFile {
    fn below(&self) -> &dyn OpenFile {
        &*self.file
    }

    fn answered<'a, T: 'a>(&'a self, answer: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        Box::pin(slowly(answer))
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> StoreFuture<'_, ()> {
        self.change(move |file| async move { file.write(offset, data, durability).await })
    }

    fn compare_and_write(
        &self,
        offset: u64,
        expected: SharedBuf,
        data: SharedBuf,
    ) -> StoreFuture<'_, Option<u64>> {
        self.change(move |file| async move { file.compare_and_write(offset, expected, data).await })
    }

    fn allocate(&self, offset: u64, len: u64, grow: bool) -> StoreFuture<'_, ()> {
        self.change(move |file| async move { file.allocate(offset, len, grow).await })
    }

    fn reserve(&self, offset: u64, len: u64) -> StoreFuture<'_, ()> {
        self.change(move |file| async move { file.reserve(offset, len).await })
    }

    fn punch_hole(&self, offset: u64, len: u64) -> StoreFuture<'_, ()> {
        self.change(move |file| async move { file.punch_hole(offset, len).await })
    }

    fn zero_range(&self, offset: u64, len: u64, durability: Durability) -> StoreFuture<'_, ()> {
        self.change(move |file| async move { file.zero_range(offset, len, durability).await })
    }

    fn set_size(&self, size: u64) -> StoreFuture<'_, ()> {
        self.change(move |file| async move { file.set_size(size).await })
    }
}
