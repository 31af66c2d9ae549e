//! The one clock of a node.

use pool_ownership::BootTime;
use rustix::time::{ClockId, clock_gettime};

/// CLOCK_BOOTTIME: it never jumps, and goes on while the machine sleeps. The kernel gives it without a system call.
#[must_use]
pub fn boot_time() -> BootTime {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(now.tv_nsec).unwrap_or_default();
    BootTime(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}
