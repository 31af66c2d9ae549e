//! Records of files, streams, names, and how they hang together.

use std::collections::{BTreeMap, BTreeSet};

use file_store::names::{check as check_name, fold};
use file_store::{FILE_SIZE_MAX, SECURITY_MAX, StoreError};
use redb::ReadableTable;
use volume_format::{DecodeError, Entry, Inode, OtherName, SnapshotRecord};

use super::Examination;
use crate::database_error::database_error;
use crate::finding::Severity;
use crate::tables::{ENTRIES, INODES, ORPHANS, ROOT, SECURITY, SNAPSHOTS};

const INODE: &str = "file record";
const STREAM: &str = "stream record";
const ENTRY: &str = "directory entry";
const SNAPSHOT: &str = "snapshot";
const TO_LOST: &str = "it goes to /lost+found";

impl Examination<'_, '_> {
    /// Every record can be read, and the root is a directory.
    pub(super) fn inodes(&mut self) -> Result<(), StoreError> {
        let mut damaged = Vec::new();
        {
            let orphans = self.session.txn.open_table(ORPHANS).map_err(database_error)?;
            for row in orphans.iter().map_err(database_error)? {
                self.orphans.insert(row.map_err(database_error)?.0.value());
            }
            let table = self.session.txn.open_table(INODES).map_err(database_error)?;
            for row in table.iter().map_err(database_error)? {
                let (file, value) = row.map_err(database_error)?;
                match Inode::decode(value.value()) {
                    Ok(inode) => drop(self.inodes.insert(file.value(), inode)),
                    Err(error) => damaged.push((file.value(), error)),
                }
            }
        }
        self.snapshots()?;
        if self.orphans.contains(&ROOT) {
            let detail = "is in the list of removed files and would be deleted";
            self.note(
                Severity::Critical,
                INODE,
                format!("file {ROOT} (/)"),
                detail,
                Some("it is taken off that list"),
            );
            self.orphans.remove(&ROOT);
            if self.repair {
                self.forget_orphan(ROOT)?;
            }
        }
        if damaged.iter().any(|(_, error)| matches!(error, DecodeError::Unsupported(_))) {
            // Pages have checksums, so somebody wrote this. What else is here may be of that kind, too.
            for (file, error) in damaged {
                let place = format!("file {file}");
                self.note(Severity::Critical, INODE, place, format!("cannot be read: {error}"), None);
            }
            self.newer = true;
            return Ok(());
        }
        for (file, error) in damaged {
            let (known, place) = match self.entry_of(file)? {
                Some((directory, entry)) => {
                    let place = format!("file {file}, named {} in directory {directory}", entry.name);
                    (Some((directory, entry)), place)
                }
                None => (None, format!("file {file}")),
            };
            let how = "it is made anew from what else is known: the size of each stream becomes the end of its space; \
                       times, attributes and names of streams are lost";
            self.note(Severity::Critical, INODE, place, format!("cannot be read: {error}"), Some(how));
            if self.repair {
                self.recover_inode(file, known)?;
            }
        }
        if !self.inodes.get(&ROOT).is_some_and(|root| root.directory) {
            let place = format!("file {ROOT} (/)");
            let how = Some("it is made anew; what is in it is found by its names");
            self.note(Severity::Critical, INODE, place, "there is no root directory", how);
            if self.repair {
                let root = Inode {
                    directory: true,
                    parent: ROOT,
                    times: [self.now; 4],
                    next_stream: 1,
                    ..Inode::default()
                };
                self.put_inode(ROOT, root)?;
            }
        }
        if let Some(root) = self.inodes.get(&ROOT).filter(|root| root.frozen).cloned() {
            let how = Some("it becomes one that can be changed");
            self.note(Severity::Error, INODE, format!("file {ROOT} (/)"), "belongs to a snapshot", how);
            if self.repair {
                self.put_inode(ROOT, Inode { frozen: false, ..root })?;
            }
        }
        Ok(())
    }

    /// The streams of each file can be told apart, and are not larger than files can be.
    pub(super) fn streams(&mut self) -> Result<(), StoreError> {
        let files: Vec<u64> = self.inodes.keys().copied().collect();
        for file in files {
            let Some(before) = self.inodes.get(&file).cloned() else { continue };
            let (mut inode, mut wrong) = (before, Vec::new());
            let (mut names, mut ids) = (BTreeSet::new(), BTreeSet::new());
            let directory = inode.directory;
            inode.streams.retain(|stream| {
                let first = ids.insert(stream.id);
                if !first {
                    wrong.push((stream.id, "has two records", "the second one is removed"));
                }
                first && !(stream.id == 0 && directory)
            });
            for stream in &mut inode.streams {
                let id = stream.id;
                let bad = if id == 0 { !stream.name.is_empty() } else { check_name(&stream.name).is_err() };
                if bad {
                    wrong.push((id, "has a name that cannot be", "it is renamed after its number"));
                    stream.name = recovered(id);
                }
                if !names.insert(fold(&stream.name)) {
                    wrong.push((id, "has the name of another one", "it is renamed after its number"));
                    stream.name = recovered(id);
                }
                if stream.size > FILE_SIZE_MAX {
                    let how = "it becomes the end of its space";
                    wrong.push((id, "has a size that cannot be", how));
                    stream.size = self.session.end_of_space((file, id))?;
                }
            }
            if !directory && !ids.contains(&0) {
                wrong.push((0, "is missing", "it is made anew, as long as its space"));
                let size = self.session.end_of_space((file, 0))?;
                inode.streams.insert(0, volume_format::StreamRecord { id: 0, name: String::new(), size });
            }
            let last = inode.streams.iter().map(|stream| stream.id).max().unwrap_or(0);
            if inode.next_stream <= last {
                wrong.push((
                    last,
                    "has a number that will be given out again",
                    "the next number is corrected",
                ));
                inode.next_stream = last.saturating_add(1);
            }
            if wrong.is_empty() {
                continue;
            }
            let name = self.name_of(file);
            for (id, detail, how) in wrong {
                self.note(Severity::Error, STREAM, format!("{name}, stream {id}"), detail, Some(how));
            }
            if self.repair {
                self.put_inode(file, inode)?;
            }
        }
        Ok(())
    }

    /// Every entry leads from a directory to a file that says the same.
    pub(super) fn entries(&mut self) -> Result<(), StoreError> {
        let rows = self.entry_rows()?;
        // Each file's entry, by its key.
        let mut named = Named::default();
        for (directory, key, entry) in rows {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    let place = format!("{key} in {}", self.name_of(directory));
                    let how = Some("it is removed; its file goes to /lost+found");
                    self.note(Severity::Critical, ENTRY, place, format!("cannot be read: {error}"), how);
                    self.remove_entry(directory, &key)?;
                    continue;
                }
            };
            self.entry(directory, key, entry, &mut named)?;
        }
        self.other_names(&mut named)?;
        let nameless: Vec<u64> = self
            .inodes
            .keys()
            .filter(|file| **file != ROOT && !self.roots.contains(file))
            .filter(|file| !named.first.contains_key(file) && !self.orphans.contains(file))
            .copied()
            .collect();
        for file in nameless {
            self.note(Severity::Critical, ENTRY, self.name_of(file), "the file has no name", Some(TO_LOST));
            self.rescue(file)?;
        }
        Ok(())
    }

    fn entry_rows(&self) -> Result<Vec<EntryRow>, StoreError> {
        let table = self.session.txn.open_table(ENTRIES).map_err(database_error)?;
        let rows = table.iter().map_err(database_error)?.map(|row| {
            let (key, value) = row.map_err(database_error)?;
            let (directory, name) = key.value();
            let entry = Entry::decode(value.value()).map_err(|error| error.to_string());
            Ok((directory, name.to_owned(), entry))
        });
        rows.collect()
    }

    fn entry(
        &mut self,
        directory: u64,
        key: String,
        entry: Entry,
        named: &mut Named,
    ) -> Result<(), StoreError> {
        let file = entry.file;
        let place = format!("{} in {}", entry.name, self.name_of(directory));
        let removed = Some("it is removed; a file that has no other name goes to /lost+found");
        if !self.inodes.get(&directory).is_some_and(|inode| inode.directory) {
            self.note(Severity::Critical, ENTRY, place, format!("{directory} is no directory"), removed);
            return self.remove_entry(directory, &key);
        }
        let Some(inode) = self.inodes.get(&file).cloned() else {
            let detail = format!("names file {file}, which does not exist");
            self.note(Severity::Critical, ENTRY, place, detail, Some("it is removed"));
            return self.remove_entry(directory, &key);
        };
        if self.orphans.contains(&directory) {
            self.note(Severity::Critical, ENTRY, place, "is in a directory that was removed", removed);
            return self.remove_entry(directory, &key);
        }
        if file == ROOT || check_name(&entry.name).is_err() {
            let detail = if file == ROOT { "names the root" } else { "is no name that can be" };
            self.note(Severity::Critical, ENTRY, place, detail, removed);
            return self.remove_entry(directory, &key);
        }
        if !self.is_key(&entry.name, &key) {
            let detail = format!("is filed under {key}, where nobody looks for it");
            self.note(Severity::Critical, ENTRY, place, detail, removed);
            return self.remove_entry(directory, &key);
        }
        let agrees = inode.parent == directory && self.is_key(&inode.name, &key);
        let other_name = inode
            .others
            .iter()
            .position(|other| other.parent == directory && self.is_key(&other.name, &key))
            .filter(|_| !agrees);
        if let Some(other) = other_name {
            named.others.entry(file).or_default().insert(other);
        } else if let Some((other, other_key)) = named.first.get(&file).cloned() {
            let detail = format!("is a second name of file {file}, beside {other_key} in directory {other}");
            let how = Some("the name that the file's own record does not have is removed");
            self.note(Severity::Critical, ENTRY, place.clone(), detail, how);
            if !agrees {
                return self.remove_entry(directory, &key);
            }
            self.remove_entry(other, &other_key)?;
        }
        if self.orphans.contains(&file) {
            let detail =
                format!("names file {file}, which is in the list of removed files and would be deleted");
            self.note(Severity::Critical, ENTRY, place, detail, Some("the file is taken off that list"));
            if self.repair {
                self.forget_orphan(file)?;
            }
        }
        if inode.directory != entry.directory {
            let place = format!("{} in {}", entry.name, self.name_of(directory));
            let detail = format!("and the record of file {file} disagree on whether it is a directory");
            self.note(Severity::Critical, ENTRY, place, detail, Some("the record counts"));
            if self.repair {
                self.put_entry(directory, &Entry { directory: inode.directory, ..entry.clone() })?;
            }
        }
        let known = match other_name.and_then(|at| inode.others.get(at)) {
            Some(other) => (other.parent, other.name.as_str()),
            None => (inode.parent, inode.name.as_str()),
        };
        if known != (directory, entry.name.as_str()) {
            let place = format!("file {file}, {} in {}", entry.name, self.name_of(directory));
            let detail = format!("says it is {} in directory {}", known.1, known.0);
            self.note(Severity::Error, INODE, place, detail, Some("it takes over what the directory says"));
            if self.repair {
                let mut inode = inode.clone();
                match other_name.and_then(|at| inode.others.get_mut(at)) {
                    Some(other) => other.name = entry.name,
                    None => (inode.parent, inode.name) = (directory, entry.name),
                }
                self.put_inode(file, inode)?;
            }
        }
        if other_name.is_none() {
            named.first.insert(file, (directory, key));
        }
        let frozen = self.inodes.get(&directory).is_some_and(|above| above.frozen);
        if let Some(inode) = self.inodes.get(&file).filter(|inode| inode.frozen != frozen).cloned() {
            let detail = "and its directory disagree on whether they belong to a snapshot";
            self.note(Severity::Error, INODE, self.name_of(file), detail, Some("the directory counts"));
            if self.repair {
                self.put_inode(file, Inode { frozen, ..inode })?;
            }
        }
        Ok(())
    }

    /// The names that a record has beside the first one are there, and the first one is if one of them is.
    fn other_names(&mut self, named: &mut Named) -> Result<(), StoreError> {
        let linked: Vec<u64> =
            self.inodes.iter().filter(|(_, inode)| !inode.others.is_empty()).map(|(file, _)| *file).collect();
        for file in linked {
            let Some(inode) = self.inodes.get(&file).cloned() else { continue };
            let found = named.others.remove(&file).unwrap_or_default();
            let (all, has_first) = (inode.others.len(), named.first.contains_key(&file));
            if found.len() == all && has_first {
                continue;
            }
            if found.is_empty() && !has_first {
                // It has no name at all: told, and put right, with those that have none.
                continue;
            }
            let place = self.name_of(file);
            let there = found.len() + usize::from(has_first);
            let detail = format!("says it has {} names (hard links), of which {there} are there", all + 1);
            self.note(Severity::Error, INODE, place, detail, Some("it keeps those that are there"));
            let mut others: Vec<OtherName> =
                found.iter().filter_map(|at| inode.others.get(*at)).cloned().collect();
            let mut first = OtherName { parent: inode.parent, name: inode.name.clone() };
            if !has_first {
                first = others.remove(0);
                named.first.insert(file, (first.parent, fold(&first.name)));
            }
            if self.repair {
                self.put_inode(file, Inode { parent: first.parent, name: first.name, others, ..inode })?;
            }
        }
        Ok(())
    }

    /// Every snapshot leads to something that is frozen.
    fn snapshots(&mut self) -> Result<(), StoreError> {
        let mut rows = Vec::new();
        {
            let table = self.session.txn.open_table(SNAPSHOTS).map_err(database_error)?;
            for row in table.iter().map_err(database_error)? {
                let (id, value) = row.map_err(database_error)?;
                rows.push((id.value(), SnapshotRecord::decode(value.value())));
            }
        }
        for (id, record) in rows {
            let place = format!("snapshot {id}");
            let detail = match record {
                Err(DecodeError::Unsupported(version)) => {
                    let detail = format!("cannot be read: version {version} is not known");
                    self.note(Severity::Critical, SNAPSHOT, place, detail, None);
                    self.newer = true;
                    continue;
                }
                Err(error) => format!("cannot be read: {error}"),
                Ok(record) => match self.inodes.get(&record.root) {
                    None => format!("{} leads to file {}, which does not exist", record.name, record.root),
                    Some(inode) if !inode.frozen || inode.parent != record.root => {
                        format!("{} leads to file {}, which is no snapshot's", record.name, record.root)
                    }
                    Some(_) if !self.roots.insert(record.root) => {
                        format!("{} leads where another one leads", record.name)
                    }
                    Some(_) => continue,
                },
            };
            let how = Some("it is removed; files of it that are there go to /lost+found");
            self.note(Severity::Critical, SNAPSHOT, place, detail, how);
            if self.repair {
                let mut table = self.session.txn.open_table(SNAPSHOTS).map_err(database_error)?;
                table.remove(id).map_err(database_error)?;
            }
        }
        Ok(())
    }

    /// Every directory hangs, over its parents, from the root.
    pub(super) fn reach(&mut self) -> Result<(), StoreError> {
        let mut reached = BTreeSet::from([ROOT]);
        reached.extend(&self.roots);
        let directories: Vec<u64> =
            self.inodes.iter().filter(|(_, inode)| inode.directory).map(|(file, _)| *file).collect();
        for directory in directories {
            let mut path = Vec::new();
            let mut at = directory;
            while !reached.contains(&at) && !path.contains(&at) {
                path.push(at);
                match self.inodes.get(&at) {
                    Some(inode) if !self.orphans.contains(&at) => at = inode.parent,
                    // Removed, or nameless: told elsewhere.
                    _ => break,
                }
            }
            if path.contains(&at) && !self.orphans.contains(&at) && self.inodes.contains_key(&at) {
                let detail = "the directory is its own ancestor, and cannot be reached";
                self.note(Severity::Critical, ENTRY, self.name_of(at), detail, Some(TO_LOST));
                if self.repair {
                    let (parent, name) = self
                        .inodes
                        .get(&at)
                        .map(|inode| (inode.parent, inode.name.clone()))
                        .unwrap_or_default();
                    // Where names are on their way, under either key.
                    for key in [fold(&name), self.key_of(&name)] {
                        self.remove_entry(parent, &key)?;
                    }
                    self.rescue(at)?;
                }
            }
            reached.extend(path);
        }
        Ok(())
    }

    /// Tables beside the records: removed files, security descriptors.
    pub(super) fn side_tables(&mut self) -> Result<(), StoreError> {
        let mut wrong = Vec::new();
        {
            let table = self.session.txn.open_table(SECURITY).map_err(database_error)?;
            for row in table.iter().map_err(database_error)? {
                let (file, value) = row.map_err(database_error)?;
                let (file, len) = (file.value(), value.value().len());
                if !self.inodes.contains_key(&file) {
                    wrong.push((file, "belongs to no file".to_owned(), Some("it is removed")));
                } else if len > SECURITY_MAX {
                    wrong.push((file, format!("has {len} bytes, too many"), None));
                }
            }
        }
        for (file, detail, how) in wrong {
            self.note(Severity::Warning, "security descriptor", self.name_of(file), detail, how);
            if self.repair && how.is_some() {
                let mut table = self.session.txn.open_table(SECURITY).map_err(database_error)?;
                table.remove(file).map_err(database_error)?;
            }
        }
        let empty: Vec<u64> =
            self.orphans.iter().filter(|file| !self.inodes.contains_key(file)).copied().collect();
        for file in empty {
            if self.session.end_of_file(file)? {
                let place = format!("file {file}");
                let detail = "is in the list of removed files, and nothing of it is left";
                self.note(
                    Severity::Warning,
                    "removed files",
                    place,
                    detail,
                    Some("it is taken off the list"),
                );
                if self.repair {
                    self.forget_orphan(file)?;
                }
            }
        }
        Ok(())
    }
}

/// Names that entries have told.
#[derive(Default)]
struct Named {
    /// The one of each file that its record has as the first, or that has to do for it, by directory and key.
    first: BTreeMap<u64, (u64, String)>,
    /// Those that records have besides, by their places there.
    others: BTreeMap<u64, BTreeSet<usize>>,
}

type EntryRow = (u64, String, Result<Entry, String>);

/// The name of a stream whose own is lost.
pub(super) fn recovered(id: u32) -> String {
    match id {
        0 => String::new(),
        id => format!("recovered-{id}"),
    }
}
