//! What a node has of each pool and each volume: the handle that is open, or why there is none.

use std::collections::BTreeMap;
use std::sync::Arc;

use shard_runtime::Monotonic;
use uuid::Uuid;

use super::fullness;
use crate::backend::{PoolHandle, SpaceInfo, VolumeHandle};

/// Why a pool is not open that is being let go of.
pub(super) const BEING_CLOSED: &str = "it is being closed";

/// A pool of the configuration.
#[derive(Clone, Default)]
pub(super) struct PoolSlot {
    pub(super) name: String,
    pub(super) handle: Option<Arc<dyn PoolHandle>>,
    /// Why there is no handle.
    pub(super) reason: Option<String>,
    /// What to do about that.
    pub(super) todo: Option<String>,
    /// It could not be opened because disks are missing: other nodes may have them.
    pub(super) lacks_disks: bool,
    /// Since when each member is missing.
    pub(super) missing_since: BTreeMap<Uuid, Monotonic>,
    /// How full it was at the last look.
    pub(super) fullness: fullness::Fullness,
    /// What it held when it was last open.
    pub(super) held: Option<Vec<SpaceInfo>>,
}

impl PoolSlot {
    /// One that is open.
    pub(super) fn open(name: &str, handle: Arc<dyn PoolHandle>) -> Self {
        Self { name: name.to_owned(), handle: Some(handle), ..Self::default() }
    }

    /// It is not open any more: what it was, to be closed.
    pub(super) fn close(&mut self) -> Option<Arc<dyn PoolHandle>> {
        let handle = self.handle.take()?;
        self.held = Some(handle.info().spaces);
        (self.reason, self.todo) = (Some(BEING_CLOSED.to_owned()), None);
        Some(handle)
    }
}

/// A volume of an open pool.
#[derive(Clone)]
pub(super) struct VolumeSlot {
    pub(super) pool: Uuid,
    /// The identity of its space.
    pub(super) space: Uuid,
    pub(super) handle: Option<Arc<dyn VolumeHandle>>,
    /// Why there is no handle.
    pub(super) reason: Option<String>,
    /// Checked or repaired by itself: not to be opened now.
    pub(super) kept_closed: bool,
    /// It has stopped because disks are away: opened again when all its data is there.
    pub(super) waits: bool,
    /// Bytes that it could hold when it was opened without space for its metadata.
    pub(super) held_full: u64,
    /// It was not there to be opened: its pool is away, and its name is kept for it.
    pub(super) reserved: bool,
    /// What is wrong with it a check explains.
    pub(super) damaged: bool,
    /// It cannot be opened because its log is not there.
    pub(super) lacks_log: bool,
    /// What to do about the reason, where more is known than to bring missing disks back.
    pub(super) todo: Option<String>,
}

impl VolumeSlot {
    /// One that is open.
    pub(super) fn open(pool: Uuid, space: Uuid, handle: Arc<dyn VolumeHandle>) -> Self {
        let held_full = if handle.lacks_space() { handle.can_hold() } else { 0 };
        Self { handle: Some(handle), reason: None, held_full, ..Self::closed(pool, space, "") }
    }

    /// One that is not.
    pub(super) fn closed(pool: Uuid, space: Uuid, reason: impl Into<String>) -> Self {
        let reason = Some(reason.into());
        Self {
            pool,
            space,
            handle: None,
            reason,
            kept_closed: false,
            waits: false,
            held_full: 0,
            reserved: false,
            damaged: false,
            lacks_log: false,
            todo: None,
        }
    }
}
