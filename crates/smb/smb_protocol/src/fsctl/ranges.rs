//! Controls about ranges of a file: zeroing, allocation, trim, regions, integrity (MS-FSCC 2.3).

use crate::wire::{DecodeError, Reader, Reserved, Wire};

wire_struct! {
    /// FILE_ZERO_DATA_INFORMATION (MS-FSCC 2.3.71): zeros from one offset to before another.
    pub struct ZeroData [16] {
        /// The first byte.
        file_offset: i64,
        /// The byte behind the last one.
        beyond_final_zero: i64,
    }
}

wire_struct! {
    /// FILE_ALLOCATED_RANGE_BUFFER (MS-FSCC 2.3.52): where to look, and what is there.
    pub struct AllocatedRange [16] {
        /// The first byte.
        file_offset: i64,
        /// How many.
        length: i64,
    }
}

/// FSCTL_SET_SPARSE (MS-FSCC 2.3.69): an absent byte means that the file becomes sparse.
#[must_use]
pub fn set_sparse(input: &[u8]) -> bool {
    input.first().is_none_or(|byte| *byte != 0)
}

wire_struct! {
    /// A range of FILE_LEVEL_TRIM (MS-FSCC 2.3.13.1).
    pub struct TrimRange [16] {
        /// The first byte.
        offset: u64,
        /// How many.
        length: u64,
    }
}

/// Most ranges in a trim: many more than the 4 KiB message of a known client holds.
pub const MAX_TRIM_RANGES: usize = 4096;

/// FSCTL_FILE_LEVEL_TRIM (MS-FSCC 2.3.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLevelTrim<'a> {
    /// Must be 0 (MS-FSA 2.1.5.10.7).
    pub key: u32,
    ranges: &'a [u8],
}

impl<'a> FileLevelTrim<'a> {
    /// Decodes it from the input of the control.
    ///
    /// # Errors
    /// When a range is missing or there are more than [`MAX_TRIM_RANGES`].
    pub fn decode(input: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(input);
        let key = r.u32()?;
        let count = r.u32()? as usize;
        if count > MAX_TRIM_RANGES {
            return Err(DecodeError::Invalid("number of trim ranges"));
        }
        Ok(Self { key, ranges: r.raw(count * TrimRange::SIZE)? })
    }

    /// The ranges.
    pub fn ranges(&self) -> impl Iterator<Item = TrimRange> + use<'a> {
        let mut r = Reader::new(self.ranges);
        std::iter::from_fn(move || TrimRange::take(&mut r).ok())
    }
}

/// A request to trim these ranges.
#[must_use]
pub fn trim_request(ranges: &[TrimRange]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + ranges.len() * TrimRange::SIZE);
    0_u32.put(&mut out);
    (ranges.len() as u32).put(&mut out);
    ranges.iter().for_each(|range| range.put(&mut out));
    out
}

wire_struct! {
    /// What FILE_LEVEL_TRIM returns (MS-FSCC 2.3.14).
    pub struct TrimReply [4] {
        /// How many ranges were looked at.
        processed: u32,
    }
}

bit_flags! {
    /// What is asked or said about a region (MS-FSCC 2.3.55, 2.3.56.1).
    pub struct RegionUsage(u32) {
        VALID_CACHED_DATA = 0x0000_0001,
        VALID_NONCACHED_DATA = 0x0000_0002,
    }
}

wire_struct! {
    /// FILE_REGION_INPUT (MS-FSCC 2.3.55); without input all of the file is meant.
    pub struct RegionInput [24] {
        /// The offset at which it begins.
        file_offset: i64,
        /// How many bytes.
        length: i64,
        /// What is wanted.
        usage: RegionUsage,
        _: Reserved<4>,
    }
}

wire_struct! {
    /// FILE_REGION_INFO (MS-FSCC 2.3.56.1).
    pub struct Region [24] {
        /// The first byte.
        file_offset: i64,
        /// How many.
        length: i64,
        /// What they are.
        usage: RegionUsage,
        _: Reserved<4>,
    }
}

/// FILE_REGION_OUTPUT (MS-FSCC 2.3.56): as many of `regions` as fit into `limit` bytes. Says whether all did.
pub fn put_regions(regions: &[Region], limit: usize, out: &mut Vec<u8>) -> bool {
    let fitting = limit.saturating_sub(16) / Region::SIZE;
    let returned = regions.len().min(fitting);
    0_u32.put(out);
    (regions.len() as u32).put(out);
    (returned as u32).put(out);
    0_u32.put(out);
    regions.iter().take(returned).for_each(|region| region.put(out));
    returned == regions.len()
}

/// The regions that FSCTL_QUERY_FILE_REGIONS returned, and how many there are in all.
///
/// # Errors
/// When they are not whole.
pub fn regions(output: &[u8]) -> Result<(u32, Vec<Region>), DecodeError> {
    let mut r = Reader::new(output);
    let _flags = r.u32()?;
    let total = r.u32()?;
    let count = r.u32()? as usize;
    r.u32()?;
    if count > r.remaining() / Region::SIZE {
        return Err(DecodeError::Truncated);
    }
    Ok((total, (0..count).map(|_| Region::take(&mut r)).collect::<Result<_, _>>()?))
}

named_values! {
    /// Checksums of a file (MS-FSCC 2.3.20).
    pub struct ChecksumAlgorithm(u16) {
        NONE = 0x0000,
        CRC32 = 0x0001,
        CRC64 = 0x0002,
        UNCHANGED = 0xffff,
    }
}

wire_struct! {
    /// FSCTL_GET_INTEGRITY_INFORMATION_BUFFER (MS-FSCC 2.3.20).
    pub struct GetIntegrity [16] {
        /// Which checksums.
        algorithm: ChecksumAlgorithm,
        _: Reserved<2>,
        /// 1: damage is not enforced.
        flags: u32,
        /// Bytes that one checksum covers.
        chunk_size: u32,
        /// Bytes of a cluster.
        cluster_size: u32,
    }
}

wire_struct! {
    /// FSCTL_SET_INTEGRITY_INFORMATION_BUFFER (MS-FSCC 2.3.67).
    pub struct SetIntegrity [8] {
        /// Which checksums.
        algorithm: ChecksumAlgorithm,
        _: Reserved<2>,
        /// 1: damage is not enforced.
        flags: u32,
    }
}

wire_struct! {
    /// FSCTL_SET_INTEGRITY_INFORMATION_BUFFER_EX (MS-FSCC 2.3.68).
    pub struct SetIntegrityEx [16] {
        /// Whether checksums are wanted.
        enable: bool,
        /// Leave that as it is.
        keep: bool,
        _: Reserved<2>,
        /// 1: damage is not enforced.
        flags: u32,
        /// 1.
        version: u8,
        _: Reserved<7>,
    }
}

wire_struct! {
    /// FSCTL_GET_COMPRESSION and SET_COMPRESSION (MS-FSCC 2.3.18, 2.3.62): 0 for none.
    pub struct Compression [2] {
        /// The format.
        format: u16,
    }
}

wire_struct! {
    /// An object identifier with its birth data (MS-FSCC 2.1.3.1); objects of clusters use it.
    pub struct ObjectIdBuffer [64] {
        /// The identifier.
        object_id: crate::guid::Guid,
        /// Volume, object and domain at birth.
        birth: [[u8; 16]; 3],
    }
}

impl Wire for [[u8; 16]; 3] {
    const SIZE: usize = 48;
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok([reader.guid()?, reader.guid()?, reader.guid()?])
    }
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|part| part.put(out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trims_there_and_back_and_bounded() {
        let ranges = [TrimRange { offset: 4096, length: 8192 }; 3];
        let bytes = trim_request(&ranges);
        assert_eq!(FileLevelTrim::decode(&bytes).unwrap().ranges().collect::<Vec<_>>(), ranges);
        assert!(FileLevelTrim::decode(&bytes[..bytes.len() - 1]).is_err());
        let mut many = bytes;
        many[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(FileLevelTrim::decode(&many).is_err());
    }

    #[test]
    fn regions_as_far_as_they_fit() {
        let all = [Region { file_offset: 0, length: 65536, usage: RegionUsage::VALID_CACHED_DATA }; 3];
        let mut out = Vec::new();
        assert!(!put_regions(&all, 16 + 2 * 24 + 23, &mut out));
        assert_eq!(regions(&out), Ok((3, all[..2].to_vec())));
        out[8] = 200;
        assert!(regions(&out).is_err());
    }

    #[test]
    fn sparse_without_a_byte_means_yes() {
        assert!(set_sparse(&[]) && set_sparse(&[1, 0]) && !set_sparse(&[0]));
    }
}
