//! What is run, and what came of it.

use std::fmt;
use std::ops::AddAssign;

/// What is under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Subject {
    /// Spaces of a pool.
    Pool,
    /// A volume on a space; in the simple layout now and then on a bare disk.
    Volume,
    /// A write log on a disk before another: there is one layout of that.
    Log,
}

impl Subject {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Pool, Self::Volume, Self::Log];

    /// The layouts that it is run on.
    #[must_use]
    pub fn layouts(self) -> &'static [Layout] {
        if self == Self::Log { &[Layout::Simple] } else { &Layout::ALL }
    }
}

/// How data is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Layout {
    /// One copy.
    Simple,
    /// Two copies.
    Mirror2,
    /// Three copies.
    Mirror3,
    /// One column of parity.
    Parity1,
    /// Two columns of parity.
    Parity2,
}

impl Layout {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Simple, Self::Mirror2, Self::Mirror3, Self::Parity1, Self::Parity2];
}

/// A defect put in on purpose, for the proof that the campaign would notice it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Sabotage {
    /// None: what ships.
    #[default]
    None,
    /// The pool answers flushes without flushing.
    PoolSkipsFlush,
    /// The pool acknowledges a write that a copy lacks without marking the copy stale.
    PoolSkipsStaleMark,
    /// The pool writes regions without marking them dirty first.
    PoolSkipsDirtyMark,
    /// The pool writes stripes with parity in place without having them in its journal.
    PoolSkipsJournal,
    /// The pool does not compare what it reads with its checksums.
    PoolSkipsVerify,
    /// The pool believes a disk that has gone back to what it was.
    PoolTrustsStaleMember,
    /// The pool does not compare the generations of its pages of checksums.
    PoolSkipsGenerations,
    /// The pool takes a write that a full disk refused for one that it has made.
    PoolIgnoresNoSpace,
    /// The pool acknowledges a write that no copy has.
    PoolAcknowledgesWithoutCopy,
    /// The pool places slabs beyond the end of disks that are smaller than others.
    PoolOverfillsDisks,
    /// A disk drops one flush in three.
    DiskSkipsFlush,
    /// A disk keeps one durable write in three in its cache.
    DiskSkipsForce,
    /// A disk puts one write in fifty in the wrong place.
    DiskMisplaces,
    /// One flush in three of the volume does not reach the space.
    VolumeLosesFlush,
    /// The volume writes data that is to be durable as if it were not.
    VolumeLosesForce,
    /// The volume gives clusters back without zeroing them.
    VolumeSkipsZeroing,
    /// The volume commits that clusters are zero before they are.
    VolumeCommitsFirst,
    /// The volume writes batches of its metadata log as if they need not be durable.
    VolumeLosesLogForce,
    /// The volume's metadata log begins anew before the commit is durable that has what it held.
    VolumeCutsLogEarly,
    /// The volume replays the batches of its metadata log from the last to the first.
    VolumeReplaysBackwards,
    /// The volume answers changes that are to be durable before they are in its metadata log.
    VolumeAnswersEarly,
    /// A batch of the volume's metadata log has the later half of what was changed: what it stands on is left for the commit.
    VolumeLogsOutOfOrder,
}

impl Sabotage {
    /// Whether what is broken has a part in the subject's promises.
    #[must_use]
    pub fn applies_to(self, subject: Subject) -> bool {
        match subject {
            Subject::Pool => !self.is_of_the_volume(),
            // Little of what it has goes bad, and it fills its space at once.
            Subject::Volume => {
                !matches!(self, Self::PoolSkipsVerify | Self::PoolIgnoresNoSpace | Self::PoolOverfillsDisks)
            }
            Subject::Log => {
                let lies = [Self::None, Self::DiskSkipsFlush, Self::DiskSkipsForce, Self::DiskMisplaces];
                lies.contains(&self)
            }
        }
    }

    /// Where the proof is made that it is noticed.
    #[must_use]
    pub fn proven_on(self, subject: Subject) -> &'static [Layout] {
        match self {
            _ if subject == Subject::Log => &[Layout::Simple],
            Self::PoolSkipsJournal => &[Layout::Parity1, Layout::Parity2],
            Self::PoolSkipsFlush
            | Self::PoolSkipsVerify
            | Self::PoolTrustsStaleMember
            | Self::PoolSkipsGenerations
            | Self::PoolIgnoresNoSpace => &[Layout::Mirror2, Layout::Parity1],
            _ => &[Layout::Mirror2],
        }
    }

    /// Whether it breaks what a volume asks of its space.
    #[must_use]
    pub fn is_of_the_volume(self) -> bool {
        matches!(
            self,
            Self::VolumeLosesFlush
                | Self::VolumeLosesForce
                | Self::VolumeSkipsZeroing
                | Self::VolumeCommitsFirst
                | Self::VolumeLosesLogForce
                | Self::VolumeCutsLogEarly
                | Self::VolumeReplaysBackwards
                | Self::VolumeAnswersEarly
                | Self::VolumeLogsOutOfOrder
        )
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What is under test.
    pub subject: Subject,
    /// How data is kept.
    pub layout: Layout,
    /// Where all choices come from.
    pub seed: u64,
    /// What is broken on purpose.
    pub sabotage: Sabotage,
    /// Print what happens to standard error.
    pub trace: bool,
}

impl Case {
    /// A run of what ships.
    #[must_use]
    pub fn new(subject: Subject, layout: Layout, seed: u64) -> Self {
        Self { subject, layout, seed, sabotage: Sabotage::None, trace: false }
    }

    /// The command that runs it again, from a build like this one: a database with debug assertions reads more, so
    /// a volume's seed goes another way there.
    #[must_use]
    pub fn again(&self) -> String {
        let build = if cfg!(debug_assertions) { "" } else { "--release " };
        format!("cargo run {build}-p crash_campaign -- {self}")
    }
}

/// Lower-case name, as on the command line.
fn name(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name(self))
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name(self))
    }
}

impl fmt::Display for Sabotage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name(self))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--subject {} --layout {} --from {} --seeds 1", self.subject, self.layout, self.seed)?;
        if self.sabotage != Sabotage::None {
            write!(f, " --sabotage {}", self.sabotage)?;
        }
        Ok(())
    }
}

/// What happened, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Openings.
    pub boots: u64,
    /// Power cuts.
    pub cuts: u64,
    /// Cuts that came while the pool or volume was opening.
    pub cuts_at_opening: u64,
    /// Cuts while copies were being made equal or redundant.
    pub cuts_at_repair: u64,
    /// Processes killed with the disks left on.
    pub kills: u64,
    /// Operations that were answered.
    pub operations: u64,
    /// Disks lost, by any fault that takes a disk out.
    pub losses: u64,
    /// Lost disks that came back.
    pub returns: u64,
    /// Lost disks that were replaced.
    pub replacements: u64,
    /// Disks that were emptied and taken out while they worked.
    pub drained: u64,
    /// Blocks that went bad without a word.
    pub spoiled: u64,
    /// Disks that went back to what they were.
    pub rolled_back: u64,
    /// Times for which a disk lost what was written to some regions and their checksums.
    pub lost_pairs: u64,
    /// Times for which a disk was full.
    pub filled: u64,
    /// Times when disks with all copies of the same data went away together.
    pub scattered: u64,
    /// Pools of disks that differ in size by 100.
    pub sizes: u64,
    /// Scrubs that were asked for.
    pub scrubs: u64,
    /// Cuts while a scrub was under way.
    pub cuts_at_scrub: u64,
    /// Volumes from which everything was removed, until all space had come back.
    pub emptied: u64,
    /// Times that a worker's last volatile changes were gone.
    pub taken_back: u64,
    /// Sectors compared.
    pub sectors: u64,
    /// Moments at which the power could have gone: disk operations that began or ended.
    pub events: u64,
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.boots += other.boots;
        self.cuts += other.cuts;
        self.cuts_at_opening += other.cuts_at_opening;
        self.cuts_at_repair += other.cuts_at_repair;
        self.kills += other.kills;
        self.operations += other.operations;
        self.losses += other.losses;
        self.returns += other.returns;
        self.replacements += other.replacements;
        self.drained += other.drained;
        self.spoiled += other.spoiled;
        self.rolled_back += other.rolled_back;
        self.lost_pairs += other.lost_pairs;
        self.filled += other.filled;
        self.scattered += other.scattered;
        self.sizes += other.sizes;
        self.scrubs += other.scrubs;
        self.emptied += other.emptied;
        self.cuts_at_scrub += other.cuts_at_scrub;
        self.taken_back += other.taken_back;
        self.sectors += other.sectors;
        self.events += other.events;
    }
}

/// What came of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What happened.
    pub stats: Stats,
    /// The first broken promise.
    pub broken: Option<String>,
}
