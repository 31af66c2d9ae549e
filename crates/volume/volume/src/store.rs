//! The file store's verbs, on a volume.

use std::sync::Arc;

use block_device::Durability;
use file_store::{
    DirectoryCursor, DirectoryEntry, DirectoryPage, FileId, FileInfo, FileKind, FileStore, InfoChange,
    NewFile, OpenFile, OpenOptions, QuotaStore, SECURITY_MAX, STATE_KEY_MAX, STATE_VALUE_MAX, SnapshotStore,
    StateChange, StateRow, StoreError, StoreErrorKind, StoreFuture, StoreUsage, StreamInfo, names,
};
use redb::ReadableTable;
use shard_runtime::finish_anyway;
use volume_format::CLUSTER;

use crate::copy;
use crate::core::Core;
use crate::costs::bytes_of_name;
use crate::database_error::database_error;
use crate::jobs::Before;
use crate::names::Goes;
use crate::namespace::no_name;
use crate::open_file::Handle;
use crate::session::Session;
use crate::stopped::stopped;
use crate::tables::{ROOT, SECURITY, STATE};
use crate::volume::Volume;

fn invalid(detail: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::InvalidArgument, detail)
}

fn check_security(descriptor: &[u8]) -> Result<(), StoreError> {
    if descriptor.len() > SECURITY_MAX {
        return Err(invalid("a security descriptor has at most 64 KiB"));
    }
    Ok(())
}

impl Session<'_> {
    fn rename_in(
        &mut self,
        core: &Core,
        (from, from_name): (u64, &str),
        (to, to_name): (u64, &str),
        replace: bool,
        now: u64,
    ) -> Result<(), StoreError> {
        let entry = self.lookup(from, from_name)?;
        self.changeable(from)?;
        self.directory_with_name(to)?;
        self.inode(entry.file)?;
        self.check_moved(core, &entry)?;
        if entry.directory && self.is_within(to, entry.file)? {
            return Err(invalid(format!("{} cannot be moved into itself", entry.name)));
        }
        let same_name = from == to && names::fold(from_name) == names::fold(to_name);
        let old = self.find(to, to_name)?.filter(|_| !same_name);
        if let Some(old) = &old {
            if !replace || old.directory || entry.directory {
                let detail = format!("there is a {} already", old.name);
                return Err(StoreError::new(StoreErrorKind::AlreadyExists, detail));
            }
            core.registry.lock().check_delete(old.file)?;
        }
        let longer = bytes_of_name(to_name).saturating_sub(bytes_of_name(&entry.name));
        self.spend_to_make(longer)?;
        let replaced = old.map(|old| {
            // Another name of the same file goes alone.
            let same = old.file == entry.file;
            let goes = if same { Goes::Name } else { self.begin_removal(core, old.file) };
            (old, goes)
        });
        self.rename(from, &entry, (to, to_name), replaced, now)
    }
}

impl FileStore for Volume {
    fn root(&self) -> FileId {
        FileId(ROOT)
    }

    fn lookup<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, DirectoryEntry> {
        let name = name.to_owned();
        Box::pin(async move {
            let known = self.core.metadata.recent().and_then(|recent| recent.entry(directory.0, &name));
            let entry = match known {
                Some(entry) => entry.ok_or_else(|| no_name(&name))?,
                None => self.core.metadata.look(move |session| session.look_up(directory.0, &name)).await?,
            };
            let kind = if entry.directory { FileKind::Directory } else { FileKind::File };
            Ok(DirectoryEntry { name: entry.name, file: FileId(entry.file), kind })
        })
    }

    fn create<'a>(&'a self, directory: FileId, name: &'a str, new: NewFile) -> StoreFuture<'a, FileId> {
        let (name, now) = (name.to_owned(), self.core.clock.wall().0);
        Box::pin(async move {
            names::check(&name)?;
            check_security(&new.security)?;
            let made = self.change(move |session| session.create(directory.0, &name, &new, now));
            Ok(FileId(made.await?))
        })
    }

    fn remove<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, ()> {
        let (name, now) = (name.to_owned(), self.core.clock.wall().0);
        let core = Arc::clone(&self.core);
        Box::pin(async move {
            let removed = self.change(move |session| {
                let entry = session.lookup(directory.0, &name)?;
                session.changeable(directory.0)?;
                core.registry.lock().check_delete(entry.file)?;
                session.check_removal(&entry)?;
                let goes = session.begin_removal(&core, entry.file);
                let removed = session.remove(directory.0, &entry, goes, now);
                session.fatal(removed)?;
                if goes != Goes::Name {
                    core.registry.lock().forget_unsaved(entry.file);
                }
                core.attention.notify_one();
                Ok(())
            });
            removed.await
        })
    }

    fn link<'a>(&'a self, file: FileId, to: (FileId, &'a str), replace: bool) -> StoreFuture<'a, ()> {
        let (core, directory, name) = (Arc::clone(&self.core), to.0.0, to.1.to_owned());
        Box::pin(async move {
            names::check(&name)?;
            if core.is_stopped() {
                return Err(stopped());
            }
            finish_anyway(core.link(file.0, (directory, name), replace, self.durability)).await
        })
    }

    fn names(&self, file: FileId) -> StoreFuture<'_, Vec<(FileId, String)>> {
        Box::pin(async move { self.core.metadata.look(move |session| session.names(file.0)).await })
    }

    fn rename<'a>(
        &'a self,
        from: (FileId, &'a str),
        to: (FileId, &'a str),
        replace: bool,
    ) -> StoreFuture<'a, ()> {
        let (from, from_name, to, to_name) = (from.0.0, from.1.to_owned(), to.0.0, to.1.to_owned());
        let now = self.core.clock.wall().0;
        let core = Arc::clone(&self.core);
        Box::pin(async move {
            names::check(&to_name)?;
            let renamed = self.change(move |session| {
                session.rename_in(&core, (from, &from_name), (to, &to_name), replace, now)?;
                core.attention.notify_one();
                Ok(())
            });
            renamed.await
        })
    }

    fn read_directory(
        &self,
        directory: FileId,
        cursor: DirectoryCursor,
        limit: usize,
    ) -> StoreFuture<'_, DirectoryPage> {
        Box::pin(async move {
            let page =
                self.core.metadata.look(move |session| session.read_directory(directory.0, &cursor, limit));
            page.await
        })
    }

    fn info(&self, file: FileId) -> StoreFuture<'_, FileInfo> {
        let core = Arc::clone(&self.core);
        Box::pin(async move {
            if let Some(info) = self.core.recent_info(file.0) {
                return Ok(info);
            }
            let info = self.core.metadata.look(move |session| {
                let known = core.known((file.0, 0));
                let mut info = session.info(file.0)?;
                // Counting what a large file takes is long, and a stream in memory knows it.
                let measured = known.as_ref().is_none_or(|known| known.clusters.is_none());
                if measured {
                    info.allocated = session.allocated((file.0, 0))?;
                }
                session.found.add_info(info.clone(), measured);
                if let Some(known) = known {
                    known.correct(&mut info);
                }
                Ok(info)
            });
            info.await
        })
    }

    fn set_info(&self, file: FileId, change: InfoChange) -> StoreFuture<'_, ()> {
        let (core, now) = (Arc::clone(&self.core), self.core.clock.wall().0);
        Box::pin(async move {
            let set = self.change(move |session| {
                let mut change = change;
                if change.changed.is_some() && change.written.is_none() {
                    // What only memory knows of the last write is kept before it is forgotten.
                    let known = core.known((file.0, 0)).filter(|known| known.written > 0);
                    change.written = known.map(|known| known.written);
                }
                session.set_info_of_kept(&core, file.0, change, now)?;
                if change.written.is_some() || change.changed.is_some() {
                    core.forget_written(file.0);
                }
                Ok(())
            });
            set.await
        })
    }

    fn security(&self, file: FileId) -> StoreFuture<'_, Vec<u8>> {
        Box::pin(async move {
            let known = self.core.metadata.recent().and_then(|recent| recent.security(file.0));
            if let Some(descriptor) = known {
                return Ok(descriptor.to_vec());
            }
            let read = self.core.metadata.look(move |session| {
                session.inode(file.0)?;
                let table = session.txn.open_table(SECURITY).map_err(database_error)?;
                let row = table.get(file.0).map_err(database_error)?;
                let descriptor = row.map(|row| row.value().to_vec()).unwrap_or_default();
                session.found.add_security(file.0, &descriptor);
                Ok(descriptor)
            });
            read.await
        })
    }

    fn set_security(&self, file: FileId, descriptor: Vec<u8>) -> StoreFuture<'_, ()> {
        let now = self.core.clock.wall().0;
        Box::pin(async move {
            check_security(&descriptor)?;
            let stored = self.change(move |session| {
                session.changeable(file.0)?;
                let old = session.security_len(file.0)?;
                session.spend_to_make((descriptor.len() as u64).saturating_sub(old))?;
                session.change_security(file.0, &descriptor, now)
            });
            stored.await
        })
    }

    fn streams(&self, file: FileId) -> StoreFuture<'_, Vec<StreamInfo>> {
        let core = Arc::clone(&self.core);
        Box::pin(async move {
            let streams = self.core.metadata.look(move |session| {
                let mut all = Vec::new();
                for record in session.inode(file.0)?.streams {
                    let key = (file.0, record.id);
                    let known = core.known(key);
                    let size = known.as_ref().map_or(record.size, |known| known.size);
                    let allocated = match known.and_then(|known| known.clusters) {
                        Some(clusters) => clusters * CLUSTER,
                        None => session.allocated(key)?,
                    };
                    all.push(StreamInfo { name: record.name, size, allocated });
                }
                Ok(all)
            });
            streams.await
        })
    }

    fn rename_stream<'a>(
        &'a self,
        file: FileId,
        from: &'a str,
        to: &'a str,
        replace: bool,
    ) -> StoreFuture<'a, ()> {
        let (from, to, now) = (from.to_owned(), to.to_owned(), self.core.clock.wall().0);
        let core = Arc::clone(&self.core);
        Box::pin(async move {
            let renamed =
                self.change(move |session| session.rename_stream(&core, file.0, (&from, &to), replace, now));
            renamed.await
        })
    }

    fn remove_stream<'a>(&'a self, file: FileId, stream: &'a str) -> StoreFuture<'a, ()> {
        let (name, now) = (stream.to_owned(), self.core.clock.wall().0);
        let core = Arc::clone(&self.core);
        Box::pin(async move {
            let removed = self.change(move |session| {
                let mut inode = session.changeable(file.0)?;
                let same = |name: &str, other: &str| names::fold(name) == names::fold(other);
                let at = inode.streams.iter().position(|s| s.id != 0 && same(&s.name, &name));
                let at = at.ok_or_else(|| {
                    StoreError::new(StoreErrorKind::NotFound, format!("there is no stream {name}"))
                })?;
                let key = (file.0, inode.streams[at].id);
                if core.registry.lock().stream(key).is_some() {
                    let detail = format!("stream {name} is open");
                    return Err(StoreError::new(StoreErrorKind::SharingViolation, detail));
                }
                inode.streams.remove(at);
                inode.times[3] = now;
                let changed =
                    session.unmap(key, 0, u64::MAX).and_then(|()| session.put_inode(file.0, &inode));
                session.fatal(changed)?;
                core.attention.notify_one();
                Ok(())
            });
            removed.await
        })
    }

    fn open(&self, file: FileId, options: OpenOptions) -> StoreFuture<'_, Arc<dyn OpenFile>> {
        let (core, now, durability) = (Arc::clone(&self.core), self.core.clock.wall().0, self.durability);
        Box::pin(async move {
            let before = Before::of(options.create_stream && !options.stream.is_empty());
            let opening = move |session: &mut Session<'_>| {
                let OpenOptions { stream: name, create_stream, access, share } = options;
                let found = session.find_stream(file.0, &name)?;
                if access.write || access.delete {
                    session.changeable(file.0)?;
                }
                if session.is_orphan(file.0)? {
                    return Err(StoreError::new(StoreErrorKind::NotFound, "the file was removed"));
                }
                let record = match found {
                    Some(record) => {
                        core.registry.lock().check((file.0, record.id), access, share)?;
                        record
                    }
                    None if create_stream && !name.is_empty() => session.create_stream(file.0, &name, now)?,
                    None => return Err(Session::no_stream(&name)),
                };
                let pin = session.pin(&core, file.0, &record)?;
                let id = core.registry.lock().add_open((file.0, record.id), access, share);
                Ok(Handle::new(pin, (access, share), id, durability))
            };
            Ok(Arc::new(self.core.metadata.ask(opening, before, durability).await?.settled().await)
                as Arc<dyn OpenFile>)
        })
    }

    fn clone_range(&self, source: (FileId, u64), target: (FileId, u64), len: u64) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            copy::check_ranges(source, target, len)?;
            let from = self.pin(source.0, "").await?;
            let to = self.pin(target.0, "").await?;
            self.core.metadata.look(move |session| session.changeable(target.0.0)).await?;
            let core = Arc::clone(&self.core);
            let cloned = finish_anyway(async move {
                let _operation = core.begin()?;
                let _changing = core.pause.read().await;
                copy::clone_range(&core, from.stream(), source.1, to.stream(), target.1, len).await
            });
            cloned.await
        })
    }

    fn volatile(&self) -> Option<Arc<dyn FileStore>> {
        Some(Arc::new(Self { core: Arc::clone(&self.core), durability: Durability::Volatile }))
    }

    fn sync(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.core.metadata.settle(self.core.metadata.last_change()).await })
    }

    fn snapshot_store(&self) -> Option<&dyn SnapshotStore> {
        Some(self)
    }

    fn quota_store(&self) -> Option<&dyn QuotaStore> {
        Some(self)
    }

    fn usage(&self) -> StoreFuture<'_, StoreUsage> {
        Box::pin(async move {
            let asked = self
                .core
                .metadata
                .look(|session| Ok((session.available(), session.space.referenced, session.space.clusters)));
            let (free, referenced, clusters) = asked.await?;
            Ok(StoreUsage {
                capacity: clusters * CLUSTER,
                used: (clusters - free) * CLUSTER,
                reserved: 0,
                metadata: self.core.superblock.data_start,
                // More than there is: each user of a cluster counts.
                referenced: referenced.saturating_mul(CLUSTER),
            })
        })
    }

    fn state_get<'a>(&'a self, table: &'a str, key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>> {
        let (table, key) = (table.to_owned(), key.to_vec());
        Box::pin(async move {
            let read = self.core.metadata.look(move |session| {
                let rows = session.txn.open_table(STATE).map_err(database_error)?;
                let row = rows.get((table.as_str(), key.as_slice())).map_err(database_error)?;
                Ok(row.map(|row| row.value().to_vec()))
            });
            read.await
        })
    }

    fn state_scan<'a>(&'a self, table: &'a str, prefix: &'a [u8]) -> StoreFuture<'a, Vec<StateRow>> {
        let (table, prefix) = (table.to_owned(), prefix.to_vec());
        Box::pin(async move {
            let read = self.core.metadata.look(move |session| {
                let rows = session.txn.open_table(STATE).map_err(database_error)?;
                let mut found = Vec::new();
                for row in rows.range((table.as_str(), prefix.as_slice())..).map_err(database_error)? {
                    let (key, value) = row.map_err(database_error)?;
                    let (of, key) = key.value();
                    if of != table || !key.starts_with(&prefix) {
                        break;
                    }
                    found.push(StateRow { key: key.to_vec(), value: value.value().to_vec() });
                }
                Ok(found)
            });
            read.await
        })
    }

    fn state_write(&self, changes: Vec<StateChange>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let too_long = |change: &StateChange| {
                change.table.len() + change.key.len() > STATE_KEY_MAX
                    || change.value.as_ref().is_some_and(|value| value.len() > STATE_VALUE_MAX)
            };
            if changes.iter().any(too_long) {
                return Err(invalid("a row of durable state is too long"));
            }
            let stored = self.change(move |session| session.write_state(&changes));
            stored.await
        })
    }
}
