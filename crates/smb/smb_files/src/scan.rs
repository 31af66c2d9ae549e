//! Where an enumeration of a directory is.

use std::collections::VecDeque;

use file_store::{DirectoryCursor, FileId};

use crate::wildcard::Pattern;

/// Where an enumeration is.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) pattern: Pattern,
    /// The name, when the pattern has no wildcards.
    pub(crate) exact: Option<String>,
    /// Entries that come next: `.` and `..`, what is left of a page, one that did not fit.
    pub(crate) ahead: VecDeque<(String, FileId)>,
    pub(crate) cursor: DirectoryCursor,
    /// The store has no more.
    pub(crate) exhausted: bool,
    /// An entry was given since the beginning.
    pub(crate) gave: bool,
}
