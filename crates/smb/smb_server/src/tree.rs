//! Tree connects: a session's use of a share.

use std::sync::Arc;

use smb_files::{FileSystem, ShareRoot};
use smb_protocol::access::AccessMask;
use smb_security::Token;

use crate::config::{ShareConfig, SharePermission, ShareRight};
use crate::share::Share;

/// What is connected to.
#[derive(Clone)]
pub(crate) enum Target {
    /// A folder of a volume.
    Disk(Disk),
    /// IPC$: named pipes.
    Pipes,
}

/// A folder of a volume, as it was found when the client connected.
#[derive(Clone)]
pub(crate) struct Disk {
    pub(crate) share: Arc<Share>,
    pub(crate) files: FileSystem,
    /// The folder, and what this user may do there at most.
    pub(crate) root: Arc<ShareRoot>,
}

/// A tree connect.
pub(crate) struct Tree {
    pub(crate) id: u32,
    pub(crate) target: Target,
    /// What the user may do over it at most.
    pub(crate) maximal_access: AccessMask,
    /// Whether everything over it must be encrypted.
    pub(crate) encrypt: bool,
    /// When the client connected, in nanoseconds since 1970.
    pub(crate) since: u64,
}

impl Tree {
    /// What is connected to, for listings.
    pub(crate) fn share_name(&self) -> String {
        self.share().map_or_else(|| "IPC$".to_owned(), |share| share.config().name.clone())
    }

    pub(crate) fn share(&self) -> Option<&Arc<Share>> {
        match &self.target {
            Target::Disk(disk) => Some(&disk.share),
            Target::Pipes => None,
        }
    }
}

/// What the permissions of a share let a user do at most; `None` when nothing.
pub(crate) fn maximal_access(config: &ShareConfig, token: &Token) -> Option<AccessMask> {
    let right = |permission: &SharePermission| token.is(&permission.who).then_some(permission.right);
    let best = config.permissions.iter().filter_map(right).max()?;
    let mask = match best {
        ShareRight::Read => AccessMask::FILE_READ.union(AccessMask::FILE_EXECUTE),
        ShareRight::Change => AccessMask::FILE_ALL.without(AccessMask::WRITE_DAC | AccessMask::WRITE_OWNER),
        ShareRight::Full => AccessMask::FILE_ALL.union(AccessMask::ACCESS_SYSTEM_SECURITY),
    };
    if config.read_only {
        return Some(mask & AccessMask::FILE_READ.union(AccessMask::FILE_EXECUTE));
    }
    Some(mask)
}
