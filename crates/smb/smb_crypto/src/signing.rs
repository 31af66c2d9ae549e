//! Signatures of messages in the clear (MS-SMB2 3.1.4.1).

use aws_lc_rs::{aead, cmac, hmac};
use smb_protocol::Dialect;
use smb_protocol::command::Command;
use smb_protocol::header::{HEADER_BYTES, SIGNATURE_AT, SIGNATURE_BYTES};
use smb_protocol::negotiate::contexts::SigningAlgorithm;
use subtle::ConstantTimeEq as _;

use crate::{CryptoError, Key};

/// Places in the header that signing reads or writes.
const COMMAND_AT: usize = 12;
const FLAGS_AT: usize = 16;
const MESSAGE_ID_AT: usize = 24;
/// The flag that says that a message is signed, in the first byte of the flags.
const SIGNED: u8 = 0x08;
/// The flag that says that it comes from the server.
const FROM_SERVER: u8 = 0x01;

/// Signs and checks with one key.
pub struct Signer(Algorithm);

enum Algorithm {
    HmacSha256(Box<hmac::Key>),
    AesCmac(cmac::Key),
    AesGmac(aead::LessSafeKey),
}

impl Signer {
    /// A signer for an algorithm and the session's (or channel's) signing key.
    ///
    /// # Errors
    /// When the algorithm is not known.
    pub fn new(algorithm: SigningAlgorithm, key: &Key) -> Result<Self, CryptoError> {
        let bytes = key.expose();
        Ok(Self(match algorithm {
            SigningAlgorithm::HMAC_SHA256 => {
                Algorithm::HmacSha256(Box::new(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
            }
            SigningAlgorithm::AES_CMAC => {
                Algorithm::AesCmac(cmac::Key::new(cmac::AES_128, bytes).map_err(|_| CryptoError::Algorithm)?)
            }
            SigningAlgorithm::AES_GMAC => Algorithm::AesGmac(aead::LessSafeKey::new(
                aead::UnboundKey::new(&aead::AES_128_GCM, bytes).map_err(|_| CryptoError::Algorithm)?,
            )),
            _ => return Err(CryptoError::Algorithm),
        }))
    }

    /// The algorithm where none was negotiated: HMAC-SHA256 in 2.x, AES-CMAC from 3.0 on.
    #[must_use]
    pub fn default_algorithm(dialect: Dialect) -> SigningAlgorithm {
        if dialect.is_smb3() { SigningAlgorithm::AES_CMAC } else { SigningAlgorithm::HMAC_SHA256 }
    }

    /// Signs a message, with its padding if another one follows in the compound: sets the flag and the signature.
    ///
    /// With AES-GMAC the message's number is the nonce. One number must not be signed twice in one direction with
    /// different contents: an interim response goes out without a signature, and so does what has no number.
    ///
    /// # Errors
    /// When the message is shorter than its header.
    pub fn sign(&self, message: &mut [u8]) -> Result<(), CryptoError> {
        let header = message.first_chunk_mut::<HEADER_BYTES>().ok_or(CryptoError::TooShort)?;
        header[FLAGS_AT] |= SIGNED;
        header[SIGNATURE_AT..].fill(0);
        let signature = self.compute(message)?;
        if let Some(header) = message.first_chunk_mut::<HEADER_BYTES>() {
            header[SIGNATURE_AT..].copy_from_slice(&signature);
        }
        Ok(())
    }

    /// Checks a message, which is as before when this returns.
    ///
    /// # Errors
    /// When the signature does not prove the message, or is not there.
    pub fn verify(&self, message: &mut [u8]) -> Result<(), CryptoError> {
        let header = message.first_chunk_mut::<HEADER_BYTES>().ok_or(CryptoError::TooShort)?;
        if header[FLAGS_AT] & SIGNED == 0 {
            return Err(CryptoError::Mismatch);
        }
        let mut claimed = [0; SIGNATURE_BYTES];
        claimed.copy_from_slice(&header[SIGNATURE_AT..]);
        header[SIGNATURE_AT..].fill(0);
        let computed = self.compute(message);
        if let Some(header) = message.first_chunk_mut::<HEADER_BYTES>() {
            header[SIGNATURE_AT..].copy_from_slice(&claimed);
        }
        if bool::from(computed?.ct_eq(&claimed)) { Ok(()) } else { Err(CryptoError::Mismatch) }
    }

    fn compute(&self, message: &[u8]) -> Result<[u8; SIGNATURE_BYTES], CryptoError> {
        let first = |bytes: &[u8]| bytes.first_chunk().copied().ok_or(CryptoError::Cipher);
        match &self.0 {
            Algorithm::HmacSha256(key) => first(hmac::sign(key, message).as_ref()),
            Algorithm::AesCmac(key) => {
                first(cmac::sign(key, message).map_err(|_| CryptoError::Cipher)?.as_ref())
            }
            Algorithm::AesGmac(key) => {
                let nonce = aead::Nonce::assume_unique_for_key(gmac_nonce(message)?);
                let tag = key.seal_in_place_separate_tag(nonce, aead::Aad::from(message), &mut []);
                first(tag.map_err(|_| CryptoError::Cipher)?.as_ref())
            }
        }
    }
}

/// The nonce of AES-GMAC: the message's number, then who sent it and whether it is a CANCEL, which has the number of
/// the request that it cancels.
fn gmac_nonce(message: &[u8]) -> Result<[u8; aead::NONCE_LEN], CryptoError> {
    let header = message.first_chunk::<HEADER_BYTES>().ok_or(CryptoError::TooShort)?;
    let mut nonce = [0; aead::NONCE_LEN];
    nonce[..8].copy_from_slice(&header[MESSAGE_ID_AT..MESSAGE_ID_AT + 8]);
    let command = u16::from_le_bytes([header[COMMAND_AT], header[COMMAND_AT + 1]]);
    nonce[8] = header[FLAGS_AT] & FROM_SERVER | u8::from(Command(command) == Command::CANCEL) << 1;
    Ok(nonce)
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Algorithm::HmacSha256(_) => "Signer(HMAC-SHA256)",
            Algorithm::AesCmac(_) => "Signer(AES-128-CMAC)",
            Algorithm::AesGmac(_) => "Signer(AES-128-GMAC)",
        })
    }
}

#[cfg(test)]
mod tests;
