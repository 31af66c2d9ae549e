//! Pools on disks that other nodes may reach and cannot be kept from: they stay with who had them last.
//!
//! A former owner that stands still, or is cut off, may have writes under way to such a disk for as long as it likes, and nothing says when
//! they have ended. So in a cluster only the node that had the pool last takes it by itself, or any after that one has closed it cleanly, which its disks
//! say. To have it elsewhere is for a person who knows that the other machine is off.

use std::time::Duration;

use control_api::{Code, Problem};
use uuid::Uuid;

use super::Turn;
use crate::backend::{OpenTold, PoolDisk, Whose};
use crate::node::Node;
use crate::node::disks::{BUSY_LOOKS, BUSY_PAUSE, pool_disk};

/// Whose a pool was is looked at for so long.
const LOOKED_AT_WITHIN: Duration = Duration::from_secs(5);

/// Why a pool is not to be taken by itself.
pub(in crate::node) struct Unfenced {
    /// The disks that nobody can be kept from.
    disks: Vec<String>,
    /// Who had it last, and has not let go of it; none where that cannot be read.
    owner: Option<String>,
}

impl Unfenced {
    fn whose(&self) -> String {
        match &self.owner {
            Some(owner) => format!("node {owner}, which had it last and has not let go of it,"),
            None => "whoever had it last, which cannot be read from its disks now,".to_owned(),
        }
    }

    fn problem(&self, pool: &str) -> Problem {
        let detail = format!(
            "nothing would keep {} from writing to {}: such disks keep no SCSI persistent reservations that could fence it off",
            self.whose(),
            self.disks.join(", ")
        );
        Problem::new(Code::WrongState, detail).todo(format!(
            "It stays with that node, and is served when that is back. Where that machine is dead and switched off, `holdfast pool import {pool}` on this node takes it; it asks for confirmation."
        ))
    }

    /// What somebody has to know who has it taken all the same.
    pub(in crate::node) fn told(&self, pool: &str) -> Vec<String> {
        vec![format!(
            "Nothing keeps {} from writing to {}: if its machine runs, or has writes under way, the data of pool {pool} is destroyed. Switch that machine off first.",
            self.whose(),
            self.disks.join(", ")
        )]
    }
}

impl Node {
    /// Refuses a pool on disks that the node that had it last could not be kept from, unless that is this one, or has let go of it. Asks only.
    /// Says whether there are such disks.
    pub(super) async fn refuse_unfenced(&self, turn: &Turn, told: OpenTold) -> Result<bool, Problem> {
        let disks: Vec<PoolDisk> = self.members(turn.pool).into_iter().map(|(_, disk)| disk).collect();
        let unfenced = self.unfenced_of(&disks).await;
        if unfenced.is_empty() || told.accept_unfenced {
            return Ok(!unfenced.is_empty());
        }
        match self.held_unfenced(turn.pool, disks, unfenced).await {
            None => Ok(true),
            Some(unfenced) => {
                let pool = self.pool_name(turn.pool).unwrap_or_else(|| turn.pool.to_string());
                Err(unfenced.problem(&pool))
            }
        }
    }

    async fn unfenced_of(&self, disks: &[PoolDisk]) -> Vec<String> {
        // On a node of its own it is the pool's own record that says so when it is opened.
        if self.cluster.get().is_none() {
            return Vec::new();
        }
        self.backends.fence.unfenced(disks).await.unwrap_or_default()
    }

    async fn held_unfenced(
        &self,
        pool: Uuid,
        disks: Vec<PoolDisk>,
        unfenced: Vec<String>,
    ) -> Option<Unfenced> {
        let looking = tokio::time::timeout(LOOKED_AT_WITHIN, self.backends.pools.owner(pool, disks));
        let owner = match looking.await {
            Ok(Ok(Whose::Own | Whose::Free)) => return None,
            Ok(Ok(Whose::Another { name, .. })) => Some(name),
            Ok(Err(_)) | Err(_) => None,
        };
        Some(Unfenced { disks: unfenced, owner })
    }

    /// The same of a pool that is not this node's, for somebody who wants to have it: its disks are opened for the look.
    pub(in crate::node) async fn unfenced_here(&self, pool: Uuid) -> Option<Unfenced> {
        let _turn = tokio::time::timeout(super::PATIENCE, self.turn(pool)).await.ok();
        let mut disks = Vec::new();
        for mut known in self.disks_of(pool).into_iter().filter(|known| known.present) {
            for _ in 0..BUSY_LOOKS {
                if known.open.is_none() {
                    known.open = self.backends.disks.open(&known.found).await.ok();
                }
                if let Some(disk) = pool_disk(&known, false) {
                    disks.push(disk);
                    break;
                }
                tokio::time::sleep(BUSY_PAUSE).await;
            }
        }
        let unfenced = self.unfenced_of(&disks).await;
        if unfenced.is_empty() { None } else { self.held_unfenced(pool, disks, unfenced).await }
    }
}
