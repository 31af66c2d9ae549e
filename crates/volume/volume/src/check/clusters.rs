//! Extents, and who uses which clusters.

use std::collections::BTreeSet;

use file_store::{FILE_SIZE_MAX, StoreError};
use redb::ReadableTable;
use volume_format::{CLUSTER, StreamRecord};

use super::counters::FILE_MAX;
use super::names::recovered;
use super::{Examination, Layout, Severity};
use crate::clusters::StreamKey;
use crate::database::{Session, database_error};
use crate::extents::Extent;
use crate::free::{Free, Run};
use crate::load;
use crate::tables::{COUNTERS, EXTENTS, ExtentKey, FREED, MapKey, SHARED, SHARES};

const EXTENT: &str = "extent";
const SHARE: &str = "share count";
const FREED_LIST: &str = "list of freed clusters";
const FREE: &str = "free clusters";

/// Extents that a message names, of those that use the same clusters.
const NAMED: usize = 3;
/// Clusters that a file can reach.
const REACH: u64 = FILE_SIZE_MAX.div_ceil(CLUSTER);

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
    fn extent_rows(&self) -> Result<Vec<(ExtentKey, Extent)>, StoreError> {
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
        let clusters = load::usable(&self.txn.open_table(COUNTERS).map_err(database_error)?, clusters)?;
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
    fn extent_name(&self, (file, stream, first): ExtentKey) -> String {
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

    /// Every extent belongs to a stream, lies on the device, and begins where the one before has ended.
    pub(super) fn extents(&mut self) -> Result<(), StoreError> {
        let mut rows = self.session.extent_rows()?;
        // First, since those that belong to nobody may go elsewhere.
        let owners: BTreeSet<MapKey> = rows.iter().map(|(key, _)| (key.0, key.1)).collect();
        let seen = self.findings.len();
        for stream in owners {
            self.owner(stream)?;
        }
        if self.repair && self.findings.len() > seen {
            rows = self.session.extent_rows()?;
        }
        let mut last: Option<(StreamKey, u64)> = None;
        for (key, extent) in rows {
            let stream = (key.0, key.1);
            let place = self.extent_name(key);
            let (from, end) = (extent.device, extent.device.saturating_add(extent.count));
            if extent.count == 0 {
                let detail = "has no clusters";
                self.note(Severity::Warning, EXTENT, place, detail, Some("it is removed"));
                self.replace_row(key, None)?;
                continue;
            }
            let room = self.clusters.saturating_sub(from).min(REACH.saturating_sub(extent.first));
            let extent = if extent.count > room {
                let detail = format!("lies at clusters {from}..{end}, beyond the volume's {}", self.clusters);
                let how = "what lies beyond is taken out, and reads as zeros";
                self.note(Severity::Critical, EXTENT, place.clone(), detail, Some(how));
                let cut = Extent { count: room, ..extent };
                self.replace_row(key, Some(cut))?;
                if room == 0 {
                    continue;
                }
                cut
            } else {
                extent
            };
            match last {
                Some((of, end)) if of == stream && end > extent.first => {
                    let detail =
                        format!("overlaps the extent before it, which ends at byte {}", end * CLUSTER);
                    let how = "its part of the overlap goes to a file in /lost+found";
                    self.note(Severity::Critical, EXTENT, place, detail, Some(how));
                    if self.repair {
                        self.set_aside(key, extent, end)?;
                    }
                    last = Some((stream, end.max(extent.end())));
                }
                _ => last = Some((stream, extent.end())),
            }
        }
        Ok(())
    }

    /// Changes an extent's row, when repairing.
    fn replace_row(&mut self, key: ExtentKey, extent: Option<Extent>) -> Result<(), StoreError> {
        if !self.repair {
            return Ok(());
        }
        let mut table = self.session.txn.open_table(EXTENTS).map_err(database_error)?;
        table.remove(key).map_err(database_error)?;
        if let Some(extent) = extent.filter(|extent| extent.count > 0) {
            let flags = if extent.shared { SHARED } else { 0 };
            table.insert(key, (extent.device, extent.count, flags)).map_err(database_error)?;
        }
        Ok(())
    }

    /// Moves what of an extent lies before `end` to a new file, and leaves the rest.
    fn set_aside(&mut self, key: ExtentKey, extent: Extent, end: u64) -> Result<(), StoreError> {
        self.replace_row(key, None)?;
        let file = self.new_file()?;
        let aside = extent.part(extent.first, end.min(extent.end()));
        self.session.insert_extents((file, 0), &[aside])?;
        if extent.end() > end {
            self.session.put_rows((key.0, key.1), &[extent.part(end, extent.end())])?;
        }
        self.recover_inode(file, None)?;
        self.rescue(file)
    }

    /// The stream whose map this is is there, or others link to it.
    fn owner(&mut self, map: MapKey) -> Result<(), StoreError> {
        if self.maps.is_frozen(map) {
            return Ok(());
        }
        if let Some(stream) = self.maps.owner(map) {
            return self.stream_owner(stream);
        }
        let place = format!("map {}", map.0);
        let detail = "has extents, though its stream has another map and nobody links to it";
        self.note(Severity::Critical, EXTENT, place, detail, Some("they become a file in /lost+found"));
        self.rows_aside(map, 0, u64::MAX)
    }

    /// Makes a file of what a map has and nobody reaches, when repairing.
    pub(super) fn rows_aside(&mut self, map: MapKey, first: u64, end: u64) -> Result<(), StoreError> {
        if !self.repair {
            return Ok(());
        }
        let aside = self.new_file()?;
        let rows = self.session.cut_rows(map, first, end)?;
        self.session.changed = true;
        self.session.put_rows((aside, 0), &rows)?;
        self.recover_inode(aside, None)?;
        self.rescue(aside)
    }

    /// The file and the stream of an extent are there; a removed file's may be on their way out.
    pub(super) fn stream_owner(&mut self, (file, stream): StreamKey) -> Result<(), StoreError> {
        let Some(inode) = self.inodes.get(&file).cloned() else {
            if self.orphans.contains(&file) {
                return Ok(());
            }
            let place = format!("file {file}, stream {stream}");
            let detail = "there is space of a file that does not exist";
            let how = Some("it becomes a file in /lost+found, as long as its space");
            self.note(Severity::Critical, EXTENT, place, detail, how);
            if self.repair && file > FILE_MAX {
                self.move_aside((file, stream))?;
            } else if self.repair {
                self.recover_inode(file, None)?;
                self.rescue(file)?;
            }
            return Ok(());
        };
        if inode.streams.iter().any(|record| record.id == stream) {
            return Ok(());
        }
        let place = format!("{}, stream {stream}", self.name_of(file));
        let detail = "there is space of a stream that does not exist";
        let how = Some("the stream is made anew, as long as its space");
        self.note(Severity::Critical, EXTENT, place, detail, how);
        if self.repair {
            if stream == 0 {
                // A directory: its unnamed stream cannot be.
                return self.move_aside((file, stream));
            }
            let size = self.session.end_of_space((file, stream))?;
            let mut inode = inode;
            inode.streams.push(StreamRecord { id: stream, name: recovered(stream), size });
            inode.next_stream = inode.next_stream.max(stream.saturating_add(1));
            self.put_inode(file, inode)?;
        }
        Ok(())
    }

    /// Gives the extents of a stream to a new file.
    fn move_aside(&mut self, (file, stream): StreamKey) -> Result<(), StoreError> {
        let aside = self.new_file()?;
        let extents = self.session.extents((file, stream))?;
        self.session.own((file, stream), 0, u64::MAX)?;
        let map = self.session.own_map((file, stream))?;
        self.session.cut_rows(map, 0, u64::MAX)?;
        self.session.insert_extents((aside, 0), &extents)?;
        self.recover_inode(aside, None)?;
        self.rescue(aside)
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
            table.retain(|_, _| false).map_err(database_error)?;
            for part in parts.iter().filter(|part| part.users.len() > 1) {
                let users = u32::try_from(part.users.len()).unwrap_or(u32::MAX);
                table.insert(part.start, (part.end - part.start, users)).map_err(database_error)?;
                shared.extend(part.users.iter().copied());
            }
        }
        {
            let mut table = self.session.txn.open_table(FREED).map_err(database_error)?;
            table.retain(|_, _| false).map_err(database_error)?;
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
