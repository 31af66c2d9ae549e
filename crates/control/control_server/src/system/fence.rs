//! Keeps former owners from disks that several nodes reach: [`pool_fence`] over their reservations.
//!
//! Disks that only this machine reaches need none: its processes open a disk one at a time. Which these are, a node of its own is told by
//! what it opens; in a cluster each disk that keeps reservations is fenced, as it may be a SAN's.

use control_api::{Code, Problem};
use futures_util::future::join_all;
use pool_fence::{FenceError, FenceKey, fence};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

use super::disks::SystemDisk;
use crate::backend::{DiskFence, Fenced, Held, OpenDisk as _, PoolDisk, Work};

/// A disk that has not answered by then is left out, and joins when it does: the pool does not wait for one that hangs.
const FENCED_WITHIN: Duration = Duration::from_secs(6);

/// Fences disks as one node.
pub(super) struct SystemFence {
    /// Its number. Nodes of one cluster have different ones; of two strangers that take a pool from each other, in the same moment and in
    /// epochs that happen to be equal, one in 65,536 pairs has one number.
    node: u16,
    /// It is one of a cluster, whose nodes may all reach disks of the kernel's.
    clustered: bool,
}

/// What came of one disk.
enum One {
    Fenced(PoolDisk),
    Held(Held),
    Unusable,
}

impl SystemFence {
    pub(super) fn new(node: u16, clustered: bool) -> Self {
        Self { node, clustered }
    }

    /// A disk that other machines reach, too, as far as is known. In a cluster each disk that keeps reservations may be one.
    fn shared(&self, disk: &PoolDisk) -> Option<Arc<SystemDisk>> {
        let disk = disk.disk.clone().as_any().downcast::<SystemDisk>().ok()?;
        (disk.is_shared() || self.clustered && disk.keeps_reservations()).then_some(disk)
    }

    async fn one(&self, key: FenceKey, disk: PoolDisk) -> One {
        let Some(device) = self.shared(&disk) else { return One::Fenced(disk) };
        // What this node began in an earlier epoch would be permitted by the registration in this one.
        if let Err(problem) = device.settled().await {
            tracing::error!(disk = disk.id, %problem, "a disk is not used: it has work under way");
            return One::Unusable;
        }
        match device.run(move |device| async move { Ok(fence(&*device, key).await) }).await {
            Ok(Ok(())) => One::Fenced(disk),
            Ok(Err(FenceError::Superseded(later))) => {
                One::Held(Held { epoch: later.epoch(), node: later.node() })
            }
            // Whose it is, the next look says; its epoch is above ours.
            Ok(Err(FenceError::Preempted)) => One::Held(Held { epoch: key.epoch(), node: key.node() }),
            Ok(Err(error)) => {
                tracing::error!(disk = disk.id, %error, "a disk is not used: other nodes cannot be kept from it");
                One::Unusable
            }
            Err(problem) => {
                tracing::error!(disk = disk.id, %problem, "a disk is not used: other nodes cannot be kept from it");
                One::Unusable
            }
        }
    }

    async fn holder(&self, disk: &PoolDisk) -> Option<Held> {
        let disk = self.shared(disk)?;
        let keys = disk.run(|device| async move {
            let Some(reservations) = device.reservations() else { return Ok(Vec::new()) };
            let failed = |error: block_device::BlockError| Problem::new(Code::Io, error.to_string());
            let mut keys: Vec<u64> = reservations.keys().await.map_err(failed)?.into_iter().collect();
            keys.extend(reservations.reservation().await.map_err(failed)?.map(|held| held.holder));
            Ok(keys)
        });
        // One that does not answer is not used either.
        let others = keys.await.unwrap_or_default().into_iter().map(FenceKey::of);
        let others = others.filter(|key| key.node() != self.node && key.epoch() > 0);
        others.max().map(|key| Held { epoch: key.epoch(), node: key.node() })
    }
}

impl DiskFence for SystemFence {
    fn fence(&self, _pool: Uuid, epoch: u64, disks: Vec<PoolDisk>) -> Work<'_, Fenced> {
        Box::pin(async move {
            let Some(key) = FenceKey::new(epoch, self.node) else {
                return Err(Problem::new(Code::Internal, format!("epoch {epoch} is none for disks")));
            };
            let mut fenced = Vec::new();
            let mut held: Option<Held> = None;
            let within = |disk: PoolDisk| async move {
                let id = disk.id.clone();
                match tokio::time::timeout(FENCED_WITHIN, self.one(key, disk)).await {
                    Ok(one) => one,
                    Err(_) => {
                        tracing::error!(
                            disk = id,
                            "a disk is not used: it has not answered within {FENCED_WITHIN:?}"
                        );
                        One::Unusable
                    }
                }
            };
            for one in join_all(disks.into_iter().map(within)).await {
                match one {
                    One::Fenced(disk) => fenced.push(disk),
                    One::Held(by) if held.is_none_or(|held| by.epoch > held.epoch) => held = Some(by),
                    One::Held(_) | One::Unusable => {}
                }
            }
            Ok(held.map_or(Fenced::Disks(fenced), Fenced::Held))
        })
    }

    fn held<'a>(&'a self, disks: &'a [PoolDisk]) -> Work<'a, Option<Held>> {
        Box::pin(async move {
            let holders = join_all(disks.iter().map(|disk| self.holder(disk))).await;
            Ok(holders.into_iter().flatten().max_by_key(|held| held.epoch))
        })
    }
}
