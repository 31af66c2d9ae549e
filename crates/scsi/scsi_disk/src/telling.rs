//! Telling initiators that writes which they had cached may be lost, also those of a unit that was open with the same data before.

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

    /// The unit ends: who has not been told is kept with its data. Those for whom that cannot be done come back.
    pub(crate) async fn keep_losses(&self) -> Vec<String> {
        let losses = self.not_told();
        let known = self.inner.lock().kept_losses.clone();
        if losses == known {
            return Vec::new();
        }
        let key = Self::row_key(&self.config.id, b'l');
        match self.store().save(&key, losses.row()).await {
            Ok(()) => Vec::new(),
            Err(_) => losses.0.into_iter().collect(),
        }
    }

    /// A port has been told: it is not told by the next unit.
    pub(crate) async fn was_told(&self, nexus: u64) {
        let row = {
            let mut inner = self.inner.lock();
            let Some(port) = inner.port_of(nexus) else { return };
            if !inner.kept_losses.0.remove(&port.initiator) {
                return;
            }
            inner.kept_losses.row()
        };
        // Should that fail, it is told once more after the next opening.
        let _ = self.store().save(&Self::row_key(&self.config.id, b'l'), row).await;
    }
}
