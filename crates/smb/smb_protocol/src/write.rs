//! WRITE (MS-SMB2 2.2.21, 2.2.22).
//!
//! The data are named by a range, not borrowed: a server can decode the first 112 bytes while the rest is still being
//! received into a buffer of its own, and hand that buffer on without a copy.

use std::ops::Range;

use crate::file::FileId;
use crate::header::{HEADER_BYTES, body};
use crate::read::Channel;
use crate::wire::{DecodeError, Out, Reserved, StructureSize, Wire};

bit_flags! {
    /// Flags of WRITE.
    pub struct WriteFlags(u32) {
        /// Durable when answered (2.1 and later).
        WRITE_THROUGH = 0x0000_0001,
        /// Past every cache (3.0.2).
        UNBUFFERED = 0x0000_0002,
    }
}

/// Bytes of a request before its buffer.
const REQUEST_FIXED: usize = 48;
/// Where the data of a WRITE request begin when there is no channel info; all known clients put them there.
pub const WRITE_DATA_AT: usize = HEADER_BYTES + REQUEST_FIXED;
/// The farthest that data may begin (MS-SMB2 3.3.5.13).
const MAX_DATA_OFFSET: usize = 0x100;

/// A WRITE request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteRequest {
    /// To where.
    pub offset: u64,
    /// The file.
    pub file_id: FileId,
    /// Where the data come from.
    pub channel: Channel,
    /// Bytes that will be written after these, or that are fetched over the channel.
    pub remaining: u32,
    /// Flags.
    pub flags: WriteFlags,
    /// Where the data lie, counted from the header.
    pub data: Range<usize>,
    /// Where buffer descriptors of RDMA lie; empty without a channel.
    pub channel_info: Range<usize>,
}

impl WriteRequest {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode(message: &[u8]) -> Result<Self, DecodeError> {
        Self::decode_head(message, message.len())
    }

    /// Decodes it from the beginning of a message (at least [`WRITE_DATA_AT`] bytes) that will be `message_len` bytes long. The
    /// ranges are inside that length.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode_head(head: &[u8], message_len: usize) -> Result<Self, DecodeError> {
        let mut r = body(head)?;
        StructureSize::<49>::take(&mut r)?;
        let data_offset = usize::from(r.u16()?);
        let length = r.u32()? as usize;
        let offset = r.u64()?;
        let file_id = FileId::take(&mut r)?;
        let channel = Channel::take(&mut r)?;
        let remaining = r.u32()?;
        let (info_at, info_len) = (usize::from(r.u16()?), usize::from(r.u16()?));
        let flags = WriteFlags::take(&mut r)?;
        let data = range(data_offset, length, message_len, "data")?;
        if length > 0 && data_offset > MAX_DATA_OFFSET {
            return Err(DecodeError::Invalid("data offset"));
        }
        let channel_info = match channel {
            Channel::NONE => 0..0,
            _ => range(info_at, info_len, message_len, "channel info")?,
        };
        Ok(Self { offset, file_id, channel, remaining, flags, data, channel_info })
    }

    /// Appends the body up to the data; exactly `data_len` bytes must follow. The ranges are not looked at.
    pub fn encode_head(&self, data_len: u32, out: &mut Out<'_>) {
        out.put(&StructureSize::<49>);
        out.len16(WRITE_DATA_AT);
        out.u32(data_len);
        out.u64(self.offset);
        out.put(&self.file_id);
        out.put(&Channel::NONE);
        out.u32(self.remaining);
        out.put(&Reserved::<4>);
        out.put(&self.flags);
    }

    /// Appends the body with its data.
    pub fn encode(&self, data: &[u8], out: &mut Out<'_>) {
        self.encode_head(u32::try_from(data.len()).unwrap_or(u32::MAX), out);
        out.raw(data);
        out.pad_to(WRITE_DATA_AT + 1);
    }
}

fn range(
    at: usize,
    len: usize,
    message_len: usize,
    field: &'static str,
) -> Result<Range<usize>, DecodeError> {
    if len == 0 {
        return Ok(0..0);
    }
    match at.checked_add(len) {
        Some(end) if at >= WRITE_DATA_AT && end <= message_len => Ok(at..end),
        _ => Err(DecodeError::Invalid(field)),
    }
}

wire_struct! {
    /// A WRITE response.
    pub struct WriteResponse [16] {
        _: StructureSize<17>,
        _: Reserved<2>,
        /// Bytes written.
        count: u32,
        _: Reserved<8>,
    }
}

impl WriteResponse {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn from_message(message: &[u8]) -> Result<Self, DecodeError> {
        Self::take(&mut body(message)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(data: &[u8]) -> Vec<u8> {
        let mut message = vec![0; HEADER_BYTES];
        let request =
            WriteRequest { offset: 4096, flags: WriteFlags::WRITE_THROUGH, ..WriteRequest::default() };
        request.encode(data, &mut Out::at(&mut message, 0));
        message
    }

    #[test]
    fn the_head_is_enough_to_know_where_the_data_will_be() {
        let whole = message(&[7; 8192]);
        let early = WriteRequest::decode_head(&whole[..WRITE_DATA_AT], whole.len()).unwrap();
        assert_eq!(early, WriteRequest::decode(&whole).unwrap());
        assert_eq!(early.data, WRITE_DATA_AT..WRITE_DATA_AT + 8192);
        assert!(WriteRequest::decode_head(&whole[..WRITE_DATA_AT], whole.len() - 1).is_err());
        assert!(WriteRequest::decode_head(&whole[..WRITE_DATA_AT - 1], whole.len()).is_err());
    }

    #[test]
    fn data_are_behind_the_fixed_fields_and_not_far_away() {
        let mut bad = message(&[7; 600]);
        for (offset, good) in [(111_u16, false), (112, true), (0x100, true), (0x101, false), (0, false)] {
            bad[66..68].copy_from_slice(&offset.to_le_bytes());
            bad[68] = 1;
            bad[69] = 0;
            assert_eq!(WriteRequest::decode(&bad).is_ok(), good, "{offset}");
        }
    }

    #[test]
    fn nothing_to_write_may_begin_anywhere() {
        let mut empty = message(&[]);
        empty[66] = 0;
        assert_eq!(WriteRequest::decode(&empty).unwrap().data, 0..0);
    }
}
