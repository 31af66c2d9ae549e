//! From a range of a space to pieces of columns.

use pool_format::REGIONS;

/// How a space is striped. All sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Striping {
    columns: u64,
    interleave: u64,
    slab_size: u64,
}

/// A part of a request that lies in one region of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Row.
    pub row: u32,
    /// Column.
    pub column: u8,
    /// Byte offset within the column's slab.
    pub offset: u64,
    /// Length.
    pub len: u64,
}

impl Striping {
    /// The striping of a space; `None` when the interleave does not divide a region or there is no column.
    #[must_use]
    pub fn new(columns: u8, interleave: u32, slab_size: u64) -> Option<Self> {
        let interleave = u64::from(interleave);
        let region = slab_size / u64::from(REGIONS);
        let sound = columns > 0 && interleave.is_power_of_two() && (columns == 1 || interleave <= region);
        sound.then_some(Self { columns: u64::from(columns), interleave, slab_size })
    }

    /// Bytes of a space in one row.
    #[must_use]
    pub fn row_size(&self) -> u64 {
        self.columns * self.slab_size
    }

    /// Bytes of one region of a column.
    #[must_use]
    pub fn region_size(&self) -> u64 {
        self.slab_size / u64::from(REGIONS)
    }

    /// How many rows a space of `size` bytes has.
    #[must_use]
    pub fn rows(&self, size: u64) -> u64 {
        size.div_ceil(self.row_size())
    }

    /// The regions that a piece touches, as a mask.
    #[must_use]
    pub fn regions(&self, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let first = offset / self.region_size();
        let last = (offset + len - 1) / self.region_size();
        let high = if last >= 63 { u64::MAX } else { (1 << (last + 1)) - 1 };
        high & !((1u64 << first.min(63)) - 1)
    }

    /// The pieces of a range, in the order of the range. The range must end below `u64::MAX`.
    #[must_use]
    pub fn pieces(&self, offset: u64, len: u64) -> Pieces {
        Pieces { striping: *self, offset, end: offset.saturating_add(len) }
    }
}

/// Iterator over the pieces of a range.
#[derive(Clone, Debug)]
pub struct Pieces {
    striping: Striping,
    offset: u64,
    end: u64,
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.offset >= self.end {
            return None;
        }
        let s = &self.striping;
        let in_row = self.offset % s.row_size();
        let (column, at, room) = if s.columns == 1 {
            (0, in_row, s.region_size() - in_row % s.region_size())
        } else {
            let unit = in_row / s.interleave;
            let within = in_row % s.interleave;
            (unit % s.columns, unit / s.columns * s.interleave + within, s.interleave - within)
        };
        let piece = Piece {
            row: (self.offset / s.row_size()) as u32,
            column: column as u8,
            offset: at,
            len: room.min(self.end - self.offset),
        };
        self.offset += piece.len;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_cover_the_range_and_never_meet(
            columns in 1u8..6, shift in 0u32..4, offset in 0u64..4096, len in 0u64..2048,
        ) {
            let slab = 1 << 20;
            let unit = 4096;
            let s = Striping::new(columns, 4096 << shift.min(2), slab).expect("divides");
            let mut seen = BTreeSet::new();
            let mut total = 0;
            for piece in s.pieces(offset * unit, len * unit) {
                total += piece.len;
                prop_assert!(piece.offset + piece.len <= slab);
                prop_assert_eq!(s.regions(piece.offset, piece.len).count_ones(), 1, "one region");
                for block in 0..piece.len / unit {
                    prop_assert!(seen.insert((piece.row, piece.column, piece.offset + block * unit)));
                }
            }
            prop_assert_eq!(total, len * unit);
        }

        #[test]
        fn a_row_is_mapped_onto_whole_slabs(columns in 1u8..6) {
            let s = Striping::new(columns, 8192, 1 << 20).expect("divides");
            let bytes: u64 = s.pieces(s.row_size(), s.row_size()).map(|p| { assert_eq!(p.row, 1); p.len }).sum();
            prop_assert_eq!(bytes, s.row_size());
        }
    }

    #[test]
    fn region_masks() {
        let s = Striping::new(1, 4096, 1 << 20).expect("divides");
        assert_eq!(s.regions(0, 1 << 20), u64::MAX);
        assert_eq!(s.regions(16384, 4096), 2);
        assert_eq!(s.regions((1 << 20) - 4096, 4096), 1 << 63);
        assert_eq!(s.regions(5, 0), 0);
    }
}
