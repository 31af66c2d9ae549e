//! The arithmetic of NTLMv2 (MS-NLMP 3.3.2, 3.4).
//!
//! MD4, MD5 and RC4 are broken as hashes and ciphers; NTLM is made of them and has no others. What protects SMB is
//! derived from the session key with today's algorithms.

use std::ops::Range;

use hmac::{Hmac, Mac as _};
use md5::{Digest as _, Md5};
use rc4::{KeyInit as _, Rc4, StreamCipher as _};
use smb_protocol::utf16::put_utf16;
use subtle::ConstantTimeEq as _;
use zeroize::{Zeroize as _, Zeroizing};

use crate::account::{NtHash, upper};

/// Bytes of every key and code here.
pub const KEY_BYTES: usize = 16;
/// A key; wiped when dropped.
pub type Key = Zeroizing<[u8; KEY_BYTES]>;

/// HMAC-MD5 over parts one after another.
#[must_use]
pub fn hmac_md5(key: &[u8], parts: &[&[u8]]) -> [u8; KEY_BYTES] {
    // HMAC takes keys of any length; `None` cannot happen, and would make every comparison fail.
    let Ok(mut mac) = <Hmac<Md5> as hmac::Mac>::new_from_slice(key) else { return [0; KEY_BYTES] };
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// RC4 with a key of sixteen bytes, in place.
pub fn rc4(key: &[u8; KEY_BYTES], data: &mut [u8]) {
    Rc4::new(key.into()).apply_keystream(data);
}

/// NTOWFv2: the key that is a password's, user's and domain's (MS-NLMP 3.3.2).
#[must_use]
pub fn ntowf_v2(hash: &NtHash, user: &str, domain: &str) -> Key {
    let mut name = Vec::with_capacity((user.len() + domain.len()) * 2);
    put_utf16(&upper(user), &mut name);
    put_utf16(domain, &mut name);
    Zeroizing::new(hmac_md5(hash.expose(), &[&name]))
}

/// NTProofStr: the proof that the client knows the key, for our challenge and what it says with it.
#[must_use]
pub fn nt_proof(key: &Key, server_challenge: &[u8; 8], temp: &[u8]) -> [u8; KEY_BYTES] {
    hmac_md5(key.as_slice(), &[server_challenge, temp])
}

/// The session base key, which with NTLMv2 is the key exchange key too.
#[must_use]
pub fn session_base_key(key: &Key, proof: &[u8; KEY_BYTES]) -> Key {
    Zeroizing::new(hmac_md5(key.as_slice(), &[proof]))
}

/// The message integrity code over the three messages, the last one with zeros in the code's place.
#[must_use]
pub fn mic(session_key: &Key, messages: [&[u8]; 3]) -> [u8; KEY_BYTES] {
    hmac_md5(session_key.as_slice(), &messages)
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The client.
    ToServer,
    /// The server.
    ToClient,
}

/// Signs and seals in one direction with extended session security (MS-NLMP 3.4.4.2). Used for the code over SPNEGO's
/// list of mechanisms, once per direction, and for the messages of remote procedure calls.
pub struct MessageSigner {
    signing: Key,
    sealing: Rc4<rc4::consts::U16>,
    /// Whether the codes are encrypted, too.
    exchange: bool,
    sequence: u32,
}

impl MessageSigner {
    /// A signer with the keys that follow from the session key; `key_exchange` and `bits_128` and `bits_56` as negotiated.
    #[must_use]
    pub fn new(session_key: &Key, direction: Direction, flags: u32) -> Self {
        let (sign, seal) = match direction {
            Direction::ToServer => (
                &b"session key to client-to-server signing key magic constant\0"[..],
                &b"session key to client-to-server sealing key magic constant\0"[..],
            ),
            Direction::ToClient => (
                &b"session key to server-to-client signing key magic constant\0"[..],
                &b"session key to server-to-client sealing key magic constant\0"[..],
            ),
        };
        let signing = Zeroizing::new(derived(session_key.as_slice(), sign));
        let strength = if flags & super::flag::BITS_128 != 0 {
            16
        } else if flags & super::flag::BITS_56 != 0 {
            7
        } else {
            5
        };
        let weak = session_key.get(..strength).unwrap_or(session_key.as_slice());
        let sealing = Zeroizing::new(derived(weak, seal));
        let exchange = flags & super::flag::KEY_EXCHANGE != 0;
        Self { signing, sealing: Rc4::new((&*sealing).into()), exchange, sequence: 0 }
    }

    /// The same, with another number for the next message.
    #[must_use]
    pub(crate) fn starting_at(self, sequence: u32) -> Self {
        Self { sequence, ..self }
    }

    /// The signature of the next message.
    pub fn sign(&mut self, message: &[u8]) -> [u8; 16] {
        let mac = self.mac(message);
        self.signature(mac)
    }

    /// Encrypts a part of the next message in place; the signature is that of the whole message before.
    pub fn seal(&mut self, message: &mut [u8], part: Range<usize>) -> [u8; 16] {
        let mac = self.mac(message);
        if let Some(part) = message.get_mut(part) {
            self.sealing.apply_keystream(part);
        }
        self.signature(mac)
    }

    /// Decrypts a part of the next message in place, and computes the signature that it should have.
    pub fn unseal(&mut self, message: &mut [u8], part: Range<usize>) -> [u8; 16] {
        if let Some(part) = message.get_mut(part) {
            self.sealing.apply_keystream(part);
        }
        self.sign(message)
    }

    fn mac(&self, message: &[u8]) -> [u8; KEY_BYTES] {
        hmac_md5(self.signing.as_slice(), &[&self.sequence.to_le_bytes(), message])
    }

    fn signature(&mut self, mut mac: [u8; KEY_BYTES]) -> [u8; 16] {
        let mut signature = [0; 16];
        signature[0] = 1;
        signature[4..12].copy_from_slice(&mac[..8]);
        if self.exchange {
            self.sealing.apply_keystream(&mut signature[4..12]);
        }
        signature[12..].copy_from_slice(&self.sequence.to_le_bytes());
        self.sequence = self.sequence.wrapping_add(1);
        mac.zeroize();
        signature
    }
}

/// Protects messages both ways after an authentication.
pub struct MessageSecurity {
    received: MessageSigner,
    sent: MessageSigner,
    may_seal: bool,
}

impl MessageSecurity {
    /// The server's side. The codes over SPNEGO's list count as each direction's first message, but the cipher begins
    /// anew after them (MS-SPNG 3.3.5.1; `list_proven` says whether there were any).
    #[must_use]
    pub(crate) fn server(session_key: &Key, flags: u32, list_proven: bool) -> Self {
        let signer =
            |direction| MessageSigner::new(session_key, direction, flags).starting_at(u32::from(list_proven));
        Self {
            received: signer(Direction::ToServer),
            sent: signer(Direction::ToClient),
            // With shorter keys, which only very old clients ask for, sealing would be for show.
            may_seal: flags & super::flag::SEAL != 0 && flags & super::flag::BITS_128 != 0,
        }
    }

    /// Whether encryption was negotiated, with keys of 128 bits.
    #[must_use]
    pub fn may_seal(&self) -> bool {
        self.may_seal
    }

    /// The signature of the next message that is sent; `sealed` is encrypted in place.
    pub fn protect(&mut self, message: &mut [u8], sealed: Option<Range<usize>>) -> [u8; 16] {
        match sealed {
            Some(part) => self.sent.seal(message, part),
            None => self.sent.sign(message),
        }
    }

    /// Whether the next message that is received has the right signature; `sealed` is decrypted in place. After a
    /// message that has not, no other will have.
    #[must_use]
    pub fn accept(&mut self, message: &mut [u8], sealed: Option<Range<usize>>, signature: &[u8]) -> bool {
        let computed = match sealed {
            Some(part) => self.received.unseal(message, part),
            None => self.received.sign(message),
        };
        bool::from(computed.ct_eq(signature))
    }
}

fn derived(key: &[u8], magic: &[u8]) -> [u8; KEY_BYTES] {
    let mut hash = Md5::new();
    hash.update(key);
    hash.update(magic);
    hash.finalize().into()
}

#[cfg(test)]
mod tests;
