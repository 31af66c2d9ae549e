//! What a load generator is asked to do, whoever asks: pure, text in and a checked [`Profile`] out.
//!
//! ```text
//!   DiskSpd command line ──► command_line ─┐
//!   SQLIO command line   ──► sqlio ────────┼──► Profile ──► validate ──► (spd_engine runs it)
//!   XML profile (-X)     ──► xml::read ────┘       │
//!                                                  └──► xml::write (-Rp, and inside a result)
//! ```
//!
//! **Words.** A *profile* is a list of *time spans*, which run one after the other; a span has *targets* (paths with a
//! pattern of I/O), threads, and its durations. The *block* is the size of one I/O (`-b`), and `b` behind a size counts in
//! it. *Alignment* (`-r`) or *stride* (`-s`) is the distance between possible offsets. *Warm-up* and *cool-down* are run but
//! not measured.
//!
//! **Invariants.**
//! * Nothing that was asked for is ignored: an option is carried out, or refused with its reason. What DiskSpd refuses is
//!   refused here in its words (`validate`), what Linux cannot do is refused with why (`linux`).
//! * A size that overflows is an error, never a smaller size. Input is bounded: an XML profile by size, depth and number of
//!   elements, counts by the constants of [`limits`].
//! * Writing a profile as XML and reading it gives the same profile.

mod command_line;
mod distribution;
mod error;
pub mod fuzz;
pub mod limits;
mod linux;
mod mix;
mod model;
mod size;
pub mod sqlio;
pub mod sweep;
#[cfg(test)]
mod tests;
pub mod trace;
mod validate;
pub mod windows_path;
pub mod xml;

pub use command_line::{Invocation, Run, Surroundings, USAGE, parse};
pub use error::ProfileError;
pub use linux::check_linux;
pub use model::{
    Affinity, Arrival, CacheMode, Distribution, DistributionUnit, Hints, IoPriority, MixPart, Profile, Range,
    ResultFormat, Target, Throughput, TimeSpan, WriteContent,
};
pub use size::{display_size, parse_size};
pub use validate::{Checked, validate};
