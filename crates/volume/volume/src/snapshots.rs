//! Snapshots: named, frozen copies of files and trees, and how they go.
//!
//! ```text
//!   take:    pause changes ─► flush the device ─► one transaction: copies of records and names, links, the name
//!   delete:  one transaction marks it ─► background: some hundred files at a time, then the record of the snapshot
//! ```
//! What is marked is not listed any more; a restart goes on where the deletion was. Files that somebody reads lose their
//! name and go with the last reader, as any removed file.

use std::sync::Arc;

use block_device::Durability;
use file_store::{
    Difference, FileId, FileKind, NewSnapshot, SNAPSHOTS_MAX, Snapshot, SnapshotId, SnapshotStore, SpaceUse,
    StoreError, StoreErrorKind, StoreFuture, names,
};
use redb::ReadableTable;
use shard_runtime::finish_anyway;
use volume_format::{Entry, SnapshotRecord};

use crate::core::Core;
use crate::database_error::database_error;
use crate::names::Goes;
use crate::namespace::DEPTH_MAX;
use crate::session::Session;
use crate::tables::{ORPHANS, SNAPSHOTS};
use crate::trees::Place;
use crate::volume::Volume;

/// Files of a deleted snapshot that are given up in one transaction.
const FILES_PER_ROUND: usize = 256;

fn invalid(detail: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::InvalidArgument, detail)
}

impl Session<'_> {
    pub(crate) fn snapshot_rows(&self) -> Result<Vec<(u64, SnapshotRecord)>, StoreError> {
        let table = self.txn.open_table(SNAPSHOTS).map_err(database_error)?;
        let rows = table.iter().map_err(database_error)?.map(|row| {
            let (id, value) = row.map_err(database_error)?;
            let record = SnapshotRecord::decode(value.value()).map_err(|error| {
                StoreError::new(
                    StoreErrorKind::Corrupt,
                    format!("the record of snapshot {} {error}", id.value()),
                )
            })?;
            Ok((id.value(), record))
        });
        rows.collect()
    }

    fn put_snapshot(&mut self, id: u64, record: &SnapshotRecord) -> Result<(), StoreError> {
        self.changed = true;
        let mut table = self.txn.open_table(SNAPSHOTS).map_err(database_error)?;
        table.insert(id, record.encode().as_slice()).map_err(database_error)?;
        Ok(())
    }

    fn take_snapshot(&mut self, core: &Core, new: &NewSnapshot, now: u64) -> Result<Snapshot, StoreError> {
        let inode = self.inode(new.source.0)?;
        if inode.frozen {
            let detail = format!("{} belongs to a snapshot: clone it, or use that snapshot", inode.name);
            return Err(invalid(detail));
        }
        let rows = self.snapshot_rows()?;
        let folded = names::fold(&new.name);
        if rows.iter().any(|(_, row)| !row.deleted && names::fold(&row.name) == folded) {
            let detail = format!("there is a snapshot {} already", new.name);
            return Err(StoreError::new(StoreErrorKind::AlreadyExists, detail));
        }
        if rows.len() >= SNAPSHOTS_MAX {
            return Err(invalid(format!("a volume has at most {SNAPSHOTS_MAX} snapshots; delete some")));
        }
        let root = self.copy_tree(core, new.source.0, &Place::Snapshot, now)?;
        let record = SnapshotRecord {
            root,
            source: new.source.0,
            created: now,
            quiesced: new.quiesce,
            deleted: false,
            name: new.name.clone(),
            maker: new.maker.clone(),
            path: new.path.clone(),
        };
        let id = self.new_number();
        let id = self.fatal(id)?;
        let stored = self.put_snapshot(id, &record);
        self.fatal(stored)?;
        Ok(snapshot(id, record, inode.directory))
    }

    /// Gives up some files of a deleted snapshot; whether there may be more to do.
    fn shrink_snapshot(&mut self, core: &Core, now: u64) -> Result<bool, StoreError> {
        let found = self.snapshot_rows()?.into_iter().find(|(_, record)| record.deleted);
        let Some((id, record)) = found else { return Ok(false) };
        let mut left = FILES_PER_ROUND;
        // The directories on the way down, and how the last was named in the one above.
        let mut path: Vec<(u64, Entry)> = Vec::new();
        while left > 0 {
            let at = path.last().map_or(record.root, |(_, entry)| entry.file);
            match self.first_entry(at)? {
                Some(_) if path.len() >= DEPTH_MAX => {
                    let detail = format!("the directories of snapshot {} lead in a circle", record.name);
                    return Err(StoreError::new(StoreErrorKind::Corrupt, detail));
                }
                Some(entry) if entry.directory => path.push((at, entry)),
                Some(entry) => {
                    self.drop_frozen(core, Some((at, &entry)), entry.file, now)?;
                    left -= 1;
                }
                None => match path.pop() {
                    Some((above, entry)) => {
                        self.drop_frozen(core, Some((above, &entry)), entry.file, now)?;
                        left -= 1;
                    }
                    None => {
                        self.drop_frozen(core, None, record.root, now)?;
                        let mut table = self.txn.open_table(SNAPSHOTS).map_err(database_error)?;
                        table.remove(id).map_err(database_error)?;
                        return Ok(true);
                    }
                },
            }
        }
        Ok(true)
    }

    fn first_entry(&self, directory: u64) -> Result<Option<Entry>, StoreError> {
        let table = self.txn.open_table(crate::tables::ENTRIES).map_err(database_error)?;
        let Some(row) = table.range((directory, "")..).map_err(database_error)?.next() else {
            return Ok(None);
        };
        let (key, value) = row.map_err(database_error)?;
        if key.value().0 != directory {
            return Ok(None);
        }
        Entry::decode(value.value()).map(Some).map_err(|error| {
            StoreError::new(StoreErrorKind::Corrupt, format!("an entry of a snapshot {error}"))
        })
    }

    /// Removes a file of a snapshot, from its directory if it has one.
    fn drop_frozen(
        &mut self,
        core: &Core,
        entry: Option<(u64, &Entry)>,
        file: u64,
        now: u64,
    ) -> Result<(), StoreError> {
        self.changed = true;
        if !self.has_inode(file)? {
            // Damage: the entry leads nowhere. Left there it would be found again for ever.
            return entry.map_or(Ok(()), |(directory, entry)| self.take_entry(directory, &entry.name));
        }
        let goes = self.begin_removal(core, file);
        match entry {
            Some((directory, entry)) => self.remove(directory, entry, goes, now)?,
            None => {
                {
                    let mut orphans = self.txn.open_table(ORPHANS).map_err(database_error)?;
                    orphans.insert(file, ()).map_err(database_error)?;
                }
                if goes == (Goes::File { used: false }) {
                    self.delete(file)?;
                }
            }
        }
        if goes != Goes::Name {
            core.registry.lock().forget_unsaved(file);
        }
        Ok(())
    }
}

fn snapshot(id: u64, record: SnapshotRecord, directory: bool) -> Snapshot {
    Snapshot {
        id: SnapshotId(id),
        name: record.name,
        source: FileId(record.source),
        root: FileId(record.root),
        kind: if directory { FileKind::Directory } else { FileKind::File },
        created: record.created,
        quiesced: record.quiesced,
        maker: record.maker,
        path: record.path,
    }
}

impl Core {
    /// Gives up some files of deleted snapshots; whether there may be more to do.
    pub(crate) async fn shrink_snapshots(self: &Arc<Self>) -> Result<bool, StoreError> {
        let (core, now) = (Arc::clone(self), self.clock.wall().0);
        let shrunk = self.metadata.change_as(Durability::Volatile, move |session| {
            let shrunk = session.shrink_snapshot(&core, now);
            // What cannot be read has changed nothing yet: the rest of the volume serves on.
            if session.changed { session.fatal(shrunk) } else { shrunk }
        });
        match shrunk.await {
            Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                tracing::warn!(
                    "a deleted snapshot is damaged, and its space is kept: {error}; check the volume"
                );
                Ok(false)
            }
            shrunk => shrunk,
        }
    }

    /// Runs a change while no data changes, and after everything volatile has become durable: what others are to read
    /// for ever must not be lost.
    async fn at_one_point<T: Send + 'static>(
        &self,
        flush_first: bool,
        change: impl FnOnce(&mut Session<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        if flush_first {
            self.device.flush().await?;
        }
        let _paused = self.pause.write().await;
        self.device.flush().await?;
        self.metadata.change_much(change).await
    }
}

impl Volume {
    async fn clone_to(&self, source: FileId, directory: FileId, name: String) -> Result<FileId, StoreError> {
        names::check(&name)?;
        let (core, now) = (Arc::clone(&self.core), self.core.clock.wall().0);
        let cloned = finish_anyway(async move {
            let _operation = core.begin()?;
            let inner = Arc::clone(&core);
            let cloned = core.at_one_point(true, move |session| {
                session.inode(source.0)?;
                session.directory_with_name(directory.0)?;
                if session.is_within(directory.0, source.0)? {
                    return Err(invalid("a directory cannot be cloned into itself"));
                }
                if session.find(directory.0, &name)?.is_some() {
                    let detail = format!("there is a {name} already");
                    return Err(StoreError::new(StoreErrorKind::AlreadyExists, detail));
                }
                session.copy_tree(&inner, source.0, &Place::Directory(directory.0, &name), now)
            });
            cloned.await
        });
        Ok(FileId(cloned.await?))
    }
}

impl SnapshotStore for Volume {
    fn take_snapshot(&self, new: NewSnapshot) -> StoreFuture<'_, Snapshot> {
        Box::pin(async move {
            names::check(&new.name)?;
            if new.maker.len().max(new.path.len()) > usize::from(u16::MAX) {
                return Err(invalid("the name of who takes a snapshot, or the path, is too long"));
            }
            let (core, now) = (Arc::clone(&self.core), self.core.clock.wall().0);
            let taken = finish_anyway(async move {
                let _operation = core.begin()?;
                let inner = Arc::clone(&core);
                let quiesce = new.quiesce;
                core.at_one_point(quiesce, move |session| session.take_snapshot(&inner, &new, now)).await
            });
            taken.await
        })
    }

    fn snapshots(&self) -> StoreFuture<'_, Vec<Snapshot>> {
        Box::pin(async move {
            let listed = self.core.metadata.look(|session| {
                let rows = session.snapshot_rows()?;
                let alive = rows.into_iter().filter(|(_, record)| !record.deleted);
                let listed = alive.map(|(id, record)| {
                    let directory = session.inode(record.root)?.directory;
                    Ok(snapshot(id, record, directory))
                });
                listed.collect::<Result<Vec<_>, StoreError>>()
            });
            listed.await
        })
    }

    fn delete_snapshot(&self, id: SnapshotId) -> StoreFuture<'_, ()> {
        let core = Arc::clone(&self.core);
        Box::pin(async move {
            let marked = self.core.metadata.change(move |session| {
                let found =
                    session.snapshot_rows()?.into_iter().find(|(of, row)| *of == id.0 && !row.deleted);
                let Some((id, record)) = found else {
                    let detail = format!("there is no snapshot {}", id.0);
                    return Err(StoreError::new(StoreErrorKind::NotFound, detail));
                };
                let stored = session.put_snapshot(id, &SnapshotRecord { deleted: true, ..record });
                session.fatal(stored)?;
                core.attention.notify_one();
                Ok(())
            });
            marked.await
        })
    }

    fn clone_tree<'a>(&'a self, source: FileId, directory: FileId, name: &'a str) -> StoreFuture<'a, FileId> {
        Box::pin(self.clone_to(source, directory, name.to_owned()))
    }

    fn differences<'a>(
        &'a self,
        base: FileId,
        target: FileId,
        stream: &'a str,
        from: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Difference>> {
        let (core, stream) = (Arc::clone(&self.core), stream.to_owned());
        Box::pin(async move {
            let looked = self
                .core
                .metadata
                .look(move |session| session.differences(&core, base.0, target.0, &stream, from, limit));
            looked.await
        })
    }

    fn identity(&self) -> [u8; 16] {
        self.guid()
    }

    fn space(&self, root: FileId) -> StoreFuture<'_, SpaceUse> {
        let core = Arc::clone(&self.core);
        Box::pin(async move { self.core.metadata.look(move |session| session.space_of(&core, root.0)).await })
    }
}
