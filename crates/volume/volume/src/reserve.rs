//! Reserving space in what a volume lies on: a thin space of a pool takes it when it is written, and others may have taken it then.
//!
//! ```text
//!   map the range in the volume ─► ask for the room below ─► have it taken below, piece by piece ─► done
//!        an operation                                              no operation, no lock but `reserving`
//! ```
//! What is below takes long: rows of slabs are cleared and committed. So nothing of the volume waits for it: a snapshot finds no change
//! under way, and whoever closes the volume no operation. Each piece looks anew where the range lies, and whether the volume closes.
//!
//! Invariant: what the reservation mapped is *held* (`ahead.rs`) until its end, and leaves what is held when it is written. When
//! the reservation fails, what is held is given back, and nothing else; when the volume is closed before its end, likewise. The space
//! below comes back when the volume's freed clusters are zeroed, but for rows at the edges, which have others beside them.

use std::sync::Arc;

use file_store::{StoreError, StoreErrorKind};
use volume_format::CLUSTER;

use crate::ahead::Clusters;
use crate::core::Core;
use crate::pin::Pin;
use crate::stream::{Stream, check_range};

/// Clusters of the stream whose places are looked up together, and of which the device is asked for no more at once: 64 MiB, a
/// row of one column.
const PIECE: u64 = 1024;

/// Reserves a range in the volume and below it, for an open.
pub(crate) async fn reserve(pin: Arc<Pin>, offset: u64, len: u64, by: u64) -> Result<(), StoreError> {
    let (core, stream) = (Arc::clone(pin.core()), pin.stream());
    let end = check_range(offset, len)?;
    if len == 0 {
        return Ok(());
    }
    let _one = stream.reserving.lock().await;
    let unknown = {
        let _operation = core.begin()?;
        let _changing = core.pause.read().await;
        stream.allocate_held(&core, (offset, len), false, by, true).await?
    };
    let taken = stream.take_below(&core, (offset / CLUSTER, end.div_ceil(CLUSTER))).await;
    let ended = match taken {
        // From here on the volume is closed after this has ended: what is held does not go with it.
        Ok(()) => core.begin(),
        Err(error) => Err(error),
    };
    match ended {
        Ok(_operation) => {
            stream.ahead.let_go();
            Ok(())
        }
        Err(error) => {
            // Once the volume closes, that gives back what is held.
            if let Err(undone) = stream.give_back_held(&core).await
                && core.check_open().is_ok()
            {
                tracing::warn!(file = stream.key.0, %undone, "what a failed reservation has mapped stays");
                stream.ahead.let_go();
            }
            core.leftovers.lock().add(stream.key, &unknown);
            Err(error)
        }
    }
}

impl Stream {
    /// Has the device take the space of what is mapped of `first..last`.
    async fn take_below(&self, core: &Core, (first, last): Clusters) -> Result<(), StoreError> {
        let places = {
            let map = self.map.read();
            let met = map.meeting(first, last).into_iter();
            met.map(|extent| (core.at(extent.device * CLUSTER), extent.count * CLUSTER)).collect()
        };
        if !core.device.has_room_for(places).await? {
            let detail = "the pool has no room for what is to be reserved";
            return Err(StoreError::new(StoreErrorKind::NoSpace, detail));
        }
        let mut at = first;
        while at < last {
            let end = (at + PIECE).min(last);
            let met = self.map.read().meeting(at, end);
            for extent in met {
                core.check_open()?;
                core.device.allocate(core.at(extent.device * CLUSTER), extent.count * CLUSTER).await?;
            }
            // A device that has the space already makes nobody wait.
            shard_runtime::yield_now().await;
            at = end;
        }
        Ok(())
    }

    /// Gives back what a reservation holds.
    async fn give_back_held(&self, core: &Core) -> Result<(), StoreError> {
        for (first, end) in self.ahead.held_in(0, u64::MAX) {
            let _operation = core.begin()?;
            let _changing = core.pause.read().await;
            let _blocks = self.lock_blocks(first * CLUSTER, end * CLUSTER).await;
            // Looked at under the lock: whoever held it before may have written to them.
            for (first, end) in self.ahead.held_in(first, end) {
                self.drop_clusters(core, first, end, true).await?;
            }
        }
        Ok(())
    }
}
