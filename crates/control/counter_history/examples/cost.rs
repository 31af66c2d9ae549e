//! What a look costs with THINGS things of which BUSY do something, and how many bytes a step takes.
//!
//! `cargo run --release -p counter_history --example cost -- 10000 1000 120`: THINGS, BUSY, SECONDS.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement")]

use std::time::Instant;

use control_api::{CounterKind, Counters, ObjectCounters, OperationCounters};
use counter_history::{CounterHistory, Query};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<u64> = std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [things, busy, seconds] = arguments.as_slice() else { return Err("THINGS BUSY SECONDS".into()) };
    let dir = std::env::temp_dir().join(format!("counter-history-cost-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let (mut history, _) = CounterHistory::open(&dir)?;
    let mut spent = std::time::Duration::ZERO;
    let start = 1_700_000_000_000_u64;
    for second in 0..*seconds {
        let lun = |number: u64| {
            let operations = if number < *busy { second * (1000 + number) } else { 0 };
            let done = OperationCounters {
                operations,
                bytes: operations * 4096,
                errors: 0,
                latency_ns: operations * 500_000,
            };
            ObjectCounters {
                read: Some(done),
                write: Some(done),
                ..ObjectCounters::new(CounterKind::Lun, format!("lun{number:05}"))
            }
        };
        let items = (0..*things).map(lun).collect();
        let look = Counters { node: "n".into(), process: 1, monotonic_ns: second * 1_000_000_000, items };
        let began = Instant::now();
        history.take(&look, start + second * 1000)?;
        spent += began.elapsed();
    }
    history.close()?;
    let bytes: u64 =
        std::fs::read_dir(&dir)?.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len())).sum();
    let began = Instant::now();
    let query = Query { from_ms: start, to_ms: start + seconds * 1000, sum: true, ..Query::default() };
    let steps = history.snapshot().read(&query).map_err(|error| format!("{error:?}"))?.steps.len();
    println!(
        "{things} things, {busy} busy: {:.2} ms a look, {} bytes a second; {steps} steps of sums read in {:.1} ms",
        spent.as_secs_f64() * 1000.0 / *seconds as f64,
        bytes / seconds,
        began.elapsed().as_secs_f64() * 1000.0
    );
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
