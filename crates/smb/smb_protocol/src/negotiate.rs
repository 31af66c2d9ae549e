//! NEGOTIATE: versions, limits and, from 3.1.1 on, contexts (MS-SMB2 2.2.3, 2.2.4).

pub mod contexts;

use crate::command::Dialect;
use crate::guid::Guid;
use crate::header::{HEADER_BYTES, body};
use crate::time::FileTime;
use crate::wire::{DecodeError, Out, Reserved, StructureSize, Wire, part};

pub use contexts::{NegotiateContext, NegotiateContexts, U16List};

bit_flags! {
    /// Whether a side can and must sign (MS-SMB2 2.2.3).
    pub struct SecurityMode(u16) {
        SIGNING_ENABLED = 0x0001,
        SIGNING_REQUIRED = 0x0002,
    }
}

bit_flags! {
    /// What a side can do (MS-SMB2 2.2.3, 2.2.4).
    pub struct Capabilities(u32) {
        DFS = 0x0000_0001,
        LEASING = 0x0000_0002,
        LARGE_MTU = 0x0000_0004,
        MULTI_CHANNEL = 0x0000_0008,
        PERSISTENT_HANDLES = 0x0000_0010,
        DIRECTORY_LEASING = 0x0000_0020,
        ENCRYPTION = 0x0000_0040,
        NOTIFICATIONS = 0x0000_0080,
    }
}

/// Bytes of a request before its dialects.
const REQUEST_FIXED: usize = 36;
/// Bytes of a response before its buffer.
const RESPONSE_FIXED: usize = 64;

/// A NEGOTIATE request (MS-SMB2 2.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiateRequest<'a> {
    /// Signing.
    pub security_mode: SecurityMode,
    /// What the client can do; zero before 3.0.
    pub capabilities: Capabilities,
    /// The client.
    pub client_guid: Guid,
    /// Versions that the client speaks, in no order.
    pub dialects: U16List<'a>,
    /// Contexts; empty when 3.1.1 is not among the dialects.
    pub contexts: NegotiateContexts<'a>,
}

impl<'a> NegotiateRequest<'a> {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says, in particular without any dialect.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = body(message)?;
        StructureSize::<36>::take(&mut r)?;
        let count = usize::from(r.u16()?);
        let security_mode = SecurityMode::take(&mut r)?;
        let _: Reserved<2> = Reserved::take(&mut r)?;
        let capabilities = Capabilities::take(&mut r)?;
        let client_guid = Guid::take(&mut r)?;
        let context_offset = r.u32()? as usize;
        let context_count = r.u16()?;
        let _: Reserved<2> = Reserved::take(&mut r)?;
        if count == 0 {
            return Err(DecodeError::Invalid("dialect count"));
        }
        let dialects = U16List::new(r.raw(count * 2)?);
        // Before 3.1.1 these eight bytes are ClientStartTime, which nobody uses.
        let contexts = if dialects.iter().any(|dialect| dialect == Dialect::SMB_3_1_1.0) {
            NegotiateContexts::decode(
                message,
                context_offset,
                context_count,
                HEADER_BYTES + REQUEST_FIXED + count * 2,
            )?
        } else {
            NegotiateContexts::default()
        };
        Ok(Self { security_mode, capabilities, client_guid, dialects, contexts })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Out<'_>) {
        out.put(&StructureSize::<36>);
        out.len16(self.dialects.len());
        out.put(&self.security_mode);
        out.put(&Reserved::<2>);
        out.put(&self.capabilities);
        out.put(&self.client_guid);
        let offset_at = out.position();
        out.u32(0);
        out.u16(self.contexts.count());
        out.put(&Reserved::<2>);
        out.raw(self.dialects.bytes());
        self.contexts.encode(out, offset_at);
    }
}

/// A NEGOTIATE response (MS-SMB2 2.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiateResponse<'a> {
    /// Signing.
    pub security_mode: SecurityMode,
    /// The version that is spoken from here on.
    pub dialect: Dialect,
    /// The server.
    pub server_guid: Guid,
    /// What the server can do.
    pub capabilities: Capabilities,
    /// Longest buffer of QUERY_INFO, SET_INFO, QUERY_DIRECTORY, CHANGE_NOTIFY and IOCTL.
    pub max_transact: u32,
    /// Longest READ.
    pub max_read: u32,
    /// Longest WRITE.
    pub max_write: u32,
    /// The server's clock.
    pub system_time: FileTime,
    /// Since when it runs; may be zero.
    pub start_time: FileTime,
    /// A GSS token with the mechanisms that the server offers.
    pub security_buffer: &'a [u8],
    /// Contexts; written only with dialect 3.1.1.
    pub contexts: NegotiateContexts<'a>,
}

impl<'a> NegotiateResponse<'a> {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = body(message)?;
        StructureSize::<65>::take(&mut r)?;
        let security_mode = SecurityMode::take(&mut r)?;
        let dialect = Dialect::take(&mut r)?;
        let context_count = r.u16()?;
        let server_guid = Guid::take(&mut r)?;
        let capabilities = Capabilities::take(&mut r)?;
        let (max_transact, max_read, max_write) = (r.u32()?, r.u32()?, r.u32()?);
        let (system_time, start_time) = (FileTime(r.u64()?), FileTime(r.u64()?));
        let (offset, len) = (usize::from(r.u16()?), usize::from(r.u16()?));
        let context_offset = r.u32()? as usize;
        let least = HEADER_BYTES + RESPONSE_FIXED;
        let security_buffer = part(message, offset, len, least, "security buffer")?;
        let contexts = if dialect == Dialect::SMB_3_1_1 {
            NegotiateContexts::decode(message, context_offset, context_count, least)?
        } else {
            NegotiateContexts::default()
        };
        Ok(Self {
            security_mode,
            dialect,
            server_guid,
            capabilities,
            max_transact,
            max_read,
            max_write,
            system_time,
            start_time,
            security_buffer,
            contexts,
        })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Out<'_>) {
        let contexts =
            if self.dialect == Dialect::SMB_3_1_1 { self.contexts } else { NegotiateContexts::default() };
        out.put(&StructureSize::<65>);
        out.put(&self.security_mode);
        out.put(&self.dialect);
        out.u16(contexts.count());
        out.put(&self.server_guid);
        out.put(&self.capabilities);
        out.u32(self.max_transact);
        out.u32(self.max_read);
        out.u32(self.max_write);
        out.put(&self.system_time);
        out.put(&self.start_time);
        out.len16(HEADER_BYTES + RESPONSE_FIXED);
        out.len16(self.security_buffer.len());
        let offset_at = out.position();
        out.u32(0);
        out.raw(self.security_buffer);
        contexts.encode(out, offset_at);
    }
}
