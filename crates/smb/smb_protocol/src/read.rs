//! READ (MS-SMB2 2.2.19, 2.2.20).

use crate::file::FileId;
use crate::header::{HEADER_BYTES, body};
use crate::wire::{DecodeError, Out, Reserved, StructureSize, Wire, part};

bit_flags! {
    /// Flags of READ.
    pub struct ReadFlags(u8) {
        /// Past every cache (3.0.2).
        UNBUFFERED = 0x01,
        /// The answer may be compressed (3.1.1).
        REQUEST_COMPRESSED = 0x02,
    }
}

named_values! {
    /// Where data of READ and WRITE go instead of into the message: over RDMA.
    pub struct Channel(u32) {
        NONE = 0,
        RDMA_V1 = 1,
        RDMA_V1_INVALIDATE = 2,
        RDMA_TRANSFORM = 3,
    }
}

/// Bytes of a request before its buffer.
const REQUEST_FIXED: usize = 48;
/// Bytes of a response before its data.
const RESPONSE_FIXED: usize = 16;
/// Where the data of a READ response begin, counted from its header.
pub const READ_DATA_AT: usize = HEADER_BYTES + RESPONSE_FIXED;

/// A READ request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadRequest<'a> {
    /// Flags.
    pub flags: ReadFlags,
    /// Bytes wanted.
    pub length: u32,
    /// The offset at which it begins.
    pub offset: u64,
    /// The file.
    pub file_id: FileId,
    /// Fewer bytes than this are an error.
    pub minimum_count: u32,
    /// Where the data go.
    pub channel: Channel,
    /// Bytes that will be read after these.
    pub remaining: u32,
    /// Buffer descriptors of RDMA; empty without a channel.
    pub channel_info: &'a [u8],
}

impl<'a> ReadRequest<'a> {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = body(message)?;
        StructureSize::<49>::take(&mut r)?;
        let _padding: Reserved<1> = Reserved::take(&mut r)?;
        let flags = ReadFlags::take(&mut r)?;
        let (length, offset) = (r.u32()?, r.u64()?);
        let file_id = FileId::take(&mut r)?;
        let minimum_count = r.u32()?;
        let channel = Channel::take(&mut r)?;
        let remaining = r.u32()?;
        let (at, len) = (usize::from(r.u16()?), usize::from(r.u16()?));
        let channel_info = match channel {
            Channel::NONE => &[],
            _ => part(message, at, len, HEADER_BYTES + REQUEST_FIXED, "channel info")?,
        };
        Ok(Self { flags, length, offset, file_id, minimum_count, channel, remaining, channel_info })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Out<'_>) {
        out.put(&StructureSize::<49>);
        // Where the client would like the data in the response: as near as they can be.
        out.u8(READ_DATA_AT as u8);
        out.put(&self.flags);
        out.u32(self.length);
        out.u64(self.offset);
        out.put(&self.file_id);
        out.u32(self.minimum_count);
        out.put(&self.channel);
        out.u32(self.remaining);
        out.len16(if self.channel_info.is_empty() { 0 } else { HEADER_BYTES + REQUEST_FIXED });
        out.len16(self.channel_info.len());
        out.raw(self.channel_info);
        out.pad_to(HEADER_BYTES + REQUEST_FIXED + 1);
    }
}

wire_struct! {
    /// What precedes the data of a READ response. The data follow at [`READ_DATA_AT`], from whatever buffer they are in.
    pub struct ReadResponse [16] {
        _: StructureSize<17>,
        /// Where the data begin; servers say [`READ_DATA_AT`].
        data_offset: u8,
        _: Reserved<1>,
        /// Bytes of data.
        data_length: u32,
        /// Bytes that went over the channel instead.
        data_remaining: u32,
        /// 1: the data are described by an RDMA transform.
        flags: u32,
    }
}

impl ReadResponse {
    /// The answer with the given number of bytes of data behind it.
    #[must_use]
    pub fn of(data_length: u32) -> Self {
        Self { data_offset: READ_DATA_AT as u8, data_length, ..Self::default() }
    }

    /// What precedes the data, from the beginning of a message whose data may not have come.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn in_front(message: &[u8]) -> Result<Self, DecodeError> {
        Self::take(&mut body(message)?)
    }

    /// Decodes it from a whole message, with its data.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn from_message(message: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let response = Self::take(&mut body(message)?)?;
        let (at, len) = (usize::from(response.data_offset), response.data_length as usize);
        Ok((response, part(message, at, len, READ_DATA_AT, "data")?))
    }
}
