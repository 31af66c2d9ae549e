//! A disk as discovery finds it, and what is on it.

use control_api::{DiskLogin, MediaType};
use uuid::Uuid;

/// A disk that discovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundDisk {
    /// Stable identity.
    pub id: String,
    /// Where it is now.
    pub path: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// What it is made of.
    pub media: MediaType,
    /// Model.
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// Vendor.
    pub vendor: Option<String>,
    /// Bus.
    pub bus: Option<String>,
    /// Enclosure.
    pub enclosure: Option<String>,
    /// Slot.
    pub slot: Option<String>,
    /// What of this machine uses it, if something does.
    pub in_use_by: Option<String>,
    /// How to log in to its target, for a unit of one that asks for it.
    pub login: Option<DiskLogin>,
}

/// What is on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskContent {
    /// Nothing that is known.
    Empty,
    /// A member of a pool.
    Member {
        /// The pool's name when it was written.
        pool_name: String,
        /// The pool.
        pool: Uuid,
        /// The disk.
        disk: Uuid,
    },
    /// Something else ("GPT partition table").
    Foreign(String),
}
