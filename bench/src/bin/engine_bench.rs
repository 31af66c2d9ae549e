//! What the load generator itself costs for each operation, without a target: choosing it, counting it, its histograms.
//!
//! ```text
//!   engine_bench SECONDS
//! ```
//! Prints `depthN_ns=…` for some depths: nanoseconds of one thread per operation, when every operation ends at once. The
//! clock is read twice a batch, so it costs most where a batch is one operation.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use shard_runtime::{Clock, SystemClock};
use spd_engine::{Backend, Control, Done, EngineError, Lane, LanePlan, Op, Progress, run_span};
use spd_profile::{Target, TimeSpan};
use spd_report::System;

/// Bytes of the target that is not there.
const SIZE: u64 = 1 << 30;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: u32 = std::env::args().nth(1).ok_or("usage: engine_bench SECONDS")?.parse()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    for depth in [1, 16, 64] {
        let target = Target {
            block: 4096,
            random_percent: 100,
            write_percent: 30,
            requests: depth,
            ..Target::new("nothing")
        };
        let span = TimeSpan {
            duration: seconds,
            warm_up: 0,
            latency: true,
            iops_intervals: true,
            targets: vec![target],
            ..TimeSpan::default()
        };
        let outcome = run_span(&span, &Nothing, &System::default(), &clock, &Quiet, None)?;
        let (read, write) = outcome.sum();
        let count = (read.count + write.count).max(1);
        println!("depth{depth}_ns={:.1}", outcome.seconds * 1e9 / count as f64);
    }
    Ok(())
}

struct Quiet;

impl Control for Quiet {
    fn stop(&self) -> bool {
        false
    }
    fn progress(&self, _: &Progress) {}
}

/// A target on which everything ends at once.
struct Nothing;

impl Backend for Nothing {
    fn sizes(&self) -> Vec<u64> {
        vec![SIZE]
    }

    fn lane(&self, plan: &LanePlan<'_>) -> Result<Box<dyn Lane>, EngineError> {
        Ok(Box::new(AtOnce { slots: Vec::with_capacity(plan.slots.len()), buffer: [0; 4096] }))
    }
}

struct AtOnce {
    slots: Vec<usize>,
    buffer: [u8; 4096],
}

impl Lane for AtOnce {
    fn read_buffer(&mut self, _: usize) -> &mut [u8] {
        &mut self.buffer
    }

    fn write_buffer(&mut self, _: usize) -> &mut [u8] {
        &mut self.buffer
    }

    fn queue(&mut self, op: &Op) -> io::Result<()> {
        self.slots.push(op.slot);
        Ok(())
    }

    fn wait(&mut self, _: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        done.extend(self.slots.drain(..).map(|slot| Done { slot, result: Ok(()) }));
        Ok(())
    }
}
