//! The schema of the metadata database.
//!
//! | table | key | value |
//! |---|---|---|
//! | `inodes` | file | `Inode` |
//! | `entries` | directory, name in upper case | `Entry` |
//! | `extents` | file, stream, first cluster of the stream | first cluster of the device, count, flags |
//! | `shares` | first cluster of the device | count, number of users (two or more) |
//! | `freed` | first cluster of the device | count: not used any more, not yet zero |
//! | `orphans` | file | nothing: removed but open |
//! | `security` | file | security descriptor |
//! | `state` | table, key | durable state of the layers above |
//! | `counters` | name | number |

use redb::TableDefinition;

pub(crate) type ExtentKey = (u64, u32, u64);
/// Device cluster, count, flags ([`SHARED`]).
pub(crate) type ExtentValue = (u64, u64, u8);

pub(crate) const INODES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("inodes");
pub(crate) const ENTRIES: TableDefinition<'_, (u64, &str), &[u8]> = TableDefinition::new("entries");
pub(crate) const EXTENTS: TableDefinition<'_, ExtentKey, ExtentValue> = TableDefinition::new("extents");
pub(crate) const SHARES: TableDefinition<'_, u64, (u64, u32)> = TableDefinition::new("shares");
pub(crate) const FREED: TableDefinition<'_, u64, u64> = TableDefinition::new("freed");
pub(crate) const ORPHANS: TableDefinition<'_, u64, ()> = TableDefinition::new("orphans");
pub(crate) const SECURITY: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("security");
pub(crate) const STATE: TableDefinition<'_, (&str, &[u8]), &[u8]> = TableDefinition::new("state");
pub(crate) const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");

/// Their names.
pub(crate) const TABLES: [&str; 9] =
    ["inodes", "entries", "extents", "shares", "freed", "orphans", "security", "state", "counters"];

/// Extent flag: the clusters may have other users; a write must look first.
pub(crate) const SHARED: u8 = 1;
/// Counter: clusters below this number have been zero, and are free or used since.
pub(crate) const ZERO_UNTIL: &str = "zero_until";
/// Counter: the next file's number.
pub(crate) const NEXT_FILE: &str = "next_file";
/// The root directory.
pub(crate) const ROOT: u64 = 1;
