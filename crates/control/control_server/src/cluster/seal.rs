//! What all nodes of a cluster know, and nobody else who can read its etcd: secrets of the configuration are sealed with a key that is made of the
//! cluster's secret (AES-256-GCM).

use aws_lc_rs::aead;
use byte_codec::DecodeError;
use cluster_store::keys::ClusterName;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// What a sealed configuration begins with: JSON, as earlier releases wrote it, never does.
const MAGIC: &[u8; 8] = b"HFCONFS1";

/// Seals and opens the configuration of a cluster.
#[derive(Clone)]
pub(crate) struct ConfigSeal {
    key: Zeroizing<[u8; 32]>,
    /// What is sealed for one cluster is opened for no other.
    context: Vec<u8>,
}

impl ConfigSeal {
    /// Of a secret that all nodes of the cluster have and nobody else.
    pub(crate) fn new(secret: &[u8], cluster: &ClusterName) -> Self {
        let key =
            Sha256::new().chain_update(b"holdfast configuration: the key").chain_update(secret).finalize();
        let context = [MAGIC.as_slice(), cluster.root().as_bytes()].concat();
        Self { key: Zeroizing::new(key.into()), context }
    }

    fn cipher(&self) -> Option<aead::LessSafeKey> {
        aead::UnboundKey::new(&aead::AES_256_GCM, self.key.as_slice()).ok().map(aead::LessSafeKey::new)
    }

    /// The configuration, sealed.
    ///
    /// # Errors
    /// When the system gives no random numbers, or the cipher fails; in a sentence.
    pub(crate) fn seal(&self, plain: &[u8]) -> Result<Vec<u8>, String> {
        let mut nonce = [0; aead::NONCE_LEN];
        getrandom::fill(&mut nonce)
            .map_err(|error| format!("the system gives no random numbers: {error}"))?;
        let mut body = Zeroizing::new(plain.to_vec());
        let failed = || "it cannot be sealed".to_owned();
        let tag = self.cipher().ok_or_else(failed)?.seal_in_place_separate_tag(
            aead::Nonce::assume_unique_for_key(nonce),
            aead::Aad::from(&self.context),
            body.as_mut_slice(),
        );
        let tag = tag.map_err(|_| failed())?;
        Ok([MAGIC.as_slice(), &nonce, &body, tag.as_ref()].concat())
    }

    /// What was sealed; bytes that are not sealed, as earlier releases wrote them, come back as they are.
    ///
    /// # Errors
    /// When it was changed, or sealed for another cluster.
    pub(crate) fn open(&self, bytes: Vec<u8>) -> Result<Zeroizing<Vec<u8>>, DecodeError> {
        let Some(rest) = bytes.strip_prefix(MAGIC) else { return Ok(Zeroizing::new(bytes)) };
        let (nonce, sealed) = rest.split_at_checked(aead::NONCE_LEN).ok_or(DecodeError::Truncated)?;
        let nonce = aead::Nonce::try_assume_unique_for_key(nonce).map_err(|_| DecodeError::Truncated)?;
        let mut sealed = Zeroizing::new(sealed.to_vec());
        let cipher = self.cipher().ok_or(DecodeError::Invalid("key"))?;
        let opened = cipher.open_in_place(nonce, aead::Aad::from(&self.context), sealed.as_mut_slice());
        let length = opened.map_err(|_| DecodeError::WrongChecksum)?.len();
        sealed.truncate(length);
        Ok(sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(secret: &[u8], cluster: &str) -> ConfigSeal {
        ConfigSeal::new(secret, &ClusterName::new(cluster).expect("a name"))
    }

    #[test]
    fn only_who_has_the_secret_of_this_cluster_opens_it_and_every_change_is_noticed() {
        let (own, plain) = (of(b"secret", "c"), b"{\"chap\":\"password\"}");
        let sealed = own.seal(plain).expect("sealed");
        assert!(!sealed.windows(8).any(|part| part == b"password"));
        assert_eq!(own.open(sealed.clone()).expect("opened").as_slice(), plain);
        assert_ne!(own.seal(plain).expect("sealed"), sealed, "each with a nonce of its own");
        assert!(of(b"other", "c").open(sealed.clone()).is_err());
        assert!(of(b"secret", "d").open(sealed.clone()).is_err());
        for at in 8..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(own.open(changed).is_err(), "byte {at}");
            assert!(own.open(sealed[..at].to_vec()).is_err(), "{at} bytes");
        }
        assert_eq!(own.open(plain.to_vec()).expect("of an earlier release").as_slice(), plain);
    }
}
