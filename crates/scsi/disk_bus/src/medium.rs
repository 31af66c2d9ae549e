//! Reading and changing the medium.

use aligned_buffer::IoBuf;
use block_device::{BlockDevice as _, Durability, UnmapBehavior};
use scsi_core::ScsiCommand;
use scsi_defs::{Cdb, Op, Sense, asc, be};

use crate::reply::{Outcome, Reply};
use crate::unit::{BusUnit, Session};

/// Most bytes of one read or write.
pub const MAX_TRANSFER_BYTES: u64 = 4 << 20;
/// Most bytes that one command zeroes or unmaps: others wait behind a disk that takes long for more.
pub(crate) const MAX_ZERO_BYTES: u64 = 1 << 30;
/// Most ranges of one UNMAP.
pub(crate) const MAX_UNMAP_DESCRIPTORS: usize = 64;

impl BusUnit {
    /// A range of the disk in bytes.
    fn range(&self, lba: u64, blocks: u64, most: u64) -> Result<(u64, u64), Sense> {
        let block = u64::from(self.gate().device().geometry().block_size);
        let beyond = || Sense::illegal(asc::LBA_OUT_OF_RANGE);
        let offset = lba.checked_mul(block).ok_or_else(beyond)?;
        let len = blocks.checked_mul(block).ok_or_else(beyond)?;
        let end = offset.checked_add(len).ok_or_else(beyond)?;
        if end > self.gate().device().size() {
            return Err(beyond());
        }
        if len > most { Err(Sense::illegal(asc::INVALID_FIELD_IN_CDB)) } else { Ok((offset, len)) }
    }

    pub(crate) async fn move_data(&self, session: &Session, cdb: &Cdb, command: &ScsiCommand) -> Outcome {
        let disk = &session.disk;
        let short = || Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR);
        let blocks = u64::from(cdb.length());
        match cdb.op {
            Op::Read10 | Op::Read16 => {
                let (offset, len) = self.range(cdb.lba(), blocks, MAX_TRANSFER_BYTES)?;
                let data = disk.read(offset, IoBuf::new(len as usize)).await?;
                let data = (len > 0).then(|| data.freeze());
                Ok(Reply { data, moved: len })
            }
            Op::Write10 | Op::Write16 => {
                let (offset, len) = self.range(cdb.lba(), blocks, MAX_TRANSFER_BYTES)?;
                if (command.data_out.len() as u64) < len {
                    return Err(short().into());
                }
                let data = command.data_out.slice(0..len as usize);
                let durability = if cdb.bit(1, 3) { Durability::Durable } else { Durability::Volatile };
                disk.write(offset, data, durability).await?;
                Reply::took(len)
            }
            Op::WriteSame16 => {
                let block = self.gate().device().geometry().block_size as usize;
                let pattern = command.data_out.get(..block).ok_or_else(short)?;
                // Zeros only: nobody asks for another pattern. NDOB and ANCHOR are not known.
                if cdb.byte(1) & 0x11 != 0 || blocks == 0 {
                    return Err(Sense::cdb_field(1).into());
                }
                if pattern.iter().any(|byte| *byte != 0) {
                    return Err(Sense::illegal(asc::INVALID_FIELD_IN_PARAMETER_LIST).into());
                }
                let (offset, len) = self.range(cdb.lba(), blocks, MAX_ZERO_BYTES)?;
                let gives_zeros = self.gate().device().geometry().unmap == UnmapBehavior::Zeroes;
                if cdb.bit(1, 3) && gives_zeros {
                    disk.unmap(offset, len).await?;
                } else {
                    disk.write_zeroes(offset, len, Durability::Volatile).await?;
                }
                Reply::took(block as u64)
            }
            Op::Unmap => self.unmap(session, cdb, &command.data_out).await,
            _ => Err(Sense::illegal(asc::INVALID_OPCODE).into()),
        }
    }

    async fn unmap(&self, session: &Session, cdb: &Cdb, data: &[u8]) -> Outcome {
        let wrong = || Sense::illegal(asc::INVALID_FIELD_IN_PARAMETER_LIST);
        let length = cdb.length() as usize;
        if length == 0 {
            return Reply::took(0);
        }
        let list = data.get(..length).filter(|list| list.len() >= 8);
        let list = list.ok_or(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR))?;
        let described = be(list, 2, 2) as usize;
        let ranges = list.get(8..).and_then(|rest| rest.get(..described)).ok_or_else(wrong)?;
        if ranges.len() / 16 > MAX_UNMAP_DESCRIPTORS {
            return Err(wrong().into());
        }
        // All are looked at before the first is unmapped.
        let ranges: Result<Vec<_>, Sense> = ranges
            .chunks_exact(16)
            .map(|range| self.range(be(range, 0, 8), be(range, 8, 4), MAX_ZERO_BYTES))
            .collect();
        for (offset, len) in ranges? {
            session.disk.unmap(offset, len).await?;
        }
        Reply::took(length as u64)
    }
}
