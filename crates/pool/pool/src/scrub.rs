//! Scrubbing: everything is read and compared with its checksums, so that damage is found while there is still
//! something to heal it from.
//!
//! Row by row, region by region under the region's lock, at a limited rate. Where it stands is in the pool's metadata: a
//! scrub that a restart interrupts goes on from there.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use block_device::BlockError;
use pool_format::{Change, REGIONS, ScrubRecord, SpaceId};

use crate::at::At;
use crate::core::{Core, Space};
use crate::examine::{examine, findings};
use crate::params::ScrubParams;
use crate::pool::Pool;
use crate::row::{Place, Row};

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
            core.scrubbed_bytes.fetch_add(found.bytes, Ordering::Relaxed);
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
