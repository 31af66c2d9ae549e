//! The tests that every [`BlockDevice`](block_device::BlockDevice) must pass.
//!
//! The contract is written on the trait; this crate turns each of its sentences into a check. A crate that
//! implements the trait says how a device is made ([`Subject`]) and runs the whole suite in one test:
//!
//! ```text
//!   Subject::create ──► Device ──► ranges · transfer · zeroes · concurrency · cancel · model ──► Result<(), Failure>
//!   Subject::power_cut ──────────► durability (only where the subject can lose power)
//!   SharedSubject::create_shared ► several initiators of one disk ──► run_reservations
//! ```
//!
//! ```text
//! block_conformance::run(&MySubject, Options::seeded(1)).await.expect("conformance");
//! ```
//!
//! Vocabulary: a *pattern* ([`pattern`]) is content that says of each 512-byte sector which place and which
//! write it belongs to, so foreign or stale data is recognised, not merely unequal. The suite runs on any
//! executor, uses no time of its own, and all its choices follow from [`Options::seed`].
//!
//! What it does not do: performance, and crashes in the middle of operations (crate `sim`).

mod cancel;
mod check;
mod concurrency;
mod durability;
mod model;
pub mod pattern;
mod ranges;
mod reservations;
mod rng;
mod transfer;
mod zeroes;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;

use block_device::Device;

pub use check::{Failure, Outcome};
pub use reservations::{SharedSubject, run_reservations};
pub use rng::Rng;

/// A future of a subject; it stays on the thread that runs the suite.
pub type SubjectFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Smallest device the suite can work with, in bytes: the last checks need room on both sides of a range.
pub const MIN_SIZE: u64 = 1 << 20;

/// What is tested: a way to make devices of one kind.
pub trait Subject {
    /// A device of at least [`MIN_SIZE`] bytes whose content the suite may destroy.
    fn create(&self) -> SubjectFuture<'_, Device>;

    /// Cuts the power under `device` with nothing in flight and gives the device as it is after the restart,
    /// or `None` when this subject cannot lose power.
    fn power_cut(&self, device: Device) -> SubjectFuture<'_, Option<Device>> {
        drop(device);
        Box::pin(async { None })
    }
}

/// How long and from which seed the suite runs.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Every choice follows from it.
    pub seed: u64,
    /// Operations of the random test.
    pub random_ops: u32,
}

impl Options {
    /// The usual length, with `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { seed, random_ops: 600 }
    }
}

/// Runs the whole suite, with a fresh device for each group of checks.
///
/// # Errors
/// The first sentence of the contract that the device breaks, with the group, the place and the seed.
pub async fn run<S: Subject>(subject: &S, options: Options) -> Outcome {
    let device = subject.create().await;
    check::geometry(&device)?;
    if device.geometry().read_only {
        return ranges::read_only(&device).await;
    }
    ranges::bad_ranges(&device).await?;
    ranges::zero_length(&device).await?;
    transfer::round_trips(&subject.create().await).await?;
    transfer::large(&subject.create().await).await?;
    transfer::several_buffers(&subject.create().await).await?;
    transfer::buffer_memory(&subject.create().await).await?;
    zeroes::write_zeroes(&subject.create().await).await?;
    zeroes::unmap(&subject.create().await).await?;
    concurrency::disjoint(&subject.create().await).await?;
    concurrency::overlapping(&subject.create().await, options.seed).await?;
    cancel::dropped_futures(&subject.create().await).await?;
    model::random_operations(&subject.create().await, options).await?;
    durability::survives(subject, options.seed).await
}
