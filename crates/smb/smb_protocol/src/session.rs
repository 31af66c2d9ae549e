//! SESSION_SETUP and LOGOFF (MS-SMB2 2.2.5 to 2.2.8).

use crate::header::{HEADER_BYTES, body};
use crate::negotiate::Capabilities;
use crate::wire::{DecodeError, Out, Reserved, StructureSize, Wire, part};

bit_flags! {
    /// Flags of a SESSION_SETUP request.
    pub struct SessionSetupFlags(u8) {
        /// Another connection joins a session (3.x).
        BINDING = 0x01,
    }
}

bit_flags! {
    /// What kind of session it became.
    pub struct SessionFlags(u16) {
        IS_GUEST = 0x0001,
        IS_NULL = 0x0002,
        ENCRYPT_DATA = 0x0004,
    }
}

/// Bytes of a request before its buffer.
const REQUEST_FIXED: usize = 24;
/// Bytes of a response before its buffer.
const RESPONSE_FIXED: usize = 8;

/// A SESSION_SETUP request (MS-SMB2 2.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSetupRequest<'a> {
    /// Flags.
    pub flags: SessionSetupFlags,
    /// Signing, as in NEGOTIATE but one byte wide.
    pub security_mode: u8,
    /// What the client can do; only DFS has a meaning here.
    pub capabilities: Capabilities,
    /// A session of the same client that this one replaces; 0 for none.
    pub previous_session_id: u64,
    /// A GSS token.
    pub security_buffer: &'a [u8],
}

impl<'a> SessionSetupRequest<'a> {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = body(message)?;
        StructureSize::<25>::take(&mut r)?;
        let flags = SessionSetupFlags::take(&mut r)?;
        let security_mode = r.u8()?;
        let capabilities = Capabilities::take(&mut r)?;
        let _channel: Reserved<4> = Reserved::take(&mut r)?;
        let (offset, len) = (usize::from(r.u16()?), usize::from(r.u16()?));
        let previous_session_id = r.u64()?;
        let security_buffer = part(message, offset, len, HEADER_BYTES + REQUEST_FIXED, "security buffer")?;
        Ok(Self { flags, security_mode, capabilities, previous_session_id, security_buffer })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Out<'_>) {
        out.put(&StructureSize::<25>);
        out.put(&self.flags);
        out.u8(self.security_mode);
        out.put(&self.capabilities);
        out.put(&Reserved::<4>);
        out.len16(HEADER_BYTES + REQUEST_FIXED);
        out.len16(self.security_buffer.len());
        out.u64(self.previous_session_id);
        out.raw(self.security_buffer);
        out.pad_to(HEADER_BYTES + REQUEST_FIXED + 1);
    }
}

/// A SESSION_SETUP response (MS-SMB2 2.2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSetupResponse<'a> {
    /// What kind of session it became; zero while it is not finished.
    pub flags: SessionFlags,
    /// A GSS token.
    pub security_buffer: &'a [u8],
}

impl<'a> SessionSetupResponse<'a> {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = body(message)?;
        StructureSize::<9>::take(&mut r)?;
        let flags = SessionFlags::take(&mut r)?;
        let (offset, len) = (usize::from(r.u16()?), usize::from(r.u16()?));
        let security_buffer = part(message, offset, len, HEADER_BYTES + RESPONSE_FIXED, "security buffer")?;
        Ok(Self { flags, security_buffer })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Out<'_>) {
        out.put(&StructureSize::<9>);
        out.put(&self.flags);
        out.len16(HEADER_BYTES + RESPONSE_FIXED);
        out.len16(self.security_buffer.len());
        out.raw(self.security_buffer);
    }
}

wire_struct! {
    /// Four bytes that say nothing: LOGOFF, TREE_DISCONNECT, ECHO, and CANCEL, and the answers to them and to FLUSH and
    /// LOCK (MS-SMB2 2.2.7, 2.2.8, 2.2.11, 2.2.12, 2.2.18, 2.2.27 to 2.2.30).
    pub struct Empty [4] {
        _: StructureSize<4>,
        _: Reserved<2>,
    }
}

impl Empty {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn from_message(message: &[u8]) -> Result<Self, DecodeError> {
        Self::take(&mut body(message)?)
    }
}

wire_struct! {
    /// SERVER_TO_CLIENT_NOTIFICATION: the session was closed at the server (MS-SMB2 2.2.44).
    pub struct SessionClosed [12] {
        _: StructureSize<4>,
        _: Reserved<2>,
        /// 0 is the only type there is.
        kind: u32,
        _: Reserved<4>,
    }
}
