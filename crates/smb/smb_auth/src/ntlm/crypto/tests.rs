//! The example of MS-NLMP 4.2.4.

use super::*;
use crate::hex::hex;
use crate::ntlm::{av_pairs, flag};

const FLAGS: u32 = 0xe28a_8233;

fn temp() -> Vec<u8> {
    let mut temp = vec![1, 1, 0, 0, 0, 0, 0, 0];
    temp.extend_from_slice(&[0; 8]);
    temp.extend_from_slice(&[0xaa; 8]);
    temp.extend_from_slice(&[0; 4]);
    av_pairs::put_text(av_pairs::id::NB_DOMAIN_NAME, "Domain", &mut temp);
    av_pairs::put_text(av_pairs::id::NB_COMPUTER_NAME, "Server", &mut temp);
    av_pairs::put(av_pairs::id::EOL, &[], &mut temp);
    temp.extend_from_slice(&[0; 4]);
    temp
}

#[test]
fn keys_and_proof() {
    let key = ntowf_v2(&NtHash::of_password("Password"), "User", "Domain");
    assert_eq!(key.to_vec(), hex("0c868a403bfd7a93a3001ef22ef02e3f"));
    let challenge = hex("0123456789abcdef").try_into().unwrap();
    let proof = nt_proof(&key, &challenge, &temp());
    assert_eq!(proof.to_vec(), hex("68cd0ab851e51c96aabc927bebef6a1c"));
    let base = session_base_key(&key, &proof);
    assert_eq!(base.to_vec(), hex("8de40ccadbc14a82f15cb0ad0de95ca3"));
    let mut random = [0x55; 16];
    rc4(&base, &mut random);
    assert_eq!(random.to_vec(), hex("c5dad2544fc9799094ce1ce90bc9d03e"));
}

#[test]
fn sealing_and_signing() {
    let session_key = Zeroizing::new([0x55; 16]);
    let mut signer = MessageSigner::new(&session_key, Direction::ToServer, FLAGS);
    assert_eq!(signer.signing.to_vec(), hex("4788dc861b4782f35d43fd98fe1a2d39"));
    let message = smb_protocol::utf16::utf16("Plaintext");
    let mut sealed = message.clone();
    let signature = signer.seal(&mut sealed, 0..message.len());
    assert_eq!(sealed, hex("54e50165bf1936dc996020c1811b0f06fb5f"));
    assert_eq!(signature.to_vec(), hex("010000007fb38ec5c55d497600000000"));
    let mut receiver = MessageSigner::new(&session_key, Direction::ToServer, FLAGS);
    assert_eq!(receiver.unseal(&mut sealed, 0..message.len()), signature);
    assert_eq!(sealed, message);
}

#[test]
fn directions_and_strengths_differ() {
    let key = Zeroizing::new([7; 16]);
    let all = flag::KEY_EXCHANGE | flag::BITS_128 | flag::BITS_56;
    let mut seen = std::collections::BTreeSet::new();
    for direction in [Direction::ToServer, Direction::ToClient] {
        for flags in [all, all & !flag::BITS_128, flag::KEY_EXCHANGE, 0] {
            assert!(seen.insert(MessageSigner::new(&key, direction, flags).sign(b"x")));
        }
    }
    let mut signer = MessageSigner::new(&key, Direction::ToServer, 0);
    assert_ne!(signer.sign(b"x"), signer.sign(b"x"));
}

#[test]
fn only_long_keys_seal() {
    let key = Zeroizing::new([7; 16]);
    let may = |flags| MessageSecurity::server(&key, flags, false).may_seal();
    assert!(may(flag::SEAL | flag::BITS_128 | flag::BITS_56));
    assert!(!may(flag::SEAL | flag::BITS_56), "56 bits are no protection");
    assert!(!may(flag::BITS_128), "not asked for");
}
