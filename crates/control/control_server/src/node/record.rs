//! The record of changes, as a node writes and reads it.

use control_api::{AUDIT_ENTRIES_MAX, AuditEntry, Code, Problem};

use super::Node;
use crate::audit::order;

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
        if !self.audit().admits(&entry, now) {
            return None;
        }
        let mut entry = AuditEntry { time: wall, ..entry };
        order::with_names(&mut entry.changes, &|sid| {
            self.name_of(sid.parse().ok()?).filter(|name| !name.is_empty())
        });
        order::in_order(&mut entry.changes);
        Some(entry)
    }

    /// The newest entries of the record, the newest first.
    ///
    /// # Errors
    /// A limit of 0 or above [`AUDIT_ENTRIES_MAX`]; those of the disk.
    pub fn audit_list(&self, limit: Option<usize>) -> Result<Vec<AuditEntry>, Problem> {
        const USUAL: usize = 1000;
        let most = AUDIT_ENTRIES_MAX as usize;
        let limit = limit.unwrap_or(USUAL);
        if !(1..=most).contains(&limit) {
            let detail = format!("The limit {limit} is none: from 1 to {most} entries can be asked for.");
            return Err(Problem::new(Code::InvalidRequest, detail));
        }
        self.audit()
            .newest(limit)
            .map_err(|error| Problem::new(Code::Io, format!("The record of changes can't be read: {error}.")))
    }
}
