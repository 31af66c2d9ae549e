//! Scrubbing: everything is read and compared with its checksums, so that damage is found while there is still
//! something to heal it from.
//!
//! Row by row, region by region under the region's lock, at a limited rate. Where it stands is in the pool's metadata: a
//! scrub that a restart interrupts goes on from there.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use block_device::BlockError;
use futures_util::future::join_all;
use pool_format::{BLOCK, Change, DiskId, REGIONS, ScrubRecord, SpaceId};
use pool_layout::parity;

use crate::at::At;
use crate::careful::{self, Bad, Content, heal, read_column};
use crate::check::{Finding, Severity};
use crate::core::Core;
use crate::pool::Pool;
use crate::row::{Place, Row};
use crate::space::Space;
use crate::sums;

/// How and when a pool is scrubbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubParams {
    /// Time from the end of one scrub to the start of the next; zero for only when asked.
    pub every: Duration,
    /// Bytes read per second at most; 0 for no limit.
    pub bytes_per_second: u64,
    /// No reading while set.
    pub paused: bool,
}

impl Default for ScrubParams {
    fn default() -> Self {
        // Damage should meet its repair long before the next disk fails; 64 MiB/s leaves a spinning disk to its clients.
        Self { every: Duration::from_secs(14 * 24 * 3600), bytes_per_second: 64 << 20, paused: false }
    }
}

/// Where the scrub of a pool stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubStatus {
    /// What the metadata knows: the one under way, or the last one.
    pub record: ScrubRecord,
    /// Rows that the one under way has read, of `rows`.
    pub rows_done: u64,
    /// Rows there are.
    pub rows: u64,
}

impl ScrubStatus {
    /// Whether one is under way.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.record.started > self.record.finished
    }
}

/// What reading a region found.
#[derive(Default)]
pub(crate) struct Examined {
    /// Bytes read from disks.
    pub(crate) bytes: u64,
    /// Damaged blocks by disk, pages of checksums among them.
    pub(crate) damaged: BTreeMap<DiskId, u64>,
    /// Blocks of the group that cannot be restored.
    pub(crate) hopeless: u64,
    /// The first and the last of them, as blocks of their column.
    pub(crate) between: Option<(u64, u64)>,
    /// Blocks of copies that fit their own checksums, and differ from another copy that fits its own, by disk: first and last.
    pub(crate) disputed: BTreeMap<(DiskId, u8), (u64, u64)>,
    /// Data and parity are each what was written, but do not belong together.
    pub(crate) parity_differs: bool,
}

impl Pool {
    /// How and when the pool is scrubbed from now on.
    pub fn set_scrub_params(&self, params: ScrubParams) {
        *self.core.scrub_params.write() = params;
        self.core.scrub_attention.notify_one();
    }

    /// How and when the pool is scrubbed.
    #[must_use]
    pub fn scrub_params(&self) -> ScrubParams {
        *self.core.scrub_params.read()
    }

    /// Begins a scrub now, unless one is under way.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub async fn start_scrub(&self) -> Result<(), crate::PoolError> {
        let core = &self.core;
        core.check_writable()?;
        if !self.scrub_status().is_running() {
            let started = core.clock.wall().0.max(1);
            core.meta.commit(vec![Change::Scrub(ScrubRecord { started, ..ScrubRecord::default() })]).await?;
        }
        core.scrub_attention.notify_one();
        Ok(())
    }

    /// Where the scrub stands.
    #[must_use]
    pub fn scrub_status(&self) -> ScrubStatus {
        let record = self.core.meta.with_state(|state| state.scrub);
        let done = |key: &(SpaceId, u32)| *key <= (record.space, record.row);
        let rows = rows_of(&self.core);
        let rows_done = if record.bytes > 0 { rows.iter().filter(|key| done(key)).count() as u64 } else { 0 };
        ScrubStatus { record, rows_done, rows: rows.len() as u64 }
    }
}

fn rows_of(core: &Core) -> Vec<(SpaceId, u32)> {
    core.meta.with_state(|state| state.rows.keys().copied().collect())
}

/// The background task: scrubs when it is time to, until the pool closes or stops.
pub(crate) async fn run(core: Arc<Core>) {
    /// How often it looks whether it is time.
    const LOOK_EVERY: Duration = Duration::from_secs(60);
    while !core.is_over() {
        let record = core.meta.with_state(|state| state.scrub);
        let params = *core.scrub_params.read();
        let now = core.clock.wall().0;
        let due =
            !params.every.is_zero() && now.saturating_sub(record.finished) >= params.every.as_nanos() as u64;
        let result = if record.started > record.finished {
            go_on(&core, record).await
        } else if due && record.finished > 0 {
            let begun = ScrubRecord { started: now.max(record.finished + 1), ..ScrubRecord::default() };
            core.meta.commit(vec![Change::Scrub(begun)]).await.map_err(BlockError::from)
        } else if record.finished == 0 && !params.every.is_zero() {
            // A pool that was never scrubbed counts as new: the first one comes a whole period from now.
            let new = ScrubRecord { started: now.max(1), finished: now.max(1), ..ScrubRecord::default() };
            core.meta.commit(vec![Change::Scrub(new)]).await.map_err(BlockError::from)
        } else {
            shard_runtime::timeout(LOOK_EVERY, core.scrub_attention.notified()).await;
            Ok(())
        };
        if let Some(error) = result.err().filter(|_| !core.is_over()) {
            tracing::warn!("the scrub of pool {} was interrupted: {error}", core.name);
            shard_runtime::timeout(LOOK_EVERY, core.scrub_attention.notified()).await;
        }
    }
}

/// Reads the rows behind where the record stands.
async fn go_on(core: &Arc<Core>, mut record: ScrubRecord) -> Result<(), BlockError> {
    /// Bytes after which the metadata is told how far it is.
    const TELL_EVERY: u64 = 4 << 30;
    let mut told = record.bytes;
    loop {
        if core.is_over() {
            return Ok(());
        }
        if core.scrub_params.read().paused {
            shard_runtime::timeout(Duration::from_secs(1), core.scrub_attention.notified()).await;
            continue;
        }
        let after =
            if record.bytes > 0 { Bound::Excluded((record.space, record.row)) } else { Bound::Unbounded };
        let next = core
            .meta
            .with_state(|state| state.rows.range((after, Bound::Unbounded)).next().map(|(key, _)| *key));
        let Some((space_id, number)) = next else { break };
        (record.space, record.row) = (space_id, number);
        let space = core.spaces.read().get(&space_id).cloned();
        if let Some(space) = space
            && let Some(row) = space.row(number)
        {
            let (bytes, damaged, hopeless) = row_of(core, &space, &row, number).await;
            record.damaged += damaged;
            record.hopeless += hopeless;
            record.bytes += bytes;
        }
        // So that "nothing read yet" and "the first row read" differ, also when that row has just gone.
        record.bytes = record.bytes.max(1);
        if record.bytes - told >= TELL_EVERY {
            told = record.bytes;
            core.meta.commit(vec![Change::Scrub(record)]).await?;
        }
    }
    record.finished = core.clock.wall().0.max(record.started);
    core.meta.commit(vec![Change::Scrub(record)]).await?;
    tracing::info!(
        "pool {} has been scrubbed: {} bytes read, {} blocks damaged, {} of them lost",
        core.name,
        record.bytes,
        record.damaged,
        record.hopeless
    );
    Ok(())
}

/// Reads and heals a row: bytes read, damaged blocks, those that cannot be restored.
async fn row_of(core: &Arc<Core>, space: &Arc<Space>, row: &Arc<Row>, number: u32) -> (u64, u64, u64) {
    let (mut bytes, mut damaged, mut hopeless) = (0, 0, 0);
    for column in 0..row.columns.len() as u8 {
        if row.lead(column) != column {
            continue;
        }
        let place = Place { space: space.id(), row: number, column };
        for region in 0..REGIONS {
            if core.closing.load(Ordering::Acquire) || row.is_given_up() {
                return (bytes, damaged, hopeless);
            }
            let found = examine(At::new(core, space, row, place), region, true).await;
            bytes += found.bytes;
            damaged += found.damaged.values().sum::<u64>();
            hopeless += found.hopeless;
            for finding in findings(At::new(core, space, row, place), region, &found) {
                if finding.structure == "mirror" {
                    tracing::error!("{}", finding.detail);
                }
            }
            let rate = core.scrub_params.read().bytes_per_second;
            if rate > 0 {
                let nanos = u128::from(found.bytes) * 1_000_000_000 / u128::from(rate);
                row.pause(core.rest(Duration::from_nanos(nanos as u64))).await;
            }
        }
    }
    (bytes, damaged, hopeless)
}

/// Reads a region of a group from every copy that should be good, compares, and heals when told to.
pub(crate) async fn examine(at: At<'_>, region: u32, healing: bool) -> Examined {
    let size = at.space.striping.region_size();
    let (offset, mask) = (u64::from(region) * size, 1u64 << region);
    let _range = at.group().locks.lock(offset, size).await;
    let mut examined = Examined::default();
    // After a crash there is nothing to compare with until it is settled.
    if at.group().is_unsettled(mask) {
        return examined;
    }
    let columns = (0..at.row.columns.len()).filter(|index| at.row.lead(*index as u8) == at.place.column);
    let columns: Vec<At<'_>> = columns.map(|index| at.other(index)).collect();
    let mut row: Vec<Content> = Vec::new();
    for column in columns.iter().copied() {
        let mut bad: Vec<Bad> = Vec::new();
        for copy in column.column().copies().iter().filter(|copy| copy.is_good(mask)) {
            let content = careful::from_one_copy(column, offset, size, copy, &mut bad).await;
            examined.bytes += size;
            row.push(content);
        }
        for bad in &bad {
            *examined.damaged.entry(bad.copy.id()).or_default() += bad.count();
            if let (Some(first), Some(last)) = (bad.disputed.first(), bad.disputed.last()) {
                examined.disputed.insert((bad.copy.id(), column.place.column), (*first, *last));
            }
        }
        if !bad.is_empty() {
            let content = read_column(column, offset, size, &[], &mut Vec::new()).await;
            let lacking = (offset / BLOCK..).zip(&content.have).filter(|(_, have)| !**have);
            for (block, _) in lacking {
                examined.hopeless += 1;
                let (first, last) = examined.between.unwrap_or((block, block));
                examined.between = Some((first.min(block), last.max(block)));
            }
            if healing {
                heal(column, offset, &content, &bad).await;
            }
        }
    }
    let disputed: Vec<DiskId> = examined.disputed.keys().map(|(disk, _)| *disk).collect();
    let pages = columns.iter().map(|column| sums::damaged_pages(*column, (offset, size), healing, &disputed));
    for disk in join_all(pages).await.into_iter().flatten() {
        *examined.damaged.entry(disk).or_default() += 1;
    }
    let forgotten = at.group().forgotten.load(Ordering::Acquire) & mask != 0;
    if at.row.shape.parity > 0
        && !forgotten
        && row.len() == at.row.columns.len()
        && row.iter().all(Content::is_complete)
    {
        examined.parity_differs = !differences(at, offset, &row).is_empty();
    }
    examined
}

/// The blocks of parity in a region that are not those of the data: column, block of the region, what it should be.
pub(crate) fn differences(at: At<'_>, offset: u64, row: &[Content]) -> Vec<(usize, u64, Vec<u8>)> {
    let striping = &at.space.striping;
    let blocks = row.first().map_or(0, |column| column.have.len()) as u64;
    let mut differences = Vec::new();
    for block in 0..blocks {
        let stripe = striping.stripe_at(offset + block * BLOCK);
        let range = (block * BLOCK) as usize..((block + 1) * BLOCK) as usize;
        let unit = |unit: usize| &row[striping.column_of(stripe, unit)].data[range.clone()];
        let data: Vec<&[u8]> = (0..striping.data()).map(unit).collect();
        let (mut p, mut q) = (vec![0; BLOCK as usize], vec![0; BLOCK as usize]);
        parity::generate(&data, &mut p, Some(&mut q));
        for (which, sum) in [p, q].into_iter().enumerate().take(striping.parity()) {
            if unit(striping.data() + which) != sum {
                differences.push((striping.column_of(stripe, striping.data() + which), block, sum));
            }
        }
    }
    differences
}

/// What a check says of what a region showed.
pub(crate) fn findings(at: At<'_>, region: u32, found: &Examined) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (disk, blocks) in &found.damaged {
        findings.push(Finding {
            severity: if found.hopeless > 0 { Severity::Critical } else { Severity::Error },
            structure: "data",
            detail: format!("{at}: {blocks} blocks of region {region} on disk {disk} are not what was written"),
            todo: "a scrub, or the next read, restores them from what is intact; a disk with many of them should be replaced",
        });
    }
    if let Some((first, last)) = found.between {
        findings.push(Finding {
            severity: Severity::Critical,
            structure: "data",
            detail: format!(
                "{at}: {} blocks of region {region}, bytes {} to {}, are damaged in everything that holds them",
                found.hopeless,
                first * BLOCK,
                (last + 1) * BLOCK
            ),
            todo: "restore the files they belong to; writing the blocks makes them readable again",
        });
    }
    for ((disk, column), (first, last)) in &found.disputed {
        findings.push(Finding {
            severity: Severity::Critical,
            structure: "mirror",
            detail: format!(
                "{}: bytes {} to {} on disk {disk} differ from another copy, and both fit their own checksums: which is newer \
                 is not known, and neither is overwritten",
                at.other(usize::from(*column)),
                first * BLOCK,
                (last + 1) * BLOCK
            ),
            todo: "retire the disk whose data is older, or write the blocks again from a backup",
        });
    }
    if found.parity_differs {
        findings.push(Finding {
            severity: Severity::Critical,
            structure: "parity",
            detail: format!("{at}: the parity of region {region} is not that of its data"),
            todo: "keep the disks as they are and ask for help: a disk has lost writes that it acknowledged",
        });
    }
    findings
}
