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
    }
}
