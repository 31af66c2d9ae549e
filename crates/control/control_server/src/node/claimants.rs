//! Disks that say that they are the same member of a pool: the one that its pool uses, and copies of it.
//!
//! A disk is known by what it says of itself, and whoever copies one makes two that say the same. A pool uses one of them at a time; its
//! name is the member's, and the others are told of as copies, and left alone. Which one that is a pool decides when it is opened: the one
//! that was written last (`pool::find`). When the one in use goes, another one that is there may come in its place, which the pool treats
//! as it does any disk that comes back: what it lacks is copied to it.

use std::sync::Arc;

use control_api::{Issue, NodeDisk, Severity};
use health_rules::{FindingCode, of_rule};
use uuid::Uuid;

use super::Node;
use super::disk_table::Known;
use super::disks::{pool_disk, vanished};
use crate::backend::{DiskContent, PoolDisk, PoolHandle};

/// The pool and the member that a disk says that it is.
fn says(known: &Known) -> Option<(Uuid, Uuid)> {
    match &known.content {
        Some(DiskContent::Member { pool, disk, .. }) => Some((*pool, *disk)),
        _ => None,
    }
}

impl Node {
    fn handle_of(&self, pool: Uuid) -> Option<Arc<dyn PoolHandle>> {
        self.pools.lock().get(&pool).and_then(|slot| slot.handle.clone())
    }

    /// Whether the pool of a disk has it open as one of its members.
    pub(super) fn is_used(&self, known: &Known) -> bool {
        let Some((pool, member)) = says(known) else { return false };
        let open = known.open.as_ref();
        self.handle_of(pool).zip(open).is_some_and(|(handle, open)| handle.uses(member, open))
    }

    /// The disks that say that they are this member: first the one that the pool uses, then those that are there, the one that was
    /// used last before the others.
    pub(super) fn claimants(&self, member: Uuid) -> Vec<Known> {
        let is_it = |known: &Known| says(known).is_some_and(|(_, disk)| disk == member);
        let mut claimants: Vec<Known> = self.disks.all().into_iter().filter(is_it).collect();
        if claimants.len() > 1 {
            let there = |known: &Known| known.present && !vanished(known);
            claimants.sort_by_cached_key(|known| (!self.is_used(known), !there(known), !known.served));
        }
        claimants
    }

    /// The disk that is this member: that which the pool uses, or would be asked for.
    pub(super) fn claimant(&self, member: Uuid) -> Option<Known> {
        self.claimants(member).into_iter().next()
    }

    /// Of which disk in use this one is a copy, if it is one.
    pub(super) fn original_of(&self, known: &Known) -> Option<Known> {
        let (_, member) = says(known)?;
        let first = self.claimant(member)?;
        // A disk of this node that a pool of several nodes has is known by its path, too.
        let same = NodeDisk::parse(&first.found.id).is_some_and(|node| node.path == known.found.path);
        (first.found.id != known.found.id && !same && self.is_used(&first)).then_some(first)
    }

    /// Remembers which disks are in use as members of a pool, for when they are gone.
    pub(super) fn note_used(&self, pool: Uuid) {
        for known in self.disks_of(pool) {
            let Some(original) = self.original_of(&known) else {
                let used = self.is_used(&known);
                self.disks.change(&known.found.id, |known| known.served |= used);
                continue;
            };
            let news = self.disks.change(&known.found.id, |known| {
                known.served = false;
                !std::mem::replace(&mut known.copy, true)
            });
            if news == Some(true) {
                tracing::warn!(
                    disk = known.found.id,
                    of = original.found.id,
                    "a disk is a copy of another one in use: it is not used"
                );
            }
        }
    }

    /// What is wrong with disks because of what else is, or was, at their paths: copies of disks in use, and files in use that are not
    /// at their paths any more.
    pub(super) fn claimant_issues(&self) -> Vec<Issue> {
        let mut issues = Vec::new();
        for known in self.disks.all().into_iter().filter(|known| known.present) {
            let Some((pool, _)) = says(&known) else { continue };
            let (id, pool) = (&known.found.id, self.pool_name(pool).unwrap_or_else(|| pool.to_string()));
            if let Some(original) = self.original_of(&known) {
                issues.push(Issue {
                    severity: Severity::Warning,
                    subject: format!("disk {id}"),
                    detail: format!(
                        "it is a copy of disk {}, which pool {pool} uses: the two have the same identity. It is not used",
                        original.found.id
                    ),
                    todo: "Take it away, or erase it: when the other one is missing, it would be taken for that.".into(), ..of_rule(FindingCode::DiskCopied) });
            } else if self.is_used(&known) && known.open.as_ref().is_some_and(|open| open.is_replaced()) {
                issues.push(Issue {
                    severity: Severity::Error,
                    subject: format!("disk {id} of pool {pool}"),
                    detail: "another file has been put at its path: the pool goes on with the one that it has open, which ends when the pool is closed".into(),
                    todo: format!(
                        "Have the pool make its data anew on another disk: `holdfast pool replace {pool} {id} --with DISK`. What is at the path now is looked at when the pool is opened the next time."
                    ), ..of_rule(FindingCode::DiskPathTaken) });
            }
        }
        issues
    }

    /// Lets go of disks that are open and at whose paths something else is by now, unless a pool has them or is about to: they are to be
    /// opened anew. Which these are.
    pub(super) fn let_go_of_replaced(&self) -> Vec<String> {
        let is_replaced =
            |known: &Known| known.present && known.open.as_ref().is_some_and(|open| open.is_replaced());
        let is_free = |known: &Known| match says(known) {
            Some((pool, _)) if self.handle_of(pool).is_some() => !self.is_used(known),
            Some((pool, _)) => !self.path(pool).is_under_way(),
            None => true,
        };
        let replaced = self.disks.all().into_iter().filter(|known| is_replaced(known) && is_free(known));
        let replaced: Vec<String> = replaced.map(|known| known.found.id).collect();
        for id in &replaced {
            tracing::info!(
                disk = id,
                "another file is at the path of a disk that is not in use: it is opened"
            );
            self.disks.change(id, |known| known.open = None);
        }
        replaced
    }

    /// The members of a pool that are there.
    pub(super) fn members(&self, pool: Uuid) -> Vec<(Uuid, PoolDisk)> {
        let mut members = Vec::new();
        for known in self.disks.all() {
            if let Some(DiskContent::Member { pool: of, disk, .. }) = &known.content
                && *of == pool
                && known.present
                && !vanished(&known)
                && let Some(disk_handle) = pool_disk(&known, false)
            {
                members.push((*disk, disk_handle));
            }
        }
        members
    }

    /// Tells a pool what its disks are called.
    pub(super) fn name_disks(&self, pool: Uuid, handle: &dyn PoolHandle) {
        self.note_used(pool);
        let members = handle.info().members.into_iter();
        let names = members.filter_map(|member| Some((member.guid, self.claimant(member.guid)?.found.id)));
        handle.name_disks(names.collect());
    }
}
