//! The way down: what is served is withdrawn, volumes close, the pool closes.

use std::sync::Arc;
use std::time::Duration;

use control_api::{Code, Problem};
use uuid::Uuid;

use super::{PATIENCE, Release, Step, Turn};
use crate::backend::{PoolHandle, VolumeHandle, Work};
use crate::node::Node;
use crate::node::pools::join_all;

impl Node {
    /// Lets go of a pool: when this ends, nobody is served from it, and nothing of it is on its way to a disk. Its data stays on its disks.
    /// What could not be done cleanly comes back; whoever opens the pool next does it as after a crash.
    pub(in crate::node) async fn give_up(&self, turn: &Turn, release: Release) -> Vec<Problem> {
        turn.begin(Step::Stop);
        // Who connects to it finds what is served, or nobody.
        self.settle_addresses().await;
        let pool = turn.pool;
        let open: Vec<(String, Arc<dyn VolumeHandle>)> = {
            let mut all = self.volumes.lock();
            let of_pool = all.extract_if(.., |_, slot| slot.pool == pool);
            of_pool.filter_map(|(name, slot)| Some((name, slot.handle?))).collect()
        };
        let mut unclean = self.close_volumes_of(turn, open).await;
        let handle = self.pools.lock().get_mut(&pool).and_then(|slot| slot.close());
        if let Some(handle) = handle {
            // What a volume could not make durable, its node has in memory or its log: no other one is to go on without that by itself.
            let release = if unclean.is_empty() || release == Release::Asked { release } else { Release::No };
            unclean.extend(self.close_pool(&*handle, release).await);
        }
        turn.begin(Step::Idle);
        unclean
    }

    /// Closes volumes that the table does not have any more, after who serves has let go of them.
    pub(in crate::node) async fn close_volumes_of(
        &self,
        turn: &Turn,
        volumes: Vec<(String, Arc<dyn VolumeHandle>)>,
    ) -> Vec<Problem> {
        self.serve_pool(Some(turn.pool)).await;
        let unclean = parking_lot::Mutex::new(Vec::new());
        let closing = volumes.into_iter().map(|(name, volume)| {
            let unclean = &unclean;
            async move {
                if let Err(problem) = volume.close().await {
                    tracing::warn!(volume = name, %problem, "a volume was not closed cleanly");
                    unclean.lock().push(problem);
                }
            }
        });
        join_all(closing.collect()).await;
        unclean.into_inner()
    }

    async fn close_pool(&self, handle: &dyn PoolHandle, release: Release) -> Vec<Problem> {
        if handle.has_stopped() {
            // It has nothing more to say, and lets go of its disks when what is under way there has ended.
            let mut unclean = Vec::new();
            if release == Release::Asked {
                // It cannot be written that it is nobody's, and closing waits for its disks: whoever asked is told what cannot be had, rather
                // than kept waiting for it.
                let detail = "the pool has stopped, so it cannot be said on its disks that it is nobody's";
                unclean.push(Problem::new(Code::WrongState, detail));
                unclean.extend(handle.abandon().await.err());
            } else {
                unclean.extend(self.abandon(handle).await.err());
            }
            return unclean;
        }
        let closed =
            if release == Release::No { handle.close().await } else { handle.close_and_release().await };
        closed.err().into_iter().collect()
    }

    /// Closes all volumes, then all pools, when the node ends; says what became of each. Those that do not answer are left as in a crash.
    pub(in crate::node) async fn close_pools(&self) -> Vec<(String, Result<(), Problem>)> {
        let known: Vec<Uuid> = self.paths.lock().keys().copied().collect();
        // Whoever is at it ends first.
        let turns = known.into_iter().map(|pool| tokio::time::timeout(PATIENCE, self.turn(pool)));
        let _turns = futures_util::future::join_all(turns).await;
        let volumes = std::mem::take(&mut *self.volumes.lock());
        let volumes = volumes.into_iter().filter_map(|(name, slot)| Some((name, slot.handle?)));
        let closing = volumes
            .map(|(name, volume)| async move { (format!("volume {name}"), answered(volume.close()).await) });
        let mut ended = futures_util::future::join_all(closing).await;
        let pools = std::mem::take(&mut *self.pools.lock());
        let pools = pools.into_values().filter_map(|slot| Some((slot.name, slot.handle?)));
        let closing =
            pools.map(|(name, pool)| async move { (format!("pool {name}"), answered(pool.close()).await) });
        ended.extend(futures_util::future::join_all(closing).await);
        ended
    }

    /// Lets go of the disks of a pool that has stopped, however long what is under way there takes.
    async fn abandon(&self, handle: &dyn PoolHandle) -> Result<(), Problem> {
        loop {
            match handle.abandon().await {
                Err(problem) if !self.stops() => {
                    tracing::warn!(%problem, "a pool that has stopped cannot be let go of yet");
                    tokio::time::sleep(PATIENCE / 10).await;
                }
                other => return other,
            }
        }
    }
}

/// How long a volume or a pool may take to close when the node ends: what is still to be written is written.
const CLOSES_WITHIN: Duration = Duration::from_secs(60);

async fn answered(closing: Work<'_, ()>) -> Result<(), Problem> {
    let ended = tokio::time::timeout(CLOSES_WITHIN, closing).await;
    ended.unwrap_or_else(|_| Err(Problem::new(Code::Unavailable, "its disks do not answer")))
}
