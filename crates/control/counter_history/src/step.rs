//! From looks at counters that only grow to what each thing did between them.

use std::collections::BTreeMap;

use control_api::{CounterKind, Counters};

use crate::values::{Values, is_of_qos};

/// The name of what all things of a kind did that are not stored by themselves.
pub const OTHERS: &str = "_Others";

/// What a thing did in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Thing {
    pub(crate) kind: CounterKind,
    pub(crate) name: String,
    pub(crate) values: Values,
}

/// A span of time, and what did anything in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Its end, in milliseconds since 1970.
    pub(crate) wall_ms: u64,
    /// Its length, by a clock that nobody sets.
    pub(crate) nanos: u64,
    /// Those that did anything, by kind and name.
    pub(crate) things: Vec<Thing>,
}

impl Step {
    /// Adds the step after this one.
    pub(crate) fn then(&mut self, later: Self) {
        self.wall_ms = later.wall_ms;
        self.nanos = self.nanos.saturating_add(later.nanos);
        let mut things: BTreeMap<_, _> = std::mem::take(&mut self.things)
            .into_iter()
            .map(|thing| ((thing.kind, thing.name), thing.values))
            .collect();
        for Thing { kind, name, values } in later.things {
            things.entry((kind, name)).and_modify(|sum| sum.then(&values)).or_insert(values);
        }
        self.things = things.into_iter().map(|((kind, name), values)| Thing { kind, name, values }).collect();
    }

    /// Leaves the `most` busiest of each kind, of those of QoS the `flows` worst, and one thing that is the sum of the others. A sum of others that is
    /// there is among them: a step has no name twice.
    pub(crate) fn keep_busiest(&mut self, most: usize, flows: usize) {
        let mut kinds: BTreeMap<CounterKind, Vec<Thing>> = BTreeMap::new();
        for thing in std::mem::take(&mut self.things) {
            kinds.entry(thing.kind).or_default().push(thing);
        }
        for (kind, mut things) in kinds {
            let most = if is_of_qos(kind) { flows } else { most };
            let mut others: Vec<Thing> = things.extract_if(.., |thing| thing.name == OTHERS).collect();
            if things.len() > most {
                things.sort_by_key(|thing| std::cmp::Reverse(thing.values.work(kind)));
                others.extend(things.split_off(most));
            }
            if !others.is_empty() {
                let mut values = Values::default();
                others.iter().for_each(|thing| values.add(&thing.values, kind));
                things.push(Thing { kind, name: OTHERS.to_owned(), values });
                things.sort_by(|a, b| a.name.cmp(&b.name));
            }
            self.things.append(&mut things);
        }
    }
}

/// The look before, which the next one is held against.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    before: Option<Look>,
}

/// What counters were at one moment.
#[derive(Debug)]
struct Look {
    process: u32,
    monotonic_ns: u64,
    things: BTreeMap<(CounterKind, String), Values>,
}

impl Looks {
    /// What was done since the look before; `None` for the first look at a process.
    pub(crate) fn step(&mut self, now: &Counters, wall_ms: u64) -> Option<Step> {
        let things: BTreeMap<_, _> =
            now.items.iter().map(|object| ((object.kind, object.name.clone()), Values::of(object))).collect();
        let look = Look { process: now.process, monotonic_ns: now.monotonic_ns, things };
        let before = self.before.replace(look)?;
        let now = self.before.as_ref()?;
        let nanos = now.monotonic_ns.checked_sub(before.monotonic_ns).filter(|nanos| *nanos > 0)?;
        if before.process != now.process {
            return None;
        }
        // What was not there before begins with the next step.
        let grown = now.things.iter().filter_map(|(thing, values)| {
            let before = before.things.get(thing)?;
            let (kind, name) = thing;
            let values = values.since(before).filter(|values| !values.is_idle(thing.0))?;
            Some(Thing { kind: *kind, name: name.clone(), values })
        });
        Some(Step { wall_ms, nanos, things: grown.collect() })
    }
}
