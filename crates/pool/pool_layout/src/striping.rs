//! From a range of a space to pieces of columns.
//!
//! With parity the columns of a row take turns in holding it, so that all disks share its work:
//!
//! ```text
//!  5 columns, 1 of parity        column 0   1    2    3    4
//!                      stripe 0    d0   d1   d2   d3    P
//!                      stripe 1    d1   d2   d3    P   d0
//!                      stripe 2    d2   d3    P   d0   d1    a stripe is one interleave of every column;
//!                      stripe 3    d3    P   d0   d1   d2    its units lie at the same offset of each slab
//! ```

use pool_format::{BLOCK, REGIONS, SUMS_PER_PAGE};

/// How a space is striped. All sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Striping {
    /// All columns, those of parity among them.
    columns: u64,
    parity: u64,
    interleave: u64,
    slab_size: u64,
}

/// Bytes of a column whose checksums lie in one page.
const PAGE_SPAN: u64 = BLOCK * SUMS_PER_PAGE;

/// Several stripes are written at once as long as they are no more than this share of a slab, which a journal is.
const RUN_SHARE: u64 = 32;

/// A part of a request that lies in one region of one column, and in what one page of checksums covers.
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
    pub fn new(columns: u8, parity: u8, interleave: u32, slab_size: u64) -> Option<Self> {
        let interleave = u64::from(interleave);
        let region = slab_size / u64::from(REGIONS);
        let sound = columns > 0
            && interleave.is_power_of_two()
            && (columns == 1 || interleave <= region)
            && (parity == 0 || columns >= parity.saturating_add(2));
        sound.then_some(Self {
            columns: u64::from(columns),
            parity: u64::from(parity),
            interleave,
            slab_size,
        })
    }

    /// Columns of each stripe that hold parity.
    #[must_use]
    pub fn parity(&self) -> usize {
        self.parity as usize
    }

    /// Columns of each stripe that hold data.
    #[must_use]
    pub fn data(&self) -> usize {
        (self.columns - self.parity) as usize
    }

    /// Bytes of one column in a stripe.
    #[must_use]
    pub fn interleave(&self) -> u64 {
        self.interleave
    }

    /// Bytes of data in a stripe.
    #[must_use]
    pub fn stripe_size(&self) -> u64 {
        (self.columns - self.parity) * self.interleave
    }

    /// The stripe of its row in which an offset of a column's slab lies.
    #[must_use]
    pub fn stripe_at(&self, offset: u64) -> u64 {
        offset / self.interleave
    }

    /// The column that holds unit `unit` of a stripe: data first, then parity (P, then Q).
    #[must_use]
    pub fn column_of(&self, stripe: u64, unit: usize) -> usize {
        if self.parity == 0 {
            return unit;
        }
        ((unit as u64 + self.columns - stripe % self.columns) % self.columns) as usize
    }

    /// Which unit of a stripe a column holds: the inverse of [`Striping::column_of`].
    #[must_use]
    pub fn unit_of(&self, stripe: u64, column: usize) -> usize {
        if self.parity == 0 {
            return column;
        }
        ((column as u64 + stripe % self.columns) % self.columns) as usize
    }

    /// Bytes of a space in one row.
    #[must_use]
    pub fn row_size(&self) -> u64 {
        (self.columns - self.parity) * self.slab_size
    }

    /// Bytes of a slab.
    #[must_use]
    pub fn slab_size(&self) -> u64 {
        self.slab_size
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

    /// The pieces of a range of a space with parity, by what is written at once: a part of a stripe, a whole one, or several whole
    /// ones that follow each other in one region, and in what one page of checksums covers.
    pub fn stripes(&self, offset: u64, len: u64) -> impl Iterator<Item = Vec<Piece>> + use<> {
        let (this, end) = (*self, offset.saturating_add(len));
        let mut from = offset;
        std::iter::from_fn(move || {
            if from >= end {
                return None;
            }
            let to = end.min(this.end_of_run(from, end));
            let pieces = this.pieces(from, to - from).collect();
            from = to;
            Some(pieces)
        })
    }

    /// Where what is written at once from an offset of the space ends at the latest.
    fn end_of_run(&self, from: u64, end: u64) -> u64 {
        let stripe = self.stripe_size();
        let next = (from / stripe + 1) * stripe;
        if !from.is_multiple_of(stripe) || next > end {
            return next;
        }
        // In the journal several must find room, beside what others have there.
        let most = (self.slab_size / RUN_SHARE / stripe).max(1) * stripe;
        let column = from % self.row_size() / self.data() as u64;
        let left = |span: u64| (span - column % span) / self.interleave * stripe;
        let whole = (end / stripe * stripe).saturating_sub(from);
        from + whole.min(most).min(left(self.region_size())).min(left(PAGE_SPAN)).max(stripe)
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
            let data = s.columns - s.parity;
            let (unit, within) = (in_row / s.interleave, in_row % s.interleave);
            let stripe = unit / data;
            let column = s.column_of(stripe, (unit % data) as usize) as u64;
            (column, stripe * s.interleave + within, s.interleave - within)
        };
        let piece = Piece {
            row: (self.offset / s.row_size()) as u32,
            column: column as u8,
            offset: at,
            len: room.min(PAGE_SPAN - at % PAGE_SPAN).min(self.end - self.offset),
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
            columns in 1u8..6, parity in 0u8..3, shift in 0u32..4, offset in 0u64..4096, len in 0u64..2048,
        ) {
            let slab = 1 << 20;
            let unit = 4096;
            let parity = if columns < parity + 2 { 0 } else { parity };
            let s = Striping::new(columns, parity, 4096 << shift.min(2), slab).expect("divides");
            let mut seen = BTreeSet::new();
            let mut total = 0;
            for piece in s.pieces(offset * unit, len * unit) {
                total += piece.len;
                prop_assert!(piece.offset + piece.len <= slab);
                prop_assert_eq!(s.regions(piece.offset, piece.len).count_ones(), 1, "one region");
                let parity_here = (s.data()..s.data() + s.parity()).map(|u| s.column_of(s.stripe_at(piece.offset), u));
                prop_assert!(parity_here.clone().all(|column| column != usize::from(piece.column)));
                for block in 0..piece.len / unit {
                    prop_assert!(seen.insert((piece.row, piece.column, piece.offset + block * unit)));
                }
            }
            prop_assert_eq!(total, len * unit);
        }

        #[test]
        fn stripes_are_parts_or_whole_ones_of_one_region(
            data in 2u8..6, parity in 1u8..3, shift in 0u32..3, offset in 0u64..4096, len in 1u64..2048,
        ) {
            let slab = 4 << 20;
            let s = Striping::new(data + parity, parity, 4096 << shift, slab).expect("divides");
            let (offset, len) = (offset * BLOCK, len * BLOCK);
            let runs: Vec<Vec<Piece>> = s.stripes(offset, len).collect();
            prop_assert_eq!(runs.concat(), s.pieces(offset, len).collect::<Vec<_>>());
            for run in runs {
                let bytes: u64 = run.iter().map(|piece| piece.len).sum();
                let start = run.iter().map(|piece| piece.offset).min().unwrap_or(0);
                let end = run.iter().map(|piece| piece.offset + piece.len).max().unwrap_or(0);
                prop_assert!(run.iter().all(|piece| piece.row == run[0].row));
                prop_assert_eq!(s.regions(start, end - start).count_ones(), 1);
                prop_assert!(start / PAGE_SPAN == (end - 1) / PAGE_SPAN);
                let stripes = s.stripe_at(end - 1) - s.stripe_at(start) + 1;
                prop_assert!(stripes == 1 || (bytes == stripes * s.stripe_size() && bytes <= slab / RUN_SHARE));
            }
        }

        #[test]
        fn a_row_is_mapped_onto_whole_slabs(columns in 1u8..6) {
            let s = Striping::new(columns, 0, 8192, 1 << 20).expect("divides");
            let bytes: u64 = s.pieces(s.row_size(), s.row_size()).map(|p| { assert_eq!(p.row, 1); p.len }).sum();
            prop_assert_eq!(bytes, s.row_size());
        }
    }

    #[test]
    fn parity_takes_turns() {
        let s = Striping::new(5, 2, 4096, 1 << 20).expect("divides");
        assert_eq!((s.data(), s.stripe_size(), s.row_size()), (3, 12288, 3 << 20));
        for stripe in 0..10 {
            let columns: BTreeSet<_> = (0..5).map(|unit| s.column_of(stripe, unit)).collect();
            assert_eq!(columns.len(), 5, "every column has one unit of stripe {stripe}");
            assert!((0..5).all(|unit| s.unit_of(stripe, s.column_of(stripe, unit)) == unit));
        }
        let holders: BTreeSet<_> = (0..5).map(|stripe| s.column_of(stripe, 3)).collect();
        assert_eq!(holders.len(), 5, "P is on every column in turn");
        assert_eq!(Striping::new(3, 2, 4096, 1 << 20), None);
    }

    #[test]
    fn region_masks() {
        let s = Striping::new(1, 0, 4096, 1 << 20).expect("divides");
        assert_eq!(s.regions(0, 1 << 20), u64::MAX);
        assert_eq!(s.regions(16384, 4096), 2);
        assert_eq!(s.regions((1 << 20) - 4096, 4096), 1 << 63);
        assert_eq!(s.regions(5, 0), 0);
    }
}
