//! [`Latencies`]: how long answers take, by what they do and how large they are, and how long they take when the volume is quiet.

use super::{FEW, MS, permille, smoothed};
use crate::Kind;

/// How long the lowest latency counts: between one and two of these.
const EPOCH: u64 = 150_000 * MS;
/// Sizes that are told apart: 1, 2, 4, … units and all above.
const SIZES: usize = 8;
const CELLS: usize = 2 * SIZES;

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    answers: u64,
    nanos: u64,
    /// Its mean over the last windows.
    smooth: u64,
    /// The lowest of those of this epoch and of the one before; 0: none.
    lowest: u64,
    lowest_before: u64,
}

impl Cell {
    fn mean(&self) -> Option<u64> {
        self.nanos.checked_div(self.answers)
    }

    fn quiet(&self) -> u64 {
        match (self.lowest, self.lowest_before) {
            (0, quiet) | (quiet, 0) => quiet,
            (now, before) => now.min(before),
        }
    }
}

/// Mean latencies of a window, by cell; 0 where there was no answer.
pub(super) type Means = [u64; CELLS];

#[derive(Debug, Default)]
pub(super) struct Latencies {
    cells: [Cell; CELLS],
    epoch: u64,
}

fn cell(kind: Kind, units: u64) -> usize {
    let size = (u64::BITS - units.max(1).saturating_sub(1).leading_zeros()) as usize;
    size.min(SIZES - 1) + if kind == Kind::Read { 0 } else { SIZES }
}

impl Latencies {
    pub(super) fn answered(&mut self, kind: Kind, units: u64, nanos: u64) {
        let cell = &mut self.cells[cell(kind, units)];
        cell.answers += 1;
        cell.nanos = cell.nanos.saturating_add(nanos);
    }

    /// A new window.
    pub(super) fn begin(&mut self) {
        for cell in &mut self.cells {
            (cell.answers, cell.nanos) = (0, 0);
        }
    }

    pub(super) fn means(&self) -> Means {
        self.cells.map(|cell| cell.mean().unwrap_or(0))
    }

    /// How many times longer the answers took than those of an earlier window, in thousandths; `None`: they are of other kinds.
    pub(super) fn against(&self, earlier: &Means) -> Option<u64> {
        let (mut now, mut before) = (0u128, 0u128);
        for (cell, mean) in self.cells.iter().zip(earlier).filter(|(_, mean)| **mean > 0) {
            now += u128::from(cell.nanos);
            before += u128::from(cell.answers) * u128::from(*mean);
        }
        (before > 0).then(|| permille(now, before))
    }

    /// How many times longer they took than when the volume is quiet, in thousandths.
    pub(super) fn slowdown(&self) -> u64 {
        self.against(&self.cells.map(|cell| cell.quiet())).unwrap_or(1000)
    }

    /// How long such a request takes when the volume is quiet; 0: there was none yet.
    pub(super) fn quiet(&self, kind: Kind, units: u64) -> u64 {
        self.cells[cell(kind, units)].quiet()
    }

    /// What the last windows had is quiet.
    pub(super) fn are_quiet(&mut self) {
        for cell in self.cells.iter_mut().filter(|cell| cell.answers > 0) {
            (cell.lowest, cell.lowest_before) = (cell.smooth, 0);
        }
    }

    /// Takes the window's means. `is_free`: nobody is held back. While others are held back, what is lowest is what holding them back makes
    /// of a busy volume: it would be taken for quiet, the target would follow, and in the end nobody would be protected. `believed`: what a
    /// trial has found is not undone by a window that happened to have more hits of a cache.
    pub(super) fn learn(&mut self, now: u64, is_free: bool, believed: bool) {
        let slowdown = self.slowdown().max(1000);
        let ends = is_free && now.saturating_sub(self.epoch) >= EPOCH;
        if ends {
            self.epoch = now;
        }
        for cell in &mut self.cells {
            if ends {
                cell.lowest_before = cell.lowest;
                cell.lowest = 0;
            }
            let Some(mean) = cell.mean().filter(|_| cell.answers >= FEW) else { continue };
            if cell.quiet() == 0 {
                // How long these take when the volume is quiet nobody knows, but how many times longer all take now.
                cell.smooth = mean;
                let quiet = u128::from(mean) * 1000 / u128::from(slowdown);
                cell.lowest = u64::try_from(quiet).unwrap_or(u64::MAX).max(1);
                continue;
            }
            cell.smooth = smoothed(cell.smooth, mean);
            if cell.lowest == 0 || (cell.smooth < cell.lowest && !believed) {
                cell.lowest = cell.smooth.max(1);
            }
        }
    }
}
