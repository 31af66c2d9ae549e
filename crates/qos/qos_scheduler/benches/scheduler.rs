//! What the scheduler costs for each I/O: `cargo bench -p qos_scheduler`. One thread, the best of many rounds; the goal is at most
//! 300 ns with 10,000 flows that all wait.

#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::hint::black_box;
use std::time::Instant;

use qos_scheduler::{FlowId, Kind, Next, Scheduler, Settings, Terms};

const ROUNDS: usize = 20;
const ROUND: usize = 200_000;

fn main() {
    let none = Terms::default();
    let every = Terms {
        min_iops: Some(10),
        max_iops: Some(1_000_000),
        max_bandwidth: Some(1 << 40),
        ..Terms::default()
    };
    measure("passes, no limit", 1, none, false, true);
    for flows in [1, 100, 10_000] {
        measure("waits, no limit", flows, none, false, false);
        measure("waits, minimum and both limits", flows, every, false, false);
        measure("waits, all in one class", flows, every, true, false);
    }
    // A fifth of what is asked for is allowed, so most starts go through the heap of those that their limits hold back.
    measure("held back", 10_000, Terms { max_iops: Some(100), burst: 0, ..none }, false, false);
}

fn measure(name: &str, count: usize, terms: Terms, shared: bool, passes: bool) {
    let mut scheduler = Scheduler::new(Settings { depth: 64, ..Settings::default() });
    let mut class = scheduler.add_class(0, terms);
    let flows: Vec<FlowId> = (0..count)
        .filter_map(|number| {
            if number > 0 && !shared {
                class = scheduler.add_class(0, terms);
            }
            scheduler.add_flow(class, 1)
        })
        .collect();
    let mut now = 0;
    if !passes {
        for flow in flows.iter().chain(&flows) {
            let _ = scheduler.enqueue(now, *flow, Kind::Read, 4096, *flow);
        }
    }
    let (mut best, mut starts) = (f64::MAX, 0);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for number in 0..ROUND {
            now += 1000;
            if passes {
                let flow = flows[number % flows.len()];
                black_box(scheduler.try_pass(now, flow, Kind::Read, 4096));
                scheduler.complete(flow);
                starts += 1;
            } else if let Next::Start(started) = black_box(scheduler.next(now)) {
                // It completes at once and its client sends another.
                scheduler.complete(started.flow);
                let _ = scheduler.enqueue(now, started.flow, Kind::Read, 4096, started.payload);
                starts += 1;
            }
        }
        best = best.min(start.elapsed().as_secs_f64() / ROUND as f64);
    }
    let part = starts as f64 / (ROUNDS * ROUND) as f64;
    println!("{name:32} {count:6} flows {:8.0} ns, {:3.0} % started", best * 1e9, part * 100.0);
}
