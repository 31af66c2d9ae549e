//! Building command descriptor blocks, for those who ask a disk (SPC-4, SBC-3).

/// TEST UNIT READY.
pub const TEST_UNIT_READY: [u8; 6] = [0; 6];

/// INQUIRY: standard data, or a page of vital product data; answers of up to `len` bytes.
#[must_use]
pub fn inquiry(page: Option<u8>, len: u16) -> [u8; 6] {
    let [high, low] = len.to_be_bytes();
    [0x12, u8::from(page.is_some()), page.unwrap_or(0), high, low, 0]
}

/// READ CAPACITY (10).
pub const READ_CAPACITY_10: [u8; 10] = [0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// READ CAPACITY (16), for answers of up to 32 bytes.
pub const READ_CAPACITY_16: [u8; 16] = [0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];

/// MODE SENSE (6) of all pages, without block descriptors; answers of up to `len` bytes.
#[must_use]
pub fn mode_sense(len: u8) -> [u8; 6] {
    [0x1a, 8, 0x3f, 0, len, 0]
}

/// Bytes of an answer to [`control_mode`].
pub const CONTROL_MODE_BYTES: u8 = 4 + 12;

/// MODE SENSE (6) of the control mode page as it is, or of what of it can be changed, without block descriptors.
#[must_use]
pub fn control_mode(changeable: bool) -> [u8; 6] {
    [0x1a, 8, if changeable { 0x4a } else { 0x0a }, 0, CONTROL_MODE_BYTES, 0]
}

/// MODE SELECT (6) of a list of `len` bytes, which a reset or a loss of power undoes.
#[must_use]
pub fn mode_select(len: u8) -> [u8; 6] {
    [0x15, 0x10, 0, 0, len, 0]
}

/// READ (16) of `blocks` from `lba`.
#[must_use]
pub fn read(lba: u64, blocks: u32) -> [u8; 16] {
    transfer(0x88, 0, lba, blocks)
}

/// WRITE (16) of `blocks` at `lba`; with `fua` it is durable when answered.
#[must_use]
pub fn write(lba: u64, blocks: u32, fua: bool) -> [u8; 16] {
    transfer(0x8a, if fua { 8 } else { 0 }, lba, blocks)
}

/// SYNCHRONIZE CACHE (16) of the whole unit.
pub const SYNCHRONIZE_CACHE: [u8; 16] = [0x91, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// WRITE SAME (16) of one block, which comes as data, to `blocks` from `lba`; with `unmap` they may be unmapped where that reads the
/// same.
#[must_use]
pub fn write_same(lba: u64, blocks: u32, unmap: bool) -> [u8; 16] {
    transfer(0x93, if unmap { 8 } else { 0 }, lba, blocks)
}

/// Bytes of the parameter list of [`UNMAP`].
pub const UNMAP_BYTES: u32 = 24;

/// UNMAP with one range.
pub const UNMAP: [u8; 10] = [0x42, 0, 0, 0, 0, 0, 0, 0, UNMAP_BYTES as u8, 0];

/// The parameter list of [`UNMAP`] for `blocks` from `lba`.
#[must_use]
pub fn unmap_list(lba: u64, blocks: u32) -> [u8; UNMAP_BYTES as usize] {
    let mut list = [0; UNMAP_BYTES as usize];
    (list[1], list[3]) = (22, 16);
    list[8..16].copy_from_slice(&lba.to_be_bytes());
    list[16..20].copy_from_slice(&blocks.to_be_bytes());
    list
}

fn transfer(opcode: u8, flags: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (opcode, flags);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cdb::{Cdb, Op};

    #[test]
    fn our_own_table_takes_them() {
        let parse = |cdb: &[u8]| Cdb::parse(cdb).unwrap();
        let cdb = parse(&read(1 << 33, 7));
        assert_eq!((cdb.op, cdb.lba(), cdb.length(), cdb.bit(1, 3)), (Op::Read16, 1 << 33, 7, false));
        let cdb = parse(&write(9, 1, true));
        assert_eq!((cdb.op, cdb.lba(), cdb.length(), cdb.bit(1, 3)), (Op::Write16, 9, 1, true));
        assert_eq!(parse(&TEST_UNIT_READY).op, Op::TestUnitReady);
        assert_eq!(parse(&READ_CAPACITY_10).op, Op::ReadCapacity10);
        assert_eq!(
            (parse(&READ_CAPACITY_16).op, parse(&READ_CAPACITY_16).length()),
            (Op::ReadCapacity16, 32)
        );
        assert_eq!(
            (parse(&inquiry(Some(0x83), 252)).op, parse(&inquiry(None, 36)).length()),
            (Op::Inquiry, 36)
        );
        assert_eq!(parse(&mode_sense(192)).length(), 192);
        assert_eq!(
            (parse(&control_mode(true)).op, parse(&control_mode(false)).length()),
            (Op::ModeSense6, 16)
        );
        let cdb = parse(&mode_select(16));
        assert_eq!((cdb.op, cdb.length(), cdb.bit(1, 0)), (Op::ModeSelect6, 16, false));
        let cdb = parse(&write_same(5, 6, true));
        assert_eq!((cdb.op, cdb.lba(), cdb.length(), cdb.bit(1, 3)), (Op::WriteSame16, 5, 6, true));
        assert_eq!((parse(&UNMAP).op, parse(&UNMAP).length()), (Op::Unmap, 24));
        assert_eq!(parse(&SYNCHRONIZE_CACHE).op, Op::SyncCache16);
        assert_eq!(unmap_list(0x0102, 3)[..8], [0, 22, 0, 16, 0, 0, 0, 0]);
    }
}
