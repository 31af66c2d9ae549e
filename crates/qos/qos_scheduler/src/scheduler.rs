//! [`Scheduler`]: flows, classes and what waits, and the choice of what goes next.

mod answers;
mod members;

pub use answers::{Answer, Promised};

use crate::Kind;
use crate::capacity::Capacity;
use crate::class::{Class, SHARE_TOP, most_lead, share};
use crate::counters::FlowCounters;
use crate::heap::TagHeap;
use crate::queue::{Queue, RequestId, Requests, Waiting};
use crate::terms::Settings;
use answers::Keeper;

/// A time that is earlier than one before by less than this, one second in nanoseconds, was read by another thread; taken for a
/// clock that goes back, each would make time run faster, and limits with it.
const NEARLY_NOW: u64 = 1_000_000_000;
/// A class leaves one in so many places at the volume to others, if there are any: at least one, unless there is one only.
const LEFT_TO_OTHERS: u32 = 8;
/// While minimums cannot be met, one start in so many goes by shares.
const SHARES_TURN: u32 = 32;

/// A flow. It is nobody's any more once it has been removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId {
    index: u32,
    generation: u32,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such flow (any more).
    NoFlow,
    /// As many of the flow's requests wait as may.
    FlowFull,
    /// As many requests wait as may, of all flows.
    Full,
}

/// A request that goes to the volume now.
#[derive(Debug, PartialEq, Eq)]
pub struct Dispatched<T> {
    /// What came with it.
    pub payload: T,
    /// Its name while it waited.
    pub request: RequestId,
    /// Whose it is; to be given to [`Scheduler::complete`].
    pub flow: FlowId,
    /// How long it waited, in nanoseconds.
    pub held: u64,
}

/// Why a class has the next start.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Its share.
    Share,
    /// Its minimum is due.
    Minimum,
    /// The place is kept for it.
    Kept,
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// This request starts.
    Start(Dispatched<T>),
    /// All that waits is held back by limits until this time.
    Wait(u64),
    /// As many requests are at the volume as may be, of all flows or of the only class that waits: a completion is next.
    Full,
    /// Nothing waits.
    Idle,
}

#[derive(Debug)]
struct Flow {
    generation: u32,
    alive: bool,
    class: u32,
    weight: u32,
    /// Its share tag in its class.
    start: u64,
    queue: Queue,
    in_flight: u32,
    counters: FlowCounters,
}

/// The scheduler of one volume. `T` is what comes with each request and goes out with it.
#[derive(Debug)]
pub struct Scheduler<T> {
    settings: Settings,
    flows: Vec<Flow>,
    free_flows: Vec<u32>,
    classes: Vec<Class>,
    free_classes: Vec<u32>,
    requests: Requests<T>,
    /// Classes that wait for their limits, by when those let them go on.
    limited: TagHeap,
    /// Classes that compete, by share tag.
    ready: TagHeap,
    /// Those of them that have a minimum, by when it is due.
    reserved: TagHeap,
    in_flight: u32,
    /// Classes that flows belong to.
    peopled: u32,
    /// Where the shares are: the share tag of the last request that started by it.
    shares_at: u64,
    /// How far the time line of minimums is behind, because they could not be met.
    shortfall: u64,
    /// Starts for overdue minimums since the last that went by shares.
    overdue_starts: u32,
    /// The latest time that was passed in, and how far the clock went back before that.
    clock: u64,
    went_back: u64,
    capacity: Capacity,
    /// Classes that places are kept for while fewer are let to the volume, and how many.
    keepers: Vec<Keeper>,
    /// Classes that had requests under way in the present window of that.
    seen: Vec<u32>,
}

impl<T> Scheduler<T> {
    /// A scheduler without flows.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            flows: Vec::new(),
            free_flows: Vec::new(),
            classes: Vec::new(),
            free_classes: Vec::new(),
            requests: Requests::default(),
            limited: TagHeap::default(),
            ready: TagHeap::default(),
            reserved: TagHeap::default(),
            in_flight: 0,
            peopled: 0,
            shares_at: 0,
            shortfall: 0,
            overdue_starts: 0,
            clock: 0,
            went_back: 0,
            capacity: Capacity::default(),
            keepers: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Other settings from now on; what waits counts by the new unit, and what a smaller queue has no room for stays.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
        self.keepers.clear();
    }

    /// Requests at the volume.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.requests.len()
    }

    /// Time for the tags: it never goes back. A little earlier than before is what threads bring that read the clock and then wait
    /// for the lock, and is no time at all; when the clock itself goes back, time goes on from where it was.
    fn time(&mut self, now: u64) -> u64 {
        let time = now.saturating_add(self.went_back);
        if time.saturating_add(NEARLY_NOW) < self.clock {
            self.went_back = self.went_back.saturating_add(self.clock - time);
        }
        self.clock = self.clock.max(time);
        self.clock
    }

    fn line(&self, time: u64) -> u64 {
        time.saturating_sub(self.shortfall)
    }

    /// Whether a class has as many requests at the volume as one may where there are others: what it leaves keeps those going
    /// whose requests are answered, should its own never be. While less than `depth` are there, this is so for one class at most;
    /// two may have all places between them. It is of the places that are configured: of the few that are left while somebody
    /// would suffer by more, a class may have all, and gets those back that are never answered (`capacity`).
    fn has_its_part(&self, class: u32) -> bool {
        let depth = self.settings.depth.max(1);
        let left = if depth > 1 { (depth / LEFT_TO_OTHERS).max(1) } else { 0 };
        self.peopled > 1 && self.classes[class as usize].in_flight >= depth - left
    }

    /// The first class of a heap that may have another request at the volume.
    fn first_below_its_part(&self, heap: &TagHeap) -> Option<(u64, u32)> {
        heap.first().filter(|(_, class)| !self.has_its_part(*class)).or_else(|| heap.second())
    }

    /// Lets a request go at once if nothing waits that it would overtake and its limits allow it; it is at the volume then. If
    /// not, [`Scheduler::enqueue`] is next.
    pub fn try_pass(&mut self, now: u64, flow: FlowId, kind: Kind, bytes: u64) -> bool {
        let Some(index) = self.flow_index(flow) else { return false };
        let class = self.flows[index as usize].class;
        if self.in_flight >= self.depth() || !self.ready.is_empty() || self.is_kept_from(class) {
            return false;
        }
        let units = self.settings.units(bytes);
        if self.has_its_part(class) {
            return false;
        }
        let class = class as usize;
        let time = self.time(now);
        if self.classes[class].terms.is_limited() {
            let class = &mut self.classes[class];
            if !class.waiting.is_empty() || class.opens() > time {
                return false;
            }
            class.charge(time, units, bytes);
        }
        self.in_flight += 1;
        self.classes[class].in_flight += 1;
        self.see(class as u32);
        let flow = &mut self.flows[index as usize];
        flow.in_flight += 1;
        flow.counters.asked_units = flow.counters.asked_units.saturating_add(units);
        flow.counters.started(kind, units, bytes);
        true
    }

    /// Takes a request, which [`Scheduler::next`] will give back with its payload.
    ///
    /// # Errors
    /// The flow is not there or its queue is full; the payload comes back.
    pub fn enqueue(
        &mut self,
        now: u64,
        flow: FlowId,
        kind: Kind,
        bytes: u64,
        payload: T,
    ) -> Result<RequestId, (Refusal, T)> {
        let Some(index) = self.flow_index(flow) else { return Err((Refusal::NoFlow, payload)) };
        let time = self.time(now);
        let flow = &mut self.flows[index as usize];
        let refusal = if flow.queue.len >= self.settings.flow_queue.max(1) {
            Some(Refusal::FlowFull)
        } else {
            (self.requests.len() >= self.settings.queue.max(1)).then_some(Refusal::Full)
        };
        if let Some(refusal) = refusal {
            flow.counters.refused += 1;
            return Err((refusal, payload));
        }
        flow.counters.asked_units = flow.counters.asked_units.saturating_add(self.settings.units(bytes));
        let waiting = Waiting { payload, flow: index, kind, bytes, since: time };
        let id = self.requests.push(&mut flow.queue, waiting);
        if flow.queue.len == 1 {
            let class = flow.class;
            flow.start = self.classes[class as usize].join(index, flow.start, flow.weight);
            self.see(class);
            self.place(class, time);
        }
        Ok(id)
    }

    /// Takes back a request that waits. `None`: it does not (any more); if it was dispatched it has to complete.
    pub fn cancel(&mut self, now: u64, request: RequestId) -> Option<T> {
        let index = self.requests.flow_of(request)?;
        let time = self.time(now);
        let flow = &mut self.flows[index as usize];
        let waiting = self.requests.take(&mut flow.queue, request)?;
        if flow.queue.len == 0 {
            let class = flow.class;
            self.classes[class as usize].leave(index, flow.start, flow.weight);
            self.place(class, time);
        }
        Some(waiting.payload)
    }

    /// A request that passed or was dispatched is done, whatever came of it. Who knows how long the volume took calls
    /// [`Scheduler::answered`] instead.
    pub fn complete(&mut self, flow: FlowId) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(index) = self.flow_index(flow) {
            let flow = &mut self.flows[index as usize];
            if flow.in_flight > 0 {
                flow.in_flight -= 1;
                self.classes[flow.class as usize].in_flight -= 1;
            }
        }
    }

    /// What is to be done next; to be called again after [`Next::Start`], after each completion and at the time of
    /// [`Next::Wait`].
    pub fn next(&mut self, now: u64) -> Next<T> {
        let time = self.time(now);
        if self.in_flight >= self.depth() {
            return Next::Full;
        }
        while let Some((opens, class)) = self.limited.first()
            && opens <= time
        {
            self.place(class, time);
        }
        let Some((share_tag, mut class)) = self.first_below_its_part(&self.ready) else {
            let until = self.limited.first().map(|(opens, _)| opens.saturating_sub(self.went_back));
            let nothing = if self.ready.is_empty() { Next::Idle } else { Next::Full };
            return until.map_or(nothing, Next::Wait);
        };
        if self.is_kept_from(class) {
            let Some(keeper) = self.waiting_keeper() else {
                // Whoever it is kept for may be held back by limits, and comes then.
                let until = self.limited.first().map(|(opens, _)| opens.saturating_sub(self.went_back));
                return until.map_or(Next::Full, Next::Wait);
            };
            let class = &self.classes[keeper as usize];
            let turn =
                if class.has_minimum() && class.due <= self.line(time) { Turn::Minimum } else { Turn::Kept };
            return self.start(keeper, turn, time).map_or(Next::Idle, Next::Start);
        }
        let due = self.due_class(time);
        if let Some(due) = due {
            class = due;
        } else {
            self.shares_at = self.shares_at.max(share_tag);
        }
        let turn = if due.is_some() { Turn::Minimum } else { Turn::Share };
        self.start(class, turn, time).map_or(Next::Idle, Next::Start)
    }

    /// The class whose minimum asks for the next start, if one does.
    fn due_class(&mut self, time: u64) -> Option<u32> {
        let line = self.line(time);
        let (due, class) = self
            .first_below_its_part(&self.reserved)
            .filter(|(due, class)| *due <= line && !self.is_kept_from(*class))?;
        let behind = line - due;
        if behind > self.settings.catch_up {
            self.shortfall += behind - self.settings.catch_up;
            self.overdue_starts += 1;
            if self.overdue_starts >= SHARES_TURN {
                self.overdue_starts = 0;
                return None;
            }
        }
        Some(class)
    }

    /// Starts the first request of a class that competes.
    fn start(&mut self, class_index: u32, turn: Turn, time: u64) -> Option<Dispatched<T>> {
        let class = &mut self.classes[class_index as usize];
        let (start, index) = class.waiting.first()?;
        let flow = &mut self.flows[index as usize];
        let (request, waiting) = self.requests.pop(&mut flow.queue)?;
        let units = self.settings.units(waiting.bytes);
        let held = time.saturating_sub(waiting.since);
        flow.counters.started(waiting.kind, units, waiting.bytes);
        flow.counters.held_nanos = flow.counters.held_nanos.saturating_add(held);
        flow.in_flight += 1;
        self.in_flight += 1;
        class.in_flight += 1;
        class.charge(time, units, waiting.bytes);
        let next = class.start + share(units, class.weight);
        if turn == Turn::Minimum {
            class.charge_minimum(units);
        }
        class.start = match turn {
            Turn::Share => next,
            Turn::Minimum | Turn::Kept => class.start.max(next.min(self.shares_at + most_lead())),
        };
        flow.start = class.served(index, start, units, flow.weight, flow.queue.len > 0);
        let flow = FlowId { index, generation: flow.generation };
        self.see(class_index);
        self.lower_tags(class_index);
        self.place(class_index, time);
        Some(Dispatched { payload: waiting.payload, request, flow, held })
    }

    /// Puts a class where its limits, what waits of it and its tags say.
    fn place(&mut self, index: u32, time: u64) {
        let line = self.line(time);
        let class = &mut self.classes[index as usize];
        let opens = class.opens();
        if class.waiting.is_empty() || opens > time {
            self.ready.remove(index);
            self.reserved.remove(index);
            if class.waiting.is_empty() {
                self.limited.remove(index);
            } else {
                self.limited.set(index, opens);
            }
            return;
        }
        self.limited.remove(index);
        if !self.ready.contains(index) {
            class.catch_up(self.shares_at, line, self.settings.catch_up);
        }
        self.ready.set(index, class.start);
        if class.has_minimum() {
            self.reserved.set(index, class.due);
        } else {
            self.reserved.remove(index);
        }
    }

    /// Keeps share tags from overflowing: all are lowered together once in 2^62, about a month of a million I/Os per second at
    /// weight 1, by what does not change their order.
    fn lower_tags(&mut self, class: u32) {
        let members_at = self.classes[class as usize].members_at;
        if members_at >= SHARE_TOP {
            self.classes[class as usize].lower_members(members_at);
            for flow in self.flows.iter_mut().filter(|flow| flow.class == class) {
                flow.start = flow.start.saturating_sub(members_at);
            }
        }
        if self.shares_at >= SHARE_TOP {
            let by = std::mem::take(&mut self.shares_at);
            for class in &mut self.classes {
                class.start = class.start.saturating_sub(by);
            }
            self.ready.lower(by);
        }
    }

    /// For tests of what happens near the end of the tags.
    #[cfg(test)]
    pub(crate) fn start_shares_at(&mut self, at: u64) {
        self.shares_at = at;
        self.classes.iter_mut().for_each(|class| class.members_at = at);
    }
}
