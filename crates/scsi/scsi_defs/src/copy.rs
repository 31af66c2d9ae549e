//! EXTENDED COPY (LID1) parameter lists (SPC-4 6.4).

use crate::be;
use crate::sense::{Sense, SenseKey, asc};

/// Most copy source/destination descriptors: a copy is between two units.
pub const MAX_TARGETS: usize = 8;
/// Most segments in one command: bounds the time and memory of one list.
pub const MAX_SEGMENTS: usize = 64;
/// Longest list of segment descriptors, in bytes.
pub const MAX_DESCRIPTOR_BYTES: usize = MAX_TARGETS * 32 + MAX_SEGMENTS * 28;
const TARGET_BYTES: usize = 32;

/// One block-to-block copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Index into the targets.
    pub source: usize,
    /// Index into the targets.
    pub destination: usize,
    /// Blocks (in the source's size, or the destination's when DC is set).
    pub blocks: u16,
    /// Whether `blocks` counts destination blocks.
    pub destination_count: bool,
    /// First block at the source.
    pub source_lba: u64,
    /// First block at the destination.
    pub destination_lba: u64,
}

/// What to copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyList {
    /// The list identifier.
    pub list_id: u8,
    /// Identification descriptors of the units (the VPD 83 designator: 4-byte header and its body).
    pub targets: Vec<Vec<u8>>,
    /// In order.
    pub segments: Vec<Segment>,
}

impl CopyList {
    /// Reads the parameter list.
    ///
    /// # Errors
    /// The sense data to answer with.
    pub fn parse(data: &[u8]) -> Result<Self, Sense> {
        if data.len() < 16 {
            return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR));
        }
        let target_bytes = be(data, 2, 2) as usize;
        let segment_bytes = be(data, 8, 4) as usize;
        let inline_bytes = be(data, 12, 4) as usize;
        if data.len() - 16 < target_bytes.saturating_add(segment_bytes) {
            return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR));
        }
        if target_bytes.saturating_add(segment_bytes) > MAX_DESCRIPTOR_BYTES {
            return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR));
        }
        if !target_bytes.is_multiple_of(TARGET_BYTES) {
            return Err(Sense::parameter_field(2));
        }
        if target_bytes / TARGET_BYTES > MAX_TARGETS {
            return Err(Sense::illegal(asc::TOO_MANY_TARGET_DESCRIPTORS));
        }
        if inline_bytes != 0 {
            return Err(Sense::parameter_field(12));
        }
        let mut out = Self { list_id: data[0], ..Self::default() };
        let Some(mut rest) = data.get(16 + target_bytes..) else {
            return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR));
        };
        for target in data[16..16 + target_bytes].chunks_exact(TARGET_BYTES) {
            if target[0] != 0xe4 {
                return Err(Sense::illegal(asc::UNSUPPORTED_TARGET_DESCRIPTOR));
            }
            // NUL=1 and reserved lengths have no use here; the designator has at most 20 bytes.
            let len = usize::from(target[7]);
            let designator = target.get(4..8 + len).filter(|_| len <= 20);
            out.targets.push(designator.ok_or(Sense::parameter_field(23))?.to_vec());
        }
        if segment_bytes > rest.len() {
            return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR));
        }
        rest = &rest[..segment_bytes];
        while !rest.is_empty() {
            if out.segments.len() == MAX_SEGMENTS {
                return Err(Sense::illegal(asc::TOO_MANY_SEGMENT_DESCRIPTORS));
            }
            if rest[0] != 2 {
                return Err(Sense::illegal(asc::UNSUPPORTED_SEGMENT_DESCRIPTOR));
            }
            let Some(segment) = rest.get(..28).filter(|s| be(s, 2, 2) == 0x18) else {
                return Err(Sense::parameter_field(16));
            };
            let (source, destination) = (be(segment, 4, 2) as usize, be(segment, 6, 2) as usize);
            if source.max(destination) >= out.targets.len() {
                return Err(Sense::new(SenseKey::CopyAborted, asc::UNREACHABLE_COPY_TARGET));
            }
            out.segments.push(Segment {
                source,
                destination,
                blocks: be(segment, 10, 2) as u16,
                destination_count: segment[1] & 2 != 0,
                source_lba: be(segment, 12, 8),
                destination_lba: be(segment, 20, 8),
            });
            rest = &rest[28..];
        }
        Ok(out)
    }
}
