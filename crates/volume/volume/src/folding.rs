//! How entries were filed before, and how they come under the names that NTFS would give them.
//!
//! Releases before [`volume_format::FEATURE_UPCASE`] took the full upper case of Unicode, in which `ß` is `SS` and `ﬁ` is
//! `FI`: what Windows knows as two names was one. What is the same now was the same then (proven below, for each
//! character), so no two entries of a directory ever come under one key.
//!
//! ```text
//!   tables are there ─► superblocks get the feature ─► entries, some thousand in a transaction ─► counter `names`
//! ```
//! The superblocks come first, so that no older release ever looks for a name where it is no more. Power may go anywhere: a
//! volume with the feature and without the counter is converted at its next opening, from the beginning; what is under its
//! new key already stays there.

use file_store::StoreError;
use file_store::names::fold;
use redb::ReadableTable;
use volume_format::Entry;

use crate::database::Metadata;
use crate::database_error::database_error;
use crate::session::Session;
use crate::tables::{COUNTERS, ENTRIES, FOLDED_AS_NTFS, NAMES};

/// Entries looked at in one transaction: a few megabytes.
const AT_ONCE: usize = if cfg!(test) { 5 } else { 8192 };

/// What names were filed under by releases that did not know [`volume_format::FEATURE_UPCASE`].
pub(crate) fn before(name: &str) -> String {
    name.chars().flat_map(char::to_uppercase).collect()
}

/// Whether all entries are filed as this release does it.
pub(crate) fn is_done(counters: &impl ReadableTable<&'static str, u64>) -> Result<bool, StoreError> {
    let names = counters.get(NAMES).map_err(database_error)?;
    Ok(names.is_some_and(|row| row.value() == FOLDED_AS_NTFS))
}

/// Files all entries anew. Nobody else changes the volume meanwhile.
pub(crate) async fn convert(metadata: &Metadata) -> Result<(), StoreError> {
    let mut from = Some((0, String::new()));
    let mut moved = 0;
    while let Some(begin) = from {
        let (next, count) = metadata.change(move |session| session.fold_names(&begin)).await?;
        moved += count;
        from = next;
    }
    tracing::info!(moved, "names are told apart as NTFS does it from now on");
    Ok(())
}

impl Session<'_> {
    /// Files some entries from `begin` on; where to go on, and how many came under another key. At the end, says so in the
    /// counters.
    fn fold_names(&mut self, begin: &(u64, String)) -> Result<(Option<(u64, String)>, usize), StoreError> {
        let filed = self.fold_some(begin);
        self.fatal(filed)
    }

    fn fold_some(&mut self, begin: &(u64, String)) -> Result<(Option<(u64, String)>, usize), StoreError> {
        let (mut looked, mut last, mut waiting) = (0, None, Vec::new());
        let mut table = self.txn.open_table(ENTRIES).map_err(database_error)?;
        for row in table.range((begin.0, begin.1.as_str())..).map_err(database_error)?.take(AT_ONCE) {
            let (key, value) = row.map_err(database_error)?;
            let (directory, key) = key.value();
            (looked, last) = (looked + 1, Some((directory, key.to_owned())));
            // What cannot be read is found by whoever asks for it, and by the check.
            if let Ok(entry) = Entry::decode(value.value())
                && fold(&entry.name) != key
            {
                waiting.push((directory, key.to_owned(), entry.name, value.value().to_vec()));
            }
        }
        self.changed = true;
        for (directory, old, name, value) in &waiting {
            let new = fold(name);
            if table.get((*directory, new.as_str())).map_err(database_error)?.is_some() {
                // Only where damage has filed a name under another one's key; it stays as hidden as it was.
                tracing::warn!(
                    directory,
                    name,
                    "an entry of a volume is filed under another name; `volume check` says more"
                );
                continue;
            }
            table.remove((*directory, old.as_str())).map_err(database_error)?;
            table.insert((*directory, new.as_str()), value.as_slice()).map_err(database_error)?;
        }
        // The last row once more, rather than a key behind it.
        if let Some(last) = last.filter(|_| looked == AT_ONCE) {
            return Ok((Some(last), waiting.len()));
        }
        let mut counters = self.txn.open_table(COUNTERS).map_err(database_error)?;
        counters.insert(NAMES, FOLDED_AS_NTFS).map_err(database_error)?;
        Ok((None, waiting.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If two names are the same now, they were the same before: so no directory has two entries that come under one key.
    /// It is enough to look at each character, as both foldings take them one by one; and an entry never meets one that
    /// still waits, whose key is in full upper case already.
    #[test]
    fn what_is_the_same_now_was_the_same_before() {
        for c in '\0'..=char::MAX {
            let name = c.to_string();
            let (now, old) = (fold(&name), before(&name));
            assert_eq!(before(&now), old, "{c:?} is folded to {now:?} now");
            assert_eq!(fold(&now), now, "{c:?}");
            assert_eq!(before(&old), old, "{c:?}");
        }
    }
}
