//! What a volume is: the first block and the one in the middle of its first cluster.

use byte_codec::{DecodeError, Reader, Writer, crc32c};

use crate::metadata_log::METADATA_LOG_MAX;
use crate::{BLOCK, CLUSTER, metadata_log_size};

const MAGIC: [u8; 16] = *b"\x89HFVOLUME\r\n\x1a\n\0\0\0";
const VERSION: u32 = 1;
/// Feature: maps shared by reference and snapshots, with the tables `links`, `uses`, `maps` and `snapshots`.
pub const FEATURE_SNAPSHOTS: u32 = 1;
/// Feature: entries are filed under names folded letter by letter, as NTFS does it, or are on their way there: the counter
/// `names` says that all are.
pub const FEATURE_UPCASE: u32 = 2;
/// Feature: a write log may stand before the device, and then what is read without it is old. Blocks 4 and 5 of the device
/// say whether one does (`write_log_format::LABELS_INSIDE`).
pub const FEATURE_LOG: u32 = 4;
/// Feature: files may have several names. A volume gets it with its first hard link, and keeps it.
pub const FEATURE_NAMES: u32 = 8;
/// Feature: a metadata log lies between the metadata area and the clusters, and what is in it is newer than the database.
pub const FEATURE_METADATA_LOG: u32 = 16;
/// Features that a reader must know (bits). Tiers and checksums get theirs.
pub const KNOWN_FEATURES: u32 =
    FEATURE_SNAPSHOTS | FEATURE_UPCASE | FEATURE_LOG | FEATURE_NAMES | FEATURE_METADATA_LOG;
/// Features that every volume gets, an older one when it is opened.
pub const USUAL_FEATURES: u32 = FEATURE_SNAPSHOTS | FEATURE_UPCASE;
const CRC_AT: usize = BLOCK as usize - 4;
/// The database may grow to this fraction of the volume: 1 TiB of 64 KiB extents, one by one, takes 1 GiB.
const METADATA_FRACTION: u64 = 64;
const METADATA_MIN: u64 = 8 << 20;
const METADATA_MAX: u64 = 64 << 30;

/// What a volume is and where its areas lie. Offsets and sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// What a reader must know, in bits: [`FEATURE_SNAPSHOTS`], [`FEATURE_UPCASE`], [`FEATURE_LOG`],
    /// [`FEATURE_NAMES`], [`FEATURE_METADATA_LOG`].
    pub features: u32,
    /// Its identity.
    pub guid: [u8; 16],
    /// Its name, for messages.
    pub name: String,
    /// Size of the device when the volume was made.
    pub size: u64,
    /// Where the two blocks with the database's length are.
    pub length_start: u64,
    /// Where the database starts.
    pub metadata_start: u64,
    /// How large it may become.
    pub metadata_size: u64,
    /// Where cluster 0 starts; clusters go on to the end of the device.
    pub data_start: u64,
}

/// Where the areas of a volume on a device of `size` bytes lie; `None` when it is too small.
#[must_use]
pub fn layout_for(size: u64) -> Option<Superblock> {
    let metadata_size = (size / METADATA_FRACTION).clamp(METADATA_MIN, METADATA_MAX) / CLUSTER * CLUSTER;
    let metadata_start = 2 * CLUSTER;
    let data_start = metadata_start + metadata_size;
    let superblock = Superblock {
        features: USUAL_FEATURES,
        guid: [0; 16],
        name: String::new(),
        size,
        length_start: CLUSTER,
        metadata_start,
        metadata_size,
        data_start,
    };
    (size >= data_start + CLUSTER).then(|| superblock.with_metadata_log())
}

impl Superblock {
    /// Where the two copies lie.
    pub const OFFSETS: [u64; 2] = [0, CLUSTER / 2];

    /// Where the metadata log lies: offset and size; `None` where there is none.
    #[must_use]
    pub fn metadata_log(&self) -> Option<(u64, u64)> {
        let start = self.metadata_start + self.metadata_size;
        (self.features & FEATURE_METADATA_LOG != 0).then(|| (start, self.data_start - start))
    }

    /// The same volume with a metadata log of the usual size, which takes the end of the metadata area.
    #[must_use]
    pub fn with_metadata_log(self) -> Self {
        let area = self.data_start - self.metadata_start;
        self.with_metadata_log_of(metadata_log_size(area))
    }

    /// As [`Superblock::with_metadata_log`], with a log of `size` bytes, in whole clusters.
    #[must_use]
    pub fn with_metadata_log_of(mut self, size: u64) -> Self {
        if self.features & FEATURE_METADATA_LOG == 0 {
            let area = self.data_start - self.metadata_start;
            self.metadata_size = area - size.next_multiple_of(CLUSTER).min(area);
            self.features |= FEATURE_METADATA_LOG;
        }
        self
    }

    /// How many clusters a device of `size` bytes has for data.
    #[must_use]
    pub fn clusters(&self, size: u64) -> u64 {
        size.saturating_sub(self.data_start) / CLUSTER
    }

    /// The block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.raw(&MAGIC);
        w.u32(VERSION);
        w.u32(self.features);
        w.raw(&self.guid);
        w.u64(CLUSTER);
        for value in [self.size, self.length_start, self.metadata_start, self.metadata_size, self.data_start]
        {
            w.u64(value);
        }
        w.text(&self.name.chars().take(255).collect::<String>());
        let mut block = w.finish();
        block.resize(CRC_AT, 0);
        let crc = crc32c(&block);
        block.extend_from_slice(&crc.to_le_bytes());
        block
    }

    /// The superblock in a block.
    ///
    /// # Errors
    /// [`DecodeError::WrongMagic`] when the block is something else; others when it is damaged or too new.
    pub fn decode(block: &[u8]) -> Result<Self, DecodeError> {
        let block = block.get(..BLOCK as usize).ok_or(DecodeError::Truncated)?;
        let mut r = Reader::new(block);
        if r.raw(MAGIC.len())? != MAGIC {
            return Err(DecodeError::WrongMagic);
        }
        if crc32c(&block[..CRC_AT]).to_le_bytes() != block[CRC_AT..] {
            return Err(DecodeError::WrongChecksum);
        }
        let (version, features) = (r.u32()?, r.u32()?);
        if version != VERSION {
            return Err(DecodeError::Unsupported(version));
        }
        if features & !KNOWN_FEATURES != 0 {
            return Err(DecodeError::Unsupported(features));
        }
        let guid = r.guid()?;
        if r.u64()? != CLUSTER {
            return Err(DecodeError::Invalid("cluster size"));
        }
        let volume = Self {
            features,
            guid,
            size: r.u64()?,
            length_start: r.u64()?,
            metadata_start: r.u64()?,
            metadata_size: r.u64()?,
            data_start: r.u64()?,
            name: r.text()?,
        };
        let end = volume.metadata_start.checked_add(volume.metadata_size);
        let aligned =
            (volume.length_start | volume.metadata_start | volume.metadata_size | volume.data_start)
                .is_multiple_of(CLUSTER);
        let sound = aligned
            && volume.length_start >= CLUSTER
            && volume.length_start < volume.metadata_start
            && end.is_some_and(|end| end <= volume.data_start)
            && volume.data_start <= volume.size
            && volume.metadata_log().is_none_or(|(_, size)| (1..=METADATA_LOG_MAX).contains(&size));
        if sound { Ok(volume) } else { Err(DecodeError::Invalid("layout")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metadata_log_is_the_end_of_the_area() {
        for (size, log) in [(9 << 20, 1 << 20), (1 << 30, 2 << 20), (10 << 40, 16 << 20)] {
            let superblock = layout_for(size).expect("large enough");
            let (start, len) = superblock.metadata_log().expect("a log");
            assert_eq!((start + len, len), (superblock.data_start, log));
            assert_eq!(start, superblock.metadata_start + superblock.metadata_size);
            assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock.clone()));
            assert_eq!(superblock.clone().with_metadata_log(), superblock, "once");
        }
    }

    #[test]
    fn a_log_that_cannot_be_is_refused() {
        let sound = layout_for(1 << 40).expect("large enough");
        for area in [sound.data_start - sound.metadata_start, METADATA_LOG_MAX] {
            let wrong = Superblock { metadata_size: area, ..sound.clone() };
            assert_eq!(Superblock::decode(&wrong.encode()), Err(DecodeError::Invalid("layout")));
        }
    }
}
