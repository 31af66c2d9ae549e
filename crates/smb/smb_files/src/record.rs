//! The durable form of an open: what must be known to let its client reconnect after a restart.
//!
//! `docs/formats/smb_state.md` has the bytes. A record is small (a lock takes 17 bytes) and made anew for each change; how
//! records are named, batched and written is the server's affair.

mod codec;
mod restore;
#[cfg(test)]
mod tests;

use file_store::FileId;
use smb_protocol::Guid;
use smb_protocol::access::{AccessMask, CreateOptions, OplockLevel, ShareAccess};
use smb_protocol::create::lease::{LeaseKey, LeaseState};
use smb_security::Token;

use crate::api::OwnerId;

/// A lease in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Its key.
    pub key: LeaseKey,
    /// What it allows. Of one that was being broken, what it was: the client still believes in it until it has answered.
    pub state: LeaseState,
    /// Its epoch.
    pub epoch: u16,
    /// Whether it is of version 2.
    pub v2: bool,
    /// The parent's key, if it has one.
    pub parent: Option<LeaseKey>,
}

/// A locked byte range in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRecord {
    /// Its first byte.
    pub offset: u64,
    /// How many.
    pub length: u64,
    /// Whether it excludes others.
    pub exclusive: bool,
}

/// Everything about an open that outlives the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRecord {
    /// The file.
    pub file: FileId,
    /// The directory that it was in.
    pub parent: FileId,
    /// Its name there.
    pub name: String,
    /// The stream; empty for the unnamed one.
    pub stream: String,
    /// Who opened it: the user with groups and privileges of then.
    pub token: Token,
    /// The share's folder.
    pub root: FileId,
    /// What the share allowed.
    pub share_access_cap: AccessMask,
    /// Whether the share left out what the user may not read.
    pub access_based_enumeration: bool,
    /// Whether the share writes through.
    pub write_through: bool,
    /// The client.
    pub client: Guid,
    /// The user that the open belonged to.
    pub owner: OwnerId,
    /// Rights.
    pub granted: AccessMask,
    /// What it shares.
    pub share_access: ShareAccess,
    /// Options.
    pub options: CreateOptions,
    /// Its oplock.
    pub oplock: OplockLevel,
    /// Its lease.
    pub lease: Option<LeaseRecord>,
    /// Byte ranges.
    pub locks: Vec<LockRecord>,
    /// Whether it deletes the file when it is closed.
    pub delete_on_close: bool,
    /// Whether the file was to go with its last open.
    pub delete_pending: bool,
    /// The client's position.
    pub position: u64,
    /// Whether it is the virtual disk in the file that is open.
    pub disk: bool,
}
