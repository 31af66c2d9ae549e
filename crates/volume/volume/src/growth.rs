//! What a device grows by becomes free.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use file_store::StoreError;
use volume_format::CLUSTER;

use crate::clear::clear;
use crate::core::Core;
use crate::database_error::database_error;
use crate::free::Run;
use crate::tables::{COUNTERS, ZERO_UNTIL};

/// Clusters that are zeroed in one step: 1 GiB.
pub(crate) const ZEROED_AT_ONCE: u64 = (1 << 30) / CLUSTER;

/// How often a device that cannot tell when it grows is looked at, and a failed growth tried again.
const LOOK: Duration = Duration::from_secs(5);

impl Core {
    /// Makes the clusters up to `clusters`, of a device that has grown, free: zero first, then known to be so.
    async fn grow(&self, clusters: u64) -> Result<(), StoreError> {
        loop {
            // Whoever closes the volume waits for this, and what is left is found at the next opening.
            self.check_open()?;
            let before = self.clusters.load(Ordering::Acquire);
            let until = clusters.min(before + ZEROED_AT_ONCE);
            if until <= before {
                return Ok(());
            }
            // A device may come with old content where it grew.
            clear(&self.device, self.at(before * CLUSTER), (until - before) * CLUSTER).await?;
            self.device.flush().await?;
            let grown = self.metadata.change(move |session| {
                session.changed = true;
                let stored = (|| {
                    let mut counters = session.txn.open_table(COUNTERS).map_err(database_error)?;
                    counters.insert(ZERO_UNTIL, until).map_err(database_error)?;
                    Ok(())
                })();
                session.fatal(stored)?;
                session.space.free.add(Run { start: before, count: until - before });
                session.space.clusters = until;
                Ok(())
            });
            grown.await?;
            self.clusters.store(until, Ordering::Release);
        }
    }
}

/// Takes in what the device grows by.
pub(crate) async fn watch_size(core: std::sync::Weak<Core>) {
    let mut said = None;
    loop {
        let Some(strong) = core.upgrade() else { return };
        // One that is full takes in nothing before it is opened again.
        if strong.check_open().is_err() || strong.full {
            return;
        }
        let (device, size) = (Arc::clone(&strong.device), strong.device.size());
        let grown = match strong.begin() {
            Ok(_operation) => strong.grow(strong.superblock.clusters(size)).await,
            Err(error) => Err(error),
        };
        if let Err(error) = grown {
            let why = error.to_string();
            // Once, not at every try; and of a volume that has stopped, that is told.
            if said.as_ref() != Some(&why) && strong.check_open().is_ok() {
                tracing::warn!("a grown volume's new space cannot be used yet: {why}");
                said = Some(why);
            }
            drop(strong);
            shard_runtime::sleep(LOOK).await;
            continue;
        }
        said = None;
        // The volume can be dropped meanwhile.
        drop(strong);
        let _ = shard_runtime::timeout(LOOK, device.wait_resize(size)).await;
    }
}
