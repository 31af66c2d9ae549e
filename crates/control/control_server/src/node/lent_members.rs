//! The disks of a pool that only its node knows become disks that it lends: when a disk that all nodes know joins the pool.
//!
//! ```text
//!   /dev/disk/by-id/x, in use by the pool      the pool stops          n1:/dev/disk/by-id/x, behind a gate
//!        config: id = "/dev/…/x"       ──► the name is changed ──►     config: id = "n1:/dev/…/x"
//!                                          between two epochs          used by whichever node owns the pool
//! ```
//! A pool of one node that has grown over several would otherwise stay with the first: the others do not reach a majority of its disks. The name is
//! changed after the pool has stopped and before its disks are fenced in the next epoch, so that nobody has them open under either name. A disk that
//! cannot be lent has its former name back before the pool is opened.
//!
//! Disks that other nodes reach themselves are never lent: those nodes would write to them behind the gate of the one that lends them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cluster_store::keys::PoolId;
use control_api::{Code, DiskConfig, NodeDisk, Problem};
use tokio::time::timeout;
use uuid::Uuid;

use super::{Node, confirm};
use crate::backend::{DiskContent, FoundDisk, PoolHandle};
use crate::cluster::Cluster;

/// How long a pool may take to be closed, and to be open again.
const CLOSED_WITHIN: Duration = Duration::from_secs(60);
const OPEN_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Where the names of disks are that stay.
const LINKS: &str = "/dev/disk/by-id";

/// A disk that is to be known by another name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Renamed {
    /// Which member of the pool it is.
    member: Uuid,
    /// What this node calls it.
    from: String,
    /// What all nodes of the cluster are to call it.
    to: String,
}

/// A path of a disk that stays: the one that it is known by, or a link to where it is now.
fn lasting_path(found: &FoundDisk) -> String {
    if found.id.starts_with('/') {
        return found.id.clone();
    }
    let links = std::fs::read_dir(LINKS).into_iter().flatten().flatten().map(|entry| entry.path());
    let leads_there = |link: &std::path::PathBuf| {
        link.canonicalize().is_ok_and(|at| at.as_path() == Path::new(&found.path))
    };
    // The first by name, so that it is the same whenever somebody looks.
    let link = links.filter(leads_there).min();
    link.and_then(|link| link.to_str().map(str::to_owned)).unwrap_or_else(|| found.path.clone())
}

impl Node {
    /// The disks of a pool that are of this machine and that other nodes do not know.
    fn own_members(&self, pool: Uuid) -> Vec<Renamed> {
        let Some(cluster) = self.cluster.get() else { return Vec::new() };
        let own = self.disks_of(pool).into_iter().filter(|known| {
            known.present
                && known.served
                && known.found.path.starts_with('/')
                && NodeDisk::parse(&known.found.id).is_none()
        });
        let renamed = own.filter_map(|known| {
            let Some(DiskContent::Member { disk, .. }) = &known.content else { return None };
            Some(Renamed {
                member: *disk,
                to: format!("{}:{}", cluster.called(), lasting_path(&known.found)),
                from: known.found.id,
            })
        });
        renamed.collect()
    }

    /// Refuses to lend disks that another node reaches by itself: it would use them past the node that lends them.
    fn refuse_reached(&self, pool: Uuid, renamed: &[Renamed]) -> Result<(), Problem> {
        let Some(cluster) = self.cluster.get() else { return Ok(()) };
        let all: BTreeSet<Uuid> = renamed.iter().map(|disk| disk.member).collect();
        let seen = cluster.seen_by_others(pool, &all);
        let reached = renamed.iter().filter(|disk| seen.contains(&disk.member));
        let reached: Vec<&str> = reached.map(|disk| disk.from.as_str()).collect();
        let (word, reached) = match reached.as_slice() {
            [] => return Ok(()),
            [one] => ("disk", (*one).to_owned()),
            all => ("disks", all.join(", ")),
        };
        let detail = format!(
            "other nodes reach {word} {reached} themselves: a pool of such disks is not mixed with disks that nodes lend. Nothing was changed."
        );
        Err(Problem::new(Code::WrongState, detail).todo(
            "Add disks that all nodes reach as they reach those of the pool, named as they are there; or make a pool of its own of disks named by node.",
        ))
    }

    /// Lends the pool's own disks of this node to the cluster, if a disk is to come to the pool that all nodes know: the pool is closed and
    /// opened again for that, once it is known that the disk can come. Without the turn of the pool. It was confirmed by a name, and else `asks` says what
    /// for; `overwrite` says that what is on the disk may be destroyed. When whoever asked is gone meanwhile, the disks are lent all the same, now or
    /// when the pool is opened the next time: that was confirmed.
    ///
    /// # Errors
    /// When it was not confirmed, the disk cannot come, the pool has a log in another one, or a disk of it cannot be lent: the pool is as it was, and the
    /// disk that was to come is forgotten again.
    pub(super) async fn lend_members(
        &self,
        pool: &str,
        (comes, overwrite): (&str, bool),
        (name, confirmed): (&str, Option<&str>),
        asks: String,
    ) -> Result<(), Problem> {
        if NodeDisk::parse(comes).is_none() {
            return Ok(());
        }
        // Whoever comes second finds the disks lent.
        let _lending = self.lending.lock().await;
        let (Ok((guid, handle)), Some(cluster)) = (self.pool(pool), self.cluster.get()) else {
            return Ok(());
        };
        self.note_used(guid);
        let members = self.own_members(guid);
        if members.is_empty() {
            return Ok(());
        }
        let info = handle.info();
        drop(handle);
        self.refuse_log_elsewhere(guid, &info)?;
        self.refuse_log_of_another(guid, &info)?;
        self.refuse_reached(guid, &members)?;
        let before = self.config.with(|config| config.disks.clone());
        let lent = async {
            {
                let _taking = self.taking.lock().await;
                self.refuse_unusable(comes, overwrite).await?;
            }
            confirm(name, confirmed, || {
                let from: Vec<&str> = members.iter().map(|member| member.from.as_str()).collect();
                let mut told = vec![
                    asks,
                    format!(
                        "Pool {} is closed for a moment and opened again, and clients wait: its disks here ({}) are lent to the other nodes from then on, so that these can take the pool over.",
                        info.name,
                        from.join(", ")
                    ),
                ];
                told.extend(self.discards_of(Some(guid)));
                told
            })?;
            // Without etcd the pool could be closed, but neither renamed disks be kept nor the pool be opened again.
            self.config.catch_up()?;
            tracing::info!(
                pool = info.name,
                "the disks of a pool are to be lent to the cluster: it is closed and opened again"
            );
            self.to_lend.lock().insert(guid, members);
            let lent = self.reopen_lent((guid, &info.name), cluster).await;
            // What was not done by now is not done later, when nobody expects it.
            self.to_lend.lock().remove(&guid);
            lent
        };
        let lent = lent.await;
        if lent.is_err() {
            self.forget_files(&before, [&comes.to_owned()]).await;
        }
        lent
    }

    /// Has a pool closed and opened again, whose disks are to be lent meanwhile.
    async fn reopen_lent(&self, (guid, name): (Uuid, &str), cluster: &Arc<Cluster>) -> Result<(), Problem> {
        let closed = timeout(CLOSED_WITHIN, cluster.reopen_pool(PoolId(guid))).await;
        let begun = closed.unwrap_or_else(|_| {
            Err(Problem::new(Code::Unavailable, format!("pool {name} is not closed yet.")))
        });
        begun.map_err(|problem| Problem {
            detail: format!("pool {name}, whose disks are to be lent to the other nodes: {}", problem.detail),
            ..problem
        })?;
        let open = async {
            while !self.is_open(guid) || self.coming(guid).is_some() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let opened = timeout(OPEN_WITHIN, open).await;
        let left: Vec<String> = self.own_members(guid).into_iter().map(|member| member.from).collect();
        match opened {
            Ok(()) if left.is_empty() => Ok(()),
            Ok(()) => Err(Problem::new(
                Code::Io,
                format!(
                    "the pool's disks {} could not be lent to the other nodes, and the disk was not added.",
                    left.join(", ")
                ),
            )
            .todo("The log of the node says why.")),
            Err(_) => Err(Problem::new(
                Code::Unavailable,
                format!("pool {name} is not open again yet; the disk was not added."),
            )
            .todo("`holdfast status` says how far it is. Then add the disk again.")),
        }
    }

    /// Gives disks of a pool that is closed the names that they are lent under, if that was ordered; or has them as they were.
    pub(super) async fn lend_as_ordered(&self, pool: Uuid) {
        let Some(renamed) = self.to_lend.lock().remove(&pool) else { return };
        // Others may have come to reach them since that was asked for.
        if let Err(problem) = self.refuse_reached(pool, &renamed) {
            return tracing::error!(%problem, "the disks of a pool are not lent to the cluster");
        }
        if let Err(problem) = self.rename_disks(&renamed, false) {
            return tracing::error!(%problem, "the disks of a pool are not lent to the cluster");
        }
        self.look().await;
        for disk in &renamed {
            let Err(problem) = self.backends.disks.reach(&DiskConfig::new(&disk.to)).await else { continue };
            tracing::error!(disk = disk.to, %problem, "the disks of a pool are not lent to the cluster: this one cannot be");
            if let Err(problem) = self.rename_disks(&renamed, true) {
                tracing::error!(%problem, "the disks of a pool do not get their names back");
            }
            self.look().await;
            return;
        }
        for disk in &renamed {
            self.disks.forget(&disk.from);
        }
        // Those that the machine finds by itself are found again, as disks in use.
        self.look().await;
    }

    /// Has an open pool know of which nodes its disks are: one that was made of a node's own disks does not know it of these.
    pub(super) async fn place_members(&self, pool: Uuid, handle: &dyn PoolHandle) {
        let known: BTreeMap<Uuid, Option<String>> =
            handle.info().members.into_iter().map(|member| (member.guid, member.node)).collect();
        for (guid, disk) in self.members(pool) {
            let Some(named) = NodeDisk::parse(&disk.id) else { continue };
            if known.get(&guid).is_none_or(|node| node.as_deref() == Some(named.node)) {
                continue;
            }
            if let Err(problem) = handle.set_node(guid, named.node.to_owned()).await {
                tracing::warn!(disk = disk.id, %problem, "a pool does not know of which node this disk is");
            }
        }
    }

    fn rename_disks(&self, renamed: &[Renamed], back: bool) -> Result<(), Problem> {
        self.config.change(|config| {
            for Renamed { from, to, .. } in renamed {
                let (from, to) = if back { (to, from) } else { (from, to) };
                match config.disks.iter_mut().find(|disk| disk.id == *from) {
                    Some(disk) => disk.id.clone_from(to),
                    // One that the machine finds by itself need not be in the configuration.
                    None => config.disks.push(DiskConfig::new(to)),
                }
            }
            Ok(())
        })
    }
}
