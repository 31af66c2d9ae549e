//! What a repair changes.

use std::collections::BTreeMap;

use file_store::{Attributes, FileKind, NewFile, StoreError};
use redb::ReadableTable;
use volume_format::{CLUSTER, Entry, Inode, StreamRecord};

use super::Examination;
use super::names::recovered;
use crate::database_error::database_error;
use crate::extents::Extent;
use crate::session::Session;
use crate::tables::{COUNTERS, ENTRIES, NEXT_FILE, ORPHANS, ROOT, StreamKey};

/// The directory that takes what has lost its name.
const LOST_AND_FOUND: &str = "lost+found";

impl Session<'_> {
    /// Where the space of a stream ends, in bytes.
    pub(super) fn end_of_space(&self, stream: StreamKey) -> Result<u64, StoreError> {
        let end = self.extents(stream)?.last().map_or(0, Extent::end);
        Ok(end.saturating_mul(CLUSTER).min(file_store::FILE_SIZE_MAX / CLUSTER * CLUSTER))
    }

    /// Whether a file has no extents.
    pub(super) fn end_of_file(&self, file: u64) -> Result<bool, StoreError> {
        Ok(self.streams_with_space(file)?.is_empty())
    }
}

impl Examination<'_, '_> {
    pub(super) fn put_inode(&mut self, file: u64, inode: Inode) -> Result<(), StoreError> {
        self.session.put_inode(file, &inode)?;
        self.inodes.insert(file, inode);
        Ok(())
    }

    pub(super) fn put_entry(&mut self, directory: u64, entry: &Entry) -> Result<(), StoreError> {
        let mut table = self.session.txn.open_table(ENTRIES).map_err(database_error)?;
        let key = self.key_of(&entry.name);
        table.insert((directory, key.as_str()), entry.encode().as_slice()).map_err(database_error)?;
        Ok(())
    }

    /// Removes an entry by its key, when repairing.
    pub(super) fn remove_entry(&mut self, directory: u64, key: &str) -> Result<(), StoreError> {
        if self.repair {
            let mut table = self.session.txn.open_table(ENTRIES).map_err(database_error)?;
            table.remove((directory, key)).map_err(database_error)?;
        }
        Ok(())
    }

    pub(super) fn forget_orphan(&mut self, file: u64) -> Result<(), StoreError> {
        self.orphans.remove(&file);
        let mut table = self.session.txn.open_table(ORPHANS).map_err(database_error)?;
        table.remove(file).map_err(database_error)?;
        Ok(())
    }

    /// The entry that names a file, by a look at all of them.
    pub(super) fn entry_of(&self, file: u64) -> Result<Option<(u64, Entry)>, StoreError> {
        let table = self.session.txn.open_table(ENTRIES).map_err(database_error)?;
        for row in table.iter().map_err(database_error)? {
            let (key, value) = row.map_err(database_error)?;
            if let Ok(entry) = Entry::decode(value.value())
                && entry.file == file
            {
                return Ok(Some((key.value().0, entry)));
            }
        }
        Ok(None)
    }

    /// A new record for a file whose own cannot be read or is gone: its streams are those that have space.
    pub(super) fn recover_inode(&mut self, file: u64, known: Option<(u64, Entry)>) -> Result<(), StoreError> {
        let ids = self.session.streams_with_space(file)?;
        let is_root = file == ROOT;
        // What has names in it is a directory, whatever is said elsewhere.
        let has_names = !self.session.is_empty(file)?;
        let directory = is_root || has_names || known.as_ref().is_some_and(|(_, entry)| entry.directory);
        let mut streams = BTreeMap::new();
        if !directory {
            streams.insert(0, StreamRecord::default());
        }
        for id in ids.into_iter().filter(|id| *id != 0 || !directory) {
            let size = self.session.end_of_space((file, id))?;
            streams.insert(id, StreamRecord { id, name: recovered(id), size });
        }
        let next_stream = streams.keys().max().copied().unwrap_or(0).saturating_add(1);
        let (parent, name) = known.map_or((ROOT, String::new()), |(parent, entry)| (parent, entry.name));
        let inode = Inode {
            directory,
            frozen: false,
            parent: if is_root { ROOT } else { parent },
            name: if is_root { String::new() } else { name },
            attributes: 0,
            times: [self.now; 4],
            next_stream,
            streams: streams.into_values().collect(),
            others: Vec::new(),
        };
        self.put_inode(file, inode)
    }

    /// Puts a file under a name made of its number into the directory for lost files, when repairing.
    pub(super) fn rescue(&mut self, file: u64) -> Result<(), StoreError> {
        if !self.repair {
            return Ok(());
        }
        let directory = self.lost_and_found()?;
        let Some(inode) = self.inodes.get(&file).cloned() else { return Ok(()) };
        let kind = if inode.directory { "directory" } else { "file" };
        let mut name = format!("{kind}-{file}");
        // Taken only by somebody who made it on purpose.
        for number in 2.. {
            if self.session.find(directory, &name)?.is_none_or(|entry| entry.file == file) {
                break;
            }
            name = format!("{kind}-{file}-{number}");
        }
        self.put_entry(directory, &Entry { file, directory: inode.directory, name: name.clone() })?;
        // Not a snapshot's any more: whoever finds it there can move and remove it.
        self.put_inode(file, Inode { parent: directory, name, frozen: false, others: Vec::new(), ..inode })
    }

    fn lost_and_found(&mut self) -> Result<u64, StoreError> {
        if let Some(directory) = self.lost_and_found {
            return Ok(directory);
        }
        let mut name = LOST_AND_FOUND.to_owned();
        for number in 2.. {
            match self.session.find(ROOT, &name)? {
                Some(entry)
                    if self
                        .inodes
                        .get(&entry.file)
                        .is_some_and(|inode| inode.directory && !inode.frozen && inode.parent == ROOT)
                        && !self.orphans.contains(&entry.file) =>
                {
                    self.lost_and_found = Some(entry.file);
                    return Ok(entry.file);
                }
                Some(_) => name = format!("{LOST_AND_FOUND}-{number}"),
                None => break,
            }
        }
        let new =
            NewFile { kind: FileKind::Directory, attributes: Attributes::default(), security: Vec::new() };
        let made = self.session.create(ROOT, &name, &new, self.now)?;
        let inode = self.session.inode(made)?;
        self.inodes.insert(made, inode);
        let root = self.session.inode(ROOT)?;
        self.inodes.insert(ROOT, root);
        self.lost_and_found = Some(made);
        Ok(made)
    }

    /// A new, nameless file for clusters that cannot stay where they are, to be rescued.
    pub(super) fn new_file(&mut self) -> Result<u64, StoreError> {
        self.lost_and_found()?;
        let mut counters = self.session.txn.open_table(COUNTERS).map_err(database_error)?;
        let file = counters.get(NEXT_FILE).map_err(database_error)?.map_or(ROOT + 1, |row| row.value());
        counters.insert(NEXT_FILE, file.saturating_add(1)).map_err(database_error)?;
        Ok(file)
    }
}
