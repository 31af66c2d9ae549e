//! The tests that every [`FileStore`] must pass.
//!
//! The contract is written on the traits; this crate turns its sentences into named checks ([`CHECKS`]). A crate
//! that implements the traits says how a store is made ([`Subject`]) and runs the whole suite in one test:
//!
//! ```text
//!   Subject::create ──► a fresh store for each check ──► names · rename · links · listing · data · holes · sizes ·
//!                       clones · snapshots · opens · attributes · streams · space · together · volatile ──► Result<(), Failure>
//!   Subject::reopen ──► everything is still there          (only where the subject outlives its store)
//!   random          ──► the store and MemoryStore side by side: same operations, same answers, same content
//! ```
//!
//! The suite runs on any executor and uses no time of its own; all its choices follow from [`Options::seed`],
//! which a failure of a random check tells.
//!
//! What it does not do: performance, and crashes in the middle of operations. (Between them: [`Subject::after_crash`].)

mod attributes;
mod check;
mod clones;
mod crowd;
mod data;
mod holes;
mod links;
mod listing;
mod names;
mod opens;
mod random;
mod rename;
mod sides;
mod sizes;
mod snapshots;
mod space;
mod streams;
mod together;
mod volatile;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use file_store::FileStore;

use check::Probe;
pub use check::{Failure, Outcome};

/// A future of a subject; it stays on the thread that runs the suite.
pub type SubjectFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A store under test.
pub type Store = Arc<dyn FileStore>;

/// What a fresh store must have room for, in bytes.
pub const MIN_CAPACITY: u64 = 24 << 20;
/// What a fresh store may have room for at most, in bytes: the suite fills it.
pub const MAX_CAPACITY: u64 = 128 << 20;

/// What is tested: a way to make stores of one kind. One store lives at a time.
pub trait Subject {
    /// An empty store with a capacity between [`MIN_CAPACITY`] and [`MAX_CAPACITY`].
    fn create(&self) -> SubjectFuture<'_, Store>;

    /// The unit of allocation in bytes; clones of whole, aligned units share space.
    fn unit(&self) -> u64;

    /// Closes the store, of which no file is open, and opens it again; `None` if it does not outlive that.
    fn reopen(&self, store: Store) -> SubjectFuture<'_, Option<Store>> {
        drop(store);
        Box::pin(async { None })
    }

    /// The store as a crash right now would leave it, opened beside this one; `None` if it does not outlive that.
    fn after_crash(&self) -> SubjectFuture<'_, Option<Store>> {
        Box::pin(async { None })
    }

    /// Lets background work go on for a moment.
    fn pause(&self) -> SubjectFuture<'_, ()> {
        Box::pin(async {})
    }

    /// The store's own verification of its structures, if it has one.
    fn verify<'a>(&'a self, store: &'a Store) -> SubjectFuture<'a, Result<(), String>> {
        let _ = store;
        Box::pin(async { Ok(()) })
    }
}

/// How long and from which seed the suite runs.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Every choice follows from it.
    pub seed: u64,
    /// Operations of the random checks.
    pub random_ops: u32,
}

impl Options {
    /// The usual length, with `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { seed, random_ops: 400 }
    }
}

type Checking<'a> = Pin<Box<dyn Future<Output = Outcome> + 'a>>;

/// A named check.
pub struct Check {
    /// What it is about.
    pub name: &'static str,
    run: for<'a> fn(&'a Probe<'a>) -> Checking<'a>,
}

macro_rules! checks {
    ($($name:literal => $function:path,)*) => {
        &[$(Check { name: $name, run: |probe| Box::pin($function(probe)) },)*]
    };
}

/// All checks, in the order in which [`run`] does them.
pub const CHECKS: &[Check] = checks! {
    "names are found in any case" => names::any_case,
    "letters that Windows keeps apart stay apart" => names::kept_apart,
    "names have limits" => names::limits,
    "directories nest and empty" => names::directories,
    "errors of names" => names::errors,
    "rename moves" => rename::moves,
    "rename changes case" => rename::case,
    "rename replaces files only" => rename::replaces,
    "rename refuses cycles" => rename::cycles,
    "all names of a file are alike" => links::alike,
    "names beside the first refused" => links::refused,
    "names beside the first replace" => links::replaces,
    "names beside the first are kept" => links::kept,
    "names beside the first are copied" => links::copied,
    "listings resume" => listing::resumes,
    "listings while names change" => listing::stable,
    "unaligned writes and reads" => data::unaligned,
    "sparse files" => data::sparse,
    "compare and write" => data::compare,
    "ranges that cannot be" => data::bad_ranges,
    "nothing of length zero" => data::empty,
    "punched holes" => holes::punch,
    "zeroed ranges" => holes::zero,
    "allocation ahead" => holes::allocate,
    "allocated ranges" => holes::ranges,
    "cutting and growing" => sizes::cut_and_grow,
    "writes beyond the end" => sizes::beyond,
    "waiting for a size" => sizes::waiting,
    "clones of whole files" => clones::whole,
    "clones of any range" => clones::any_range,
    "clones within a file" => clones::within,
    "clones of clones" => clones::chain,
    "clones refused" => clones::refused,
    "snapshots stay as they are" => snapshots::frozen,
    "snapshots refuse" => snapshots::refused,
    "clones of trees" => snapshots::trees,
    "differences" => snapshots::differences,
    "space of snapshots" => snapshots::space,
    "access of opens" => opens::access,
    "sharing of opens" => opens::sharing,
    "what an open keeps" => opens::keeping,
    "removal of open files" => opens::removal,
    "times and attributes" => attributes::times,
    "security descriptors" => attributes::security,
    "durable state" => attributes::state,
    "named streams" => streams::named,
    "new names of streams" => streams::renamed,
    "limits of streams" => streams::limits,
    "space of files" => space::accounting,
    "space of clones" => space::sharing,
    "a full store" => space::full,
    "side by side: disjoint blocks" => together::disjoint,
    "side by side: overlapping blocks" => together::overlapping,
    "side by side: growing" => together::growing,
    "side by side: clones and writes" => together::clones,
    "side by side: holes and writes" => together::holes,
    "side by side: closing and opening" => together::closing,
    "side by side: names" => crowd::names,
    "side by side: removal and opening" => crowd::removal,
    "side by side: snapshots and writes" => snapshots::together,
    "volatile changes are seen" => volatile::seen,
    "volatile changes and crashes" => volatile::crashes,
    "volatile sizes and crashes" => volatile::sizes,
    "random operations" => random::operations,
};

/// Runs one check on a fresh store.
///
/// # Errors
/// The sentence of the contract that the store breaks.
pub async fn run_one<S: Subject>(subject: &S, check: &Check, options: Options) -> Outcome {
    let probe = Probe::new(check.name, subject.create().await, subject, options);
    (check.run)(&probe).await?;
    probe.verify().await
}

/// Runs the whole suite, with a fresh store for each check.
///
/// # Errors
/// The first sentence of the contract that the store breaks, with the check, the place and the seed.
pub async fn run<S: Subject>(subject: &S, options: Options) -> Outcome {
    for check in CHECKS {
        run_one(subject, check, options).await?;
    }
    Ok(())
}
