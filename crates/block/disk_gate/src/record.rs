//! The table as it is kept (docs/formats/gate.md): pure.

use byte_codec::{DecodeError, Reader, Writer, crc32c};

use crate::table::{MAX_PORT_NAME_BYTES, MAX_REGISTRATIONS, Table};

/// Longest record, in bytes.
pub(crate) const MAX_RECORD_BYTES: usize = HEAD_BYTES + MAX_REGISTRATIONS * (10 + MAX_PORT_NAME_BYTES) + 4;

const MAGIC: &[u8; 8] = b"HFGATE\0\x01";
const HEAD_BYTES: usize = 8 + 16 + 8 + 2 + 2;
/// In the holder's place: nobody holds it.
const NOBODY: u16 = u16::MAX;

/// What tells one disk from another: the GUID in its superblock, or something made of its name as long as it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskIdentity(pub [u8; 16]);

impl std::fmt::Display for DiskIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The record of a disk's table.
pub(crate) fn encode(disk: DiskIdentity, table: &Table) -> Vec<u8> {
    let mut out = Writer::default();
    out.raw(MAGIC);
    out.raw(&disk.0);
    out.u64(table.epoch);
    let holder =
        table.holder.as_ref().and_then(|holder| table.registered.keys().position(|port| port == holder));
    out.u16(holder.map_or(NOBODY, |at| at as u16));
    out.u16(table.registered.len() as u16);
    for (port, key) in &table.registered {
        out.u64(*key);
        out.text(port);
    }
    let mut bytes = out.finish();
    let sum = crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// The table in a record of this disk.
pub(crate) fn decode(disk: DiskIdentity, bytes: &[u8]) -> Result<Table, DecodeError> {
    if bytes.len() > MAX_RECORD_BYTES {
        return Err(DecodeError::Invalid("length"));
    }
    let (content, sum) = bytes.split_last_chunk::<4>().ok_or(DecodeError::Truncated)?;
    let (magic, version) = content.first_chunk::<8>().ok_or(DecodeError::Truncated)?.split_at(7);
    if magic != &MAGIC[..7] {
        return Err(DecodeError::WrongMagic);
    }
    if crc32c(content) != u32::from_le_bytes(*sum) {
        return Err(DecodeError::WrongChecksum);
    }
    if version != &MAGIC[7..] {
        return Err(DecodeError::Unsupported(version.first().copied().unwrap_or_default().into()));
    }
    let mut fields = Reader::new(content);
    fields.raw(8)?;
    if fields.raw(16)? != disk.0 {
        return Err(DecodeError::Invalid("disk: it is the record of another one"));
    }
    let mut table = Table { epoch: fields.u64()?, ..Table::default() };
    let (holder, count) = (fields.u16()?, fields.u16()?);
    if usize::from(count) > MAX_REGISTRATIONS {
        return Err(DecodeError::Invalid("number of registrations"));
    }
    let mut before: Option<String> = None;
    for at in 0..count {
        let (key, port) = (fields.u64()?, fields.text()?);
        if port.len() > MAX_PORT_NAME_BYTES || before.is_some_and(|before| before >= port) {
            return Err(DecodeError::Invalid("port"));
        }
        if key == 0 || key >> 16 > table.epoch {
            return Err(DecodeError::Invalid("key"));
        }
        if at == holder {
            table.holder = Some(port.clone());
        }
        table.registered.insert(port.clone(), key);
        before = Some(port);
    }
    if holder != NOBODY && table.holder.is_none() {
        return Err(DecodeError::Invalid("holder"));
    }
    if fields.remaining() == 0 { Ok(table) } else { Err(DecodeError::Invalid("end")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: DiskIdentity = DiskIdentity([7; 16]);

    fn table() -> Table {
        let mut table = Table::default();
        table.register("b", 5 << 16 | 2).expect("registers");
        table.register("a", 6 << 16 | 1).expect("registers");
        table.reserve("b", 5 << 16 | 2).expect("reserves");
        table
    }

    #[test]
    fn comes_back_as_it_was() {
        for table in [Table::default(), table()] {
            assert_eq!(decode(DISK, &encode(DISK, &table)), Ok(table));
        }
    }

    #[test]
    fn no_damage_is_taken_for_a_state() {
        let sound = encode(DISK, &table());
        for at in 0..sound.len() {
            for bit in 0..8 {
                let mut damaged = sound.clone();
                damaged[at] ^= 1 << bit;
                assert!(decode(DISK, &damaged).is_err(), "bit {bit} of byte {at}");
            }
            assert!(decode(DISK, &sound[..at]).is_err(), "cut at {at}");
        }
        assert!(decode(DiskIdentity([8; 16]), &sound).is_err(), "another disk's record");
    }
}
