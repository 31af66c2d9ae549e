//! What the unit says of itself.

use block_device::UnmapBehavior;
use scsi_defs::{Cdb, Op, Sense, SenseKey, asc};

use crate::medium::{MAX_TRANSFER_BYTES, MAX_UNMAP_DESCRIPTORS, MAX_ZERO_BYTES};
use crate::reply::{Outcome, Reply};
use crate::unit::BusUnit;

const VENDOR: &[u8; 8] = b"HOLDFAST";
/// Longest designator, in bytes, so that the page fits what initiators ask for.
const MAX_DESIGNATOR: usize = 200;

fn standard() -> Vec<u8> {
    // A disk by SPC-4, with command queuing.
    let mut out = vec![0, 0, 6, 0x02, 91, 0, 0, 2];
    out.extend_from_slice(VENDOR);
    out.extend_from_slice(b"disk of a node  0001");
    out.resize(96, 0);
    out
}

impl BusUnit {
    fn block(&self) -> u64 {
        u64::from(self.gate().device().geometry().block_size)
    }

    /// The commands that tell and change nothing.
    pub(crate) fn inform(&self, cdb: &Cdb) -> Outcome {
        let geometry = self.gate().device().geometry();
        let last = (self.gate().device().size() / self.block()).saturating_sub(1);
        let out = match cdb.op {
            Op::TestUnitReady => return Reply::took(0),
            Op::RequestSense => Sense::new(SenseKey::NoSense, asc::NONE).encode(cdb.bit(1, 0)),
            Op::Inquiry if cdb.bit(1, 0) => self.page(cdb.byte(2))?,
            Op::Inquiry => standard(),
            // One unit, of number 0.
            Op::ReportLuns => vec![0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            Op::ReadCapacity10 => {
                let last = u32::try_from(last).unwrap_or(u32::MAX);
                let out = [last.to_be_bytes(), geometry.block_size.to_be_bytes()].concat();
                return Reply::parameters(&out, 8);
            }
            Op::ReadCapacity16 => {
                let mut out = last.to_be_bytes().to_vec();
                out.extend_from_slice(&geometry.block_size.to_be_bytes());
                let ratio = (geometry.physical_block_size / geometry.block_size.max(1)).max(1);
                let provisioning = match geometry.unmap {
                    UnmapBehavior::Zeroes => 0xc0,
                    UnmapBehavior::Unspecified => 0x80,
                    UnmapBehavior::Ignored => 0,
                };
                out.extend_from_slice(&[0, ratio.ilog2() as u8, provisioning, 0]);
                out.resize(32, 0);
                out
            }
            Op::ModeSense6 | Op::ModeSense10 => self.modes(cdb)?,
            _ => return Err(Sense::illegal(asc::INVALID_OPCODE).into()),
        };
        Reply::parameters(&out, cdb.length())
    }

    /// The caching page, which is the only one: there is a write cache.
    fn modes(&self, cdb: &Cdb) -> Result<Vec<u8>, Sense> {
        if !matches!(cdb.byte(2) & 0x3f, 0x08 | 0x3f) {
            return Err(Sense::cdb_field(2));
        }
        let protected = u8::from(self.gate().device().geometry().read_only) << 7;
        // DPOFUA: FUA is known.
        let flags = protected | 0x10;
        let mut page = vec![0x08, 18, 0x04];
        page.resize(20, 0);
        let len = page.len() as u8;
        let mut out = match cdb.op {
            Op::ModeSense6 => vec![len + 3, 0, flags, 0],
            _ => vec![0, len + 6, 0, flags, 0, 0, 0, 0],
        };
        out.extend_from_slice(&page);
        Ok(out)
    }

    fn page(&self, page: u8) -> Result<Vec<u8>, Sense> {
        let geometry = self.gate().device().geometry();
        let blocks = |bytes: u64| (bytes / self.block()) as u32;
        let name = self.identity.get(..self.identity.len().min(MAX_DESIGNATOR)).unwrap_or_default();
        let mut out = vec![0, page, 0, 0];
        match page {
            0x00 => out.extend_from_slice(&[0x00, 0x80, 0x83, 0xb0, 0xb1, 0xb2]),
            0x80 => out.extend_from_slice(name.as_bytes()),
            0x83 => {
                // Vendor and what the vendor says, in ASCII, of the unit itself.
                out.extend_from_slice(&[2, 1, 0, (VENDOR.len() + name.len()) as u8]);
                out.extend_from_slice(VENDOR);
                out.extend_from_slice(name.as_bytes());
            }
            0xb0 => {
                // WSNZ: WRITE SAME wants a count.
                out.extend_from_slice(&[1, 0, 0, 0]);
                out.extend_from_slice(&blocks(MAX_TRANSFER_BYTES).to_be_bytes());
                out.resize(20, 0);
                out.extend_from_slice(&blocks(MAX_ZERO_BYTES).to_be_bytes());
                out.extend_from_slice(&(MAX_UNMAP_DESCRIPTORS as u32).to_be_bytes());
                out.resize(36, 0);
                out.extend_from_slice(&u64::from(blocks(MAX_ZERO_BYTES)).to_be_bytes());
                out.resize(64, 0);
            }
            0xb1 => {
                let rate: u16 = if geometry.rotational { 7200 } else { 1 };
                out.extend_from_slice(&rate.to_be_bytes());
                out.resize(64, 0);
            }
            0xb2 => {
                let how = match geometry.unmap {
                    // UNMAP, WRITE SAME that unmaps, and zeros afterwards.
                    UnmapBehavior::Zeroes => 0xc4,
                    UnmapBehavior::Unspecified => 0x80,
                    UnmapBehavior::Ignored => 0,
                };
                out.extend_from_slice(&[0, how, if how == 0 { 0 } else { 2 }, 0]);
            }
            _ => return Err(Sense::cdb_field(2)),
        }
        let [high, low] = ((out.len() - 4) as u16).to_be_bytes();
        out.splice(2..4, [high, low]);
        Ok(out)
    }
}
