//! What is not as it should be: the codes of all rules, rules that are functions of what a node knows, and the book of findings.
//!
//! ```text
//!   what a node knows ──► rules ──► issues of this look ──► book ──► status, lists: since when, how often, who knows of it
//!   (status, sessions, …)  (code, subject, severity,          │
//!                           cause, effect, remedy)            └────► news: first seen, worse, cleared ──► events, notifications
//! ```
//! Nothing here asks a clock, a network or a file: the time is passed in, and the file is bytes.
//!
//! Invariants:
//! * A finding is its code and its subject: whatever else changes in it (how many bytes, which disks), it is the same one.
//! * One news says that a finding has come, one that it has gone; it counts as gone when it has stayed away for [`CLEAR_AFTER`] seconds. What comes and
//!   goes within that time is one finding that has come several times.
//! * An acknowledgement ends when its finding clears or gets worse than it was when somebody acknowledged it.
//! * The sentence above all lines is never better than the worst line that nobody has acknowledged, and never better than the state of the
//!   data or a critical line, whoever knows of it. What cannot be looked into, as no node serves it or its node does not answer, is said to be so, and is
//!   never taken for redundant.

mod apart;
mod book;
mod clients;
mod cluster;
mod code;
mod etcd;
mod file;
pub mod fuzz;
mod headline;
mod kept_pools;
mod links;
mod lost_writes;
mod parts;
mod reservations;
mod shares;
mod silence;
mod space;
mod stall;
mod unserved;
mod write_caches;

use control_api::{Issue, Severity};

pub use book::{Book, CLEAR_AFTER, KEPT_SECONDS, MOST_CLEARED, MOST_FINDINGS, News, finding_id};
pub use clients::{of_initiators, of_shares_on_clusters, of_unencrypted};
pub use cluster::{of_clock, of_gate, of_nodes, of_nodes_away, of_nodes_seen, of_versions};
pub use code::FindingCode;
pub use file::{FileError, MAX_FILE_BYTES, read, write};
pub use headline::{Known, headline, sort};
pub use kept_pools::of_kept_pools;
pub use links::{BROKEN_AFTER, LinkWatch};
pub use lost_writes::of_lost_writes;
pub use parts::{of_luns, of_pools, of_portals, of_space, of_volumes};
pub use reservations::of_reservations;
pub use shares::of_shares_of_nobody;
pub use silence::{DiskAnswers, DiskWatch, SILENT_AFTER, Silent};
pub use space::{no_room, of_fullness, of_promises};
pub use stall::{RepairWatch, STALLED_AFTER};
pub use unserved::{
    TAKES_AT_MOST, UnservedWatch, is_of_unserved, not_known, of_unserved, of_waiting_volumes, waits,
    why_waiting,
};
pub use write_caches::of_write_caches;

/// An issue of a rule, of which nothing is said yet.
#[must_use]
pub fn of_rule(code: FindingCode) -> Issue {
    issue(code, Severity::Info, "", "", "")
}

/// An issue as a rule says it.
pub fn issue(
    code: FindingCode,
    severity: Severity,
    subject: impl Into<String>,
    detail: impl Into<String>,
    todo: impl Into<String>,
) -> Issue {
    let (subject, detail, todo) = (subject.into(), detail.into(), todo.into());
    let (code, id) = (code.name().to_owned(), String::new());
    Issue { code, id, severity, subject, detail, todo, since: None, acknowledged: None }
}
