//! Short names of a directory's entries: what one names, and what a name that went is remembered for.

use file_store::{DirectoryCursor, DirectoryEntry, FileId};

use crate::error::Result;
use crate::file_system::Core;
use crate::short_names::{alias, may_be_alias};

/// How many entries are looked at at once where a directory is searched.
const PAGE: usize = 1024;

impl Core {
    /// The entry of a directory that has this short name; `None` if there is none, or not only one.
    pub(crate) async fn lookup_alias(&self, directory: FileId, name: &str) -> Result<Option<DirectoryEntry>> {
        if !may_be_alias(name) {
            return Ok(None);
        }
        let mut found: Option<DirectoryEntry> = None;
        let mut cursor = DirectoryCursor::default();
        loop {
            let page = self.store.read_directory(directory, cursor, PAGE).await?;
            for entry in page.entries {
                if alias(&entry.name).is_some_and(|alias| alias.eq_ignore_ascii_case(name))
                    && found.replace(entry).is_some()
                {
                    return Ok(None);
                }
            }
            match page.next {
                Some(next) => cursor = next,
                None => return Ok(found),
            }
        }
    }

    /// A name is not there any more: removed, or renamed.
    pub(crate) fn name_gone(&self, directory: FileId, long: &str) {
        let Some(short) = alias(long) else { return };
        let now = self.clock.now();
        self.tunnel.lock().gone(directory, short, long, now);
    }

    /// The long name that a file gets which is made under the short name of one that just went.
    pub(crate) fn name_again(&self, directory: FileId, short: &str) -> Option<String> {
        if !may_be_alias(short) {
            return None;
        }
        let now = self.clock.now();
        self.tunnel.lock().again(directory, short, now)
    }
}
