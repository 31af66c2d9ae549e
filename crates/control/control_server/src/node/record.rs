//! The record of changes, as a node writes and reads it.

use control_api::{AuditEntry, Code, Problem};

use super::Node;

impl Node {
    /// Writes down what somebody has done.
    pub(crate) fn record(&self, entry: AuditEntry) {
        let (now, wall) = self.clocks();
        self.audit().write(AuditEntry { time: wall, ..entry }, now);
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
