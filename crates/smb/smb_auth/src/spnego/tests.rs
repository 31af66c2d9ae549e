//! Tokens of Windows, from Microsoft's walk-through of 3.1.1, and our own there and back.

use super::*;
use crate::hex::hex;

/// NegTokenInit with an NTLM NEGOTIATE.
pub(crate) const WINDOWS_INIT: &str = "604806062B0601050502A03E303CA00E300C060A2B06010401823702020AA22A04284E544C4D535350000100\
     0000978208E200000000000000000000000000000000060380250000000F";
/// The last answer, with a code over the list.
const WINDOWS_DONE: &str = "A11B3019A0030A0100A3120410010000003B453CDC3524164200000000";

#[test]
fn tokens_of_windows() {
    let bytes = hex(WINDOWS_INIT);
    let token = NegTokenInit::decode(&bytes).unwrap();
    assert_eq!(token.mechanisms.iter().collect::<Vec<_>>(), [oid::NTLMSSP]);
    assert!(token.token.unwrap().starts_with(b"NTLMSSP\0\x01"));
    assert_eq!(init(&[oid::NTLMSSP], token.token), bytes);

    let bytes = hex(WINDOWS_DONE);
    let token = NegTokenResp::decode(&bytes).unwrap();
    assert_eq!(token.state, Some(NegState::AcceptCompleted));
    assert_eq!(token.mic.map(<[u8]>::len), Some(16));
    assert_eq!(token.encode(), bytes);
}

#[test]
fn hints_there_and_back() {
    let bytes = hint(&[oid::MS_KERBEROS, oid::KERBEROS, oid::NTLMSSP]);
    let token = NegTokenInit::decode(&bytes).unwrap();
    assert_eq!(token.mechanisms.iter().count(), 3);
    assert_eq!(token.mechanisms.bytes(), mech_list(&[oid::MS_KERBEROS, oid::KERBEROS, oid::NTLMSSP]));
    assert_eq!((token.token, token.mic), (None, None));
}

#[test]
fn cut_and_prolonged_tokens_are_refused() {
    let full = NegTokenResp {
        state: Some(NegState::RequestMic),
        mechanism: Some(oid::NTLMSSP),
        token: Some(&[7; 200]),
        mic: Some(&[8; 16]),
    };
    let bytes = full.encode();
    assert_eq!(NegTokenResp::decode(&bytes), Ok(full));
    let first = init(&[oid::NTLMSSP], Some(b"token"));
    for cut in 0..bytes.len() {
        assert!(NegTokenResp::decode(&bytes[..cut]).is_err());
    }
    for cut in 0..first.len() {
        assert!(NegTokenInit::decode(&first[..cut]).is_err());
    }
    assert!(NegTokenResp::decode(&[bytes.as_slice(), &[0]].concat()).is_err());
    assert!(NegTokenInit::decode(&[first.as_slice(), &[0]].concat()).is_err());
    let many = vec![oid::NTLMSSP; MAX_MECHANISMS + 1];
    assert!(NegTokenInit::decode(&init(&many, None)).is_err());
    assert!(NegTokenInit::decode(&init(&[], None)).is_err());
}
