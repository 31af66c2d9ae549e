//! The cache that devices share: its shards, its size, its devices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use observe::Inspect;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::memory::{CacheUse, MemorySample, next_limit};
use crate::shard::{CHUNK, Shard};
use crate::stats::{CacheCounters, DeviceStats};

/// Shards of a cache: with so many, two of a hundred readers rarely meet.
const SHARDS: usize = 64;

/// A read cache in memory. Devices join it by [`crate::CachedDevice::new`].
pub struct ReadCache {
    shards: Box<[Mutex<Shard>]>,
    limit: AtomicU64,
    in_force: AtomicU64,
    /// The devices, by number; the number of a device that has left is given to the next one.
    devices: Mutex<Vec<Option<Member>>>,
    /// One change of size at a time.
    resizing: Mutex<()>,
}

struct Member {
    name: String,
    stats: Arc<DeviceStats>,
}

impl ReadCache {
    /// A cache of at most `limit` bytes; 0 for none. The granularity is 128 KiB, and below 8 MiB some parts of devices
    /// find no place.
    #[must_use]
    pub fn new(limit: u64) -> Arc<Self> {
        Self::with_shards(limit, SHARDS)
    }

    pub(crate) fn with_shards(limit: u64, shards: usize) -> Arc<Self> {
        let cache = Arc::new(Self {
            shards: (0..shards.max(1)).map(|_| Mutex::new(Shard::new())).collect(),
            limit: AtomicU64::new(0),
            in_force: AtomicU64::new(0),
            devices: Mutex::default(),
            resizing: Mutex::default(),
        });
        cache.set_limit(limit);
        cache
    }

    /// Sets how many bytes may be held, while running. Returns when what is too much has been given back, shard by
    /// shard, with each locked for microseconds at a time.
    pub fn set_limit(&self, bytes: u64) {
        let resizing = self.resizing.lock();
        self.limit.store(bytes, Ordering::Relaxed);
        self.put_in_force(bytes);
        drop(resizing);
    }

    /// Adapts the limit in force to the memory that the machine has left; to be called once a second or so, off the paths
    /// of I/O.
    pub fn balance(&self, sample: MemorySample) {
        let _resizing = self.resizing.lock();
        let now = self.sizes();
        let next = next_limit(now, sample);
        if next == now.in_force {
            return;
        }
        if next < now.in_force {
            tracing::debug!("short of memory: the read cache gives {} MiB back", (now.in_force - next) >> 20);
        }
        self.put_in_force(next);
    }

    fn put_in_force(&self, bytes: u64) {
        self.in_force.store(bytes, Ordering::Relaxed);
        let (chunks, shards) = ((bytes / CHUNK) as usize, self.shards.len());
        let mut gave_back = false;
        for (number, shard) in self.shards.iter().enumerate() {
            shard.lock().allow(chunks / shards + usize::from(number < chunks % shards));
            // The lock is let go between chunks: readers go on.
            while shard.lock().shrink() {
                gave_back = true;
            }
        }
        if gave_back {
            aligned_buffer::give_back_free_memory();
        }
    }

    /// The sizes now.
    #[must_use]
    pub fn sizes(&self) -> CacheUse {
        CacheUse {
            limit: self.limit.load(Ordering::Relaxed),
            in_force: self.in_force.load(Ordering::Relaxed),
            held: self.shards.iter().map(|shard| shard.lock().held() as u64 * CHUNK).sum(),
        }
    }

    /// The limit in force, in bytes.
    pub(crate) fn limit_in_force(&self) -> u64 {
        self.in_force.load(Ordering::Relaxed)
    }

    /// What all devices together did since each joined.
    #[must_use]
    pub fn counters(&self) -> CacheCounters {
        let mut sum = CacheCounters::default();
        for member in self.devices.lock().iter().flatten() {
            sum.add(&member.stats.counters());
        }
        sum
    }

    pub(crate) fn join(&self, name: &str, stats: &Arc<DeviceStats>) -> u32 {
        let mut devices = self.devices.lock();
        let number = match devices.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                devices.push(None);
                devices.len() - 1
            }
        };
        devices[number] = Some(Member { name: name.to_owned(), stats: Arc::clone(stats) });
        for shard in &self.shards {
            shard.lock().set_device(number as u32, Some(Arc::clone(stats)));
        }
        number as u32
    }

    /// Shows the counters of a device under another name.
    pub(crate) fn rename(&self, device: u32, name: &str) {
        if let Some(Some(member)) = self.devices.lock().get_mut(device as usize) {
            name.clone_into(&mut member.name);
        }
    }

    /// Forgets a device that nobody uses any more.
    pub(crate) fn leave(&self, device: u32) {
        // Its pages go before its number may be given away.
        let mut devices = self.devices.lock();
        self.forget(device);
        for shard in &self.shards {
            shard.lock().set_device(device, None);
        }
        if let Some(member) = devices.get_mut(device as usize) {
            *member = None;
        }
    }

    /// Forgets all pages of a device; fills that are under way are dropped.
    pub(crate) fn forget(&self, device: u32) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.begin_wide(device, 0..u64::MAX);
            shard.end_wide();
        }
    }

    /// The shards in their order.
    pub(crate) fn shards(&self) -> &[Mutex<Shard>] {
        &self.shards
    }

    /// The shard of a run and its stripe there.
    pub(crate) fn place(&self, device: u32, run: u64) -> (&Mutex<Shard>, usize) {
        // Neighbouring runs go to different shards, devices begin at different ones.
        let mixed = (run ^ (u64::from(device) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let shard = (mixed >> 32) as usize % self.shards.len();
        (&self.shards[shard], (mixed >> 12) as usize)
    }
}

impl Inspect for ReadCache {
    fn inspect(&self) -> Value {
        let sizes = self.sizes();
        let devices: serde_json::Map<String, Value> = self
            .devices
            .lock()
            .iter()
            .flatten()
            .map(|member| (member.name.clone(), member.stats.inspect()))
            .collect();
        json!({
            "limit_bytes": sizes.limit, "limit_in_force_bytes": sizes.in_force, "held_bytes": sizes.held,
            "all": self.counters().inspect(), "devices": devices,
        })
    }
}
