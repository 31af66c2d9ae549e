//! What is run, and what came of it.

use std::fmt;
use std::ops::AddAssign;

use clap::ValueEnum;

/// A defect put in on purpose, for the proof that the campaign would notice it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Sabotage {
    /// None: what ships.
    #[default]
    None,
    /// Nothing is fenced.
    NoFence,
    /// The pool's state is read before its disks are fenced.
    OpenBeforeFence,
    /// Answers are given whether there is a permit or not.
    NoPermitCheck,
    /// The permit is looked at when a request comes, not when its data was read.
    PermitBeforeRead,
    /// The permit runs on wall time, which jumps.
    PermitOnWallTime,
    /// The permit runs on a clock that stops while the machine sleeps.
    PermitStopsInSleep,
    /// The permit counts from the answer to a beat.
    PermitFromAnswer,
    /// D = 3.0 s and W = 3.3 s: too close for clocks that are 5 % wrong.
    PermitTooLong,
    /// Silence counts from when news were asked for, not from when they came.
    ClaimFromAsking,
    /// A claim does not depend on the beat that was seen last.
    ClaimWithoutBeat,
    /// A pool is taken for an orphan by what was seen of its node at another time.
    OrphanUnchecked,
    /// Promises that were given are not kept.
    PromiseIgnored,
    /// Promises are used for as long as they are kept, by the clock of whoever asked.
    PromiseUsedAsLong,
    /// The promise of one member counts for that of all.
    OnePromiseIsEnough,
    /// A promise is given while a claim is on its way.
    PromiseBesideClaim,
    /// A member claims from an owner that does not know it.
    StrangerClaims,
    /// The witness's vote depends on nothing.
    UnconditionalWitness,
    /// The witness's vote depends on the owner alone, not on the vote before.
    UnchainedWitness,
    /// Fencing goes on with connections that carry older writes.
    OldConnections,
    /// Who is too late for a disk lets go of it, also while it holds the reservation.
    HolderLetsGo,
    /// A pool that is handed over lets go of its disks.
    HandOverLetsGo,
    /// A pool goes on serving after it was handed over.
    ServesAfterHandOver,
    /// A node that stood still reads the requests that have waited.
    ReadsOldRequests,
}

impl fmt::Display for Sabotage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("none", |value| value.get_name()))
    }
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Everything follows from it.
    pub seed: u64,
    /// What is broken.
    pub sabotage: Sabotage,
    /// Say what happens.
    pub trace: bool,
}

impl Case {
    /// What ships, in silence.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, sabotage: Sabotage::None, trace: false }
    }

    /// How to run it again.
    #[must_use]
    pub fn again(&self) -> String {
        let sabotage = match self.sabotage {
            Sabotage::None => String::new(),
            sabotage => format!(" --sabotage {sabotage}"),
        };
        format!("cargo run --release --package cluster_campaign -- --seeds 1 --from {}{sabotage}", self.seed)
    }
}

/// What happened, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Events of the simulation.
    pub events: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Writes that were answered.
    pub writes: u64,
    /// Changes of an owner.
    pub takeovers: u64,
    /// Of them, planned moves.
    pub moves: u64,
    /// Lives of nodes that others have ended.
    pub evictions: u64,
    /// Answers given while only promises allowed it.
    pub on_promises: u64,
    /// Nodes that stood still.
    pub pauses: u64,
    /// Processes that ended, and their supervisors with them or not.
    pub crashes: u64,
    /// Ways that were cut.
    pub cuts: u64,
    /// Times that the store did nothing.
    pub stalls: u64,
    /// Orders for a pool that could not be carried out.
    pub failures: u64,
    /// Of them, because a disk refused.
    pub fenced: u64,
    /// The longest time, in milliseconds, until all pools were served after everything had healed.
    pub slowest_ms: u64,
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.events += other.events;
        self.reads += other.reads;
        self.writes += other.writes;
        self.takeovers += other.takeovers;
        self.moves += other.moves;
        self.evictions += other.evictions;
        self.on_promises += other.on_promises;
        self.pauses += other.pauses;
        self.crashes += other.crashes;
        self.cuts += other.cuts;
        self.stalls += other.stalls;
        self.failures += other.failures;
        self.fenced += other.fenced;
        self.slowest_ms = self.slowest_ms.max(other.slowest_ms);
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The first promise that was broken.
    pub broken: Option<String>,
    /// What happened.
    pub stats: Stats,
}
