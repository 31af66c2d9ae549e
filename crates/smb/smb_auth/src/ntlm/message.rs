//! The three messages (MS-NLMP 2.2.1).

use byte_codec::Reader;
use smb_protocol::utf16::{Utf16, put_utf16};
use smb_protocol::wire::{DecodeError, part};

use crate::error::AuthError;
use crate::ntlm::flag;

/// What begins each message.
pub const SIGNATURE: &[u8; 8] = b"NTLMSSP\0";
/// The version that we say to be; clients ignore it (MS-NLMP 2.2.2.10).
const VERSION: [u8; 8] = [10, 0, 0, 0, 0, 0, 0, 15];
/// Where the integrity code of AUTHENTICATE lies.
pub const MIC_AT: usize = 72;
/// Bytes of the integrity code.
pub const MIC_BYTES: usize = 16;
/// Bytes of AUTHENTICATE before its parts, with version and code.
const AUTHENTICATE_HEAD: usize = MIC_AT + MIC_BYTES;
/// Bytes of AUTHENTICATE that old clients end its head with.
const AUTHENTICATE_LEAST: usize = 64;
/// Bytes of CHALLENGE before its parts.
const CHALLENGE_HEAD: usize = 56;
/// Most units of a name; Windows allows 256 for users and fewer for machines.
const MAX_NAME_UNITS: usize = 256;

fn malformed(_: DecodeError) -> AuthError {
    AuthError::Malformed("NTLM message")
}

/// A reader behind signature and type.
fn begin(bytes: &[u8], kind: u32) -> Result<Reader<'_>, AuthError> {
    let mut r = Reader::new(bytes);
    if r.raw(8).map_err(malformed)? != SIGNATURE || r.u32().map_err(malformed)? != kind {
        return Err(AuthError::Malformed("NTLM signature or type"));
    }
    Ok(r)
}

/// A part that length, maximum and offset name.
fn field<'a>(message: &'a [u8], r: &mut Reader<'_>, least: usize) -> Result<&'a [u8], AuthError> {
    let len = usize::from(r.u16().map_err(malformed)?);
    r.u16().map_err(malformed)?;
    let offset = r.u32().map_err(malformed)? as usize;
    part(message, offset, len, least, "NTLM field").map_err(malformed)
}

/// A client's first message (2.2.1.1). Domain and workstation in it are of no use and not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiate {
    /// What the client can do.
    pub flags: u32,
}

impl Negotiate {
    /// Decodes it from a token.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode(bytes: &[u8]) -> Result<Self, AuthError> {
        Ok(Self { flags: begin(bytes, 1)?.u32().map_err(malformed)? })
    }

    /// The message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = SIGNATURE.to_vec();
        out.extend_from_slice(&1_u32.to_le_bytes());
        out.extend_from_slice(&self.flags.to_le_bytes());
        out.extend_from_slice(&[0; 16]);
        out.extend_from_slice(&VERSION);
        out
    }
}

/// The server's answer (2.2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge<'a> {
    /// What both can do.
    pub flags: u32,
    /// What the client must answer.
    pub challenge: [u8; 8],
    /// The server's name, or its domain's.
    pub target: Utf16<'a>,
    /// What the server says of itself: [`AvPairs`](super::av_pairs::AvPairs).
    pub target_info: &'a [u8],
}

impl<'a> Challenge<'a> {
    /// Decodes it from a token.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, AuthError> {
        let mut r = begin(bytes, 2)?;
        let target = Utf16::new(field(bytes, &mut r, 48)?).map_err(malformed)?;
        let flags = r.u32().map_err(malformed)?;
        let challenge = r.u64().map_err(malformed)?.to_le_bytes();
        r.u64().map_err(malformed)?;
        let target_info = field(bytes, &mut r, 48)?;
        Ok(Self { flags, challenge, target, target_info })
    }

    /// The message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let target = self.target.bytes();
        let mut out = Builder::new(2, CHALLENGE_HEAD);
        out.part(target);
        out.head.extend_from_slice(&self.flags.to_le_bytes());
        out.head.extend_from_slice(&self.challenge);
        out.head.extend_from_slice(&[0; 8]);
        out.part(self.target_info);
        out.head.extend_from_slice(&VERSION);
        out.finish()
    }
}

/// The client's answer (2.2.1.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticate<'a> {
    /// The answer of LM, which is not looked at but to see who is anonymous.
    pub lm_response: &'a [u8],
    /// The answer of NT.
    pub nt_response: &'a [u8],
    /// The user's domain, as the client sees it.
    pub domain: String,
    /// The user.
    pub user: String,
    /// The client's machine.
    pub workstation: String,
    /// The session key, encrypted, if keys are exchanged.
    pub encrypted_key: &'a [u8],
    /// What both do.
    pub flags: u32,
    /// The integrity code, if the message is long enough for one; whether it means something the response says.
    pub mic: Option<[u8; MIC_BYTES]>,
}

impl<'a> Authenticate<'a> {
    /// Decodes it from a token.
    ///
    /// # Errors
    /// When it is not what the specification says, or a name is not UTF-16 or too long.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, AuthError> {
        let mut r = begin(bytes, 3)?;
        let mut next = || field(bytes, &mut r, AUTHENTICATE_LEAST);
        let (lm_response, nt_response) = (next()?, next()?);
        let (domain, user, workstation) = (name(next()?)?, name(next()?)?, name(next()?)?);
        let encrypted_key = next()?;
        let flags = r.u32().map_err(malformed)?;
        let mic = bytes.get(MIC_AT..AUTHENTICATE_HEAD).and_then(|mic| mic.try_into().ok());
        Ok(Self { lm_response, nt_response, domain, user, workstation, encrypted_key, flags, mic })
    }

    /// The message, with zeros for a code that is not there.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let wide = |text: &str| {
            let mut bytes = Vec::new();
            put_utf16(text, &mut bytes);
            bytes
        };
        let mut out = Builder::new(3, AUTHENTICATE_HEAD);
        out.part(self.lm_response);
        out.part(self.nt_response);
        out.part(&wide(&self.domain));
        out.part(&wide(&self.user));
        out.part(&wide(&self.workstation));
        out.part(self.encrypted_key);
        out.head.extend_from_slice(&self.flags.to_le_bytes());
        out.head.extend_from_slice(&VERSION);
        out.head.extend_from_slice(&self.mic.unwrap_or_default());
        out.finish()
    }

    /// Whether nobody in particular sends this (3.2.5.1.2).
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.user.is_empty() && self.nt_response.is_empty() && matches!(self.lm_response, [] | [0])
    }

    /// Whether keys are exchanged.
    #[must_use]
    pub fn exchanges_keys(&self) -> bool {
        self.flags & flag::KEY_EXCHANGE != 0
    }
}

fn name(bytes: &[u8]) -> Result<String, AuthError> {
    let name = Utf16::new(bytes).map_err(malformed)?;
    if name.units() > MAX_NAME_UNITS {
        return Err(AuthError::Malformed("NTLM name"));
    }
    let name = name.to_string().map_err(|_| AuthError::Malformed("NTLM name"))?;
    // A zero would end the name for others who read it.
    if name.contains('\0') { Err(AuthError::Malformed("NTLM name")) } else { Ok(name) }
}

/// A message with a head of fixed size and parts behind it.
struct Builder {
    head: Vec<u8>,
    parts: Vec<u8>,
    head_len: usize,
}

impl Builder {
    fn new(kind: u32, head_len: usize) -> Self {
        let mut head = SIGNATURE.to_vec();
        head.extend_from_slice(&kind.to_le_bytes());
        Self { head, parts: Vec::new(), head_len }
    }

    /// A part, of which 65535 bytes are kept.
    fn part(&mut self, bytes: &[u8]) {
        let bytes = bytes.get(..usize::from(u16::MAX)).unwrap_or(bytes);
        let len = (bytes.len() as u16).to_le_bytes();
        let offset = ((self.head_len + self.parts.len()) as u32).to_le_bytes();
        self.head.extend_from_slice(&len);
        self.head.extend_from_slice(&len);
        self.head.extend_from_slice(&offset);
        self.parts.extend_from_slice(bytes);
    }

    fn finish(mut self) -> Vec<u8> {
        self.head.resize(self.head_len, 0);
        self.head.extend_from_slice(&self.parts);
        self.head
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smb_protocol::utf16::utf16;

    #[test]
    fn there_and_back_and_never_in_part() {
        let negotiate = Negotiate { flags: 0xe208_8297 };
        assert_eq!(Negotiate::decode(&negotiate.encode()), Ok(negotiate));
        let target = utf16("SERVER");
        let challenge = Challenge {
            flags: 1,
            challenge: *b"12345678",
            target: Utf16::new(&target).unwrap(),
            target_info: &[0; 4],
        };
        let bytes = challenge.encode();
        assert_eq!(Challenge::decode(&bytes), Ok(challenge));
        for cut in 0..bytes.len() {
            assert!(Challenge::decode(&bytes[..cut]).is_err());
        }
        let authenticate = Authenticate {
            lm_response: &[0; 24],
            nt_response: &[7; 60],
            domain: "D".into(),
            user: "Üser".into(),
            workstation: "W".into(),
            encrypted_key: &[9; 16],
            flags: 5,
            mic: Some([3; 16]),
        };
        let bytes = authenticate.encode();
        assert_eq!(Authenticate::decode(&bytes), Ok(authenticate));
        for cut in 0..bytes.len() {
            assert!(Authenticate::decode(&bytes[..cut]).is_err());
        }
        assert!(Negotiate::decode(&bytes).is_err());
    }

    #[test]
    fn names_that_mean_two_things_are_refused() {
        let good = utf16("user");
        assert_eq!(name(&good).unwrap(), "user");
        assert!(name(&utf16("us\0er")).is_err());
        assert!(name(&[0, 0xd8]).is_err());
        assert!(name(&good[..3]).is_err());
        assert!(name(&utf16(&"x".repeat(MAX_NAME_UNITS + 1))).is_err());
    }
}
