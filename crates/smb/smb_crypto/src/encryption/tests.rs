//! Packets of Windows ("Encryption in SMB 3.0: a protocol perspective", "SMB 3.1.1 encryption in Windows 10"), and what
//! must not open.

use super::*;
use crate::hex::{hash_of, hex};
use crate::{PreauthHash, SessionKeys};
use proptest::prelude::*;
use smb_protocol::Dialect;

const ALL: [Cipher; 4] = [Cipher::AES_128_CCM, Cipher::AES_128_GCM, Cipher::AES_256_CCM, Cipher::AES_256_GCM];

fn sealer(cipher: Cipher) -> Sealer {
    let long = matches!(cipher, Cipher::AES_256_CCM | Cipher::AES_256_GCM);
    let key = if long { Key::of_32(&[7; 32]) } else { Key::of_16(&[7; 16]) };
    Sealer::new(cipher, &key).unwrap()
}

#[test]
fn ccm_of_smb_3_0() {
    let secret = hex("B4546771B515F766A86735532DD6C4F0");
    let keys = SessionKeys::derive(Dialect::SMB_3_0, None, &secret, &PreauthHash::new());
    let mut write = hex("FE534D4240000100000000000900400008000000000000000400000000000000\
                         FFFE0000010000001100001400E4080000000000000000000000000000000000\
                         3100700017000000000000000000000015010000390000020100000039020000\
                         00000000000000007000000000000000536D623320656E6372797074696F6E20\
                         74657374696E67");
    let sealer = Sealer::new(Cipher::AES_128_CCM, &keys.client_to_server).unwrap();
    let nonce = hex("66E69A111892584FB5ED520000000000").try_into().unwrap();
    let header = sealer.seal(nonce, 0x0008_E400_1400_0011, &mut write).unwrap();
    // The published packet has random bytes behind the nonce, which are authenticated; so only the cipher text is the
    // same here, and the whole packet is opened below.
    assert_eq!(write[..16], hex("25C8FEE16605A437832D1CD52DA9F464"));
    assert_eq!(header[20..31], hex("66E69A111892584FB5ED52"));
    let mut published = hex("FD534D4281A286535415445DAE393921E44FA42E66E69A111892584FB5ED524A\
                             744DA3EE87000000000001001100001400E4080025C8FEE16605A437832D1CD5\
                             2DA9F4645333482A175FE5384563F45FCDAFAEF38BC62BA4D5C62897996625A4\
                             4C29BE5658DE2E6117585779E7B59FFD971278D08580D7FA899E410E910EABF5\
                             AA1DB43050B33B49182637759AC15D84BFCDF5B6B238993C0F4CF4D6012023F6\
                             C627297075D84B7803912D0A9639634453595EF3E33FFE4E7AC2AB");
    let opened = sealer.open(&mut published).unwrap();
    assert!(opened.ends_with(b"Smb3 encryption testing"));

    let sealer = Sealer::new(Cipher::AES_128_CCM, &keys.server_to_client).unwrap();
    let mut answer = hex("FD534D42A6015530A18F6D9AFFE22AFAE8E66484860000000000000011000014\
                          00E4080050000000000001001100001400E40800DBF46435C5F14169293CE079\
                          E344479BF670227E49873F458672C3098DAC467DD5809F369D67409166515787\
                          1483E01F7BECD02064EAC3E235F913668BBC2F097980D4B378F1993EFF6E60D1\
                          77309E5B");
    let opened = sealer.open(&mut answer).unwrap();
    assert_eq!(
        opened.to_vec(),
        hex("FE534D4240000100000000000900210009000000000000000400000000000000\
             FFFE0000010000001100001400E4080000000000000000000000000000000000\
             11000000170000000000000000000000")
    );
}

#[test]
fn gcm_of_smb_3_1_1() {
    let hash = hash_of(
        "B23F3CBFD69487D9832B79B1594A367CDD950909B774C3A4C412B4FCEA9EDDDBA7DB256BA2EA30E9\
         77F11F9B113247578E0E915C6D2A513B8F2FCA5707DC8770",
    );
    let secret = hex("419FDDF34C1E001909D362AE7FB6AF79");
    let keys = SessionKeys::derive(Dialect::SMB_3_1_1, Some(Cipher::AES_128_GCM), &secret, &hash);
    let mut write = hex("FE534D4240000100000000000900010008000000000000000500000000000000FFFE000001000000\
             25000000001000000000000000000000000000000000000031007000170000000000000000000000\
             0600000004000000010000000400000000000000000000007000000000000000536D623320656E63\
             72797074696F6E2074657374696E67");
    let sealer = Sealer::new(Cipher::AES_128_GCM, &keys.client_to_server).unwrap();
    let nonce = hex("C7D6822D269CAF48904C664C00000000").try_into().unwrap();
    let header = sealer.seal(nonce, 0x1000_0000_0025, &mut write).unwrap();
    assert_eq!(
        [&header[..], &write].concat(),
        hex("FD534D42BD73D97D2BC9001BCAFAC0FDFF5FEEBCC7D6822D269CAF48904C664C0000000087000000\
             0000010025000000001000006ECDD2A7AFC7B47763057A041B8FD4DAFFE990B70C9E09D36C084E02\
             D14EF247F8BDE38ACF6256F8B1D3B56F77FBDEB312FEA5E92CBCC1ED8FB2EBBFAA75E49A4A394BB4\
             4576545567C24D4C014D47C9FBDFDAFD2C4F9B72F8D256452620A299F48E29E53D6B61D1C13A19E9\
             1AF013F00D17E3ABC2FC3D36C8C1B6B93973253852DBD442E46EE8")
    );
    let mut answer = hex("FD534D42ACBE1CB7ED343ADF1725EF144D90D4B0E06831DD2E8EB7B4000000000000000050000000\
             00000100250000000010000026BBBF949983A6C1C796559D0F2C510CB651D1F7B6AC8DED32A2A0B8\
             F2D793A815C6F6B848D69767A215841A42D400AE6DDB5F0B44173A014973321FDD7950DA6179159B\
             82E03C9E18A050FF0EA1C967");
    let sealer = Sealer::new(Cipher::AES_128_GCM, &keys.server_to_client).unwrap();
    let opened = sealer.open(&mut answer).unwrap();
    assert_eq!(opened[..16], hex("FE534D42400001000000000009000100"));
}

#[test]
fn what_was_touched_or_sealed_for_another_does_not_open() {
    for cipher in ALL {
        let sealer = sealer(cipher);
        let mut text = b"forty-two bytes that are worth protecting.".to_vec();
        let plain = text.clone();
        let header = sealer.seal([1; 16], 9, &mut text).unwrap();
        assert_ne!(text, plain);
        let packet = [&header[..], &text].concat();
        assert_eq!(sealer.open(&mut packet.clone()).unwrap(), plain);
        let mut apart = vec![0; plain.len()];
        sealer.open_into(&packet, &mut apart).unwrap();
        assert_eq!(apart, plain);
        assert!(sealer.open_into(&packet, &mut apart[1..]).is_err());
        for at in 0..packet.len() {
            let mut bad = packet.clone();
            bad[at] ^= 0x10;
            assert!(sealer.open(&mut bad.clone()).is_err(), "{cipher:?} {at}");
            assert!(sealer.open_into(&bad, &mut apart).is_err(), "{cipher:?} {at}");
            assert!(sealer.open(&mut packet[..at].to_vec()).is_err(), "{cipher:?} cut to {at}");
        }
        let key = if matches!(cipher, Cipher::AES_256_CCM | Cipher::AES_256_GCM) {
            Key::of_32(&[8; 32])
        } else {
            Key::of_16(&[8; 16])
        };
        assert!(Sealer::new(cipher, &key).unwrap().open(&mut packet.clone()).is_err());
    }
    assert!(Sealer::new(Cipher::AES_128_GCM, &Key::of_32(&[1; 32])).is_err());
    assert!(Sealer::new(Cipher::AES_256_CCM, &Key::of_16(&[1; 16])).is_err());
    assert!(Sealer::new(Cipher(9), &Key::of_16(&[1; 16])).is_err());
}

proptest! {
    #[test]
    fn there_and_back(text in proptest::collection::vec(any::<u8>(), 1..2000), nonce: [u8; 16], session: u64) {
        for cipher in ALL {
            let sealer = sealer(cipher);
            let mut sealed = text.clone();
            let header = sealer.seal(nonce, session, &mut sealed).unwrap();
            let mut packet = [&header[..], &sealed].concat();
            prop_assert_eq!(sealer.open(&mut packet).unwrap(), text.as_slice());
        }
    }

    /// From two places or from one, it is the same packet.
    #[test]
    fn gathered(text in proptest::collection::vec(any::<u8>(), 1..2000), at in any::<prop::sample::Index>(), nonce: [u8; 16]) {
        let at = at.index(text.len() + 1);
        for cipher in ALL {
            let sealer = sealer(cipher);
            let mut whole = text.clone();
            let expected = sealer.seal(nonce, 7, &mut whole).unwrap();
            let (head, data) = text.split_at(at);
            let mut head = head.to_vec();
            let mut out = vec![0; data.len() + TAG_BYTES];
            prop_assert!(sealer.seal_gather(nonce, 7, &mut head, data, &mut out[1..]).is_err());
            let header = sealer.seal_gather(nonce, 7, &mut head, data, &mut out).unwrap();
            prop_assert_eq!(header, expected);
            prop_assert_eq!([&head[..], &out[..data.len()]].concat(), whole);
        }
    }

    #[test]
    fn rubbish_does_not_open(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        crate::fuzz::protected(&bytes);
        crate::fuzz::protected(&[b"\xfdSMB", bytes.as_slice()].concat());
    }
}
