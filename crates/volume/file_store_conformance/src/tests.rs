//! The suite passes on the store in memory, and fails on stores that break one sentence of the contract.

use std::sync::Arc;

use aligned_buffer::SharedBuf;
use block_device::Durability;
use file_store::{
    Difference, DirectoryCursor, DirectoryEntry, DirectoryPage, FileId, FileStore, InfoChange, MemoryStore,
    NewSnapshot, OpenFile, OpenOptions, Share, Snapshot, SnapshotId, SnapshotStore, SpaceUse, StateChange,
    StoreError, StoreErrorKind, StoreFuture,
};
use test_layers::{FileLayer, Layered, StoreLayer};

use crate::{CHECKS, Options, Outcome, Store, Subject, SubjectFuture, run_one};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    None,
    LooksInOneCase,
    RepeatsInPages,
    ReplacesDirectories,
    ForgetsLastByte,
    PunchesNothing,
    ClonesNothing,
    SharesEverything,
    ComparesNothing,
    WritesFirstRowOnly,
    KeepsTimes,
    GrowsShort,
    SnapshotsLive,
    ForgetsDifferences,
    RemovesAllNames,
    LinksCopies,
    KeepsStreamNames,
}

struct Flawed {
    flaw: Flaw,
    inner: Arc<MemoryStore>,
}

struct FlawedFile {
    flaw: Flaw,
    inner: Arc<dyn OpenFile>,
}

struct Made(Flaw);

impl Subject for Made {
    fn create(&self) -> SubjectFuture<'_, Store> {
        let store: Store =
            Arc::new(Layered(Flawed { flaw: self.0, inner: Arc::new(MemoryStore::new(40 << 20)) }));
        Box::pin(async { store })
    }

    fn unit(&self) -> u64 {
        MemoryStore::UNIT
    }
}

impl StoreLayer for Flawed {
    fn below(&self) -> &dyn FileStore {
        &*self.inner
    }
    fn lookup<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, DirectoryEntry> {
        Box::pin(async move {
            let found = self.inner.lookup(directory, name).await?;
            if self.flaw == Flaw::LooksInOneCase && found.name != name {
                return Err(StoreError::new(StoreErrorKind::NotFound, "another case"));
            }
            Ok(found)
        })
    }
    fn remove<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let found = self.inner.lookup(directory, name).await?;
            self.inner.remove(directory, name).await?;
            if self.flaw == Flaw::RemovesAllNames {
                for (directory, name) in self.inner.names(found.file).await.unwrap_or_default() {
                    let _ = self.inner.remove(directory, &name).await;
                }
            }
            Ok(())
        })
    }
    fn link<'a>(&'a self, file: FileId, to: (FileId, &'a str), replace: bool) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            match self.inner.snapshot_store() {
                Some(store) if self.flaw == Flaw::LinksCopies => {
                    store.clone_tree(file, to.0, to.1).await.map(drop)
                }
                _ => self.inner.link(file, to, replace).await,
            }
        })
    }
    fn rename_stream<'a>(
        &'a self,
        file: FileId,
        from: &'a str,
        to: &'a str,
        replace: bool,
    ) -> StoreFuture<'a, ()> {
        let to = if self.flaw == Flaw::KeepsStreamNames { from } else { to };
        self.inner.rename_stream(file, from, to, replace)
    }
    fn rename<'a>(
        &'a self,
        from: (FileId, &'a str),
        to: (FileId, &'a str),
        replace: bool,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            if self.flaw == Flaw::ReplacesDirectories && replace && from != to {
                let _ = self.inner.remove(to.0, to.1).await;
            }
            self.inner.rename(from, to, replace).await
        })
    }
    fn read_directory(
        &self,
        directory: FileId,
        cursor: DirectoryCursor,
        limit: usize,
    ) -> StoreFuture<'_, DirectoryPage> {
        Box::pin(async move {
            let first = self.inner.read_directory(directory, DirectoryCursor::default(), 1).await?;
            let begins = cursor == DirectoryCursor::default();
            let mut page = self.inner.read_directory(directory, cursor, limit).await?;
            if self.flaw == Flaw::RepeatsInPages && !begins && page.entries.len() < limit {
                page.entries.extend(first.entries);
            }
            Ok(page)
        })
    }
    fn set_info(&self, file: FileId, change: InfoChange) -> StoreFuture<'_, ()> {
        let kept = self.flaw == Flaw::KeepsTimes;
        let change = if kept { InfoChange { accessed: None, ..change } } else { change };
        self.inner.set_info(file, change)
    }
    fn open(&self, file: FileId, mut options: OpenOptions) -> StoreFuture<'_, Arc<dyn OpenFile>> {
        if self.flaw == Flaw::SharesEverything {
            options.share = Share::ALL;
        }
        Box::pin(async move {
            let inner = self.inner.open(file, options).await?;
            let file: Arc<dyn OpenFile> = Arc::new(Layered(FlawedFile { flaw: self.flaw, inner }));
            Ok(file)
        })
    }
    fn clone_range(&self, source: (FileId, u64), target: (FileId, u64), len: u64) -> StoreFuture<'_, ()> {
        let len = if self.flaw == Flaw::ClonesNothing { 0 } else { len };
        self.inner.clone_range(source, target, len)
    }
    fn snapshot_store(&self) -> Option<&dyn SnapshotStore> {
        Some(self)
    }
    fn state_write(&self, mut changes: Vec<StateChange>) -> StoreFuture<'_, ()> {
        if self.flaw == Flaw::WritesFirstRowOnly {
            changes.truncate(1);
        }
        self.inner.state_write(changes)
    }
}

impl SnapshotStore for Flawed {
    fn take_snapshot(&self, new: NewSnapshot) -> StoreFuture<'_, Snapshot> {
        Box::pin(async move {
            let taken = self.inner.take_snapshot(new).await?;
            let root = if self.flaw == Flaw::SnapshotsLive { taken.source } else { taken.root };
            Ok(Snapshot { root, ..taken })
        })
    }
    fn snapshots(&self) -> StoreFuture<'_, Vec<Snapshot>> {
        self.inner.snapshots()
    }
    fn delete_snapshot(&self, id: SnapshotId) -> StoreFuture<'_, ()> {
        self.inner.delete_snapshot(id)
    }
    fn clone_tree<'a>(&'a self, source: FileId, directory: FileId, name: &'a str) -> StoreFuture<'a, FileId> {
        self.inner.clone_tree(source, directory, name)
    }
    fn differences<'a>(
        &'a self,
        base: FileId,
        target: FileId,
        stream: &'a str,
        from: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Difference>> {
        Box::pin(async move {
            let mut found = self.inner.differences(base, target, stream, from, limit).await?;
            if self.flaw == Flaw::ForgetsDifferences {
                found.pop();
            }
            Ok(found)
        })
    }
    fn space(&self, root: FileId) -> StoreFuture<'_, SpaceUse> {
        self.inner.space(root)
    }
}

impl FileLayer for FlawedFile {
    fn below(&self) -> &dyn OpenFile {
        &*self.inner
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> StoreFuture<'_, ()> {
        let end = offset.wrapping_add(data.len() as u64);
        let short = self.flaw == Flaw::ForgetsLastByte && !data.is_empty() && end % 4096 == 1;
        let data = if short { data.slice(0..data.len() - 1) } else { data };
        self.inner.write(offset, data, durability)
    }
    fn compare_and_write(
        &self,
        offset: u64,
        expected: SharedBuf,
        data: SharedBuf,
    ) -> StoreFuture<'_, Option<u64>> {
        Box::pin(async move {
            let result = self.inner.compare_and_write(offset, expected, data.clone()).await;
            if self.flaw == Flaw::ComparesNothing && result.as_ref().is_ok_and(Option::is_some) {
                self.inner.write(offset, data, Durability::Durable).await?;
            }
            result
        })
    }
    fn punch_hole(&self, offset: u64, len: u64) -> StoreFuture<'_, ()> {
        if self.flaw == Flaw::PunchesNothing && len >= 4096 {
            return Box::pin(async { Ok(()) });
        }
        self.inner.punch_hole(offset, len)
    }
    fn set_size(&self, size: u64) -> StoreFuture<'_, ()> {
        let short = u64::from(self.flaw == Flaw::GrowsShort && size % 4096 == 1);
        self.inner.set_size(size - short)
    }
}

fn on_runtime<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().expect("runtime").block_on(future)
}

fn outcome(flaw: Flaw, check: &crate::Check, seed: u64) -> Outcome {
    on_runtime(run_one(&Made(flaw), check, Options::seeded(seed)))
}

#[test]
fn memory_store_conforms() {
    for seed in [1, 2] {
        for check in CHECKS {
            if let Err(failure) = outcome(Flaw::None, check, seed) {
                panic!("{failure}");
            }
        }
    }
}

#[test]
fn every_flaw_is_found() {
    for (flaw, name) in [
        (Flaw::LooksInOneCase, "names are found in any case"),
        (Flaw::RepeatsInPages, "listings resume"),
        (Flaw::ReplacesDirectories, "rename replaces files only"),
        (Flaw::ForgetsLastByte, "random operations"),
        (Flaw::PunchesNothing, "punched holes"),
        (Flaw::ClonesNothing, "clones of whole files"),
        (Flaw::SharesEverything, "sharing of opens"),
        (Flaw::ComparesNothing, "compare and write"),
        (Flaw::WritesFirstRowOnly, "durable state"),
        (Flaw::KeepsTimes, "times and attributes"),
        (Flaw::GrowsShort, "cutting and growing"),
        (Flaw::SnapshotsLive, "snapshots stay as they are"),
        (Flaw::ForgetsDifferences, "differences"),
        (Flaw::RemovesAllNames, "all names of a file are alike"),
        (Flaw::LinksCopies, "all names of a file are alike"),
        (Flaw::KeepsStreamNames, "new names of streams"),
    ] {
        let check = CHECKS.iter().find(|check| check.name == name).expect("there is such a check");
        let failure = outcome(flaw, check, 7).expect_err("the check finds the flaw");
        assert!(failure.to_string().contains(name), "{failure}");
    }
}

#[test]
fn random_operations_agree_for_many_seeds() {
    let check = CHECKS.last().expect("there are checks");
    for seed in 0..20 {
        let options = Options { seed, random_ops: 300 };
        if let Err(failure) = on_runtime(run_one(&Made(Flaw::None), check, options)) {
            panic!("{failure}");
        }
    }
}
