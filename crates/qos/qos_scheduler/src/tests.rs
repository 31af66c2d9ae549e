//! Tests of the scheduler: an exact reference, properties on a simulated disk, and the edges of tags.

mod capacity;
mod capacity_long;
mod disk;
mod edges;
mod kept_places;
mod properties;
mod reference;
mod requests;
mod volume;

use crate::{ClassId, FlowId, Next, Scheduler, Settings, Terms};

/// One second in nanoseconds.
const S: u64 = crate::pace::SECOND;
const MS: u64 = S / 1000;

fn scheduler(depth: u32) -> Scheduler<u64> {
    Scheduler::new(Settings { depth, ..Settings::default() })
}

/// A flow in a class of its own.
fn flow(scheduler: &mut Scheduler<u64>, terms: Terms) -> (FlowId, ClassId) {
    let class = scheduler.add_class(0, terms);
    (scheduler.add_flow(class, 1).expect("the class is there"), class)
}

/// All that may start now, in order.
fn starts(scheduler: &mut Scheduler<u64>, now: u64) -> Vec<u64> {
    std::iter::from_fn(|| match scheduler.next(now) {
        Next::Start(started) => Some(started.payload),
        _ => None,
    })
    .collect()
}
