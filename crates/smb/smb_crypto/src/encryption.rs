//! Encrypted packets (MS-SMB2 3.1.4.3): AES-CCM with nonces of 11 bytes, AES-GCM with nonces of 12.

use aes::{Aes128, Aes256};
use aws_lc_rs::aead;
use ccm::aead::AeadInPlace as _;
use ccm::consts::{U11, U16};
use ccm::{Ccm, KeyInit as _};
use smb_protocol::negotiate::contexts::Cipher;
use smb_protocol::transform::{TRANSFORM_AAD_AT, TRANSFORM_BYTES, TransformHeader};

use crate::{CryptoError, Key};

type Ccm128 = Ccm<Aes128, U16, U11>;
type Ccm256 = Ccm<Aes256, U16, U11>;

/// Bytes of a tag.
const TAG_BYTES: usize = 16;
/// Bytes of a nonce of CCM.
const CCM_NONCE_BYTES: usize = 11;

/// Seals and opens with one key. A session has two: one for each direction.
pub struct Sealer(Inner);

enum Inner {
    Gcm(aead::LessSafeKey),
    Ccm128(Box<Ccm128>),
    Ccm256(Box<Ccm256>),
}

impl Sealer {
    /// A sealer or opener for a cipher and a key of the session.
    ///
    /// # Errors
    /// When the cipher is not known or the key has the wrong length for it.
    pub fn new(cipher: Cipher, key: &Key) -> Result<Self, CryptoError> {
        let bytes = key.expose();
        let gcm = |algorithm| aead::UnboundKey::new(algorithm, bytes).map(aead::LessSafeKey::new);
        let wrong = CryptoError::Algorithm;
        Ok(Self(match cipher {
            Cipher::AES_128_GCM => Inner::Gcm(gcm(&aead::AES_128_GCM).map_err(|_| wrong)?),
            Cipher::AES_256_GCM => Inner::Gcm(gcm(&aead::AES_256_GCM).map_err(|_| wrong)?),
            Cipher::AES_128_CCM => Inner::Ccm128(Box::new(Ccm128::new_from_slice(bytes).map_err(|_| wrong)?)),
            Cipher::AES_256_CCM => Inner::Ccm256(Box::new(Ccm256::new_from_slice(bytes).map_err(|_| wrong)?)),
            _ => return Err(wrong),
        }))
    }

    /// Encrypts a packet of messages in place and returns the header to put before it. The nonce's first 11 or 12 bytes
    /// are used; with one key none may come twice.
    ///
    /// # Errors
    /// When the packet is longer than the cipher can take.
    pub fn seal(
        &self,
        nonce: [u8; 16],
        session_id: u64,
        packet: &mut [u8],
    ) -> Result<[u8; TRANSFORM_BYTES], CryptoError> {
        let message_size = u32::try_from(packet.len()).map_err(|_| CryptoError::Cipher)?;
        let nonce = self.trimmed(nonce);
        let mut header =
            TransformHeader { signature: [0; TAG_BYTES], nonce, message_size, session_id }.encode();
        let aad = &header[TRANSFORM_AAD_AT..];
        let tag: [u8; TAG_BYTES] = match &self.0 {
            Inner::Gcm(key) => key
                .seal_in_place_separate_tag(gcm_nonce(&nonce), aead::Aad::from(aad), packet)
                .ok()
                .and_then(|tag| tag.as_ref().first_chunk().copied()),
            Inner::Ccm128(key) => {
                key.encrypt_in_place_detached(ccm_nonce(&nonce).into(), aad, packet).ok().map(Into::into)
            }
            Inner::Ccm256(key) => {
                key.encrypt_in_place_detached(ccm_nonce(&nonce).into(), aad, packet).ok().map(Into::into)
            }
        }
        .ok_or(CryptoError::Cipher)?;
        header[4..TRANSFORM_AAD_AT].copy_from_slice(&tag);
        Ok(header)
    }

    /// Encrypts a packet that lies in two places: `head` in place, `data` into `out`, which is 16 bytes longer; these are
    /// scratch. Returns the header; header, head and `out` without its last 16 bytes are the packet. So what others read
    /// too, or what has no room before it, is encrypted on its way into the socket's buffer: one pass over memory less
    /// than copying it there first.
    ///
    /// # Errors
    /// The same as those of [`Sealer::seal`], and when `out` has another length.
    pub fn seal_gather(
        &self,
        nonce: [u8; 16],
        session_id: u64,
        head: &mut [u8],
        data: &[u8],
        out: &mut [u8],
    ) -> Result<[u8; TRANSFORM_BYTES], CryptoError> {
        let len = head.len().checked_add(data.len()).ok_or(CryptoError::Cipher)?;
        if out.len().checked_sub(TAG_BYTES) != Some(data.len()) {
            return Err(CryptoError::Cipher);
        }
        let Inner::Gcm(key) = &self.0 else {
            // CCM wants its bytes in one place, and is too slow for a copy to matter.
            let mut packet = [&*head, data].concat();
            let header = self.seal(nonce, session_id, &mut packet)?;
            let (first, second) = packet.split_at(head.len());
            head.copy_from_slice(first);
            out.iter_mut().zip(second).for_each(|(to, from)| *to = *from);
            return Ok(header);
        };
        let message_size = u32::try_from(len).map_err(|_| CryptoError::Cipher)?;
        let nonce = self.trimmed(nonce);
        let mut header =
            TransformHeader { signature: [0; TAG_BYTES], nonce, message_size, session_id }.encode();
        let aad = aead::Aad::from(&header[TRANSFORM_AAD_AT..]);
        key.seal_in_place_scatter(gcm_nonce(&nonce), aad, head, data, out)
            .map_err(|_| CryptoError::Cipher)?;
        let tag: &[u8; TAG_BYTES] = out.last_chunk().ok_or(CryptoError::Cipher)?;
        header[4..TRANSFORM_AAD_AT].copy_from_slice(tag);
        Ok(header)
    }

    /// Decrypts a packet, which begins with its transform header, in place and returns the messages in it.
    ///
    /// # Errors
    /// When the header is not one, or the tag does not prove the packet. Its bytes have no meaning then.
    pub fn open<'a>(&self, packet: &'a mut [u8]) -> Result<&'a mut [u8], CryptoError> {
        let (header, _) = TransformHeader::decode(packet).map_err(|_| CryptoError::TooShort)?;
        let (head, message) =
            packet.split_first_chunk_mut::<TRANSFORM_BYTES>().ok_or(CryptoError::TooShort)?;
        // Authenticated as they came, with whatever is in the reserved bytes.
        let aad = &head[TRANSFORM_AAD_AT..];
        let opened = match &self.0 {
            Inner::Gcm(key) => key
                .open_in_place_separate_tag(
                    gcm_nonce(&header.nonce),
                    aead::Aad::from(aad),
                    &header.signature,
                    message,
                )
                .is_ok(),
            _ => self.open_ccm(&header, aad, message),
        };
        if opened { Ok(message) } else { Err(CryptoError::Mismatch) }
    }

    /// Decrypts a packet into another buffer, which must be as long as the messages in it. So the data of a WRITE come
    /// to where a disk wants them without a copy besides.
    ///
    /// # Errors
    /// The same as those of [`Sealer::open`], and when the buffer has another length. Its bytes have no meaning then.
    pub fn open_into(&self, packet: &[u8], out: &mut [u8]) -> Result<(), CryptoError> {
        let (header, message) = TransformHeader::decode(packet).map_err(|_| CryptoError::TooShort)?;
        let aad = packet.get(TRANSFORM_AAD_AT..TRANSFORM_BYTES).ok_or(CryptoError::TooShort)?;
        if out.len() != message.len() {
            return Err(CryptoError::Cipher);
        }
        let opened = match &self.0 {
            Inner::Gcm(key) => key
                .open_separate_gather(
                    gcm_nonce(&header.nonce),
                    aead::Aad::from(aad),
                    message,
                    &header.signature,
                    out,
                )
                .is_ok(),
            _ => {
                out.copy_from_slice(message);
                self.open_ccm(&header, aad, out)
            }
        };
        if opened { Ok(()) } else { Err(CryptoError::Mismatch) }
    }

    fn open_ccm(&self, header: &TransformHeader, aad: &[u8], message: &mut [u8]) -> bool {
        let (nonce, tag) = (ccm_nonce(&header.nonce), &header.signature);
        match &self.0 {
            Inner::Ccm128(key) => {
                key.decrypt_in_place_detached(nonce.into(), aad, message, tag.into()).is_ok()
            }
            Inner::Ccm256(key) => {
                key.decrypt_in_place_detached(nonce.into(), aad, message, tag.into()).is_ok()
            }
            Inner::Gcm(_) => false,
        }
    }

    /// Unused bytes of the nonce's field are zero.
    fn trimmed(&self, mut nonce: [u8; 16]) -> [u8; 16] {
        let used = if matches!(self.0, Inner::Gcm(_)) { aead::NONCE_LEN } else { CCM_NONCE_BYTES };
        nonce.iter_mut().skip(used).for_each(|byte| *byte = 0);
        nonce
    }
}

fn gcm_nonce(nonce: &[u8; 16]) -> aead::Nonce {
    let mut short = [0; aead::NONCE_LEN];
    short.copy_from_slice(&nonce[..aead::NONCE_LEN]);
    aead::Nonce::assume_unique_for_key(short)
}

fn ccm_nonce(nonce: &[u8; 16]) -> &[u8; CCM_NONCE_BYTES] {
    nonce.first_chunk().unwrap_or(&[0; CCM_NONCE_BYTES])
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Inner::Gcm(_) => "Sealer(AES-GCM)",
            Inner::Ccm128(_) => "Sealer(AES-128-CCM)",
            Inner::Ccm256(_) => "Sealer(AES-256-CCM)",
        })
    }
}

#[cfg(test)]
mod tests;
