//! The record of changes, as a node writes and reads it.

use control_api::{AuditEntry, Code, Problem};

use super::Node;

impl Node {
    /// Writes down what somebody has done. Blocks on the data directory's disk.
    pub(crate) fn record(&self, entry: AuditEntry) {
        if let Some(entry) = self.admit(entry) {
            self.audit().write(entry);
        }
    }

    /// An entry with its time, unless there are too many of its kind. Waits for no disk.
    pub(crate) fn admit(&self, entry: AuditEntry) -> Option<AuditEntry> {
        let (now, wall) = self.clocks();
        self.audit().admits(&entry, now).then_some(AuditEntry { time: wall, ..entry })
    }

    /// The newest entries of the record, the newest first.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn audit_list(&self, limit: Option<usize>) -> Result<Vec<AuditEntry>, Problem> {
        const USUAL: usize = 1000;
        const MOST: usize = 100_000;
        let limit = limit.unwrap_or(USUAL).min(MOST);
        self.audit()
            .newest(limit)
            .map_err(|error| Problem::new(Code::Io, format!("The record of changes can't be read: {error}.")))
    }
}
