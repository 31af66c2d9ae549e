//! Who a disk is: the first and the last block of every disk of a pool.

use byte_codec::crc32c;

use crate::{BLOCK, DecodeError, DiskId, Epoch, Guid, Mark, Reader, Seq, Writer, sums_pages};

/// Size of a superblock, in bytes.
pub const SUPERBLOCK_BYTES: usize = BLOCK as usize;
/// As in PNG: a byte above 127, a name, and line ends that text-mode damage would change.
const MAGIC: [u8; 16] = *b"\x89HOLDFAST\r\n\x1a\n\0\0\0";
/// Version 1 has no checksum area. A disk keeps the version it was made with (docs/formats/pool.md, "Versions").
const VERSION: u32 = 2;
const VERSION_WITHOUT_SUMS: u32 = 1;
/// Features that a reader must know. The superblock says at which change it was written, and the metadata knows of each
/// disk at which change it was: a release that wrote one without the other would make its disks look as if they had gone back in time.
const FEATURE_MARK: u32 = 1;
const KNOWN_FEATURES: u32 = FEATURE_MARK;
const CRC_AT: usize = SUPERBLOCK_BYTES - 4;
/// Where the metadata area starts on every disk, in bytes.
const METADATA_START: u64 = 1 << 20;
/// The metadata area is this fraction of the disk: slab maps grow with the disks (docs/formats/pool.md).
const METADATA_FRACTION: u64 = 1024;
const METADATA_MIN: u64 = 1 << 20;

/// Who a disk is and where its areas lie. All offsets and sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The pool.
    pub pool: Guid,
    /// The pool's name, for messages.
    pub pool_name: String,
    /// The disk.
    pub disk: Guid,
    /// The disk's number in the pool's metadata.
    pub disk_id: DiskId,
    /// The epoch in which this block was written.
    pub epoch: Epoch,
    /// The last change of the metadata then; 0 in a block without this feature.
    pub seq: Seq,
    /// Size of the disk that the layout was made for.
    pub disk_size: u64,
    /// Size of a slab.
    pub slab_size: u64,
    /// Where the two checkpoint slots start.
    pub checkpoint_start: u64,
    /// Size of one checkpoint slot.
    pub checkpoint_size: u64,
    /// Where the log starts.
    pub log_start: u64,
    /// Size of the log.
    pub log_size: u64,
    /// Where the checksums of the slabs start; 0 on a disk of version 1, which has none.
    pub sums_start: u64,
    /// Where the slabs start.
    pub data_start: u64,
    /// How many slabs there are.
    pub slab_count: u32,
}

fn metadata_size(size: u64) -> u64 {
    (size / METADATA_FRACTION).max(METADATA_MIN) / (8 * BLOCK) * (8 * BLOCK)
}

/// Bytes of a checkpoint slot of a disk of `size` bytes: what the whole pool's state must fit if the disk is to vote.
#[must_use]
pub fn checkpoint_room(size: u64) -> u64 {
    metadata_size(size) / 8 * 3
}

/// Where the areas of a disk of `size` bytes lie, with identity fields left empty; `None` when not even one
/// slab fits.
#[must_use]
pub fn layout_for(size: u64, slab_size: u64) -> Option<Superblock> {
    let metadata = metadata_size(size);
    let checkpoint_size = checkpoint_room(size);
    let log_size = metadata - 2 * checkpoint_size;
    let sums_start = METADATA_START + metadata;
    let sums = sums_pages(slab_size) * BLOCK;
    let room = size.checked_sub(BLOCK)?.checked_sub(sums_start)?;
    // Aligning the slabs may cost the last one.
    let most = room / (slab_size + sums);
    let data_start = |count: u64| (sums_start + count * sums).next_multiple_of(METADATA_START.min(slab_size));
    let fits = |count: &u64| data_start(*count) + count * slab_size + BLOCK <= size;
    let count = (most.saturating_sub(1)..=most).rev().find(fits)?;
    let slab_count = u32::try_from(count).ok().filter(|count| *count > 0)?;
    let data_start = data_start(count);
    Some(Superblock {
        pool: Guid::default(),
        pool_name: String::new(),
        disk: Guid::default(),
        disk_id: DiskId(0),
        epoch: Epoch(0),
        seq: Seq(0),
        disk_size: size,
        slab_size,
        checkpoint_start: METADATA_START,
        checkpoint_size,
        log_start: METADATA_START + 2 * checkpoint_size,
        log_size,
        sums_start,
        data_start,
        slab_count,
    })
}

/// What a superblock of any version says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Its version.
    pub version: u32,
    /// Its features, in bits.
    pub features: u32,
    /// The pool that the disk belongs to.
    pub pool: Guid,
}

impl Superblock {
    /// The moment at which it was written.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { epoch: self.epoch, seq: self.seq }
    }

    /// Where the log of an epoch starts, and how long it may be: two epochs that follow each other have different halves of
    /// the area, so that what an opener that was superseded still writes does not hit the log of its successor.
    #[must_use]
    pub fn log_half(&self, epoch: Epoch) -> (u64, u64) {
        let half = self.log_size / 2 / BLOCK * BLOCK;
        (self.log_start + if epoch.0.is_multiple_of(2) { 0 } else { half }, half)
    }

    /// Where the pages of checksums of slab `index` start; `None` on a disk without a checksum area.
    #[must_use]
    pub fn sums_offset(&self, index: u32) -> Option<u64> {
        let each = sums_pages(self.slab_size) * BLOCK;
        (self.sums_start > 0).then(|| self.sums_start + u64::from(index) * each)
    }

    /// Where slab `index` starts.
    #[must_use]
    pub fn slab_offset(&self, index: u32) -> u64 {
        self.data_start + u64::from(index) * self.slab_size
    }

    /// The block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.raw(&MAGIC);
        w.u32(if self.sums_start > 0 { VERSION } else { VERSION_WITHOUT_SUMS });
        w.u32(FEATURE_MARK);
        w.raw(&self.pool.0);
        w.raw(&self.disk.0);
        w.u32(self.disk_id.0);
        w.u32(self.slab_count);
        w.u64(self.epoch.0);
        w.u64(self.disk_size);
        w.u64(self.slab_size);
        w.u64(self.checkpoint_start);
        w.u64(self.checkpoint_size);
        w.u64(self.log_start);
        w.u64(self.log_size);
        w.u64(self.data_start);
        if self.sums_start > 0 {
            w.u64(self.sums_start);
        }
        w.u64(self.seq.0);
        w.text(&self.pool_name.chars().take(255).collect::<String>());
        let mut block = w.finish();
        block.resize(CRC_AT, 0);
        let crc = crc32c(&block);
        block.extend_from_slice(&crc.to_le_bytes());
        block
    }

    /// What a block says in every version, also in one that this release cannot read: the magic, these fields and the checksum
    /// stay where they are for ever.
    ///
    /// # Errors
    /// [`DecodeError::WrongMagic`] when the block is something else; others when it is damaged.
    pub fn announced(block: &[u8]) -> Result<Announced, DecodeError> {
        let block = block.get(..SUPERBLOCK_BYTES).ok_or(DecodeError::Truncated)?;
        let mut r = Reader::new(block);
        if r.raw(MAGIC.len())? != MAGIC {
            return Err(DecodeError::WrongMagic);
        }
        if crc32c(&block[..CRC_AT]).to_le_bytes() != block[CRC_AT..] {
            return Err(DecodeError::WrongChecksum);
        }
        Ok(Announced { version: r.u32()?, features: r.u32()?, pool: Guid(r.guid()?) })
    }

    /// The superblock in a block.
    ///
    /// # Errors
    /// [`DecodeError::WrongMagic`] when the block is something else; others when it is damaged or too new.
    pub fn decode(block: &[u8]) -> Result<Self, DecodeError> {
        let Announced { version, features, .. } = Self::announced(block)?;
        let mut r = Reader::new(&block[MAGIC.len() + 8..SUPERBLOCK_BYTES]);
        if !(VERSION_WITHOUT_SUMS..=VERSION).contains(&version) {
            return Err(DecodeError::Unsupported(version));
        }
        if features & !KNOWN_FEATURES != 0 {
            return Err(DecodeError::Unsupported(features));
        }
        let superblock = Self {
            pool: Guid(r.guid()?),
            disk: Guid(r.guid()?),
            disk_id: DiskId(r.u32()?),
            slab_count: r.u32()?,
            epoch: Epoch(r.u64()?),
            disk_size: r.u64()?,
            slab_size: r.u64()?,
            checkpoint_start: r.u64()?,
            checkpoint_size: r.u64()?,
            log_start: r.u64()?,
            log_size: r.u64()?,
            data_start: r.u64()?,
            sums_start: if version == VERSION_WITHOUT_SUMS { 0 } else { r.u64()? },
            seq: Seq(if features & FEATURE_MARK == 0 { 0 } else { r.u64()? }),
            pool_name: r.text()?,
        };
        if version == VERSION && superblock.sums_start == 0 {
            return Err(DecodeError::Invalid("layout"));
        }
        superblock.check()?;
        Ok(superblock)
    }

    /// A matching checksum does not make a layout sound: no area may overlap another or leave the disk.
    fn check(&self) -> Result<(), DecodeError> {
        if !self.slab_size.is_power_of_two() || self.slab_size < crate::REGIONS as u64 * BLOCK {
            return Err(DecodeError::Invalid("slab size"));
        }
        let end = |start: u64, size: u64| start.checked_add(size).ok_or(DecodeError::Invalid("area"));
        let checkpoints = self.checkpoint_size.checked_mul(2).ok_or(DecodeError::Invalid("area"))?;
        let slabs =
            self.slab_size.checked_mul(u64::from(self.slab_count)).ok_or(DecodeError::Invalid("area"))?;
        let aligned =
            (self.checkpoint_start | self.checkpoint_size | self.log_start | self.log_size | self.data_start)
                .is_multiple_of(BLOCK)
                && self.sums_start.is_multiple_of(BLOCK);
        let log_end = end(self.log_start, self.log_size)?;
        let sums = u64::from(self.slab_count)
            .checked_mul(sums_pages(self.slab_size) * BLOCK)
            .ok_or(DecodeError::Invalid("area"))?;
        let sums_sound = self.sums_start == 0
            || (self.sums_start >= log_end && end(self.sums_start, sums)? <= self.data_start);
        let sound = aligned
            && self.checkpoint_start >= BLOCK
            && self.log_size >= 2 * BLOCK
            && self.checkpoint_size >= BLOCK
            && end(self.checkpoint_start, checkpoints)? <= self.log_start
            && log_end <= self.data_start
            && sums_sound
            && end(end(self.data_start, slabs)?, BLOCK)? <= self.disk_size;
        if sound { Ok(()) } else { Err(DecodeError::Invalid("layout")) }
    }
}
