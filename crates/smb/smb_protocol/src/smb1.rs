//! As much of SMB 1 as is needed to recognise it (MS-CIFS 2.2.3.1, 2.2.4.52; MS-SMB2 3.3.5.3.1).
//!
//! A client that does not know what the server speaks sends an SMB 1 NEGOTIATE whose dialect strings name SMB 2. That
//! is the only SMB 1 message that gets an answer, an SMB 2 one. Every other one ends the connection, and is counted.

use crate::wire::{DecodeError, Reader};

/// SMB_COM_NEGOTIATE.
const NEGOTIATE: u8 = 0x72;
/// Bytes of an SMB 1 header.
const HEADER_BYTES: usize = 32;
/// Most dialect strings that are looked at: the longest list of a known client has a dozen.
const MAX_DIALECTS: usize = 64;

/// An SMB 1 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Smb1<'a> {
    /// A NEGOTIATE.
    Negotiate(Smb1Negotiate<'a>),
    /// Another command, by its number: somebody speaks SMB 1 in earnest.
    Other(u8),
}

/// What a NEGOTIATE of SMB 1 offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Smb1Negotiate<'a> {
    /// "SMB 2.002": 2.0.2 at once.
    pub smb2_002: bool,
    /// "SMB 2.???": some SMB 2 or 3, to be negotiated by a second, proper NEGOTIATE.
    pub smb2_wildcard: bool,
    dialects: &'a [u8],
}

impl<'a> Smb1<'a> {
    /// Decodes it from a packet that begins with `FF 'SMB'`.
    ///
    /// # Errors
    /// When it is not whole.
    pub fn decode(packet: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(packet);
        if r.raw(4)? != b"\xffSMB" {
            return Err(DecodeError::WrongMagic);
        }
        let command = r.u8()?;
        r.raw(HEADER_BYTES - 5)?;
        if command != NEGOTIATE {
            return Ok(Self::Other(command));
        }
        if r.u8()? != 0 {
            return Err(DecodeError::Invalid("word count"));
        }
        let len = usize::from(r.u16()?);
        let dialects = r.raw(len)?;
        let mut found = Smb1Negotiate { smb2_002: false, smb2_wildcard: false, dialects };
        for dialect in found.dialects() {
            found.smb2_002 |= dialect == b"SMB 2.002";
            found.smb2_wildcard |= dialect == b"SMB 2.???";
        }
        Ok(Self::Negotiate(found))
    }
}

impl<'a> Smb1Negotiate<'a> {
    /// The dialect strings, up to the first that is malformed; for the log.
    pub fn dialects(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.dialects;
        std::iter::from_fn(move || {
            let text = rest.strip_prefix(&[0x02])?;
            let end = text.iter().position(|byte| *byte == 0)?;
            rest = text.get(end + 1..)?;
            text.get(..end)
        })
        .take(MAX_DIALECTS)
    }
}

/// A multi-protocol NEGOTIATE with these dialect strings; for tests of servers.
#[must_use]
pub fn negotiate(dialects: &[&str]) -> Vec<u8> {
    let mut packet = b"\xffSMB\x72".to_vec();
    packet.resize(HEADER_BYTES + 1, 0);
    let bytes: Vec<u8> =
        dialects.iter().flat_map(|text| [b"\x02", text.as_bytes(), b"\0"].concat()).collect();
    packet.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    packet.extend_from_slice(&bytes);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_offers() {
        for (dialects, one, any) in [
            (&["NT LM 0.12"][..], false, false),
            (&["NT LM 0.12", "SMB 2.002"], true, false),
            (&["NT LM 0.12", "SMB 2.002", "SMB 2.???"], true, true),
        ] {
            let packet = negotiate(dialects);
            let Ok(Smb1::Negotiate(found)) = Smb1::decode(&packet) else { panic!("{dialects:?}") };
            assert_eq!((found.smb2_002, found.smb2_wildcard), (one, any));
            assert_eq!(found.dialects().count(), dialects.len());
            for cut in 0..packet.len() {
                assert!(Smb1::decode(&packet[..cut]).is_err(), "{cut}");
            }
        }
    }

    #[test]
    fn other_commands_are_known_by_number() {
        let mut packet = negotiate(&[]);
        packet[4] = 0x73;
        assert_eq!(Smb1::decode(&packet), Ok(Smb1::Other(0x73)));
    }
}
