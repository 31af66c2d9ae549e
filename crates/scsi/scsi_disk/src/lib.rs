//! A SCSI target device: disks over files or block devices, for any transport.
//!
//! Vocabulary: a [`LogicalUnit`] is one disk; a [`Group`] is what a set of initiators sees (LUN number to unit);
//! a *nexus* is one session; a *unit attention* is news that a nexus must hear before its next command.
//!
//! ```text
//! transport --execute--> TargetDevice --view of the nexus--> LogicalUnit
//!     admission (one short lock): task set, unit attention, reservations, write protection
//!     command  --one call--> Backing (file of a volume | block device)
//! ```
//!
//! Cost of a READ or WRITE: the CDB is checked against its row of the table, one short lock to admit and one to
//! leave, one backing call; the data is not copied. The only allocations are the boxed futures and the buffer; what changes something has
//! one more future, by which it goes on when it is dropped.
//!
//! Invariants:
//! * A reservation change that asks for APTPL is durable before its status is returned.
//! * With WCE=0 (the default) a write's GOOD means durable; with WCE=1, after SYNCHRONIZE CACHE or with FUA.
//! * A command aborted by another nexus is never dropped half way: it ends first, then it is not answered, and the
//!   task management function (or PREEMPT AND ABORT) ends after it. So nothing changes the medium after a fence.
//! * A command that changes something and is dropped by the transport ends too, and stays in the task set until
//!   then. The threads that poll commands must be homes of detached work (`shard_runtime::adopt_detached_work`).
//! * A command that moves data waits for its turn at the volume ([`LogicalUnit::queue_as`]), if it is to; what is aborted while
//!   it waits ends at once, unanswered or not like any other.
//! * A unit whose storage goes away for a while ([`LogicalUnit::detach`]) keeps its nexuses, reservations and commands. What can be
//!   done again waits for some seconds, then it is NOT READY (becoming ready); a flush of cached writes that may be lost
//!   fails, once for each nexus, and is never done again and called good.
//! * Nothing reaches what a unit kept its data in once it is closed ([`LogicalUnit::close`]): what waited has ended, what ran was
//!   waited for, and what comes is told that there is no such unit.
//! * No input panics, and what a peer can make the device hold is bounded.
//!
//! Not done here: sessions and data transfer (the transport); LID4 copies, WRITE ATOMIC (refused as
//! unsupported, and REPORT SUPPORTED OPERATION CODES says so).

mod backing;
mod copy;
mod data;
mod departed;
mod flow;
pub mod fuzz;
mod hole_map;
mod inquiry;
mod meter;
mod mode;
mod range_lock;
mod reply;
mod reservation_commands;
pub mod reservations;
mod sanitize;
mod storage;
mod target;
mod task_set;
mod token;
mod unit;

pub use backing::{
    Backing, CloneHandle, DeviceBacking, FileBacking, NoReservationStore, ReservationStore,
    VolumeReservations,
};
pub use storage::AbsentBacking;
pub use target::{Group, MAX_LUN, MappedUnit, TargetDevice};
pub use unit::{LogicalUnit, MAX_TASKS, UnitConfig, UnitState};
#[cfg(test)]
mod tests;
