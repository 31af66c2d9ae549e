//! Streams of differences, made of two trees of a store and applied to a copy of one. On the store's shard.
//!
//! What differs is told by the store from its maps, without reading; only data that differs is read. A stream is applied
//! to a clone, which gets its name when all of it is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::Durability;
use control_api::{Code, Problem};
use diff_format::{DATA_MAX, Meta, Record, Writer};
use file_store::{
    Access, Attributes, Difference, DirectoryCursor, DirectoryEntry, FileId, FileInfo, FileKind, FileStore,
    InfoChange, NewFile, OpenFile, OpenOptions, Snapshot, SnapshotStore, StoreError, StoreErrorKind,
    StreamInfo, TREE_MAX, names,
};

use crate::files::{PAGE, problem};

/// Differences asked for at a time.
const DIFFERENCES: usize = 1024;
/// Deepest tree.
const DEPTH_MAX: usize = 256;

fn failed(path: &str) -> impl Fn(StoreError) -> Problem + '_ {
    move |error| {
        let mut problem = problem(&error);
        problem.detail = format!("/{path}: {}", problem.detail);
        problem
    }
}

fn deep() -> Problem {
    Problem::new(Code::Unsupported, format!("the tree is deeper than {DEPTH_MAX} directories."))
}

/// What a store without snapshots says.
pub(crate) fn with_snapshots(store: &dyn FileStore) -> Result<&dyn SnapshotStore, Problem> {
    store
        .snapshot_store()
        .ok_or_else(|| Problem::new(Code::Unsupported, "This kind of volume has no snapshots."))
}

/// The snapshot of this name, in any case.
pub(crate) async fn find_snapshot(store: &dyn FileStore, name: &str) -> Result<Snapshot, Problem> {
    let all = with_snapshots(store)?.snapshots().await.map_err(|error| problem(&error))?;
    let wanted = names::fold(name);
    let found = all.into_iter().find(|snapshot| names::fold(&snapshot.name) == wanted);
    found.ok_or_else(|| {
        Problem::new(Code::NotFound, format!("There is no snapshot {name}."))
            .todo("`holdfast snapshot list` shows what there is.")
    })
}

/// All names of a directory, by their folded form.
async fn entries(
    store: &dyn FileStore,
    directory: FileId,
) -> Result<BTreeMap<String, DirectoryEntry>, StoreError> {
    let mut all = BTreeMap::new();
    let mut cursor = Some(DirectoryCursor::default());
    while let Some(from) = cursor {
        let page = store.read_directory(directory, from, PAGE).await?;
        all.extend(page.entries.into_iter().map(|entry| (names::fold(&entry.name), entry)));
        cursor = page.next;
    }
    Ok(all)
}

/// A file or directory to be told about: what it was, if it was there.
struct Task {
    base: Option<FileId>,
    target: FileId,
    path: String,
    depth: usize,
}

/// Where the bytes of a stream go; false when nobody wants them any more.
pub(crate) trait Sink {
    /// Takes some.
    async fn take(&mut self, bytes: Vec<u8>) -> bool;
}

/// Makes a stream.
pub(crate) struct Telling<'a, S> {
    store: &'a dyn FileStore,
    snapshots: &'a dyn SnapshotStore,
    writer: Writer,
    sink: S,
}

impl<'a, S: Sink> Telling<'a, S> {
    pub(crate) fn new(store: &'a dyn FileStore, sink: S) -> Result<Self, Problem> {
        Ok(Self { store, snapshots: with_snapshots(store)?, writer: Writer::default(), sink })
    }

    async fn say(&mut self, record: Record) -> Result<(), Problem> {
        let Some(bytes) = self.writer.record(&record) else {
            return Err(Problem::new(Code::Unsupported, "A path is too long for a stream of differences."));
        };
        self.send(bytes).await
    }

    async fn send(&mut self, bytes: Vec<u8>) -> Result<(), Problem> {
        if self.sink.take(bytes).await {
            Ok(())
        } else {
            Err(Problem::new(Code::Unavailable, "nobody takes the stream."))
        }
    }

    /// All of it: from `begin`, which says what it is about, to the end.
    pub(crate) async fn tell(mut self, begin: Record, base: FileId, target: FileId) -> Result<(), Problem> {
        self.send(Writer::preamble()).await?;
        self.say(begin).await?;
        let mut left = vec![Task { base: Some(base), target, path: String::new(), depth: 0 }];
        while let Some(task) = left.pop() {
            let info = self.store.info(task.target).await.map_err(failed(&task.path))?;
            match info.kind {
                FileKind::File => self.file(&task, &info).await?,
                FileKind::Directory => left.extend(self.directory(&task, &info).await?),
            }
        }
        let end = std::mem::take(&mut self.writer).end();
        self.send(end).await
    }

    async fn meta(&self, info: &FileInfo) -> Result<Meta, StoreError> {
        let times = info.times;
        Ok(Meta {
            attributes: info.attributes.0,
            times: [times.created, times.accessed, times.written, times.changed],
            security: self.store.security(info.file).await?,
        })
    }

    /// What the directory is, and what is in it that goes; what is to be told of what is in it.
    async fn directory(&mut self, task: &Task, info: &FileInfo) -> Result<Vec<Task>, Problem> {
        if task.depth == DEPTH_MAX {
            return Err(deep());
        }
        let at = failed(&task.path);
        let below =
            |name: &str| if task.path.is_empty() { name.to_owned() } else { format!("{}/{name}", task.path) };
        let mut old = match task.base {
            Some(base) => entries(self.store, base).await.map_err(&at)?,
            None => BTreeMap::new(),
        };
        let new = entries(self.store, task.target).await.map_err(&at)?;
        // What goes, or comes back as something else, or under a name in another case.
        let gone = |(key, was): &(&String, &DirectoryEntry)| {
            new.get(*key).is_none_or(|is| is.kind != was.kind || is.name != was.name)
        };
        let gone: Vec<String> = old.iter().filter(gone).map(|(key, _)| key.clone()).collect();
        for key in gone {
            if let Some(was) = old.remove(&key) {
                self.say(Record::Remove { path: below(&was.name) }).await?;
            }
        }
        let meta = self.meta(info).await.map_err(&at)?;
        self.say(Record::Directory { path: task.path.clone(), meta }).await?;
        self.streams(task.base, task.target, &task.path).await?;
        let told = new.into_iter().map(|(key, is)| Task {
            base: old.get(&key).map(|was| was.file),
            target: is.file,
            path: below(&is.name),
            depth: task.depth + 1,
        });
        Ok(told.collect())
    }

    async fn file(&mut self, task: &Task, info: &FileInfo) -> Result<(), Problem> {
        let at = failed(&task.path);
        let meta = self.meta(info).await.map_err(&at)?;
        if let Some(base) = task.base {
            let was = self.store.info(base).await.map_err(&at)?;
            if self.meta(&was).await.map_err(&at)? == meta
                && !self.differ(base, task.target).await.map_err(&at)?
            {
                return Ok(());
            }
        }
        self.say(Record::File { path: task.path.clone(), meta }).await?;
        self.streams(task.base, task.target, &task.path).await
    }

    /// Whether any stream of two files differs.
    async fn differ(&self, base: FileId, target: FileId) -> Result<bool, StoreError> {
        let (old, new) = (self.store.streams(base).await?, self.store.streams(target).await?);
        if old.len() != new.len() {
            return Ok(true);
        }
        for stream in &new {
            let was = old.iter().find(|was| was.name == stream.name);
            if was.is_none_or(|was| was.size != stream.size)
                || !self.snapshots.differences(base, target, &stream.name, 0, 1).await?.is_empty()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What differs in the streams of a file, or all of them where there was none.
    async fn streams(&mut self, base: Option<FileId>, target: FileId, path: &str) -> Result<(), Problem> {
        let at = failed(path);
        let old = match base {
            Some(base) => self.store.streams(base).await.map_err(&at)?,
            None => Vec::new(),
        };
        let new = self.store.streams(target).await.map_err(&at)?;
        let same = |a: &StreamInfo, b: &StreamInfo| a.name == b.name;
        for was in old.iter().filter(|was| !new.iter().any(|is| same(is, was))) {
            self.say(Record::RemoveStream { name: was.name.clone() }).await?;
        }
        for stream in new {
            let was = old.iter().find(|was| same(was, &stream));
            let base_size = was.map(|was| was.size);
            let size = stream.size;
            let (name, mut begun) = (stream.name, false);
            let mut from = 0;
            loop {
                // A new file is told as it differs from itself being empty: what is mapped of it.
                let found = match (base, was) {
                    (Some(base), Some(_)) => self
                        .snapshots
                        .differences(base, target, &name, from, DIFFERENCES)
                        .await
                        .map_err(&at)?,
                    _ => self.mapped(target, &name, from).await.map_err(&at)?,
                };
                if !begun && base_size == Some(size) && found.is_empty() {
                    break;
                }
                if !begun {
                    self.say(Record::Stream { name: name.clone(), base_size, size }).await?;
                    begun = true;
                }
                let more = found.len() == DIFFERENCES;
                for difference in found {
                    from = difference.offset + difference.len;
                    self.range(target, &name, difference, size).await.map_err(|error| match error {
                        Stop::Store(error) => at(error),
                        Stop::Problem(problem) => problem,
                    })?;
                }
                if !more {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn mapped(&self, file: FileId, stream: &str, from: u64) -> Result<Vec<Difference>, StoreError> {
        let open = self.open(file, stream).await?;
        let len = open.size().saturating_sub(from);
        let ranges = open.allocated_ranges(from, len, DIFFERENCES).await?;
        Ok(ranges
            .into_iter()
            .map(|range| Difference { offset: range.offset, len: range.len, hole: false })
            .collect())
    }

    async fn open(&self, file: FileId, stream: &str) -> Result<Arc<dyn OpenFile>, StoreError> {
        let options = OpenOptions { stream: stream.to_owned(), ..OpenOptions::shared(Access::READ) };
        self.store.open(file, options).await
    }

    async fn range(&mut self, file: FileId, stream: &str, range: Difference, size: u64) -> Result<(), Stop> {
        let end = (range.offset + range.len).min(size);
        let mut offset = range.offset;
        if range.hole {
            if offset < end {
                self.say(Record::Hole { offset, len: end - offset }).await.map_err(Stop::Problem)?;
            }
            return Ok(());
        }
        let open = self.open(file, stream).await.map_err(Stop::Store)?;
        while offset < end {
            let len = (end - offset).min(DATA_MAX as u64);
            let bytes = open.read(offset, IoBuf::new(len as usize)).await.map_err(Stop::Store)?;
            if bytes.is_empty() {
                // What is not a snapshot was cut meanwhile.
                let cut = StoreError::new(
                    StoreErrorKind::InvalidArgument,
                    "the file shrank while it was read; compare snapshots",
                );
                return Err(Stop::Store(cut));
            }
            let record = Record::Data { offset, bytes: bytes.to_vec() };
            offset += bytes.len() as u64;
            self.say(record).await.map_err(Stop::Problem)?;
        }
        Ok(())
    }
}

enum Stop {
    Store(StoreError),
    Problem(Problem),
}

/// Does what a stream says to a file or tree that nobody else knows yet.
pub(crate) struct Applying<'a> {
    store: &'a dyn FileStore,
    root: FileId,
    /// What is being worked on: where, its file, and what it gets at its end.
    last: Option<(String, FileId, Meta)>,
    open: Option<Arc<dyn OpenFile>>,
    /// Directories with what they get at the end, when nothing is made in them any more.
    directories: Vec<(FileId, InfoChange)>,
}

impl<'a> Applying<'a> {
    pub(crate) fn new(store: &'a dyn FileStore, root: FileId) -> Self {
        Self { store, root, last: None, open: None, directories: Vec::new() }
    }

    fn wrong(path: &str, what: &str) -> Problem {
        Problem::new(Code::InvalidRequest, format!("/{path}: {what}."))
            .todo("Apply the stream to a copy of what it was made from. Nothing was changed.")
    }

    /// Does a record.
    pub(crate) async fn apply(&mut self, record: Record) -> Result<(), Problem> {
        match record {
            Record::Begin { directory, .. } => {
                let info = self.store.info(self.root).await.map_err(failed(""))?;
                if (info.kind == FileKind::Directory) != directory {
                    let what = "is a file, and the stream is about a tree, or the other way round";
                    return Err(Self::wrong("", what));
                }
                Ok(())
            }
            Record::Remove { path } => {
                self.settle().await?;
                let Some((directory, name)) = self.parent(&path).await? else {
                    return Err(Self::wrong(&path, "what the stream is about cannot go"));
                };
                let entry = self.store.lookup(directory, name).await;
                let entry = entry.map_err(|_| Self::wrong(&path, "is not there, and should go"))?;
                remove_tree(self.store, directory, &entry).await.map_err(failed(&path))
            }
            Record::Directory { path, meta } => self.begin(path, meta, FileKind::Directory).await,
            Record::File { path, meta } => self.begin(path, meta, FileKind::File).await,
            Record::Stream { name, base_size, size } => self.stream(name, base_size, size).await,
            Record::RemoveStream { name } => {
                self.close().await?;
                let Some((path, file, _)) = &self.last else { return Ok(()) };
                let removed = self.store.remove_stream(*file, &name).await;
                removed.map_err(|_| Self::wrong(path, "a stream that should go is not there"))
            }
            Record::Data { offset, bytes } => {
                let Some(open) = &self.open else { return Ok(()) };
                let written =
                    open.write(offset, IoBuf::copy_from(&bytes).freeze(), Durability::Volatile).await;
                written.map_err(failed(self.path()))
            }
            Record::Hole { offset, len } => {
                let Some(open) = &self.open else { return Ok(()) };
                open.punch_hole(offset, len).await.map_err(failed(self.path()))
            }
            Record::End { .. } => {
                self.settle().await?;
                for (file, change) in std::mem::take(&mut self.directories) {
                    self.store.set_info(file, change).await.map_err(failed(""))?;
                }
                Ok(())
            }
        }
    }

    fn path(&self) -> &str {
        self.last.as_ref().map_or("", |(path, ..)| path)
    }

    /// The directory that a path lies in, and its last name; `None` for what the stream is about itself.
    async fn parent<'p>(&self, path: &'p str) -> Result<Option<(FileId, &'p str)>, Problem> {
        let (above, name) = match path.rsplit_once('/') {
            Some((above, name)) => (above, name),
            None if path.is_empty() => return Ok(None),
            None => ("", path),
        };
        let mut at = self.root;
        for (depth, part) in above.split('/').filter(|part| !part.is_empty()).enumerate() {
            if depth == DEPTH_MAX {
                return Err(deep());
            }
            let entry = self.store.lookup(at, part).await;
            at = entry.map_err(|_| Self::wrong(above, "is not there"))?.file;
        }
        Ok(Some((at, name)))
    }

    async fn begin(&mut self, path: String, meta: Meta, kind: FileKind) -> Result<(), Problem> {
        self.settle().await?;
        let file = match self.parent(&path).await? {
            None => self.root,
            Some((directory, name)) => match self.store.lookup(directory, name).await {
                Ok(entry) if entry.kind == kind => entry.file,
                Ok(_) => {
                    return Err(Self::wrong(
                        &path,
                        "is a directory where a file should be, or the other way round",
                    ));
                }
                Err(error) if error.kind() == StoreErrorKind::NotFound => {
                    let new = NewFile { kind, attributes: Attributes(meta.attributes), security: Vec::new() };
                    self.store.create(directory, name, new).await.map_err(failed(&path))?
                }
                Err(error) => return Err(failed(&path)(error)),
            },
        };
        self.last = Some((path, file, meta));
        Ok(())
    }

    async fn stream(&mut self, name: String, base_size: Option<u64>, size: u64) -> Result<(), Problem> {
        self.close().await?;
        let Some((path, file, _)) = &self.last else { return Ok(()) };
        let options = OpenOptions {
            create_stream: !name.is_empty(),
            stream: name,
            ..OpenOptions::shared(Access::READ_WRITE)
        };
        let open = self.store.open(*file, options).await.map_err(failed(path))?;
        if open.size() != base_size.unwrap_or(0) {
            let what = format!(
                "has {} bytes, not the {} that the stream was made from",
                open.size(),
                base_size.unwrap_or(0)
            );
            return Err(Self::wrong(path, &what));
        }
        open.set_size(size).await.map_err(failed(path))?;
        self.open = Some(open);
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Problem> {
        match self.open.take() {
            Some(open) => open.flush().await.map_err(failed(self.path())),
            None => Ok(()),
        }
    }

    /// The last file has all its data: now it gets its times, which writing changes.
    async fn settle(&mut self) -> Result<(), Problem> {
        self.close().await?;
        let Some((path, file, meta)) = self.last.take() else { return Ok(()) };
        let at = failed(&path);
        if self.store.security(file).await.map_err(&at)? != meta.security {
            self.store.set_security(file, meta.security).await.map_err(&at)?;
        }
        let [created, accessed, written, changed] = meta.times.map(Some);
        let attributes = Some(Attributes(meta.attributes));
        let change = InfoChange { attributes, created, accessed, written, changed };
        if self.store.info(file).await.map_err(&at)?.kind == FileKind::File {
            return self.store.set_info(file, change).await.map_err(&at);
        }
        if self.directories.len() == TREE_MAX {
            return Err(Problem::new(
                Code::Unsupported,
                format!("the stream has more than {TREE_MAX} directories."),
            ));
        }
        self.directories.push((file, change));
        Ok(())
    }
}

/// Removes a file or a directory with all that is in it.
pub(crate) async fn remove_tree(
    store: &dyn FileStore,
    directory: FileId,
    entry: &DirectoryEntry,
) -> Result<(), StoreError> {
    // Directories on the way down, each removed when there is nothing left in it.
    let mut path = vec![(directory, entry.clone())];
    while let Some((above, entry)) = path.last().cloned() {
        let next = match entry.kind {
            FileKind::Directory => {
                let page = store.read_directory(entry.file, DirectoryCursor::default(), 1).await?;
                page.entries.into_iter().next()
            }
            FileKind::File => None,
        };
        match next {
            Some(below) => path.push((entry.file, below)),
            None => {
                store.remove(above, &entry.name).await?;
                path.pop();
            }
        }
    }
    Ok(())
}
