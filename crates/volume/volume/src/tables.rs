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

use redb::TableDefinition;

pub(crate) type ExtentKey = (u64, u32, u64);
/// Device cluster, count, flags ([`SHARED`]).
pub(crate) type ExtentValue = (u64, u64, u8);

/// A map is numbered as a stream is: file (or a number that no file has), stream.
pub(crate) type MapKey = (u64, u32);
/// Map, count.
pub(crate) type LinkValue = (u64, u32, u64);

pub(crate) const MAPS: TableDefinition<'_, (u64, u32), (u64, u32)> = TableDefinition::new("maps");
pub(crate) const LINKS: TableDefinition<'_, ExtentKey, LinkValue> = TableDefinition::new("links");
pub(crate) const USES: TableDefinition<'_, ExtentKey, (u64, u32)> = TableDefinition::new("uses");
pub(crate) const SNAPSHOTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("snapshots");
pub(crate) const INODES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("inodes");
pub(crate) const ENTRIES: TableDefinition<'_, (u64, &str), &[u8]> = TableDefinition::new("entries");
pub(crate) const EXTENTS: TableDefinition<'_, ExtentKey, ExtentValue> = TableDefinition::new("extents");
pub(crate) const SHARES: TableDefinition<'_, u64, (u64, u32)> = TableDefinition::new("shares");
pub(crate) const FREED: TableDefinition<'_, u64, u64> = TableDefinition::new("freed");
pub(crate) const ORPHANS: TableDefinition<'_, u64, ()> = TableDefinition::new("orphans");
pub(crate) const SECURITY: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("security");
pub(crate) const STATE: TableDefinition<'_, (&str, &[u8]), &[u8]> = TableDefinition::new("state");
pub(crate) const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");

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
/// The root directory.
pub(crate) const ROOT: u64 = 1;
