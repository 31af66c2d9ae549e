//! Tokens to join a cluster with.
//!
//! `hfjoin1_` and hexadecimal digits: the fingerprint of the cluster's authority (32 bytes), a secret (16), the address of a member
//! (text), and a check against typing errors (4, the first of SHA-256 of all before). Nothing a shell would look at.

use std::fmt;
use std::net::SocketAddr;

use sha2::{Digest as _, Sha256};
use thiserror::Error;
use zeroize::Zeroizing;

/// How long a token counts, in seconds.
pub const TOKEN_SECONDS: u64 = 24 * 3600;

/// What a token begins with, so that who finds one knows what it is for, and scanners of repositories know it.
const PREFIX: &str = "hfjoin1_";
const FINGERPRINT: usize = 32;
const SECRET: usize = 16;
const CHECK: usize = 4;
/// The longest address: an IPv6 address with a zone and port.
const MAX_ADDRESS: usize = 64;
const MAX_BYTES: usize = FINGERPRINT + SECRET + MAX_ADDRESS + CHECK;

/// Why a text is no token.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// It is something else.
    #[error("this is no token to join a cluster with: those begin with {PREFIX}")]
    Other,
    /// It was cut or mistyped.
    #[error(
        "the token is incomplete or mistyped: copy the whole line that `holdfast cluster token` has printed"
    )]
    Damaged,
    /// The system gives no random numbers.
    #[error("the system gives no random bytes: {0}")]
    NoEntropy(String),
}

/// What a node joins with: whom it trusts, where it asks, and the secret by which it is let in, once.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    fingerprint: [u8; FINGERPRINT],
    secret: Zeroizing<[u8; SECRET]>,
    address: SocketAddr,
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({})", self.address)
    }
}

impl JoinToken {
    /// A new one of the cluster whose authority has this fingerprint, to be shown at this address.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn new(fingerprint: [u8; FINGERPRINT], address: SocketAddr) -> Result<Self, TokenError> {
        let mut secret = Zeroizing::new([0; SECRET]);
        getrandom::fill(secret.as_mut()).map_err(|error| TokenError::NoEntropy(error.to_string()))?;
        Ok(Self { fingerprint, secret, address })
    }

    /// One of these parts.
    pub(crate) fn of(fingerprint: [u8; FINGERPRINT], secret: [u8; SECRET], address: SocketAddr) -> Self {
        Self { fingerprint, secret: Zeroizing::new(secret), address }
    }

    /// The token that this line is.
    ///
    /// # Errors
    /// When it is none; any text may come.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let digits = text.trim().strip_prefix(PREFIX).ok_or(TokenError::Other)?;
        if digits.len() > 2 * MAX_BYTES {
            return Err(TokenError::Damaged);
        }
        let bytes = Zeroizing::new(from_hex(digits).ok_or(TokenError::Damaged)?);
        let (rest, check) = bytes.split_last_chunk::<CHECK>().ok_or(TokenError::Damaged)?;
        if check_of(rest) != *check {
            return Err(TokenError::Damaged);
        }
        let (fingerprint, rest) = rest.split_first_chunk::<FINGERPRINT>().ok_or(TokenError::Damaged)?;
        let (secret, address) = rest.split_first_chunk::<SECRET>().ok_or(TokenError::Damaged)?;
        let address = std::str::from_utf8(address).ok().and_then(|text| text.parse().ok());
        Ok(Self {
            fingerprint: *fingerprint,
            secret: Zeroizing::new(*secret),
            address: address.ok_or(TokenError::Damaged)?,
        })
    }

    /// The line that people copy.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(self.fingerprint.to_vec());
        bytes.extend_from_slice(self.secret.as_ref());
        bytes.extend_from_slice(self.address.to_string().as_bytes());
        let check = check_of(&bytes);
        bytes.extend_from_slice(&check);
        Zeroizing::new(format!("{PREFIX}{}", to_hex(&bytes)))
    }

    /// Whether the cluster's authority is this one, by its certificate.
    #[must_use]
    pub fn is_of(&self, authority: &[u8]) -> bool {
        crate::authority::fingerprint(authority) == self.fingerprint
    }

    /// Where a member of the cluster answers.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the cluster keeps of it: the hash of the secret, 64 hexadecimal digits.
    #[must_use]
    pub fn key(&self) -> String {
        key_of(&self.secret)
    }

    /// The secret as it is sent to the member, which finds it by [`Self::key_of_secret`].
    #[must_use]
    pub fn secret(&self) -> Zeroizing<String> {
        Zeroizing::new(to_hex(self.secret.as_ref()))
    }

    /// What the cluster keeps of the token with this secret, as [`Self::secret`] has told it; none when it is no secret.
    #[must_use]
    pub fn key_of_secret(secret: &str) -> Option<String> {
        let bytes = if secret.len() == 2 * SECRET { from_hex(secret)? } else { return None };
        let secret: Zeroizing<[u8; SECRET]> = Zeroizing::new(bytes.try_into().ok()?);
        Some(key_of(&secret))
    }
}

fn key_of(secret: &[u8; SECRET]) -> String {
    let mut hash = Sha256::new();
    hash.update(b"holdfast join token\0");
    hash.update(secret);
    to_hex(&hash.finalize())
}

fn check_of(bytes: &[u8]) -> [u8; CHECK] {
    let mut check = [0; CHECK];
    check.iter_mut().zip(Sha256::digest(bytes)).for_each(|(to, byte)| *to = byte);
    check
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.as_bytes()
        .chunks_exact(2)
        .map(|pair| match pair {
            [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_line_that_is_read_as_a_whole() {
        for address in ["10.0.0.1:7401", "[fe80::1]:1"] {
            let address = address.parse().expect("an address");
            let token = JoinToken::new([7; 32], address).expect("made");
            let text = token.to_text();
            assert!(text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{}", *text);
            let read = JoinToken::parse(&format!(" {}\n", *text)).expect("read");
            assert!(read == token && read.address() == address);
            assert_eq!(JoinToken::key_of_secret(&token.secret()), Some(token.key()));
            assert!(!token.key().contains(token.secret().as_str()));
            assert!(!format!("{token:?}").contains(token.secret().as_str()));
            for cut in 0..text.len() {
                JoinToken::parse(&text[..cut]).expect_err("cut");
            }
            for at in 0..text.len() {
                let mut wrong = text.as_bytes().to_vec();
                wrong[at] = if wrong[at] == b'0' { b'1' } else { b'0' };
                JoinToken::parse(std::str::from_utf8(&wrong).expect("text")).expect_err("mistyped");
            }
        }
        assert_eq!(JoinToken::parse("holdfast_ab_cd"), Err(TokenError::Other));
        for wrong in ["", "0", &"0".repeat(31), &"0".repeat(33), &"g".repeat(32), &"é".repeat(16)] {
            assert_eq!(JoinToken::key_of_secret(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn no_two_tokens_are_the_same() {
        let address = "10.0.0.1:1".parse().expect("an address");
        let made = |_| JoinToken::new([0; 32], address).expect("made").key();
        let keys: std::collections::BTreeSet<String> = (0..100).map(made).collect();
        assert_eq!(keys.len(), 100);
    }
}
