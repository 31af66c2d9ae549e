//! [`Capacity`]: how many requests may be at the volume, learnt from its answers, and what it can do.
//!
//! What is at the volume cannot be overtaken, so a minimum is worth nothing once it waits in the queues of disks behind a thousand
//! requests of others. While somebody would suffer by that, and only then, fewer are let to the volume; all others go up to the
//! configured depth.
//!
//! ```text
//!   answers ──► window: latency of each cell (reads, writes; sizes) ──► how many times longer than when the volume is quiet
//!                                                                            │ above the target, somebody suffers: fewer
//!   classes ──► who has a minimum, is busy, and gets too little ─────────────┤ well below it, somebody suffers: a few more
//!                                                                            └ nobody suffers: soon as many as configured
//! ```
//!
//! * *Quiet* is the lowest smoothed latency of a cell over some minutes. It may be wrong: a disk has become slower, a cache misses
//!   more, the volume has never been quiet. So each cut is a *trial*: if it does not shorten the latency, then no queue was the
//!   reason. The depth is as before then, and what is measured is quiet from now on.
//! * Where a minimum is missed though the latency is within the target, a trial finds out whether quiet is quieter than that.
//! * A cut that costs the volume more than a sixth of what it can do is in vain, too, whatever it does for the latency: a minimum that
//!   no volume could meet costs others no more than that.
//! * A volume that answers nothing has all its places back: what is never answered holds back nobody by this.

use crate::Kind;

const MS: u64 = 1_000_000;
/// A window ends after this, if it has enough answers.
const WINDOW: u64 = 100 * MS;
/// Answers by which a window's mean is one.
const ENOUGH: u64 = 32;
/// A window ends after this with fewer of them.
const LONG_WINDOW: u64 = 500 * MS;
const FEW: u64 = 8;
/// A volume that has answered nothing for so long stands still.
const STALLED: u64 = 1000 * MS;
/// How long the lowest latency counts: between one and two of these.
const EPOCH: u64 = 150_000 * MS;
/// So many windows in a row have to show that a cut is in vain.
const DOUBTS: u32 = 3;
/// How long what a trial found is believed.
const BELIEVED: u64 = 10_000 * MS;
/// After nobody has suffered for so long, more are let to the volume.
const HELD_FOR: u64 = 1000 * MS;
/// The target where none is configured, in thousandths of the quiet latency: for who has a minimum, and for who has less than its
/// share. At twice the quiet latency a volume has as much under way again as it needs to be busy.
const MINIMUM_TARGET: u64 = 2000;
const SHARE_TARGET: u64 = 4000;
/// Fewest requests at the volume.
const LEAST: u32 = 1;
/// Sizes that are told apart: 1, 2, 4, … units and all above.
const SIZES: usize = 8;
const CELLS: usize = 2 * SIZES;

/// Who would suffer from a queue at the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Suffering {
    /// Nobody.
    Nobody,
    /// A flow that asks for no more than its share gets less.
    Share,
    /// A class that has a minimum gets little more than that.
    Minimum,
    /// A class is busy and does not get its minimum.
    Missed,
}

/// What becomes of the window with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    GoesOn,
    /// It is to be closed.
    Ends,
    /// What came so far was of before a cut.
    BeginsAnew,
}

/// A volume at the end of a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Volume {
    /// Requests that may be there by configuration.
    pub(crate) most: u32,
    /// The latency that is wanted, in nanoseconds; 0 for one by what is quiet.
    pub(crate) target: u64,
    /// Requests there now, and those of them whose classes have had no answer for long.
    pub(crate) there: u32,
    pub(crate) stuck: u32,
}

/// What a volume can do, as far as it was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learnt {
    /// Normalised I/Os per second that it does when more are wanted; 0 until that was so.
    pub units: u64,
    /// Requests that may be at it now.
    pub depth: u32,
    /// How long an answer took lately on the average, in nanoseconds.
    pub latency: u64,
    /// How many times longer than when the volume is quiet, in thousandths; 0 until there were answers.
    pub slowdown_permille: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    answers: u64,
    nanos: u64,
    /// Its mean over the last windows.
    smooth: u64,
    /// The lowest of those of this epoch and of the one before; 0: none.
    lowest: u64,
    lowest_before: u64,
}

impl Cell {
    fn mean(&self) -> Option<u64> {
        self.nanos.checked_div(self.answers)
    }

    fn quiet(&self) -> u64 {
        match (self.lowest, self.lowest_before) {
            (0, quiet) | (quiet, 0) => quiet,
            (now, before) => now.min(before),
        }
    }
}

/// A cut whose outcome is waited for.
#[derive(Clone, Copy, Debug)]
struct Trial {
    from: u32,
    to: u32,
    /// Answers to come of what was at the volume before.
    stale: u64,
    /// Windows that have shown that it does not help.
    doubts: u32,
    /// Mean latencies before it, by cell.
    before: [u64; CELLS],
}

#[derive(Debug)]
pub(crate) struct Capacity {
    cells: [Cell; CELLS],
    started: u64,
    /// When the last answer came.
    last: u64,
    answers: u64,
    units: u64,
    nanos: u64,
    /// Answers at which others could have gone, had there been a place.
    crowded: u64,
    /// Most requests that were at the volume at once.
    peak: u32,
    epoch: u64,
    /// Requests that may be at the volume, if that is less than configured.
    held: Option<u32>,
    /// Requests at the volume of classes that have had no answer for long; they take no places of what is held.
    stuck: u32,
    trial: Option<Trial>,
    /// Until when, and up to which number of requests, a trial has shown that fewer would not help.
    believed: (u64, u32),
    /// Until when it counts that a minimum was missed, and with how many requests at the volume.
    missed: (u64, u32),
    suffered: u64,
    /// Mean latency of the window before.
    mean_before: u64,
    learnt: Learnt,
}

fn cell(kind: Kind, units: u64) -> usize {
    let size = (u64::BITS - units.max(1).saturating_sub(1).leading_zeros()) as usize;
    size.min(SIZES - 1) + if kind == Kind::Read { 0 } else { SIZES }
}

fn permille(part: u128, whole: u128) -> u64 {
    (part * 1000).checked_div(whole).map_or(0, |permille| u64::try_from(permille).unwrap_or(u64::MAX))
}

/// A quarter of the way to a new value.
fn smoothed(before: u64, now: u64) -> u64 {
    if before == 0 { now } else { before - before / 4 + now / 4 }
}

impl Capacity {
    pub(crate) fn new() -> Self {
        Self {
            cells: [Cell::default(); CELLS],
            started: 0,
            last: 0,
            answers: 0,
            units: 0,
            nanos: 0,
            crowded: 0,
            peak: 0,
            epoch: 0,
            held: None,
            stuck: 0,
            trial: None,
            believed: (0, 0),
            missed: (0, 0),
            suffered: 0,
            mean_before: 0,
            learnt: Learnt::default(),
        }
    }

    /// How many requests may be at the volume, of `most` that are configured.
    pub(crate) fn depth(&self, most: u32) -> u32 {
        self.held.map_or(most, |held| held.saturating_add(self.stuck).min(most))
    }

    pub(crate) fn holds_back(&self) -> bool {
        self.held.is_some()
    }

    pub(crate) fn learnt(&self, most: u32) -> Learnt {
        Learnt { depth: self.depth(most), ..self.learnt }
    }

    /// When the present window began.
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    /// The volume answered a request that was one of `there`; `crowded`: others could have gone, had there been a place.
    pub(crate) fn answered(
        &mut self,
        now: u64,
        (kind, units): (Kind, u64),
        nanos: u64,
        there: u32,
        crowded: bool,
    ) -> Window {
        self.last = now;
        if let Some(trial) = self.trial.as_mut().filter(|trial| trial.stale > 0) {
            trial.stale -= 1;
            if trial.stale == 0 {
                self.begin(now);
                return Window::BeginsAnew;
            }
        }
        let cell = &mut self.cells[cell(kind, units)];
        cell.answers += 1;
        cell.nanos = cell.nanos.saturating_add(nanos);
        self.answers += 1;
        self.units = self.units.saturating_add(units);
        self.nanos = self.nanos.saturating_add(nanos);
        self.crowded += u64::from(crowded);
        self.peak = self.peak.max(there);
        if self.has_ended(now) { Window::Ends } else { Window::GoesOn }
    }

    fn stands_still(&self, now: u64) -> bool {
        now.saturating_sub(self.last.max(self.started)) >= STALLED
    }

    /// Whether the window has ended. While a cut settles it does not, unless nothing is answered any more.
    pub(crate) fn has_ended(&self, now: u64) -> bool {
        let span = now.saturating_sub(self.started);
        let settles = self.trial.is_some_and(|trial| trial.stale > 0);
        let ends = (span >= WINDOW && self.answers >= ENOUGH)
            || (span >= LONG_WINDOW && self.answers >= FEW)
            || span >= 2 * STALLED;
        (ends && !settles) || self.stands_still(now)
    }

    /// A new window.
    fn begin(&mut self, now: u64) {
        self.started = now;
        (self.answers, self.units, self.nanos, self.crowded, self.peak) = (0, 0, 0, 0, 0);
        for cell in &mut self.cells {
            (cell.answers, cell.nanos) = (0, 0);
        }
    }

    /// Takes what the window has shown, and decides how many may be at the volume.
    pub(crate) fn close(&mut self, now: u64, suffering: Suffering, volume: Volume) {
        let Volume { most, there, stuck, .. } = volume;
        self.stuck = stuck;
        if self.stands_still(now) {
            if there > 0 {
                self.held = None;
            }
            self.trial = None;
        }
        if self.answers < FEW {
            // Nothing can be learnt from it; where little is asked, nobody is held back for long.
            self.relax(now, most, suffering);
            return self.begin(now);
        }
        let span = now.saturating_sub(self.started).max(1);
        self.learn_rate(span);
        let slowdown = self.slowdown();
        self.learn_quiet(now, suffering);
        self.learnt.latency = smoothed(self.learnt.latency, self.nanos / self.answers);
        self.learnt.slowdown_permille = smoothed(self.learnt.slowdown_permille, slowdown);
        let trial = self.trial.take_if(|trial| trial.stale == 0);
        let in_vain = trial.is_some_and(|trial| self.was_in_vain(now, &trial));
        if let Some(trial) = trial.filter(|trial| in_vain && trial.doubts + 1 < DOUBTS) {
            // Perhaps the node itself stood still for a moment.
            self.trial = Some(Trial { doubts: trial.doubts + 1, ..trial });
        } else if let Some(trial) = trial
            && in_vain
        {
            // Perhaps it can do less than it could: that shows with all places.
            let from = if self.costs_much(now) { most } else { trial.from };
            self.held = (from < most).then_some(from);
            self.believed = (now.saturating_add(BELIEVED), trial.from);
            self.learnt.slowdown_permille = 1000;
            for cell in self.cells.iter_mut().filter(|cell| cell.answers > 0) {
                (cell.lowest, cell.lowest_before) = (cell.smooth, 0);
            }
        } else if suffering == Suffering::Nobody {
            self.relax(now, most, suffering);
        } else {
            self.suffered = now;
            self.follow(now, suffering, volume, slowdown);
        }
        self.mean_before = self.nanos / self.answers;
        self.begin(now);
    }

    /// Keeps the latency at the target.
    fn follow(&mut self, now: u64, suffering: Suffering, volume: Volume, slowdown: u64) {
        let Volume { most, target, .. } = volume;
        let wanted = if suffering == Suffering::Share { SHARE_TARGET } else { MINIMUM_TARGET };
        // A load that is just coming is not compared with itself a moment later.
        let mean = self.nanos / self.answers.max(1);
        let steady = mean <= self.mean_before.saturating_add(self.mean_before / 4);
        // By how much the latency is above the target, in thousandths of that.
        let above = if target > 0 {
            permille(u128::from(mean), u128::from(target))
        } else {
            permille(u128::from(slowdown), u128::from(wanted))
        };
        let depth = self.held.unwrap_or(most);
        let used = depth.min(self.peak.saturating_sub(self.stuck).max(1));
        let (until, shown_for) = self.believed;
        let believed = now < until && used <= shown_for.saturating_add(shown_for / 4);
        if suffering == Suffering::Missed {
            self.missed = (now.saturating_add(BELIEVED), used);
        }
        let (until, missed_at) = self.missed;
        let room = now >= until || depth < missed_at - missed_at / 4;
        // Against what is quiet it is judged by what the trial has found: above that by so much, it was wrong, or more has come.
        if above > 1000 && (!believed || target == 0) {
            if !steady {
                return;
            }
            let kept = permille(1000, u128::from(above)).clamp(250, 900);
            self.cut(used, kept, volume);
        } else if suffering == Suffering::Missed && !believed && used > LEAST {
            self.cut(used, 700, volume);
        } else if self.is_crowded() && (slowdown < 1100 || (above < 800 && room)) {
            self.set(depth.saturating_add((depth / 16).max(1)), most);
        }
    }

    fn is_crowded(&self) -> bool {
        self.crowded * 4 >= self.answers * 3
    }

    fn cut(&mut self, used: u32, kept: u64, volume: Volume) {
        let to = (u64::from(used) * kept / 1000) as u32;
        let to = to.max(LEAST).min(volume.most);
        if to >= used {
            return;
        }
        let before = self.cells.map(|cell| cell.mean().unwrap_or(0));
        let stale = volume.there.saturating_sub(volume.stuck);
        self.trial = Some(Trial { from: used, to, stale: u64::from(stale), doubts: 0, before });
        self.set(to, volume.most);
    }

    fn set(&mut self, depth: u32, most: u32) {
        self.held = (depth < most).then_some(depth);
    }

    /// Lets more to the volume while nobody suffers.
    fn relax(&mut self, now: u64, most: u32, suffering: Suffering) {
        if suffering == Suffering::Nobody
            && now.saturating_sub(self.suffered) >= HELD_FOR
            && let Some(held) = self.held
        {
            self.set(held.saturating_add(held / 4 + 1), most);
        }
    }

    /// For how long a class has to be without an answer until its requests take no places of what is held.
    pub(crate) fn silence(&self) -> u64 {
        self.learnt.latency.saturating_mul(4).max(STALLED)
    }

    /// Whether the volume does much less than it can.
    fn costs_much(&self, now: u64) -> bool {
        let rate = self.rate(now.saturating_sub(self.started).max(1));
        u128::from(rate) * 6 < u128::from(self.learnt.units) * 5
    }

    /// Whether a cut has shortened the latency by less than half of what it would have, were it all for a queue, or the volume does much
    /// less than it can.
    fn was_in_vain(&self, time: u64, trial: &Trial) -> bool {
        let (mut now, mut before) = (0u128, 0u128);
        for (cell, mean) in self.cells.iter().zip(trial.before).filter(|(_, mean)| *mean > 0) {
            now += u128::from(cell.nanos);
            before += u128::from(cell.answers) * u128::from(mean);
        }
        let (from, to) = (u64::from(trial.from.max(1)), u64::from(trial.to));
        self.costs_much(time)
            || (before > 0 && permille(now, before) > 1000 - (from - to.min(from)) * 500 / from)
    }

    /// How many times longer the answers took than when the volume is quiet, in thousandths.
    fn slowdown(&self) -> u64 {
        let (mut now, mut quiet) = (0u128, 0u128);
        for cell in self.cells.iter().filter(|cell| cell.quiet() > 0) {
            now += u128::from(cell.nanos);
            quiet += u128::from(cell.answers) * u128::from(cell.quiet());
        }
        if quiet == 0 { 1000 } else { permille(now, quiet) }
    }

    fn learn_quiet(&mut self, now: u64, suffering: Suffering) {
        // While others are held back, what is lowest is what holding them back makes of a busy volume: it would be taken for quiet, the
        // target would follow, and in the end nobody would be protected.
        let is_free = self.held.is_none() && suffering == Suffering::Nobody;
        let ends = is_free && now.saturating_sub(self.epoch) >= EPOCH;
        if ends {
            self.epoch = now;
        }
        let believed = now < self.believed.0;
        for cell in &mut self.cells {
            if ends {
                cell.lowest_before = cell.lowest;
                cell.lowest = 0;
            }
            let Some(mean) = cell.mean().filter(|_| cell.answers >= FEW) else { continue };
            cell.smooth = smoothed(cell.smooth, mean);
            // What a trial has found is not undone by a window that happened to have more hits of a cache.
            if cell.lowest == 0 || (cell.smooth < cell.lowest && !believed) {
                cell.lowest = cell.smooth.max(1);
            }
        }
    }

    /// Normalised I/Os per second of the present window, which is so long.
    fn rate(&self, span: u64) -> u64 {
        let rate = u128::from(self.units) * u128::from(1000 * MS) / u128::from(span);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    fn learn_rate(&mut self, span: u64) {
        let rate = self.rate(span);
        let known = self.learnt.units;
        // With less at it than it needs it does less than it can; so it may while others are held back.
        let shows_all = self.is_crowded() && self.trial.is_none() && (self.held.is_none() || known == 0);
        if shows_all || (known > 0 && rate > known) {
            self.learnt.units = smoothed(known, rate);
        }
    }
}
