//! Files as byte vectors: as much of a file store as the management API uses.

use std::collections::BTreeMap;
use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::Durability;
use file_store::names::fold;
use file_store::{
    Attributes, DirectoryCursor, DirectoryEntry, DirectoryPage, FileId, FileInfo, FileKind, FileStore,
    InfoChange, NewFile, OpenFile, OpenOptions, Range, StateChange, StateRow, StoreError, StoreErrorKind,
    StoreFuture, StoreUsage, StreamInfo, Times,
};
use parking_lot::Mutex;

const ROOT: FileId = FileId(1);

/// Largest file that is really held; LUNs of tests are larger but never written.
const MAX_HELD: u64 = 64 << 20;

#[derive(Default)]
pub(crate) struct MemoryStore(Arc<Mutex<Tree>>);

#[derive(Default)]
struct Tree {
    last: u64,
    names: BTreeMap<(FileId, String), DirectoryEntry>,
    files: BTreeMap<FileId, (FileId, u64, Vec<u8>)>,
    security: BTreeMap<FileId, Vec<u8>>,
    rows: BTreeMap<(String, Vec<u8>), Vec<u8>>,
    /// What each file is, and how many names it has.
    named: BTreeMap<FileId, (FileKind, u32)>,
    /// It does not say how much of it is in use.
    silent: bool,
}

impl MemoryStore {
    /// It does not say how much of it is in use, or does again.
    pub(super) fn silence(&self, silent: bool) {
        self.0.lock().silent = silent;
    }
}

impl Tree {
    fn put_name(&mut self, key: (FileId, String), entry: DirectoryEntry) {
        self.take_name(&key);
        self.named.entry(entry.file).or_insert((entry.kind, 0)).1 += 1;
        self.names.insert(key, entry);
    }

    fn take_name(&mut self, key: &(FileId, String)) -> Option<DirectoryEntry> {
        let entry = self.names.remove(key)?;
        match self.named.get_mut(&entry.file) {
            Some((_, names @ 2..)) => *names -= 1,
            _ => drop(self.named.remove(&entry.file)),
        }
        Some(entry)
    }
}

fn fail<T>(kind: StoreErrorKind, what: &str) -> Result<T, StoreError> {
    Err(StoreError::new(kind, what))
}

fn at_once<'a, T: 'a>(result: Result<T, StoreError>) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(result))
}

fn unused<'a, T: 'a>() -> StoreFuture<'a, T> {
    at_once(fail(StoreErrorKind::Io, "the memory store of these tests doesn't do this"))
}

impl FileStore for MemoryStore {
    fn root(&self) -> FileId {
        ROOT
    }

    fn lookup<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, DirectoryEntry> {
        let tree = self.0.lock();
        let found = tree.names.get(&(directory, fold(name))).cloned();
        at_once(found.ok_or_else(|| StoreError::new(StoreErrorKind::NotFound, format!("no {name}"))))
    }

    fn create<'a>(&'a self, directory: FileId, name: &'a str, new: NewFile) -> StoreFuture<'a, FileId> {
        let mut tree = self.0.lock();
        let key = (directory, fold(name));
        if tree.names.contains_key(&key) {
            return at_once(fail(StoreErrorKind::AlreadyExists, "name is taken"));
        }
        tree.last += 1;
        let file = FileId(tree.last + ROOT.0);
        tree.put_name(key, DirectoryEntry { name: name.into(), file, kind: new.kind });
        tree.files.insert(file, (directory, 0, Vec::new()));
        at_once(Ok(file))
    }

    fn remove<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, ()> {
        let mut tree = self.0.lock();
        let key = (directory, fold(name));
        let Some(file) = tree.names.get(&key).map(|entry| entry.file) else {
            return at_once(fail(StoreErrorKind::NotFound, "no such name"));
        };
        if tree.names.keys().any(|(parent, _)| *parent == file) {
            return at_once(fail(StoreErrorKind::NotEmpty, "directory is not empty"));
        }
        tree.take_name(&key);
        at_once(Ok(()))
    }

    fn link<'a>(&'a self, file: FileId, to: (FileId, &'a str), _: bool) -> StoreFuture<'a, ()> {
        let mut tree = self.0.lock();
        let Some(entry) = tree.names.values().find(|entry| entry.file == file).cloned() else {
            return at_once(fail(StoreErrorKind::NotFound, "no such file"));
        };
        tree.put_name((to.0, fold(to.1)), DirectoryEntry { name: to.1.into(), ..entry });
        at_once(Ok(()))
    }

    fn names(&self, _: FileId) -> StoreFuture<'_, Vec<(FileId, String)>> {
        unused()
    }

    fn rename_stream<'a>(&'a self, _: FileId, _: &'a str, _: &'a str, _: bool) -> StoreFuture<'a, ()> {
        unused()
    }

    fn rename<'a>(
        &'a self,
        from: (FileId, &'a str),
        to: (FileId, &'a str),
        replace: bool,
    ) -> StoreFuture<'a, ()> {
        let mut tree = self.0.lock();
        let target = (to.0, fold(to.1));
        if tree.names.contains_key(&target) && !replace {
            return at_once(fail(StoreErrorKind::AlreadyExists, "name is taken"));
        }
        let Some(mut entry) = tree.take_name(&(from.0, fold(from.1))) else {
            return at_once(fail(StoreErrorKind::NotFound, "no such name"));
        };
        entry.name = to.1.into();
        tree.put_name(target, entry);
        at_once(Ok(()))
    }

    fn read_directory(
        &self,
        directory: FileId,
        cursor: DirectoryCursor,
        limit: usize,
    ) -> StoreFuture<'_, DirectoryPage> {
        let tree = self.0.lock();
        let after = String::from_utf8_lossy(&cursor.0).into_owned();
        let own = tree.names.iter().filter(|((parent, name), _)| *parent == directory && *name > after);
        let entries: Vec<DirectoryEntry> = own.map(|(_, entry)| entry.clone()).take(limit).collect();
        let full = entries.len() == limit;
        let next = entries.last().filter(|_| full).map(|last| DirectoryCursor(fold(&last.name).into_bytes()));
        at_once(Ok(DirectoryPage { entries, next }))
    }

    fn info(&self, file: FileId) -> StoreFuture<'_, FileInfo> {
        let tree = self.0.lock();
        let (kind, names) = tree.named.get(&file).copied().unwrap_or((FileKind::Directory, 0));
        let (parent, size, held) = tree
            .files
            .get(&file)
            .map_or((ROOT, 0, 0), |(parent, size, bytes)| (*parent, *size, bytes.len() as u64));
        at_once(Ok(FileInfo {
            file,
            parent,
            kind,
            names,
            size,
            allocated: held,
            attributes: Attributes::default(),
            times: Times::default(),
        }))
    }

    fn set_info(&self, _: FileId, _: InfoChange) -> StoreFuture<'_, ()> {
        unused()
    }

    fn security(&self, file: FileId) -> StoreFuture<'_, Vec<u8>> {
        at_once(Ok(self.0.lock().security.get(&file).cloned().unwrap_or_default()))
    }

    fn set_security(&self, file: FileId, descriptor: Vec<u8>) -> StoreFuture<'_, ()> {
        self.0.lock().security.insert(file, descriptor);
        at_once(Ok(()))
    }

    fn streams(&self, _: FileId) -> StoreFuture<'_, Vec<StreamInfo>> {
        unused()
    }

    fn remove_stream<'a>(&'a self, _: FileId, _: &'a str) -> StoreFuture<'a, ()> {
        unused()
    }

    fn open(&self, file: FileId, _: OpenOptions) -> StoreFuture<'_, Arc<dyn OpenFile>> {
        let open: Arc<dyn OpenFile> = Arc::new(MemoryFile { file, tree: self.0.clone() });
        at_once(Ok(open))
    }

    fn clone_range(&self, source: (FileId, u64), target: (FileId, u64), len: u64) -> StoreFuture<'_, ()> {
        if source.1 != 0 || target.1 != 0 {
            return unused();
        }
        let mut tree = self.0.lock();
        let bytes = tree.files.get(&source.0).map(|(_, _, bytes)| bytes.clone()).unwrap_or_default();
        if let Some(file) = tree.files.get_mut(&target.0) {
            (file.1, file.2) = (len, bytes);
        }
        at_once(Ok(()))
    }

    fn usage(&self) -> StoreFuture<'_, StoreUsage> {
        if self.0.lock().silent {
            return Box::pin(std::future::pending());
        }
        at_once(Ok(StoreUsage::default()))
    }

    fn state_get<'a>(&'a self, table: &'a str, key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>> {
        let tree = self.0.lock();
        at_once(Ok(tree.rows.get(&(table.to_owned(), key.to_vec())).cloned()))
    }

    fn state_scan<'a>(&'a self, table: &'a str, prefix: &'a [u8]) -> StoreFuture<'a, Vec<StateRow>> {
        let tree = self.0.lock();
        let rows = tree.rows.iter().filter(|((of, key), _)| of == table && key.starts_with(prefix));
        at_once(Ok(rows
            .map(|((_, key), value)| StateRow { key: key.clone(), value: value.clone() })
            .collect()))
    }

    fn state_write(&self, changes: Vec<StateChange>) -> StoreFuture<'_, ()> {
        let mut tree = self.0.lock();
        for StateChange { table, key, value } in changes {
            match value {
                Some(value) => drop(tree.rows.insert((table, key), value)),
                None => drop(tree.rows.remove(&(table, key))),
            }
        }
        at_once(Ok(()))
    }
}

struct MemoryFile {
    file: FileId,
    tree: Arc<Mutex<Tree>>,
}

impl OpenFile for MemoryFile {
    fn file(&self) -> FileId {
        self.file
    }

    fn size(&self) -> u64 {
        self.tree.lock().files.get(&self.file).map_or(0, |file| file.1)
    }

    fn read(&self, offset: u64, mut buf: IoBuf) -> StoreFuture<'_, IoBuf> {
        let tree = self.tree.lock();
        let Some((_, size, bytes)) = tree.files.get(&self.file) else { return unused() };
        buf.truncate(size.saturating_sub(offset).min(buf.len() as u64) as usize);
        for (i, byte) in buf.iter_mut().enumerate() {
            *byte = bytes.get(offset as usize + i).copied().unwrap_or_default();
        }
        at_once(Ok(buf))
    }

    fn write(&self, offset: u64, data: SharedBuf, _: Durability) -> StoreFuture<'_, ()> {
        let end = offset + data.len() as u64;
        if end > MAX_HELD {
            return at_once(fail(StoreErrorKind::NoSpace, "more than the memory store of these tests holds"));
        }
        let mut tree = self.tree.lock();
        let Some((_, size, bytes)) = tree.files.get_mut(&self.file) else { return unused() };
        if bytes.len() < end as usize {
            bytes.resize(end as usize, 0);
        }
        bytes[offset as usize..end as usize].copy_from_slice(&data);
        *size = (*size).max(end);
        at_once(Ok(()))
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        at_once(Ok(()))
    }

    fn compare_and_write(&self, _: u64, _: SharedBuf, _: SharedBuf) -> StoreFuture<'_, Option<u64>> {
        unused()
    }

    fn allocate(&self, _: u64, _: u64, _: bool) -> StoreFuture<'_, ()> {
        at_once(Ok(()))
    }

    fn punch_hole(&self, _: u64, _: u64) -> StoreFuture<'_, ()> {
        unused()
    }

    fn zero_range(&self, _: u64, _: u64, _: Durability) -> StoreFuture<'_, ()> {
        unused()
    }

    fn set_size(&self, size: u64) -> StoreFuture<'_, ()> {
        let mut tree = self.tree.lock();
        if let Some(file) = tree.files.get_mut(&self.file) {
            file.1 = size;
            file.2.truncate(size.min(MAX_HELD) as usize);
        }
        at_once(Ok(()))
    }

    fn allocated_ranges(&self, _: u64, _: u64, _: usize) -> StoreFuture<'_, Vec<Range>> {
        unused()
    }

    fn wait_resize(&self, _: u64) -> StoreFuture<'_, u64> {
        Box::pin(std::future::pending())
    }
}
