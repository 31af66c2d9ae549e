//! The schema of the metadata database.
//!
//! | table | key | value |
//! |---|---|---|
//! | `inodes` | file | `Inode`; names beside the first are in it (`names.rs`) |
//! | `entries` | directory, name in upper case | `Entry` |
//! | `extents` | map, first cluster of the stream | first cluster of the device, count, flags |
//! | `maps` | file, stream | map that its own extents are in; without a row it is that of its own number |
//! | `links` | file, stream, first cluster of the stream | map that the extents of these clusters are in, count |
//! | `uses` | map, first cluster of the stream | count, number of links (one or more) |
//! | `snapshots` | number | `SnapshotRecord` |
//! | `shares` | first cluster of the device | count, number of users (two or more) |
//! | `freed` | first cluster of the device | count: not used any more, not yet zero |
//! | `orphans` | file | nothing: removed but open |
//! | `security` | file | security descriptor |
//! | `state` | table, key | durable state of the layers above |
//! | `counters` | name | number |
//!
//! "Upper case" is `file_store::names::fold`; what older releases had in its place, and how it becomes this: `folding.rs`.

use std::collections::BTreeSet;

use file_store::{StoreError, StoreErrorKind};
use redb::{TableHandle, WriteTransaction};
use volume_format::Table;

use crate::database_error::database_error;
use crate::rows::Rows;

pub(crate) type ExtentKey = (u64, u32, u64);
/// Device cluster, count, flags ([`SHARED`]).
pub(crate) type ExtentValue = (u64, u64, u8);

/// A stream of a file.
pub(crate) type StreamKey = (u64, u32);
/// A map is numbered as a stream is: file (or a number that no file has), stream.
pub(crate) type MapKey = (u64, u32);
/// Map, count.
pub(crate) type LinkValue = (u64, u32, u64);

pub(crate) const MAPS: Rows<(u64, u32), (u64, u32)> = Rows::new(Table::Maps, "maps");
pub(crate) const LINKS: Rows<ExtentKey, LinkValue> = Rows::new(Table::Links, "links");
pub(crate) const USES: Rows<ExtentKey, (u64, u32)> = Rows::new(Table::Uses, "uses");
pub(crate) const SNAPSHOTS: Rows<u64, &'static [u8]> = Rows::new(Table::Snapshots, "snapshots");
pub(crate) const INODES: Rows<u64, &'static [u8]> = Rows::new(Table::Inodes, "inodes");
pub(crate) const ENTRIES: Rows<(u64, &'static str), &'static [u8]> = Rows::new(Table::Entries, "entries");
pub(crate) const EXTENTS: Rows<ExtentKey, ExtentValue> = Rows::new(Table::Extents, "extents");
pub(crate) const SHARES: Rows<u64, (u64, u32)> = Rows::new(Table::Shares, "shares");
pub(crate) const FREED: Rows<u64, u64> = Rows::new(Table::Freed, "freed");
pub(crate) const ORPHANS: Rows<u64, ()> = Rows::new(Table::Orphans, "orphans");
pub(crate) const SECURITY: Rows<u64, &'static [u8]> = Rows::new(Table::Security, "security");
pub(crate) const STATE: Rows<(&'static str, &'static [u8]), &'static [u8]> = Rows::new(Table::State, "state");
pub(crate) const COUNTERS: Rows<&'static str, u64> = Rows::new(Table::Counters, "counters");

/// The names of those that every volume has.
pub(crate) const TABLES: [&str; 9] =
    ["inodes", "entries", "extents", "shares", "freed", "orphans", "security", "state", "counters"];

/// Those that come with [`volume_format::FEATURE_SNAPSHOTS`].
pub(crate) const SNAPSHOT_TABLES: [&str; 4] = ["maps", "links", "uses", "snapshots"];

/// Extent flag: the clusters may have other users; a write must look first.
pub(crate) const SHARED: u8 = 1;
/// Counter: clusters below this number have been zero, and are free or used since.
pub(crate) const ZERO_UNTIL: &str = "zero_until";
/// Counter: the next file's number, which is also that of the next map, and of the next snapshot.
pub(crate) const NEXT_FILE: &str = "next_file";
/// Counter: how the names of `entries` are folded: [`FOLDED_AS_NTFS`], or missing where an older release has made some.
pub(crate) const NAMES: &str = "names";
/// Value of [`NAMES`]: all of them are folded by `file_store::names::fold`.
pub(crate) const FOLDED_AS_NTFS: u64 = 1;
/// Counters: which batches of the metadata log are newer than the database. Those of this epoch and nonce with a sequence
/// number above this one.
pub(crate) const LOG_EPOCH: &str = "log_epoch";
pub(crate) const LOG_NONCE: &str = "log_nonce";
pub(crate) const LOG_SEQUENCE: &str = "log_sequence";
/// Counter: equal to [`LOG_SEQUENCE`] where nothing in the log is newer than the database; missing while the log is in use.
pub(crate) const LOG_CLOSED: &str = "log_closed";
/// The root directory.
pub(crate) const ROOT: u64 = 1;

/// Makes all tables, so that reading one that was never written is no special case.
pub(crate) fn make_tables(txn: &WriteTransaction) -> Result<(), StoreError> {
    let all = || -> Result<(), redb::TableError> {
        txn.open_table(INODES.definition)?;
        txn.open_table(ENTRIES.definition)?;
        txn.open_table(EXTENTS.definition)?;
        txn.open_table(MAPS.definition)?;
        txn.open_table(LINKS.definition)?;
        txn.open_table(USES.definition)?;
        txn.open_table(SNAPSHOTS.definition)?;
        txn.open_table(SHARES.definition)?;
        txn.open_table(FREED.definition)?;
        txn.open_table(ORPHANS.definition)?;
        txn.open_table(SECURITY.definition)?;
        txn.open_table(STATE.definition)?;
        txn.open_table(COUNTERS.definition)?;
        Ok(())
    };
    all().map_err(database_error)
}

/// The tables that are there. Opening one makes it, so this is asked before.
///
/// # Errors
/// When the database cannot be read.
pub(crate) fn tables_of(txn: &WriteTransaction) -> Result<BTreeSet<String>, StoreError> {
    let names = txn.list_tables().map_err(database_error)?;
    Ok(names.map(|table| table.name().to_owned()).collect())
}

/// All tables are there.
///
/// # Errors
/// [`StoreErrorKind::Corrupt`] when one is missing.
pub(crate) fn check_tables(txn: &WriteTransaction) -> Result<(), StoreError> {
    let there = tables_of(txn)?;
    match TABLES.into_iter().chain(SNAPSHOT_TABLES).find(|name| !there.contains(*name)) {
        Some(missing) => {
            let detail = format!("the table {missing} is missing; `volume check` says what that means");
            Err(StoreError::new(StoreErrorKind::Corrupt, detail))
        }
        None => Ok(()),
    }
}
