//! Names, directories and inodes, inside a transaction.

use file_store::names::{check as check_name, fold};
use file_store::{
    Attributes, DirectoryCursor, DirectoryEntry, DirectoryPage, FileId, FileInfo, FileKind, InfoChange,
    StoreError, StoreErrorKind, Times,
};
use redb::ReadableTable;
use volume_format::{CLUSTER, Entry, Inode, StreamRecord};

use crate::background::EXTENTS_PER_ROUND;
use crate::core::Core;
use crate::costs::{ROW_OF_FILE, bytes_of_name};
use crate::database_error::database_error;
use crate::names::{Goes, moved};
use crate::session::Session;
use crate::tables::{ENTRIES, INODES, ORPHANS, ROOT, SECURITY, StreamKey};

fn corrupt(what: &str, error: impl std::fmt::Display) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, format!("{what} {error}"))
}

pub(crate) fn no_name(name: &str) -> StoreError {
    StoreError::new(StoreErrorKind::NotFound, format!("there is no {name}"))
}

/// What the record of a file that has its names says, but for the space that it takes.
fn info_of(file: u64, inode: &Inode) -> FileInfo {
    FileInfo {
        file: FileId(file),
        parent: FileId(inode.parent),
        kind: if inode.directory { FileKind::Directory } else { FileKind::File },
        names: 1 + inode.others.len() as u32,
        size: inode.streams.iter().find(|stream| stream.id == 0).map_or(0, |stream| stream.size),
        allocated: 0,
        attributes: Attributes(inode.attributes),
        times: Times {
            created: inode.times[0],
            accessed: inode.times[1],
            written: inode.times[2],
            changed: inode.times[3],
        },
    }
}

/// No path has more directories; a longer chain is a loop.
pub(crate) const DEPTH_MAX: usize = 4096;
/// What snapshots refuse.
pub(crate) trait Changeable {
    /// # Errors
    /// [`StoreErrorKind::ReadOnly`] for what belongs to a snapshot.
    fn changeable(&self) -> Result<(), StoreError>;
}

impl Changeable for Inode {
    fn changeable(&self) -> Result<(), StoreError> {
        if !self.frozen {
            return Ok(());
        }
        let detail =
            format!("{} belongs to a snapshot, which never changes; clone it to change the clone", self.name);
        Err(StoreError::new(StoreErrorKind::ReadOnly, detail))
    }
}

impl Session<'_> {
    pub(crate) fn inode(&self, file: u64) -> Result<Inode, StoreError> {
        let table = self.txn.open_table(INODES).map_err(database_error)?;
        let row = table.get(file).map_err(database_error)?;
        let row =
            row.ok_or_else(|| StoreError::new(StoreErrorKind::NotFound, format!("there is no file {file}")))?;
        Inode::decode(row.value()).map_err(|error| corrupt(&format!("the record of file {file}"), error))
    }

    /// What is known of a file's rows is known no more.
    pub(crate) fn forget(&mut self, file: u64) {
        self.recent.forget_file(file, &mut self.found);
    }

    pub(crate) fn put_inode(&mut self, file: u64, inode: &Inode) -> Result<(), StoreError> {
        self.changed = true;
        if let Some((known, measured)) = self.recent.take_info(file, &mut self.found) {
            let names = if known.names == 0 { 0 } else { 1 + inode.others.len() as u32 };
            let info = FileInfo { names, allocated: known.allocated, ..info_of(file, inode) };
            self.found.add_info(info, measured);
        }
        let row = inode.encode();
        self.txn
            .open_table(INODES)
            .map_err(database_error)?
            .insert(file, row.as_slice())
            .map_err(database_error)?;
        self.copied(row.len());
        Ok(())
    }

    pub(crate) fn directory(&self, file: u64) -> Result<Inode, StoreError> {
        let inode = self.inode(file)?;
        if inode.directory {
            return Ok(inode);
        }
        Err(StoreError::new(StoreErrorKind::NotADirectory, format!("{} is not a directory", inode.name)))
    }

    /// A directory that takes new names: not a removed one that is still used.
    pub(crate) fn directory_with_name(&self, file: u64) -> Result<(), StoreError> {
        self.directory(file)?.changeable()?;
        if self.is_orphan(file)? {
            return Err(StoreError::new(StoreErrorKind::NotFound, "the directory was removed"));
        }
        Ok(())
    }

    /// The record of a file that is about to change.
    pub(crate) fn changeable(&self, file: u64) -> Result<Inode, StoreError> {
        let inode = self.inode(file)?;
        inode.changeable()?;
        Ok(inode)
    }

    /// Whether a file has lost its name.
    pub(crate) fn is_orphan(&self, file: u64) -> Result<bool, StoreError> {
        let orphans = self.txn.open_table(ORPHANS).map_err(database_error)?;
        Ok(orphans.get(file).map_err(database_error)?.is_some())
    }

    /// Whether a directory leads to the file, as its own record says.
    pub(crate) fn is_named(&self, file: u64) -> Result<bool, StoreError> {
        if file == ROOT {
            return Ok(true);
        }
        if !self.has_inode(file)? {
            return Ok(false);
        }
        let inode = self.inode(file)?;
        Ok(self.find(inode.parent, &inode.name)?.is_some_and(|entry| entry.file == file))
    }

    pub(crate) fn has_inode(&self, file: u64) -> Result<bool, StoreError> {
        let table = self.txn.open_table(INODES).map_err(database_error)?;
        Ok(table.get(file).map_err(database_error)?.is_some())
    }

    pub(crate) fn find(&self, directory: u64, name: &str) -> Result<Option<Entry>, StoreError> {
        let table = self.txn.open_table(ENTRIES).map_err(database_error)?;
        let row = table.get((directory, fold(name).as_str())).map_err(database_error)?;
        let decode = |row: redb::AccessGuard<'_, &[u8]>| Entry::decode(row.value());
        row.map(decode).transpose().map_err(|error| corrupt(&format!("the entry of {name}"), error))
    }

    pub(crate) fn lookup(&self, directory: u64, name: &str) -> Result<Entry, StoreError> {
        self.directory(directory)?;
        self.find(directory, name)?.ok_or_else(|| no_name(name))
    }

    /// As [`Session::lookup`], for those who ask again.
    pub(crate) fn look_up(&mut self, directory: u64, name: &str) -> Result<Entry, StoreError> {
        self.directory(directory)?;
        let found = self.find(directory, name)?;
        match &found {
            Some(entry) => self.found.add_entry(directory, entry),
            None => self.found.add_missing(directory, name),
        }
        found.ok_or_else(|| no_name(name))
    }

    pub(crate) fn put_entry(&mut self, directory: u64, entry: &Entry) -> Result<(), StoreError> {
        self.changed = true;
        let folded = fold(&entry.name);
        self.recent.forget_name(directory, &folded, &mut self.found);
        let mut table = self.txn.open_table(ENTRIES).map_err(database_error)?;
        table.insert((directory, folded.as_str()), entry.encode().as_slice()).map_err(database_error)?;
        self.found.add_entry(directory, entry);
        Ok(())
    }

    pub(crate) fn take_entry(&mut self, directory: u64, name: &str) -> Result<(), StoreError> {
        self.changed = true;
        let folded = fold(name);
        self.recent.forget_name(directory, &folded, &mut self.found);
        let mut table = self.txn.open_table(ENTRIES).map_err(database_error)?;
        table.remove((directory, folded.as_str())).map_err(database_error)?;
        self.found.add_missing(directory, name);
        Ok(())
    }

    pub(crate) fn create(
        &mut self,
        directory: u64,
        name: &str,
        new: &file_store::NewFile,
        now: u64,
    ) -> Result<u64, StoreError> {
        check_name(name)?;
        self.directory_with_name(directory)?;
        if self.find(directory, name)?.is_some() {
            return Err(StoreError::new(StoreErrorKind::AlreadyExists, format!("there is a {name} already")));
        }
        self.spend_to_make(ROW_OF_FILE + bytes_of_name(name) + new.security.len() as u64)?;
        let made = self.create_checked(directory, name, new, now);
        self.fatal(made)
    }

    fn create_checked(
        &mut self,
        directory: u64,
        name: &str,
        new: &file_store::NewFile,
        now: u64,
    ) -> Result<u64, StoreError> {
        let file = self.new_number()?;
        let is_directory = new.kind == FileKind::Directory;
        let unnamed = StreamRecord { id: 0, name: String::new(), size: 0 };
        let inode = Inode {
            directory: is_directory,
            frozen: false,
            parent: directory,
            name: name.to_owned(),
            attributes: new.attributes.0,
            times: [now; 4],
            next_stream: 1,
            streams: if is_directory { Vec::new() } else { vec![unnamed] },
            others: Vec::new(),
        };
        self.put_inode(file, &inode)?;
        self.put_entry(directory, &Entry { file, directory: is_directory, name: name.to_owned() })?;
        if !new.security.is_empty() {
            self.put_security(file, &new.security)?;
        }
        self.touch_directory(directory, now)?;
        // Whoever makes it asks for it next.
        self.found.add_info(info_of(file, &inode), true);
        self.found.add_security(file, &new.security);
        Ok(file)
    }

    pub(crate) fn touch_directory(&mut self, directory: u64, now: u64) -> Result<(), StoreError> {
        let mut inode = self.inode(directory)?;
        inode.times[2] = now;
        inode.times[3] = now;
        self.put_inode(directory, &inode)
    }

    pub(crate) fn is_empty(&self, directory: u64) -> Result<bool, StoreError> {
        let table = self.txn.open_table(ENTRIES).map_err(database_error)?;
        let first = table.range((directory, "")..).map_err(database_error)?.next();
        let first = first.transpose().map_err(database_error)?;
        Ok(first.is_none_or(|(key, _)| key.value().0 != directory))
    }

    /// Whether an entry may be removed: a directory only when it is empty.
    pub(crate) fn check_removal(&self, entry: &Entry) -> Result<(), StoreError> {
        if entry.directory && !self.is_empty(entry.file)? {
            return Err(StoreError::new(StoreErrorKind::NotEmpty, format!("{} is not empty", entry.name)));
        }
        Ok(())
    }

    /// Takes a name away, once everything is checked. With the last one the content goes, now or with its last user.
    pub(crate) fn remove(
        &mut self,
        directory: u64,
        entry: &Entry,
        goes: Goes,
        now: u64,
    ) -> Result<(), StoreError> {
        self.take_entry(directory, &entry.name)?;
        self.touch_directory(directory, now)?;
        self.forget(entry.file);
        let Goes::File { used } = goes else {
            return self.drop_name(entry.file, (directory, &entry.name), now);
        };
        {
            let mut orphans = self.txn.open_table(ORPHANS).map_err(database_error)?;
            orphans.insert(entry.file, ()).map_err(database_error)?;
        }
        if used { Ok(()) } else { self.delete(entry.file) }
    }

    /// Deletes an orphan: its record now, and its extents, of which there may be many, as far as one transaction
    /// goes; the others in later ones.
    pub(crate) fn delete(&mut self, file: u64) -> Result<(), StoreError> {
        self.changed = true;
        self.forget(file);
        self.leave_quota(file)?;
        self.txn.open_table(INODES).map_err(database_error)?.remove(file).map_err(database_error)?;
        self.txn.open_table(SECURITY).map_err(database_error)?.remove(file).map_err(database_error)?;
        self.purge(file, EXTENTS_PER_ROUND)
    }

    /// Moves a name, once everything is checked. `replaced` is what had the new name, and what goes with it.
    pub(crate) fn rename(
        &mut self,
        from: u64,
        entry: &Entry,
        to: (u64, &str),
        replaced: Option<(Entry, Goes)>,
        now: u64,
    ) -> Result<(), StoreError> {
        let moved = self.rename_checked(from, entry, to, replaced, now);
        self.fatal(moved)
    }

    fn rename_checked(
        &mut self,
        from: u64,
        entry: &Entry,
        to: (u64, &str),
        replaced: Option<(Entry, Goes)>,
        now: u64,
    ) -> Result<(), StoreError> {
        if let Some((old, goes)) = replaced {
            self.remove(to.0, &old, goes, now)?;
        }
        self.take_entry(from, &entry.name)?;
        self.put_entry(to.0, &Entry { name: to.1.to_owned(), ..entry.clone() })?;
        let mut inode = self.inode(entry.file)?;
        moved(&mut inode, (from, &entry.name), to);
        inode.times[3] = now;
        self.put_inode(entry.file, &inode)?;
        self.touch_directory(from, now)?;
        self.touch_directory(to.0, now)
    }

    /// Whether `file` is `below` or one of its descendants.
    pub(crate) fn is_within(&self, mut file: u64, below: u64) -> Result<bool, StoreError> {
        for _ in 0..DEPTH_MAX {
            if file == below {
                return Ok(true);
            }
            let parent = self.inode(file)?.parent;
            if parent == file {
                return Ok(false);
            }
            file = parent;
        }
        Err(StoreError::new(StoreErrorKind::Corrupt, "a directory is its own ancestor"))
    }

    pub(crate) fn read_directory(
        &self,
        directory: u64,
        cursor: &DirectoryCursor,
        limit: usize,
    ) -> Result<DirectoryPage, StoreError> {
        if limit == 0 {
            return Err(StoreError::new(StoreErrorKind::InvalidArgument, "a page of no entries"));
        }
        self.directory(directory)?;
        let after = String::from_utf8_lossy(&cursor.0).into_owned();
        let table = self.txn.open_table(ENTRIES).map_err(database_error)?;
        let rows = table.range((directory, after.as_str())..).map_err(database_error)?;
        let mut page = DirectoryPage { entries: Vec::new(), next: None };
        let mut last = after.clone();
        for row in rows {
            let (key, value) = row.map_err(database_error)?;
            let (of, name) = key.value();
            if of != directory {
                break;
            }
            let name = name.to_owned();
            if name == after {
                continue;
            }
            if page.entries.len() == limit {
                page.next = Some(DirectoryCursor(last.into_bytes()));
                return Ok(page);
            }
            let entry = Entry::decode(value.value())
                .map_err(|error| corrupt(&format!("the entry of {name}"), error))?;
            let kind = if entry.directory { FileKind::Directory } else { FileKind::File };
            page.entries.push(DirectoryEntry { name: entry.name, file: FileId(entry.file), kind });
            last = name;
        }
        Ok(page)
    }

    /// What the database knows of a file, but for the space that it takes; streams in memory may know more.
    pub(crate) fn info(&self, file: u64) -> Result<FileInfo, StoreError> {
        let inode = self.inode(file)?;
        let info = info_of(file, &inode);
        Ok(FileInfo { names: if self.is_orphan(file)? { 0 } else { info.names }, ..info })
    }

    /// Space that a stream takes in the database, in bytes.
    pub(crate) fn allocated(&self, stream: StreamKey) -> Result<u64, StoreError> {
        let counts = self.extents(stream)?.into_iter().map(|extent| extent.count);
        Ok(counts.fold(0u64, u64::saturating_add).saturating_mul(CLUSTER))
    }

    /// As [`Session::set_info`], for who has not made sure that nobody keeps the file as it is.
    pub(crate) fn set_info_of_kept(
        &mut self,
        core: &Core,
        file: u64,
        change: InfoChange,
        now: u64,
    ) -> Result<(), StoreError> {
        let before = Attributes(self.inode(file)?.attributes);
        if change.attributes.is_some_and(|attributes| attributes.makes_read_only(before)) {
            core.registry.lock().check_delete(file)?;
        }
        self.set_info(file, change, now)
    }

    pub(crate) fn set_info(&mut self, file: u64, change: InfoChange, now: u64) -> Result<(), StoreError> {
        let mut inode = self.changeable(file)?;
        if let Some(attributes) = change.attributes {
            inode.attributes = attributes.0;
        }
        let times = [change.created, change.accessed, change.written, change.changed.or(Some(now))];
        for (time, new) in inode.times.iter_mut().zip(times) {
            *time = new.unwrap_or(*time);
        }
        let stored = self.put_inode(file, &inode);
        self.fatal(stored)
    }

    /// Stores what a stream knows: its size, and when data was last written (0 if that is known). A stream that
    /// was removed has nothing to store.
    pub(crate) fn save_stream(
        &mut self,
        (file, stream): StreamKey,
        size: u64,
        written: u64,
    ) -> Result<(), StoreError> {
        if !self.has_inode(file)? {
            return Ok(());
        }
        let mut inode = self.inode(file)?;
        let Some(record) = inode.streams.iter_mut().find(|record| record.id == stream) else {
            return Ok(());
        };
        record.size = size;
        if written > 0 {
            note_write(&mut inode, written);
        }
        self.put_inode(file, &inode)
    }

    /// Stores how long a stream has become, if that is longer than what is stored, and when it was written; whether it is now.
    pub(crate) fn save_growth(
        &mut self,
        key: StreamKey,
        size: u64,
        written: u64,
    ) -> Result<bool, StoreError> {
        if !self.has_inode(key.0)? {
            return Ok(false);
        }
        let streams = self.inode(key.0)?.streams;
        if !streams.iter().any(|record| record.id == key.1 && record.size < size) {
            return Ok(false);
        }
        self.save_stream(key, size, written).map(|()| true)
    }

    /// Stores when a stream of a file was last written, and not how long it is.
    pub(crate) fn save_written(&mut self, file: u64, written: u64) -> Result<(), StoreError> {
        // Removed, and in use still, or written to by nobody after all.
        if written == 0 || !self.has_inode(file)? {
            return Ok(());
        }
        let mut inode = self.inode(file)?;
        note_write(&mut inode, written);
        self.put_inode(file, &inode)
    }
}

/// A file was written: that is when it changed, too. That becomes known late, and of several streams in any order: what is later
/// stays. A time of writing after that of the last change is one that somebody has set, and goes with the next write.
fn note_write(inode: &mut Inode, written: u64) {
    let [_, _, before, changed] = &mut inode.times;
    *before = if *before > *changed { written } else { written.max(*before) };
    *changed = written.max(*changed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_time_of_writing_and_of_changing_stays() {
        let mut inode = Inode { times: [1, 1, 10, 40], ..Inode::default() };
        note_write(&mut inode, 30);
        assert_eq!(inode.times, [1, 1, 30, 40], "it has got another name since");
        note_write(&mut inode, 20);
        assert_eq!(inode.times, [1, 1, 30, 40], "another stream was written earlier, and saved later");
        note_write(&mut inode, 50);
        assert_eq!(inode.times, [1, 1, 50, 50]);
        inode.times = [1, 1, 900, 60];
        note_write(&mut inode, 70);
        assert_eq!(inode.times, [1, 1, 70, 70], "somebody has set it to a time to come");
    }
}
