//! EXTENDED COPY parameter lists, with list identifiers of one byte (LID1) and of four (LID4) (SPC-4 6.4, 6.5).

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

/// What an initiator calls a copy. The two kinds are numbered apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListId {
    /// A list identifier of EXTENDED COPY (LID1).
    One(u8),
    /// A list identifier of EXTENDED COPY (LID4).
    Four(u32),
}

impl Default for ListId {
    fn default() -> Self {
        Self::One(0)
    }
}

/// What to copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyList {
    /// The list identifier.
    pub list_id: ListId,
    /// Identification descriptors of the units (the VPD 83 designator: 4-byte header and its body).
    pub targets: Vec<Vec<u8>>,
    /// In order.
    pub segments: Vec<Segment>,
}

impl CopyList {
    /// Reads the parameter list of EXTENDED COPY (LID1).
    ///
    /// # Errors
    /// The sense data to answer with.
    pub fn parse(data: &[u8]) -> Result<Self, Sense> {
        if data.len() < 16 {
            return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR));
        }
        if be(data, 12, 4) != 0 {
            return Err(Sense::parameter_field(12));
        }
        let id = ListId::One(data[0]);
        Self::descriptors(id, data, (16, 2), be(data, 2, 2) as usize, be(data, 8, 4) as usize)
    }

    /// Reads the parameter list of EXTENDED COPY (LID4).
    ///
    /// # Errors
    /// The sense data to answer with.
    pub fn parse_lid4(data: &[u8]) -> Result<Self, Sense> {
        if data.len() < 48 {
            return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR));
        }
        // The format, the length and the type of the header.
        for (at, bytes, value) in [(0, 1, 1), (2, 2, 0x20), (16, 1, 0xff), (46, 2, 0)] {
            if be(data, at, bytes) != value {
                return Err(Sense::parameter_field(at as u16));
            }
        }
        let id = ListId::Four(be(data, 20, 4) as u32);
        Self::descriptors(id, data, (48, 42), be(data, 42, 2) as usize, be(data, 44, 2) as usize)
    }

    /// Reads both lists of descriptors after a head of `head` bytes; `field` is where their length stands.
    fn descriptors(
        list_id: ListId,
        data: &[u8],
        (head, field): (usize, u16),
        target_bytes: usize,
        segment_bytes: usize,
    ) -> Result<Self, Sense> {
        if data.len() - head < target_bytes.saturating_add(segment_bytes) {
            return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR));
        }
        if target_bytes.saturating_add(segment_bytes) > MAX_DESCRIPTOR_BYTES {
            return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR));
        }
        if !target_bytes.is_multiple_of(TARGET_BYTES) {
            return Err(Sense::parameter_field(field));
        }
        if target_bytes / TARGET_BYTES > MAX_TARGETS {
            return Err(Sense::illegal(asc::TOO_MANY_TARGET_DESCRIPTORS));
        }
        let mut out = Self { list_id, ..Self::default() };
        let Some(mut rest) = data.get(head + target_bytes..) else {
            return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR));
        };
        for target in data[head..head + target_bytes].chunks_exact(TARGET_BYTES) {
            if target[0] != 0xe4 {
                return Err(Sense::illegal(asc::UNSUPPORTED_TARGET_DESCRIPTOR));
            }
            // NUL=1 and reserved lengths have no use here; the designator has at most 20 bytes.
            let len = usize::from(target[7]);
            let designator = target.get(4..8 + len).filter(|_| len <= 20);
            out.targets.push(designator.ok_or(Sense::parameter_field(head as u16 + 7))?.to_vec());
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
                return Err(Sense::parameter_field((head + target_bytes) as u16));
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
