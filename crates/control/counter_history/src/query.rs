//! Reading: steps of a span, made longer as asked, of the things that are asked for.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::io::Read as _;

use control_api::{CounterKind, HistoryStep, name_matches};

use crate::level::{Kept, Segment};
use crate::segment::{Frames, HEADER};
use crate::step::OTHERS;
use crate::values::Values;

/// The name of the sum of all things of a kind.
pub const TOTAL: &str = "_Total";
/// Most things in an answer, over all steps: some 10 MiB as JSON.
const MAX_ITEMS: usize = 40_000;
/// The longest step, in seconds: ten years.
const MAX_STEP: u64 = 10 * 366 * 86_400;
/// Steps of an answer where nobody says how long they are to be.
const USUAL_STEPS: u64 = 720;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// From this moment on, in milliseconds since 1970.
    pub from_ms: u64,
    /// Until this one.
    pub to_ms: u64,
    /// The length of a step in seconds.
    pub step_seconds: Option<u64>,
    /// Only things of these kinds, if there are any here.
    pub kinds: Vec<CounterKind>,
    /// Only things whose names match.
    pub name: Option<String>,
    /// In place of things the sum of each kind.
    pub sum: bool,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// The length of the steps in seconds.
    pub step_seconds: u64,
    /// When the oldest step ends that is kept, whether it was asked for or not.
    pub since_ms: Option<u64>,
    /// The steps, the oldest first. A step in which nothing was counted is not there; neither is in a step what did nothing.
    pub steps: Vec<HistoryStep>,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum QueryError {
    /// It would have too many numbers.
    TooMuch,
    /// Steps that short are kept from this moment on only; `None` when there are none at all.
    TooShort(Option<u64>),
    /// A step has no length or an absurd one, or the span ends before it begins.
    Empty,
}

/// What there is to read at a moment: the history may go on meanwhile.
#[derive(Debug)]
pub struct Snapshot {
    /// From short steps to long ones.
    pub(crate) levels: Vec<Kept>,
}

#[derive(Default)]
struct Sum {
    nanos: u64,
    things: BTreeMap<(CounterKind, String), Values>,
}

impl Snapshot {
    /// Reads.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn read(&self, query: &Query) -> Result<Found, QueryError> {
        let steps = 1..=MAX_STEP;
        if query.step_seconds.is_some_and(|step| !steps.contains(&step)) || query.to_ms < query.from_ms {
            return Err(QueryError::Empty);
        }
        // The clock may have been ahead for a while.
        let since = |level: &Kept| level.segments.iter().map(|segment| segment.first_ms).min();
        let oldest = self.levels.iter().filter_map(since).min();
        let span = (query.to_ms - query.from_ms).div_ceil(1000);
        let usual = query.step_seconds.unwrap_or_else(|| span.div_ceil(USUAL_STEPS).clamp(1, MAX_STEP));
        // The shortest steps that all of the span has, or all of it that is kept at all, and that are no longer than asked for.
        let covers = |level: &&Kept| {
            let since = since(level).map(|since| since.saturating_sub(u64::from(level.seconds) * 1000));
            since.is_some_and(|since| since <= query.from_ms.max(oldest.unwrap_or(0)))
                && u64::from(level.seconds) <= usual
        };
        let Some(longest) = self.levels.last() else { return Ok(Found::default()) };
        let level = match self.levels.iter().find(covers) {
            Some(level) => level,
            None if query.step_seconds.is_some_and(|step| step < u64::from(longest.seconds)) => {
                return Err(QueryError::TooShort(self.levels.first().and_then(since)));
            }
            None => longest,
        };
        let unit = u64::from(level.seconds);
        let step_seconds = usual.div_ceil(unit).max(1) * unit;
        let mut sums = BTreeMap::new();
        let mut items = 0;
        for (place, segment) in level.segments.iter().enumerate() {
            let next = level.segments.get(place + 1);
            // Clocks may have been set: a segment is left out only where those beside it agree.
            let over =
                next.is_some_and(|next| next.first_ms < query.from_ms && segment.first_ms <= next.first_ms);
            if over
                || (segment.first_ms > query.to_ms
                    && next.is_none_or(|next| next.first_ms >= segment.first_ms))
            {
                continue;
            }
            let mut bytes = content(segment);
            if next.is_none() {
                bytes.extend(&level.unwritten);
            }
            let frames = Frames::new(bytes.get(HEADER..).unwrap_or_default());
            collect(frames, query, step_seconds, &mut sums, &mut items)?;
        }
        let steps = sums.into_iter().map(|(step, Sum { nanos, things })| HistoryStep {
            time_unix_ms: (step + 1) * step_seconds * 1000,
            seconds: nanos as f64 / 1e9,
            items: things.iter().map(|((kind, name), values)| values.object(*kind, name)).collect(),
        });
        Ok(Found { step_seconds, since_ms: oldest, steps: steps.collect() })
    }
}

/// The bytes of a segment that were there when it was asked for, as far as they can be read: it may have gone meanwhile, and one bad block
/// is no reason to tell nothing of 30 days.
fn content(segment: &Segment) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = fs::File::open(&segment.path) {
        // What was read before an error stays.
        let _ = file.take(segment.bytes).read_to_end(&mut bytes);
    }
    bytes
}

fn collect(
    mut frames: Frames<'_>,
    query: &Query,
    step_seconds: u64,
    sums: &mut BTreeMap<u64, Sum>,
    items: &mut usize,
) -> Result<(), QueryError> {
    let mut wanted: Vec<Option<(CounterKind, String)>> = Vec::new();
    // What follows damage cannot be read; what is before it can.
    while let Ok(Some(frame)) = frames.next() {
        for named in frames.names().iter().skip(wanted.len()) {
            let named = named.as_ref().filter(|(kind, name)| {
                (query.kinds.is_empty() || query.kinds.contains(kind))
                    && (query.name.as_ref().is_none_or(|pattern| name_matches(pattern, name))
                        // What is in there may be what is asked for: without it nobody would know.
                        || (name == OTHERS && !query.sum))
            });
            let name = |name: &String| if query.sum { TOTAL.to_owned() } else { name.clone() };
            wanted.push(named.map(|(kind, given)| (*kind, name(given))));
        }
        if frame.wall_ms <= query.from_ms || frame.wall_ms > query.to_ms {
            continue;
        }
        // A step ends with the last moment that is in it.
        let sum = sums.entry((frame.wall_ms - 1) / (step_seconds * 1000)).or_default();
        sum.nanos = sum.nanos.saturating_add(frame.nanos);
        let mut now: BTreeMap<&(CounterKind, String), Values> = BTreeMap::new();
        for (number, values) in &frame.things {
            if let Some(Some(thing)) = wanted.get(*number) {
                match now.entry(thing) {
                    // A thing by itself keeps its limits.
                    Entry::Vacant(first) if !query.sum => {
                        first.insert(*values);
                    }
                    sum => sum.or_default().add(values, thing.0),
                }
            }
        }
        for (thing, values) in now {
            match sum.things.get_mut(thing) {
                Some(sum) => sum.then(&values),
                None => {
                    sum.things.insert(thing.clone(), values);
                    *items += 1;
                }
            }
        }
        if *items > MAX_ITEMS {
            return Err(QueryError::TooMuch);
        }
    }
    Ok(())
}
