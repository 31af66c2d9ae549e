//! Making a stream: what is there now and was not, and the other way round.

use std::collections::BTreeMap;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use control_api::{Code, Problem};
use diff_format::{DATA_MAX, Meta, Record, Writer};
use file_store::{
    Access, Difference, DirectoryCursor, DirectoryEntry, FileId, FileInfo, FileKind, FileStore, OpenFile,
    OpenOptions, SnapshotStore, StoreError, StoreErrorKind, StreamInfo, TREE_MAX, names,
};

use super::{DEPTH_MAX, deep, failed};
use crate::files::PAGE;
use crate::files::snapshots::with_snapshots;

/// Differences asked for at a time.
const DIFFERENCES: usize = 1024;
/// Zeros are told by whole units of this many bytes: a volume's clusters.
const ZERO_UNIT: u64 = 64 << 10;

/// All names of a directory, by their folded form.
pub(super) async fn entries(
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

/// The names of files that have, or had, several. In the copy that the stream is applied to, names that were those of one file
/// still are: whatever is said of one of them is said of all.
#[derive(Default)]
struct Names {
    /// Files of the target that were told, each by this path; with the file of the base that it was told from.
    told: BTreeMap<FileId, (String, Option<FileId>)>,
    /// Files of the base that have become files of the target.
    became: BTreeMap<FileId, FileId>,
    /// Names that are told at the end, when the files that they are names of are there.
    left: Vec<Task>,
}

/// What is to be said of a name of a file.
enum Saying {
    /// What the file holds.
    File,
    /// Nothing: all was said with another name.
    Nothing,
    /// That it is a name of the file that is told elsewhere; or, if that is not, what the file holds. At the end.
    Later,
}

impl Names {
    /// `is` is the file of the name, `was` that of the base.
    fn saying(&mut self, task: &Task, is: &FileInfo, was: Option<&FileInfo>) -> Result<Saying, Problem> {
        if is.names <= 1 && was.is_none_or(|was| was.names <= 1) {
            return Ok(Saying::File);
        }
        if self.told.len() + self.became.len() + self.left.len() >= TREE_MAX {
            let detail = format!("More than {TREE_MAX} files have several names.");
            return Err(Problem::new(Code::Unsupported, detail));
        }
        let told = self.told.get(&task.target).map(|(_, base)| *base);
        match (told, task.base) {
            (Some(base), Some(was)) if base == Some(was) => Ok(Saying::Nothing),
            (Some(_), _) => Ok(Saying::Later),
            // Another name may be one that was there, from which only what differs is told.
            (None, None) => Ok(Saying::Later),
            // What was made since took the name of the file that was there, which may have another one still.
            (None, Some(_)) if was.is_some_and(|was| was.times.created != is.times.created) => {
                Ok(Saying::Later)
            }
            (None, Some(was)) if self.becomes(was, task.target) => {
                self.told.insert(task.target, (task.path.clone(), task.base));
                Ok(Saying::File)
            }
            (None, Some(_)) => Ok(Saying::Later),
        }
    }

    /// Whether a file of the base becomes this one of the target: the first that asks.
    fn becomes(&mut self, was: FileId, target: FileId) -> bool {
        *self.became.entry(was).or_insert(target) == target
    }
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
    names: Names,
}

impl<'a, S: Sink> Telling<'a, S> {
    pub(crate) fn new(store: &'a dyn FileStore, sink: S) -> Result<Self, Problem> {
        Ok(Self {
            store,
            snapshots: with_snapshots(store)?,
            writer: Writer::default(),
            sink,
            names: Names::default(),
        })
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
                FileKind::File => self.file(task, &info).await?,
                FileKind::Directory => left.extend(self.directory(&task, &info).await?),
            }
        }
        for task in std::mem::take(&mut self.names.left) {
            self.name_left(task).await?;
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

    /// A name whose file the names that were there before did not lead to.
    async fn name_left(&mut self, task: Task) -> Result<(), Problem> {
        let (target, told) = (task.target, self.names.told.get(&task.target).cloned());
        if told.as_ref().is_some_and(|(_, base)| task.base.is_some() && task.base == *base) {
            return Ok(());
        }
        let info = self.store.info(target).await.map_err(failed(&task.path))?;
        if let (None, Some(base)) = (&told, task.base)
            && self.names.becomes(base, target)
        {
            let was = self.store.info(base).await.map_err(failed(&task.path))?;
            self.names.told.insert(target, (task.path.clone(), task.base));
            return self.content(&task, &info, Some(&was)).await;
        }
        if task.base.is_some() {
            // It is still a name of what it was.
            self.say(Record::Remove { path: task.path.clone() }).await?;
        }
        if let Some((to, _)) = told {
            return self.say(Record::Link { path: task.path, to }).await;
        }
        self.names.told.insert(target, (task.path.clone(), None));
        self.content(&Task { base: None, ..task }, &info, None).await
    }

    async fn file(&mut self, task: Task, info: &FileInfo) -> Result<(), Problem> {
        let was = match task.base {
            Some(base) => Some(self.store.info(base).await.map_err(failed(&task.path))?),
            None => None,
        };
        match self.names.saying(&task, info, was.as_ref())? {
            Saying::File => self.content(&task, info, was.as_ref()).await,
            Saying::Nothing => Ok(()),
            Saying::Later => {
                self.names.left.push(task);
                Ok(())
            }
        }
    }

    /// What a file is and holds, if that differs.
    async fn content(&mut self, task: &Task, info: &FileInfo, was: Option<&FileInfo>) -> Result<(), Problem> {
        let at = failed(&task.path);
        let meta = self.meta(info).await.map_err(&at)?;
        if let (Some(base), Some(was)) = (task.base, was)
            && self.meta(was).await.map_err(&at)? == meta
            && !self.differ(base, task.target).await.map_err(&at)?
        {
            return Ok(());
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
            for (zero, from, to) in runs(&bytes, offset) {
                let at = offset + from as u64;
                let record = if zero {
                    Record::Hole { offset: at, len: (to - from) as u64 }
                } else {
                    Record::Data { offset: at, bytes: bytes[from..to].to_vec() }
                };
                self.say(record).await.map_err(Stop::Problem)?;
            }
            offset += bytes.len() as u64;
        }
        Ok(())
    }
}

/// Data in runs of what is zero and what is not, by units of [`ZERO_UNIT`]: a volume maps space ahead of what is
/// written, and zeros need not travel. Whether zero, from, to.
pub(super) fn runs(bytes: &[u8], offset: u64) -> Vec<(bool, usize, usize)> {
    let mut runs: Vec<(bool, usize, usize)> = Vec::new();
    let mut from = 0;
    while from < bytes.len() {
        let left = ZERO_UNIT - (offset + from as u64) % ZERO_UNIT;
        let to = bytes.len().min(from.saturating_add(left as usize));
        let zero = bytes[from..to].iter().all(|byte| *byte == 0);
        match runs.last_mut() {
            Some(last) if last.0 == zero => last.2 = to,
            _ => runs.push((zero, from, to)),
        }
        from = to;
    }
    runs
}

enum Stop {
    Store(StoreError),
    Problem(Problem),
}
