//! A share's information at its levels (MS-SRVS 2.2.4.22 to 2.2.4.34, 2.2.3.6).

use smb_protocol::security::descriptor::SecurityDescriptor;

use super::enumeration::{Entry, size_of};
use crate::error::{Fault, Win32};
use crate::ndr::{NdrIn, NdrOut};
use crate::view::{NewShare, Share, ShareChange, ShareKind, share_flag};

/// What has no limit.
const UNLIMITED: u32 = u32::MAX;
/// STYPE_IPC, STYPE_CLUSTER_FS, STYPE_CLUSTER_SOFS, STYPE_SPECIAL (MS-SRVS 2.2.2.4).
const TYPE_IPC: u32 = 3;
const TYPE_CLUSTER_FS: u32 = 0x0200_0000;
const TYPE_CLUSTER_SOFS: u32 = 0x0400_0000;
const TYPE_SPECIAL: u32 = 0x8000_0000;
/// What a client may set (MS-SRVS 3.1.4.11): not what the server or DFS says of a share.
const SETTABLE: u32 = share_flag::CSC_MASK
    | share_flag::RESTRICT_EXCLUSIVE_OPENS
    | share_flag::FORCE_SHARED_DELETE
    | share_flag::ALLOW_NAMESPACE_CACHING
    | share_flag::ACCESS_BASED_ENUMERATION
    | share_flag::FORCE_LEVEL_II
    | share_flag::ENABLE_HASH
    | share_flag::CONTINUOUSLY_AVAILABLE
    | share_flag::ENCRYPT_DATA;

/// Levels that the union of single shares has.
pub(super) const LEVELS: [u32; 11] = [0, 1, 2, 501, 502, 503, 1004, 1005, 1006, 1007, 1501];
/// Levels that enumerations have.
pub(super) const ENUM_LEVELS: [u32; 6] = [0, 1, 2, 501, 502, 503];

/// Whether this level is for administrators only: paths and descriptors are not for everybody (MS-SRVS 3.1.4.8,
/// 3.1.4.10).
pub(super) fn is_for_administrators(level: u32) -> bool {
    matches!(level, 2 | 502 | 503 | 1006 | 1501)
}

/// The type of a share, with its attribute.
pub(super) fn share_type(share: &Share) -> u32 {
    kind(share.kind) | if share.special { TYPE_SPECIAL } else { 0 }
}

/// STYPE_DISKTREE, with what says that it is a cluster's, or STYPE_IPC.
pub(super) fn kind(kind: ShareKind) -> u32 {
    match kind {
        ShareKind::Disk => 0,
        ShareKind::ClusterDisk => TYPE_CLUSTER_FS,
        ShareKind::ScaleOutDisk => TYPE_CLUSTER_SOFS,
        ShareKind::Ipc => TYPE_IPC,
    }
}

impl Entry for Share {
    fn put(&self, level: u32, out: &mut NdrOut) {
        match level {
            1004 => return out.wide(&self.comment),
            1005 => return out.u32(self.flags),
            1006 => return out.u32(self.max_uses.unwrap_or(UNLIMITED)),
            1007 => {
                out.u32(self.flags);
                return out.wide("");
            }
            1501 => return put_security(self, out),
            _ => {}
        }
        out.wide(&self.name);
        if level == 0 {
            return;
        }
        out.u32(share_type(self));
        out.wide(&self.comment);
        if level == 501 {
            return out.u32(self.flags);
        }
        if !matches!(level, 2 | 502 | 503) {
            return;
        }
        // Permissions of share-level security, which there is none of.
        out.u32(0);
        out.u32(self.max_uses.unwrap_or(UNLIMITED));
        out.u32(self.current_uses);
        out.wide(&self.path);
        // No password.
        out.pointer(false);
        if level == 503 {
            // The scope: all names of this server.
            out.wide("*");
        }
        if level != 2 {
            put_security(self, out);
        }
    }

    fn size(&self, level: u32) -> usize {
        let security =
            if matches!(level, 502 | 503) { self.security.as_ref().map_or(0, Vec::len) } else { 0 };
        size_of(&[&self.name, &self.comment, &self.path]) + security
    }
}

fn put_security(share: &Share, out: &mut NdrOut) {
    let security = share.security.as_deref().filter(|bytes| !bytes.is_empty());
    out.count(security.map_or(0, <[u8]>::len));
    out.bytes(security);
}

/// What a client says of a share at a level.
#[derive(Clone, Debug, Default)]
pub(super) struct Given {
    pub(super) name: Option<String>,
    kind: u32,
    comment: Option<String>,
    max_uses: Option<u32>,
    path: Option<String>,
    flags: Option<u32>,
    security: Option<Vec<u8>>,
}

impl Given {
    /// Takes the union of level, pointer and structure. `None` when the level is unknown or nothing is given.
    pub(super) fn take(r: &mut NdrIn<'_>, level: u32) -> Result<Option<Self>, Fault> {
        if r.u32()? != level {
            return Err(Fault::BAD_STUB_DATA);
        }
        if !LEVELS.contains(&level) || !r.pointer()? {
            return Ok(None);
        }
        let mut given = Self::default();
        let (mut name, mut comment, mut path, mut password, mut server) = (false, false, false, false, false);
        let mut security = None;
        match level {
            1004 => comment = r.pointer()?,
            1005 => given.flags = Some(r.u32()?),
            1006 => given.max_uses = Some(r.u32()?),
            1007 => {
                given.flags = Some(r.u32()?);
                // The alternate directory, which clients leave out.
                path = r.pointer()?;
            }
            1501 => security = security_head(r)?,
            _ => name = r.pointer()?,
        }
        if matches!(level, 1 | 2 | 501 | 502 | 503) {
            given.kind = r.u32()?;
            comment = r.pointer()?;
        }
        if level == 501 {
            given.flags = Some(r.u32()?);
        }
        if matches!(level, 2 | 502 | 503) {
            r.u32()?;
            given.max_uses = Some(r.u32()?);
            r.u32()?;
            path = r.pointer()?;
            password = r.pointer()?;
            server = level == 503 && r.pointer()?;
            if level != 2 {
                security = security_head(r)?;
            }
        }
        // What is deferred, in the order of the pointers.
        given.name = string(r, name)?;
        given.comment = string(r, comment)?;
        given.path = string(r, path)?;
        string(r, password)?;
        string(r, server)?;
        given.security = security.map(|len| r.bytes(len)).transpose()?.map(<[u8]>::to_vec);
        Ok(Some(given))
    }

    fn security(&self) -> Result<Option<Vec<u8>>, Win32> {
        let Some(bytes) = self.security.as_deref().filter(|bytes| !bytes.is_empty()) else { return Ok(None) };
        SecurityDescriptor::decode(bytes).map_err(|_| Win32::INVALID_PARAMETER)?;
        Ok(Some(bytes.to_vec()))
    }

    fn limit(&self) -> Option<Option<u32>> {
        self.max_uses.map(|uses| (uses != UNLIMITED).then_some(uses))
    }

    /// A share to be made.
    pub(super) fn into_new(self) -> Result<NewShare, Win32> {
        // Only folders: no client can make a queue of a printer here, or IPC$.
        if self.kind & !TYPE_SPECIAL & 0xff != 0 {
            return Err(Win32::NOT_SUPPORTED);
        }
        let security = self.security()?;
        let max_uses = self.limit().flatten();
        let name = self.name.unwrap_or_default();
        if !is_share_name(&name) {
            return Err(Win32::INVALID_NAME);
        }
        let path = self.path.filter(|path| !path.is_empty()).ok_or(Win32::INVALID_PARAMETER)?;
        Ok(NewShare { name, comment: self.comment.unwrap_or_default(), path, max_uses, security })
    }

    /// What is to change (MS-SRVS 3.1.4.11): the remark at every level that has it, and what else the level has.
    pub(super) fn into_change(self) -> Result<ShareChange, Win32> {
        let security = self.security()?;
        let max_uses = self.limit();
        let flags = self.flags.map(|flags| flags & SETTABLE);
        Ok(ShareChange { comment: self.comment, max_uses, flags, security })
    }
}

fn string(r: &mut NdrIn<'_>, present: bool) -> Result<Option<String>, Fault> {
    Ok(if present { Some(r.wide()?) } else { None })
}

fn security_head(r: &mut NdrIn<'_>) -> Result<Option<usize>, Fault> {
    let len = usize::try_from(r.u32()?).map_err(|_| Fault::BAD_STUB_DATA)?;
    Ok(r.pointer()?.then_some(len))
}

/// Whether a share may be called so: up to 80 characters without those that paths and patterns are made of.
pub(super) fn is_share_name(name: &str) -> bool {
    let bad = |c: char| c < ' ' || "\"\\/[]:|<>+=;,*?".contains(c);
    (1..=80).contains(&name.encode_utf16().count()) && !name.contains(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_what_a_share_is() {
        for (kind, special, told) in [
            (ShareKind::Disk, false, 0),
            (ShareKind::ClusterDisk, false, 0x0200_0000),
            (ShareKind::ScaleOutDisk, false, 0x0400_0000),
            (ShareKind::Ipc, true, 0x8000_0003),
        ] {
            assert_eq!(share_type(&Share { kind, special, ..Share::default() }), told, "{kind:?}");
        }
    }
}
