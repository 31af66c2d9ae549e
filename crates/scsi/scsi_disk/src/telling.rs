//! Telling initiators that writes which they had cached may be lost, also those of a unit that was open with the same data before.

use std::sync::atomic::Ordering;

use file_store::StoreError;

use crate::departed::MAX_DEPARTED;
use crate::losses::Losses;
use crate::unit::LogicalUnit;

impl LogicalUnit {
    /// Ports are to be told with their next flush that what they had cached may be lost: of what was open with this data before.
    pub fn tell_lost_writes(&self, ports: impl IntoIterator<Item = String>) {
        let mut inner = self.inner.lock();
        for port in ports.into_iter().take(MAX_DEPARTED) {
            let mut there = false;
            for entry in inner.nexuses.values_mut().filter(|entry| entry.port.initiator == port) {
                entry.lost_writes = true;
                there = true;
            }
            if !there {
                inner.departed.leaves(port, true);
            }
        }
    }

    /// Who has not been told yet that what they had cached may be lost.
    pub(crate) fn not_told(&self) -> Losses {
        let inner = self.inner.lock();
        let here = inner.nexuses.values().filter(|entry| entry.lost_writes);
        let here = here.map(|entry| entry.port.initiator.clone());
        Losses(here.chain(inner.departed.to_be_told().map(str::to_owned)).collect())
    }

    /// Initiator ports that have not been told yet that what they had cached may be lost, in order.
    #[must_use]
    pub fn lost_writes_of(&self) -> Vec<String> {
        self.not_told().0.into_iter().collect()
    }

    /// The unit ends: who has not been told is kept with its data, and nobody has anything cached any more. Those for whom that cannot be
    /// done come back.
    pub(crate) async fn keep_losses(&self) -> Vec<String> {
        let _one = self.naming.lock().await;
        let losses = self.not_told();
        if losses == self.inner.lock().kept_losses {
            return Vec::new();
        }
        match self.keep(losses.clone()).await {
            Ok(()) => Vec::new(),
            Err(_) => losses.0.into_iter().collect(),
        }
    }

    /// Puts a row. Under `naming`.
    async fn keep(&self, losses: Losses) -> Result<(), StoreError> {
        self.store().save(&Self::row_key(&self.config.id, b'l'), losses.row()).await?;
        self.inner.lock().kept_losses = losses;
        Ok(())
    }

    /// Names a port in the row, before anything that it writes is cached: should the unit end without having said what became of it, who
    /// opens it next tells the port. Whether that is durable.
    pub(crate) async fn name(&self, nexus: u64) -> bool {
        let _one = self.naming.lock().await;
        let more = {
            let inner = self.inner.lock();
            let Some(entry) = inner.nexuses.get(&nexus) else { return false };
            let port = &entry.port.initiator;
            (!inner.kept_losses.0.contains(port)).then(|| {
                let mut more = inner.kept_losses.clone();
                more.0.insert(port.clone());
                more
            })
        };
        if let Some(more) = more
            && self.keep(more).await.is_err()
        {
            return false;
        }
        if let Some(entry) = self.inner.lock().nexuses.get_mut(&nexus) {
            entry.named = true;
        }
        true
    }

    /// A port has been told: it is not told by the next unit. While writes are cached the row goes on naming it, until it rests.
    pub(crate) async fn was_told(&self, nexus: u64) {
        let _one = self.naming.lock().await;
        let left = {
            let inner = self.inner.lock();
            let Some(port) = inner.port_of(nexus) else { return };
            let mut left = inner.kept_losses.clone();
            if inner.mode.write_cache || !left.0.remove(&port.initiator) {
                return;
            }
            left
        };
        // Should that fail, it is told once more after the next opening.
        let _ = self.keep(left).await;
    }

    /// Takes those out of the row who have nothing cached, when nobody has cached anything since this was asked last: a unit that ends
    /// now has lost nothing of theirs. For whoever serves it, now and then.
    pub async fn rest(&self) {
        let _one = self.naming.lock().await;
        let written = self.cached.written();
        if self.cached_before.swap(written, Ordering::AcqRel) != written || self.cached.is_any() {
            return;
        }
        let losses = self.not_told();
        {
            let mut inner = self.inner.lock();
            if inner.kept_losses == losses {
                return;
            }
            inner.nexuses.values_mut().for_each(|entry| entry.named = false);
        }
        // Who has begun to write before it was not named any more is named still; who begins now waits to be named.
        if self.cached.written() == written {
            let _ = self.keep(losses).await;
        }
    }
}
