//! What a node of a cluster and its supervisor have to do with each other: the supervisor sees that a process of the node is gone, and gives its
//! life up when no other one takes its place soon.

use std::path::Path;
use std::time::Duration;

use cluster_identity::{CLUSTER_DIR, ClusterIdentity};
use cluster_join::give_up;
use cluster_node::{Phase, Status, life_that_is_over};
use cluster_store::values::Incarnation;
pub use managed_etcd::EtcdKeeper;
use tokio::sync::watch;

use super::membership::store_here;

/// What a node says to its supervisor, beside what it asks of it, when it takes part in its cluster.
pub const TAKES_PART: &str = "takes part";

/// The store is asked again after so long, and for so long in all: the others notice the silence by themselves soon after.
const ASK_AGAIN: Duration = Duration::from_millis(200);
const ASK_FOR: Duration = Duration::from_secs(5);

/// A life of a node of a cluster whose process is gone.
#[derive(Clone, Copy, Debug)]
pub struct LifeOver(Incarnation);

/// The life that the process had which has just ended; none on a node that belongs to no cluster, or when another process has its number already. To
/// be looked at before the next process begins. Blocks on the disk.
#[must_use]
pub fn life_over(data: &Path) -> Option<LifeOver> {
    let folder = data.join(CLUSTER_DIR);
    folder.join("identity.toml").exists().then(|| life_that_is_over(&folder)).flatten().map(LifeOver)
}

/// Gives a life up for the other nodes, unless a later one has taken its place. Blocks until that is done, or has been tried for some seconds.
pub fn give_up_life(data: &Path, over: LifeOver) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return };
    let identity = match ClusterIdentity::load(&data.join(CLUSTER_DIR)) {
        Ok(Some(identity)) => identity,
        Ok(None) => return,
        Err(error) => return tracing::warn!(%error, "the node's life is not given up"),
    };
    let (cluster, node) = (identity.record.cluster.clone(), identity.record.node);
    let giving_up = async {
        let store = store_here(&identity).map_err(|problem| problem.to_string())?;
        loop {
            match give_up(&store, &cluster, node, over.0).await {
                Ok(done) => return Ok::<bool, String>(done),
                Err(error) => tracing::debug!(%error, "the node's life is not given up yet"),
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    };
    match runtime.block_on(async { tokio::time::timeout(ASK_FOR, giving_up).await }) {
        Ok(Ok(true)) => {
            tracing::warn!(
                life = over.0.0,
                "the node does not come back soon: its life is given up, others take its pools"
            );
        }
        Ok(Ok(false)) => {}
        Ok(Err(why)) => tracing::warn!("the node's life is not given up: {why}"),
        Err(_) => tracing::warn!("the node's life is not given up: the shared state cannot be changed"),
    }
}

/// Tells the supervisor, where there is one, whenever a life has begun.
pub(super) async fn tell(mut status: watch::Receiver<Status>) {
    if !kept_listeners::is_kept() {
        return;
    }
    let mut told = 0;
    loop {
        let life = {
            let now = status.borrow_and_update();
            if now.phase == Some(Phase::Member) { now.incarnation } else { 0 }
        };
        if life != 0 && life != told {
            told = life;
            // It blocks for as long as an answer of the supervisor takes.
            let said = tokio::task::spawn_blocking(|| kept_listeners::ask_beside(TAKES_PART)).await;
            if let Ok(Err(error)) = said {
                tracing::debug!(%error, "the supervisor was not told that the node takes part");
            }
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}
