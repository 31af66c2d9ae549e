//! Maps: whose they are, who links to them, and how often that is counted.

use std::collections::{BTreeMap, BTreeSet};

use file_store::StoreError;
use redb::ReadableTable;

use super::Examination;
use super::counters::FILE_MAX;
use crate::database_error::database_error;
use crate::extents::END;
use crate::finding::Severity;
use crate::session::Session;
use crate::tables::{EXTENTS, ExtentKey, LINKS, LinkValue, MAPS, MapKey, StreamKey, USES};

const MAP: &str = "map";
const LINK: &str = "link";
const USE: &str = "use count";
const RECOUNTED: Option<&str> = Some("the counts are made anew from the links");

/// Whose maps are.
#[derive(Default)]
pub(super) struct Maps {
    /// The maps of streams that have another than that of their own number.
    moved: BTreeMap<StreamKey, MapKey>,
    /// The same, the other way round.
    owners: BTreeMap<MapKey, StreamKey>,
    /// Maps that are linked to.
    frozen: BTreeSet<MapKey>,
}

impl Maps {
    /// Whether streams link to the map.
    pub(super) fn is_frozen(&self, map: MapKey) -> bool {
        self.frozen.contains(&map)
    }

    /// The stream whose own map this is; `None` for one that no stream has, whose number a stream may have.
    pub(super) fn owner(&self, map: MapKey) -> Option<StreamKey> {
        match self.owners.get(&map) {
            Some(stream) => Some(*stream),
            None if self.moved.contains_key(&map) => None,
            None => Some(map),
        }
    }
}

type UseRow = (MapKey, u64, u64, u32);

impl Session<'_> {
    pub(super) fn link_rows(&self) -> Result<Vec<(ExtentKey, LinkValue)>, StoreError> {
        let table = self.txn.open_table(LINKS).map_err(database_error)?;
        let rows = table.iter().map_err(database_error)?.map(|row| {
            let (key, value) = row.map_err(database_error)?;
            Ok((key.value(), value.value()))
        });
        rows.collect()
    }

    fn use_rows(&self) -> Result<Vec<UseRow>, StoreError> {
        let table = self.txn.open_table(USES).map_err(database_error)?;
        let rows = table.iter().map_err(database_error)?.map(|row| {
            let (key, value) = row.map_err(database_error)?;
            let ((file, stream, first), (count, users)) = (key.value(), value.value());
            Ok(((file, stream), first, first.saturating_add(count), users))
        });
        rows.collect()
    }

    /// Whether the map has any row.
    fn has_row(&self, (file, stream): MapKey) -> Result<bool, StoreError> {
        let table = self.txn.open_table(EXTENTS).map_err(database_error)?;
        let mut rows = table.range((file, stream, 0)..=(file, stream, u64::MAX)).map_err(database_error)?;
        Ok(rows.next().is_some())
    }
}

impl Examination<'_, '_> {
    /// Every map is one stream's at most.
    pub(super) fn maps(&mut self) -> Result<(), StoreError> {
        let mut rows: Vec<(StreamKey, MapKey)> = Vec::new();
        {
            let table = self.session.txn.open_table(MAPS).map_err(database_error)?;
            for row in table.iter().map_err(database_error)? {
                let (key, value) = row.map_err(database_error)?;
                rows.push((key.value(), value.value()));
            }
        }
        for (stream, map) in rows {
            let place = format!("of file {}, stream {}", stream.0, stream.1);
            let taken =
                self.maps.owners.contains_key(&map) || self.inodes.contains_key(&map.0) && map != stream;
            // What is there by its own number is then the stream's again; extents of nobody are found below.
            if taken || map.0 > FILE_MAX {
                let detail = format!("is map {}, which is another's or cannot be", map.0);
                self.note(Severity::Critical, MAP, place, detail, Some("it gets a new, empty map"));
                if self.repair {
                    let fresh = (self.session.new_number()?, 0);
                    let mut table = self.session.txn.open_table(MAPS).map_err(database_error)?;
                    table.insert(stream, fresh).map_err(database_error)?;
                    self.maps.moved.insert(stream, fresh);
                    self.maps.owners.insert(fresh, stream);
                }
                continue;
            }
            // A stream that is gone keeps its row as long as the file: its number is not a map of its own again.
            let known = self.inodes.contains_key(&stream.0) || self.orphans.contains(&stream.0);
            if !known && !self.session.has_row(map)? {
                self.note(Severity::Warning, MAP, place, "belongs to no file", Some("it is removed"));
                if self.repair {
                    let mut table = self.session.txn.open_table(MAPS).map_err(database_error)?;
                    table.remove(stream).map_err(database_error)?;
                    continue;
                }
            }
            self.maps.moved.insert(stream, map);
            self.maps.owners.insert(map, stream);
        }
        Ok(())
    }

    /// Links are in order, belong to streams, and lead where nothing changes.
    pub(super) fn links(&mut self) -> Result<(), StoreError> {
        let rows = self.session.link_rows()?;
        let mut last: Option<(StreamKey, u64)> = None;
        let mut streams = BTreeSet::new();
        for ((file, number, first), (map, of, count)) in rows {
            let (stream, end) = ((file, number), first.saturating_add(count));
            let place = format!("{}, stream {number}, from cluster {first}", self.name_of(file));
            let behind = last.filter(|(of, _)| *of == stream).map_or(0, |(_, end)| end);
            let wrong = if count == 0 {
                Some((Severity::Warning, "has no clusters", "it is removed"))
            } else if end > END || map > FILE_MAX {
                Some((Severity::Critical, "reaches beyond what can be", "it is removed, and reads as zeros"))
            } else if first < behind {
                Some((
                    Severity::Critical,
                    "overlaps the link before it",
                    "it is removed; the one before counts",
                ))
            } else {
                None
            };
            if let Some((severity, detail, how)) = wrong {
                self.note(severity, LINK, place, detail, Some(how));
                if self.repair {
                    let mut table = self.session.txn.open_table(LINKS).map_err(database_error)?;
                    table.remove((file, number, first)).map_err(database_error)?;
                }
                continue;
            }
            last = Some((stream, end));
            streams.insert(stream);
            self.maps.frozen.insert((map, of));
        }
        for stream in &streams {
            self.stream_owner(*stream)?;
            self.beside_links(*stream)?;
        }
        // A stream that goes on changing its own map would change what others link to.
        for map in self.maps.frozen.clone() {
            let Some(owner) = self.maps.owner(map).filter(|owner| self.has_stream(*owner)) else { continue };
            let place = format!("of file {}, stream {}", owner.0, owner.1);
            let detail = format!("is map {}, which others link to", map.0);
            self.note(
                Severity::Critical,
                MAP,
                place,
                detail,
                Some("it becomes one that all of them link to"),
            );
            if self.repair {
                self.session.freeze(owner)?;
                if self.session.own_map(owner)? == map {
                    // An empty one.
                    let fresh = (self.session.new_number()?, 0);
                    let mut table = self.session.txn.open_table(MAPS).map_err(database_error)?;
                    table.insert(owner, fresh).map_err(database_error)?;
                }
                let moved = self.session.own_map(owner)?;
                self.maps.moved.insert(owner, moved);
                self.maps.owners.remove(&map);
                self.maps.owners.insert(moved, owner);
            }
        }
        self.uses()
    }

    pub(super) fn has_stream(&self, (file, stream): StreamKey) -> bool {
        self.inodes.get(&file).is_some_and(|inode| inode.streams.iter().any(|record| record.id == stream))
    }

    /// A stream's own extents and its links do not overlap.
    fn beside_links(&mut self, stream: StreamKey) -> Result<(), StoreError> {
        let own = self.maps.moved.get(&stream).copied().unwrap_or(stream);
        if self.maps.is_frozen(own) {
            // Told elsewhere.
            return Ok(());
        }
        for extent in self.session.rows(own, 0, u64::MAX)? {
            if self.session.links(stream, extent.first, extent.end())?.is_empty() {
                continue;
            }
            let place =
                format!("{}, stream {}, from cluster {}", self.name_of(stream.0), stream.1, extent.first);
            let how = Some("its own extent becomes a file in /lost+found");
            self.note(Severity::Critical, LINK, place, "is where the stream has an extent of its own", how);
            self.rows_aside(own, extent.first, extent.end())?;
        }
        Ok(())
    }

    /// Counts of links are those that there are, and nothing is where nobody links.
    fn uses(&mut self) -> Result<(), StoreError> {
        let mut edges: Vec<(MapKey, u64, i64)> = Vec::new();
        for ((.., first), (map, of, count)) in self.session.link_rows()? {
            edges.push(((map, of), first, 1));
            edges.push(((map, of), first.saturating_add(count), -1));
        }
        let counted = joined(sweep(edges));
        let rows = self.session.use_rows()?;
        if joined(rows.clone()) != counted {
            let known: BTreeSet<&UseRow> = rows.iter().collect();
            let place = counted.iter().find(|row| !known.contains(row)).or(rows.first());
            let place = place
                .map_or_else(String::new, |row| format!("map {}, clusters {}..{}", row.0.0, row.1, row.2));
            let detail = "links and their counts differ: clusters would be freed too early, or never";
            self.note(Severity::Critical, USE, place, detail, RECOUNTED);
            if self.repair {
                self.session.changed = true;
                let mut table = self.session.txn.open_table(USES).map_err(database_error)?;
                table.clear().map_err(database_error)?;
                for (map, first, end, users) in &counted {
                    table.insert((map.0, map.1, *first), (end - first, *users)).map_err(database_error)?;
                }
            }
        }
        self.unlinked(&counted)
    }

    /// A frozen map has nothing where nobody links to it.
    fn unlinked(&mut self, counted: &[UseRow]) -> Result<(), StoreError> {
        for map in self.maps.frozen.clone() {
            let mut at = 0;
            let mut gaps = Vec::new();
            for (_, first, end, _) in counted.iter().filter(|row| row.0 == map) {
                gaps.push((at, *first));
                at = *end;
            }
            gaps.push((at, u64::MAX));
            for (first, end) in gaps.into_iter().filter(|(first, end)| first < end) {
                // Rows of a stream that is about to be frozen are its own, and were told about.
                let owned = self.maps.owner(map).is_some_and(|owner| self.has_stream(owner));
                let rows = self.session.rows(map, first, end)?;
                if rows.is_empty() || owned {
                    continue;
                }
                let place = format!("map {}, clusters {first}..", map.0);
                let detail = "has extents that nobody links to";
                self.note(Severity::Critical, MAP, place, detail, Some("they become a file in /lost+found"));
                self.rows_aside(map, first, end)?;
            }
        }
        Ok(())
    }
}

/// Ranges with how often they are covered, from where cover begins and ends.
fn sweep(mut edges: Vec<(MapKey, u64, i64)>) -> Vec<UseRow> {
    edges.sort_unstable();
    let (mut rows, mut depth) = (Vec::new(), 0i64);
    let mut before: Option<(MapKey, u64)> = None;
    for (map, at, step) in edges {
        if let Some((of, from)) = before
            && of == map
            && at > from
            && depth > 0
        {
            rows.push((map, from, at, u32::try_from(depth).unwrap_or(u32::MAX)));
        }
        depth += step;
        before = Some((map, at));
    }
    rows
}

/// Neighbours that say the same, as one.
fn joined(rows: Vec<UseRow>) -> Vec<UseRow> {
    let mut all: Vec<UseRow> = Vec::new();
    for row in rows {
        match all.last_mut() {
            Some(last) if (last.0, last.2, last.3) == (row.0, row.1, row.3) => last.2 = row.2,
            _ => all.push(row),
        }
    }
    all
}
