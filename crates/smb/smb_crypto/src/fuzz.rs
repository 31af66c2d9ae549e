//! Entries for fuzzing: no packet opens and no message verifies that we did not make.

use std::sync::LazyLock;

use smb_protocol::negotiate::contexts::{Cipher, SigningAlgorithm};

use crate::{Key, Sealer, Signer};

static SEALERS: LazyLock<Vec<Sealer>> = LazyLock::new(|| {
    let key = Key::of_16(b"the fuzzer's key");
    [Cipher::AES_128_GCM, Cipher::AES_128_CCM]
        .into_iter()
        .filter_map(|cipher| Sealer::new(cipher, &key).ok())
        .collect()
});

static SIGNERS: LazyLock<Vec<Signer>> = LazyLock::new(|| {
    let key = Key::of_16(b"the fuzzer's key");
    [SigningAlgorithm::HMAC_SHA256, SigningAlgorithm::AES_CMAC, SigningAlgorithm::AES_GMAC]
        .into_iter()
        .filter_map(|algorithm| Signer::new(algorithm, &key).ok())
        .collect()
});

/// An encrypted packet, or a signed message.
pub fn protected(bytes: &[u8]) {
    for sealer in SEALERS.iter() {
        assert!(sealer.open(&mut bytes.to_vec()).is_err(), "opened a packet of somebody else");
        let mut out = vec![0; bytes.len().saturating_sub(52)];
        assert!(sealer.open_into(bytes, &mut out).is_err(), "opened a packet of somebody else");
    }
    for signer in SIGNERS.iter() {
        let mut message = bytes.to_vec();
        assert!(signer.verify(&mut message).is_err(), "believed a message of somebody else");
        assert_eq!(message, bytes, "a check leaves the message as it was");
    }
}
