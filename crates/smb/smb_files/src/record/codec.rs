//! Records as bytes.

use byte_codec::DecodeError;
use file_store::FileId;
use smb_protocol::Guid;
use smb_protocol::access::{AccessMask, CreateOptions, OplockLevel, ShareAccess};
use smb_protocol::create::lease::{LeaseKey, LeaseState};
use smb_protocol::security::Sid;
use smb_protocol::wire::{Reader, Wire};
use smb_security::{Privileges, Token};

use super::{LeaseRecord, LockRecord, OpenRecord};
use crate::api::OwnerId;

/// The version that is written; others are refused, as an older program must not guess.
const VERSION: u16 = 1;
/// The version of an open of a virtual disk, of which older programs know nothing.
const DISK_VERSION: u16 = 2;
/// Most groups of a user: what fits into a Windows token.
const GROUPS_MAX: usize = 1024;
/// Bytes of a lock.
const LOCK_BYTES: usize = 17;
/// Fewest bytes of a SID.
const SID_BYTES_MIN: usize = 8;

/// Bits of the record's flags.
const ENUMERATION: u16 = 1;
const WRITE_THROUGH: u16 = 2;
const DELETE_ON_CLOSE: u16 = 4;
const DELETE_PENDING: u16 = 8;
const ADMIN: u16 = 16;
const HAS_LEASE: u16 = 32;
/// Privileges follow from this bit on.
const PRIVILEGES: u16 = 256;

/// Bits of a lease's flags.
const V2: u8 = 1;
const PARENT: u8 = 2;

fn put_text(text: &str, out: &mut Vec<u8>) {
    (text.len() as u16).put(out);
    out.extend_from_slice(text.as_bytes());
}

fn take_text(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    let len = usize::from(r.u16()?);
    std::str::from_utf8(r.raw(len)?).map(str::to_owned).map_err(|_| DecodeError::Invalid("text"))
}

impl OpenRecord {
    fn flags(&self) -> u16 {
        let p = self.token.privileges;
        let all = [
            (self.access_based_enumeration, ENUMERATION),
            (self.write_through, WRITE_THROUGH),
            (self.delete_on_close, DELETE_ON_CLOSE),
            (self.delete_pending, DELETE_PENDING),
            (self.token.is_admin, ADMIN),
            (self.lease.is_some(), HAS_LEASE),
            (p.security, PRIVILEGES),
            (p.backup, PRIVILEGES << 1),
            (p.restore, PRIVILEGES << 2),
            (p.take_ownership, PRIVILEGES << 3),
        ];
        all.iter().filter(|(set, _)| *set).fold(0, |flags, (_, bit)| flags | bit)
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        if self.disk { DISK_VERSION } else { VERSION }.put(&mut out);
        self.flags().put(&mut out);
        for number in [self.file.0, self.parent.0, self.root.0, self.owner.0, self.position] {
            number.put(&mut out);
        }
        self.client.put(&mut out);
        self.share_access_cap.put(&mut out);
        self.granted.put(&mut out);
        self.share_access.put(&mut out);
        self.options.put(&mut out);
        self.oplock.put(&mut out);
        put_text(&self.name, &mut out);
        put_text(&self.stream, &mut out);
        self.token.user.put(&mut out);
        self.token.primary_group.put(&mut out);
        let groups = self.token.groups.iter().take(GROUPS_MAX);
        (groups.len() as u16).put(&mut out);
        groups.for_each(|group| group.put(&mut out));
        if let Some(lease) = &self.lease {
            lease.key.put(&mut out);
            lease.state.put(&mut out);
            lease.epoch.put(&mut out);
            let flags = if lease.v2 { V2 } else { 0 } | if lease.parent.is_some() { PARENT } else { 0 };
            flags.put(&mut out);
            lease.parent.unwrap_or_default().put(&mut out);
        }
        (self.locks.len() as u32).put(&mut out);
        for lock in &self.locks {
            lock.offset.put(&mut out);
            lock.length.put(&mut out);
            lock.exclusive.put(&mut out);
        }
        out
    }

    /// Decodes it from bytes.
    ///
    /// # Errors
    /// When they are not whole, or have something behind them; [`DecodeError::Unsupported`] when they are of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let disk = match r.u16()? {
            VERSION => false,
            DISK_VERSION => true,
            version => return Err(DecodeError::Unsupported(u32::from(version))),
        };
        let flags = r.u16()?;
        let has = |bit: u16| flags & bit != 0;
        let [file, parent, root, owner, position] = [r.u64()?, r.u64()?, r.u64()?, r.u64()?, r.u64()?];
        let client = Guid::take(&mut r)?;
        let share_access_cap = AccessMask::take(&mut r)?;
        let granted = AccessMask::take(&mut r)?;
        let share_access = ShareAccess::take(&mut r)?;
        let options = CreateOptions::take(&mut r)?;
        let oplock = OplockLevel::take(&mut r)?;
        let (name, stream) = (take_text(&mut r)?, take_text(&mut r)?);
        let (user, primary_group) = (Sid::take(&mut r)?, Sid::take(&mut r)?);
        let count = usize::from(r.u16()?);
        // Memory is taken only for what is there.
        if count > GROUPS_MAX || count > r.remaining() / SID_BYTES_MIN {
            return Err(DecodeError::Invalid("number of groups"));
        }
        let groups = (0..count).map(|_| Sid::take(&mut r)).collect::<Result<_, _>>()?;
        let lease = if has(HAS_LEASE) { Some(take_lease(&mut r)?) } else { None };
        let locks = take_locks(&mut r)?;
        if r.remaining() != 0 {
            return Err(DecodeError::Invalid("bytes behind an open's record"));
        }
        let privileges = Privileges {
            security: has(PRIVILEGES),
            backup: has(PRIVILEGES << 1),
            restore: has(PRIVILEGES << 2),
            take_ownership: has(PRIVILEGES << 3),
        };
        Ok(Self {
            file: FileId(file),
            parent: FileId(parent),
            name,
            stream,
            token: Token { user, primary_group, groups, privileges, is_admin: has(ADMIN) },
            root: FileId(root),
            share_access_cap,
            access_based_enumeration: has(ENUMERATION),
            write_through: has(WRITE_THROUGH),
            client,
            owner: OwnerId(owner),
            granted,
            share_access,
            options,
            oplock,
            lease,
            locks,
            delete_on_close: has(DELETE_ON_CLOSE),
            delete_pending: has(DELETE_PENDING),
            position,
            disk,
        })
    }
}

fn take_lease(r: &mut Reader<'_>) -> Result<LeaseRecord, DecodeError> {
    let key = LeaseKey::take(r)?;
    let state = LeaseState::take(r)?;
    let epoch = r.u16()?;
    let flags = r.u8()?;
    let parent = LeaseKey::take(r)?;
    let parent = (flags & PARENT != 0).then_some(parent);
    Ok(LeaseRecord { key, state, epoch, v2: flags & V2 != 0, parent })
}

fn take_locks(r: &mut Reader<'_>) -> Result<Vec<LockRecord>, DecodeError> {
    let count = r.u32()? as usize;
    if count > crate::locks::LOCKS_MAX || count > r.remaining() / LOCK_BYTES {
        return Err(DecodeError::Invalid("number of locks"));
    }
    let mut locks = Vec::with_capacity(count);
    for _ in 0..count {
        locks.push(LockRecord { offset: r.u64()?, length: r.u64()?, exclusive: bool::take(r)? });
    }
    Ok(locks)
}
