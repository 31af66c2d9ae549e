//! The vectors that Microsoft published ("SMB 2 and SMB 3 security in Windows 10: the anatomy of signing and
//! cryptographic keys", and "Encryption in SMB 3.0: a protocol perspective").

use super::*;
use crate::hex::{HASH_311, hash_of, hex};

fn keys(dialect: Dialect, key: &str, hash: &PreauthHash) -> [String; 4] {
    let keys = SessionKeys::derive(dialect, Some(Cipher::AES_128_GCM), &hex(key), hash);
    [&keys.signing, &keys.client_to_server, &keys.server_to_client, &keys.application]
        .map(|key| key.expose().iter().map(|byte| format!("{byte:02X}")).collect())
}

#[test]
fn smb_3_0() {
    let none = PreauthHash::new();
    assert_eq!(
        keys(Dialect::SMB_3_0, "7CD451825D0450D235424E44BA6E78CC", &none),
        [
            "0B7E9C5CAC36C0F6EA9AB275298CEDCE",
            "FAD27796665B313EBB578F388632B4F7",
            "B0F0427F7CEB416D1D9DCC0CD4F99447",
            "BB23A4575AA26C721AF525AF15A87B4F",
        ]
    );
    let second = keys(Dialect::SMB_3_0_2, "4E01A2B313BCF660CC250BEF021AEDE6", &none);
    assert_eq!(second[0], "BA1A17DBBFEC349BCA105563D598952F");
    let other = keys(Dialect::SMB_3_0, "B4546771B515F766A86735532DD6C4F0", &none);
    assert_eq!(other[1..3], ["261B72350558F2E9DCF613070383EDBF", "8FE2B57EC34D2DB5B1A9727F526BBDB5"]);
}

#[test]
fn smb_3_1_1() {
    assert_eq!(
        keys(Dialect::SMB_3_1_1, "270E1BA896585EEB7AF3472D3B4C75A7", &hash_of(HASH_311)),
        [
            "73FE7A9A77BEF0BDE49C650D8CCB5F76",
            "629BCBC54422A0F572B97F45989B6073",
            "E2AF0DCEFAC68DA71A0DFBD0D1350D74",
            "6D7AD7954E9EC61E907B4D473DC178FF",
        ]
    );
}

#[test]
fn smb_2_signs_with_the_session_key() {
    let keys = SessionKeys::derive(Dialect::SMB_2_1, None, &[7; 20], &PreauthHash::new());
    assert_eq!(keys.signing.expose(), [7; 16]);
    let short = SessionKeys::derive(Dialect::SMB_2_0_2, None, &[7; 3], &PreauthHash::new());
    assert_eq!(short.signing.expose(), [7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn long_ciphers_have_long_keys_from_the_whole_secret() {
    let hash = PreauthHash::new();
    let derive =
        |secret: &[u8]| SessionKeys::derive(Dialect::SMB_3_1_1, Some(Cipher::AES_256_GCM), secret, &hash);
    let (short, long) = (derive(&[1; 16]), derive(&[1; 32]));
    assert_eq!(long.client_to_server.expose().len(), 32);
    assert_ne!(short.client_to_server.expose(), long.client_to_server.expose());
    assert_eq!(short.signing.expose(), long.signing.expose());
}

#[test]
fn a_key_is_not_shown() {
    assert_eq!(format!("{:?}", Key::of_16(b"secret")), "Key(16 bytes, redacted)");
}
