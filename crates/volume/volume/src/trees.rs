//! Copies of files and trees at one point in time, inside a transaction: the substance of snapshots and clones.
//!
//! Records, names and descriptors are copied; data is linked (`links.rs`), so a file costs some rows, whatever its size.

use std::collections::BTreeMap;

use file_store::{StoreError, StoreErrorKind, TREE_MAX};
use redb::{ReadableTable, ReadableTableMetadata};
use volume_format::{Entry, Inode, OtherName};

use crate::clusters::ROW;
use crate::core::Core;
use crate::costs::{ROW_OF_FILE, bytes_of_name};
use crate::database_error::database_error;
use crate::extents::END;
use crate::namespace::DEPTH_MAX;
use crate::session::Session;
use crate::tables::{ENTRIES, INODES, LINKS, SECURITY, StreamKey};

/// A file or directory to be copied.
struct Copied {
    file: u64,
    inode: Inode,
    /// Its names among the copied, each with the place of its directory there; of the first, its name alone.
    names: Vec<(usize, String)>,
}

impl Copied {
    /// Which of the source's names this one is: copies have them in the same order.
    fn order(&self, directory: u64, name: &str) -> usize {
        let others =
            self.inode.others.iter().position(|other| other.parent == directory && other.name == name);
        others.map_or(0, |at| at + 1)
    }
}

/// Where a copy goes.
pub(crate) enum Place<'a> {
    /// Nowhere: it is the root of a snapshot.
    Snapshot,
    /// A directory, under a name.
    Directory(u64, &'a str),
}

impl Session<'_> {
    /// All of a tree, directories before what is in them. Everything is read here, so that damage is met before
    /// anything is written.
    fn tree(&self, core: &Core, root: u64) -> Result<Vec<Copied>, StoreError> {
        let inode = self.known_inode(core, root)?;
        let mut all = vec![Copied { file: root, names: vec![(0, inode.name.clone())], inode }];
        let mut seen = BTreeMap::from([(root, 0)]);
        let (mut at, mut names) = (0, 0);
        while let Some(Copied { file, inode, .. }) = all.get(at) {
            let directory = *file;
            if inode.directory {
                for entry in self.entries(directory)? {
                    names += 1;
                    if let Some(known) = seen.get(&entry.file).and_then(|place: &usize| all.get_mut(*place)) {
                        if known.names.len() > known.inode.others.len() || known.inode.directory {
                            let detail = format!(
                                "file {} is in directory {directory} once too often; `volume check` says more",
                                entry.file
                            );
                            return Err(StoreError::new(StoreErrorKind::Corrupt, detail));
                        }
                        known.names.push((at, entry.name));
                        continue;
                    }
                    seen.insert(entry.file, all.len());
                    let inode = self.known_inode(core, entry.file)?;
                    all.push(Copied { file: entry.file, inode, names: vec![(at, entry.name)] });
                }
                if names > TREE_MAX {
                    let detail = format!("there are more than {TREE_MAX} files; take directories one by one");
                    return Err(StoreError::new(StoreErrorKind::InvalidArgument, detail));
                }
            }
            at += 1;
        }
        let directories: Vec<u64> = all.iter().map(|copied| copied.file).collect();
        for copied in all.iter_mut().filter(|copied| copied.names.len() > 1) {
            let mut names = std::mem::take(&mut copied.names);
            let of = |place: usize| directories.get(place).copied().unwrap_or_default();
            names.sort_by_key(|(place, name)| copied.order(of(*place), name));
            copied.names = names;
        }
        Ok(all)
    }

    /// The record of a file with what its streams in memory know better.
    fn known_inode(&self, core: &Core, file: u64) -> Result<Inode, StoreError> {
        let mut inode = self.inode(file)?;
        for record in &mut inode.streams {
            if let Some(known) = core.known((file, record.id)) {
                record.size = known.size;
                inode.times[2] = if known.written > 0 { known.written } else { inode.times[2] };
                inode.times[3] = inode.times[3].max(known.written);
            }
        }
        Ok(inode)
    }

    /// What is in a directory.
    pub(crate) fn entries(&self, directory: u64) -> Result<Vec<Entry>, StoreError> {
        let table = self.txn.open_table(ENTRIES).map_err(database_error)?;
        let mut entries = Vec::new();
        for row in table.range((directory, "")..).map_err(database_error)? {
            let (key, value) = row.map_err(database_error)?;
            if key.value().0 != directory {
                break;
            }
            let entry = Entry::decode(value.value()).map_err(|error| {
                let detail = format!("an entry of directory {directory} {error}");
                StoreError::new(StoreErrorKind::Corrupt, detail)
            })?;
            entries.push(entry);
            if entries.len() > TREE_MAX {
                break;
            }
        }
        Ok(entries)
    }

    /// Copies a file or tree, once `place` is known to be free; the copy's number. The caller holds the pause, and has
    /// made durable what is volatile.
    pub(crate) fn copy_tree(
        &mut self,
        core: &Core,
        source: u64,
        place: &Place<'_>,
        now: u64,
    ) -> Result<u64, StoreError> {
        if self.is_orphan(source)? {
            return Err(StoreError::new(StoreErrorKind::NotFound, "the file was removed"));
        }
        if self.inode(source)?.frozen && !self.is_in_snapshot(source)? {
            // A part of it may be gone already; what is left is not what was there.
            return Err(StoreError::new(StoreErrorKind::NotFound, "its snapshot is being deleted"));
        }
        let tree = self.tree(core, source)?;
        self.spend_on(&tree)?;
        if let Place::Directory(..) = place {
            self.may_copy(tree.iter().map(|copied| copied.file))?;
        }
        self.changed = true;
        let copied = self.copy_all(core, tree, place, now);
        self.fatal(copied)
    }

    /// Room for the copy of a tree. As many links as there are in all are more than those of the tree; only if there is no
    /// room for so many are they counted.
    fn spend_on(&mut self, tree: &[Copied]) -> Result<(), StoreError> {
        let names = tree.iter().flat_map(|copied| &copied.names);
        let names: u64 = names.map(|(_, name)| ROW_OF_FILE + bytes_of_name(name)).sum();
        let streams = tree.iter().flat_map(|copied| &copied.inode.streams);
        let streams: u64 = streams.map(|stream| stream.name.len() as u64).sum();
        let files = names.saturating_add(streams).saturating_add(self.descriptors(tree)?);
        let links = self.txn.open_table(LINKS).map_err(database_error)?.len().map_err(database_error)?;
        let rows = |links: u64| 4 * ROW * (links + tree.len() as u64);
        if self.spend_to_make(files.saturating_add(rows(links))).is_ok() {
            return Ok(());
        }
        let mut links = 0;
        for Copied { file, inode, .. } in tree {
            for stream in &inode.streams {
                links += self.links((*file, stream.id), 0, END)?.len() as u64;
            }
        }
        self.spend_to_make(files.saturating_add(rows(links)))
    }

    /// Bytes that the security descriptors of a tree have.
    fn descriptors(&self, tree: &[Copied]) -> Result<u64, StoreError> {
        let table = self.txn.open_table(SECURITY).map_err(database_error)?;
        let mut bytes = 0;
        for Copied { file, .. } in tree {
            bytes += table.get(file).map_err(database_error)?.map_or(0, |row| row.value().len() as u64);
        }
        Ok(bytes)
    }

    /// Whether a frozen file belongs to a snapshot that nobody has deleted.
    fn is_in_snapshot(&self, file: u64) -> Result<bool, StoreError> {
        let mut top = file;
        for _ in 0..DEPTH_MAX {
            let parent = self.inode(top)?.parent;
            if parent == top {
                let rows = self.snapshot_rows()?;
                return Ok(rows.iter().any(|(_, record)| record.root == top && !record.deleted));
            }
            top = parent;
        }
        Err(StoreError::new(StoreErrorKind::Corrupt, "the directories of a snapshot lead in a circle"))
    }

    fn copy_all(
        &mut self,
        core: &Core,
        tree: Vec<Copied>,
        place: &Place<'_>,
        now: u64,
    ) -> Result<u64, StoreError> {
        let frozen = matches!(place, Place::Snapshot);
        // All of them first: a file may have a name in a directory that comes behind it.
        let numbers = tree.iter().map(|_| self.new_number()).collect::<Result<Vec<u64>, _>>()?;
        for ((at, Copied { file, inode, names }), &number) in tree.into_iter().enumerate().zip(&numbers) {
            let mut names = names.into_iter().map(|(parent, name)| OtherName {
                parent: numbers.get(parent).copied().unwrap_or(number),
                name,
            });
            let first = match place {
                Place::Snapshot if at == 0 => OtherName { parent: number, name: inode.name.clone() },
                Place::Directory(directory, name) if at == 0 => {
                    OtherName { parent: *directory, name: (*name).to_owned() }
                }
                _ => names.next().unwrap_or_default(),
            };
            // Names outside of what is copied stay the source's.
            let others: Vec<OtherName> = if at == 0 { Vec::new() } else { names.collect() };
            let streams: Vec<u32> = inode.streams.iter().map(|record| record.id).collect();
            let directory = inode.directory;
            let copy = Inode {
                frozen,
                parent: first.parent,
                name: first.name.clone(),
                others: others.clone(),
                ..inode
            };
            {
                let mut table = self.txn.open_table(INODES).map_err(database_error)?;
                table.insert(number, copy.encode().as_slice()).map_err(database_error)?;
            }
            for OtherName { parent, name } in std::iter::once(first).chain(others) {
                if parent != number {
                    self.put_entry(parent, &Entry { file: number, directory, name })?;
                }
            }
            self.copy_security(file, number)?;
            for stream in streams {
                self.copy_stream(core, (file, stream), (number, stream))?;
            }
        }
        let Some(root) = numbers.first().copied() else {
            return Err(StoreError::new(StoreErrorKind::NotFound, "there is nothing to copy"));
        };
        if let Place::Directory(directory, _) = place {
            self.touch_directory(*directory, now)?;
        }
        Ok(root)
    }

    fn copy_stream(&mut self, core: &Core, from: StreamKey, to: StreamKey) -> Result<(), StoreError> {
        let (stream, left) = {
            let mut registry = core.registry.lock();
            (registry.stream(from).cloned(), registry.take_leftover(from))
        };
        // What was mapped ahead of a writer is no data, and both would have it for good.
        match (&stream, left) {
            (Some(stream), _) => self.give_up_ahead(stream)?,
            (None, Some(left)) => self.give_back_ahead(core, from, &left)?,
            (None, None) => {}
        }
        self.link(from, to, 0, END)?;
        // Nothing is written now, and before the pause ends it must be known that others have these clusters. Should
        // the transaction fail, the volume stops.
        if let Some(stream) = stream {
            stream.map.write().share(0, END);
        }
        Ok(())
    }

    fn copy_security(&mut self, from: u64, to: u64) -> Result<(), StoreError> {
        let mut table = self.txn.open_table(SECURITY).map_err(database_error)?;
        let row = table.get(from).map_err(database_error)?.map(|row| row.value().to_vec());
        if let Some(descriptor) = row {
            table.insert(to, descriptor.as_slice()).map_err(database_error)?;
        }
        Ok(())
    }
}
