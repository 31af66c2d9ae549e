//! Published vectors (RFC 4493, Microsoft's walk-through) and what must not be believed.

use super::*;
use crate::hex::{SIGNED_RESPONSE, hex};
use proptest::prelude::*;
use smb_protocol::Header;

const ALGORITHMS: [SigningAlgorithm; 3] =
    [SigningAlgorithm::HMAC_SHA256, SigningAlgorithm::AES_CMAC, SigningAlgorithm::AES_GMAC];

fn signer(algorithm: SigningAlgorithm) -> Signer {
    Signer::new(algorithm, &Key::of_16(&[7; 16])).unwrap()
}

fn message(data: &[u8]) -> Vec<u8> {
    let header = Header { command: Command::WRITE, message_id: 0x0102_0304, ..Header::default() };
    [&header.encode()[..], data].concat()
}

#[test]
fn cmac_of_rfc_4493() {
    let key = Key::of_16(&hex("2b7e151628aed2a6abf7158809cf4f3c"));
    let signer = Signer::new(SigningAlgorithm::AES_CMAC, &key).unwrap();
    let text = hex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
                    30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710");
    for (len, tag) in [
        (0, "bb1d6929e95937287fa37d129b756746"),
        (16, "070a16b46b4d4144f79bdd9dd04a287c"),
        (40, "dfa66747de9ae63030ca32611497c827"),
        (64, "51f0bebf7e3b9d92fc49741779363cfe"),
    ] {
        assert_eq!(signer.compute(&text[..len]).unwrap().to_vec(), hex(tag));
    }
}

#[test]
fn hmac_of_rfc_4231() {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &[0x0b; 20]);
    let computed = Signer(Algorithm::HmacSha256(Box::new(key))).compute(b"Hi There").unwrap();
    assert_eq!(computed.to_vec(), hex("b0344c61d8db38535ca8afceaf0bf12b"));
}

/// Computed a second time, by hand: GCM without a plaintext, over the message, with its number as nonce.
#[test]
fn gmac_is_gcm_over_the_message() {
    let signer = signer(SigningAlgorithm::AES_GMAC);
    let mut signed = message(b"data");
    signer.sign(&mut signed).unwrap();
    let tag = signed[SIGNATURE_AT..HEADER_BYTES].to_vec();
    let mut plain = signed.clone();
    plain[SIGNATURE_AT..HEADER_BYTES].fill(0);
    let key = aead::LessSafeKey::new(aead::UnboundKey::new(&aead::AES_128_GCM, &[7; 16]).unwrap());
    let nonce = [4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut none = [];
    let nonce = aead::Nonce::assume_unique_for_key(nonce);
    let expected = key.seal_in_place_separate_tag(nonce, aead::Aad::from(plain), &mut none).unwrap();
    assert_eq!(expected.as_ref(), tag);
}

#[test]
fn the_nonce_tells_direction_and_cancel() {
    let mut request = message(b"");
    assert_eq!(gmac_nonce(&request).unwrap()[8..], [0, 0, 0, 0]);
    request[16] |= 1;
    assert_eq!(gmac_nonce(&request).unwrap()[8..], [1, 0, 0, 0]);
    request[12] = 0x0c;
    assert_eq!(gmac_nonce(&request).unwrap()[8..], [3, 0, 0, 0]);
    request[16] = 0xfe;
    assert_eq!(gmac_nonce(&request).unwrap()[8..], [2, 0, 0, 0]);
}

/// The last response of SESSION_SETUP in Microsoft's walk-through of 3.1.1.
#[test]
fn a_response_of_windows() {
    let key = Key::of_16(&hex("73FE7A9A77BEF0BDE49C650D8CCB5F76"));
    let signer = Signer::new(SigningAlgorithm::AES_CMAC, &key).unwrap();
    let mut response = hex(SIGNED_RESPONSE);
    signer.verify(&mut response).unwrap();
    let before = response.clone();
    signer.sign(&mut response).unwrap();
    assert_eq!(response, before);
}

#[test]
fn what_is_not_signed_or_cut_is_not_believed() {
    for algorithm in ALGORITHMS {
        let signer = signer(algorithm);
        let mut signed = message(&[9; 100]);
        assert_eq!(signer.verify(&mut signed), Err(CryptoError::Mismatch), "no flag");
        signer.sign(&mut signed).unwrap();
        assert_eq!(signer.verify(&mut signed), Ok(()));
        for cut in 0..signed.len() {
            assert!(signer.verify(&mut signed[..cut]).is_err());
        }
        assert_eq!(signer.sign(&mut signed[..63]), Err(CryptoError::TooShort));
    }
    assert!(Signer::new(SigningAlgorithm(3), &Key::of_16(&[])).is_err());
}

proptest! {
    #[test]
    fn any_flipped_bit_is_noticed(
        data in proptest::collection::vec(any::<u8>(), 0..300),
        at in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        for algorithm in ALGORITHMS {
            let signer = signer(algorithm);
            let mut signed = message(&data);
            signer.sign(&mut signed).unwrap();
            let good = signed.clone();
            prop_assert_eq!(signer.verify(&mut signed), Ok(()));
            prop_assert_eq!(&signed, &good);
            let at = at.index(signed.len());
            signed[at] ^= 1_u8 << bit;
            prop_assert!(signer.verify(&mut signed).is_err());
        }
    }
}
