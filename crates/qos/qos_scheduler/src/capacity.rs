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
//!               how many times too little ──► as many times fewer           └ nobody suffers: soon as many as configured
//! ```
//!
//! * Who keeps a number of requests under way has as many times less than its minimum as its requests take too long (Little's law). So the
//!   missed minimum itself says by how much the queue is too long, whatever the volume is when it is quiet, and while it is just met the depth
//!   stays where it is.
//! * *Quiet* is the lowest smoothed latency of a cell over some minutes. It may be wrong: a disk has become slower, a cache misses
//!   more, the volume has never been quiet. What comes in another size for the first time while others wait is taken to be as many times slower
//!   than when it is quiet as those are; for quiet itself it would hide the queue. So each cut is a *trial*: if it does not shorten the latency, then no queue was the
//!   reason. The depth is as before then, and what is measured is quiet from now on.
//! * A cut that costs the volume too much of what it can do is in vain, too, whatever it does for the latency. A minimum that is met when the
//!   volume is quiet may cost three quarters of that, as it was promised; one that no volume could meet costs others a sixth.
//! * A volume that does much less than it did with as many requests has become slower. What it can is less by as much then: by what it could do
//!   before, any cut would seem to cost too much.
//! * A volume that answers nothing has all its places back: what is never answered holds back nobody by this.

mod latency;
mod rate;
mod trial;

use crate::Kind;
use latency::Latencies;
use rate::Rate;
use trial::Trial;

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
/// So many windows in a row have to show that a cut is in vain.
const DOUBTS: u32 = 3;
/// How long what a trial found is believed.
const BELIEVED: u64 = 10_000 * MS;
/// After nobody has suffered for so long, more are let to the volume.
const HELD_FOR: u64 = 1000 * MS;
/// The target where none is configured, for who has a minimum and does not use it up, in thousandths of the quiet latency. At twice that a
/// volume has as much under way again as it needs to be busy.
const TARGET: u64 = 2000;
/// After a cut for a missed minimum that should be so much of what it is, in thousandths: a little more than just met.
const MARGIN: u64 = 1050;
/// After a cut the volume does at least so much of what it can, in thousandths: for a minimum that is met when it is quiet, and for all else.
const LEFT_BY_MINIMUM: u64 = 250;
const LEFT: u64 = 833;
/// Cuts for a missed minimum grow so often.
const MOST_STEPS: u32 = 8;
/// Latencies up to here, in thousandths of what is taken for quiet, may be those of a queue that was never gone.
const DOUBTS_QUIET: u64 = 1500;
/// In so many windows a volume has to have been asked for more than it did until it is said what it can do: a burst that its caches took shows no more
/// than that.
const SHOWN: u32 = 10;
/// Fewest requests at the volume.
const LEAST: u32 = 1;

/// Who would suffer from a queue at the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Suffering {
    /// Nobody.
    Nobody,
    /// Nobody, but a class that is busy has a minimum.
    Comfortable,
    /// A class is busy and does not get its minimum, which it would not get of a quiet volume either.
    Hopeless(Short),
    /// A flow that asks for no more than its share gets less.
    Share(Short),
    /// A class that is busy gets its minimum, and little more.
    Met,
    /// A class that has a minimum has requests under way from time to time, and each waits for others.
    Minimum,
    /// A class is busy and does not get its minimum.
    Missed(Short),
}

/// By how much a minimum, or a share, is missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Short {
    /// How many times more it would have to be, in thousandths.
    pub(crate) times: u64,
    /// Requests that it has under way.
    pub(crate) places: u32,
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
    /// Normalised I/Os per second that it does when more are wanted; 0 until that was so for a second or more.
    pub units: u64,
    /// What the requests with which that was learnt counted for on the average, in thousandths of a normalised I/O: of larger ones a volume
    /// does fewer, and more of these.
    pub request_units_permille: u64,
    /// Requests that may be at it now.
    pub depth: u32,
    /// How long an answer took lately on the average, in nanoseconds.
    pub latency: u64,
    /// How many times longer than when the volume is quiet, in thousandths; 0 until there were answers.
    pub slowdown_permille: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Capacity {
    latencies: Latencies,
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
    /// Requests that may be at the volume, if that is less than configured.
    held: Option<u32>,
    /// Requests at the volume of classes that have had no answer for long; they take no places of what is held.
    stuck: u32,
    trial: Option<Trial>,
    /// Until when, and up to which number of requests, a trial has shown that fewer would not help: those for a promise that can be kept, and all others.
    believed: [(u64, u32); 2],
    /// The last such trial has shown that they would cost too much.
    costly: bool,
    /// What the volume did before the first of the cuts that hold back now.
    can: Rate,
    /// What it did most with so many requests while it was held back to them.
    does: Option<(u32, Rate)>,
    /// Windows in a row in which it did much less than that with as many or more.
    slower: u32,
    /// Somebody has suffered in the window before.
    suffers: bool,
    /// Cuts for a missed minimum that were not enough; fewer again with each window in which none is missed.
    steps: u32,
    /// Until when it counts that a minimum was missed, and with how many requests at the volume.
    missed: (u64, u32),
    /// The same of a share.
    unshared: (u64, u32),
    suffered: u64,
    /// Mean latency of the window before.
    mean_before: u64,
    learnt: Learnt,
    /// Windows in which more was wanted than it did.
    shown: u32,
}

fn permille(part: u128, whole: u128) -> u64 {
    (part * 1000).checked_div(whole).map_or(0, |permille| u64::try_from(permille).unwrap_or(u64::MAX))
}

/// A quarter of the way to a new value.
pub(crate) fn smoothed(before: u64, now: u64) -> u64 {
    if before == 0 { now } else { before - before / 4 + now / 4 }
}

/// The same, but at once to less than half of it: that is another load, or another volume.
fn towards(before: u64, now: u64) -> u64 {
    if now < before / 2 { now } else { smoothed(before, now) }
}

/// So many requests that what was missed with `missed_at` at the volume is not missed again.
fn below(missed_at: u32) -> u32 {
    missed_at.saturating_sub((missed_at / 4).max(1))
}

impl Capacity {
    /// How many requests may be at the volume, of `most` that are configured.
    pub(crate) fn depth(&self, most: u32) -> u32 {
        self.held.map_or(most, |held| held.saturating_add(self.stuck).min(most))
    }

    /// The same without those of classes that have had no answer for long.
    pub(crate) fn places(&self, most: u32) -> u32 {
        self.held.map_or(most, |held| held.min(most))
    }

    /// How long such a request takes when the volume is quiet, in nanoseconds; 0: that is not known yet.
    pub(crate) fn quiet(&self, kind: Kind, units: u64) -> u64 {
        self.latencies.quiet(kind, units)
    }

    /// How long those that were answered in this window would have taken on the average, were the volume quiet.
    pub(crate) fn quiet_mean(&self) -> u64 {
        let mean = u128::from(self.nanos / self.answers.max(1)) * 1000;
        u64::try_from(mean / u128::from(self.latencies.slowdown().max(1))).unwrap_or(u64::MAX)
    }

    pub(crate) fn holds_back(&self) -> bool {
        self.held.is_some()
    }

    pub(crate) fn learnt(&self, most: u32) -> Learnt {
        let known = if self.shown < SHOWN { Learnt { units: 0, ..self.learnt } } else { self.learnt };
        Learnt { depth: self.depth(most), ..known }
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
        self.latencies.answered(kind, units, nanos);
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
        self.latencies.begin();
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
        self.learn_rate(now);
        if self.held.is_some() {
            // The first cut may have been made beside little load, or while the volume was slow: what others may be made to pay is by what it can.
            self.can = self.can.up_to(self.rate(now));
            self.learn_slower(now);
        }
        let slowdown = self.latencies.slowdown();
        let is_free = self.held.is_none() && suffering == Suffering::Nobody;
        let believed = self.believed.iter().any(|(until, _)| now < *until);
        self.latencies.learn(now, is_free, believed);
        self.learnt.latency = smoothed(self.learnt.latency, self.nanos / self.answers);
        self.learnt.slowdown_permille = smoothed(self.learnt.slowdown_permille, slowdown);
        let trial = self.trial.take_if(|trial| trial.stale == 0);
        if let Some(trial) = &trial {
            self.learn_less(now, trial);
        }
        let in_vain = trial.is_some_and(|trial| self.was_in_vain(now, &trial));
        if let Some(trial) = trial.filter(|trial| in_vain && trial.doubts + 1 < DOUBTS) {
            // Perhaps the node itself stood still for a moment.
            self.trial = Some(Trial { doubts: trial.doubts + 1, ..trial });
        } else if let Some(trial) = trial
            && in_vain
        {
            self.costly = self.costs_much(now, &trial);
            self.held = trial.held;
            self.believed[usize::from(trial.left == LEFT)] = (now.saturating_add(BELIEVED), trial.from);
            // It may have done that for another load.
            self.can = if self.costly && trial.rate.of(self.can) < 250 { trial.rate } else { self.can };
            if !self.costly {
                self.learnt.slowdown_permille = 1000;
                self.latencies.are_quiet();
            }
        } else {
            match suffering {
                Suffering::Nobody => self.relax(now, most, suffering),
                Suffering::Missed(short) | Suffering::Hopeless(short) | Suffering::Share(short) => {
                    self.shorten(now, suffering, short, volume, slowdown)
                }
                Suffering::Comfortable if volume.target == 0 => self.widen(now, most),
                Suffering::Met if volume.target == 0 => {}
                _ => self.follow(now, volume, slowdown),
            }
            if suffering != Suffering::Nobody {
                self.suffered = now;
            }
            if !matches!(suffering, Suffering::Missed(_) | Suffering::Hopeless(_) | Suffering::Share(_)) {
                self.steps = self.steps.saturating_sub(1);
            }
        }
        self.suffers = !matches!(suffering, Suffering::Nobody | Suffering::Comfortable);
        self.mean_before = self.nanos / self.answers;
        self.begin(now);
    }

    /// Requests at the volume of classes that are answered.
    fn used(&self, most: u32) -> u32 {
        self.held.unwrap_or(most).min(self.peak.saturating_sub(self.stuck).max(1))
    }

    fn is_believed(&self, now: u64, used: u32, left: u64) -> bool {
        let (until, shown_for) = self.believed[usize::from(left == LEFT)];
        now < until && used <= shown_for.saturating_add(shown_for / 4)
    }

    /// Whether the load has come to rest: one that is just coming is not compared with itself a moment later.
    fn is_steady(&self) -> bool {
        let mean = self.nanos / self.answers.max(1);
        self.suffers && mean <= self.mean_before.saturating_add(self.mean_before / 4)
    }

    /// Makes the queue as many times shorter as a minimum, or a share, is missed.
    fn shorten(&mut self, now: u64, suffering: Suffering, short: Short, volume: Volume, slowdown: u64) {
        let used = self.used(volume.most);
        let is_share = matches!(suffering, Suffering::Share(_));
        let missed = if is_share { &mut self.unshared } else { &mut self.missed };
        *missed = (now.saturating_add(BELIEVED), used);
        let is_promise = matches!(suffering, Suffering::Missed(_));
        let left = if is_promise { LEFT_BY_MINIMUM } else { LEFT };
        if self.is_believed(now, used, left) || !self.is_steady() {
            return;
        }
        let mean = u128::from(self.nanos / self.answers.max(1));
        let quiet = mean * 1000 / u128::from(slowdown.max(1));
        // The queue is what is shortened; what remains of the latency without one is not.
        let by_queue = permille(quiet * u128::from(MARGIN) / 1000, mean.max(1));
        let once = permille(u128::from(1000 * 1000 / MARGIN), u128::from(short.times.max(1)));
        // Who sends at a rate of its own has as many fewer under way as answers come sooner, and never asks for all of its minimum.
        let more = (0..self.steps / 2).fold(once, |kept, _| kept * once / 1000);
        let mut kept = more.max(by_queue);
        if volume.target > 0 {
            kept = kept.min(permille(u128::from(volume.target), mean.max(1)));
        }
        // One more than it needs itself, so that there is one for others; fewer where it looks as if it could not be met though there is no queue.
        let least = short.places.saturating_add(1);
        let doubts_quiet = used <= least && !is_promise && slowdown < DOUBTS_QUIET;
        let least = if doubts_quiet { 0 } else { (u64::from(least) * 1000).div_ceil(u64::from(used.max(1))) };
        self.cut(now, used, kept.clamp(250, 950).max(least), volume, left);
        if self.trial.is_some() {
            self.steps = (self.steps + 2).min(2 * MOST_STEPS);
        }
    }

    /// Lets a few more to the volume while minimums are met, but not soon as many again as have missed one.
    fn widen(&mut self, now: u64, most: u32) {
        let Some(depth) = self.held.filter(|_| self.is_crowded()) else { return };
        let (until, missed_at) = self.missed;
        let to = depth.saturating_add((depth / 16).max(1));
        if now >= until || to <= below(missed_at) {
            self.set(to, most);
        }
    }

    /// Keeps the latency at the target.
    fn follow(&mut self, now: u64, volume: Volume, slowdown: u64) {
        let Volume { most, target, .. } = volume;
        let mean = self.nanos / self.answers.max(1);
        // By how much the latency is above the target, in thousandths of that.
        let above = if target > 0 {
            permille(u128::from(mean), u128::from(target))
        } else {
            permille(u128::from(slowdown), u128::from(TARGET))
        };
        // Against what is quiet it is judged by what the trial has found: above that by so much, it was wrong, or more has come.
        let used = self.used(most);
        if above > 1000 && (!self.is_believed(now, used, LEFT) || (target == 0 && !self.costly)) {
            if self.is_steady() {
                self.cut(now, used, permille(1000, u128::from(above)).clamp(250, 900), volume, LEFT);
            }
        } else if slowdown < 1100 && self.is_crowded() {
            let depth = self.held.unwrap_or(most);
            self.set(depth.saturating_add((depth / 16).max(1)), most);
        } else if above < 800 {
            self.widen(now, most);
        }
    }

    fn is_crowded(&self) -> bool {
        self.crowded * 4 >= self.answers * 3
    }

    fn cut(&mut self, now: u64, used: u32, kept: u64, volume: Volume, left: u64) {
        let to = (u64::from(used) * kept / 1000) as u32;
        let to = to.max(LEAST).min(volume.most);
        if to >= used {
            return;
        }
        let before = self.latencies.means();
        let rate = self.rate(now);
        if self.held.is_none() {
            self.can = rate;
        }
        let stale = volume.there.saturating_sub(volume.stuck);
        let held = self.held;
        self.trial =
            Some(Trial { from: used, to, held, stale: u64::from(stale), doubts: 0, left, rate, before });
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
            let to = held.saturating_add(held / 4 + 1);
            // Who has missed a minimum and misses it no more is gone; a share is not missed any more because of what is held.
            let (until, missed_at) = self.unshared;
            self.set(if now < until { to.min(held.max(below(missed_at))) } else { to }, most);
        }
    }

    /// For how long a class has to be without an answer until its requests take no places of what is held.
    pub(crate) fn silence(&self) -> u64 {
        self.learnt.latency.saturating_mul(4).max(STALLED)
    }

    /// What the volume has done in the present window.
    fn rate(&self, now: u64) -> Rate {
        Rate::over(now.saturating_sub(self.started), self.answers, self.units)
    }

    fn learn_rate(&mut self, now: u64) {
        let (rate, known) = (self.rate(now).units, self.learnt.units);
        // With less at it than it needs it does less than it can; so it may while others are held back.
        let shows_all = self.is_crowded() && self.trial.is_none() && (self.held.is_none() || known == 0);
        self.shown = self.shown.saturating_add(u32::from(self.is_crowded()));
        if shows_all {
            self.learnt.units = towards(known, rate);
        } else if known > 0 && rate > known {
            self.learnt.units = smoothed(known, rate);
        } else {
            return;
        }
        let size = permille(u128::from(self.units), u128::from(self.answers));
        let is_another_load = rate < known / 2;
        let before = if is_another_load { 0 } else { self.learnt.request_units_permille };
        self.learnt.request_units_permille = smoothed(before, size);
    }
}
