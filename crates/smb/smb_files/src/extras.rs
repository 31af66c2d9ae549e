//! What a file has that the store has no place for: extended attributes and reparse data, and what initiators hold of the virtual disk in it.
//!
//! Each is a row of durable state with the file's number as key. Rows are written atomically, cost nothing where there are
//! none, and do not show up among the file's streams; a stream would take a cluster of data for a few bytes, and its
//! content could be torn. An attribute bit of the file says whether rows exist, so that listings ask for them only then. The
//! bit is set before its row is written and the file goes before its rows do: a crash between leaves a bit without a row,
//! which reads as empty, or a row without a file, whose number is never given out again.

use std::collections::BTreeSet;
use std::sync::Arc;

use file_store::{
    Attributes, FileId, FileInfo, FileKind, InfoChange, RESERVATIONS_TABLE, StateChange, StoreErrorKind,
};
use smb_protocol::access::FileAttributes;

use crate::error::Result;
use crate::file_system::{Core, FileSystem, Node};

/// Table of extended attributes.
pub(crate) const EA_TABLE: &str = "smb_ea";
/// Table of reparse points.
pub(crate) const REPARSE_TABLE: &str = "smb_reparse";

/// Set while a file may have extended attributes: FILE_ATTRIBUTE_EA, which Windows uses for the same and does not show.
pub(crate) const HAS_EA: FileAttributes = FileAttributes(0x0004_0000);
/// Bits that are ours and not shown.
pub(crate) const INTERNAL: FileAttributes = HAS_EA;

/// A file's attributes as clients see them.
pub(crate) fn shown(info: &FileInfo) -> FileAttributes {
    let mut shown = FileAttributes(info.attributes.0).without(INTERNAL | FileAttributes::NORMAL);
    if info.kind == FileKind::Directory {
        shown |= FileAttributes::DIRECTORY;
    } else {
        shown = shown.without(FileAttributes::DIRECTORY);
    }
    if shown.is_empty() { FileAttributes::NORMAL } else { shown }
}

/// What the keys of rows begin with that speak of virtual disks in files, in the table of reservations.
const DISKS: &[u8; 4] = b"file";
/// A file with fewer bytes is no virtual disk.
const DISK_MIN: u64 = 1 << 20;

fn key(file: FileId) -> Vec<u8> {
    file.0.to_be_bytes().to_vec()
}

/// What the keys of a file's rows in the table of reservations begin with: of the virtual disk in it, which copies of the file have under the
/// same identity.
#[must_use]
pub fn disk_rows(file: FileId) -> Vec<u8> {
    [&DISKS[..], &file.0.to_be_bytes()].concat()
}

/// The file that a row speaks of by its key. Other rows of the table have the identity of a unit there, which is shorter.
fn file_of_disk_row(row: &[u8]) -> Option<FileId> {
    /// Of a unit's identity and the kind of the row.
    const REST: usize = 17;
    let (file, rest) = row.strip_prefix(DISKS)?.split_first_chunk()?;
    (rest.len() == REST).then_some(FileId(u64::from_be_bytes(*file)))
}

impl FileSystem {
    /// Removes rows of virtual disks whose files are gone, as their last names went by another way than this one. To be called when the
    /// volume has been opened.
    ///
    /// # Errors
    /// When the rows cannot be read or removed.
    pub async fn forget_disks_that_are_gone(&self) -> Result<()> {
        let core = &self.core;
        let (mut gone, mut last) = (Vec::new(), None);
        for row in core.store.state_scan(RESERVATIONS_TABLE, DISKS).await? {
            let Some(file) = file_of_disk_row(&row.key) else { continue };
            let is_gone = match last.filter(|(of, _)| *of == file) {
                Some((_, is_gone)) => is_gone,
                None => core.is_gone(file).await,
            };
            last = Some((file, is_gone));
            if is_gone {
                gone.push(StateChange { table: RESERVATIONS_TABLE.to_owned(), key: row.key, value: None });
            }
        }
        if !gone.is_empty() {
            core.store.state_write(gone).await?;
        }
        Ok(())
    }
}

impl Core {
    /// A row, if there is one.
    pub(crate) async fn extra(&self, table: &str, file: FileId) -> Result<Option<Vec<u8>>> {
        Ok(self.store.state_get(table, &key(file)).await?)
    }

    /// Writes a row or removes it; `bit` says that there is one.
    pub(crate) async fn set_extra(
        &self,
        node: &Node,
        table: &str,
        bit: FileAttributes,
        value: Option<Vec<u8>>,
    ) -> Result<()> {
        let change = StateChange { table: table.to_owned(), key: key(node.file), value };
        let present = change.value.is_some();
        if present {
            self.set_bit(node, bit, true).await?;
            self.store.state_write(vec![change]).await?;
        } else {
            self.store.state_write(vec![change]).await?;
            self.set_bit(node, bit, false).await?;
        }
        Ok(())
    }

    async fn set_bit(&self, node: &Node, bit: FileAttributes, on: bool) -> Result<()> {
        let info = self.store.info(node.file).await?;
        let old = FileAttributes(info.attributes.0);
        let new = if on { old | bit } else { old.without(bit) };
        if new != old {
            let change = InfoChange { attributes: Some(Attributes(new.0)), ..InfoChange::default() };
            self.store.set_info(node.file, change).await?;
        }
        node.touched();
        Ok(())
    }

    /// Whether a file has rows: its attributes say so, or it may be a virtual disk; those that cannot be read are taken for it.
    pub(crate) async fn may_have_extras(&self, node: &Node) -> bool {
        let bits = HAS_EA | FileAttributes::REPARSE_POINT;
        let has =
            |info: FileInfo| info.size >= DISK_MIN || FileAttributes(info.attributes.0).intersects(bits);
        self.info(node).await.map_or(true, has)
    }

    /// Whether the last name of a file is gone.
    async fn is_gone(&self, file: FileId) -> bool {
        match self.store.info(file).await {
            Ok(info) => info.names == 0,
            // A store that cannot say has not forgotten the file.
            Err(error) => error.kind() == StoreErrorKind::NotFound,
        }
    }

    /// A name of the file is gone: if it was the last, so are its rows.
    pub(crate) async fn forget_extras_of_removed(self: &Arc<Self>, file: FileId) {
        if self.is_gone(file).await {
            self.forget_extras(file).await;
        }
    }

    /// The file is gone: so are its rows.
    async fn forget_extras(self: &Arc<Self>, file: FileId) {
        let mut changes = Vec::new();
        for table in [EA_TABLE, REPARSE_TABLE] {
            if matches!(self.extra(table, file).await, Ok(Some(_))) {
                changes.push(StateChange { table: table.to_owned(), key: key(file), value: None });
            }
        }
        // What cannot be read now goes when the volume is opened next.
        let of_disk = self.store.state_scan(RESERVATIONS_TABLE, &disk_rows(file)).await.unwrap_or_default();
        changes.extend(
            of_disk.into_iter().filter(|row| file_of_disk_row(&row.key).is_some()).map(|row| StateChange {
                table: RESERVATIONS_TABLE.to_owned(),
                key: row.key,
                value: None,
            }),
        );
        if !changes.is_empty()
            && let Err(error) = self.store.state_write(changes).await
        {
            tracing::warn!("attributes of a deleted file stay behind: {error}");
        }
        if let Some(known) = self.reparse.lock().as_mut() {
            known.remove(&file);
        }
    }

    /// Whether a file is a reparse point: known for all files of the volume once the first was asked for, as every
    /// component of every path asks.
    pub(crate) async fn is_reparse_point(&self, file: FileId) -> Result<bool> {
        if let Some(known) = &*self.reparse.lock() {
            return Ok(known.contains(&file));
        }
        let rows = self.store.state_scan(REPARSE_TABLE, &[]).await?;
        let ids = rows.iter().filter_map(|row| Some(FileId(u64::from_be_bytes(*row.key.first_chunk()?))));
        let known: BTreeSet<FileId> = ids.collect();
        let found = known.contains(&file);
        let mut place = self.reparse.lock();
        if place.is_none() {
            *place = Some(known);
        }
        Ok(found)
    }

    /// The buffer of a reparse point.
    pub(crate) async fn reparse_data(&self, file: FileId) -> Result<Option<Vec<u8>>> {
        self.extra(REPARSE_TABLE, file).await
    }
}
