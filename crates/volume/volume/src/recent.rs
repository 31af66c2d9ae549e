//! What was read of names, records and descriptors lately, so that asking again needs no way to the metadata thread.
//!
//! ```text
//!   metadata thread:  reads or writes a row ─► `Found` of its group ─ answered ─► Recent       writes a row ─► forgotten in Recent first
//!   anybody:          Recent, or a job for the metadata thread
//! ```
//! Invariants:
//! * A row is in here as the last group left it that was answered: what a group reads and writes comes in when its jobs are
//!   answered, after it is durable if one of them waits for that, and what was there before is forgotten while it runs. So nobody is
//!   told what a crash could take back, unless it was changed as such.
//! * That a name is not there is known of directories that are: their numbers are never given out again.
//! * Whoever joins rows with what streams know in memory sees by [`Recent::version`] that a row was written meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use file_store::{FileInfo, names};
use parking_lot::Mutex;
use volume_format::Entry;

/// Rows of each kind that are kept: a few megabytes. When there are more, all are forgotten.
const ROWS_MAX: usize = 16_384;

/// Rows.
#[derive(Default)]
pub(crate) struct Found {
    /// What the database says of files, and whether that it says how much space they take; streams in memory may know
    /// more.
    infos: BTreeMap<u64, (FileInfo, bool)>,
    /// Names by directory and folded name; `None` of those that are not there.
    entries: BTreeMap<(u64, String), Option<Entry>>,
    /// Security descriptors.
    security: BTreeMap<u64, Arc<[u8]>>,
}

impl Found {
    /// `measured`: whether its space has been looked up.
    pub(crate) fn add_info(&mut self, info: FileInfo, measured: bool) {
        self.infos.insert(info.file.0, (info, measured));
    }

    pub(crate) fn add_entry(&mut self, directory: u64, entry: &Entry) {
        self.entries.insert((directory, names::fold(&entry.name)), Some(entry.clone()));
    }

    /// A directory that is there has no such name.
    pub(crate) fn add_missing(&mut self, directory: u64, name: &str) {
        self.entries.insert((directory, names::fold(name)), None);
    }

    pub(crate) fn add_security(&mut self, file: u64, descriptor: &[u8]) {
        self.security.insert(file, descriptor.into());
    }

    fn forget_file(&mut self, file: u64) {
        self.infos.remove(&file);
        self.security.remove(&file);
    }

    fn forget_name(&mut self, directory: u64, folded: &str) {
        self.entries.remove(&(directory, folded.to_owned()));
    }

    fn is_empty(&self) -> bool {
        self.infos.is_empty() && self.entries.is_empty() && self.security.is_empty()
    }
}

/// Takes rows over; forgets all where there would be too many.
fn take_over<K: Ord, V>(kept: &mut BTreeMap<K, V>, found: BTreeMap<K, V>) {
    if kept.len() + found.len() > ROWS_MAX {
        kept.clear();
    }
    kept.extend(found);
}

/// The rows of groups that were answered.
#[derive(Default)]
pub(crate) struct Recent {
    rows: Mutex<Found>,
    version: AtomicU64,
}

impl Recent {
    /// Another one says that something was forgotten in between.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// With whether its space is known.
    pub(crate) fn info(&self, file: u64) -> Option<(FileInfo, bool)> {
        self.rows.lock().infos.get(&file).cloned()
    }

    /// What has a name: `Some(None)` if it is known that nothing has.
    pub(crate) fn entry(&self, directory: u64, name: &str) -> Option<Option<Entry>> {
        let key = (directory, names::fold(name));
        self.rows.lock().entries.get(&key).cloned()
    }

    pub(crate) fn security(&self, file: u64) -> Option<Arc<[u8]>> {
        self.rows.lock().security.get(&file).cloned()
    }

    /// A group is answered: what it read and wrote is true for everybody. On the metadata thread.
    pub(crate) fn add(&self, found: Found) {
        if found.is_empty() {
            return;
        }
        let mut rows = self.rows.lock();
        take_over(&mut rows.infos, found.infos);
        take_over(&mut rows.entries, found.entries);
        take_over(&mut rows.security, found.security);
    }

    /// A row of the file is about to be written. On the metadata thread.
    pub(crate) fn forget_file(&self, file: u64, found: &mut Found) {
        found.forget_file(file);
        self.rows.lock().forget_file(file);
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// As [`Recent::forget_file`], of its record only: what was known of that.
    pub(crate) fn take_info(&self, file: u64, found: &mut Found) -> Option<(FileInfo, bool)> {
        let known = self.rows.lock().infos.remove(&file);
        self.version.fetch_add(1, Ordering::SeqCst);
        found.infos.remove(&file).or(known)
    }

    /// A name is about to be written. On the metadata thread.
    pub(crate) fn forget_name(&self, directory: u64, folded: &str, found: &mut Found) {
        found.forget_name(directory, folded);
        self.rows.lock().forget_name(directory, folded);
        self.version.fetch_add(1, Ordering::SeqCst);
    }
}
