//! A SCSI target device: disks over files or block devices, for any transport.
//!
//! Vocabulary: a [`LogicalUnit`] is one disk; a [`Group`] is what a set of initiators sees (LUN number to unit);
//! a *nexus* is one session; a *unit attention* is news that a nexus must hear before its next command.
//!
//! ```text
//! transport --execute--> TargetDevice (target) --view of the nexus--> LogicalUnit
//!     execute: from admission to response; again and again while the storage is away
//!       admission: unit attention, task set, reservations, write protection   turn: its turn at the volume
//!       commands, a file for each family --medium, one call--> Backing (file of a volume | block device)
//!     nexuses, task_management, availability: what else becomes of a unit
//!   on_the_way: tried again where the unit has come to --waiting: for how long, and how many
//!   elsewhere --forward--> another node, for a unit that it serves
//! ----------------------------------------------------------------------------------------------------
//! view: who sees which units
//! unit: all that is known of one disk, which is made of
//!     task_set | reservations, mode, sanitize, tokens, ended, departed | storage, flow, meter, port_groups
//! ```
//! What is above the line acts on what is below it, which knows nothing of what is above.
//!
//! Cost of a READ or WRITE: the CDB is checked against its row of the table, the unit's lock for news and admission, that of the
//! task set to come and to go, one backing call; the data is not copied. The only allocations are the boxed futures and the buffer; what changes something has
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
//! * A unit that another node serves answers nothing of its medium here: its commands are brought there, or are told to come again
//!   (BUSY), those that are not ordered only after a moment in which the unit may come to where it goes ([`WaitingRoom`]). What is held
//!   so has not begun, is bounded, and ends with its session or a task management function; no ordered command passes it. What was sent and may have been done is not called undone, unless doing it again makes no different.
//! * No input panics, and what a peer can make the device hold is bounded.
//!
//! Not done here: sessions and data transfer (the transport); LID4 copies, WRITE ATOMIC (refused as
//! unsupported, and REPORT SUPPORTED OPERATION CODES says so).

mod absent;
mod admission;
mod availability;
mod backing;
mod commands;
mod departed;
mod elsewhere;
mod ended;
mod execute;
mod flow;
mod forward;
pub mod fuzz;
mod hole_map;
mod limits;
mod losses;
mod medium;
mod meter;
mod mode;
mod nexuses;
mod on_the_way;
mod port_groups;
mod range_lock;
mod reply;
pub mod reservations;
mod sanitize;
mod storage;
mod target;
mod task_management;
mod task_set;
mod telling;
mod tokens;
mod turn;
mod unit;
mod view;
mod waiting;

pub use absent::AbsentBacking;
pub use backing::{
    Backing, CloneHandle, DeviceBacking, FileBacking, NoReservationStore, ReservationStore,
    VolumeReservations,
};
pub use commands::ClearError;
pub use forward::{Brought, Forward, Place};
pub use port_groups::{AccessState, PortGroup};
pub use target::TargetDevice;
pub use task_set::MAX_TASKS;
pub use unit::{LogicalUnit, UnitConfig, UnitState};
pub use view::{Group, MAX_LUN, MappedUnit};
pub use waiting::WaitingRoom;
#[cfg(test)]
mod tests;
