//! What a file has that the store has no place for: extended attributes and reparse data.
//!
//! Each is a row of durable state with the file's number as key. Rows are written atomically, cost nothing where there are
//! none, and do not show up among the file's streams; a stream would take a cluster of data for a few bytes, and its
//! content could be torn. An attribute bit of the file says whether rows exist, so that listings ask for them only then. The
//! bit is set before its row is written and the file goes before its rows do: a crash between leaves a bit without a row,
//! which reads as empty, or a row without a file, whose number is never given out again.

use std::collections::BTreeSet;
use std::sync::Arc;

use file_store::{Attributes, FileId, FileInfo, FileKind, InfoChange, StateChange, StoreErrorKind};
use smb_protocol::access::FileAttributes;

use crate::error::Result;
use crate::file_system::{Core, Node};

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

fn key(file: FileId) -> Vec<u8> {
    file.0.to_be_bytes().to_vec()
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

    /// Whether a file has rows: its attributes say so, and those that cannot be read are taken for it.
    pub(crate) async fn may_have_extras(&self, node: &Node) -> bool {
        let bits = HAS_EA | FileAttributes::REPARSE_POINT;
        self.info(node).await.map_or(true, |info| FileAttributes(info.attributes.0).intersects(bits))
    }

    /// A name of the file is gone: if it was the last, so are its rows.
    pub(crate) async fn forget_extras_of_removed(self: &Arc<Self>, file: FileId) {
        let is_gone = match self.store.info(file).await {
            Ok(info) => info.names == 0,
            // A store that cannot say has not forgotten the file.
            Err(error) => error.kind() == StoreErrorKind::NotFound,
        };
        if is_gone {
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
