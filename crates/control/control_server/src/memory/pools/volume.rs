//! Open volumes of pools in memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use control_api::{CheckFinding, Code, LogMode, Problem, Severity, VolumeLog};
use file_store::FileStore;
use parking_lot::Mutex;
use uuid::Uuid;

use super::PoolState;
use crate::backend::{VolumeHandle, Work};
use crate::memory::now;
use crate::memory::store::MemoryStore;

/// A volume: what it says of itself follows from its pool. Those whose name begins with "unclean" cannot be closed cleanly.
pub(super) struct Volume {
    pub(super) store: Arc<MemoryStore>,
    pub(super) state: Arc<Mutex<PoolState>>,
    pub(super) lacks_space: bool,
}

/// What a check of a volume finds: one thing that can be repaired, and one that cannot in those named "…hopeless".
pub(super) fn damage(damaged: &BTreeSet<String>, name: &str) -> Vec<CheckFinding> {
    let found = |structure: &str, place: &str, action: Option<&str>| CheckFinding {
        severity: Severity::Error,
        structure: structure.into(),
        place: place.into(),
        detail: "is damaged".into(),
        action: action.map(str::to_owned),
    };
    let repaired = found("superblock", "the second copy", Some("it is written anew"));
    let left = found("metadata database", "its pages", None);
    let is_left = name.ends_with("hopeless");
    damaged.contains(name).then_some(repaired).into_iter().chain(is_left.then_some(left)).collect()
}

impl VolumeHandle for Volume {
    fn store(&self) -> Arc<dyn FileStore> {
        self.store.clone()
    }

    fn shard(&self) -> usize {
        0
    }

    fn guid(&self) -> Uuid {
        // One as good as another: nobody compares it here.
        Uuid::from_u128(Arc::as_ptr(&self.store) as usize as u128)
    }

    fn cluster(&self) -> u32 {
        4096
    }

    fn log(&self) -> Option<VolumeLog> {
        let state = self.state.lock();
        let log = state.spaces.get(state.name_of(&self.store)?)?.0.log?;
        Some(VolumeLog {
            mode: LogMode::Logging,
            reason: None,
            back_error: None,
            capacity_bytes: log.size_bytes,
            used_bytes: 0,
            waiting_bytes: 0,
            logged_writes: 0,
            direct_writes: 0,
            batches: 0,
            destaged_bytes: 0,
        })
    }

    fn why_stopped(&self) -> Option<String> {
        let state = self.state.lock();
        let stopped = state.name_of(&self.store).is_some_and(|name| state.stopped_volumes.contains(name));
        stopped.then(|| "a flush failed".to_owned())
    }

    fn can_hold(&self) -> u64 {
        // Slabs are not counted here.
        1 << 40
    }

    fn lacks_space(&self) -> bool {
        self.lacks_space
    }

    fn check(&self, _deep: bool) -> Work<'_, Vec<CheckFinding>> {
        let state = self.state.lock();
        now(Ok(state.name_of(&self.store).map(|name| damage(&state.damaged, name)).unwrap_or_default()))
    }

    fn close(&self) -> Work<'_, ()> {
        let state = self.state.lock();
        let spoilt = state.name_of(&self.store).is_some_and(|name| name.starts_with("unclean"));
        let problem = || Problem::new(Code::Io, "what was written last could not be made durable");
        now(if spoilt { Err(problem()) } else { Ok(()) })
    }
}
