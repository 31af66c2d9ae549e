//! Which interfaces a client wants to talk to, and how (C706 12.6.4.3, MS-RPCE 2.2.2.13).

use crate::ndr::{BadStub, NdrIn};
use crate::pdu::Pdu;

/// An interface or transfer syntax: a UUID in wire order, and a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syntax {
    /// The UUID, with its first three groups little-endian.
    pub uuid: [u8; 16],
    /// The major version.
    pub major: u16,
    /// The minor version.
    pub minor: u16,
}

/// Begin of the UUID that is no transfer syntax but a question which features both sides have (MS-RPCE 2.2.2.14).
const FEATURE_NEGOTIATION: [u8; 8] = [0x2c, 0x1c, 0xb7, 0x6c, 0x12, 0x98, 0x40, 0x45];

impl Syntax {
    /// A syntax by its parts.
    #[must_use]
    pub const fn new(a: u32, b: u16, c: u16, d: [u8; 8], major: u16, minor: u16) -> Self {
        let ([a0, a1, a2, a3], [b0, b1], [c0, c1]) = (a.to_le_bytes(), b.to_le_bytes(), c.to_le_bytes());
        let [d0, d1, d2, d3, d4, d5, d6, d7] = d;
        let uuid = [a0, a1, a2, a3, b0, b1, c0, c1, d0, d1, d2, d3, d4, d5, d6, d7];
        Self { uuid, major, minor }
    }

    /// NDR 2.0, which everybody has to know.
    pub const NDR: Self =
        Self::new(0x8a88_5d04, 0x1ceb, 0x11c9, [0x9f, 0xe8, 0x08, 0x00, 0x2b, 0x10, 0x48, 0x60], 2, 0);

    /// No syntax.
    pub const NONE: Self = Self { uuid: [0; 16], major: 0, minor: 0 };

    /// The features that this asks for, if it is that question.
    #[must_use]
    pub fn features(&self) -> Option<u16> {
        let [low, high] = *self.uuid.get(8..)?.first_chunk::<2>()?;
        self.uuid.starts_with(&FEATURE_NEGOTIATION).then(|| u16::from_le_bytes([low, high]))
    }

    fn take(r: &mut NdrIn<'_>) -> Result<Self, BadStub> {
        let (a, b, c, d) = (r.u32()?, r.u16()?, r.u16()?, r.array::<8>()?);
        // One number on the wire, with the major version in its low half (C706 12.6.3.1, p_syntax_id_t).
        let version = r.u32()?;
        Ok(Self::new(a, b, c, d, (version & 0xffff) as u16, (version >> 16) as u16))
    }

    /// Whether a client of this interface can talk to `ours`: the same major version, and no newer minor one (C706 6.1.2,
    /// attribute `version`).
    #[must_use]
    pub fn is_served_by(&self, ours: &Self) -> bool {
        self.uuid == ours.uuid && self.major == ours.major && self.minor <= ours.minor
    }
}

/// Most transfer syntaxes that are looked at for one context.
const SYNTAXES_MAX: usize = 16;

/// An interface that a client wants, with the transfer syntaxes it could use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextItem {
    /// The client's number for it.
    pub id: u16,
    /// The interface.
    pub interface: Syntax,
    /// The transfer syntaxes, in the client's order.
    pub transfers: Vec<Syntax>,
}

/// A bind or alter_context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The longest fragment that the client sends.
    pub max_xmit: u16,
    /// The longest that it takes.
    pub max_recv: u16,
    /// The association group that it belongs to; 0 for a new one.
    pub group: u32,
    /// What it wants.
    pub contexts: Vec<ContextItem>,
}

impl Bind {
    /// Decodes it from a PDU.
    ///
    /// # Errors
    /// When it is not whole, or wants nothing.
    pub fn decode(pdu: &Pdu<'_>) -> Result<Self, BadStub> {
        let mut r = pdu.reader();
        let (max_xmit, max_recv, group) = (r.u16()?, r.u16()?, r.u32()?);
        let count = r.u8()?;
        r.raw(3)?;
        let contexts = (0..count).map(|_| context(&mut r)).collect::<Result<Vec<_>, _>>()?;
        if contexts.is_empty() { Err(BadStub) } else { Ok(Self { max_xmit, max_recv, group, contexts }) }
    }
}

fn context(r: &mut NdrIn<'_>) -> Result<ContextItem, BadStub> {
    r.align(4)?;
    let (id, count) = (r.u16()?, r.u8()?);
    r.u8()?;
    let interface = Syntax::take(r)?;
    let mut transfers = Vec::new();
    for at in 0..usize::from(count) {
        let syntax = Syntax::take(r)?;
        if at < SYNTAXES_MAX {
            transfers.push(syntax);
        }
    }
    Ok(ContextItem { id, interface, transfers })
}
