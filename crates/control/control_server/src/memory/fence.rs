//! Disks in memory keep no reservations: pools are kept apart by their epochs. Some are said to be such that nobody can be kept from them.

use std::sync::Arc;

use uuid::Uuid;

use super::{Machine, now};
use crate::backend::{DiskFence, Fenced, Held, PoolDisk, Work};

pub(super) struct Fence(pub(super) Arc<Machine>);

impl DiskFence for Fence {
    fn fence(&self, _pool: Uuid, _epoch: u64, disks: Vec<PoolDisk>) -> Work<'_, Fenced> {
        now(Ok(Fenced::Disks(disks)))
    }

    fn check<'a>(&'a self, _disks: &'a [PoolDisk]) -> Work<'a, ()> {
        now(Ok(()))
    }

    fn unfenced<'a>(&'a self, disks: &'a [PoolDisk]) -> Work<'a, Vec<String>> {
        let unfenced = self.0.unfenced.lock();
        let ids = disks.iter().map(|disk| disk.id.clone());
        now(Ok(ids.filter(|id| unfenced.contains(id)).collect()))
    }

    fn held<'a>(&'a self, _disks: &'a [PoolDisk]) -> Work<'a, Option<Held>> {
        now(Ok(None))
    }
}
