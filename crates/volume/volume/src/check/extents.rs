//! Extents: each belongs to a stream, and no two of a stream overlap.

use std::collections::{BTreeMap, BTreeSet};

use file_store::{FILE_SIZE_MAX, StoreError};
use volume_format::{CLUSTER, StreamRecord};

use super::Examination;
use super::clusters::EXTENT;
use super::counters::FILE_MAX;
use super::names::recovered;
use crate::database_error::database_error;
use crate::extents::Extent;
use crate::finding::Severity;
use crate::tables::{EXTENTS, ExtentKey, MapKey, SHARED, StreamKey};

/// Clusters that a file can reach.
const REACH: u64 = FILE_SIZE_MAX.div_ceil(CLUSTER);

impl Examination<'_, '_> {
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
        // By key, as they lie in the table: what is left of an extent takes its turn among those that follow.
        let mut rows: BTreeMap<ExtentKey, Extent> = rows.into_iter().collect();
        while let Some((key, extent)) = rows.pop_first() {
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
                        let rest = self.set_aside(key, extent, end, &rows)?;
                        rows.extend(rest.map(|rest| ((key.0, key.1, rest.first), rest)));
                    } else {
                        last = Some((stream, end.max(extent.end())));
                    }
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

    /// Moves what of an extent lies before `end` to a new file, and leaves the rest, if there is any. `following` are the
    /// rows behind it: where one of them begins just there, its part goes to the new file, too.
    fn set_aside(
        &mut self,
        key: ExtentKey,
        extent: Extent,
        end: u64,
        following: &BTreeMap<ExtentKey, Extent>,
    ) -> Result<Option<Extent>, StoreError> {
        self.replace_row(key, None)?;
        let mut cut = end;
        while let Some(other) = following.get(&(key.0, key.1, cut)).filter(|other| other.count > 0) {
            cut = other.end();
        }
        let file = self.new_file()?;
        let aside = extent.part(extent.first, cut.min(extent.end()));
        self.session.insert_extents((file, 0), &[aside])?;
        let rest = (extent.end() > cut).then(|| extent.part(cut, extent.end()));
        self.session.put_rows((key.0, key.1), rest.as_slice())?;
        self.recover_inode(file, None)?;
        self.rescue(file)?;
        Ok(rest)
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
}
