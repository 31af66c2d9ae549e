//! What a request that nothing holds back costs at the gate, from its entry until its place is free: `cargo bench -p qos_gate`. One
//! thread, the best of many rounds; the goal is at most 300 ns. And how long lists of 10,000 flows take (goal: 100 ms), each of which has
//! requests all the time, with the memory that the process has after the first and the last of many rounds of them (goal: the same).

#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use qos_gate::{Entry, Gate, Kind, Rule, Terms};
use shard_runtime::SystemClock;

const ROUNDS: usize = 40;
const ROUND: usize = 100_000;
const FLOWS: usize = 10_000;

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
    lists();
}

/// Resident memory in KiB, where Linux says it.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn lists() {
    let gate = Gate::new(Arc::new(SystemClock::new()), &Default::default());
    let terms = Terms { min_iops: Some(10), max_iops: Some(1 << 30), ..Terms::default() };
    let rules: BTreeMap<String, Rule> =
        (0..FLOWS).map(|n| (format!("disk{n}"), Rule::Alone(terms))).collect();
    gate.apply(&Default::default(), rules);
    let flows: Vec<_> = (0..FLOWS).filter_map(|n| gate.disk(&*format!("disk{n}")).flow("client")).collect();
    let mut first = 0;
    for round in 0..ROUNDS {
        for flow in flows.iter().cycle().take(ROUND) {
            drop(flow.enter(Kind::Read, 4096));
        }
        if round == 0 {
            black_box((gate.flows(), gate.volume()));
            first = resident();
        }
    }
    let start = Instant::now();
    let listed = black_box(gate.flows()).len();
    let list = start.elapsed();
    let start = Instant::now();
    black_box(gate.volume());
    let (volume, last) = (start.elapsed(), resident());
    println!(
        "a list of {listed} flows {list:?}, their volume {volume:?}; {first} KiB after {ROUND} requests, {last} after {}",
        ROUNDS * ROUND
    );
}
