//! From the key of an authentication to the keys of a session (MS-SMB2 3.1.4.2, SP 800-108 5.1).

use aws_lc_rs::hmac;
use smb_protocol::Dialect;
use smb_protocol::negotiate::contexts::Cipher;
use zeroize::Zeroize as _;

use crate::PreauthHash;

/// The longest key: AES-256.
const MAX_KEY_BYTES: usize = 32;
/// Bytes of every other key.
const KEY_BYTES: usize = 16;

/// A secret of 16 or 32 bytes; never printed, wiped when dropped.
#[derive(Clone)]
pub struct Key {
    bytes: [u8; MAX_KEY_BYTES],
    len: usize,
}

impl Key {
    /// The first 16 bytes, with zeros behind them if there are fewer (MS-SMB2 3.3.5.5.3).
    #[must_use]
    pub fn of_16(bytes: &[u8]) -> Self {
        Self::filled(bytes, KEY_BYTES)
    }

    /// The first 32 bytes, with zeros behind them if there are fewer.
    #[must_use]
    pub fn of_32(bytes: &[u8]) -> Self {
        Self::filled(bytes, MAX_KEY_BYTES)
    }

    fn filled(bytes: &[u8], len: usize) -> Self {
        let mut key = Self { bytes: [0; MAX_KEY_BYTES], len };
        key.bytes.iter_mut().take(len).zip(bytes).for_each(|(to, from)| *to = *from);
        key
    }

    /// The bytes, for what uses the key.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({} bytes, redacted)", self.len)
    }
}

/// The keys of a session. A further channel has a signing key of its own, derived from that channel's authentication and
/// pre-authentication hash; the others are those of the first.
#[derive(Clone, Debug)]
pub struct SessionKeys {
    /// Signs and checks messages in both directions.
    pub signing: Key,
    /// For what applications (RPC) derive.
    pub application: Key,
    /// Encrypts what the client sends.
    pub client_to_server: Key,
    /// Encrypts what the server sends.
    pub server_to_client: Key,
}

impl SessionKeys {
    /// The keys that follow from an authentication.
    ///
    /// `authentication` is the whole key that it produced: AES-256 keys are derived from all of it, the others from its
    /// first 16 bytes. `preauth` is the hash over NEGOTIATE and SESSION_SETUP; it matters in 3.1.1 only.
    #[must_use]
    pub fn derive(
        dialect: Dialect,
        cipher: Option<Cipher>,
        authentication: &[u8],
        preauth: &PreauthHash,
    ) -> Self {
        let session = Key::of_16(authentication);
        if !dialect.is_smb3() {
            // 2.x signs with the session key itself and encrypts nothing.
            return Self {
                signing: session.clone(),
                application: session.clone(),
                client_to_server: session.clone(),
                server_to_client: session,
            };
        }
        let long = matches!(cipher, Some(Cipher::AES_256_CCM | Cipher::AES_256_GCM));
        let secret = if long { authentication } else { session.expose() };
        let one = |label: &[u8], context: &[u8]| Key::of_16(&kdf(session.expose(), label, context, 128));
        let seal = |label: &[u8], context: &[u8]| {
            if long {
                Key::of_32(&kdf(secret, label, context, 256))
            } else {
                Key::of_16(&kdf(secret, label, context, 128))
            }
        };
        if dialect == Dialect::SMB_3_1_1 {
            let hash = preauth.value();
            Self {
                signing: one(b"SMBSigningKey\0", hash),
                application: one(b"SMBAppKey\0", hash),
                client_to_server: seal(b"SMBC2SCipherKey\0", hash),
                server_to_client: seal(b"SMBS2CCipherKey\0", hash),
            }
        } else {
            // The blank in "ServerIn " is part of it.
            Self {
                signing: one(b"SMB2AESCMAC\0", b"SmbSign\0"),
                application: one(b"SMB2APP\0", b"SmbRpc\0"),
                client_to_server: seal(b"SMB2AESCCM\0", b"ServerIn \0"),
                server_to_client: seal(b"SMB2AESCCM\0", b"ServerOut\0"),
            }
        }
    }
}

/// The key derivation function in counter mode with HMAC-SHA256, r = 32; at most one block is ever needed.
fn kdf(secret: &[u8], label: &[u8], context: &[u8], bits: u32) -> [u8; MAX_KEY_BYTES] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut mac = hmac::Context::with_key(&key);
    mac.update(&1_u32.to_be_bytes());
    mac.update(label);
    mac.update(&[0]);
    mac.update(context);
    mac.update(&bits.to_be_bytes());
    let mut block = [0; MAX_KEY_BYTES];
    block.iter_mut().zip(mac.sign().as_ref()).for_each(|(to, from)| *to = *from);
    block
}

#[cfg(test)]
mod tests;
