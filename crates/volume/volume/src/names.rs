//! Several names of one file (hard links), and new names of streams, inside a transaction.
//!
//! ```text
//!   entries  (7, A.TXT) ─► file 12      inodes  12: parent 7, name a.txt  ─ the first name
//!            (9, B.TXT) ─► file 12                  others: 9, b.txt      ─ the others, in the order in which they came
//! ```
//! Invariants:
//! * Every entry is a name in its file's record, and every name there has its entry; both change in one transaction.
//! * The file becomes an orphan with its last name; before that a name goes, and nothing else.
//! * A record has other names only where the superblock says [`FEATURE_NAMES`]: older releases refuse such a volume.

use std::collections::BTreeSet;
use std::sync::Arc;

use block_device::Durability;
use file_store::names::{check as check_name, fold};
use file_store::{FileId, NAMES_MAX, StoreError, StoreErrorKind};
use volume_format::{Entry, FEATURE_NAMES, Inode, OtherName};

use crate::core::Core;
use crate::costs::{ROW_OF_FILE, bytes_of_name, copy_of};
use crate::session::Session;
use crate::tables::ROOT;
use crate::volume::write_superblocks;

/// What goes with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goes {
    /// The name alone: the file has others.
    Name,
    /// The file; its content later, if it is used.
    File { used: bool },
}

/// Whether a name is the one in a directory, in any case.
fn is_name((parent, name): (u64, &str), directory: u64, wanted: &str) -> bool {
    parent == directory && fold(name) == fold(wanted)
}

/// Takes a name out of a record; the next one becomes the first if it was that. The last one stays.
fn without(inode: &mut Inode, directory: u64, name: &str) {
    let first = is_name((inode.parent, &inode.name), directory, name);
    if first && !inode.others.is_empty() {
        let next = inode.others.remove(0);
        (inode.parent, inode.name) = (next.parent, next.name);
    } else if let Some(at) =
        inode.others.iter().position(|other| is_name((other.parent, &other.name), directory, name))
    {
        inode.others.remove(at);
    }
}

/// Gives a name of a record another place.
pub(crate) fn moved(inode: &mut Inode, (from, old): (u64, &str), (to, new): (u64, &str)) {
    let first = is_name((inode.parent, &inode.name), from, old);
    let other = inode.others.iter_mut().find(|other| is_name((other.parent, &other.name), from, old));
    match other.filter(|_| !first) {
        Some(other) => *other = OtherName { parent: to, name: new.to_owned() },
        None => (inode.parent, inode.name) = (to, new.to_owned()),
    }
}

impl Core {
    /// Says in the superblock, durably, that files may have several names, if it does not yet.
    async fn allow_names(&self) -> Result<(), StoreError> {
        let mut features = self.features.lock().await;
        if *features & FEATURE_NAMES == 0 {
            write_superblocks(&self.device, &self.superblock_with(*features | FEATURE_NAMES)).await?;
            *features |= FEATURE_NAMES;
        }
        Ok(())
    }

    /// Gives a file one more name. The superblock says first that there are such files.
    pub(crate) async fn link(
        self: Arc<Self>,
        file: u64,
        (to, name): (u64, String),
        replace: bool,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let _operation = self.begin()?;
        loop {
            let allowed = *self.features.lock().await & FEATURE_NAMES != 0;
            let (core, name, now) = (Arc::clone(&self), name.clone(), self.clock.wall().0);
            let linked = self.metadata.change_as(durability, move |session| {
                let old = session.check_link(&core, file, (to, &name), replace)?;
                if !allowed {
                    return Ok(false);
                }
                let goes = old.map(|old| {
                    let same = old.file == file;
                    let goes = if same { Goes::Name } else { session.begin_removal(&core, old.file) };
                    (old, goes)
                });
                let linked = session.link_checked(file, (to, &name), goes, now);
                session.fatal(linked)?;
                core.attention.notify_one();
                Ok(true)
            });
            if linked.await? {
                return Ok(());
            }
            self.allow_names().await?;
        }
    }
}

impl Session<'_> {
    /// Whether a file may have one more name; what has that name now.
    fn check_link(
        &mut self,
        core: &Core,
        file: u64,
        (to, name): (u64, &str),
        replace: bool,
    ) -> Result<Option<Entry>, StoreError> {
        let inode = self.inode(file)?;
        if inode.directory {
            let detail = format!("{} is a directory, which has one name", inode.name);
            return Err(StoreError::new(StoreErrorKind::IsADirectory, detail));
        }
        if self.is_orphan(file)? {
            return Err(StoreError::new(StoreErrorKind::NotFound, "the file was removed"));
        }
        self.changeable(file)?;
        self.directory_with_name(to)?;
        let old = self.find(to, name)?;
        if let Some(old) = &old {
            if !replace || old.directory {
                let detail = format!("there is a {} already", old.name);
                return Err(StoreError::new(StoreErrorKind::AlreadyExists, detail));
            }
            core.registry.lock().check_delete(old.file)?;
        }
        if old.as_ref().is_some_and(|old| old.file == file) {
            return Ok(old);
        }
        if inode.others.len() + 1 >= NAMES_MAX {
            let detail = format!("{} has {NAMES_MAX} names, and no file can have more", inode.name);
            return Err(StoreError::new(StoreErrorKind::TooManyNames, detail));
        }
        // Who keeps it can rely on its going with the names that it has.
        core.registry.lock().check_delete(file)?;
        self.spend_to_make(ROW_OF_FILE + bytes_of_name(name) + copy_of(inode.encode().len()))?;
        Ok(old)
    }

    /// Gives a file one more name, once everything is checked. `old` is what had the name, and what goes with it.
    fn link_checked(
        &mut self,
        file: u64,
        (to, name): (u64, &str),
        old: Option<(Entry, Goes)>,
        now: u64,
    ) -> Result<(), StoreError> {
        let same = old.as_ref().is_some_and(|(old, _)| old.file == file);
        if let Some((old, goes)) = old.filter(|_| !same) {
            self.remove(to, &old, goes, now)?;
        }
        let mut inode = self.inode(file)?;
        if same {
            moved(&mut inode, (to, name), (to, name));
        } else {
            inode.others.push(OtherName { parent: to, name: name.to_owned() });
        }
        inode.times[3] = now;
        self.put_inode(file, &inode)?;
        self.put_entry(to, &Entry { file, directory: false, name: name.to_owned() })?;
        self.touch_directory(to, now)
    }

    /// What goes with one of a file's names; those who use the file are told if that is the file.
    pub(crate) fn begin_removal(&self, core: &Core, file: u64) -> Goes {
        // Of a record that cannot be read nothing is known: its file goes with the name, as it always did.
        if self.inode(file).is_ok_and(|inode| !inode.others.is_empty()) {
            return Goes::Name;
        }
        Goes::File { used: core.registry.lock().begin_removal(file) }
    }

    /// Takes a name, whose entry is gone already, out of its file's record.
    pub(crate) fn drop_name(
        &mut self,
        file: u64,
        (directory, name): (u64, &str),
        now: u64,
    ) -> Result<(), StoreError> {
        let mut inode = self.inode(file)?;
        without(&mut inode, directory, name);
        inode.times[3] = now;
        self.put_inode(file, &inode)
    }

    /// The names of a file, the first one first.
    pub(crate) fn names(&self, file: u64) -> Result<Vec<(FileId, String)>, StoreError> {
        let inode = self.inode(file)?;
        if file == ROOT || inode.parent == file || self.is_orphan(file)? {
            return Ok(Vec::new());
        }
        let others = inode.others.into_iter().map(|other| (FileId(other.parent), other.name));
        Ok(std::iter::once((FileId(inode.parent), inode.name)).chain(others).collect())
    }

    /// An error if what is to be moved, or a file below it, is open by someone who does not share deletion: who keeps a file knows
    /// it by its path.
    pub(crate) fn check_moved(&self, core: &Core, entry: &Entry) -> Result<(), StoreError> {
        core.registry.lock().check_delete(entry.file)?;
        if !entry.directory {
            return Ok(());
        }
        let kept = core.registry.lock().kept();
        let mut seen = BTreeSet::new();
        for file in kept {
            for (parent, name) in self.names(file)? {
                if seen.insert(parent.0) && self.is_within(parent.0, entry.file)? {
                    let detail = format!(
                        "{name}, which lies below {}, is open by someone who does not share deletion",
                        entry.name
                    );
                    return Err(StoreError::new(StoreErrorKind::SharingViolation, detail));
                }
            }
        }
        Ok(())
    }

    /// Gives a named stream another name; what it holds stays where it is.
    pub(crate) fn rename_stream(
        &mut self,
        core: &Core,
        file: u64,
        (from, to): (&str, &str),
        replace: bool,
        now: u64,
    ) -> Result<(), StoreError> {
        if from.is_empty() || to.is_empty() {
            let detail = "the unnamed stream is neither renamed nor replaced";
            return Err(StoreError::new(StoreErrorKind::InvalidArgument, detail));
        }
        check_name(to)?;
        let mut inode = self.changeable(file)?;
        let (old, new) = (fold(from), fold(to));
        let place = |folded: &str| inode.streams.iter().position(|s| s.id != 0 && fold(&s.name) == folded);
        let Some(at) = place(&old) else { return Err(Self::no_stream(from)) };
        let target = place(&new).filter(|target| *target != at);
        let mut replaced = None;
        if let Some(target) = target {
            let key = (file, inode.streams[target].id);
            if !replace {
                let detail = format!("there is a stream {to} already");
                return Err(StoreError::new(StoreErrorKind::AlreadyExists, detail));
            }
            if core.registry.lock().stream(key).is_some() {
                let detail = format!("stream {to} is open");
                return Err(StoreError::new(StoreErrorKind::SharingViolation, detail));
            }
            replaced = Some(key);
        }
        let longer = to.len().saturating_sub(inode.streams[at].name.len()) as u64;
        to.clone_into(&mut inode.streams[at].name);
        if longer > 0 {
            self.spend_to_make(longer + copy_of(inode.encode().len()))?;
        }
        inode.times[3] = now;
        if let Some(target) = target {
            inode.streams.remove(target);
        }
        let unmapped = replaced.map_or(Ok(()), |key| self.unmap(key, 0, u64::MAX));
        let changed = unmapped.and_then(|()| self.put_inode(file, &inode));
        self.fatal(changed)?;
        core.attention.notify_one();
        Ok(())
    }
}
