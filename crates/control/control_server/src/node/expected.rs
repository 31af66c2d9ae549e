//! Which shares are on their way here: clients that connect to one of them wait for it. A client that is told that there is no such share gives up
//! what it has open over it, and a pool that this node has comes up a moment after the node answers.
//!
//! ```text
//!   steps of pools ─────────┐
//!   what the cluster says ──┼─► look, ten times a second, and before anybody is listened to ─► SMB: expected
//!   configured shares ──────┘
//! ```
//! Expected are the shares of pools that are being brought up here, or that the cluster gives to this node and that nothing is known to be in the
//! way of; all of them before the node knows what the cluster gives it, and for as long as its machine may have addresses of the process before it: a
//! client that came by one of these may be another node's by now, and is not to hear that there is no such share, but to lose its connection
//! (`addresses`). Not expected are those of pools that another node has, that are being let
//! go of, that could not be opened, or that serve already: what is missing then does not come by itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cluster_node::Phase;
use uuid::Uuid;

use super::Node;
use super::path::Step;

/// The addresses of an earlier process are gone after so long. The kernel looks once a second.
const LEFT_OVER: Duration = service_address::LIFETIME.saturating_add(Duration::from_secs(1));
/// How soon it is known that a share comes, or stays away.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Node {
    /// Says which shares are on their way, until the node stops.
    pub async fn keep_expected_shares(self: Arc<Self>) {
        loop {
            self.expect_shares();
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.stopped() => break,
            }
        }
        self.backends.smb.expect_shares(&[]);
    }

    /// Says which shares are on their way.
    pub(super) fn expect_shares(&self) {
        self.backends.smb.expect_shares(&self.expected_shares());
    }

    fn expected_shares(&self) -> Vec<String> {
        if *self.stopping.borrow() {
            return Vec::new();
        }
        let any = self.knows_nothing_of_its_pools();
        let pools: Vec<Uuid> = self.config.with(|config| config.pools.iter().map(|pool| pool.guid).collect());
        let coming: BTreeSet<Uuid> = pools.into_iter().filter(|pool| self.comes_here(*pool)).collect();
        // As it is nearly always.
        if !any && coming.is_empty() {
            return Vec::new();
        }
        let places = self.places();
        self.config.with(|config| {
            let comes = |pool: Option<Uuid>| pool.is_none_or(|pool| any || coming.contains(&pool));
            let shares = config.shares.iter().filter(|share| comes(places.of(*share)));
            shares.map(|share| share.name.clone()).collect()
        })
    }

    /// Whether this is a node of a cluster that does not know yet which pools are its own, or whose they are that its clients came for.
    fn knows_nothing_of_its_pools(&self) -> bool {
        let Some(cluster) = self.cluster.get() else { return false };
        self.clock.now().since(self.started) < LEFT_OVER
            || matches!(cluster.now().phase, None | Some(Phase::Joining))
    }

    /// Whether a pool is on its way here.
    fn comes_here(&self, pool: Uuid) -> bool {
        match self.path(pool).step() {
            Step::Take | Step::Fence | Step::Open | Step::Restore | Step::Publish => true,
            Step::Serving | Step::Stop => false,
            Step::Idle => {
                let owner = self.cluster.get().and_then(|cluster| cluster.owner_of(pool));
                owner.is_some_and(|(_, own)| own) && self.is_awaited(Some(pool))
            }
        }
    }
}
