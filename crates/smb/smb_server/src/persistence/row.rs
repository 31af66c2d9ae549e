//! The row of a persistent open. Diagram and crash argument: `docs/formats/smb-open.md`.

use std::sync::Arc;
use std::time::Duration;

use byte_codec::{DecodeError, Reader, Writer};
use file_store::FileId as StoreId;
use parking_lot::Mutex;
use smb_files::OwnerId;
use smb_files::record::{LeaseRecord, LockRecord, OpenRecord};
use smb_protocol::Guid;
use smb_protocol::access::{AccessMask, CreateOptions, OplockLevel, ShareAccess};
use smb_protocol::create::lease::{LeaseKey, LeaseState};
use smb_protocol::file::FileId;
use smb_protocol::security::sid::Sid;
use smb_security::{Privileges, Token};

use crate::open::{Lasting, Open, State, Thing};
use crate::replay::LOCK_SEQUENCES;
use crate::tree::Tree;

/// The version of the format; a newer one is not understood.
const VERSION: u8 = 1;
/// Most groups of a token: what fits a Kerberos ticket is less.
const MAX_GROUPS: usize = 4096;
/// Most locks of an open.
const MAX_LOCKS: usize = 16_384;

/// A persistent open at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: FileId,
    pub(crate) create_guid: Guid,
    pub(crate) app_instance: Guid,
    pub(crate) timeout: Duration,
    pub(crate) lock_sequences: [u8; LOCK_SEQUENCES],
    pub(crate) share: String,
    pub(crate) record: OpenRecord,
}

impl Row {
    pub(crate) fn of(open: &Open, state: &State, record: OpenRecord, share: String) -> Self {
        Self {
            id: open.id,
            create_guid: open.create_guid,
            app_instance: open.app_instance,
            timeout: state.timeout,
            lock_sequences: state.sequence.locks(),
            share,
            record,
        }
    }

    /// The open, waiting for its client.
    pub(crate) fn into_open(self, tree: Arc<Tree>, file: Arc<smb_files::Open>, value: Vec<u8>) -> Open {
        let state = State {
            lasting: Lasting::V2 { persistent: true },
            timeout: self.timeout,
            sequence: crate::replay::Sequence::with_locks(self.lock_sequences),
            ..State::default()
        };
        Open {
            id: self.id,
            tree,
            thing: Thing::File(file),
            client: self.record.client,
            user: self.record.token.user,
            create_guid: self.create_guid,
            app_instance: self.app_instance,
            link: crate::open::Link::detached(self.id),
            state: Mutex::new(state),
            row: tokio::sync::Mutex::new(Some(value)),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        let record = &self.record;
        w.u8(VERSION);
        w.u64(self.id.persistent);
        w.u64(self.id.volatile);
        w.raw(&self.create_guid.0);
        w.raw(&self.app_instance.0);
        w.u32(u32::try_from(self.timeout.as_millis()).unwrap_or(u32::MAX));
        w.raw(&self.lock_sequences);
        w.text(&self.share);
        w.u64(record.file.0);
        w.u64(record.parent.0);
        w.text(&record.name);
        w.text(&record.stream);
        put_token(&record.token, &mut w);
        w.u64(record.root.0);
        w.u32(record.share_access_cap.0);
        let bits = [
            record.access_based_enumeration,
            record.write_through,
            record.delete_on_close,
            record.delete_pending,
            record.lease.is_some(),
        ];
        w.u8(bits.iter().enumerate().map(|(at, bit)| u8::from(*bit) << at).sum());
        w.raw(&record.client.0);
        w.u64(record.owner.0);
        w.u32(record.granted.0);
        w.u32(record.share_access.0);
        w.u32(record.options.0);
        w.u8(record.oplock.0);
        w.u64(record.position);
        if let Some(lease) = &record.lease {
            w.raw(&lease.key.0);
            w.u32(lease.state.0);
            w.u16(lease.epoch);
            w.u8(u8::from(lease.v2) | u8::from(lease.parent.is_some()) << 1);
            w.raw(&lease.parent.unwrap_or_default().0);
        }
        w.u32(record.locks.len().min(MAX_LOCKS) as u32);
        for lock in record.locks.iter().take(MAX_LOCKS) {
            w.u64(lock.offset);
            w.u64(lock.length);
            w.u8(u8::from(lock.exclusive));
        }
        let mut bytes = w.finish();
        let check = byte_codec::crc32c(&bytes);
        bytes.extend_from_slice(&check.to_le_bytes());
        bytes
    }

    /// # Errors
    /// When the row is damaged or of another version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (body, check) = bytes.split_last_chunk::<4>().ok_or(DecodeError::Truncated)?;
        if byte_codec::crc32c(body) != u32::from_le_bytes(*check) {
            return Err(DecodeError::Invalid("checksum"));
        }
        let mut r = Reader::new(body);
        if r.u8()? != VERSION {
            return Err(DecodeError::Invalid("version"));
        }
        let id = FileId { persistent: r.u64()?, volatile: r.u64()? };
        let create_guid = Guid(r.guid()?);
        let app_instance = Guid(r.guid()?);
        let timeout = Duration::from_millis(u64::from(r.u32()?));
        let mut lock_sequences = [0; LOCK_SEQUENCES];
        lock_sequences.copy_from_slice(r.raw(LOCK_SEQUENCES)?);
        let share = r.text()?;
        let (file, parent) = (StoreId(r.u64()?), StoreId(r.u64()?));
        let (name, stream) = (r.text()?, r.text()?);
        let token = take_token(&mut r)?;
        let root = StoreId(r.u64()?);
        let share_access_cap = AccessMask(r.u32()?);
        let bits = r.u8()?;
        let bit = |at: u8| bits & 1 << at != 0;
        let client = Guid(r.guid()?);
        let owner = OwnerId(r.u64()?);
        let granted = AccessMask(r.u32()?);
        let share_access = ShareAccess(r.u32()?);
        let options = CreateOptions(r.u32()?);
        let oplock = OplockLevel(r.u8()?);
        let position = r.u64()?;
        let lease = if bit(4) {
            let (key, state, epoch) = (LeaseKey(r.guid()?), LeaseState(r.u32()?), r.u16()?);
            let (bits, parent) = (r.u8()?, LeaseKey(r.guid()?));
            Some(LeaseRecord {
                key,
                state,
                epoch,
                v2: bits & 1 != 0,
                parent: (bits & 2 != 0).then_some(parent),
            })
        } else {
            None
        };
        let count = r.u32()? as usize;
        if count > MAX_LOCKS {
            return Err(DecodeError::Invalid("number of locks"));
        }
        let mut locks = Vec::new();
        for _ in 0..count {
            locks.push(LockRecord { offset: r.u64()?, length: r.u64()?, exclusive: r.u8()? != 0 });
        }
        let record = OpenRecord {
            file,
            parent,
            name,
            stream,
            token,
            root,
            share_access_cap,
            access_based_enumeration: bit(0),
            write_through: bit(1),
            client,
            owner,
            granted,
            share_access,
            options,
            oplock,
            lease,
            locks,
            delete_on_close: bit(2),
            delete_pending: bit(3),
            position,
        };
        Ok(Self { id, create_guid, app_instance, timeout, lock_sequences, share, record })
    }
}

fn put_token(token: &Token, w: &mut Writer) {
    let mut sids = Vec::new();
    token.user.put(&mut sids);
    token.primary_group.put(&mut sids);
    let groups = token.groups.iter().take(MAX_GROUPS);
    groups.clone().for_each(|group| group.put(&mut sids));
    w.u32(groups.len() as u32);
    w.raw(&sids);
    let Privileges { security, backup, restore, take_ownership } = token.privileges;
    let bits = [security, backup, restore, take_ownership, token.is_admin];
    w.u8(bits.iter().enumerate().map(|(at, bit)| u8::from(*bit) << at).sum());
}

fn take_token(r: &mut Reader<'_>) -> Result<Token, DecodeError> {
    let count = r.u32()? as usize;
    if count > MAX_GROUPS {
        return Err(DecodeError::Invalid("number of groups"));
    }
    let (user, primary_group) = (Sid::take(r)?, Sid::take(r)?);
    let groups = (0..count).map(|_| Sid::take(r)).collect::<Result<_, _>>()?;
    let bits = r.u8()?;
    let bit = |at: u8| bits & 1 << at != 0;
    let privileges = Privileges { security: bit(0), backup: bit(1), restore: bit(2), take_ownership: bit(3) };
    Ok(Token { user, primary_group, groups, privileges, is_admin: bit(4) })
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn sample() -> Row {
        let sid = Sid::new(5, &[21, 1, 2, 3, 1001]).unwrap();
        Row {
            id: FileId { persistent: 7, volatile: 8 },
            create_guid: Guid([1; 16]),
            app_instance: Guid([2; 16]),
            timeout: Duration::from_millis(61_234),
            lock_sequences: [0x55; LOCK_SEQUENCES],
            share: "vmstore".to_owned(),
            record: OpenRecord {
                file: StoreId(9),
                parent: StoreId(10),
                name: "disk ü.vhdx".to_owned(),
                stream: "s".to_owned(),
                token: Token::new(sid, sid, &[Sid::USERS], true),
                root: StoreId(11),
                share_access_cap: AccessMask::FILE_ALL,
                access_based_enumeration: true,
                write_through: false,
                client: Guid([3; 16]),
                owner: OwnerId(12),
                granted: AccessMask::FILE_READ,
                share_access: ShareAccess::READ,
                options: CreateOptions::WRITE_THROUGH,
                oplock: OplockLevel::LEASE,
                lease: Some(LeaseRecord {
                    key: LeaseKey([4; 16]),
                    state: LeaseState::READ | LeaseState::HANDLE,
                    epoch: 13,
                    v2: true,
                    parent: None,
                }),
                locks: vec![
                    LockRecord { offset: 0, length: u64::MAX, exclusive: true },
                    LockRecord { offset: 1, length: 0, exclusive: false },
                ],
                delete_on_close: true,
                delete_pending: false,
                position: 14,
            },
        }
    }

    #[test]
    fn a_row_there_and_back() {
        let row = sample();
        assert_eq!(Row::decode(&row.encode()), Ok(row.clone()));
        let plain = Row { record: OpenRecord { lease: None, locks: Vec::new(), ..row.record }, ..row };
        assert_eq!(Row::decode(&plain.encode()), Ok(plain));
    }

    #[test]
    fn damage_is_seen() {
        let good = sample().encode();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(Row::decode(&bad).is_err(), "{at}");
            assert!(Row::decode(&good[..at]).is_err(), "{at}");
        }
    }
}
