//! One operation, done to two stores alike.
//!
//! Operations name files and opens by number, in the order in which they were made, so that the same operation
//! makes sense on both sides although ids differ. An answer says everything a caller could see, in terms that do
//! not depend on the side.

use aligned_buffer::IoBuf;
use block_device::Durability;
use file_store::{
    Access, Attributes, DirectoryCursor, FileId, FileKind, InfoChange, NewFile, NewSnapshot, OpenOptions,
    Share, StateChange, StoreError, StoreErrorKind,
};

use crate::Store;
use crate::check::{File, buffer, bytes};

/// One operation.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Create {
        directory: usize,
        name: String,
        directory_kind: bool,
        security: usize,
    },
    Remove {
        directory: usize,
        name: String,
    },
    Rename {
        from: (usize, String),
        to: (usize, String),
        replace: bool,
    },
    Link {
        file: usize,
        to: (usize, String),
        replace: bool,
    },
    NamesOf {
        file: usize,
    },
    Lookup {
        directory: usize,
        name: String,
    },
    List {
        directory: usize,
        limit: usize,
    },
    Info {
        file: usize,
    },
    SetInfo {
        file: usize,
        attributes: u32,
    },
    SetSecurity {
        file: usize,
        len: usize,
    },
    Security {
        file: usize,
    },
    Streams {
        file: usize,
    },
    RemoveStream {
        file: usize,
        stream: String,
    },
    RenameStream {
        file: usize,
        from: String,
        to: String,
        replace: bool,
    },
    Open {
        file: usize,
        stream: String,
        create: bool,
        access: u8,
        share: u8,
    },
    Close {
        open: usize,
    },
    Clone {
        source: (usize, u64),
        target: (usize, u64),
        len: u64,
    },
    Snapshot {
        file: usize,
        name: String,
    },
    /// Looks at all of the snapshot.
    View {
        name: String,
    },
    Forget {
        name: String,
    },
    CloneTree {
        file: usize,
        directory: usize,
        name: String,
    },
    /// Clones all of a snapshot.
    Restore {
        snapshot: String,
        directory: usize,
        name: String,
    },
    State {
        key: u8,
        value: Option<u8>,
    },
    Scan {
        prefix: Option<u8>,
    },
    Write {
        open: usize,
        offset: u64,
        len: u64,
        generation: u64,
        durable: bool,
    },
    Read {
        open: usize,
        offset: u64,
        len: u64,
    },
    Compare {
        open: usize,
        offset: u64,
        len: u64,
        generation: u64,
    },
    Zero {
        open: usize,
        offset: u64,
        len: u64,
        durable: bool,
    },
    Punch {
        open: usize,
        offset: u64,
        len: u64,
    },
    Allocate {
        open: usize,
        offset: u64,
        len: u64,
        grow: bool,
    },
    SetSize {
        open: usize,
        size: u64,
    },
    Flush {
        open: usize,
    },
    Ranges {
        open: usize,
        offset: u64,
        len: u64,
    },
}

/// What an operation answered.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    Done,
    Bytes(Vec<u8>),
    Difference(Option<u64>),
    Entry(String, usize, FileKind),
    Names(Vec<(String, usize, FileKind)>),
    Info(FileKind, usize, u64, u32, u32),
    Streams(Vec<(String, u64)>),
    Rows(Vec<(Vec<u8>, Vec<u8>)>),
    Tree(Vec<(String, FileKind, Vec<u8>)>),
}

/// A store with the files and opens that operations made on it.
pub(crate) struct Side {
    pub(crate) store: Store,
    files: Vec<FileId>,
    opens: Vec<Option<File>>,
}

fn access(bits: u8) -> Access {
    Access { read: bits & 1 != 0, write: bits & 2 != 0, delete: bits & 4 != 0 }
}

fn share(bits: u8) -> Share {
    Share { read: bits & 1 != 0, write: bits & 2 != 0, delete: bits & 4 != 0 }
}

fn durability(durable: bool) -> Durability {
    if durable { Durability::Durable } else { Durability::Volatile }
}

impl Side {
    pub(crate) fn new(store: Store) -> Self {
        let files = vec![store.root()];
        Self { store, files, opens: Vec::new() }
    }

    /// How many files there have been.
    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    /// How many opens there have been.
    pub(crate) fn opens(&self) -> usize {
        self.opens.len()
    }

    pub(crate) fn close_all(&mut self) {
        self.opens.clear();
    }

    fn number(&self, file: FileId) -> usize {
        self.files.iter().position(|known| *known == file).unwrap_or(usize::MAX)
    }

    fn open(&self, number: usize) -> Result<&File, StoreError> {
        let open = self.opens.get(number).and_then(Option::as_ref);
        open.ok_or_else(|| StoreError::new(StoreErrorKind::Stopped, "closed by an earlier operation"))
    }

    /// What an open stream holds; `None` when it is closed or cannot be read.
    pub(crate) async fn content(&self, number: usize) -> Option<(u64, Vec<u8>)> {
        let open = self.open(number).ok()?;
        let size = open.size();
        let bytes = open.read(0, IoBuf::new(size as usize)).await.ok()?;
        Some((size, bytes.to_vec()))
    }

    /// Does `op`; the error's kind is an answer too.
    pub(crate) async fn apply(&mut self, op: &Op) -> Result<Answer, StoreErrorKind> {
        let answered = match op {
            Op::Create { .. }
            | Op::Remove { .. }
            | Op::Rename { .. }
            | Op::Link { .. }
            | Op::NamesOf { .. }
            | Op::Lookup { .. }
            | Op::List { .. } => self.names(op).await,
            Op::Write { .. }
            | Op::Read { .. }
            | Op::Compare { .. }
            | Op::Zero { .. }
            | Op::Punch { .. }
            | Op::Allocate { .. }
            | Op::SetSize { .. }
            | Op::Flush { .. }
            | Op::Ranges { .. } => self.data(op).await,
            Op::Snapshot { .. }
            | Op::View { .. }
            | Op::Forget { .. }
            | Op::CloneTree { .. }
            | Op::Restore { .. } => self.snapshots(op).await,
            _ => self.files_and_rows(op).await,
        };
        answered.map_err(|error| error.kind())
    }

    async fn names(&mut self, op: &Op) -> Result<Answer, StoreError> {
        let store = &self.store;
        match op {
            Op::Create { directory, name, directory_kind, security } => {
                let kind = if *directory_kind { FileKind::Directory } else { FileKind::File };
                let new = NewFile { kind, attributes: Attributes(5), security: vec![7; *security] };
                let file = store.create(self.files[*directory], name, new).await?;
                self.files.push(file);
            }
            Op::Remove { directory, name } => store.remove(self.files[*directory], name).await?,
            Op::Rename { from, to, replace } => {
                let (from, to) = ((self.files[from.0], from.1.as_str()), (self.files[to.0], to.1.as_str()));
                store.rename(from, to, *replace).await?;
            }
            Op::Link { file, to, replace } => {
                store.link(self.files[*file], (self.files[to.0], &to.1), *replace).await?;
            }
            Op::NamesOf { file } => {
                let names = store.names(self.files[*file]).await?.into_iter();
                let names = names.map(|(parent, name)| (name, self.number(parent), FileKind::File));
                return Ok(Answer::Names(names.collect()));
            }
            Op::Lookup { directory, name } => {
                let entry = store.lookup(self.files[*directory], name).await?;
                return Ok(Answer::Entry(entry.name, self.number(entry.file), entry.kind));
            }
            Op::List { directory, limit } => {
                let (mut names, mut cursor) = (Vec::new(), DirectoryCursor::default());
                loop {
                    let page = store.read_directory(self.files[*directory], cursor, *limit).await?;
                    for entry in page.entries {
                        names.push((entry.name, self.number(entry.file), entry.kind));
                    }
                    let Some(next) = page.next else { break };
                    cursor = next;
                }
                names.sort_by(|a, b| a.0.cmp(&b.0));
                return Ok(Answer::Names(names));
            }
            _ => {}
        }
        Ok(Answer::Done)
    }

    async fn files_and_rows(&mut self, op: &Op) -> Result<Answer, StoreError> {
        let store = &self.store;
        match op {
            Op::Info { file } => {
                let info = store.info(self.files[*file]).await?;
                let parent = self.number(info.parent);
                return Ok(Answer::Info(info.kind, parent, info.size, info.attributes.0, info.names));
            }
            Op::SetInfo { file, attributes } => {
                let change = InfoChange { attributes: Some(Attributes(*attributes)), ..Default::default() };
                store.set_info(self.files[*file], change).await?;
            }
            Op::SetSecurity { file, len } => {
                store.set_security(self.files[*file], vec![3; *len]).await?;
            }
            Op::Security { file } => return store.security(self.files[*file]).await.map(Answer::Bytes),
            Op::Streams { file } => {
                let streams = store.streams(self.files[*file]).await?;
                let mut streams: Vec<_> = streams.into_iter().map(|s| (s.name, s.size)).collect();
                streams.sort();
                return Ok(Answer::Streams(streams));
            }
            Op::RemoveStream { file, stream } => store.remove_stream(self.files[*file], stream).await?,
            Op::RenameStream { file, from, to, replace } => {
                store.rename_stream(self.files[*file], from, to, *replace).await?;
            }
            Op::Open { file, stream, create, access: bits, share: shared } => {
                let options = OpenOptions {
                    stream: stream.clone(),
                    create_stream: *create,
                    access: access(*bits),
                    share: share(*shared),
                };
                let open = store.open(self.files[*file], options).await?;
                self.opens.push(Some(open));
            }
            Op::Close { open } => {
                if let Some(open) = self.opens.get_mut(*open) {
                    *open = None;
                }
            }
            Op::Clone { source, target, len } => {
                let (from, to) = ((self.files[source.0], source.1), (self.files[target.0], target.1));
                store.clone_range(from, to, *len).await?;
            }
            Op::State { key, value } => {
                let change = StateChange {
                    table: "random".into(),
                    key: vec![*key, 1],
                    value: value.map(|value| vec![value; 20]),
                };
                store.state_write(vec![change]).await?;
            }
            Op::Scan { prefix } => {
                let prefix: Vec<u8> = prefix.iter().copied().collect();
                let rows = store.state_scan("random", &prefix).await?;
                return Ok(Answer::Rows(rows.into_iter().map(|row| (row.key, row.value)).collect()));
            }
            _ => {}
        }
        Ok(Answer::Done)
    }

    async fn snapshots(&mut self, op: &Op) -> Result<Answer, StoreError> {
        let gone = || StoreError::new(StoreErrorKind::NotFound, "there is no such snapshot");
        let Some(store) = self.store.snapshot_store() else { return Ok(Answer::Done) };
        let find = async |name: &str| {
            let all = store.snapshots().await?;
            all.into_iter().find(|snapshot| snapshot.name == name).ok_or_else(gone)
        };
        match op {
            Op::Snapshot { file, name } => {
                let (source, name) = (self.files[*file], name.clone());
                let new = NewSnapshot {
                    name,
                    source,
                    quiesce: *file == 0,
                    maker: "random".into(),
                    path: String::new(),
                };
                let taken = store.take_snapshot(new).await?;
                return Ok(Answer::Entry(taken.name, self.number(taken.source), taken.kind));
            }
            Op::View { name } => {
                return tree(&self.store, find(name).await?.root).await.map(Answer::Tree);
            }
            Op::Forget { name } => store.delete_snapshot(find(name).await?.id).await?,
            Op::CloneTree { file, directory, name } => {
                let made = store.clone_tree(self.files[*file], self.files[*directory], name).await?;
                self.files.push(made);
                return tree(&self.store, made).await.map(Answer::Tree);
            }
            Op::Restore { snapshot, directory, name } => {
                let root = find(snapshot).await?.root;
                let made = store.clone_tree(root, self.files[*directory], name).await?;
                self.files.push(made);
                return tree(&self.store, made).await.map(Answer::Tree);
            }
            _ => {}
        }
        Ok(Answer::Done)
    }

    async fn data(&mut self, op: &Op) -> Result<Answer, StoreError> {
        match op {
            Op::Write { open, offset, len, generation, durable } => {
                let data = buffer(&bytes(*offset, *len, *generation));
                self.open(*open)?.write(*offset, data, durability(*durable)).await?;
            }
            Op::Read { open, offset, len } => {
                let read = self.open(*open)?.read(*offset, IoBuf::new(*len as usize)).await?;
                return Ok(Answer::Bytes(read.to_vec()));
            }
            Op::Compare { open, offset, len, generation } => {
                let expected = buffer(&bytes(*offset, *len, *generation));
                let data = buffer(&bytes(*offset, *len, generation + 1));
                let compared = self.open(*open)?.compare_and_write(*offset, expected, data).await?;
                return Ok(Answer::Difference(compared));
            }
            Op::Zero { open, offset, len, durable } => {
                self.open(*open)?.zero_range(*offset, *len, durability(*durable)).await?;
            }
            Op::Punch { open, offset, len } => self.open(*open)?.punch_hole(*offset, *len).await?,
            Op::Allocate { open, offset, len, grow } => {
                self.open(*open)?.allocate(*offset, *len, *grow).await?;
            }
            Op::SetSize { open, size } => self.open(*open)?.set_size(*size).await?,
            Op::Flush { open } => self.open(*open)?.flush().await?,
            Op::Ranges { open, offset, len } => {
                // Ranges may be larger than on the other side, but what lies outside of them must be zero.
                let (open, end) = (self.open(*open)?, offset + len);
                let ranges = open.allocated_ranges(*offset, *len, usize::MAX).await?;
                let mut at = *offset;
                let holes: Vec<(u64, u64)> = ranges
                    .iter()
                    .map(|range| (range.offset, range.offset + range.len))
                    .chain([(end, end)])
                    .map(|(from, to)| (std::mem::replace(&mut at, to), from))
                    .collect();
                for (from, to) in holes.into_iter().filter(|(from, to)| from < to) {
                    match open.read(from, IoBuf::new((to - from) as usize)).await {
                        Ok(hole) if hole.iter().any(|byte| *byte != 0) => {
                            return Ok(Answer::Difference(Some(from)));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        Ok(Answer::Done)
    }
}

/// Everything in a tree: path, kind, how many names, and of each stream its name and what it holds.
pub(crate) async fn tree(
    store: &Store,
    root: FileId,
) -> Result<Vec<(String, FileKind, Vec<u8>)>, StoreError> {
    let (mut found, mut left) = (Vec::new(), vec![(String::new(), root)]);
    while let Some((path, file)) = left.pop() {
        let info = store.info(file).await?;
        let kind = info.kind;
        let mut content = store.security(file).await?;
        content.extend_from_slice(&info.names.to_le_bytes());
        let mut streams = store.streams(file).await?;
        streams.sort_by(|a, b| a.name.cmp(&b.name));
        for stream in streams {
            let options = OpenOptions { stream: stream.name.clone(), ..OpenOptions::shared(Access::READ) };
            // Somebody may have opened what is not a snapshot's without sharing it.
            let Ok(open) = store.open(file, options).await else { continue };
            let bytes = open.read(0, IoBuf::new(open.size() as usize)).await?;
            content.extend_from_slice(stream.name.as_bytes());
            content.extend_from_slice(&bytes);
        }
        let mut cursor = (kind == FileKind::Directory).then(DirectoryCursor::default);
        while let Some(from) = cursor {
            let page = store.read_directory(file, from, 100).await?;
            left.extend(page.entries.into_iter().map(|entry| (format!("{path}/{}", entry.name), entry.file)));
            cursor = page.next;
        }
        found.push((path, kind, content));
    }
    found.sort();
    Ok(found)
}
