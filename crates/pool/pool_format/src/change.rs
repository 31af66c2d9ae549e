//! One change of the pool's metadata.

use crate::records::{CopyRecord, DiskRecord, Owner, RowRecord, ScrubRecord, SpaceRecord};
use crate::{DecodeError, DiskId, Epoch, Mark, Reader, Seq, SpaceId, Writer};

/// A change; see [`crate::PoolState::apply`] for what each does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A disk joins or changes.
    PutDisk(DiskRecord),
    /// A disk leaves.
    RemoveDisk(DiskId),
    /// A space is made or changes.
    PutSpace(SpaceRecord),
    /// A space goes, with its rows.
    DeleteSpace(SpaceId),
    /// A row is allocated.
    PutRow {
        /// Space.
        space: SpaceId,
        /// Row.
        row: u32,
        /// Where its slabs lie.
        record: RowRecord,
    },
    /// A row's slabs become free.
    FreeRow {
        /// Space.
        space: SpaceId,
        /// Row.
        row: u32,
    },
    /// Regions are about to be written.
    Dirty {
        /// Space.
        space: SpaceId,
        /// Row.
        row: u32,
        /// Column.
        column: u8,
        /// Regions.
        mask: u64,
    },
    /// All copies of these regions are durably equal, or marked stale.
    Clean {
        /// Space.
        space: SpaceId,
        /// Row.
        row: u32,
        /// Column.
        column: u8,
        /// Regions.
        mask: u64,
    },
    /// A copy misses writes in these regions.
    MarkStale {
        /// Space.
        space: SpaceId,
        /// Row.
        row: u32,
        /// Column.
        column: u8,
        /// The copy's disk.
        disk: DiskId,
        /// Regions.
        mask: u64,
    },
    /// A copy has caught up in these regions.
    ClearStale {
        /// Space.
        space: SpaceId,
        /// Row.
        row: u32,
        /// Column.
        column: u8,
        /// The copy's disk.
        disk: DiskId,
        /// Regions.
        mask: u64,
    },
    /// A further copy begins, stale at first.
    AddCopy {
        /// Space.
        space: SpaceId,
        /// Row.
        row: u32,
        /// Column.
        column: u8,
        /// The copy.
        copy: CopyRecord,
    },
    /// A copy is given up and its slab becomes free.
    RemoveCopy {
        /// Space.
        space: SpaceId,
        /// Row.
        row: u32,
        /// Column.
        column: u8,
        /// The copy's disk.
        disk: DiskId,
    },
    /// How far a scrub has come.
    Scrub(ScrubRecord),
    /// A disk's superblock carries at least this mark from now on.
    Mark {
        /// The disk.
        disk: DiskId,
        /// The mark.
        mark: Mark,
    },
    /// All copies of a column that have everything have these generations of pages of its checksums.
    Generations {
        /// Space.
        space: SpaceId,
        /// Row.
        row: u32,
        /// Column.
        column: u8,
        /// Pages and their generations.
        pages: Vec<(u16, u8)>,
    },
    /// A node takes the pool over, or lets go of it.
    Owner(Owner),
}

impl Change {
    pub(crate) fn encode(&self, w: &mut Writer) {
        let place = |w: &mut Writer, tag: u8, space: &SpaceId, row: u32| {
            w.u8(tag);
            w.u32(space.0);
            w.u32(row);
        };
        match self {
            Self::PutDisk(disk) => {
                w.u8(1);
                disk.encode(w);
            }
            Self::RemoveDisk(disk) => {
                w.u8(2);
                w.u32(disk.0);
            }
            Self::PutSpace(space) => {
                w.u8(3);
                space.encode(w);
            }
            Self::DeleteSpace(space) => {
                w.u8(4);
                w.u32(space.0);
            }
            Self::PutRow { space, row, record } => {
                place(w, 5, space, *row);
                record.encode(w);
            }
            Self::FreeRow { space, row } => place(w, 6, space, *row),
            Self::Dirty { space, row, column, mask } => {
                place(w, 7, space, *row);
                w.u8(*column);
                w.u64(*mask);
            }
            Self::Clean { space, row, column, mask } => {
                place(w, 8, space, *row);
                w.u8(*column);
                w.u64(*mask);
            }
            Self::MarkStale { space, row, column, disk, mask } => {
                place(w, 9, space, *row);
                w.u8(*column);
                w.u32(disk.0);
                w.u64(*mask);
            }
            Self::ClearStale { space, row, column, disk, mask } => {
                place(w, 10, space, *row);
                w.u8(*column);
                w.u32(disk.0);
                w.u64(*mask);
            }
            Self::AddCopy { space, row, column, copy } => {
                place(w, 11, space, *row);
                w.u8(*column);
                copy.encode(w);
            }
            Self::RemoveCopy { space, row, column, disk } => {
                place(w, 12, space, *row);
                w.u8(*column);
                w.u32(disk.0);
            }
            Self::Scrub(record) => {
                w.u8(13);
                record.encode(w);
            }
            Self::Mark { disk, mark } => {
                w.u8(14);
                w.u32(disk.0);
                w.u64(mark.epoch.0);
                w.u64(mark.seq.0);
            }
            Self::Generations { space, row, column, pages } => {
                place(w, 15, space, *row);
                w.u8(*column);
                w.u16(pages.len() as u16);
                for (page, generation) in pages {
                    w.u16(*page);
                    w.u8(*generation);
                }
            }
            Self::Owner(owner) => {
                w.u8(16);
                owner.encode(w);
            }
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let tag = r.u8()?;
        Ok(match tag {
            1 => Self::PutDisk(DiskRecord::decode(r)?),
            2 => Self::RemoveDisk(DiskId(r.u32()?)),
            3 => Self::PutSpace(SpaceRecord::decode(r)?),
            4 => Self::DeleteSpace(SpaceId(r.u32()?)),
            5..=12 => {
                let (space, row) = (SpaceId(r.u32()?), r.u32()?);
                match tag {
                    5 => Self::PutRow { space, row, record: RowRecord::decode(r)? },
                    6 => Self::FreeRow { space, row },
                    7 => Self::Dirty { space, row, column: r.u8()?, mask: r.u64()? },
                    8 => Self::Clean { space, row, column: r.u8()?, mask: r.u64()? },
                    9 | 10 => {
                        let (column, disk, mask) = (r.u8()?, DiskId(r.u32()?), r.u64()?);
                        if tag == 9 {
                            Self::MarkStale { space, row, column, disk, mask }
                        } else {
                            Self::ClearStale { space, row, column, disk, mask }
                        }
                    }
                    11 => Self::AddCopy { space, row, column: r.u8()?, copy: CopyRecord::decode(r)? },
                    _ => Self::RemoveCopy { space, row, column: r.u8()?, disk: DiskId(r.u32()?) },
                }
            }
            13 => Self::Scrub(ScrubRecord::decode(r)?),
            14 => Self::Mark {
                disk: DiskId(r.u32()?),
                mark: Mark { epoch: Epoch(r.u64()?), seq: Seq(r.u64()?) },
            },
            15 => {
                let (space, row, column) = (SpaceId(r.u32()?), r.u32()?, r.u8()?);
                let mut pages = Vec::new();
                for _ in 0..r.u16()? {
                    pages.push((r.u16()?, r.u8()?));
                }
                Self::Generations { space, row, column, pages }
            }
            16 => Self::Owner(Owner::decode(r)?),
            newer => return Err(DecodeError::Unsupported(u32::from(newer))),
        })
    }
}
