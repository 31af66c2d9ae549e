//! Members that were given up leave their pool by themselves.

use std::sync::Weak;
use std::time::Duration;

use pool::Pool;

use crate::system::pools::describe;

/// How often members that were given up are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Takes members that were given up out of the pool once nothing refers to them any more.
pub(super) async fn remove(pool: Weak<Pool>) {
    loop {
        shard_runtime::sleep(LOOK_EVERY).await;
        let Some(pool) = pool.upgrade() else { return };
        let status = pool.status();
        if status.stopped {
            return;
        }
        for disk in status.disks.iter().filter(|disk| describe::is_given_up(disk) && disk.used_slabs == 0) {
            match pool.remove_disk(disk.record.id).await {
                Ok(()) => {
                    tracing::info!(pool = pool.name(), disk = %disk.record.guid, "a disk that was given up has left the pool")
                }
                Err(error) => {
                    tracing::warn!(pool = pool.name(), %error, "a disk that was given up stays in the pool")
                }
            }
        }
    }
}
