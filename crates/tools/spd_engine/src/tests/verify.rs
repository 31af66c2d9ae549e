//! Verification against a target in memory that loses, tears, misplaces, or returns what was.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shard_runtime::{Clock, SystemClock};
use spd_profile::{Target, TimeSpan};
use spd_report::{SpanOutcome, System};

use super::Until;
use crate::*;

/// What goes wrong with every thousandth write, or read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Nothing,
    /// Acknowledged, not done.
    LostWrite,
    /// The first half only.
    TornWrite,
    /// One block further.
    MisplacedWrite,
    /// One bit.
    Rot,
    /// The content before the last write.
    StaleRead,
    /// Fails, half of it done: that is no lie.
    HonestFailure,
    /// The last write to each block is lost: nothing but the final reading can see it.
    LostAtTheEnd,
}

#[derive(Default)]
struct Disk {
    data: Vec<u8>,
    before: HashMap<u64, Vec<u8>>,
    writes: u64,
    reads: u64,
}

struct Faulty {
    disk: Arc<Mutex<Disk>>,
    size: u64,
    fault: Fault,
}

struct FaultyLane {
    disk: Arc<Mutex<Disk>>,
    fault: Fault,
    buffers: Vec<(Vec<u8>, Vec<u8>)>,
    queue: Vec<Op>,
}

impl Backend for Faulty {
    fn sizes(&self) -> Vec<u64> {
        vec![self.size]
    }
    fn lane(&self, plan: &LanePlan<'_>) -> Result<Box<dyn Lane>, EngineError> {
        let buffers = plan.slots.iter().map(|slot| (vec![0; slot.read], vec![0; slot.write]));
        Ok(Box::new(FaultyLane {
            disk: Arc::clone(&self.disk),
            fault: self.fault,
            buffers: buffers.collect(),
            queue: Vec::new(),
        }))
    }
}

impl FaultyLane {
    fn write(&mut self, op: &Op, disk: &mut Disk) -> Result<(), LaneFailure> {
        disk.writes += 1;
        let strikes = disk.writes.is_multiple_of(1000);
        let data = &self.buffers[op.slot].1[..op.len as usize];
        let at = op.offset as usize;
        let len = data.len();
        disk.before.insert(op.offset, disk.data[at..at + len].to_vec());
        match self.fault {
            Fault::LostWrite if strikes => {}
            Fault::LostAtTheEnd if disk.writes > 5000 => {}
            Fault::TornWrite if strikes => disk.data[at..at + len / 2].copy_from_slice(&data[..len / 2]),
            Fault::MisplacedWrite if strikes => {
                let other = (at + len) % disk.data.len();
                disk.data[other..other + len].copy_from_slice(data);
            }
            Fault::HonestFailure if strikes => {
                disk.data[at..at + len / 2].copy_from_slice(&data[..len / 2]);
                return Err(LaneFailure::System(libc::EIO));
            }
            _ => {
                disk.data[at..at + len].copy_from_slice(data);
                if self.fault == Fault::Rot && strikes {
                    disk.data[at + 100] ^= 4;
                }
            }
        }
        Ok(())
    }
}

impl Lane for FaultyLane {
    fn read_buffer(&mut self, slot: usize) -> &mut [u8] {
        &mut self.buffers[slot].0
    }
    fn write_buffer(&mut self, slot: usize) -> &mut [u8] {
        &mut self.buffers[slot].1
    }
    fn queue(&mut self, op: &Op) -> io::Result<()> {
        self.queue.push(*op);
        Ok(())
    }
    fn wait(&mut self, _: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        let disk = Arc::clone(&self.disk);
        let mut disk = disk.lock().unwrap();
        for op in std::mem::take(&mut self.queue) {
            let result = if op.data.is_write() {
                self.write(&op, &mut disk)
            } else {
                disk.reads += 1;
                let at = op.offset as usize;
                let old = disk
                    .before
                    .get(&op.offset)
                    .filter(|_| self.fault == Fault::StaleRead && disk.reads.is_multiple_of(100));
                let data = old.map_or(&disk.data[at..at + op.len as usize], Vec::as_slice);
                self.buffers[op.slot].0.copy_from_slice(data);
                Ok(())
            };
            done.push(Done { slot: op.slot, result });
        }
        Ok(())
    }
}

fn verified(fault: Fault, write_percent: u32) -> SpanOutcome {
    let size = 64 * 4096u64;
    let disk = Disk { data: vec![0; size as usize], ..Disk::default() };
    let target = Target {
        block: 4096,
        random_percent: 100,
        write_percent,
        threads: 3,
        requests: 8,
        ..Target::new("m")
    };
    let span = TimeSpan { duration: 1, warm_up: 0, targets: vec![target], ..TimeSpan::default() };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let backend = Faulty { disk: Arc::new(Mutex::new(disk)), size, fault };
    run_span(&span, &backend, &System::default(), &clock, &Until(None), Some(77)).unwrap()
}

#[test]
fn an_honest_target_passes() {
    for fault in [Fault::Nothing, Fault::HonestFailure] {
        let outcome = verified(fault, 50);
        let verify = outcome.verify.clone().unwrap();
        assert!(verify.checked > 1000, "{fault:?}: {verify:?}");
        assert_eq!(verify.wrong(), 0, "{fault:?}: {verify:?}");
        assert_eq!(outcome.sum().1.errors > 0, fault == Fault::HonestFailure);
    }
}

#[test]
fn every_lie_is_found_under_its_name() {
    for fault in [Fault::LostWrite, Fault::TornWrite, Fault::MisplacedWrite, Fault::Rot, Fault::StaleRead] {
        let verify = verified(fault, 50).verify.unwrap();
        let named = match fault {
            // What was there before is an older generation.
            Fault::LostWrite | Fault::StaleRead => verify.stale,
            Fault::TornWrite | Fault::Rot => verify.torn,
            _ => verify.misplaced,
        };
        assert!(named > 0, "{fault:?}: {verify:?}");
        assert!(!verify.findings.is_empty() && verify.findings.len() <= 20);
    }
}

#[test]
fn the_final_reading_sees_what_the_load_did_not_come_back_to() {
    let verify = verified(Fault::LostAtTheEnd, 100).verify.unwrap();
    assert!(verify.stale > 0, "{verify:?}");
}

#[test]
fn what_cannot_be_verified_is_refused() {
    let target = Target { block: 4096, write_percent: 50, ..Target::new("m") };
    for (target, part) in [
        (Target { write_percent: 0, ..target.clone() }, "nothing is written"),
        (Target { block: 16, ..target.clone() }, "at least 36 bytes"),
        (Target { alignment: Some(512), ..target.clone() }, "overlap"),
    ] {
        let span = TimeSpan { targets: vec![target], ..TimeSpan::default() };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let backend = Faulty { disk: Arc::default(), size: 1 << 20, fault: Fault::Nothing };
        let why = run_span(&span, &backend, &System::default(), &clock, &Until(None), Some(1)).unwrap_err();
        assert!(why.0.contains(part), "{why}");
    }
}
