//! What a check finds.

/// How bad a finding is; the order is worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Data is lost or could be overwritten.
    Critical,
    /// A structure is damaged; another copy of it serves, or nothing depends on it now.
    Error,
    /// Space is not accounted for.
    Warning,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// Which structure.
    pub structure: &'static str,
    /// Where: the file with its path, or the place on the device.
    pub place: String,
    /// What is wrong.
    pub detail: String,
    /// What a repair does about it; `None` when nothing can be done without guessing.
    pub repair: Option<String>,
}
