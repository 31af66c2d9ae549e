//! Everything a store in memory holds, and its verbs as plain functions.

use std::collections::BTreeMap;
use std::task::Waker;

use super::content::Content;
use crate::names::{check, fold};
use crate::{
    Access, Attributes, DirectoryCursor, DirectoryEntry, DirectoryPage, FILE_SIZE_MAX, FileId, FileInfo,
    FileKind, InfoChange, NewFile, OpenOptions, SECURITY_MAX, STATE_KEY_MAX, STATE_VALUE_MAX, STREAMS_MAX,
    Share, Snapshot, StateChange, StoreError, StoreErrorKind, StreamInfo, Times,
};

pub(super) const ROOT: FileId = FileId(1);

/// A stream: its file, and its name folded.
pub(super) type StreamId = (FileId, String);

/// What is known of a file.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) kind: FileKind,
    /// The directory of its first name, also once it is removed; of a root, itself.
    pub(super) parent: FileId,
    /// Its names, the first one first; empty once removed. A root has one in no directory.
    pub(super) names: Vec<(FileId, String)>,
    /// A snapshot's: nothing of it changes.
    pub(super) frozen: bool,
    pub(super) attributes: Attributes,
    pub(super) times: Times,
    pub(super) security: Vec<u8>,
    /// Of a directory, by folded name.
    pub(super) entries: BTreeMap<String, FileId>,
    /// By folded name: the name as given, and the content.
    pub(super) streams: BTreeMap<String, (String, Content)>,
}

pub(super) struct Open {
    pub(super) stream: StreamId,
    access: Access,
    pub(super) share: Share,
}

/// Nanoseconds since 1970.
pub(super) type StoreClock = Box<dyn Fn() -> u64 + Send + Sync>;

/// All of a store.
pub(super) struct State {
    pub(super) capacity: u64,
    pub(super) last_file: u64,
    last_open: u64,
    /// The time of the last change: never the same twice.
    pub(super) ticks: u64,
    pub(super) snapshots: Vec<Snapshot>,
    /// What tells the time; without it a change is a tick.
    pub(super) clock: Option<StoreClock>,
    pub(super) nodes: BTreeMap<FileId, Node>,
    /// By the file, so that many of them slow nobody, and a number.
    pub(super) opens: BTreeMap<(FileId, u64), Open>,
    pub(super) rows: BTreeMap<(String, Vec<u8>), Vec<u8>>,
    /// Who waits for a size to change.
    pub(super) wakers: Vec<Waker>,
}

pub(super) fn error(kind: StoreErrorKind, what: impl Into<String>) -> StoreError {
    StoreError::new(kind, what)
}

pub(super) fn not_found(what: &str) -> StoreError {
    error(StoreErrorKind::NotFound, format!("there is no {what}"))
}

impl State {
    pub(super) fn new(capacity: u64) -> Self {
        let root = Node {
            kind: FileKind::Directory,
            parent: ROOT,
            names: vec![(ROOT, String::new())],
            frozen: false,
            attributes: Attributes::default(),
            times: Times::default(),
            security: Vec::new(),
            entries: BTreeMap::new(),
            streams: BTreeMap::new(),
        };
        Self {
            capacity,
            last_file: ROOT.0,
            last_open: 0,
            ticks: 0,
            snapshots: Vec::new(),
            clock: None,
            nodes: BTreeMap::from([(ROOT, root)]),
            opens: BTreeMap::new(),
            rows: BTreeMap::new(),
            wakers: Vec::new(),
        }
    }

    pub(super) fn node(&self, file: FileId) -> Result<&Node, StoreError> {
        self.nodes.get(&file).ok_or_else(|| not_found("such file"))
    }

    pub(super) fn node_mut(&mut self, file: FileId) -> Result<&mut Node, StoreError> {
        self.nodes.get_mut(&file).ok_or_else(|| not_found("such file"))
    }

    pub(super) fn directory(&self, file: FileId) -> Result<&Node, StoreError> {
        let node = self.node(file)?;
        match node.kind {
            FileKind::Directory => Ok(node),
            FileKind::File => Err(error(StoreErrorKind::NotADirectory, "not a directory")),
        }
    }

    /// A directory that takes new names: not a removed one that is still open.
    pub(super) fn directory_with_name(&self, file: FileId) -> Result<(), StoreError> {
        self.directory(file)?;
        self.changeable(file)?;
        if self.directory(file)?.names.is_empty() {
            return Err(not_found("such directory any more"));
        }
        Ok(())
    }

    /// An error for what belongs to a snapshot.
    pub(super) fn changeable(&self, file: FileId) -> Result<(), StoreError> {
        if self.node(file)?.frozen {
            return Err(error(StoreErrorKind::ReadOnly, "a snapshot's"));
        }
        Ok(())
    }

    pub(super) fn find(&self, directory: FileId, name: &str) -> Result<FileId, StoreError> {
        let found = self.directory(directory)?.entries.get(&fold(name)).copied();
        found.ok_or_else(|| not_found(name))
    }

    /// Something of a file changed now; of its data or names, if `data`.
    pub(super) fn touch(&mut self, file: FileId, data: bool) -> Result<(), StoreError> {
        let told = self.clock.as_ref().map_or(0, |clock| clock());
        self.ticks = told.max(self.ticks + 1);
        let now = self.ticks;
        let times = &mut self.node_mut(file)?.times;
        times.changed = now;
        if data {
            times.written = now;
        }
        Ok(())
    }

    pub(super) fn entry(
        &self,
        directory: FileId,
        file: FileId,
        key: &str,
    ) -> Result<DirectoryEntry, StoreError> {
        let node = self.node(file)?;
        let name = node.names.iter().find(|(parent, name)| *parent == directory && fold(name) == key);
        let name = name.map(|(_, name)| name.clone()).unwrap_or_default();
        Ok(DirectoryEntry { name, file, kind: node.kind })
    }

    pub(super) fn lookup(&self, directory: FileId, name: &str) -> Result<DirectoryEntry, StoreError> {
        self.entry(directory, self.find(directory, name)?, &fold(name))
    }

    pub(super) fn create(
        &mut self,
        directory: FileId,
        name: &str,
        new: NewFile,
    ) -> Result<FileId, StoreError> {
        check(name)?;
        if new.security.len() > SECURITY_MAX {
            return Err(invalid("the security descriptor is too long"));
        }
        self.directory_with_name(directory)?;
        if self.find(directory, name).is_ok() {
            return Err(error(StoreErrorKind::AlreadyExists, name));
        }
        self.last_file += 1;
        self.touch(directory, true)?;
        let (file, now) = (FileId(self.last_file), self.ticks);
        let unnamed = (String::new(), (String::new(), Content::default()));
        let node = Node {
            kind: new.kind,
            parent: directory,
            names: vec![(directory, name.into())],
            frozen: false,
            attributes: new.attributes,
            times: Times { created: now, accessed: now, written: now, changed: now },
            security: new.security,
            entries: BTreeMap::new(),
            streams: (new.kind == FileKind::File).then_some(unnamed).into_iter().collect(),
        };
        self.nodes.insert(file, node);
        self.node_mut(directory)?.entries.insert(fold(name), file);
        Ok(file)
    }

    pub(super) fn opens_of(&self, file: FileId) -> impl Iterator<Item = &Open> {
        self.opens.range((file, 0)..=(file, u64::MAX)).map(|(_, open)| open)
    }

    pub(super) fn may_delete(&self, file: FileId) -> Result<(), StoreError> {
        if self.opens_of(file).any(|open| !open.share.delete) {
            return Err(error(StoreErrorKind::SharingViolation, "an open does not share deletion"));
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, directory: FileId, name: &str) -> Result<(), StoreError> {
        let file = self.find(directory, name)?;
        self.changeable(directory)?;
        self.may_delete(file)?;
        if !self.node(file)?.entries.is_empty() {
            return Err(error(StoreErrorKind::NotEmpty, name));
        }
        self.take_name(directory, name, file)
    }

    pub(super) fn take_name(
        &mut self,
        directory: FileId,
        name: &str,
        file: FileId,
    ) -> Result<(), StoreError> {
        self.node_mut(directory)?.entries.remove(&fold(name));
        self.touch(directory, true)?;
        let node = self.node_mut(file)?;
        node.names.retain(|(parent, known)| *parent != directory || fold(known) != fold(name));
        if let Some((parent, _)) = node.names.first() {
            node.parent = *parent;
            return self.touch(file, false);
        }
        self.forget_if_unused(file);
        Ok(())
    }

    /// A file without a name goes with its last open.
    pub(super) fn forget_if_unused(&mut self, file: FileId) {
        let named = self.nodes.get(&file).is_some_and(|node| !node.names.is_empty());
        if !named && self.opens_of(file).next().is_none() {
            self.nodes.remove(&file);
        }
    }

    pub(super) fn read_directory(
        &self,
        directory: FileId,
        cursor: &DirectoryCursor,
        limit: usize,
    ) -> Result<DirectoryPage, StoreError> {
        if limit == 0 {
            return Err(invalid("a page of no entries"));
        }
        let entries = &self.directory(directory)?.entries;
        let mut left = entries.iter().filter(|(name, _)| name.as_bytes() > cursor.0.as_slice());
        let mut page = DirectoryPage { entries: Vec::new(), next: None };
        let mut last = DirectoryCursor::default();
        for (name, file) in left.by_ref().take(limit) {
            page.entries.push(self.entry(directory, *file, name)?);
            last = DirectoryCursor(name.clone().into_bytes());
        }
        if left.next().is_some() {
            page.next = Some(last);
        }
        Ok(page)
    }

    pub(super) fn info(&self, file: FileId) -> Result<FileInfo, StoreError> {
        let node = self.node(file)?;
        let unnamed = node.streams.get("").map(|(_, content)| content);
        Ok(FileInfo {
            file,
            parent: node.parent,
            kind: node.kind,
            names: node.names.len() as u32,
            size: unnamed.map_or(0, |content| content.size),
            allocated: unnamed.map_or(0, Content::allocated),
            attributes: node.attributes,
            times: node.times,
        })
    }

    pub(super) fn set_info(&mut self, file: FileId, change: InfoChange) -> Result<(), StoreError> {
        self.changeable(file)?;
        let before = self.node(file)?.attributes;
        if change.attributes.is_some_and(|attributes| attributes.makes_read_only(before)) {
            self.may_delete(file)?;
        }
        self.touch(file, false)?;
        let node = self.node_mut(file)?;
        node.attributes = change.attributes.unwrap_or(node.attributes);
        let times = &mut node.times;
        times.created = change.created.unwrap_or(times.created);
        times.accessed = change.accessed.unwrap_or(times.accessed);
        times.written = change.written.unwrap_or(times.written);
        times.changed = change.changed.unwrap_or(times.changed);
        Ok(())
    }

    pub(super) fn set_security(&mut self, file: FileId, descriptor: Vec<u8>) -> Result<(), StoreError> {
        if descriptor.len() > SECURITY_MAX {
            return Err(invalid("the security descriptor is too long"));
        }
        self.changeable(file)?;
        self.touch(file, false)?;
        self.node_mut(file)?.security = descriptor;
        Ok(())
    }

    pub(super) fn streams(&self, file: FileId) -> Result<Vec<StreamInfo>, StoreError> {
        let streams = self.node(file)?.streams.values();
        let info = |(name, content): &(String, Content)| StreamInfo {
            name: name.clone(),
            size: content.size,
            allocated: content.allocated(),
        };
        Ok(streams.map(info).collect())
    }

    pub(super) fn remove_stream(&mut self, file: FileId, stream: &str) -> Result<(), StoreError> {
        let id = (file, fold(stream));
        self.changeable(file)?;
        if id.1.is_empty() || !self.node(file)?.streams.contains_key(&id.1) {
            return Err(not_found("such named stream"));
        }
        if self.opens_of(file).any(|open| open.stream == id) {
            return Err(error(StoreErrorKind::SharingViolation, "the stream is open"));
        }
        self.node_mut(file)?.streams.remove(&id.1);
        self.touch(file, false)
    }

    /// The new open's number.
    pub(super) fn open(&mut self, file: FileId, options: &OpenOptions) -> Result<u64, StoreError> {
        let stream = (file, fold(&options.stream));
        let node = self.node(file)?;
        if options.access.write || options.access.delete {
            self.changeable(file)?;
        }
        if node.names.is_empty() {
            return Err(not_found("such file any more"));
        }
        if !node.streams.contains_key(&stream.1) {
            if options.stream.is_empty() {
                return Err(error(StoreErrorKind::IsADirectory, "a directory has no data"));
            }
            if !options.create_stream {
                return Err(not_found("such stream"));
            }
            self.changeable(file)?;
            check(&options.stream)?;
            if node.streams.len() >= STREAMS_MAX {
                return Err(invalid("too many streams"));
            }
            let fresh = (options.stream.clone(), Content::default());
            self.node_mut(file)?.streams.insert(stream.1.clone(), fresh);
            self.touch(file, false)?;
        }
        let allows = |share: &Share, access: &Access| {
            (share.read || !access.read) && (share.write || !access.write) && (share.delete || !access.delete)
        };
        let fits = |open: &Open| allows(&open.share, &options.access) && allows(&options.share, &open.access);
        if !self.opens_of(file).filter(|open| open.stream == stream).all(fits) {
            return Err(error(StoreErrorKind::SharingViolation, "another open does not share this"));
        }
        self.last_open += 1;
        let open = Open { stream, access: options.access, share: options.share };
        self.opens.insert((file, self.last_open), open);
        Ok(self.last_open)
    }

    /// The stream of an open.
    pub(super) fn stream_of(&self, file: FileId, id: u64) -> StreamId {
        self.opens.get(&(file, id)).map_or_else(|| (file, String::new()), |open| open.stream.clone())
    }

    /// Opens of a stream go on under its new name.
    pub(super) fn move_opens(&mut self, from: &StreamId, to: &str) {
        let opens = self.opens.range_mut((from.0, 0)..=(from.0, u64::MAX));
        for (_, open) in opens.filter(|(_, open)| open.stream == *from) {
            open.stream.1 = to.to_owned();
        }
    }

    pub(super) fn close(&mut self, file: FileId, id: u64) {
        if self.opens.remove(&(file, id)).is_some() {
            self.forget_if_unused(file);
        }
    }

    pub(super) fn content(&self, (file, stream): &StreamId) -> Result<&Content, StoreError> {
        let found = self.node(*file)?.streams.get(stream).map(|(_, content)| content);
        found.ok_or_else(|| match stream.as_str() {
            "" => error(StoreErrorKind::IsADirectory, "a directory has no data"),
            _ => not_found("such stream"),
        })
    }

    /// Changes a stream's content; what does not fit the capacity leaves it as it was.
    pub(super) fn change(
        &mut self,
        id: &StreamId,
        change: impl FnOnce(&mut Content),
    ) -> Result<(), StoreError> {
        let before = self.content(id)?.clone();
        let mut after = before.clone();
        change(&mut after);
        let resized = before.size != after.size;
        self.put_content(id, after);
        if self.used() > self.capacity {
            self.put_content(id, before);
            return Err(error(StoreErrorKind::NoSpace, "the store is full"));
        }
        self.touch(id.0, true)?;
        if resized {
            self.wakers.drain(..).for_each(Waker::wake);
        }
        Ok(())
    }

    fn put_content(&mut self, (file, stream): &StreamId, content: Content) {
        if let Some((_, old)) = self.nodes.get_mut(file).and_then(|node| node.streams.get_mut(stream)) {
            *old = content;
        }
    }

    pub(super) fn clone_range(
        &mut self,
        (source, from): (FileId, u64),
        (target, to): (FileId, u64),
        len: u64,
    ) -> Result<(), StoreError> {
        let (from_end, to_end) = (end_of(from, len)?, end_of(to, len)?);
        if source == target && from < to_end && to < from_end {
            return Err(invalid("source and target overlap"));
        }
        let original = self.content(&(source, String::new()))?.clone();
        let into = (target, String::new());
        self.content(&into)?;
        self.changeable(target)?;
        if from_end > original.size {
            return Err(invalid("the source ends beyond its file"));
        }
        if len == 0 {
            return Ok(());
        }
        self.may_reach(&into, None, to_end)?;
        self.change(&into, |content| content.clone_from_range(&original, from, to, len))
    }

    pub(super) fn state_write(&mut self, changes: Vec<StateChange>) -> Result<(), StoreError> {
        for change in &changes {
            let too_long = change.table.len() + change.key.len() > STATE_KEY_MAX
                || change.value.as_ref().is_some_and(|value| value.len() > STATE_VALUE_MAX);
            if too_long {
                return Err(invalid("a row of durable state is too long"));
            }
        }
        for StateChange { table, key, value } in changes {
            match value {
                Some(value) => drop(self.rows.insert((table, key), value)),
                None => drop(self.rows.remove(&(table, key))),
            }
        }
        Ok(())
    }
}

pub(super) fn invalid(what: &str) -> StoreError {
    error(StoreErrorKind::InvalidArgument, what)
}

/// The end of a range.
pub(super) fn end_of(offset: u64, len: u64) -> Result<u64, StoreError> {
    offset
        .checked_add(len)
        .filter(|end| *end <= FILE_SIZE_MAX)
        .ok_or_else(|| invalid("the range ends beyond the largest size"))
}
