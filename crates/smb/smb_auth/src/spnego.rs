//! The tokens of SPNEGO (RFC 4178 4.2, MS-SPNG 2.2.1).
//!
//! ```text
//!   NegTokenInit   60 … 06 1.3.6.1.5.5.2, a0 30 { a0 mechanisms, a1 flags, a2 token, a3 code }
//!   NegTokenInit2  likewise with { a0 mechanisms, a1 flags, a2 token, a3 hints, a4 code }: the server's hint
//!   NegTokenResp   a1 30 { a0 state, a1 mechanism, a2 token, a3 code }
//! ```

use crate::der::{Der, Element, element, tag};
use crate::error::AuthError;

/// Object identifiers, as DER content.
pub mod oid {
    /// SPNEGO itself.
    pub const SPNEGO: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x02];
    /// NTLM.
    pub const NTLMSSP: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x02, 0x02, 0x0a];
    /// Kerberos.
    pub const KERBEROS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];
    /// Kerberos with the identifier that Windows 2000 got wrong and all have offered since.
    pub const MS_KERBEROS: &[u8] = &[0x2a, 0x86, 0x48, 0x82, 0xf7, 0x12, 0x01, 0x02, 0x02];
    /// NEGOEX, which nobody needs.
    pub const NEGOEX: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x02, 0x02, 0x1e];
}

/// Most mechanisms in a list: four are in use.
const MAX_MECHANISMS: usize = 32;

/// A list of mechanisms, best first, as it was sent: a code is computed over these bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MechList<'a>(&'a [u8]);

impl<'a> MechList<'a> {
    fn decode(field: Element<'a>) -> Result<Self, AuthError> {
        let mut der = Der::new(field.content);
        let list = der.expect(tag::SEQUENCE)?;
        der.finish()?;
        let mut mechanisms = Der::new(list.content);
        let mut count = 0;
        while let Some(mechanism) = mechanisms.any()? {
            count += 1;
            if mechanism.tag != tag::OID || count > MAX_MECHANISMS {
                return Err(AuthError::Malformed("list of mechanisms"));
            }
        }
        if count == 0 { Err(AuthError::Malformed("list of mechanisms")) } else { Ok(Self(list.whole)) }
    }

    /// The list as it is encoded.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The identifiers.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let list = Der::new(self.0).any().ok().flatten();
        let mut der = Der::new(list.map(|list| list.content).unwrap_or_default());
        std::iter::from_fn(move || der.any().ok().flatten().map(|mechanism| mechanism.content))
    }
}

/// The encoding of a list of mechanisms.
#[must_use]
pub fn mech_list(mechanisms: &[&[u8]]) -> Vec<u8> {
    let oids: Vec<u8> = mechanisms.iter().flat_map(|oid| element(tag::OID, oid)).collect();
    element(tag::SEQUENCE, &oids)
}

/// A client's first token, or a server's hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegTokenInit<'a> {
    /// Mechanisms, best first.
    pub mechanisms: MechList<'a>,
    /// A token for the first of them.
    pub token: Option<&'a [u8]>,
    /// The code over the list.
    pub mic: Option<&'a [u8]>,
}

impl<'a> NegTokenInit<'a> {
    /// Decodes it from a token with its frame.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, AuthError> {
        let mut der = Der::new(bytes);
        let frame = der.expect(tag::APPLICATION_0)?;
        der.finish()?;
        let mut inside = Der::new(frame.content);
        if inside.expect(tag::OID)?.content != oid::SPNEGO {
            return Err(AuthError::Malformed("not SPNEGO"));
        }
        let init = inside.expect(tag::CONTEXT_0)?;
        inside.finish()?;
        let mut fields = only(init.content, tag::SEQUENCE).map(Der::new)?;
        let mechanisms = MechList::decode(fields.expect(tag::CONTEXT_0)?)?;
        // Flags were never used and are not to be looked at (RFC 4178 4.2.1).
        fields.optional(tag::CONTEXT_1)?;
        let token = octets(fields.optional(tag::CONTEXT_2)?)?;
        // In a server's hint the fourth field is a hint and the code comes after it.
        let mut mic = None;
        if let Some(field) = fields.optional(tag::CONTEXT_3)?
            && !matches!(field.content, [tag::SEQUENCE, ..])
        {
            mic = octets(Some(field))?;
        }
        if let Some(field) = fields.optional(tag::CONTEXT_4)? {
            mic = octets(Some(field))?;
        }
        fields.finish()?;
        Ok(Self { mechanisms, token, mic })
    }
}

/// A client's first token.
#[must_use]
pub fn init(mechanisms: &[&[u8]], token: Option<&[u8]>) -> Vec<u8> {
    let mut fields = element(tag::CONTEXT_0, &mech_list(mechanisms));
    if let Some(token) = token {
        fields.extend(element(tag::CONTEXT_2, &element(tag::OCTET_STRING, token)));
    }
    frame(&fields)
}

/// What a server says in NEGOTIATE: the mechanisms that it has. Without Microsoft's hint (MS-SPNG 2.2.1), which says
/// nothing, and stands where RFC 4178 has the code over the list: dissectors call it malformed.
#[must_use]
pub fn hint(mechanisms: &[&[u8]]) -> Vec<u8> {
    init(mechanisms, None)
}

fn frame(fields: &[u8]) -> Vec<u8> {
    let mut inside = element(tag::OID, oid::SPNEGO);
    inside.extend(element(tag::CONTEXT_0, &element(tag::SEQUENCE, fields)));
    element(tag::APPLICATION_0, &inside)
}

/// How far a negotiation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NegState {
    /// Done.
    AcceptCompleted,
    /// Go on.
    AcceptIncomplete,
    /// Failed.
    Reject,
    /// Go on, and prove the list of mechanisms, as another than your first is used.
    RequestMic,
}

impl NegState {
    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::AcceptCompleted,
            1 => Self::AcceptIncomplete,
            2 => Self::Reject,
            3 => Self::RequestMic,
            _ => return None,
        })
    }

    fn number(self) -> u8 {
        match self {
            Self::AcceptCompleted => 0,
            Self::AcceptIncomplete => 1,
            Self::Reject => 2,
            Self::RequestMic => 3,
        }
    }
}

/// Every token but the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NegTokenResp<'a> {
    /// How far it is; from servers only.
    pub state: Option<NegState>,
    /// The mechanism that was chosen; in a server's first token.
    pub mechanism: Option<&'a [u8]>,
    /// A token of the mechanism.
    pub token: Option<&'a [u8]>,
    /// The code over the list.
    pub mic: Option<&'a [u8]>,
}

impl<'a> NegTokenResp<'a> {
    /// Decodes it from a token.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, AuthError> {
        let mut fields = only(only(bytes, tag::CONTEXT_1)?, tag::SEQUENCE).map(Der::new)?;
        let state = match fields.optional(tag::CONTEXT_0)? {
            None => None,
            Some(field) => match only(field.content, tag::ENUMERATED)? {
                [number] => {
                    Some(NegState::from_number(*number).ok_or(AuthError::Malformed("negotiation state"))?)
                }
                _ => return Err(AuthError::Malformed("negotiation state")),
            },
        };
        let mechanism =
            fields.optional(tag::CONTEXT_1)?.map(|field| only(field.content, tag::OID)).transpose()?;
        let token = octets(fields.optional(tag::CONTEXT_2)?)?;
        let mic = octets(fields.optional(tag::CONTEXT_3)?)?;
        fields.finish()?;
        Ok(Self { state, mechanism, token, mic })
    }

    /// The token.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        if let Some(state) = self.state {
            fields.extend(element(tag::CONTEXT_0, &element(tag::ENUMERATED, &[state.number()])));
        }
        if let Some(mechanism) = self.mechanism {
            fields.extend(element(tag::CONTEXT_1, &element(tag::OID, mechanism)));
        }
        if let Some(token) = self.token {
            fields.extend(element(tag::CONTEXT_2, &element(tag::OCTET_STRING, token)));
        }
        if let Some(mic) = self.mic {
            fields.extend(element(tag::CONTEXT_3, &element(tag::OCTET_STRING, mic)));
        }
        element(tag::CONTEXT_1, &element(tag::SEQUENCE, &fields))
    }
}

/// The content of the only element, which must have this tag.
fn only(bytes: &[u8], tag: u8) -> Result<&[u8], AuthError> {
    let mut der = Der::new(bytes);
    let found = der.expect(tag)?;
    der.finish()?;
    Ok(found.content)
}

/// The octets in an optional field.
fn octets(field: Option<Element<'_>>) -> Result<Option<&[u8]>, AuthError> {
    field.map(|field| only(field.content, tag::OCTET_STRING)).transpose()
}

#[cfg(test)]
mod tests;
