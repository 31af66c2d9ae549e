//! Telling initiators that writes which they had cached may be lost, also those of a unit that was open with the same data before.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use file_store::StoreError;
use scsi_defs::asc;

use crate::losses::Losses;
use crate::reservations::host_of;
use crate::unit::{Inner, LogicalUnit, NexusEntry};

/// Hosts that the row names at most; what others write is durable when it is answered.
const NAMED: usize = 1024;

impl LogicalUnit {
    /// Hosts are to be told with their next flush that what they had cached may be lost: of what was open with this data before.
    pub fn tell_lost_writes(&self, hosts: impl IntoIterator<Item = String>) {
        let mut inner = self.inner.lock();
        let hosts: BTreeSet<String> = hosts.into_iter().map(|name| host_of(&name).to_owned()).collect();
        inner.lose(&hosts);
        inner.untold.extend(hosts);
    }

    /// Who has not been told yet that what they had cached may be lost: hosts, whichever of their ports they come back by.
    pub(crate) fn not_told(&self) -> Losses {
        self.inner.lock().not_told()
    }

    /// Whom the row is to name when nothing is cached that may become durable still.
    fn to_be_named(&self) -> Losses {
        self.inner.lock().to_be_named()
    }

    /// Hosts that have written to a unit which discards what is written, in order: what they have written is lost when it ends now.
    #[must_use]
    pub fn would_lose_writes(&self) -> Vec<String> {
        self.inner.lock().wrote.iter().cloned().collect()
    }

    /// Hosts that have not been told yet that what they had cached may be lost, in order.
    #[must_use]
    pub fn lost_writes_of(&self) -> Vec<String> {
        self.not_told().0.into_iter().collect()
    }

    /// The unit ends: who has not been told is kept with its data, and nobody has anything cached any more. Those for whom that cannot be
    /// done come back.
    pub(crate) async fn keep_losses(&self) -> Vec<String> {
        let _one = self.naming.lock().await;
        let losses = self.to_be_named();
        if self.is_kept(&losses) {
            return Vec::new();
        }
        match self.keep(losses.clone()).await {
            Ok(()) => Vec::new(),
            Err(_) => losses.0.into_iter().collect(),
        }
    }

    /// Whether the row is known to name exactly these.
    fn is_kept(&self, losses: &Losses) -> bool {
        let inner = self.inner.lock();
        !inner.losses_unsure && inner.kept_losses == *losses
    }

    /// Puts a row. Under `naming`. Until it is known that it was put, nobody relies on what it names.
    async fn keep(&self, losses: Losses) -> Result<(), StoreError> {
        self.inner.lock().losses_unsure = true;
        self.store().save(&Self::row_key(&self.config.id, b'l'), losses.row()).await?;
        let mut inner = self.inner.lock();
        (inner.kept_losses, inner.losses_unsure) = (losses, false);
        Ok(())
    }

    /// Names the host of a nexus in the row, before anything that it writes is cached: should the unit end without having said what became
    /// of it, who opens it next tells the host. Whether it is named.
    ///
    /// # Errors
    /// When that cannot be made durable.
    pub(crate) async fn name(&self, nexus: u64) -> Result<bool, StoreError> {
        let _one = self.naming.lock().await;
        let more = {
            let inner = self.inner.lock();
            let Some(entry) = inner.nexuses.get(&nexus) else { return Ok(false) };
            let host = entry.port.initiator_name();
            let is_named = inner.kept_losses.0.contains(host);
            if !is_named && inner.kept_losses.0.len() >= NAMED {
                return Ok(false);
            }
            (!is_named || inner.losses_unsure).then(|| {
                let mut more = inner.kept_losses.clone();
                more.0.insert(host.to_owned());
                more
            })
        };
        if let Some(more) = more {
            self.keep(more).await?;
        }
        let mut inner = self.inner.lock();
        if let Some(entry) = inner.nexuses.get_mut(&nexus) {
            entry.named = true;
            if self.config.discards_writes {
                let host = entry.port.initiator_name().to_owned();
                inner.wrote.insert(host);
            }
        }
        Ok(true)
    }

    /// A host has been told over one of its ports: it is not told by the next unit, and nobody waits for its other ports. While writes are
    /// cached the row goes on naming it, until it rests.
    pub(crate) async fn was_told(&self, nexus: u64) {
        let _one = self.naming.lock().await;
        let left = {
            let mut inner = self.inner.lock();
            let Some(host) = inner.host_is_told(nexus) else { return };
            if self.config.discards_writes {
                inner.to_be_named()
            } else {
                let mut left = inner.kept_losses.clone();
                if inner.mode.write_cache || !left.0.remove(&host) {
                    return;
                }
                left
            }
        };
        if self.is_kept(&left) {
            return;
        }
        // Should that fail, it is told once more after the next opening.
        let _ = self.keep(left).await;
    }

    /// Forgets hosts that were to be told and do not come back: all that are not connected, or this one of them. Says which. Who is connected
    /// is told by its next flush. That is durable, but where others go on caching writes while this is done: the row names all until the unit
    /// rests then.
    ///
    /// # Errors
    /// When the row cannot be changed: they are told still.
    pub async fn forget_lost_writes(&self, host: Option<&str>) -> Result<Vec<String>, StoreError> {
        let _one = self.naming.lock().await;
        if !self.config.discards_writes && self.cached.is_any() {
            // Whoever has cached something has nothing to lose after that; who is told that it failed is told of more than was forgotten.
            self.flush_cached(None).await.1?;
        }
        let mut gone = self.not_told().0;
        gone.retain(|name| host.is_none_or(|host| host == name));
        let left = {
            let mut inner = self.inner.lock();
            gone.retain(|name| !inner.nexuses.values().any(|entry| entry.port.initiator_name() == name));
            inner.untold.retain(|name| !gone.contains(name));
            inner.departed.forget(|port| gone.contains(host_of(port)));
            let mut left = inner.kept_losses.clone();
            left.0.retain(|name| !gone.contains(host_of(name)));
            // Of a unit that discards what is written, they have that to lose which they have written since.
            left.0.extend(inner.wrote.iter().cloned());
            let caches = !self.config.discards_writes && (self.cached.is_any() || self.cached.is_under_way());
            (left != inner.kept_losses && !caches).then_some(left)
        };
        if let Some(left) = left
            && let Err(error) = self.keep(left).await
        {
            self.inner.lock().untold.extend(gone);
            return Err(error);
        }
        Ok(gone.into_iter().collect())
    }

    /// Takes those out of the row who have nothing cached, when nobody has cached anything since this was asked last: a unit that ends
    /// now has lost nothing of theirs. For whoever serves it, now and then.
    pub async fn rest(&self) {
        let _one = self.naming.lock().await;
        if self.config.discards_writes {
            // Who has written loses that when it ends, at rest or not; who has not, and has been told, need not be named.
            let losses = self.to_be_named();
            if !self.is_kept(&losses) {
                let _ = self.keep(losses).await;
            }
            return;
        }
        let written = self.cached.written();
        let before = self.cached_before.swap(written, Ordering::AcqRel);
        if before != written || self.cached.is_any() || self.cached.is_under_way() {
            return;
        }
        let losses = self.not_told();
        if self.is_kept(&losses) {
            return;
        }
        self.inner.lock().nexuses.values_mut().for_each(|entry| entry.named = false);
        // Who has begun to write before it was not named any more is named still; who begins now waits to be named.
        if self.cached.written() == written && !self.cached.is_under_way() {
            let _ = self.keep(losses).await;
        }
    }
}

impl Inner {
    fn not_told(&self) -> Losses {
        let here = self.nexuses.values().filter(|entry| entry.lost_writes && !entry.host_knows);
        let here = here.map(|entry| entry.port.initiator_name());
        let all = here.chain(self.departed.to_be_told().map(host_of));
        Losses(all.map(str::to_owned).chain(self.untold.iter().cloned()).collect())
    }

    /// Both from one look: who has written is to be told, in one step, when the storage goes.
    fn to_be_named(&self) -> Losses {
        let mut losses = self.not_told();
        losses.0.extend(self.wrote.iter().cloned());
        losses
    }

    /// The nexuses of these hosts are to learn at their next flush that cached writes may be lost.
    fn lose(&mut self, hosts: &BTreeSet<String>) {
        for entry in self.nexuses.values_mut().filter(|entry| hosts.contains(entry.port.initiator_name())) {
            (entry.lost_writes, entry.host_knows) = (true, false);
        }
    }

    /// Every nexus but one is to learn at its next flush that cached writes may be lost; of a unit that `discards` what is written, those
    /// of hosts that have written. Those are told at once that the unit is another one, as after a loss of power: what they have read is not
    /// what it holds.
    pub(crate) fn lose_writes(&mut self, except: Option<u64>, discards: bool) {
        if discards {
            let wrote = std::mem::take(&mut self.wrote);
            self.lose(&wrote);
            for entry in self.nexuses.values_mut() {
                // What it writes from now on is for another storage, and lost with that.
                entry.named = false;
            }
            let of_these = |entry: &NexusEntry| wrote.contains(entry.port.initiator_name());
            let ids: Vec<u64> =
                self.nexuses.iter().filter(|(_, entry)| of_these(entry)).map(|(id, _)| *id).collect();
            ids.into_iter().for_each(|id| self.attention(id, asc::POWER_ON));
            self.untold.extend(wrote);
            return;
        }
        for (_, entry) in self.nexuses.iter_mut().filter(|(id, _)| Some(**id) != except) {
            (entry.lost_writes, entry.host_knows) = (true, false);
        }
        // Those that have gone may have cached some, and come back: also those that are not remembered any more.
        self.departed.lose_writes();
        let here: BTreeSet<&str> = self.nexuses.values().map(|entry| entry.port.initiator_name()).collect();
        let gone = self.kept_losses.0.iter().map(|name| host_of(name)).filter(|host| !here.contains(host));
        let gone: Vec<String> = gone.map(str::to_owned).collect();
        self.untold.extend(gone);
    }

    /// The host of a nexus has been told that cached writes may be lost: over none of its other ports that is waited for. Who it is.
    pub(crate) fn host_is_told(&mut self, nexus: u64) -> Option<String> {
        let host = self.port_of(nexus)?.initiator_name().to_owned();
        self.untold.remove(&host);
        self.departed.forget(|port| host_of(port) == host);
        for entry in self.nexuses.values_mut().filter(|entry| entry.port.initiator_name() == host) {
            entry.host_knows = true;
        }
        Some(host)
    }
}
