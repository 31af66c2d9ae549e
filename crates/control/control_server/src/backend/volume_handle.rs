//! [`VolumeHandle`]: what the node does with an open volume.

use std::sync::Arc;

use control_api::{CheckFinding, ReadCacheCounters, VolumeConfig, VolumeLog};
use file_store::{FileStore, StoreUsage};
use observe::IoTotals;
use uuid::Uuid;

use super::Work;
use crate::images::parentage::Parentage;

/// An open volume.
pub trait VolumeHandle: Send + Sync + 'static {
    /// Its files. Used on shards only.
    fn store(&self) -> Arc<dyn FileStore>;
    /// The shard that the node uses it on.
    fn shard(&self) -> usize;
    /// Its identity.
    fn guid(&self) -> Uuid;
    /// The parents of images that are kept from others on it; none where nobody keeps them.
    fn parentage(&self) -> Option<Arc<Parentage>> {
        None
    }
    /// Bytes of a cluster.
    fn cluster(&self) -> u32;
    /// Verifies all structures; what a finding's action says is what a repair would do.
    fn check(&self, deep: bool) -> Work<'_, Vec<CheckFinding>>;
    /// Sets how it is cached, while it is in use.
    fn set_cache(&self, policy: &VolumeConfig) {
        let _ = policy;
    }
    /// What the read cache did for it; none when it has none.
    fn cache(&self) -> Option<ReadCacheCounters> {
        None
    }
    /// What its files have read and written since it was opened, if that is counted.
    fn counters(&self) -> Option<IoTotals> {
        None
    }
    /// The log before it; none when it has none.
    fn log(&self) -> Option<VolumeLog> {
        None
    }
    /// Bytes that it can hold with what its pool has now; its size unless the pool is nearly full.
    fn can_hold(&self) -> u64 {
        u64::MAX
    }
    /// The same of what lies behind its first `from` bytes, where its own structures are.
    fn can_hold_behind(&self, from: u64) -> u64 {
        let _ = from;
        u64::MAX
    }
    /// Bytes that files can still take, by what its store uses: a thin volume has no more than its pool.
    fn free(&self, usage: &StoreUsage) -> u64 {
        usage.capacity.min(self.can_hold_behind(usage.metadata)).saturating_sub(usage.used)
    }
    /// Why it does nothing more until it is closed and opened again; none while it works.
    fn why_stopped(&self) -> Option<String> {
        None
    }
    /// What stopped it is damage that each opening meets again, and each time at a cost.
    fn has_given_up(&self) -> bool {
        false
    }
    /// There was no space for its metadata when it was opened: it is served, and nothing is changed but data that has its place.
    fn lacks_space(&self) -> bool {
        false
    }
    /// Makes everything durable; one that has stopped is left as a crash leaves it.
    fn close(&self) -> Work<'_, ()>;
}
