//! For measurements and tests: volumes whose space is in pieces, made faster than by use.

use std::sync::atomic::Ordering;

use file_store::{FileId, StoreError};
use volume_format::CLUSTER;

use crate::clusters::no_space;
use crate::extents::Extent;
use crate::free::Run;
use crate::volume::Volume;

/// Extents made in one transaction.
const PER_ROUND: u64 = 16_384;

impl Volume {
    /// Gives an empty, closed file `extents` extents of one cluster each, `stride` clusters apart in the file and with a
    /// free cluster between every two on the device: as many extents and as many free runs as there can be. The volume
    /// needs room for twice as many clusters.
    ///
    /// # Errors
    /// When there is no room, or the database fails.
    pub async fn fragment(&self, file: FileId, extents: u64, stride: u64) -> Result<(), StoreError> {
        for from in (0..extents).step_by(PER_ROUND as usize) {
            let to = (from + PER_ROUND).min(extents);
            let made = self.core.metadata.change(move |session| {
                let pieces: Vec<Extent> = (from..to)
                    .map(|n| Extent { first: n * stride, count: 1, device: 2 * n, shared: false })
                    .collect();
                for piece in &pieces {
                    if !session.space.free.remove(Run { start: piece.device, count: 1 }) {
                        return Err(no_space());
                    }
                }
                session.changed = true;
                let stored = session
                    .insert_extents((file.0, 0), &pieces)
                    .and_then(|()| session.save_stream((file.0, 0), to * stride * CLUSTER, 0));
                session.fatal(stored)
            });
            made.await?;
        }
        Ok(())
    }

    /// How many groups of changes have been made durable since the volume was opened.
    #[must_use]
    pub fn groups(&self) -> u64 {
        self.core.metadata.shared.groups.load(Ordering::Relaxed)
    }

    /// How many transactions have been committed since the volume was opened.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.core.metadata.shared.commits.load(Ordering::Relaxed)
    }
}
