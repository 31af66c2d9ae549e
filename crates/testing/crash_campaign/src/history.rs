//! What each sector of a space or file may hold, from what was asked and what was answered.
//!
//! A sector has *candidates*: values that a read after a crash may show. A write adds one when it begins.
//! ```text
//!   candidate  in flight ──completed──► done ──a later write completed──► superseded ──flush──► gone
//!                  └─────failed, crash──► undecided ─────────┘                └─durable write──► gone
//! ```
//! A write supersedes what was done before it *began*; what ran beside it may come out on either side. A live
//! read may show what is not superseded; a crash may bring back what is superseded but not gone.

use std::ops::Range;

use block_conformance::pattern::{self, Found};
use sim::SECTOR;

/// Content of a sector: zeros, or which sector of which write of whom it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Value {
    /// The space or file it was first written to.
    pub(crate) owner: u32,
    /// The write, unique in a run; 0 for zeros.
    pub(crate) generation: u32,
    /// The sector it was first written to.
    pub(crate) sector: u32,
}

impl Value {
    pub(crate) const ZERO: Self = Self { owner: 0, generation: 0, sector: 0 };

    /// Reads a sector; `None` for what is no content of ours.
    pub(crate) fn of(sector: &[u8]) -> Option<Self> {
        match pattern::identify(sector) {
            Found::Zero => Some(Self::ZERO),
            Found::Written { device, offset, generation } => Some(Self {
                owner: u32::try_from(device).ok()?,
                generation: u32::try_from(generation).ok()?,
                sector: u32::try_from(offset / SECTOR as u64).ok()?,
            }),
            Found::Garbage => None,
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Self::ZERO {
            return f.write_str("zeros");
        }
        write!(f, "write {} of {} for sector {}", self.generation, self.owner, self.sector)
    }
}

/// Moments in the order in which they were noted.
pub(crate) type Moment = u64;
const NEVER: Moment = Moment::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    Done(Moment),
    Undecided(Moment),
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    value: Value,
    operation: u64,
    state: State,
    superseded: Moment,
}

impl Candidate {
    fn settled(value: Value) -> Self {
        Self { value, operation: 0, state: State::Done(0), superseded: NEVER }
    }

    /// Whether it was decided before `moment`.
    fn is_before(&self, moment: Moment) -> bool {
        match self.state {
            State::InFlight => false,
            State::Done(at) | State::Undecided(at) => at < moment,
        }
    }
}

/// A change under way.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    number: u64,
    began: Moment,
    sectors: Range<usize>,
}

impl Operation {
    /// The first sector after it.
    pub(crate) fn end(&self) -> u64 {
        self.sectors.end as u64
    }
}

/// A read under way.
pub(crate) struct Reading {
    began: Moment,
    sectors: Range<usize>,
}

/// The sectors of a space or file.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    sectors: Vec<Vec<Candidate>>,
    /// Candidates that went while reads were under way, which may show them still.
    graves: Vec<(usize, Candidate)>,
    reads: usize,
    /// A device lost its cache: until whoever flushes has been told, reads may show what was overwritten. A flush
    /// that succeeds all the same has promised that nothing was lost.
    lossy: bool,
    now: Moment,
    operations: u64,
}

impl History {
    /// Sectors that are known to be zero.
    pub(crate) fn zeros(sectors: usize) -> Self {
        let mut history = Self::default();
        history.grow(sectors);
        history
    }

    /// Sectors that there are.
    pub(crate) fn len(&self) -> usize {
        self.sectors.len()
    }

    /// More sectors, of zeros.
    pub(crate) fn grow(&mut self, sectors: usize) {
        if sectors > self.sectors.len() {
            self.sectors.resize(sectors, vec![Candidate::settled(Value::ZERO)]);
        }
    }

    /// Notes a moment: for a read or a flush that begins.
    pub(crate) fn moment(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    /// A change begins; `value` says what it makes of each sector.
    pub(crate) fn begin(&mut self, sectors: Range<usize>, value: impl Fn(usize) -> Value) -> Operation {
        let began = self.moment();
        self.operations += 1;
        let number = self.operations;
        for sector in sectors.clone() {
            let value = value(sector);
            let candidate = Candidate { value, operation: number, state: State::InFlight, superseded: NEVER };
            self.sectors[sector].push(candidate);
        }
        Operation { number, began, sectors }
    }

    /// A change was acknowledged.
    pub(crate) fn complete(&mut self, operation: &Operation, durable: bool) {
        let now = self.moment();
        for sector in operation.sectors.clone() {
            let candidates = &mut self.sectors[sector];
            for candidate in candidates.iter_mut() {
                if candidate.operation == operation.number {
                    candidate.state = State::Done(now);
                } else if candidate.is_before(operation.began) {
                    candidate.superseded = candidate.superseded.min(now);
                }
            }
            if durable {
                let went = |c: &Candidate| c.operation != operation.number && c.is_before(operation.began);
                if self.reads > 0 {
                    self.graves.extend(candidates.iter().filter(|c| went(c)).map(|c| (sector, *c)));
                }
                candidates.retain(|c| !went(c));
            }
        }
    }

    /// A change was refused or failed: it may have been made in part.
    pub(crate) fn fail(&mut self, operation: &Operation) {
        let now = self.moment();
        for sector in operation.sectors.clone() {
            for candidate in &mut self.sectors[sector] {
                if candidate.operation == operation.number {
                    candidate.state = State::Undecided(now);
                }
            }
        }
    }

    /// A flush that began at `began` succeeded.
    pub(crate) fn flushed(&mut self, began: Moment) {
        for (sector, candidates) in self.sectors.iter_mut().enumerate() {
            let went = |candidate: &Candidate| candidate.superseded <= began;
            if self.reads > 0 {
                self.graves.extend(candidates.iter().filter(|c| went(c)).map(|c| (sector, *c)));
            }
            candidates.retain(|candidate| !went(candidate));
        }
    }

    /// The device was closed, which flushes, but has no client to tell of losses.
    pub(crate) fn closed(&mut self) {
        if !self.lossy {
            let now = self.moment();
            self.flushed(now);
        }
    }

    /// A flush failed: whoever asked has been told that anything unflushed may be lost.
    pub(crate) fn flush_failed(&mut self) {
        self.lossy = false;
        self.loosen(false);
    }

    /// The power went, or the process did: any candidate may be found.
    pub(crate) fn crash(&mut self) {
        self.reads = 0;
        self.graves.clear();
        self.lossy = false;
        self.loosen(true);
    }

    /// A device without a copy elsewhere lost its cache.
    pub(crate) fn cache_lost(&mut self) {
        self.lossy = true;
    }

    fn loosen(&mut self, all_ended: bool) {
        let now = self.moment();
        for candidates in &mut self.sectors {
            if let [only] = candidates.as_slice()
                && only.state != State::InFlight
            {
                continue;
            }
            for candidate in candidates {
                candidate.superseded = NEVER;
                if all_ended || candidate.state != State::InFlight {
                    candidate.state = State::Undecided(now);
                }
            }
        }
    }

    /// A read begins.
    pub(crate) fn begin_read(&mut self, sectors: Range<usize>) -> Reading {
        let began = self.moment();
        self.reads += 1;
        Reading { began, sectors }
    }

    /// A read ended, with bytes or without.
    pub(crate) fn end_read(&mut self, reading: &Reading, bytes: Option<&[u8]>) -> Result<(), String> {
        let mut judged = Ok(());
        for (sector, bytes) in reading.sectors.clone().zip(bytes.unwrap_or_default().chunks(SECTOR)) {
            let read = self.sector_read(sector, reading.began, Value::of(bytes));
            judged = judged.and(read.map_err(|what| format!("sector {sector} holds {what}")));
        }
        self.reads = self.reads.saturating_sub(1);
        if self.reads == 0 {
            self.graves.clear();
        }
        judged
    }

    fn sector_read(&mut self, sector: usize, began: Moment, found: Option<Value>) -> Result<(), String> {
        let (now, lossy) = (self.now, self.lossy);
        let Some(candidates) = self.sectors.get_mut(sector) else { return Ok(()) };
        let visible = |c: &Candidate| lossy || c.superseded >= began;
        let Some(value) = found else {
            return Err(format!("garbage, not {}", describe(candidates, visible)));
        };
        let shows = |c: &Candidate| c.value == value && visible(c);
        if !candidates.iter().any(shows) && !self.graves.iter().any(|(of, c)| *of == sector && shows(c)) {
            return Err(format!("{value}, not {}", describe(candidates, visible)));
        }
        // Every later read shows the same, unless something is still undecided.
        let decided = candidates.iter().all(|c| matches!(c.state, State::Done(at) if at < began));
        if decided && !lossy {
            for candidate in candidates.iter_mut().filter(|c| c.value != value) {
                candidate.superseded = candidate.superseded.min(now);
            }
        }
        Ok(())
    }

    /// The one value that a read may show now, if there is only one.
    pub(crate) fn known(&self, sector: usize) -> Option<Value> {
        let Some(candidates) = self.sectors.get(sector) else { return Some(Value::ZERO) };
        let mut live = candidates.iter().filter(|c| c.superseded == NEVER).map(|c| (c.value, c.state));
        match (live.next(), live.next()) {
            (Some((value, State::Done(_))), None) => Some(value),
            _ => None,
        }
    }

    /// Whether a crash may show this value.
    pub(crate) fn admits(&self, sector: usize, found: Option<Value>) -> Result<(), String> {
        let Some(candidates) = self.sectors.get(sector) else { return Ok(()) };
        match found {
            Some(value) if candidates.iter().any(|c| c.value == value) => Ok(()),
            Some(value) => Err(format!("{value}, not {}", describe(candidates, |_| true))),
            None => Err(format!("garbage, not {}", describe(candidates, |_| true))),
        }
    }

    /// A sector's value is known; if `durable`, it also survives the next crash.
    pub(crate) fn settle(&mut self, sector: usize, value: Value, durable: bool) {
        let now = self.moment();
        let Some(candidates) = self.sectors.get_mut(sector) else { return };
        if durable || candidates.len() < 2 {
            *candidates = vec![Candidate::settled(value)];
            return;
        }
        let mut known = false;
        for candidate in candidates {
            if candidate.value == value && !known {
                known = true;
                candidate.state = State::Done(0);
                candidate.superseded = NEVER;
            } else {
                candidate.state = State::Done(0);
                candidate.superseded = now;
            }
        }
    }
}

fn describe(candidates: &[Candidate], visible: impl Fn(&Candidate) -> bool) -> String {
    let names: Vec<String> = candidates.iter().filter(|c| visible(c)).map(|c| c.value.to_string()).collect();
    names.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(generation: u32) -> Value {
        Value { owner: 1, generation, sector: 0 }
    }

    fn write(history: &mut History, generation: u32, durable: bool) {
        let operation = history.begin(0..1, |_| value(generation));
        history.complete(&operation, durable);
    }

    fn after_crash(history: &History) -> Vec<u32> {
        (0..9)
            .filter(|g| history.admits(0, Some(if *g == 0 { Value::ZERO } else { value(*g) })).is_ok())
            .collect()
    }

    #[test]
    fn only_what_is_flushed_must_be_there() {
        let mut history = History::zeros(1);
        write(&mut history, 1, false);
        write(&mut history, 2, false);
        assert_eq!(after_crash(&history), [0, 1, 2]);
        let began = history.moment();
        write(&mut history, 3, false);
        history.flushed(began);
        assert_eq!(
            after_crash(&history),
            [2, 3],
            "what was overwritten only after the flush began may come back"
        );
        write(&mut history, 4, true);
        assert_eq!(after_crash(&history), [4]);
    }

    /// Reads the sector without anything beside it.
    fn read(history: &mut History, generation: u32) -> Result<(), String> {
        let reading = history.begin_read(0..1);
        end_read(history, &reading, generation)
    }

    fn end_read(history: &mut History, reading: &Reading, generation: u32) -> Result<(), String> {
        let mut bytes = [0; SECTOR];
        if generation > 0 {
            pattern::fill(&mut bytes, 1, 0, u64::from(generation));
        }
        history.end_read(reading, Some(&bytes))
    }

    #[test]
    fn writes_side_by_side_may_come_in_either_order() {
        let mut history = History::zeros(1);
        let a = history.begin(0..1, |_| value(1));
        let b = history.begin(0..1, |_| value(2));
        history.complete(&a, true);
        history.complete(&b, true);
        assert_eq!(after_crash(&history), [1, 2]);
        assert!(read(&mut history, 0).is_err());
        read(&mut history, 1).expect("one of them");
        assert!(read(&mut history, 2).is_err(), "every later read shows the same");
    }

    #[test]
    fn a_read_beside_writes_may_show_any_of_them() {
        for shown in 0..4 {
            let mut history = History::zeros(1);
            let reading = history.begin_read(0..1);
            write(&mut history, 1, true);
            write(&mut history, 2, true);
            assert_eq!(end_read(&mut history, &reading, shown).is_ok(), shown < 3);
            assert_eq!(read(&mut history, shown).is_ok(), shown == 2);
        }
    }

    #[test]
    fn a_failed_write_stays_undecided_until_it_is_overwritten() {
        let mut history = History::zeros(1);
        let failed = history.begin(0..1, |_| value(1));
        history.fail(&failed);
        for shown in [0, 1, 0] {
            read(&mut history, shown).expect("undecided");
        }
        write(&mut history, 2, true);
        assert_eq!(after_crash(&history), [2]);
    }
}
