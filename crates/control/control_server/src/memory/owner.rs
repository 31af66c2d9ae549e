//! Epochs in memory: they outlive the nodes of a machine, as a data directory does.

use std::sync::Arc;

use uuid::Uuid;

use super::{Machine, now};
use crate::backend::{PoolOwner, Work};

pub(super) struct Epochs(pub(super) Arc<Machine>);

impl PoolOwner for Epochs {
    fn take(&self, pool: Uuid, above: u64) -> Work<'_, u64> {
        let mut epochs = self.0.epochs.lock();
        let epoch = epochs.entry(pool).or_default();
        *epoch = (*epoch).max(above) + 1;
        now(Ok(*epoch))
    }

    fn made(&self, pool: Uuid, epoch: u64) -> Work<'_, ()> {
        self.0.epochs.lock().insert(pool, epoch);
        now(Ok(()))
    }

    fn forget(&self, pool: Uuid) -> Work<'_, ()> {
        self.0.epochs.lock().remove(&pool);
        now(Ok(()))
    }
}
