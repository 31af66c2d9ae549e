//! What a request that nothing holds back costs at the gate, from its entry until its place is free: `cargo bench -p qos_gate`. One
//! thread, the best of many rounds; the goal is at most 300 ns.

#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use qos_gate::{Entry, Gate, Kind, Rule, Terms};
use shard_runtime::SystemClock;

const ROUNDS: usize = 40;
const ROUND: usize = 100_000;

fn main() {
    let limit = Terms { max_iops: Some(1 << 30), max_bandwidth: Some(1 << 60), ..Terms::default() };
    let (free, limited) = (Rule::Free, Rule::Alone(limit));
    for (name, rule, timed) in [
        ("no limit", free, false),
        ("no limit, the caller has looked at the clock", free, true),
        ("below both limits", limited, false),
        ("below both limits, the caller has looked at the clock", limited, true),
    ] {
        let gate = Gate::new(Arc::new(SystemClock::new()), &Default::default());
        gate.apply(&Default::default(), BTreeMap::from([("disk".to_owned(), rule)]));
        let disk = gate.disk("disk");
        let Some(flow) = disk.flow("client") else { return };
        let mut best = f64::MAX;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for _ in 0..ROUND {
                match black_box(flow.enter(Kind::Read, 4096)) {
                    Ok(Entry::Now(permit)) if timed => {
                        let since = permit.since();
                        permit.leave(since);
                    }
                    other => drop(other),
                }
            }
            best = best.min(start.elapsed().as_secs_f64() / ROUND as f64);
        }
        println!("{name:54} {:6.0} ns", best * 1e9);
    }
}
