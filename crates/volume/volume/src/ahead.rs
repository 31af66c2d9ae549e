//! Space that a stream gets before it is written: how much, and what of it has not been used.
//!
//! A write to a hole gets the clusters that it touches, and nothing else, unless it goes on where others ended. Such a *run* has
//! space mapped ahead of it, as much as a quarter of what was written in it, and the next *window* is asked for when half of the
//! last one is used: so it is mapped when the writer arrives, who waits for no commit. What a random writer gets is what it needs,
//! whatever the file's size: mappings of concurrent writers share a batch of the metadata log, so a larger grain would save
//! little of the time and take many times the space.
//!
//! ```text
//!      written            used up to here: `next`            mapped up to here: `end`
//!   ├──────────────────────────┼───────────────────────────────────┤
//!     a run of 1 MiB or more      unused: ≤ a quarter of the run, ≤ 32 MiB; of a stream ≤ 64 MiB
//! ```
//! | who | mapped and not written, at most |
//! |---|---|
//! | random writes, files up to 1 MiB | nothing but the rest of their clusters (64 KiB) |
//! | a run | a quarter of what was written in it, 32 MiB |
//! | a stream | 64 MiB |
//! | any, once it has rested for 20 s, was closed, or the volume was | nothing |
//! | snapshots and clones, and what they were made of, when they are | nothing |
//! | a reservation under way, in all of what it reserves (`reserve.rs`) | nothing once it has failed |
//!
//! Invariant: clusters that are *unused* here have not been written since they were mapped, and read as zeros. Whoever writes to
//! them says so first, with their blocks locked; whoever gives them back has their blocks locked, too, and looks again.
//! What is unused is in the database as well (`leftovers.rs`), for the case that nobody is there any more to give it back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shard_runtime::Monotonic;

use crate::extents::END;

/// Clusters that a run has before space is mapped ahead of it: 1 MiB. What ends before that takes what it needs.
const RUN_MIN: u64 = 16;
/// Space is mapped ahead of a run by a part like this of what was written in it.
const AHEAD_PART: u64 = 4;
/// Clusters ahead of one run, at most: 32 MiB.
const WINDOW_MAX: u64 = 512;
/// Clusters of a stream that are mapped and were not written, at most: 64 MiB.
const UNUSED_MAX: u64 = 1024;
/// Clusters by which a write may miss the end of a run that it belongs to: 4 MiB, as writers have several requests under way.
const NEAR: u64 = 64;
/// Runs of a stream that are known at a time: writers side by side. Another one takes the place of the one used longest ago.
const RUNS: usize = 8;
/// After this time without a write to what is beside it, what is unused is given back.
const REST: Duration = Duration::from_secs(20);

/// Clusters `first..end`.
pub(crate) type Clusters = (u64, u64);

/// Writes one behind the other.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Clusters written.
    written: u64,
    /// Behind the last one.
    next: u64,
    /// Behind the last one that is mapped, or is being mapped.
    end: u64,
    /// When: a number that grows.
    turn: u64,
}

impl Run {
    fn has(&self, first: u64) -> bool {
        first.saturating_add(NEAR) >= self.next && first <= self.end.max(self.next).saturating_add(NEAR)
    }
}

#[derive(Default)]
struct Inner {
    runs: Vec<Run>,
    turn: u64,
    /// By first cluster: behind the last, and when something beside them was written last.
    unused: BTreeMap<u64, (u64, Monotonic)>,
    /// By first cluster, behind the last: what a reservation under way has mapped and nobody has written since. It is unused, too,
    /// but given back only if the reservation fails, or does not come to its end.
    held: BTreeMap<u64, u64>,
    /// How many clusters that are.
    held_clusters: u64,
    /// Windows that somebody should map.
    wanted: Vec<Clusters>,
    /// Those that are being mapped: the database says so before it has them.
    coming: Vec<Clusters>,
}

/// What is mapped ahead in a stream.
#[derive(Default)]
pub(crate) struct Ahead {
    inner: Mutex<Inner>,
    /// Clusters that are unused, so that a stream without any pays nothing.
    clusters: AtomicU64,
    is_wanted: AtomicBool,
    /// The database has a row of what is unused.
    recorded: AtomicBool,
}

/// What was unused in a stream when its last user left it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leftover {
    pub(crate) unused: Vec<Clusters>,
    pub(crate) recorded: bool,
}

impl Leftover {
    pub(crate) fn is_empty(&self) -> bool {
        self.unused.is_empty() && !self.recorded
    }
}

impl Inner {
    fn count(&self) -> u64 {
        self.unused.iter().map(|(first, (end, _))| end - first).sum()
    }

    /// Takes `first..end` out of what is held.
    fn release(&mut self, first: u64, end: u64) {
        while let Some((&from, &to)) = self.held.range(..end).next_back().filter(|(_, to)| **to > first) {
            self.held.remove(&from);
            self.held_clusters -= to.min(end) - from.max(first);
            if end < to {
                self.held.insert(end, to);
            }
            if from < first {
                self.held.insert(from, first);
            }
        }
    }

    /// The run that a write at `first` belongs to, as its latest.
    fn run_at(&mut self, first: u64) -> Option<&mut Run> {
        self.turn += 1;
        let turn = self.turn;
        let found = self.runs.iter_mut().filter(|run| run.has(first)).max_by_key(|run| run.turn)?;
        found.turn = turn;
        Some(found)
    }

    /// The window that is due behind a run, of a stream of `size` clusters; the run counts it as mapped.
    fn window(&mut self, at: usize, size: u64) -> Option<Clusters> {
        // Also what is being mapped.
        let asked: u64 = self.runs.iter().map(|run| run.end.saturating_sub(run.next)).sum();
        let room = UNUSED_MAX.saturating_sub(self.count().max(asked));
        let run = &mut self.runs[at];
        if run.written <= RUN_MIN {
            return None;
        }
        let window = (run.written / AHEAD_PART).min(WINDOW_MAX);
        if run.end.saturating_sub(run.next) >= window.div_ceil(2) {
            return None;
        }
        let from = run.end.max(run.next);
        let to = run.next.saturating_add(window).min(from.saturating_add(room));
        // No further than the stream goes, unless the run is what makes it grow; and never further than any stream can.
        let to = if run.next < size { to.min(size) } else { to.min(END) };
        (from < to).then(|| {
            run.end = to;
            (from, to)
        })
    }

    /// Takes `first..end` out of what is unused; how many clusters that were. The rest of what they were part of does not rest
    /// from `now` on, if that is said.
    fn remove(&mut self, first: u64, end: u64, now: Option<Monotonic>) -> u64 {
        let mut removed = 0;
        while let Some((&from, &(to, at))) =
            self.unused.range(..end).next_back().filter(|(_, (to, _))| *to > first)
        {
            let now = now.unwrap_or(at);
            self.unused.remove(&from);
            removed += to.min(end) - from.max(first);
            if end < to {
                self.unused.insert(end, (to, now));
            }
            if from < first {
                self.unused.insert(from, (first, now));
            }
        }
        removed
    }
}

impl Ahead {
    /// That of a stream that is opened again before what was left of it is given back.
    pub(crate) fn of(left: Leftover, now: Monotonic) -> Self {
        let ahead = Self { recorded: AtomicBool::new(left.recorded), ..Self::default() };
        ahead.add(&left.unused, now);
        ahead
    }

    /// Clusters that are mapped and were not written.
    pub(crate) fn clusters(&self) -> u64 {
        self.clusters.load(Ordering::Acquire)
    }

    fn counted(&self, inner: &Inner) {
        self.clusters.store(inner.count() + inner.held_clusters, Ordering::Release);
    }

    /// A write finds a hole in `first..last` of a stream of `size` clusters: the window to be mapped with it.
    pub(crate) fn plan(&self, first: u64, last: u64, size: u64) -> Option<Clusters> {
        let inner = &mut *self.inner.lock();
        let Some(run) = inner.run_at(first) else {
            let run = Run { written: last - first, next: last, end: last, turn: inner.turn };
            if inner.runs.len() < RUNS {
                inner.runs.push(run);
            } else if let Some(oldest) = inner.runs.iter_mut().min_by_key(|run| run.turn) {
                *oldest = run;
            }
            return None;
        };
        if first < run.end && run.next < run.end {
            // Somebody maps it already, and what is used of that is counted then.
            return None;
        }
        run.written += last - first;
        run.next = run.next.max(last);
        run.end = run.end.max(last);
        let turn = run.turn;
        let at = inner.runs.iter().position(|run| run.turn == turn)?;
        inner.window(at, size)
    }

    /// `first..last` of a stream of `size` clusters is about to be written; its blocks are locked. It is mapped. There is nothing to
    /// be said of a stream that has no [`Ahead::clusters`].
    pub(crate) fn write(&self, first: u64, last: u64, size: u64, now: Monotonic) {
        let inner = &mut *self.inner.lock();
        let held = inner.held_clusters;
        inner.release(first, last);
        let used = inner.remove(first, last, Some(now));
        if used == 0 {
            if inner.held_clusters != held {
                self.counted(inner);
            }
            return;
        }
        self.counted(inner);
        let Some(run) = inner.run_at(first) else { return };
        run.written += used;
        run.next = run.next.max(last);
        let turn = run.turn;
        let Some(at) = inner.runs.iter().position(|run| run.turn == turn) else { return };
        if let Some(window) = inner.window(at, size) {
            inner.wanted.push(window);
            self.is_wanted.store(true, Ordering::Release);
        }
    }

    /// The windows that should be mapped now, once.
    pub(crate) fn wanted(&self) -> Vec<Clusters> {
        // Looked at first: this is on the way of every write, and changing it takes it from the other processors.
        if !self.is_wanted.load(Ordering::Acquire) || !self.is_wanted.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut self.inner.lock().wanted)
    }

    /// Clusters were mapped that nobody has asked for yet. Before the map says so.
    pub(crate) fn add(&self, ranges: &[Clusters], now: Monotonic) {
        let inner = &mut *self.inner.lock();
        for (first, end) in ranges.iter().filter(|(first, end)| first < end) {
            inner.remove(*first, *end, Some(now));
            // One range where it goes on.
            let before = inner.unused.range(..=*first).next_back().map(|(first, (end, _))| (*first, *end));
            let from = before.filter(|(_, to)| to == first).map_or(*first, |(from, _)| from);
            let to = inner.unused.remove(end).map_or(*end, |(to, _)| to);
            inner.unused.insert(from, (to, now));
        }
        self.counted(inner);
    }

    /// What lies in `first..end` is not ahead of anything any more: it is a hole, or there on purpose.
    pub(crate) fn forget(&self, first: u64, end: u64) {
        let inner = &mut *self.inner.lock();
        inner.remove(first, end, None);
        inner.release(first, end);
        inner.runs.retain(|run| run.end <= first || end <= run.next);
        self.counted(inner);
    }

    /// As [`Ahead::forget`]: what of `first..end` was unused, for [`Ahead::add`] should nothing come of it.
    pub(crate) fn keep(&self, first: u64, end: u64) -> Vec<Clusters> {
        let kept = self.unused_in(first, end);
        self.forget(first, end);
        kept
    }

    /// Clusters were mapped, or were unused, that a reservation under way holds. Before the map says so, or with their blocks locked.
    pub(crate) fn hold(&self, ranges: &[Clusters]) {
        let inner = &mut *self.inner.lock();
        for (first, end) in ranges.iter().filter(|(first, end)| first < end) {
            inner.release(*first, *end);
            inner.held.insert(*first, *end);
            inner.held_clusters += end - first;
        }
        self.counted(inner);
    }

    /// What is held in `first..end`.
    pub(crate) fn held_in(&self, first: u64, end: u64) -> Vec<Clusters> {
        let inner = self.inner.lock();
        let met = inner.held.iter().filter(|(from, to)| **from < end && **to > first);
        met.map(|(from, to)| ((*from).max(first), (*to).min(end))).collect()
    }

    /// A reservation has come to its end: what it held is there on purpose.
    pub(crate) fn let_go(&self) {
        let inner = &mut *self.inner.lock();
        inner.held.clear();
        inner.held_clusters = 0;
        self.counted(inner);
    }

    /// What of `first..end` is unused.
    pub(crate) fn unused_in(&self, first: u64, end: u64) -> Vec<Clusters> {
        let inner = self.inner.lock();
        let met = inner.unused.iter().filter(|(from, (to, _))| **from < end && *to > first);
        met.map(|(from, (to, _))| ((*from).max(first), (*to).min(end))).collect()
    }

    /// What is unused, and rests.
    pub(crate) fn resting(&self, now: Monotonic) -> Vec<Clusters> {
        if self.clusters() == 0 {
            return Vec::new();
        }
        let inner = self.inner.lock();
        let resting = inner.unused.iter().filter(|(_, (_, at))| now.since(*at) >= REST);
        resting.map(|(first, (end, _))| (*first, *end)).collect()
    }

    /// What is to be in the database before `window` is mapped: that, all that is unused, and what others are mapping. Until
    /// [`Ahead::arrived`].
    pub(crate) fn record(&self, window: Clusters) -> Vec<Clusters> {
        let inner = &mut *self.inner.lock();
        self.recorded.store(true, Ordering::Release);
        inner.coming.push(window);
        let all = inner.unused.iter().map(|(first, (end, _))| (*first, *end));
        all.chain(inner.coming.iter().copied()).collect()
    }

    /// What [`Ahead::record`] was asked for is mapped, or is not and will not be.
    pub(crate) fn arrived(&self, window: Clusters) {
        let inner = &mut *self.inner.lock();
        if let Some(at) = inner.coming.iter().position(|coming| *coming == window) {
            inner.coming.swap_remove(at);
        }
    }

    /// Whether nothing is unused and the database still says so. It is told.
    pub(crate) fn is_outdated(&self) -> bool {
        self.is_recorded() && self.clusters() == 0
    }

    /// Whether the database may have a row of what is unused.
    pub(crate) fn is_recorded(&self) -> bool {
        self.recorded.load(Ordering::Acquire)
    }

    /// The database has no row any more.
    pub(crate) fn unrecorded(&self) {
        self.recorded.store(false, Ordering::Release);
    }

    /// All that is left when nobody uses the stream any more.
    pub(crate) fn take(&self) -> Leftover {
        let inner = std::mem::take(&mut *self.inner.lock());
        self.clusters.store(0, Ordering::Release);
        let unused = inner.unused.iter().map(|(first, (end, _))| (*first, *end));
        // The end of the volume comes before that of a reservation, which fails.
        let unused = unused.chain(inner.held).collect();
        Leftover { unused, recorded: self.recorded.swap(false, Ordering::AcqRel) }
    }
}
