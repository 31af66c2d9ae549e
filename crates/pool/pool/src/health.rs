//! Which disks answer slower than their like.
//!
//! A disk that fails slowly holds up every write of every mirror that it is in, long before it reports an error. What a
//! disk needs for small requests is compared with what the others of its kind in the pool need, in windows of some
//! seconds: a burst is bad luck, a slow minute is not. The pool only says so; what is done is the node's policy.

use std::sync::Arc;
use std::time::Duration;

use crate::core::Core;
use crate::pace::Slowness;

/// Requests that a window needs to say anything.
const ENOUGH: u64 = 16;
/// A disk is slow when it needs this many times what the others need ...
const TIMES: u32 = 8;
/// ... and more than this, which no kind of disk needs in good health and with short queues.
const LEAST: Duration = Duration::from_millis(50);

/// Ends a window of `length` for all disks.
pub(crate) fn end_window(core: &Arc<Core>, length: Duration) {
    let kinds = core
        .meta
        .with_state(|state| state.disks.iter().map(|(id, record)| (*id, record.media)).collect::<Vec<_>>());
    let mut seen = Vec::new();
    for (id, media) in kinds {
        let Some(disk) = core.disk(id).filter(|disk| disk.is_online()) else { continue };
        let sample = disk.pace.sample();
        let mean = {
            let mut window = disk.window.lock();
            let mean = sample.mean_since(window.last, ENOUGH);
            if mean.is_some() {
                window.last = sample;
            }
            mean
        };
        seen.extend(mean.map(|mean| (disk, media, mean)));
    }
    for (disk, media, mean) in &seen {
        let others = seen.iter().filter(|(other, kind, _)| kind == media && !Arc::ptr_eq(other, disk));
        let mut others: Vec<Duration> = others.map(|(_, _, mean)| *mean).collect();
        others.sort_unstable();
        let Some(middle) = others.get(others.len() / 2).copied() else { continue };
        let mut window = disk.window.lock();
        let slow = *mean > LEAST && *mean > middle * TIMES;
        let lasting = if slow { window.slowness.lasting + length } else { Duration::ZERO };
        window.slowness = Slowness { mean: *mean, others: middle, lasting };
    }
}
