//! Power cuts, lost disks and killed processes over pools, volumes and write logs, and every promise checked after each.
//!
//! ```text
//!   Case { subject, layout, seed } ──► Rig: SimDisks on one supply, witness, clock, which faults are allowed now
//!                                       │
//!      boot 0: create ── workload ── end │ boot 1: open ── verify ── workload ── end │ boot 2 …
//!                                   └── cut at event N · process killed · closed, then cut
//! ```
//! The *workload* is several workers and an administrator on one event loop; a [model](history) notes what was
//! asked and what was answered. After each end everything is opened again and compared with what the model
//! admits. What a seed does follows from the seed alone: a volume's metadata has a thread of its own, which takes turns
//! with the event loop (`shard_runtime::take_turns`).
//!
//! Promises checked (ARCHITECTURE.md, W1 to W4): acknowledged durable data is there; other sectors show an older
//! or a newer value of their own, never garbage or another place's; an operation on a mirror succeeds while no
//! more disks are lost than it stands; a successful flush covers what completed before; copies become equal and
//! redundant again; metadata changes are there whole or not at all, and surely once acknowledged. Of volatile ones the last may be
//! gone: what all workers have is the first part of one order, which has all that was flushed or followed by a durable change
//! (`volume_run/steps.rs`). In one boot of two the workers of a volume make hardly anything durable.
//!
//! One seed in five or so each has one of the rarer kinds of bad luck (`faults.rs`, `faults/`): a member goes back to what it
//! was; a disk loses data together with its checksums; a disk is full for a while; disks with all copies of the same
//! data are away together and return; disks differ in size by 100. A kind that is broken on purpose is had by each seed.
//!
//! Deliberately absent: more losses at once than the layout promises to stand, but for disks that return with all they
//! had; requests may fail meanwhile.

use std::cell::Cell;
use std::sync::Once;

mod boot;
mod case;
mod end;
mod faults;
mod history;
mod log_run;
mod metadata_rot;
mod pool_run;
mod rig;
mod rot;
mod troubles;
mod volume_run;

pub use case::{Case, Layout, Outcome, Sabotage, Stats, Subject};

thread_local! {
    /// Panics in code of the pool on this thread. What runs in the background takes its task with it, which nobody waits for.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// Counts panics from now on. (The volume contains those of its database, so they are not counted.)
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.location().is_some_and(|at| at.file().contains("pool/src")) {
                PANICS.set(PANICS.get() + 1);
            }
            told(panic);
        }));
    });
}

/// Runs one case to its end or to the first broken promise; a panic is one.
#[must_use]
pub fn run(case: &Case) -> Outcome {
    count_panics();
    PANICS.set(0);
    let mut outcome = run_contained(case);
    if PANICS.get() > 0 {
        outcome.broken.get_or_insert_with(|| "a panic in the pool".into());
    }
    outcome
}

fn run_contained(case: &Case) -> Outcome {
    let run = std::panic::catch_unwind(|| match case.subject {
        Subject::Pool => pool_run::run(case),
        Subject::Volume => volume_run::run(case),
        Subject::Log => log_run::run(case),
    });
    run.unwrap_or_else(|_| Outcome { broken: Some("a panic".into()), ..Outcome::default() })
}
