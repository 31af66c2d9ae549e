//! A wrapper over any kind of target that lies now and then: what verification is there to find.

#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    dead_code,
    reason = "shared by the tests of all kinds of targets"
)]

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use shard_runtime::{Clock, SystemClock};
use spd_engine::{
    Backend, Confirm, Control, Data, Done, EngineError, Lane, LanePlan, Op, Preparation, Progress, run_span,
};
use spd_profile::{Target, TimeSpan};
use spd_report::System;

/// Bytes of a block, of which the target must have whole ones.
pub const BLOCK: u64 = 4096;
/// Every so many-th write, or read, is a lie.
const EVERY: u64 = 50;

/// Everything is verified.
pub const VERIFIED: Preparation = Preparation { sparse: false, verify: true };

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    Nothing,
    /// A write is acknowledged and not done.
    Lost,
    /// Half of a write is done.
    Torn,
    /// A write is done one block further.
    Misplaced,
    /// A read returns what was before the last write.
    Stale,
}

/// A backend that lies.
pub struct Lying<B> {
    pub backend: B,
    pub lie: Lie,
}

struct LyingLane {
    inner: Box<dyn Lane>,
    lie: Lie,
    size: u64,
    count: u64,
    /// The last two contents of each block that this lane has written.
    contents: BTreeMap<u64, (Vec<u8>, Vec<u8>)>,
    /// The operation of each slot.
    ops: BTreeMap<usize, Op>,
    /// Slots whose writes were swallowed.
    swallowed: Vec<usize>,
}

impl<B: Backend> Backend for Lying<B> {
    fn sizes(&self) -> Vec<u64> {
        self.backend.sizes()
    }

    fn lane(&self, plan: &LanePlan<'_>) -> Result<Box<dyn Lane>, EngineError> {
        Ok(Box::new(LyingLane {
            inner: self.backend.lane(plan)?,
            lie: self.lie,
            size: self.backend.sizes()[0],
            count: 0,
            contents: BTreeMap::new(),
            ops: BTreeMap::new(),
            swallowed: Vec::new(),
        }))
    }

    fn close(&self) -> Result<(), EngineError> {
        self.backend.close()
    }
}

impl LyingLane {
    fn strikes(&mut self) -> bool {
        self.count += 1;
        self.count.is_multiple_of(EVERY)
    }
}

impl Lane for LyingLane {
    fn read_buffer(&mut self, slot: usize) -> &mut [u8] {
        self.inner.read_buffer(slot)
    }

    fn write_buffer(&mut self, slot: usize) -> &mut [u8] {
        self.inner.write_buffer(slot)
    }

    fn queue(&mut self, op: &Op) -> io::Result<()> {
        let mut told = *op;
        if op.data == Data::Write {
            let data = self.inner.write_buffer(op.slot)[..op.len as usize].to_vec();
            let (before, last) = self.contents.entry(op.offset).or_default();
            *before = std::mem::replace(last, data);
            if self.lie != Lie::Stale && self.strikes() {
                match self.lie {
                    Lie::Lost => {
                        self.swallowed.push(op.slot);
                        return Ok(());
                    }
                    Lie::Torn => told.len /= 2,
                    Lie::Misplaced => told.offset = (op.offset + BLOCK) % self.size,
                    Lie::Nothing | Lie::Stale => {}
                }
            }
        }
        self.ops.insert(op.slot, *op);
        self.inner.queue(&told)
    }

    fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        let timeout = if self.swallowed.is_empty() { timeout } else { Some(Duration::ZERO) };
        self.inner.wait(timeout, done)?;
        for end in &*done {
            let Some(op) = self.ops.get(&end.slot).copied() else { continue };
            let old = self.contents.get(&op.offset).map(|(before, _)| before.clone());
            if let (Lie::Stale, Data::Read, Some(old)) = (self.lie, op.data, old)
                && old.len() == op.len as usize
                && self.strikes()
            {
                self.inner.read_buffer(end.slot).copy_from_slice(&old);
            }
        }
        done.extend(self.swallowed.drain(..).map(|slot| Done { slot, result: Ok(()) }));
        Ok(())
    }
}

struct Never;

impl Control for Never {
    fn stop(&self) -> bool {
        false
    }
    fn progress(&self, _: &Progress) {}
}

/// Agrees to everything.
pub struct Yes;

impl Confirm for Yes {
    fn may_destroy(&self, _: &str) -> bool {
        true
    }
    fn made(&self, _: &str, _: u64, _: u64) -> bool {
        true
    }
}

/// A second of verified load on `path`: half of it writes, by two threads.
pub fn span(path: &str) -> TimeSpan {
    let target =
        Target { block: BLOCK as u32, write_percent: 50, threads: 2, requests: 4, ..Target::new(path) };
    let target = Target { alignment: Some(BLOCK), random_percent: 100, ..target };
    TimeSpan { duration: 1, warm_up: 0, targets: vec![target], ..TimeSpan::default() }
}

/// Every lie on a target that `open` opens is found under its name, and what does not lie passes.
pub fn every_lie_is_found<B: Backend>(span: &TimeSpan, open: impl Fn() -> B) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    for lie in [Lie::Nothing, Lie::Lost, Lie::Torn, Lie::Misplaced, Lie::Stale] {
        let backend = Lying { backend: open(), lie };
        let outcome = run_span(span, &backend, &System::default(), &clock, &Never, Some(7)).unwrap();
        let verify = outcome.verify.clone().unwrap();
        let named = match lie {
            Lie::Nothing => {
                assert_eq!(verify.wrong(), 0, "{verify:?}");
                verify.checked
            }
            // What was there before is an older generation; nothing, where it was the first.
            Lie::Lost => verify.stale + verify.lost,
            Lie::Stale => verify.stale,
            Lie::Torn => verify.torn,
            Lie::Misplaced => verify.misplaced,
        };
        let (read, write) = outcome.sum();
        assert!(named > 0, "{lie:?}: {verify:?} of {} reads, {} writes", read.count, write.count);
        assert!(lie == Lie::Nothing || !verify.findings.is_empty(), "{verify:?}");
    }
}
