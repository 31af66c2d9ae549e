//! Verification: writes carry their place, generation and checksum, and whatever is read is held against what was
//! acknowledged.
//!
//! ```text
//!   block of a target ──► one thread owns it ──► generation: acknowledged, and tried if a write's end is unknown
//!                                                   ▲ write acknowledged          │ read
//!                                                   └─────────────────────────────┴──► fine, or stale, lost, misplaced, torn
//! ```
//! Each block of a target belongs to one thread, which has at most one operation on it at a time; so what a read must
//! return is known without any order between threads. When the load has ended, all blocks that were written are read once
//! more: a write that went astray is found even where the load did not come back.
//!
//! **Invariant.** A block is never counted as wrong for content that a write whose end is unknown (it failed) may have left.

mod content;

use spd_profile::Target;
use spd_report::VerifyOutcome;

use crate::error::EngineError;
use content::{Found, HEADER};

/// Findings that are kept in words; the others are only counted.
const FINDINGS: usize = 20;
/// Most blocks of a target that are kept track of: 1 GiB of memory.
const MAX_BLOCKS: u64 = 1 << 26;
/// Smallest part of a block that is written as a whole: what disks promise.
const SECTOR: usize = 512;

/// Checks that a target's pattern can be verified.
pub(crate) fn check(target: &Target, size: u64) -> Result<(), EngineError> {
    let block = u64::from(target.block);
    let refuse = |why: String| Err(EngineError(format!("--verify on '{}': {why}", target.path)));
    if target.write_percent == 0 {
        return refuse(
            "nothing is written, so there is nothing to hold reads against: give -w1 to -w100".into(),
        );
    }
    if (target.block as usize) < HEADER {
        return refuse(format!("a block must have at least {HEADER} bytes (-b)"));
    }
    if !target.step().is_multiple_of(block) {
        return refuse("blocks that overlap cannot be told apart: -r and -s must be multiples of -b".into());
    }
    if size / block > MAX_BLOCKS {
        return refuse(format!(
            "{} blocks are more than {MAX_BLOCKS}: use a part of the target (-f) or larger blocks (-b)",
            size / block
        ));
    }
    Ok(())
}

/// What is known of a block.
#[derive(Clone, Copy, Default)]
struct Block {
    /// Generation of the last acknowledged write; 0: none in this run.
    acknowledged: u64,
    /// The highest generation that was sent; above the other while a write is outstanding or after one failed.
    sent: u64,
}

/// What one thread knows of its part of one target.
pub(crate) struct Verifier {
    run: u64,
    base: u64,
    block: u64,
    sector: usize,
    threads: u64,
    thread: u64,
    /// Block n of the list is block `n * threads + thread` of the target.
    blocks: Vec<Block>,
    busy: Vec<bool>,
    outcome: VerifyOutcome,
    /// Where the final reading is.
    swept: usize,
}

impl Verifier {
    /// For the `thread`-th of `threads` threads on a target of `size` bytes.
    pub(crate) fn new(target: &Target, size: u64, run: u64, thread: u64, threads: u64) -> Self {
        let end = if target.max > 0 { target.max.min(size) } else { size };
        let block = u64::from(target.block).max(1);
        let all = end.saturating_sub(target.base) / block;
        let mine = (all.saturating_sub(thread)).div_ceil(threads.max(1)).min(MAX_BLOCKS) as usize;
        let whole = target.block as usize;
        Self {
            run,
            base: target.base,
            block,
            sector: if whole.is_multiple_of(SECTOR) { SECTOR } else { whole },
            threads: threads.max(1),
            thread,
            blocks: vec![Block::default(); mine],
            busy: vec![false; mine],
            outcome: VerifyOutcome::default(),
            swept: 0,
        }
    }

    /// The free block of this thread that is nearest to `offset`; reads go to written blocks while there are some near.
    pub(crate) fn choose(&mut self, offset: u64, is_write: bool) -> Option<(u64, bool)> {
        let count = self.blocks.len();
        let wanted = (offset.saturating_sub(self.base) / self.block / self.threads) as usize;
        let start = wanted.min(count.checked_sub(1)?);
        let at =
            (0..count).map(|step| (start + step) % count).find(|at| self.busy.get(*at) == Some(&false))?;
        // A read of what was never written says nothing: write it first.
        let is_write = is_write || self.blocks.get(at).is_some_and(|block| block.sent == 0);
        *self.busy.get_mut(at)? = true;
        Some((self.offset(at), is_write))
    }

    fn offset(&self, at: usize) -> u64 {
        self.base + (at as u64 * self.threads + self.thread) * self.block
    }

    fn index(&self, offset: u64) -> usize {
        (offset.saturating_sub(self.base) / self.block / self.threads) as usize
    }

    /// Fills the buffer of a write.
    pub(crate) fn fill(&mut self, buffer: &mut [u8], offset: u64) {
        let at = self.index(offset);
        let Some(block) = self.blocks.get_mut(at) else { return };
        block.sent += 1;
        let generation = block.sent;
        for (number, sector) in buffer.chunks_mut(self.sector).enumerate() {
            let place = offset + (number * self.sector) as u64;
            content::fill(sector, self.run, place, generation);
        }
    }

    /// A write has ended.
    pub(crate) fn written(&mut self, offset: u64, well: bool) {
        let at = self.index(offset);
        if let (Some(block), Some(busy)) = (self.blocks.get_mut(at), self.busy.get_mut(at)) {
            *busy = false;
            if well {
                block.acknowledged = block.sent;
            }
        }
    }

    /// A read has failed: it says nothing.
    pub(crate) fn unread(&mut self, offset: u64) {
        let at = self.index(offset);
        if let Some(busy) = self.busy.get_mut(at) {
            *busy = false;
        }
    }

    /// A read has ended: holds `buffer` against what must be there.
    pub(crate) fn check(&mut self, buffer: &mut [u8], offset: u64) {
        let at = self.index(offset);
        let Some(block) = self.blocks.get(at).copied() else { return };
        if let Some(busy) = self.busy.get_mut(at) {
            *busy = false;
        }
        if block.acknowledged == 0 {
            return;
        }
        self.outcome.checked += 1;
        let allowed = block.acknowledged..=block.sent;
        let (mut fine, mut stale, mut foreign, mut damaged, mut astray) = (0, 0, 0, 0, None);
        let mut older = u64::MAX;
        for (number, sector) in buffer.chunks_mut(self.sector).enumerate() {
            let place = offset + (number * self.sector) as u64;
            match content::look(sector, self.run, place) {
                Found::Ours(generation) if allowed.contains(&generation) => fine += 1,
                Found::Ours(generation) if generation < *allowed.start() => {
                    stale += 1;
                    older = older.min(generation);
                }
                // A generation that was never sent: the content of some other world.
                Found::Ours(_) => damaged += 1,
                Found::Misplaced { run, offset } => astray = Some((run, offset)),
                Found::Damaged => damaged += 1,
                Found::Foreign => foreign += 1,
            }
        }
        let what = match (fine, stale, foreign, damaged, astray) {
            (_, 0, 0, 0, None) => return,
            (_, _, _, _, Some((run, other))) => {
                self.outcome.misplaced += 1;
                let whose = if run == self.run { "offset" } else { "another run's offset" };
                format!("misplaced: it holds the content of {whose} {other}")
            }
            (0, _, 0, 0, None) => {
                self.outcome.stale += 1;
                format!("stale: it holds generation {older}, {} was acknowledged", block.acknowledged)
            }
            (0, 0, _, 0, None) => {
                self.outcome.lost += 1;
                format!(
                    "lost: generation {} was acknowledged, and nothing of this run is there",
                    block.acknowledged
                )
            }
            _ => {
                self.outcome.torn += 1;
                format!(
                    "torn: of {} sectors {fine} are right, {stale} older, {foreign} foreign, {damaged} damaged",
                    buffer.len() / self.sector
                )
            }
        };
        if self.outcome.findings.len() < FINDINGS {
            self.outcome.findings.push(format!("block at offset {offset}: {what}"));
        }
    }

    /// The next block of the final reading.
    pub(crate) fn sweep(&mut self) -> Option<u64> {
        while let Some(block) = self.blocks.get(self.swept) {
            let at = self.swept;
            self.swept += 1;
            if block.acknowledged > 0 {
                if let Some(busy) = self.busy.get_mut(at) {
                    *busy = true;
                }
                return Some(self.offset(at));
            }
        }
        None
    }

    /// What was found.
    pub(crate) fn outcome(self) -> VerifyOutcome {
        self.outcome
    }
}

/// Adds what one thread found to what others did.
pub(crate) fn merge(sum: &mut VerifyOutcome, part: VerifyOutcome) {
    sum.checked += part.checked;
    sum.stale += part.stale;
    sum.lost += part.lost;
    sum.misplaced += part.misplaced;
    sum.torn += part.torn;
    sum.longest_stall_ms = sum.longest_stall_ms.max(part.longest_stall_ms);
    let room = FINDINGS.saturating_sub(sum.findings.len());
    sum.findings.extend(part.findings.into_iter().take(room));
}
