//! What goes into a connection and comes out of it.

use std::time::Duration;

use shard_runtime::{Entropy as _, SystemEntropy};
use smb_crypto::{NonceSequence, Sealer, SessionKeys, Signer};
use smb_protocol::message::Response;
use smb_protocol::negotiate::Capabilities;
use smb_protocol::negotiate::contexts::{Cipher, SigningAlgorithm};
use smb_protocol::session::SessionFlags;
use smb_protocol::{Dialect, Guid, Header};

use crate::error::ClientError;

/// How to connect.
#[derive(Clone, Debug)]
pub struct Options {
    /// Versions that are offered.
    pub dialects: Vec<Dialect>,
    /// Ciphers that are offered, best first.
    pub ciphers: Vec<Cipher>,
    /// Signing algorithms that are offered, best first.
    pub signing: Vec<SigningAlgorithm>,
    /// Who the client is.
    pub client: Guid,
    /// What it says it can do.
    pub capabilities: Capabilities,
    /// How long to wait for an answer.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dialects: Dialect::ALL.to_vec(),
            ciphers: vec![Cipher::AES_128_GCM, Cipher::AES_256_GCM, Cipher::AES_128_CCM, Cipher::AES_256_CCM],
            signing: vec![
                SigningAlgorithm::AES_GMAC,
                SigningAlgorithm::AES_CMAC,
                SigningAlgorithm::HMAC_SHA256,
            ],
            client: Guid(SystemEntropy.next_id()),
            capabilities: Capabilities(0x7f),
            timeout: Duration::from_secs(40),
        }
    }
}

/// How messages go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// In the clear.
    None,
    /// Signed.
    Sign,
    /// Encrypted.
    Seal,
}

/// A session, as one connection has it. Another connection joins it with [`Connection::bind`].
pub struct Session {
    /// Its number.
    pub id: u64,
    /// What the server says of it.
    pub flags: SessionFlags,
    pub(crate) keys: SessionKeys,
    pub(crate) signer: Signer,
    pub(crate) seal: Option<(Sealer, Sealer)>,
    pub(crate) nonces: NonceSequence,
}

/// A message from the server.
#[derive(Clone, Debug)]
pub struct Received {
    /// Its header.
    pub header: Header,
    /// All of it, from its header on.
    pub bytes: Vec<u8>,
    /// Whether it was encrypted.
    pub sealed: bool,
    /// Bytes of data of a READ that went to their place, and are not in `bytes`.
    pub placed: Option<usize>,
}

impl Received {
    /// Its body.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn response(&self) -> Result<Response<'_>, ClientError> {
        Ok(Response::decode(&self.header, &self.bytes)?)
    }

    /// Its body, if it is no error.
    ///
    /// # Errors
    /// The server's status, or when it is malformed.
    pub fn good(&self) -> Result<Response<'_>, ClientError> {
        let Header { command, status, .. } = self.header;
        if !status.is_success() {
            return Err(ClientError::Status { command, status });
        }
        self.response()
    }
}
