//! Making, opening and closing volumes; the file store's verbs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aligned_buffer::IoBuf;
use block_device::{Device, Durability};
use file_store::{
    DirectoryCursor, DirectoryEntry, DirectoryPage, FileId, FileInfo, FileKind, FileStore, InfoChange,
    NewFile, OpenFile, OpenOptions, StateChange, StateRow, StoreError, StoreErrorKind, StoreFuture,
    StoreUsage, StreamInfo,
};
use parking_lot::Mutex;
use redb::{Database, ReadableTable};
use shard_runtime::{Clock, Entropy, finish_anyway, spawn_local};
use tokio::sync::Notify;
use volume_format::{BLOCK, CLUSTER, Inode, Superblock, layout_for};

use crate::copy;
use crate::core::Core;
use crate::database::{Metadata, database_error, make_tables};
use crate::free::Free;
use crate::gate::ReadGate;
use crate::load;
use crate::namespace::{check_name, fold};
use crate::open_file::{Handle, Opens};
use crate::stream::Stream;
use crate::tables::{COUNTERS, EXTENTS, INODES, NEXT_FILE, ROOT, STATE};

/// Longest security descriptor, in bytes (as on NTFS).
const SECURITY_MAX: usize = 64 << 10;

/// What volumes need from their surroundings.
#[derive(Clone)]
pub struct Environment {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness for identities.
    pub entropy: Arc<dyn Entropy>,
}

/// How to make a volume.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// Its name, for messages.
    pub name: String,
}

/// An open volume. Its background task lives on the shard that opened it; it serves all shards.
pub struct Volume {
    pub(crate) core: Arc<Core>,
}

fn damaged(detail: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, detail)
}

/// The superblock of a volume: the first sound copy.
pub(crate) async fn read_superblock(device: &Device) -> Result<Superblock, StoreError> {
    let mut why = String::new();
    for offset in Superblock::OFFSETS {
        let block = device.read(offset, IoBuf::new(BLOCK as usize)).await?;
        match Superblock::decode(&block) {
            Ok(superblock) if superblock.size <= device.size() => return Ok(superblock),
            Ok(_) => why = "is from a larger device".into(),
            Err(error) => why = error.to_string(),
        }
    }
    Err(damaged(format!("there is no volume here: the superblock {why}")))
}

impl Volume {
    /// Makes an empty volume on a device, destroying what was there. Call on a shard.
    ///
    /// # Errors
    /// When the device is too small or fails.
    pub async fn format(
        device: Device,
        options: FormatOptions,
        environment: Environment,
    ) -> Result<(), StoreError> {
        let size = device.size() / BLOCK * BLOCK;
        let Some(mut superblock) = layout_for(size) else {
            let detail = format!("a volume does not fit in {size} bytes");
            return Err(StoreError::new(StoreErrorKind::NoSpace, detail));
        };
        superblock.guid = environment.entropy.next_id();
        superblock.name = options.name;
        // Free clusters must be zero, and the database's area must not hold an older one.
        device.unmap(0, size).await?;
        device.flush().await?;
        let now = environment.clock.wall().0;
        let prepare = move |database: &Database| {
            let txn = database.begin_write().map_err(database_error)?;
            make_tables(&txn)?;
            let root =
                Inode { directory: true, parent: ROOT, times: [now; 4], next_stream: 1, ..Inode::default() };
            txn.open_table(INODES)
                .map_err(database_error)?
                .insert(ROOT, root.encode().as_slice())
                .map_err(database_error)?;
            txn.open_table(COUNTERS)
                .map_err(database_error)?
                .insert(NEXT_FILE, ROOT + 1)
                .map_err(database_error)?;
            txn.commit().map_err(database_error)?;
            Ok((Free::default(), ()))
        };
        let (metadata, ()) = Metadata::open(Arc::clone(&device), superblock.clone(), prepare).await?;
        metadata.close().await;
        // The superblock comes last: whoever finds it finds a whole volume.
        let block = IoBuf::copy_from(&superblock.encode()).freeze();
        for offset in Superblock::OFFSETS {
            device.write(offset, block.clone(), Durability::Durable).await?;
        }
        Ok(())
    }

    /// Opens a volume, going on after a crash where that is needed. Call on a shard.
    ///
    /// # Errors
    /// When there is no volume, or its structures are damaged.
    pub async fn open(device: Device, environment: Environment) -> Result<Arc<Self>, StoreError> {
        let superblock = crate::integrity::openable(&device).await?;
        let clusters = superblock.clusters(device.size());
        let prepare = move |database: &Database| load::free_clusters(database, clusters);
        let (metadata, orphans) = Metadata::open(Arc::clone(&device), superblock.clone(), prepare).await?;
        let core = Arc::new(Core {
            device,
            superblock,
            metadata,
            clock: environment.clock,
            gate: ReadGate::default(),
            streams: Mutex::new(BTreeMap::new()),
            opens: Mutex::new(Opens::default()),
            to_delete: Mutex::new(orphans),
            filling: Arc::default(),
            attention: Notify::new(),
            closing: AtomicBool::new(false),
            ended: Notify::new(),
            clusters: AtomicU64::new(clusters),
        });
        spawn_local(Arc::clone(&core).run());
        spawn_local(load::watch_size(Arc::downgrade(&core)));
        Ok(Arc::new(Self { core }))
    }

    /// The volume's identity.
    #[must_use]
    pub fn guid(&self) -> [u8; 16] {
        self.core.superblock.guid
    }

    /// Ends the background work and closes the database. Opens should be closed; what they write afterwards
    /// fails.
    ///
    /// # Errors
    /// When the device cannot be flushed.
    pub async fn close(&self) -> Result<(), StoreError> {
        let streams: Vec<Arc<Stream>> = self.core.streams.lock().values().cloned().collect();
        for stream in streams {
            stream.flush(Arc::clone(&self.core)).await?;
        }
        let ended = self.core.ended.notified();
        self.core.closing.store(true, Ordering::Release);
        self.core.attention.notify_one();
        shard_runtime::timeout(std::time::Duration::from_secs(30), ended).await;
        self.core.metadata.close().await;
        self.core.device.flush().await?;
        Ok(())
    }

    /// The file at a path like `/luns/web1`; `/` is the root.
    ///
    /// # Errors
    /// When a part of it is not there.
    pub async fn resolve(&self, path: &str) -> Result<FileId, StoreError> {
        let mut at = self.root();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = self.lookup(at, name).await?.file;
        }
        Ok(at)
    }

    async fn stream(&self, file: FileId, name: &str, create: bool) -> Result<Arc<Stream>, StoreError> {
        let name = name.to_owned();
        let loaded = self.core.metadata.change(move |session| {
            let record = session.open_stream(file.0, &name, create)?;
            let extents = session.extents((file.0, record.id))?;
            Ok((record, extents))
        });
        let (record, extents) = loaded.await?;
        let key = (file.0, record.id);
        let mut streams = self.core.streams.lock();
        // An open one knows more than the database: mapped ahead, or grown.
        let stream = streams.entry(key).or_insert_with(|| Arc::new(Stream::new(key, record.size, extents)));
        Ok(Arc::clone(stream))
    }
}

impl Core {
    pub(crate) async fn delete_file(&self, file: FileId) -> Result<(), StoreError> {
        if self.opens.lock().is_open(file.0) {
            return Ok(());
        }
        self.streams.lock().retain(|(of, _), _| *of != file.0);
        let deleted = self.metadata.change(move |session| {
            let deleted = session.delete(file.0);
            session.fatal(deleted)
        });
        deleted.await?;
        self.attention.notify_one();
        Ok(())
    }
}

impl FileStore for Volume {
    fn root(&self) -> FileId {
        FileId(ROOT)
    }

    fn lookup<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, DirectoryEntry> {
        let name = name.to_owned();
        Box::pin(async move {
            let entry = self.core.metadata.change(move |session| session.lookup(directory.0, &name)).await?;
            let kind = if entry.directory { FileKind::Directory } else { FileKind::File };
            Ok(DirectoryEntry { name: entry.name, file: FileId(entry.file), kind })
        })
    }

    fn create<'a>(&'a self, directory: FileId, name: &'a str, new: NewFile) -> StoreFuture<'a, FileId> {
        let (name, now) = (name.to_owned(), self.core.clock.wall().0);
        Box::pin(async move {
            if new.security.len() > SECURITY_MAX {
                return Err(StoreError::new(
                    StoreErrorKind::InvalidArgument,
                    "a security descriptor has at most 64 KiB",
                ));
            }
            let made =
                self.core.metadata.change(move |session| session.create(directory.0, &name, &new, now));
            Ok(FileId(made.await?))
        })
    }

    fn remove<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, ()> {
        let (name, now) = (name.to_owned(), self.core.clock.wall().0);
        let core = Arc::clone(&self.core);
        Box::pin(finish_anyway(async move {
            let asked = Arc::clone(&core);
            let removed = core.metadata.change(move |session| {
                let entry = session.lookup(directory.0, &name)?;
                let open = asked.opens.lock().check_delete(entry.file)?;
                session.remove(directory.0, &entry, true, now)?;
                if open {
                    asked.opens.lock().mark_orphan(entry.file);
                }
                Ok((entry.file, open))
            });
            let (file, open) = removed.await?;
            if !open {
                core.delete_file(FileId(file)).await?;
            }
            Ok(())
        }))
    }

    fn rename<'a>(
        &'a self,
        from: (FileId, &'a str),
        to: (FileId, &'a str),
        replace: bool,
    ) -> StoreFuture<'a, ()> {
        let (from, from_name, to, to_name) = (from.0, from.1.to_owned(), to.0, to.1.to_owned());
        let now = self.core.clock.wall().0;
        let core = Arc::clone(&self.core);
        Box::pin(finish_anyway(async move {
            check_name(&to_name)?;
            let asked = Arc::clone(&core);
            let renamed = core.metadata.change(move |session| {
                let entry = session.lookup(from.0, &from_name)?;
                session.directory(to.0)?;
                asked.opens.lock().check_delete(entry.file)?;
                if entry.directory && session.is_within(to.0, entry.file)? {
                    return Err(StoreError::new(
                        StoreErrorKind::InvalidArgument,
                        format!("{} cannot be moved into itself", entry.name),
                    ));
                }
                let old = session.find(to.0, &to_name)?.filter(|old| old.file != entry.file);
                let mut replaced = None;
                if let Some(old) = old {
                    if !replace || old.directory || entry.directory {
                        let detail = format!("there is a {} already", old.name);
                        return Err(StoreError::new(StoreErrorKind::AlreadyExists, detail));
                    }
                    let open = asked.opens.lock().check_delete(old.file)?;
                    replaced = Some((old, open));
                }
                let gone = replaced.as_ref().map(|(old, open)| (old.file, *open));
                session.rename(
                    (from.0, &from_name),
                    (to.0, &to_name),
                    replaced.map(|(old, _)| (old, true)),
                    now,
                )?;
                if let Some((file, true)) = gone {
                    asked.opens.lock().mark_orphan(file);
                }
                Ok(gone)
            });
            if let Some((file, false)) = renamed.await? {
                core.delete_file(FileId(file)).await?;
            }
            Ok(())
        }))
    }

    fn read_directory(
        &self,
        directory: FileId,
        cursor: DirectoryCursor,
        limit: usize,
    ) -> StoreFuture<'_, DirectoryPage> {
        Box::pin(async move {
            self.core
                .metadata
                .change(move |session| session.read_directory(directory.0, &cursor, limit))
                .await
        })
    }

    fn info(&self, file: FileId) -> StoreFuture<'_, FileInfo> {
        Box::pin(async move {
            let mut info = self.core.metadata.change(move |session| session.info(file.0)).await?;
            if let Some(stream) = self.core.streams.lock().get(&(file.0, 0)) {
                info.size = stream.size();
                info.allocated = stream.map.read().clusters() * CLUSTER;
            }
            Ok(info)
        })
    }

    fn set_info(&self, file: FileId, change: InfoChange) -> StoreFuture<'_, ()> {
        let now = self.core.clock.wall().0;
        Box::pin(async move {
            self.core.metadata.change(move |session| session.set_info(file.0, change, now)).await
        })
    }

    fn security(&self, file: FileId) -> StoreFuture<'_, Vec<u8>> {
        Box::pin(async move {
            let read = self.core.metadata.change(move |session| {
                session.inode(file.0)?;
                let table = session.txn.open_table(crate::tables::SECURITY).map_err(database_error)?;
                let row = table.get(file.0).map_err(database_error)?;
                Ok(row.map(|row| row.value().to_vec()).unwrap_or_default())
            });
            read.await
        })
    }

    fn set_security(&self, file: FileId, descriptor: Vec<u8>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            if descriptor.len() > SECURITY_MAX {
                return Err(StoreError::new(
                    StoreErrorKind::InvalidArgument,
                    "a security descriptor has at most 64 KiB",
                ));
            }
            let stored = self.core.metadata.change(move |session| {
                session.inode(file.0)?;
                let stored = session.put_security(file.0, &descriptor);
                session.fatal(stored)
            });
            stored.await
        })
    }

    fn streams(&self, file: FileId) -> StoreFuture<'_, Vec<StreamInfo>> {
        Box::pin(async move { self.core.metadata.change(move |session| session.streams(file.0)).await })
    }

    fn remove_stream<'a>(&'a self, file: FileId, stream: &'a str) -> StoreFuture<'a, ()> {
        let name = stream.to_owned();
        let core = Arc::clone(&self.core);
        Box::pin(finish_anyway(async move {
            let asked = Arc::clone(&core);
            let removed = core.metadata.change(move |session| {
                let mut inode = session.inode(file.0)?;
                let at = inode.streams.iter().position(|s| s.id != 0 && fold(&s.name) == fold(&name));
                let at = at.ok_or_else(|| {
                    StoreError::new(StoreErrorKind::NotFound, format!("there is no stream {name}"))
                })?;
                if asked.streams.lock().contains_key(&(file.0, inode.streams[at].id)) {
                    return Err(StoreError::new(
                        StoreErrorKind::SharingViolation,
                        format!("stream {name} is open"),
                    ));
                }
                let record = inode.streams.remove(at);
                let changed = session
                    .unmap((file.0, record.id), 0, u64::MAX / CLUSTER)
                    .and_then(|()| session.put_inode(file.0, &inode));
                session.fatal(changed)
            });
            removed.await?;
            core.attention.notify_one();
            Ok(())
        }))
    }

    fn open(&self, file: FileId, options: OpenOptions) -> StoreFuture<'_, Arc<dyn OpenFile>> {
        Box::pin(async move {
            let stream = self.stream(file, &options.stream, options.create_stream).await?;
            let mut opens = self.core.opens.lock();
            opens.check(stream.key, options.access, options.share)?;
            let id = opens.add(stream.key, options.access, options.share);
            // Between loading and here another open may have closed and let go of the stream.
            let stream = Arc::clone(self.core.streams.lock().entry(stream.key).or_insert(stream));
            drop(opens);
            let handle = Handle { core: Arc::clone(&self.core), stream, access: options.access, id };
            let handle: Arc<dyn OpenFile> = Arc::new(handle);
            Ok(handle)
        })
    }

    fn clone_range(&self, source: (FileId, u64), target: (FileId, u64), len: u64) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let from = self.stream(source.0, "", false).await?;
            let to = self.stream(target.0, "", false).await?;
            finish_anyway(copy::clone_range(Arc::clone(&self.core), from, source.1, to, target.1, len)).await
        })
    }

    fn usage(&self) -> StoreFuture<'_, StoreUsage> {
        Box::pin(async move {
            let clusters = self.core.clusters.load(Ordering::Acquire);
            let (free, referenced) = self
                .core
                .metadata
                .change(|session| {
                    let table = session.txn.open_table(EXTENTS).map_err(database_error)?;
                    let mut referenced = 0;
                    for row in table.iter().map_err(database_error)? {
                        referenced += row.map_err(database_error)?.1.value().1;
                    }
                    Ok((session.free.total(), referenced))
                })
                .await?;
            Ok(StoreUsage {
                capacity: clusters * CLUSTER,
                used: (clusters - free) * CLUSTER,
                reserved: 0,
                metadata: self.core.superblock.data_start,
                referenced: referenced * CLUSTER,
            })
        })
    }

    fn state_get<'a>(&'a self, table: &'a str, key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>> {
        let (table, key) = (table.to_owned(), key.to_vec());
        Box::pin(async move {
            let read = self.core.metadata.change(move |session| {
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
            let read = self.core.metadata.change(move |session| {
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
            let stored = self.core.metadata.change(move |session| {
                session.changed = true;
                let stored = (|| {
                    let mut rows = session.txn.open_table(STATE).map_err(database_error)?;
                    for change in &changes {
                        let key = (change.table.as_str(), change.key.as_slice());
                        match &change.value {
                            Some(value) => drop(rows.insert(key, value.as_slice()).map_err(database_error)?),
                            None => drop(rows.remove(key).map_err(database_error)?),
                        }
                    }
                    Ok(())
                })();
                session.fatal(stored)
            });
            stored.await
        })
    }
}
