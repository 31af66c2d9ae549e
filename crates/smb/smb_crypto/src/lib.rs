//! What protects SMB messages: keys, signatures, encryption, and the hash over the beginning of a connection.
//!
//! ```text
//!   NEGOTIATE, SESSION_SETUP ──► PreauthHash (3.1.1) ─┐
//!   key of the authentication ────────────────────────┴─► SessionKeys ──► Signer      each message in the clear
//!                                                                     └─► Sealer      each encrypted packet
//!                                                         NonceSequence ──┘           never the same number twice
//! ```
//!
//! Everything works in place, on contiguous bytes: a READ is answered without a copy by writing the 80 bytes of headers
//! (and 52 of the transform) right before the data in one buffer. AES-GCM authenticates at 12 GB/s that way, AES-GMAC at
//! 23 GB/s, on a processor with AVX-512; the same in pure Rust has a tenth of that, which is why this crate uses AWS-LC
//! for all but CCM. CCM is for clients of 3.0 and 3.0.2, which can do nothing better.
//!
//! Invariants:
//! * A key is wiped when it is dropped, and no `Debug` shows it.
//! * Signatures and tags are compared in constant time.
//! * What did not prove itself is not returned: a packet that cannot be opened is an error, whatever was wrong with it.
//! * Nonces come from the caller, who has them from a [`NonceSequence`] of a channel number that it never uses twice
//!   with the same keys.

mod encryption;
pub mod fuzz;
#[cfg(test)]
mod hex;
mod keys;
mod nonce;
mod preauth;
mod signing;

pub use encryption::Sealer;
pub use keys::{Key, SessionKeys};
pub use nonce::NonceSequence;
pub use preauth::PreauthHash;
pub use signing::Signer;

/// Why a message cannot be signed, checked, sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CryptoError {
    /// It is shorter than its header.
    #[error("the message is shorter than its header")]
    TooShort,
    /// The signature or tag does not prove it.
    #[error("the signature does not match")]
    Mismatch,
    /// The algorithm is not known, or its key has the wrong length.
    #[error("the algorithm is not supported, or its key has the wrong length")]
    Algorithm,
    /// The cipher failed, as it does for messages of many gigabytes.
    #[error("the cipher refused the message")]
    Cipher,
}
