//! What clients change that is administration, for the record of changes: quotas.
//!
//! ```text
//!   SET_INFO ─► Telling ─► the volume's quotas, one after the other ─► ended, or dropped at any of them ─► Record
//! ```
//! Invariants:
//! * What was changed is told, also when the request is dropped half-way: [`Telling`] tells it when it goes.
//! * A record is told on a shard's thread, so an implementation neither waits nor fails.

use std::net::SocketAddr;
use std::sync::Arc;

use smb_files::{FileError, QuotaChanges};
use smb_protocol::NtStatus;

/// Who writes down what clients change.
pub trait Record: Send + Sync + 'static {
    /// Somebody has asked for a change of quotas.
    fn quotas(&self, asked: QuotasAsked);
}

/// Nothing is written down.
pub struct NoRecord;

impl Record for NoRecord {
    fn quotas(&self, _: QuotasAsked) {}
}

/// A change of quotas that somebody has asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotasAsked {
    /// Who has asked.
    pub user: String,
    /// Whether it may.
    pub is_administrator: bool,
    /// From where.
    pub remote: SocketAddr,
    /// Over which share.
    pub share: String,
    /// What is done.
    pub changes: QuotaChanges,
    /// How it has ended; absent for a request that was dropped.
    pub ended: Option<Result<(), (NtStatus, String)>>,
}

/// Tells of a change of quotas when it goes.
pub(crate) struct Telling {
    record: Arc<dyn Record>,
    changes: QuotaChanges,
    /// By whom; none once it is told.
    asked: Option<QuotasAsked>,
}

impl Telling {
    /// Of a request that has done nothing yet; `asked` says whose it is.
    pub(crate) fn new(record: Arc<dyn Record>, asked: QuotasAsked) -> Self {
        Self { record, changes: QuotaChanges::default(), asked: Some(asked) }
    }

    /// Where it is said what is done.
    pub(crate) fn changes(&mut self) -> &mut QuotaChanges {
        &mut self.changes
    }

    /// It has ended so.
    pub(crate) fn ended(mut self, done: &Result<(), FileError>) {
        let ended = done.as_ref().copied().map_err(|error| (error.status, error.reason.to_string()));
        self.tell(Some(ended));
    }

    /// It was about something else than quotas.
    pub(crate) fn nothing(mut self) {
        self.asked = None;
    }

    fn tell(&mut self, ended: Option<Result<(), (NtStatus, String)>>) {
        if let Some(asked) = self.asked.take() {
            let changes = std::mem::take(&mut self.changes);
            self.record.quotas(QuotasAsked { changes, ended, ..asked });
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.tell(None);
    }
}
