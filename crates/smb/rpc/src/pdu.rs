//! Connection-oriented PDUs: what surrounds the stubs (C706 12.6, MS-RPCE 2.2.2).
//!
//! [`Pdu`] borrows a whole PDU of a client whose header was checked. What the server sends is written by the functions
//! in [`answer`].

pub mod answer;
mod bind;
#[cfg(test)]
pub(crate) mod tests;

pub use bind::{Bind, ContextItem, Syntax};

use crate::ndr::{BadStub, NdrIn, Order};

/// Bytes of the header that all PDUs have.
pub const HEADER_BYTES: usize = 16;
/// Bytes of the trailer before the authentication's token (MS-RPCE 2.2.2.11).
pub const TRAILER_BYTES: usize = 8;
/// The longest fragment that we take and send, as Windows has it.
pub const FRAGMENT_MAX: u16 = 5840;
/// The shortest longest fragment: what everybody has to take (C706 12.6.3.1, MustRecvFragSize).
pub const FRAGMENT_MIN: u16 = 1432;

/// Kinds of PDUs (C706 12.6.4, MS-RPCE 2.2.2.10).
pub mod kind {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const REQUEST: u8 = 0;
    pub const RESPONSE: u8 = 2;
    pub const FAULT: u8 = 3;
    pub const BIND: u8 = 11;
    pub const BIND_ACK: u8 = 12;
    pub const BIND_NAK: u8 = 13;
    pub const ALTER_CONTEXT: u8 = 14;
    pub const ALTER_CONTEXT_RESP: u8 = 15;
    pub const AUTH3: u8 = 16;
    pub const CO_CANCEL: u8 = 18;
    pub const ORPHANED: u8 = 19;
}

/// Flags of the header.
pub mod flag {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const FIRST_FRAG: u8 = 0x01;
    pub const LAST_FRAG: u8 = 0x02;
    /// In a bind: signatures cover the header. In a request: a cancel was pending.
    pub const SUPPORT_HEADER_SIGN: u8 = 0x04;
    pub const CONC_MPX: u8 = 0x10;
    pub const DID_NOT_EXECUTE: u8 = 0x20;
    pub const OBJECT_UUID: u8 = 0x80;
}

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind.
    pub kind: u8,
    /// The flags.
    pub flags: u8,
    /// The sender's order of bytes.
    pub order: Order,
    /// Bytes of the fragment, this header among them.
    pub fragment: u16,
    /// Bytes of the authentication's token at its end.
    pub auth: u16,
    /// The call.
    pub call: u32,
}

/// Bytes that are no PDU: the stream cannot be understood from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// The version is neither 5.0 nor 5.1.
    Version,
    /// Lengths that contradict each other, or are longer than any fragment.
    Length,
}

impl Header {
    /// The header at the beginning of `bytes`; `None` while it is not whole.
    ///
    /// # Errors
    /// When this is no PDU that we could take.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, HeaderError> {
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [version, minor, kind, flags, representation, ..] = *head;
        if version != 5 || minor > 1 {
            return Err(HeaderError::Version);
        }
        // The high half of the first byte is the order of integers (C706 14.1).
        let order = if representation & 0xf0 == 0 { Order::Big } else { Order::Little };
        let mut rest = NdrIn::new(head.get(8..).unwrap_or_default(), order);
        let mut take = || Ok::<_, BadStub>((rest.u16()?, rest.u16()?, rest.u32()?));
        let Ok((fragment, auth, call)) = take() else { return Ok(None) };
        let least = HEADER_BYTES + if auth == 0 { 0 } else { TRAILER_BYTES + usize::from(auth) };
        if usize::from(fragment) < least || fragment > FRAGMENT_MAX {
            return Err(HeaderError::Length);
        }
        Ok(Some(Self { kind, flags, order, fragment, auth, call }))
    }

    /// Whether this flag is set.
    #[must_use]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The trailer and token of an authentication, or of a message's protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer<'a> {
    /// The mechanism.
    pub kind: u8,
    /// How much is protected.
    pub level: u8,
    /// Bytes before the trailer that only align it.
    pub padding: u8,
    /// The client's number for this authentication.
    pub context: u32,
    /// The token.
    pub token: &'a [u8],
}

/// A whole PDU.
#[derive(Clone, Copy, Debug)]
pub struct Pdu<'a> {
    /// Its header.
    pub header: Header,
    /// All of its bytes.
    pub bytes: &'a [u8],
    /// What is between header and trailer, padding included.
    pub body: &'a [u8],
    /// The trailer, if there is one.
    pub trailer: Option<Trailer<'a>>,
}

impl<'a> Pdu<'a> {
    /// The parts of a PDU that is exactly as long as its header says.
    ///
    /// # Errors
    /// When the lengths contradict each other.
    pub fn new(header: Header, bytes: &'a [u8]) -> Result<Self, BadStub> {
        let rest = bytes.get(HEADER_BYTES..usize::from(header.fragment)).ok_or(BadStub)?;
        if header.auth == 0 {
            return Ok(Self { header, bytes, body: rest, trailer: None });
        }
        let at = rest.len().checked_sub(TRAILER_BYTES + usize::from(header.auth)).ok_or(BadStub)?;
        let (body, end) = rest.split_at_checked(at).ok_or(BadStub)?;
        let (head, token) = end.split_at_checked(TRAILER_BYTES).ok_or(BadStub)?;
        let mut head = NdrIn::new(head, header.order);
        let (kind, level, padding) = (head.u8()?, head.u8()?, head.u8()?);
        head.u8()?;
        let trailer = Trailer { kind, level, padding, context: head.u32()?, token };
        Ok(Self { header, bytes, body, trailer: Some(trailer) })
    }

    /// A reader of the body. Alignment counts from the body's first byte, which is as good as the PDU's.
    #[must_use]
    pub fn reader(&self) -> NdrIn<'a> {
        NdrIn::new(self.body, self.header.order)
    }
}

/// What a request says before its stub (C706 12.6.4.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The presentation context: which interface.
    pub context: u16,
    /// Which of its operations.
    pub operation: u16,
    /// Where in the body the stub begins.
    pub stub_at: usize,
}

impl Request {
    /// Decodes it from a PDU.
    ///
    /// # Errors
    /// When it is too short.
    pub fn decode(pdu: &Pdu<'_>) -> Result<Self, BadStub> {
        let mut r = pdu.reader();
        r.u32()?;
        let (context, operation) = (r.u16()?, r.u16()?);
        if pdu.header.has(flag::OBJECT_UUID) {
            // None of our interfaces has objects: which one is meant makes no difference.
            r.raw(16)?;
        }
        Ok(Self { context, operation, stub_at: pdu.body.len() - r.left() })
    }
}
