//! Maps shared by reference: how clones and snapshots cost what a few rows cost.
//!
//! ```text
//!                      own extents            links
//!   before             a ─► map a             -
//!   b is cloned from a a ─► map 9 (empty)     a: 0.. ─► map a      b: 0.. ─► map a        uses of map a: 0.. 2
//!   a writes in w      a ─► map 9: w          a: all but w         b: 0.. ─► map a        …w 2, w 1, w… 2
//! ```
//! A stream has extents of its own, in its own map, and *links*: "these clusters are where that map says". A map
//! that is linked to is *frozen*: it takes no new extents, and loses them where the last link goes. Its rows never
//! moved: freezing gives the stream that had it a new, empty map.
//!
//! Invariants:
//! * Own extents and links of a stream do not overlap, nor do its links. A link leads to a frozen map, never to a
//!   stream, so nobody follows a chain, however deep clones of clones go; a stream in memory has one flat map.
//! * `uses` counts, for each cluster of each frozen map, the links to it; where nobody links a frozen map is empty.
//! * `shares` counts rows of maps, not links. Linked clusters whose use is one have one owner: before they change, the
//!   rows move to its own map; if others use them, they are copied, and the clusters have a user more.
//!
//! A clone costs a row for each link of the source. The first write into a linked range costs the rows of
//! [`WINDOW`] clusters around it. Giving up a range that others link costs a row, too; clusters are freed by
//! whoever is the last.

use file_store::{StoreError, StoreErrorKind};
use redb::ReadableTable;

use crate::database_error::database_error;
use crate::extents::{END, Extent};
use crate::free::Run;
use crate::session::Session;
use crate::tables::{COUNTERS, EXTENTS, LINKS, MAPS, MapKey, NEXT_FILE, ORPHANS, StreamKey, USES};

/// Clusters that become a stream's own together, before one of them is written: 64 MiB. What a write after a
/// snapshot costs at most, against how many links a stream can have.
pub(crate) const WINDOW: u64 = 1024;

/// Clusters of a stream that are where a frozen map says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) first: u64,
    pub(crate) end: u64,
    pub(crate) map: MapKey,
}

impl Session<'_> {
    /// The map that a stream's own extents are in.
    pub(crate) fn own_map(&self, stream: StreamKey) -> Result<MapKey, StoreError> {
        let table = self.txn.open_table(MAPS).map_err(database_error)?;
        Ok(table.get(stream).map_err(database_error)?.map_or(stream, |row| row.value()))
    }

    /// The map that a stream's own extents are in, if it has no links.
    pub(crate) fn unlinked_map(&mut self, stream: StreamKey) -> Result<Option<MapKey>, StoreError> {
        let changes = self.txn.changes_of_links();
        if let Some(known) = self.space.known_unlinked(stream, changes) {
            return Ok(known);
        }
        let linked = {
            let table = self.txn.open_table(LINKS).map_err(database_error)?;
            let (file, number) = stream;
            let mut rows =
                table.range((file, number, 0)..=(file, number, u64::MAX)).map_err(database_error)?;
            rows.next().transpose().map_err(database_error)?.is_some()
        };
        let map = if linked { None } else { Some(self.own_map(stream)?) };
        self.space.keep_unlinked(stream, map);
        Ok(map)
    }

    /// A number that no file, map or snapshot had or has.
    pub(crate) fn new_number(&mut self) -> Result<u64, StoreError> {
        let next = self.next_number()?;
        let mut counters = self.txn.open_table(COUNTERS).map_err(database_error)?;
        let after = next.checked_add(1).ok_or_else(|| {
            StoreError::new(StoreErrorKind::NoSpace, "the volume has had all files it can have")
        })?;
        counters.insert(NEXT_FILE, after).map_err(database_error)?;
        Ok(next)
    }

    /// The links of a stream that meet `first..end`, cut to it, in order.
    pub(crate) fn links(&self, stream: StreamKey, first: u64, end: u64) -> Result<Vec<Link>, StoreError> {
        let table = self.txn.open_table(LINKS).map_err(database_error)?;
        let (file, number) = stream;
        let mut links: Vec<Link> = Vec::new();
        let mut before = table.range((file, number, 0)..(file, number, first)).map_err(database_error)?;
        let last = before.next_back();
        let rows = table.range((file, number, first)..(file, number, end)).map_err(database_error)?;
        for row in last.into_iter().chain(rows) {
            let (key, value) = row.map_err(database_error)?;
            let ((.., at), (map, of, count)) = (key.value(), value.value());
            let link = Link { first: at.max(first), end: at.saturating_add(count).min(end), map: (map, of) };
            if link.first < link.end {
                links.push(link);
            }
        }
        Ok(links)
    }

    fn put_link(&mut self, (file, stream): StreamKey, link: Link) -> Result<(), StoreError> {
        let mut table = self.txn.open_table(LINKS).map_err(database_error)?;
        let value = (link.map.0, link.map.1, link.end - link.first);
        table.insert((file, stream, link.first), value).map_err(database_error)?;
        Ok(())
    }

    /// Takes the links of `first..end` away, leaving what reaches beyond; uses stay as they are.
    pub(crate) fn cut_links(
        &mut self,
        stream: StreamKey,
        first: u64,
        end: u64,
    ) -> Result<Vec<Link>, StoreError> {
        let cut = self.links(stream, first, end)?;
        for link in &cut {
            // Whole, as it was before.
            let whole = self.link_at(stream, link.first)?.unwrap_or(*link);
            {
                let mut table = self.txn.open_table(LINKS).map_err(database_error)?;
                table.remove((stream.0, stream.1, whole.first)).map_err(database_error)?;
            }
            if whole.first < link.first {
                self.put_link(stream, Link { end: link.first, ..whole })?;
            }
            if link.end < whole.end {
                self.put_link(stream, Link { first: link.end, ..whole })?;
            }
        }
        Ok(cut)
    }

    /// The whole link that `cluster` is in.
    fn link_at(&self, (file, stream): StreamKey, cluster: u64) -> Result<Option<Link>, StoreError> {
        let table = self.txn.open_table(LINKS).map_err(database_error)?;
        let mut rows = table.range((file, stream, 0)..=(file, stream, cluster)).map_err(database_error)?;
        let Some(row) = rows.next_back() else { return Ok(None) };
        let (key, value) = row.map_err(database_error)?;
        let ((.., first), (map, of, count)) = (key.value(), value.value());
        Ok(Some(Link { first, end: first.saturating_add(count), map: (map, of) }))
    }

    /// How many links there are to each part of `first..end` of a map; all of the range, in order.
    pub(crate) fn uses(
        &self,
        (file, stream): MapKey,
        first: u64,
        end: u64,
    ) -> Result<Vec<(u64, u64, u32)>, StoreError> {
        let table = self.txn.open_table(USES).map_err(database_error)?;
        let mut before = table.range((file, stream, 0)..(file, stream, first)).map_err(database_error)?;
        let last = before.next_back();
        let rows = table.range((file, stream, first)..(file, stream, end)).map_err(database_error)?;
        let (mut parts, mut at) = (Vec::new(), first);
        for row in last.into_iter().chain(rows) {
            let (key, value) = row.map_err(database_error)?;
            let ((.., start), (count, users)) = (key.value(), value.value());
            let (from, to) = (start.max(at), start.saturating_add(count).min(end));
            if from >= to {
                continue;
            }
            if at < from {
                parts.push((at, from, 0));
            }
            parts.push((from, to, users));
            at = to;
        }
        if at < end {
            parts.push((at, end, 0));
        }
        Ok(parts)
    }

    /// Counts links to `first..end` of a map up or down; the parts that had no link but this one.
    fn count_uses(
        &mut self,
        map: MapKey,
        first: u64,
        end: u64,
        up: bool,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        let parts = self.uses(map, first, end)?;
        // With the neighbours, so that equal ones become one row again.
        let reach = (first.saturating_sub(1), end.saturating_add(1));
        let mut around = self.uses_rows(map, reach.0, reach.1)?;
        let mut table = self.txn.open_table(USES).map_err(database_error)?;
        for (from, ..) in &around {
            table.remove((map.0, map.1, *from)).map_err(database_error)?;
        }
        let mut kept: Vec<(u64, u64, u32)> = Vec::new();
        around.iter().filter(|row| row.0 < first).for_each(|(from, to, users)| {
            kept.push((*from, (*to).min(first), *users));
        });
        let changed = parts.iter().map(|(from, to, users)| {
            (*from, *to, if up { users.saturating_add(1) } else { users.saturating_sub(1) })
        });
        kept.extend(changed);
        around.retain(|row| row.1 > end);
        kept.extend(around.into_iter().map(|(from, to, users)| (from.max(end), to, users)));
        let mut joined: Vec<(u64, u64, u32)> = Vec::new();
        for (from, to, users) in kept.into_iter().filter(|row| row.2 > 0) {
            match joined.last_mut() {
                Some(last) if last.1 == from && last.2 == users => last.1 = to,
                _ => joined.push((from, to, users)),
            }
        }
        for (from, to, users) in joined {
            table.insert((map.0, map.1, from), (to - from, users)).map_err(database_error)?;
        }
        let last_one = |(from, to, users): (u64, u64, u32)| (!up && users <= 1).then_some((from, to));
        Ok(parts.into_iter().filter_map(last_one).collect())
    }

    /// The rows of uses that meet `first..end`, whole.
    fn uses_rows(
        &self,
        (file, stream): MapKey,
        first: u64,
        end: u64,
    ) -> Result<Vec<(u64, u64, u32)>, StoreError> {
        let table = self.txn.open_table(USES).map_err(database_error)?;
        let mut before = table.range((file, stream, 0)..(file, stream, first)).map_err(database_error)?;
        let last = before.next_back();
        let rows = table.range((file, stream, first)..(file, stream, end)).map_err(database_error)?;
        let mut found = Vec::new();
        for row in last.into_iter().chain(rows) {
            let (key, value) = row.map_err(database_error)?;
            let ((.., from), (count, users)) = (key.value(), value.value());
            if from.saturating_add(count) > first {
                found.push((from, from.saturating_add(count), users));
            }
        }
        Ok(found)
    }

    /// Clusters that a map has in `first..end`.
    fn count(&mut self, map: MapKey, first: u64, end: u64) -> Result<u64, StoreError> {
        if let Some(count) = self.space.known_count(map, first, end) {
            return Ok(count);
        }
        let rows = self.rows(map, first, end)?;
        let count = rows.iter().map(|row| row.part(first, end).count).fold(0, u64::saturating_add);
        self.space.keep_count(map, first, end, count);
        Ok(count)
    }

    /// Makes clusters of a stream its own, before where they are can change. Those of others stay.
    pub(crate) fn own(&mut self, stream: StreamKey, first: u64, end: u64) -> Result<(), StoreError> {
        let links = self.cut_links(stream, first, end)?;
        if links.is_empty() {
            return Ok(());
        }
        self.changed = true;
        let own = self.own_map(stream)?;
        for link in links {
            for (from, to, users) in self.uses(link.map, link.first, link.end)? {
                let parts = if users > 1 {
                    self.share_rows(link.map, from, to)?
                } else {
                    self.cut_rows(link.map, from, to)?
                };
                self.put_rows(own, &parts)?;
            }
            self.count_uses(link.map, link.first, link.end, false)?;
        }
        Ok(())
    }

    /// Whether clusters of a stream, or those around them, are where a frozen map says.
    pub(crate) fn is_linked_around(
        &self,
        stream: StreamKey,
        first: u64,
        end: u64,
    ) -> Result<bool, StoreError> {
        Ok(!self.links(stream, first / WINDOW * WINDOW, end.next_multiple_of(WINDOW))?.is_empty())
    }

    /// As [`Session::own`], for clusters and those around them, before a write.
    pub(crate) fn own_around(&mut self, stream: StreamKey, first: u64, end: u64) -> Result<(), StoreError> {
        self.own(stream, first / WINDOW * WINDOW, end.next_multiple_of(WINDOW))
    }

    /// One user more for the clusters that a map has in `first..end`; which these are.
    fn share_rows(&mut self, map: MapKey, first: u64, end: u64) -> Result<Vec<Extent>, StoreError> {
        let rows = self.rows(map, first, end)?;
        let alone: Vec<Extent> = rows.iter().filter(|row| !row.shared).copied().collect();
        if !alone.is_empty() {
            let known: Vec<Extent> = alone.into_iter().map(|row| Extent { shared: true, ..row }).collect();
            self.put_rows(map, &known)?;
        }
        let parts: Vec<Extent> =
            rows.iter().map(|row| Extent { shared: true, ..row.part(first, end) }).collect();
        for part in &parts {
            self.share(Run { start: part.device, count: part.count })?;
        }
        Ok(parts)
    }

    /// Takes the links of a stream in `first..end` away, and what nobody links to any more.
    pub(crate) fn drop_links(&mut self, stream: StreamKey, first: u64, end: u64) -> Result<(), StoreError> {
        for link in self.cut_links(stream, first, end)? {
            self.changed = true;
            let count = self.count(link.map, link.first, link.end)?;
            self.charge(stream.0, count, false)?;
            for (from, to) in self.count_uses(link.map, link.first, link.end, false)? {
                let rows = self.cut_rows(link.map, from, to)?;
                self.give_up(rows)?;
            }
        }
        Ok(())
    }

    /// From now on the stream has no extents of its own, and those that it had can be linked to.
    pub(crate) fn freeze(&mut self, stream: StreamKey) -> Result<(), StoreError> {
        let own = self.own_map(stream)?;
        if self.first_row(own)?.is_none() {
            return Ok(());
        }
        let mut gaps = Vec::new();
        let mut at = 0;
        for link in self.links(stream, 0, END)? {
            gaps.push((at, link.first));
            at = link.end;
        }
        gaps.push((at, END));
        for (first, end) in gaps.into_iter().filter(|(first, end)| first < end) {
            if !self.has_rows(own, first, end)? {
                continue;
            }
            self.put_link(stream, Link { first, end, map: own })?;
            self.count_uses(own, first, end, true)?;
        }
        let fresh = self.new_number()?;
        let mut maps = self.txn.open_table(MAPS).map_err(database_error)?;
        maps.insert(stream, (fresh, 0)).map_err(database_error)?;
        Ok(())
    }

    fn has_rows(&self, (file, stream): MapKey, first: u64, end: u64) -> Result<bool, StoreError> {
        let table = self.txn.open_table(EXTENTS).map_err(database_error)?;
        let mut rows = table.range((file, stream, first)..(file, stream, end)).map_err(database_error)?;
        Ok(rows.next().transpose().map_err(database_error)?.is_some())
    }

    fn first_row(&self, (file, stream): MapKey) -> Result<Option<u64>, StoreError> {
        let table = self.txn.open_table(EXTENTS).map_err(database_error)?;
        let mut rows = table.range((file, stream, 0)..=(file, stream, u64::MAX)).map_err(database_error)?;
        let row = rows.next().transpose().map_err(database_error)?;
        Ok(row.map(|(key, _)| key.value().2))
    }

    /// Gives `target`, which has a hole there, what `source` has in `first..end`.
    pub(crate) fn link(
        &mut self,
        source: StreamKey,
        target: StreamKey,
        first: u64,
        end: u64,
    ) -> Result<(), StoreError> {
        self.changed = true;
        self.forget(target.0);
        self.freeze(source)?;
        for link in self.links(source, first, end)? {
            let count = self.count(link.map, link.first, link.end)?;
            if count == 0 {
                continue;
            }
            self.charge(target.0, count, true)?;
            self.put_link(target, link)?;
            self.count_uses(link.map, link.first, link.end, true)?;
        }
        Ok(())
    }

    /// All extents of a stream, in order; those that it has by links may be others', too.
    pub(crate) fn extents(&self, stream: StreamKey) -> Result<Vec<Extent>, StoreError> {
        let mut all = self.rows(self.own_map(stream)?, 0, u64::MAX)?;
        let links = self.links(stream, 0, u64::MAX)?;
        if links.is_empty() {
            return Ok(all);
        }
        for link in links {
            let rows = self.rows(link.map, link.first, link.end)?;
            all.extend(rows.iter().map(|row| Extent { shared: true, ..row.part(link.first, link.end) }));
        }
        all.sort_by_key(|extent| extent.first);
        Ok(all)
    }

    /// Gives up at most about `limit` extents of a deleted file; when none is left, the file is forgotten.
    pub(crate) fn purge(&mut self, file: u64, limit: usize) -> Result<(), StoreError> {
        self.changed = true;
        let mut left = limit;
        while left > 0 {
            let Some((stream, link)) = self.first_link(file)? else { break };
            // What others link to goes at once, whatever its size; the rest some thousand extents at a time.
            let parts = self.uses(link.map, link.first, link.end)?;
            let Some((_, end, users)) = parts.first().copied() else { break };
            let end = if users > 1 { end } else { self.end_of(link.map, link.first, end, left)? };
            left = if users > 1 {
                left - 1
            } else {
                left.saturating_sub(self.rows(link.map, link.first, end)?.len().max(1))
            };
            self.drop_links(stream, link.first, end)?;
        }
        while left > 0 {
            let Some((stream, own)) = self.first_own(file)? else { break };
            let first = self.first_row(own)?.unwrap_or_default();
            let end = self.end_of(own, first, u64::MAX, left)?;
            left = left.saturating_sub(self.rows(own, first, end)?.len().max(1));
            self.unmap(stream, first, end)?;
        }
        if left > 0 {
            let mut maps = self.txn.open_table(MAPS).map_err(database_error)?;
            maps.remove_range((file, 0)..=(file, u32::MAX)).map_err(database_error)?;
            let mut orphans = self.txn.open_table(ORPHANS).map_err(database_error)?;
            orphans.remove(file).map_err(database_error)?;
            self.space.quotas.has_left(file);
        }
        Ok(())
    }

    /// Behind the first `limit` rows of `first..end`; `end` if there are no more.
    fn end_of(&self, (file, stream): MapKey, first: u64, end: u64, limit: usize) -> Result<u64, StoreError> {
        let table = self.txn.open_table(EXTENTS).map_err(database_error)?;
        let mut rows = table.range((file, stream, first)..(file, stream, end)).map_err(database_error)?;
        match rows.nth(limit) {
            Some(row) => Ok(row.map_err(database_error)?.0.value().2.max(first.saturating_add(1)).min(end)),
            None => Ok(end),
        }
    }

    /// The first link of any stream of a file.
    fn first_link(&self, file: u64) -> Result<Option<(StreamKey, Link)>, StoreError> {
        let table = self.txn.open_table(LINKS).map_err(database_error)?;
        let mut rows = table.range((file, 0, 0)..=(file, u32::MAX, u64::MAX)).map_err(database_error)?;
        let Some(row) = rows.next() else { return Ok(None) };
        let (key, value) = row.map_err(database_error)?;
        let ((_, stream, first), (map, of, count)) = (key.value(), value.value());
        Ok(Some(((file, stream), Link { first, end: first.saturating_add(count), map: (map, of) })))
    }

    /// A stream of a file that has extents of its own, with their map.
    fn first_own(&self, file: u64) -> Result<Option<(StreamKey, MapKey)>, StoreError> {
        for stream in self.streams_with_rows(file)? {
            let own = self.own_map((file, stream))?;
            if self.first_row(own)?.is_some() {
                return Ok(Some(((file, stream), own)));
            }
        }
        Ok(None)
    }

    /// The numbers of a file's streams that may have extents of their own.
    fn streams_with_rows(&self, file: u64) -> Result<Vec<u32>, StoreError> {
        let mut streams = Vec::new();
        {
            let maps = self.txn.open_table(MAPS).map_err(database_error)?;
            for row in maps.range((file, 0)..=(file, u32::MAX)).map_err(database_error)? {
                streams.push(row.map_err(database_error)?.0.value().1);
            }
        }
        let table = self.txn.open_table(EXTENTS).map_err(database_error)?;
        let mut from = 0;
        loop {
            let mut rows =
                table.range((file, from, 0)..=(file, u32::MAX, u64::MAX)).map_err(database_error)?;
            let Some(row) = rows.next() else { break };
            let stream = row.map_err(database_error)?.0.value().1;
            streams.push(stream);
            let Some(next) = stream.checked_add(1) else { break };
            from = next;
        }
        streams.sort_unstable();
        streams.dedup();
        Ok(streams)
    }

    /// The numbers of a file's streams that have extents, of their own or by links.
    pub(crate) fn streams_with_space(&self, file: u64) -> Result<Vec<u32>, StoreError> {
        let mut streams = Vec::new();
        for stream in self.streams_with_rows(file)? {
            if self.first_row(self.own_map((file, stream))?)?.is_some() {
                streams.push(stream);
            }
        }
        let table = self.txn.open_table(LINKS).map_err(database_error)?;
        for row in table.range((file, 0, 0)..=(file, u32::MAX, u64::MAX)).map_err(database_error)? {
            streams.push(row.map_err(database_error)?.0.value().1);
        }
        streams.sort_unstable();
        streams.dedup();
        Ok(streams)
    }
}
