//! Simulated disks under one power supply, from a seed.
//!
//! ```text
//!   Power ── cut at the N-th event, or now ──► every disk resolves what was not durable, sector by sector
//!     │
//!     ├── SimDisk (the medium: survives)  ◄── attach() ── SimDevice: BlockDevice (dies with power or cable)
//!     │      current   what reads see
//!     │      durable   what certainly survives
//!     │      pending   completed, not durable, in order        in flight   begun, not completed
//!     └── SimDisk …
//! ```
//! Vocabulary: an *event* is the beginning or the completion of a changing operation on any disk; the supply
//! counts them, so "cut at event 137" means the same in every run of a deterministic caller. At a cut each
//! 512-byte sector keeps its durable version or takes any pending or in-flight one: writes get torn, lost and
//! reordered. A device that was attached before a cut, or before its disk vanished, fails for ever with
//! [`Gone`](block_device::BlockErrorKind::Gone): what is left of the old process cannot touch the medium.
//!
//! Operations take a seeded number of *turns* of the event loop (and now and then virtual time), so several are
//! in flight and complete out of order. Turns work on any executor, also on threads without timers.
//!
//! A disk may also go back to an earlier [`Image`] of itself, acknowledge writes that it does not keep, and be
//! [`Full`] for a while.
//!
//! Invariants: a completed durable write, and what completed before a successful flush began, survives every
//! cut, unless the disk was told to lie ([`Lie`]) or to lose what it is given; nothing but the choices of the seed decides what else does.
//!
//! Deliberately absent: networks.

mod device;
mod dice;
mod disk;
mod luck;
mod medium;
mod power;
mod runtime;
#[cfg(test)]
mod tests;

pub use device::SimDevice;
pub use dice::Dice;
pub use disk::{Full, Lie, Pace, Rot, SimDisk, SimSpec};
pub use medium::{Image, SECTOR, Survival};
pub use power::Power;
pub use runtime::{SimClock, on_shard};
