//! What the volume answers: how many requests may be at it, and who would suffer by more.

use std::cmp::Reverse;

use super::{FlowId, Scheduler};
use crate::Kind;
use crate::capacity::{Learnt, Short, Suffering, Volume, Window, smoothed};
use crate::class::ClassWindow;
use crate::pace::SECOND;

/// A class is busy if it had so many requests under way on the average, in thousandths.
const BUSY: u64 = 900;
/// A class with a minimum that has so many under way would suffer by longer latencies.
const USES: u64 = 250;
/// It has enough with so much of its minimum, in thousandths.
const COMFORTABLE: u64 = 1250;
/// A minimum is met with so much of it.
const MET: u64 = 990;
/// It is missed when a class is behind by what it gives in a twentieth of a second, or by this, in thousandths of I/Os.
const BEHIND: u64 = 3000;
/// Places are kept for so many classes at the most: each start looks at them.
const KEEPERS: usize = 16;
/// Less than its share is so much of what those get that wait, in thousandths.
const LESS: u64 = 900;

/// A request that the volume has answered.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// What it did.
    pub kind: Kind,
    /// Its bytes.
    pub bytes: u64,
    /// How long the volume took, in nanoseconds.
    pub nanos: u64,
    /// How long it waited for that before.
    pub held: u64,
}

/// A class that places are kept for while fewer requests are let to the volume, and how many. Where a minimum needs 3.2 places it has three always
/// and a fourth while it is due, so that it has that for a fifth of the time, whatever was measured: rounded down it would be missed for ever, and
/// rounded up others would pay for what was not promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keeper {
    pub(super) class: u32,
    /// While it is ahead of its minimum.
    always: u32,
    /// While its minimum is due.
    due: u32,
}

/// What the classes that flows belong to are promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promised {
    /// Classes with a minimum.
    pub classes: u64,
    /// Their minimums together, in normalised I/Os per second.
    pub units: u64,
}

impl<T> Scheduler<T> {
    /// How many requests may be at the volume now.
    pub(super) fn depth(&self) -> u32 {
        self.capacity.depth(self.settings.depth.max(1))
    }

    /// A class has a request that waits or is at the volume.
    pub(super) fn see(&mut self, class: u32) {
        let now = self.clock;
        let window = &mut self.classes[class as usize].window;
        if !window.listed {
            window.listed = true;
            window.last = now;
            self.seen.push(class);
        }
    }

    /// A request that passed or was dispatched is answered. Whether fewer requests are let to the volume now than before, so that
    /// [`Scheduler::look`] is to be called from time to time.
    pub fn answered(&mut self, now: u64, flow: FlowId, answer: Answer) -> bool {
        let there = self.in_flight;
        let Answer { kind, bytes, nanos, held } = answer;
        let units = self.settings.units(bytes);
        let time = self.time(now);
        let quiet = self.capacity.quiet(kind, units);
        if let Some(index) = self.flow_index(flow) {
            let window = &mut self.classes[self.flows[index as usize].class as usize].window;
            window.answers += 1;
            window.last = time;
            window.units = window.units.saturating_add(units);
            window.nanos = window.nanos.saturating_add(nanos.saturating_add(held));
            window.at_volume = window.at_volume.saturating_add(nanos);
            window.quiet = window.quiet.saturating_add(quiet.min(nanos));
        }
        self.complete(flow);
        match self.capacity.answered(time, (kind, units), nanos, there, !self.ready.is_empty()) {
            Window::GoesOn => false,
            Window::BeginsAnew => {
                self.begin_window();
                false
            }
            Window::Ends => self.end_window(time),
        }
    }

    /// Looks whether the volume still answers, while fewer requests are let to it than may be. Whether it has to be called again.
    pub fn look(&mut self, now: u64) -> bool {
        let time = self.time(now);
        if self.capacity.has_ended(time) {
            self.end_window(time);
        }
        self.capacity.holds_back()
    }

    /// What the volume can do.
    #[must_use]
    pub fn learnt(&self) -> Learnt {
        self.capacity.learnt(self.settings.depth.max(1))
    }

    /// What is promised to the classes of flows that there are.
    #[must_use]
    pub fn promised(&self) -> Promised {
        let mut promised = Promised::default();
        for class in self.classes.iter().filter(|class| class.alive && class.flows > 0) {
            if let Some(min) = class.terms.min_iops {
                promised.classes += 1;
                promised.units = promised.units.saturating_add(min);
            }
        }
        promised
    }

    fn end_window(&mut self, time: u64) -> bool {
        let suffering = self.suffering(time);
        let stuck = self.stuck(time);
        let held_before = self.capacity.holds_back();
        let most = self.settings.depth.max(1);
        let volume = Volume { most, target: self.settings.latency_target, there: self.in_flight, stuck };
        let span = time.saturating_sub(self.capacity.started()).max(1);
        self.capacity.close(time, suffering, volume);
        self.keep_places(span);
        self.begin_window();
        self.capacity.holds_back() && !held_before
    }

    /// While fewer requests are let to the volume, a class with a minimum finds as many places as that needs: with one place of two it would
    /// wait for somebody's answer before each of its own. The largest minimum first; one place is left to others.
    fn keep_places(&mut self, span: u64) {
        self.keepers.clear();
        if !self.capacity.holds_back() {
            return;
        }
        let mut wanted: Vec<(u64, Keeper)> = Vec::new();
        for index in &self.seen {
            let class = &self.classes[*index as usize];
            let Some(min) = class.terms.min_iops.filter(|_| class.alive && class.flows > 0) else { continue };
            if class.window.nanos < span / 2 || class.opens() > self.clock {
                continue;
            }
            // Places are of requests, and the minimum of normalised I/Os, of which each has as many as its own have lately.
            let ClassWindow { at_volume, units, nanos, .. } = class.window;
            let time = u128::from(min) * u128::from(at_volume) / u128::from(units.max(1));
            // Nor does it need more than it has requests.
            let most = u128::from(nanos.div_ceil(span.max(1)));
            let places = |places: u128| u32::try_from(places.min(most)).unwrap_or(u32::MAX);
            let (always, due) =
                (places(time / u128::from(SECOND)), places(time.div_ceil(u128::from(SECOND))));
            wanted.push((min, Keeper { class: *index, always, due }));
        }
        wanted.sort_unstable_by_key(|(min, keeper)| Reverse((*min, keeper.class)));
        let mut left = self.capacity.places(self.settings.depth.max(1)).saturating_sub(1);
        for (_, keeper) in wanted.into_iter().take(KEEPERS) {
            let due = keeper.due.min(left);
            left -= due;
            self.keepers.push(Keeper { due, always: keeper.always.min(due), ..keeper });
        }
    }

    /// Places that are kept for a class and that it does not use.
    fn has_kept(&self, keeper: &Keeper) -> u32 {
        if self.limited.contains(keeper.class) || self.has_its_part(keeper.class) {
            return 0;
        }
        let class = &self.classes[keeper.class as usize];
        let places = if class.due <= self.line(self.clock) { keeper.due } else { keeper.always };
        places.saturating_sub(class.in_flight)
    }

    /// Whether all places that are free are kept for other classes.
    pub(super) fn is_kept_from(&self, class: u32) -> bool {
        let others = self.keepers.iter().filter(|keeper| keeper.class != class);
        let kept: u32 = others.map(|keeper| self.has_kept(keeper)).sum();
        let own = self.keepers.iter().find(|keeper| keeper.class == class);
        kept > 0
            && self.in_flight > 0
            && self.in_flight.saturating_add(kept) >= self.depth()
            && own.is_none_or(|own| self.has_kept(own) == 0)
    }

    /// A class with a kept place that waits.
    pub(super) fn waiting_keeper(&self) -> Option<u32> {
        let has = |keeper: &&Keeper| self.has_kept(keeper) > 0 && self.ready.contains(keeper.class);
        self.keepers.iter().find(has).map(|keeper| keeper.class)
    }

    /// Requests at the volume of classes that have had no answer for long.
    fn stuck(&self, time: u64) -> u32 {
        let silence = self.capacity.silence();
        let classes = self.seen.iter().map(|class| &self.classes[*class as usize]);
        let silent = classes.filter(|class| time.saturating_sub(class.window.last) >= silence);
        silent.map(|class| class.in_flight).sum()
    }

    /// Forgets what was answered so far, and classes that have nothing under way.
    fn begin_window(&mut self) {
        let Self { seen, classes, .. } = self;
        seen.retain(|index| {
            let class = &mut classes[*index as usize];
            let listed = class.in_flight > 0 || !class.waiting.is_empty();
            let ClassWindow { last, behind, usual, .. } = class.window;
            class.window = ClassWindow { listed, last, behind, usual, ..ClassWindow::default() };
            listed
        });
    }

    /// Who would suffer by what the volume does now.
    fn suffering(&mut self, time: u64) -> Suffering {
        if self.seen.len() < 2 {
            return Suffering::Nobody;
        }
        let span = time.saturating_sub(self.capacity.started()).max(1);
        let mut worst = Suffering::Nobody;
        // What flows get that wait, and the least that one gets that is busy and does not.
        let (mut units, mut flows, mut least) = (0u64, 0u64, None::<(u64, u64)>);
        for index in &self.seen {
            let class = &mut self.classes[*index as usize];
            let under_way = (u128::from(class.window.nanos) * 1000 / u128::from(span)) as u64;
            let now = u64::from(class.in_flight) + u64::from(!class.waiting.is_empty());
            let under_way = if class.window.answers == 0 { now * 1000 } else { under_way };
            if class.opens() > time {
                // Its limits hold it back, and nobody else.
                class.window.behind = 0;
                continue;
            }
            if let Some(min) = class.terms.min_iops {
                let suffers = minimum_suffers(&mut class.window, min, under_way, span);
                worst = worst.max(match suffers {
                    Suffering::Missed(short)
                        if !is_feasible(&class.window, min, under_way, self.capacity.quiet_mean()) =>
                    {
                        Suffering::Hopeless(short)
                    }
                    other => other,
                });
            }
            let rate = u128::from(class.window.units) * u128::from(SECOND) / u128::from(span);
            class.window.usual = smoothed(class.window.usual, u64::try_from(rate).unwrap_or(u64::MAX));
            let usual = class.window.usual;
            if class.waiting.is_empty() {
                if under_way >= BUSY && class.flows == 1 && least.is_none_or(|(least, _)| usual < least) {
                    least = Some((usual, under_way));
                }
            } else {
                units = units.saturating_add(usual);
                flows += class.weight.max(1);
            }
        }
        match (least, units.checked_div(flows)) {
            (Some((least, under_way)), Some(share)) if least < part(share, LESS) => {
                worst.max(Suffering::Share(Short { times: times(share, least), places: places(under_way) }))
            }
            _ => worst,
        }
    }
}

/// How many times more one is than the other, in thousandths.
fn times(wanted: u64, got: u64) -> u64 {
    let times = (u128::from(wanted) * 1000).checked_div(u128::from(got));
    times.map_or(u64::MAX, |times| u64::try_from(times).unwrap_or(u64::MAX))
}

/// So many thousandths of it.
fn part(whole: u64, permille: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(permille) / 1000).unwrap_or(u64::MAX)
}

/// Places for so many thousandths of requests.
fn places(under_way: u64) -> u32 {
    u32::try_from(under_way.div_ceil(1000)).unwrap_or(u32::MAX)
}

/// Whether a class with so many thousandths of requests under way has its minimum well when the volume is quiet. `quiet_mean` is what to go
/// by while none of its own was answered.
fn is_feasible(window: &ClassWindow, min: u64, under_way: u64, quiet_mean: u64) -> bool {
    let (units, quiet) = if window.answers == 0 { (1, quiet_mean) } else { (window.units, window.quiet) };
    // By Little's law: requests under way × units of each ÷ its quiet latency are a quarter more than the minimum. The number of answers,
    // by which units and latency are both divided, is left out.
    let can = u128::from(under_way) * u128::from(SECOND / 1000) * u128::from(units);
    can.saturating_mul(4) >= u128::from(quiet) * u128::from(min).saturating_mul(5)
}

fn minimum_suffers(window: &mut ClassWindow, min: u64, under_way: u64, span: u64) -> Suffering {
    // Thousandths of I/Os that the minimum gives in the window.
    let promised = u128::from(min) * u128::from(span) / u128::from(SECOND / 1000);
    let promised = u64::try_from(promised).unwrap_or(u64::MAX);
    let got = window.units.saturating_mul(1000);
    let due = (u128::from(promised) * u128::from(MET) / 1000) as u64;
    if under_way < BUSY {
        window.behind = 0;
    } else {
        // What was missed long ago is not held against the volume: nobody catches that up.
        window.behind = if got >= due { window.behind / 2 } else { window.behind.saturating_add(due - got) };
        window.behind = window.behind.min(min.saturating_mul(200).max(2 * BEHIND));
    }
    let comfortable = u128::from(got) * 1000 >= u128::from(promised) * u128::from(COMFORTABLE);
    if got < due && window.behind > BEHIND.max(min.saturating_mul(50)) {
        Suffering::Missed(Short { times: times(promised, got), places: places(under_way) })
    } else if under_way >= BUSY {
        if comfortable { Suffering::Comfortable } else { Suffering::Met }
    } else if under_way >= USES && !comfortable {
        Suffering::Minimum
    } else {
        Suffering::Nobody
    }
}
