//! What the server sends: always little-endian, never more than one PDU at a time.

use crate::error::Fault;
use crate::ndr::NdrOut;
use crate::pdu::{Syntax, flag, kind};

/// Where in a PDU the lengths of fragment and token are.
const FRAGMENT_AT: usize = 8;

/// Why a presentation context is not had (C706 12.6.3.1, p_provider_reason_t).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is.
    Accepted,
    /// This interface is not served here.
    UnknownInterface,
    /// None of the transfer syntaxes is known.
    UnknownTransfer,
    /// There are too many.
    TooMany,
    /// It was the question for features, and these are ours, too.
    Features(u16),
}

impl Outcome {
    /// Result, reason and transfer syntax.
    fn fields(self) -> (u16, u16, Syntax) {
        match self {
            Self::Accepted => (0, 0, Syntax::NDR),
            Self::UnknownInterface => (2, 1, Syntax::NONE),
            Self::UnknownTransfer => (2, 2, Syntax::NONE),
            Self::TooMany => (2, 3, Syntax::NONE),
            Self::Features(features) => (3, features, Syntax::NONE),
        }
    }
}

/// Why there is no binding at all (C706 12.6.3.1, p_reject_reason_t; MS-RPCE 2.2.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// No reason given.
    Unspecified,
    /// Too much of something.
    LocalLimit,
    /// The client's version of the protocol is not ours.
    ProtocolVersion,
    /// The server does not have this mechanism.
    AuthenticationType,
}

impl Reject {
    fn code(self) -> u16 {
        match self {
            Self::Unspecified => 0,
            Self::LocalLimit => 2,
            Self::ProtocolVersion => 4,
            Self::AuthenticationType => 8,
        }
    }
}

/// A PDU with this header and nothing else yet.
fn begin(kind: u8, flags: u8, call: u32) -> NdrOut {
    let mut out = NdrOut::new();
    // Version 5.0; little-endian, ASCII, IEEE; lengths that are written at the end.
    out.raw(&[5, 0, kind, flags, 0x10, 0, 0, 0, 0, 0, 0, 0]);
    out.u32(call);
    out
}

/// Writes the lengths: of all of it, and of the token at its end. A PDU is never longer than a fragment.
pub fn set_lengths(pdu: &mut [u8], fragment: usize, auth: usize) {
    let lengths = [fragment, auth].map(|length| u16::try_from(length).unwrap_or(u16::MAX));
    let bytes = lengths.into_iter().flat_map(u16::to_le_bytes);
    pdu.iter_mut().skip(FRAGMENT_AT).zip(bytes).for_each(|(to, from)| *to = from);
}

fn finish(out: NdrOut) -> Vec<u8> {
    let mut pdu = out.finish();
    let len = pdu.len();
    set_lengths(&mut pdu, len, 0);
    pdu
}

/// A whole answer to a client's call that has one fragment.
const WHOLE: u8 = flag::FIRST_FRAG | flag::LAST_FRAG;

/// The answer to bind or alter_context, without its token.
#[must_use]
pub fn bind_ack(
    call: u32,
    alter: bool,
    header_sign: bool,
    sizes: (u16, u16),
    group: u32,
    address: &str,
    outcomes: &[Outcome],
) -> Vec<u8> {
    let kind = if alter { kind::ALTER_CONTEXT_RESP } else { kind::BIND_ACK };
    let flags = WHOLE | if header_sign { flag::SUPPORT_HEADER_SIGN } else { 0 };
    let mut out = begin(kind, flags, call);
    out.u16(sizes.0);
    out.u16(sizes.1);
    out.u32(group);
    // An alter_context is answered without an address (C706 12.6.4.2).
    let address = if alter { Vec::new() } else { [address.as_bytes(), &[0]].concat() };
    out.u16(u16::try_from(address.len()).unwrap_or(0));
    out.raw(&address);
    out.align(4);
    out.u8(u8::try_from(outcomes.len()).unwrap_or(u8::MAX));
    out.raw(&[0; 3]);
    for outcome in outcomes {
        let (result, reason, transfer) = outcome.fields();
        out.u16(result);
        out.u16(reason);
        out.raw(&transfer.uuid);
        out.u16(transfer.major);
        out.u16(transfer.minor);
    }
    finish(out)
}

/// There is no binding; the versions that we speak come with it.
#[must_use]
pub fn bind_nak(call: u32, reject: Reject) -> Vec<u8> {
    let mut out = begin(kind::BIND_NAK, WHOLE, call);
    out.u16(reject.code());
    out.raw(&[1, 5, 0]);
    out.align(4);
    finish(out)
}

/// A fault.
#[must_use]
pub fn fault(call: u32, context: u16, fault: Fault, executed: bool) -> Vec<u8> {
    let flags = WHOLE | if executed { 0 } else { flag::DID_NOT_EXECUTE };
    let mut out = begin(kind::FAULT, flags, call);
    out.u32(32);
    out.u16(context);
    out.raw(&[0, 0]);
    out.u32(fault.0);
    out.u32(0);
    finish(out)
}

/// Bytes of a response before its stub.
pub const RESPONSE_HEAD_BYTES: usize = 24;

/// A fragment of a response, without protection. `left` are the bytes of the stub from this fragment on.
#[must_use]
pub fn response(call: u32, context: u16, first: bool, left: usize, stub: &[u8]) -> Vec<u8> {
    let last = left <= stub.len();
    let flags = if first { flag::FIRST_FRAG } else { 0 } | if last { flag::LAST_FRAG } else { 0 };
    let mut out = begin(kind::RESPONSE, flags, call);
    out.count(left);
    out.u16(context);
    out.raw(&[0, 0]);
    out.raw(stub);
    finish(out)
}

/// Appends a trailer and a token to a PDU.
#[must_use]
pub fn with_token(mut pdu: Vec<u8>, mechanism: u8, level: u8, context: u32, token: &[u8]) -> Vec<u8> {
    let aligned = pdu.len().next_multiple_of(4);
    let padding = (aligned - pdu.len()) as u8;
    pdu.resize(aligned, 0);
    trailer(&mut pdu, mechanism, level, padding, context);
    pdu.extend_from_slice(token);
    let len = pdu.len();
    set_lengths(&mut pdu, len, token.len());
    pdu
}

/// Appends a trailer.
pub fn trailer(pdu: &mut Vec<u8>, mechanism: u8, level: u8, padding: u8, context: u32) {
    pdu.extend_from_slice(&[mechanism, level, padding, 0]);
    pdu.extend_from_slice(&context.to_le_bytes());
}
