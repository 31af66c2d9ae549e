//! The pre-authentication integrity hash of 3.1.1 (MS-SMB2 3.1.4.4.1).
//!
//! Each NEGOTIATE and SESSION_SETUP message, request and response, is hashed onto what was before; the keys depend on
//! the result. Who changes a message on the way leaves two sides with different keys. The last, successful response is
//! not hashed: it is signed with those keys.

use aws_lc_rs::digest;

/// Bytes of a SHA-512 hash.
const HASH_BYTES: usize = 64;

/// The hash so far.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PreauthHash([u8; HASH_BYTES]);

impl PreauthHash {
    /// Before any message.
    #[must_use]
    pub fn new() -> Self {
        Self([0; HASH_BYTES])
    }

    /// Adds one more message, from its header on, without the length prefix.
    pub fn update(&mut self, message: &[u8]) {
        let mut hash = digest::Context::new(&digest::SHA512);
        hash.update(&self.0);
        hash.update(message);
        self.0.iter_mut().zip(hash.finish().as_ref()).for_each(|(to, from)| *to = *from);
    }

    /// A hash of which the value is known.
    #[cfg(test)]
    pub(crate) fn from_value(value: [u8; HASH_BYTES]) -> Self {
        Self(value)
    }

    /// The hash.
    #[must_use]
    pub fn value(&self) -> &[u8; HASH_BYTES] {
        &self.0
    }
}

impl Default for PreauthHash {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for PreauthHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PreauthHash(")?;
        self.0.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("…)")
    }
}
