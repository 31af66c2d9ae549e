//! Verifying all structures of a volume, while it is in use or before it is.

use std::collections::{BTreeMap, BTreeSet};

use block_device::Device;
use file_store::StoreError;
use file_store::names::fold;
use redb::ReadableTable;
use volume_format::{Entry, Inode};

use crate::database::{Session, database_error};
use crate::integrity;
use crate::tables::{ENTRIES, EXTENTS, FREED, INODES, ORPHANS, ROOT, SHARED, SHARES};
use crate::volume::Volume;

/// How bad a finding is; the order is worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Data is lost or could be overwritten.
    Critical,
    /// A structure is damaged; another copy of it serves, or nothing depends on it now.
    Error,
    /// Space is not accounted for.
    Warning,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// Which structure.
    pub structure: &'static str,
    /// Where, and what is wrong.
    pub detail: String,
}

impl Volume {
    /// Looks for damage below the tables of a volume that nobody has open. Nothing is written. Opening one in which
    /// something critical is found is no good: the database takes its pages for granted.
    ///
    /// # Errors
    /// When the device cannot be read.
    pub async fn verify(device: &Device) -> Result<Vec<Finding>, StoreError> {
        let (superblock, mut findings) = integrity::frame(device, None).await?;
        if let Some(superblock) = superblock {
            findings.extend(integrity::pages_alone(device.clone(), superblock).await?);
        }
        findings.sort_by_key(|finding| finding.severity);
        Ok(findings)
    }

    /// Checks the volume; findings are sorted by what hurts most.
    ///
    /// # Errors
    /// When the database cannot be read at all.
    pub async fn check(&self) -> Result<Vec<Finding>, StoreError> {
        let core = &self.core;
        let mut findings = integrity::frame(&core.device, Some(&core.superblock)).await?.1;
        let clusters = core.superblock.clusters(core.device.size());
        let (device, superblock) = (core.device.clone(), core.superblock.clone());
        let below = core.metadata.change(move |session| match integrity::pages(device, &superblock) {
            // What the tables say is worth nothing then, and reading them may lead anywhere.
            Some(damage) => Ok(vec![damage]),
            None => session.check(clusters),
        });
        findings.extend(below.await?);
        findings.sort_by_key(|finding| finding.severity);
        Ok(findings)
    }
}

impl Session<'_> {
    fn check(&self, clusters: u64) -> Result<Vec<Finding>, StoreError> {
        let mut findings = Vec::new();
        let inodes = self.check_inodes(&mut findings)?;
        self.check_entries(&inodes, &mut findings)?;
        self.check_clusters(&inodes, clusters, &mut findings)?;
        Ok(findings)
    }

    #[cfg(test)]
    pub(crate) fn check_for_test(&self, clusters: u64) -> Result<Vec<Finding>, StoreError> {
        self.check(clusters)
    }

    fn check_inodes(&self, findings: &mut Vec<Finding>) -> Result<BTreeMap<u64, Inode>, StoreError> {
        let table = self.txn.open_table(INODES).map_err(database_error)?;
        let mut inodes = BTreeMap::new();
        for row in table.iter().map_err(database_error)? {
            let (file, value) = row.map_err(database_error)?;
            match Inode::decode(value.value()) {
                Ok(inode) => drop(inodes.insert(file.value(), inode)),
                Err(error) => findings.push(Finding {
                    severity: Severity::Critical,
                    structure: "inode",
                    detail: format!("the record of file {} {error}", file.value()),
                }),
            }
        }
        if !inodes.get(&ROOT).is_some_and(|root| root.directory) {
            findings.push(Finding {
                severity: Severity::Critical,
                structure: "inode",
                detail: "there is no root directory".into(),
            });
        }
        Ok(inodes)
    }

    fn check_entries(
        &self,
        inodes: &BTreeMap<u64, Inode>,
        findings: &mut Vec<Finding>,
    ) -> Result<(), StoreError> {
        let mut wrong = |detail: String| {
            findings.push(Finding { severity: Severity::Critical, structure: "directory entry", detail });
        };
        let table = self.txn.open_table(ENTRIES).map_err(database_error)?;
        let mut named = BTreeSet::from([ROOT]);
        for row in table.iter().map_err(database_error)? {
            let (key, value) = row.map_err(database_error)?;
            let (directory, name) = key.value();
            let entry = match Entry::decode(value.value()) {
                Ok(entry) => entry,
                Err(error) => {
                    wrong(format!("{name} in directory {directory} {error}"));
                    continue;
                }
            };
            let place = format!("{} in directory {directory}", entry.name);
            if fold(&entry.name) != name {
                wrong(format!("{place} is filed under {name}"));
            }
            if !inodes.get(&directory).is_some_and(|inode| inode.directory) {
                wrong(format!("{place} is in no directory"));
            }
            match inodes.get(&entry.file) {
                None => wrong(format!("{place} names file {}, which does not exist", entry.file)),
                Some(inode) if inode.parent != directory || inode.directory != entry.directory => {
                    wrong(format!("{place} and the record of file {} disagree", entry.file));
                }
                Some(_) => {}
            }
            if !named.insert(entry.file) {
                wrong(format!("{place} is a second name of file {}", entry.file));
            }
        }
        let orphans = self.txn.open_table(ORPHANS).map_err(database_error)?;
        for (file, inode) in inodes {
            let orphan = orphans.get(*file).map_err(database_error)?.is_some();
            if !named.contains(file) && !orphan {
                wrong(format!("file {file} ({}) has no name", inode.name));
            }
        }
        Ok(())
    }

    fn check_clusters(
        &self,
        inodes: &BTreeMap<u64, Inode>,
        clusters: u64,
        findings: &mut Vec<Finding>,
    ) -> Result<(), StoreError> {
        // (start, end, users that the structures say, who)
        let mut uses: Vec<(u64, u64, bool, String)> = Vec::new();
        let extents = self.txn.open_table(EXTENTS).map_err(database_error)?;
        let mut last: Option<(u64, u32, u64)> = None;
        for row in extents.iter().map_err(database_error)? {
            let (key, value) = row.map_err(database_error)?;
            let (file, stream, first) = key.value();
            let (start, count, flags) = value.value();
            let who = format!("file {file} stream {stream} cluster {first}");
            let mut wrong = |detail: String| {
                findings.push(Finding { severity: Severity::Critical, structure: "extent", detail });
            };
            if !inodes.get(&file).is_some_and(|inode| inode.streams.iter().any(|s| s.id == stream)) {
                wrong(format!("{who} belongs to no file"));
            }
            if count == 0 || start.checked_add(count).is_none_or(|end| end > clusters) {
                wrong(format!("{who} lies at clusters {start}+{count}, beyond the volume's {clusters}"));
                continue;
            }
            if last.is_some_and(|(f, s, end)| (f, s) == (file, stream) && end > first) {
                wrong(format!("{who} overlaps the extent before it"));
            }
            last = Some((file, stream, first.saturating_add(count)));
            uses.push((start, start + count, flags & SHARED != 0, who));
        }
        let freed = self.txn.open_table(FREED).map_err(database_error)?;
        for row in freed.iter().map_err(database_error)? {
            let (start, count) = row.map_err(database_error)?;
            let (start, count) = (start.value(), count.value());
            uses.push((start, start.saturating_add(count), false, "the list of freed clusters".into()));
        }
        let mut shares = BTreeMap::new();
        let table = self.txn.open_table(SHARES).map_err(database_error)?;
        for row in table.iter().map_err(database_error)? {
            let (start, value) = row.map_err(database_error)?;
            let (count, users) = value.value();
            shares.insert(start.value(), (start.value().saturating_add(count), users));
        }
        check_users(uses, &shares, findings);
        Ok(())
    }
}

/// Walks over the boundaries of all uses and compares the number of users with what the structures say.
fn check_users(
    uses: Vec<(u64, u64, bool, String)>,
    shares: &BTreeMap<u64, (u64, u32)>,
    findings: &mut Vec<Finding>,
) {
    let mut events: BTreeMap<u64, (i64, i64, String)> = BTreeMap::new();
    for (start, end, shared, who) in uses {
        let begin = events.entry(start).or_default();
        begin.0 += 1;
        begin.1 += i64::from(!shared);
        begin.2 = who;
        let finish = events.entry(end).or_default();
        finish.0 -= 1;
        finish.1 -= i64::from(!shared);
    }
    for (start, (end, _)) in shares {
        events.entry(*start).or_default();
        events.entry(*end).or_default();
    }
    let (mut users, mut exclusive) = (0i64, 0i64);
    let mut who = String::new();
    for (at, (delta, delta_exclusive, name)) in &events {
        users += delta;
        exclusive += delta_exclusive;
        if !name.is_empty() {
            who.clone_from(name);
        }
        let recorded = shares
            .range(..=at)
            .next_back()
            .filter(|(_, (end, _))| end > at)
            .map_or(1, |(_, (_, n))| i64::from(*n));
        if users > 1 && exclusive > 0 {
            findings.push(Finding {
                severity: Severity::Critical,
                structure: "extent",
                detail: format!(
                    "cluster {at} ({who}) has {users} users, and one of them believes to be alone"
                ),
            });
        } else if users > recorded {
            findings.push(Finding {
                severity: Severity::Critical,
                structure: "share count",
                detail: format!("cluster {at} ({who}) has {users} users, {recorded} are recorded"),
            });
        } else if users < recorded && recorded > 1 {
            findings.push(Finding {
                severity: Severity::Warning,
                structure: "share count",
                detail: format!("cluster {at} has {users} users, {recorded} are recorded: its space may never be given back"),
            });
        }
    }
}
