//! A session as one connection uses it: with signing keys and nonces of its own.

use std::cell::RefCell;
use std::sync::Arc;

use smb_crypto::{CryptoError, Key, NonceSequence, Signer};
use smb_protocol::negotiate::contexts::SigningAlgorithm;
use smb_protocol::transform::TRANSFORM_BYTES;

use crate::session::Session;

/// A channel.
pub(crate) struct Channel {
    pub(crate) session: Arc<Session>,
    pub(crate) signer: Signer,
    nonces: RefCell<NonceSequence>,
}

impl Channel {
    /// Channel `number` of a session, with its signing key and the algorithm of its connection.
    pub(crate) fn new(
        session: Arc<Session>,
        algorithm: SigningAlgorithm,
        signing: &Key,
        number: u32,
    ) -> Result<Self, CryptoError> {
        let signer = Signer::new(algorithm, signing)?;
        let nonces = RefCell::new(NonceSequence::new(number).ok_or(CryptoError::Cipher)?);
        Ok(Self { session, signer, nonces })
    }

    /// Encrypts messages in place; `None` when the session cannot encrypt.
    pub(crate) fn seal(&self, messages: &mut [u8]) -> Option<[u8; TRANSFORM_BYTES]> {
        let nonce = self.nonces.borrow_mut().advance()?;
        let (sealer, _) = self.session.seal.as_ref()?;
        sealer.seal(nonce, self.session.id, messages).ok()
    }
}
