//! Who uses which clusters.

use std::collections::BTreeSet;

use file_store::StoreError;
use redb::ReadableTable;
use volume_format::CLUSTER;

use super::{Examination, Layout};
use crate::database_error::database_error;
use crate::extents::Extent;
use crate::finding::Severity;
use crate::free::{Free, Run};
use crate::load;
use crate::session::Session;
use crate::tables::{COUNTERS, EXTENTS, ExtentKey, FREED, SHARED, SHARES};

pub(super) const EXTENT: &str = "extent";
const SHARE: &str = "share count";
const FREED_LIST: &str = "list of freed clusters";
const FREE: &str = "free clusters";

/// Extents that a message names, of those that use the same clusters.
const NAMED: usize = 3;

/// Somebody who uses clusters of the device.
struct Use {
    start: u64,
    end: u64,
    /// Whether it knows that there may be others.
    shared: bool,
    /// The extent; `None` for the list of freed clusters.
    extent: Option<ExtentKey>,
}

/// A row of the table of user counts.
struct Share {
    start: u64,
    end: u64,
    users: u32,
}

impl Session<'_> {
    pub(super) fn extent_rows(&self) -> Result<Vec<(ExtentKey, Extent)>, StoreError> {
        let table = self.txn.open_table(EXTENTS).map_err(database_error)?;
        let rows = table.iter().map_err(database_error)?.map(|row| {
            let (key, value) = row.map_err(database_error)?;
            let ((file, stream, first), (device, count, flags)) = (key.value(), value.value());
            Ok(((file, stream, first), Extent { first, count, device, shared: flags & SHARED != 0 }))
        });
        rows.collect()
    }

    fn freed_rows(&self) -> Result<Vec<Run>, StoreError> {
        let table = self.txn.open_table(FREED).map_err(database_error)?;
        let rows = table.iter().map_err(database_error)?.map(|row| {
            let (start, count) = row.map_err(database_error)?;
            Ok(Run { start: start.value(), count: count.value() })
        });
        rows.collect()
    }

    /// Where the clusters lie, as far as the tables make sense.
    pub(super) fn layout(&self, clusters: u64) -> Result<Layout, StoreError> {
        let used = self.extent_rows()?;
        let mut free = Free::default();
        let clusters = load::usable(&*self.txn.open_table(COUNTERS).map_err(database_error)?, clusters)?;
        free.add(Run { start: 0, count: clusters });
        let freed = self.freed_rows()?.into_iter();
        let taken = freed.chain(used.iter().map(|(_, e)| Run { start: e.device, count: e.count }));
        let mut taken: Vec<Run> = taken.collect();
        taken.sort_by_key(|run| run.start);
        let mut end = 0;
        for run in taken {
            let from = run.start.max(end);
            let to = run.start.saturating_add(run.count).min(clusters);
            if from < to {
                free.remove(Run { start: from, count: to - from });
                end = to;
            }
        }
        let names = used.iter().map(|((file, ..), _)| *file).collect::<BTreeSet<u64>>();
        let names = names.into_iter().map(|file| {
            let name = self.inode(file).map(|inode| inode.name).unwrap_or_default();
            (file, name)
        });
        let names = names.collect();
        let used = used.into_iter().map(|((file, stream, _), extent)| ((file, stream), extent));
        Ok(Layout { free, clusters, used: used.collect(), names })
    }
}

impl Examination<'_, '_> {
    pub(super) fn extent_name(&self, (file, stream, first): ExtentKey) -> String {
        if self.maps.is_frozen((file, stream)) {
            return format!(
                "map {file} of clones and snapshots, from byte {}",
                first.saturating_mul(CLUSTER)
            );
        }
        let (file, stream) = self.maps.owner((file, stream)).unwrap_or((file, stream));
        let stream = if stream == 0 { String::new() } else { format!(", stream {stream}") };
        format!("{}{stream}, from byte {}", self.name_of(file), first.saturating_mul(CLUSTER))
    }

    /// Every cluster has as many users as the tables say, and those who are several know it.
    pub(super) fn users(&mut self) -> Result<(), StoreError> {
        let seen = self.findings.len();
        let mut uses: Vec<Use> = Vec::new();
        for (key, extent) in self.session.extent_rows()? {
            let end = extent.device.saturating_add(extent.count);
            uses.push(Use { start: extent.device, end, shared: extent.shared, extent: Some(key) });
        }
        self.freed(&mut uses)?;
        let shares = self.shares()?;
        let (parts, taken) = parts(&uses, &shares);
        for part in &parts {
            self.part(part, &uses);
        }
        self.free_clusters(&taken);
        if self.repair && self.findings.len() > seen {
            self.rebuild(&parts, &uses)?;
        }
        // After the list of freed clusters was made anew, since more may come to it.
        self.zeroed(&taken)
    }

    /// The list of freed clusters: within the volume, and each once.
    fn freed(&mut self, uses: &mut Vec<Use>) -> Result<(), StoreError> {
        let mut last = 0;
        for run in self.session.freed_rows()? {
            let end = run.start.saturating_add(run.count);
            let place = format!("clusters {}..{end}", run.start);
            let how = Some("the list is made anew from what nobody uses");
            if run.count == 0 || end > self.clusters {
                let detail = format!("are no clusters of the volume, which has {}", self.clusters);
                self.note(Severity::Error, FREED_LIST, place, detail, how);
            } else if run.start < last {
                self.note(Severity::Error, FREED_LIST, place, "are listed twice", how);
            }
            last = last.max(end);
            uses.push(Use { start: run.start, end, shared: false, extent: None });
        }
        Ok(())
    }

    fn shares(&mut self) -> Result<Vec<Share>, StoreError> {
        let mut shares: Vec<Share> = Vec::new();
        let mut wrong = Vec::new();
        {
            let table = self.session.txn.open_table(SHARES).map_err(database_error)?;
            for row in table.iter().map_err(database_error)? {
                let (start, value) = row.map_err(database_error)?;
                let (start, (count, users)) = (start.value(), value.value());
                let end = start.saturating_add(count);
                if count == 0 || end > self.clusters {
                    wrong.push((start, end, "are no clusters of the volume"));
                } else if users < 2 {
                    wrong.push((start, end, "are listed with less than two users"));
                } else if shares.last().is_some_and(|last| last.end > start) {
                    wrong.push((start, end, "are listed twice"));
                }
                shares.push(Share { start, end, users });
            }
        }
        for (start, end, detail) in wrong {
            let place = format!("clusters {start}..{end}");
            self.note(Severity::Error, SHARE, place, detail, Some("the counts are made anew"));
        }
        Ok(shares)
    }

    /// What is wrong with a run of clusters that have the same users.
    fn part(&mut self, part: &Part, uses: &[Use]) {
        let extents = part.users.len() as u64;
        if part.freed > 0 && extents > 0 {
            let detail = format!("are used by {}, and would be zeroed", self.users_of(part, uses));
            let how = Some("they are taken off the list");
            self.note(Severity::Critical, FREED_LIST, part.place(), detail, how);
        }
        let recorded = u64::from(part.recorded.max(1));
        let alone = part.users.iter().find(|user| !uses[**user].shared);
        if extents > 1
            && let Some(alone) = alone
        {
            let who = uses[*alone].extent.map(|key| self.extent_name(key)).unwrap_or_default();
            let detail = format!("are used by {}; {who} believes to be alone", self.users_of(part, uses));
            let how = Some("all of them keep the clusters as clones do, so that none changes the others");
            self.note(Severity::Critical, EXTENT, part.place(), detail, how);
        } else if extents > recorded {
            let detail = format!(
                "have {extents} users ({}), {recorded} recorded: they would be freed too early",
                self.users_of(part, uses)
            );
            self.note(Severity::Critical, SHARE, part.place(), detail, Some("the counts are made anew"));
        } else if extents < recorded && recorded > 1 {
            let detail = format!(
                "have {extents} users ({}), {recorded} recorded: their space is never given back",
                self.users_of(part, uses)
            );
            self.note(Severity::Warning, SHARE, part.place(), detail, Some("the counts are made anew"));
        }
    }

    fn users_of(&self, part: &Part, uses: &[Use]) -> String {
        let named = part.users.iter().take(NAMED).filter_map(|user| uses[*user].extent);
        let mut text: Vec<String> = named.map(|key| self.extent_name(key)).collect();
        match part.users.len() {
            0 => text.push("nobody".into()),
            more if more > NAMED => text.push(format!("{} more", more - NAMED)),
            _ => {}
        }
        text.join(" and ")
    }

    /// An open volume's free clusters in memory are exactly those that nobody uses.
    fn free_clusters(&mut self, taken: &[Run]) {
        if !self.free_in_memory {
            return;
        }
        let mut unused = Free::default();
        unused.add(Run { start: 0, count: self.session.space.clusters });
        taken.iter().for_each(|run| unused.remove_any(*run));
        for (run, free) in self.session.space.free.differences(&unused) {
            let place = format!("clusters {}..{}", run.start, run.start + run.count);
            let (severity, detail) = if free {
                (Severity::Critical, "are given out as free, but used")
            } else {
                (
                    Severity::Warning,
                    "are nobody's, but not free: they are lost until the volume is opened again",
                )
            };
            self.note(severity, FREE, place, detail, None);
        }
    }

    /// Makes user counts, flags and the list of freed clusters anew from the extents.
    fn rebuild(&mut self, parts: &[Part], uses: &[Use]) -> Result<(), StoreError> {
        self.session.changed = true;
        let mut shared = BTreeSet::new();
        {
            let mut table = self.session.txn.open_table(SHARES).map_err(database_error)?;
            table.clear().map_err(database_error)?;
            for part in parts.iter().filter(|part| part.users.len() > 1) {
                let users = u32::try_from(part.users.len()).unwrap_or(u32::MAX);
                table.insert(part.start, (part.end - part.start, users)).map_err(database_error)?;
                shared.extend(part.users.iter().copied());
            }
        }
        {
            let mut table = self.session.txn.open_table(FREED).map_err(database_error)?;
            table.clear().map_err(database_error)?;
            let unused = parts.iter().filter(|part| part.freed > 0 && part.users.is_empty());
            for part in unused.filter(|part| part.start < self.clusters) {
                let end = part.end.min(self.clusters);
                table.insert(part.start, end - part.start).map_err(database_error)?;
            }
        }
        let mut table = self.session.txn.open_table(EXTENTS).map_err(database_error)?;
        for user in shared {
            let Some(key) = uses[user].extent.filter(|_| !uses[user].shared) else { continue };
            let value = (uses[user].start, uses[user].end - uses[user].start, SHARED);
            table.insert(key, value).map_err(database_error)?;
        }
        Ok(())
    }
}

/// A run of clusters that have the same users all over.
struct Part {
    start: u64,
    end: u64,
    /// Extents, by their place among the uses.
    users: Vec<usize>,
    /// How often the clusters are in the list of freed ones.
    freed: u32,
    /// The number of users in the table; 0 when they are not in it.
    recorded: u32,
}

impl Part {
    fn place(&self) -> String {
        format!("clusters {}..{}", self.start, self.end)
    }
}

/// Cuts the device where users begin or end. Gives the parts that have several users, are freed, or are in the
/// table of counts - of most clusters there is nothing to say - and all runs that are taken.
fn parts(uses: &[Use], shares: &[Share]) -> (Vec<Part>, Vec<Run>) {
    // What ends comes before what begins at the same place, so that neighbours do not count together.
    let mut edges: Vec<(u64, Edge)> = Vec::with_capacity(2 * (uses.len() + shares.len()));
    for (number, user) in uses.iter().enumerate().filter(|(_, user)| user.start < user.end) {
        edges.push((user.start, Edge::Begin(number)));
        edges.push((user.end, Edge::End(number)));
    }
    for share in shares.iter().filter(|share| share.start < share.end) {
        edges.push((share.start, Edge::Recorded(share.users)));
        edges.push((share.end, Edge::Unrecorded));
    }
    edges.sort_unstable();
    let (mut active, mut freed, mut recorded) = (BTreeSet::new(), 0u32, 0u32);
    let (mut parts, mut taken): (Vec<Part>, Vec<Run>) = (Vec::new(), Vec::new());
    let mut before = 0;
    for (at, edge) in edges {
        if at > before {
            if !active.is_empty() || freed > 0 {
                match taken.last_mut() {
                    Some(last) if last.start + last.count == before => last.count += at - before,
                    _ => taken.push(Run { start: before, count: at - before }),
                }
            }
            if active.len() > 1 || freed > 0 || recorded > 0 {
                let users = active.iter().copied().collect();
                parts.push(Part { start: before, end: at, users, freed, recorded });
            }
            before = at;
        }
        match edge {
            Edge::End(number) if uses[number].extent.is_some() => drop(active.remove(&number)),
            Edge::End(_) => freed = freed.saturating_sub(1),
            Edge::Unrecorded => recorded = 0,
            Edge::Begin(number) if uses[number].extent.is_some() => drop(active.insert(number)),
            Edge::Begin(_) => freed = freed.saturating_add(1),
            Edge::Recorded(users) => recorded = users,
        }
    }
    (parts, taken)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    End(usize),
    Unrecorded,
    Begin(usize),
    Recorded(u32),
}
