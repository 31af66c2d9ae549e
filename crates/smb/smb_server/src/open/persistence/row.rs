//! The row of a persistent open. Diagram and crash argument: `docs/formats/smb_state.md`.

use std::time::Duration;

use byte_codec::{DecodeError, Reader, Writer};
use smb_files::record::OpenRecord;
use smb_protocol::Guid;
use smb_protocol::file::FileId;

use crate::open::{App, Open, State};
use crate::replay::LOCK_SEQUENCES;

/// The version of the format; a newer one is not understood.
const VERSION: u8 = 2;
/// The version of an open of a shared virtual disk, of which earlier releases know nothing.
const DISK_VERSION: u8 = 3;

/// A persistent open at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: FileId,
    pub(crate) create_guid: Guid,
    pub(crate) app: App,
    pub(crate) timeout: Duration,
    pub(crate) lock_sequences: [u8; LOCK_SEQUENCES],
    pub(crate) share: String,
    /// Of an open of a shared virtual disk: its initiator, zero for none.
    pub(crate) disk: Option<Guid>,
    pub(crate) record: OpenRecord,
}

impl Row {
    pub(crate) fn of(open: &Open, state: &State, record: OpenRecord, share: String) -> Self {
        Self {
            id: open.id,
            create_guid: open.create_guid,
            app: open.app,
            timeout: state.timeout,
            lock_sequences: state.sequence.locks(),
            share,
            disk: open.disk.as_ref().map(|disk| disk.initiator.unwrap_or_default()),
            record,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(if self.disk.is_some() { DISK_VERSION } else { VERSION });
        w.u64(self.id.persistent);
        w.u64(self.id.volatile);
        w.raw(&self.create_guid.0);
        w.raw(&self.app.id.0);
        let (high, low) = self.app.version.unwrap_or_default();
        w.u8(u8::from(self.app.version.is_some()));
        w.u64(high);
        w.u64(low);
        w.u32(u32::try_from(self.timeout.as_millis()).unwrap_or(u32::MAX));
        w.raw(&self.lock_sequences);
        w.text(&self.share);
        if let Some(initiator) = &self.disk {
            w.raw(&initiator.0);
        }
        w.raw(&self.record.encode());
        let mut bytes = w.finish();
        let check = byte_codec::crc32c(&bytes);
        bytes.extend_from_slice(&check.to_le_bytes());
        bytes
    }

    /// # Errors
    /// [`DecodeError::Unsupported`] for a whole row of a version that is not known, as of a newer release; any other when it is damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (body, check) = bytes.split_last_chunk::<4>().ok_or(DecodeError::Truncated)?;
        if byte_codec::crc32c(body) != u32::from_le_bytes(*check) {
            return Err(DecodeError::Invalid("checksum"));
        }
        let mut r = Reader::new(body);
        let version = r.u8()?;
        if version != VERSION && version != DISK_VERSION {
            return Err(DecodeError::Unsupported(u32::from(version)));
        }
        let id = FileId { persistent: r.u64()?, volatile: r.u64()? };
        let create_guid = Guid(r.guid()?);
        let app_id = Guid(r.guid()?);
        let has_version = match r.u8()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Invalid("application version")),
        };
        let instance = (r.u64()?, r.u64()?);
        let app = App { id: app_id, version: has_version.then_some(instance) };
        let timeout = Duration::from_millis(u64::from(r.u32()?));
        let mut lock_sequences = [0; LOCK_SEQUENCES];
        lock_sequences.copy_from_slice(r.raw(LOCK_SEQUENCES)?);
        let share = r.text()?;
        let disk = if version == DISK_VERSION { Some(Guid(r.guid()?)) } else { None };
        let record = OpenRecord::decode(r.raw(r.remaining())?)?;
        if record.disk != disk.is_some() {
            return Err(DecodeError::Invalid("record of a disk"));
        }
        Ok(Self { id, create_guid, app, timeout, lock_sequences, share, disk, record })
    }
}

#[cfg(test)]
mod tests {
    use file_store::FileId as StoreId;
    use smb_files::OwnerId;
    use smb_files::record::{LeaseRecord, LockRecord};
    use smb_protocol::access::{AccessMask, CreateOptions, OplockLevel, ShareAccess};
    use smb_protocol::create::lease::{LeaseKey, LeaseState};
    use smb_protocol::security::sid::Sid;
    use smb_security::Token;

    use super::*;

    fn sample() -> Row {
        let sid = Sid::new(5, &[21, 1, 2, 3, 1001]).unwrap();
        Row {
            id: FileId { persistent: 7, volatile: 8 },
            create_guid: Guid([1; 16]),
            app: App { id: Guid([2; 16]), version: Some((3, 4)) },
            timeout: Duration::from_millis(61_234),
            lock_sequences: [0x55; LOCK_SEQUENCES],
            share: "vmstore".to_owned(),
            disk: None,
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
                disk: false,
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

    /// A row without any of what may be left out.
    fn plain() -> Row {
        let row = sample();
        let record = OpenRecord {
            stream: String::new(),
            access_based_enumeration: false,
            write_through: true,
            oplock: OplockLevel::NONE,
            lease: None,
            locks: Vec::new(),
            delete_on_close: false,
            delete_pending: true,
            ..row.record
        };
        Row { app: App::default(), record, ..row }
    }

    #[test]
    fn a_row_of_a_shared_disk_there_and_back() {
        let row = sample();
        let disk = Row { disk: Some(Guid([5; 16])), record: OpenRecord { disk: true, ..row.record }, ..row };
        let bytes = disk.encode();
        let image = format_images::kept("smb_open", u32::from(DISK_VERSION), &[("disk", bytes.clone())]);
        assert_eq!(image.unwrap().bytes("disk"), bytes);
        assert_eq!(Row::decode(&bytes), Ok(disk.clone()));
        let mixed = Row { disk: None, ..disk };
        assert!(Row::decode(&mixed.encode()).is_err(), "a record of a disk in a row of none");
    }

    /// What earlier releases wrote: `docs/formats/README.md`.
    #[test]
    fn a_row_of_an_earlier_release_is_read() {
        let now = [("full", sample().encode()), ("plain", plain().encode())];
        let image = format_images::kept("smb_open", u32::from(VERSION), &now).unwrap();
        for (name, row) in [("full", sample()), ("plain", plain())] {
            let bytes = image.bytes(name);
            assert_eq!(Row::decode(bytes), Ok(row.clone()), "{name}");
            assert_eq!(row.encode(), bytes, "{name}: what is written now is another version");
            let mut newer = bytes.to_vec();
            newer[0] = DISK_VERSION + 1;
            let end = newer.len() - 4;
            let check = byte_codec::crc32c(&newer[..end]).to_le_bytes();
            newer[end..].copy_from_slice(&check);
            assert_eq!(Row::decode(&newer), Err(DecodeError::Unsupported(4)), "{name}");
        }
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
