//! Keeps former owners from disks that several nodes reach: [`pool_fence`] over their reservations.
//!
//! Disks that only this machine reaches need none: its processes open a disk one at a time. Which these are, a node of its own is told by
//! what it opens; in a cluster each disk that keeps reservations is fenced, as it may be a SAN's.

use control_api::{Code, Problem};
use futures_util::future::join_all;
use pool_fence::{FenceError, FenceKey, can_fence, fence};
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

/// What a disk has to keep others from it.
enum Look {
    /// Reservations.
    Fences,
    /// Nothing, and nobody else reaches it as far as is known.
    Alone,
    /// Nothing, and other nodes may reach it.
    Unfenced,
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

    /// Tries what fencing a disk needs. Those of the kernel's may be used without, by their last owner; others must have it.
    async fn look(&self, disk: &PoolDisk) -> Result<Look, String> {
        let Ok(system) = disk.disk.clone().as_any().downcast::<SystemDisk>() else { return Ok(Look::Alone) };
        let without = || if self.clustered && system.is_unfenced() { Look::Unfenced } else { Look::Alone };
        if !(system.is_shared() || self.clustered && system.device().reservations().is_some()) {
            return Ok(without());
        }
        // Where this look fails, nothing is known of it, and `fence` is to try: it uses no disk that it cannot fence.
        system.can_be_fenced(true);
        let looking = system.run(|device| async move { Ok(can_fence(&*device).await) });
        match tokio::time::timeout(FENCED_WITHIN, looking).await {
            Ok(Ok(Ok(()))) => Ok(Look::Fences),
            Ok(Ok(Err(FenceError::Unsupported))) if !system.is_shared() => {
                system.can_be_fenced(false);
                Ok(without())
            }
            Ok(Ok(Err(error))) => Err(error.to_string()),
            Ok(Err(problem)) => Err(problem.detail),
            Err(_) => Err(format!("it has not answered within {FENCED_WITHIN:?}")),
        }
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

    fn check<'a>(&'a self, disks: &'a [PoolDisk]) -> Work<'a, ()> {
        Box::pin(async move {
            for (disk, looked) in disks.iter().zip(join_all(disks.iter().map(|disk| self.look(disk))).await) {
                let why = match looked {
                    Ok(_) => continue,
                    Err(why) => why,
                };
                let detail = format!("disk {}: other nodes cannot be kept from it: {why}.", disk.id);
                return Err(Problem::new(Code::Unsupported, detail).todo(
                    "Take another disk: one that several machines reach has to keep SCSI persistent reservations.",
                ));
            }
            Ok(())
        })
    }

    fn unfenced<'a>(&'a self, disks: &'a [PoolDisk]) -> Work<'a, Vec<String>> {
        Box::pin(async move {
            let looked = join_all(disks.iter().map(|disk| self.look(disk))).await;
            let unfenced =
                disks.iter().zip(looked).filter(|(_, looked)| matches!(looked, Ok(Look::Unfenced)));
            Ok(unfenced.map(|(disk, _)| disk.id.clone()).collect())
        })
    }

    fn held<'a>(&'a self, disks: &'a [PoolDisk]) -> Work<'a, Option<Held>> {
        Box::pin(async move {
            let holders = join_all(disks.iter().map(|disk| self.holder(disk))).await;
            Ok(holders.into_iter().flatten().max_by_key(|held| held.epoch))
        })
    }
}
