//! What a check finds.

/// How bad a finding is; the order is worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Data is wrong or cannot be read.
    Critical,
    /// A structure is damaged; another copy of it serves.
    Error,
    /// Less redundant than promised.
    Warning,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// Which structure ("superblock", "slab map", "mirror" …).
    pub structure: &'static str,
    /// Where, and what is wrong.
    pub detail: String,
    /// What to do, or what will be done.
    pub todo: &'static str,
}
