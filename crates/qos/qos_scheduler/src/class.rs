//! A class: the tags that say when its next request may, must and should go, and which of its flows is next.

use std::collections::BTreeSet;

use crate::pace::{Limit, Pace};
use crate::terms::Terms;

/// How many normalised I/Os of a flow with weight 1 a class may be ahead of its share because of its minimum. Without a
/// bound, one that lost its minimum would get nothing for as long as it had had more than its share.
const LEAD_UNITS: u64 = 1024;
/// Share tags of one normalised I/O at weight 1. A class has at most 2^32 of weight, so each I/O moves its tag.
const SHARE_SCALE: u64 = 1 << 32;
/// Most units that a request is charged in shares: 8 GiB at the usual unit. It keeps tags within 2^53 of each other.
const MOST_SHARED_UNITS: u64 = 1 << 20;
/// Share tags are lowered together when they come here, long before they could overflow.
pub(crate) const SHARE_TOP: u64 = 1 << 62;

/// A class. It is nobody's any more once it has been removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// How far `units` move a share tag.
pub(crate) fn share(units: u64, weight: u64) -> u64 {
    let whole = units.min(MOST_SHARED_UNITS) * SHARE_SCALE;
    if weight <= 1 { whole } else { whole / weight.min(u64::from(u32::MAX)) }
}

/// How far a share tag may be ahead because of a minimum.
pub(crate) fn most_lead() -> u64 {
    share(LEAD_UNITS, 1)
}

/// The flows of a class that wait, by share tag. Most classes have one flow, which costs no tree.
#[derive(Debug, Default)]
pub(crate) struct Members {
    first: Option<(u64, u32)>,
    /// All behind the first.
    others: BTreeSet<(u64, u32)>,
}

impl Members {
    pub(crate) fn first(&self) -> Option<(u64, u32)> {
        self.first
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    fn insert(&mut self, member: (u64, u32)) {
        match self.first {
            Some(first) if first < member => {
                self.others.insert(member);
            }
            first => {
                self.others.extend(first);
                self.first = Some(member);
            }
        }
    }

    fn remove(&mut self, member: (u64, u32)) -> bool {
        if self.first != Some(member) {
            return self.others.remove(&member);
        }
        self.first = if self.others.is_empty() { None } else { self.others.pop_first() };
        true
    }
}

#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) generation: u32,
    pub(crate) alive: bool,
    pub(crate) terms: Terms,
    pub(crate) iops: Limit,
    pub(crate) bandwidth: Limit,
    minimum: Pace,
    /// When the next request is due for the minimum, on the time line of minimums.
    pub(crate) due: u64,
    /// Its share tag.
    pub(crate) start: u64,
    /// Flows that wait, by their share tags.
    pub(crate) waiting: Members,
    /// The share tag at which the class's flows are.
    pub(crate) members_at: u64,
    /// Weight of the flows that wait.
    pub(crate) weight: u64,
    /// Flows that belong to it.
    pub(crate) flows: u32,
    /// Their requests at the volume.
    pub(crate) in_flight: u32,
    /// What was answered of it in the present window.
    pub(crate) window: ClassWindow,
}

/// What was answered of a class in the window in which the volume's capacity is looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClassWindow {
    /// It is in the list of those that are looked at.
    pub(crate) listed: bool,
    /// When the last answer came, or it was put there.
    pub(crate) last: u64,
    pub(crate) answers: u64,
    pub(crate) units: u64,
    /// How long its requests took together from when they came, in nanoseconds.
    pub(crate) nanos: u64,
    /// How long of that they were at the volume, and how long they would have been, were it quiet.
    pub(crate) at_volume: u64,
    pub(crate) quiet: u64,
    /// Normalised I/Os per second over the last windows.
    pub(crate) usual: u64,
    /// Normalised I/Os by which it is behind its minimum, in thousandths, while it was busy.
    pub(crate) behind: u64,
}

impl Class {
    pub(crate) fn new(terms: Terms, now: u64, generation: u32) -> Self {
        let terms = terms.tidied();
        Self {
            generation,
            alive: true,
            terms,
            iops: Limit::new(terms.max_iops, now),
            bandwidth: Limit::new(terms.max_bandwidth, now),
            minimum: Pace::new(terms.min_iops),
            due: 0,
            start: 0,
            waiting: Members::default(),
            members_at: 0,
            weight: 0,
            flows: 0,
            in_flight: 0,
            window: ClassWindow::default(),
        }
    }

    /// From when on its limits let it go on.
    pub(crate) fn opens(&self) -> u64 {
        self.iops.opens(self.terms.burst).max(self.bandwidth.opens(self.terms.burst))
    }

    pub(crate) fn has_minimum(&self) -> bool {
        self.minimum.is_set()
    }

    /// Other terms from now on; `line` is now on the time line of minimums.
    pub(crate) fn set_terms(&mut self, terms: Terms, now: u64, line: u64) {
        let terms = terms.tidied();
        self.iops.set_rate(terms.max_iops, now);
        self.bandwidth.set_rate(terms.max_bandwidth, now);
        if terms.min_iops != self.terms.min_iops {
            self.minimum = Pace::new(terms.min_iops);
            // What a former minimum did not give, or gave ahead, is nothing to the new one.
            self.due = line;
        }
        self.terms = terms;
    }

    /// A request starts.
    pub(crate) fn charge(&mut self, now: u64, units: u64, bytes: u64) {
        self.iops.charge(now, units);
        self.bandwidth.charge(now, bytes);
    }

    /// A request starts because the minimum asks for it.
    pub(crate) fn charge_minimum(&mut self, units: u64) {
        self.due = self.minimum.step(self.due, units);
    }

    /// It begins to compete: nothing was saved up while it did not.
    pub(crate) fn catch_up(&mut self, shares_at: u64, line: u64, catch_up: u64) {
        self.start = self.start.max(shares_at);
        self.due = self.due.max(line.saturating_sub(catch_up));
    }

    /// A flow has something that waits. Its share tag.
    pub(crate) fn join(&mut self, flow: u32, start: u64, weight: u32) -> u64 {
        let start = start.max(self.members_at);
        self.waiting.insert((start, flow));
        self.weight += u64::from(weight);
        start
    }

    /// A flow has nothing more that waits.
    pub(crate) fn leave(&mut self, flow: u32, start: u64, weight: u32) {
        if self.waiting.remove((start, flow)) {
            self.weight -= u64::from(weight);
        }
    }

    /// A request of a flow started, and the flow still waits or does not. Its share tag from now on.
    pub(crate) fn served(&mut self, flow: u32, start: u64, units: u64, weight: u32, waits: bool) -> u64 {
        self.members_at = self.members_at.max(start);
        let next = start + share(units, u64::from(weight));
        if !waits {
            self.leave(flow, start, weight);
        } else if self.waiting.remove((start, flow)) {
            self.waiting.insert((next, flow));
        }
        next
    }

    /// Lowers the share tags of its flows that wait.
    pub(crate) fn lower_members(&mut self, by: u64) {
        self.members_at -= by.min(self.members_at);
        let Members { first, others } = std::mem::take(&mut self.waiting);
        for (start, flow) in first.into_iter().chain(others) {
            self.waiting.insert((start.saturating_sub(by), flow));
        }
    }
}
