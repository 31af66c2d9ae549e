//! Doing what a stream says.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::Durability;
use control_api::{Code, Problem};
use diff_format::{Meta, Record};
use file_store::{
    Access, Attributes, DirectoryCursor, DirectoryEntry, FileId, FileInfo, FileKind, FileStore, InfoChange,
    NewFile, OpenFile, OpenOptions, StoreError, StoreErrorKind, TREE_MAX,
};

use super::{DEPTH_MAX, deep, failed};

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
                let at = failed(&path);
                let before = self.store.info(entry.file).await.map_err(&at)?;
                remove_tree(self.store, directory, &entry).await.map_err(&at)?;
                if before.kind == FileKind::File && before.names > 1 {
                    return self.keep_changed(&before).await.map_err(at);
                }
                Ok(())
            }
            Record::Link { path, to } => {
                self.settle().await?;
                let file = match self.parent(&to).await? {
                    Some((directory, name)) => self.store.lookup(directory, name).await.ok(),
                    None => None,
                };
                let file = file.filter(|entry| entry.kind == FileKind::File);
                let file =
                    file.ok_or_else(|| Self::wrong(&to, "is no file that another name could have"))?.file;
                let Some((directory, name)) = self.parent(&path).await? else {
                    return Err(Self::wrong(&path, "what the stream is about cannot be a name in it"));
                };
                let at = failed(&path);
                let before = self.store.info(file).await.map_err(&at)?;
                self.store.link(file, (directory, name), false).await.map_err(&at)?;
                self.keep_changed(&before).await.map_err(at)
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

    /// A name that comes or goes is a change of the file; what the stream says of its times stays.
    async fn keep_changed(&self, before: &FileInfo) -> Result<(), StoreError> {
        let changed = Some(before.times.changed);
        self.store.set_info(before.file, InfoChange { changed, ..InfoChange::default() }).await
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
