//! A real client's messages (smbclient with smbd), and what is refused.

use super::*;
use crate::account::Account;
use crate::hex::hex;
use crate::ntlm::policy::{ChannelBindings, TargetNames};
use smb_protocol::security::sid::Sid;

/// User "root" of "WORKGROUP" with the password "pass1", as recorded.
const NEGOTIATE: &str = "4e544c4d535350000100000015820862000000002800000000000000280000000601000000\
    00000f";
const CHALLENGE: &str = "4e544c4d53535000020000000c000c003800000015828a62e72740ba16bffda00000000000\
    0000003c003c0044000000060100000000000f53004500520056004500520002000c0053004500520056004500520001\
    000c00530045005200560045005200040000000300040076006d000700080024cda07ca279dd0100000000";
const AUTHENTICATE: &str = "4e544c4d53535000030000001800180058000000d800d800700000001200120048010000080008005a0100000c000c00\
    62010000100010006e01000015820862060100000000000f5bdaaafb849ee084f5c8e2aaee44af180000000000000000\
    000000000000000000000000000000001efdd0748a1f89e8b5ceb1d576b2b330010100000000000024cda07ca279dd01\
    cafb7ab9b9e7f6800000000002000c0053004500520056004500520001000c0053004500520056004500520004000000\
    0300040076006d000700080024cda07ca279dd0106000400020000000800300030000000000000000000000000000000\
    6542407491e27672c63413407cb1892dae4328cf265791110e895d9ca06a33200a001000000000000000000000000000\
    0000000009001c0063006900660073002f003100320037002e0030002e0030002e0031000000000057004f0052004b00\
    470052004f005500500072006f006f00740043004c00490045004e0054007ac7ea7bcb92891c673ef7ca6f19f00b";
/// SPNEGO's list with NTLM alone, and the codes over it that both sides sent.
const LIST: &str = "300c060a2b06010401823702020a";
const CLIENT_MIC: &str = "0100000061ae6f796039a63f00000000";
const SERVER_MIC: &str = "01000000767e9f2f71ae278d00000000";

struct Root(&'static str);

impl Accounts for Root {
    fn account(&self, _: &str, user: &str) -> Option<Account> {
        let nt_hash = NtHash::of_password(self.0);
        Some(Account { name: user.to_owned(), sid: Sid::SYSTEM, nt_hash, state: AccountState::Active })
    }
}

/// The server that has sent the recorded challenge.
fn challenged(policy: Policy) -> NtlmAcceptor {
    let bytes = hex(CHALLENGE);
    let told = Challenge::decode(&bytes).unwrap();
    let server = Arc::new(NtlmServer { policy, ..NtlmServer::default() });
    let mut acceptor = NtlmAcceptor::new(server, told.challenge, FileTime(0));
    acceptor.target_info = told.target_info.to_vec();
    let offered = told.flags;
    acceptor.state = State::Challenged { negotiate: hex(NEGOTIATE), challenge: bytes, offered };
    acceptor
}

fn answer(policy: Policy, token: &[u8], accounts: &dyn Accounts) -> Result<Authenticated, AuthError> {
    match challenged(policy).step(token, accounts) {
        MechStep::Done(None, who) => Ok(who),
        MechStep::Failed(failure) => Err(failure.error),
        other => panic!("{other:?}"),
    }
}

#[test]
fn smbclient_is_understood() {
    let policy = Policy { require_mic: true, ..Policy::default() };
    let mut acceptor = challenged(policy);
    let MechStep::Done(None, who) = acceptor.step(&hex(AUTHENTICATE), &Root("pass1")) else {
        panic!("not accepted")
    };
    assert_eq!(
        who.identity,
        Identity::User { name: "root".into(), domain: "WORKGROUP".into(), sid: Sid::SYSTEM }
    );
    assert_eq!((who.workstation.as_str(), who.target_name.as_deref()), ("CLIENT", Some("cifs/127.0.0.1")));
    // The codes of both sides prove the session key without our knowing it from elsewhere.
    assert!(acceptor.verify(&hex(LIST), &hex(CLIENT_MIC)));
    assert_eq!(acceptor.sign(&hex(LIST)), Some(hex(SERVER_MIC)));
}

#[test]
fn a_wrong_password_and_a_touched_message() {
    let whole = hex(AUTHENTICATE);
    assert_eq!(answer(Policy::default(), &whole, &Root("pass2")), Err(AuthError::WrongPassword));
    // The workstation is covered by the integrity code only.
    let mut touched = whole.clone();
    let at = touched.len() - 20;
    touched[at] ^= 1;
    assert_eq!(answer(Policy::default(), &touched, &Root("pass1")), Err(AuthError::Mic));
}

#[test]
fn another_challenge_than_ours() {
    let mut acceptor = challenged(Policy::default());
    acceptor.target_info = NtlmServer::default().target_info(FileTime(1));
    let step = acceptor.step(&hex(AUTHENTICATE), &Root("pass1"));
    assert!(matches!(step, MechStep::Failed(Failure { error: AuthError::TargetInfo, .. })));
}

#[test]
fn the_policy_is_kept() {
    let other = Policy { target_names: TargetNames::OneOf(vec!["server".into()]), ..Policy::default() };
    assert_eq!(answer(other, &hex(AUTHENTICATE), &Root("pass1")), Err(AuthError::TargetName));
    let bound = Policy { channel_bindings: ChannelBindings::Require([1; 16]), ..Policy::default() };
    assert_eq!(answer(bound, &hex(AUTHENTICATE), &Root("pass1")), Err(AuthError::ChannelBindings));
    let soft = Policy { channel_bindings: ChannelBindings::IfPresent([1; 16]), ..Policy::default() };
    assert!(answer(soft, &hex(AUTHENTICATE), &Root("pass1")).is_ok());
}

#[test]
fn old_responses_are_refused() {
    let bytes = hex(AUTHENTICATE);
    let message = Authenticate::decode(&bytes).unwrap();
    for (lm, nt) in [(&[1; 24][..], &[2; 24][..]), (&[1; 24], &[]), (&[], &[2; 24]), (&[0], &[])] {
        let old = Authenticate { lm_response: lm, nt_response: nt, ..message.clone() };
        let result = answer(Policy { anonymous: true, ..Policy::default() }, &old.encode(), &Root("pass1"));
        assert_eq!(result, Err(AuthError::OldResponse), "{lm:?} {nt:?}");
    }
    let mut other = message.nt_response.to_vec();
    other[16] = 2;
    let other = Authenticate { nt_response: &other, ..message.clone() };
    let result = answer(Policy::default(), &other.encode(), &Root("pass1"));
    assert_eq!(result, Err(AuthError::Malformed("NTLMv2 response")));
    let ascii = Authenticate { flags: message.flags & !flag::UNICODE, ..message };
    assert_eq!(answer(Policy::default(), &ascii.encode(), &Root("pass1")), Err(AuthError::Options));
}

#[test]
fn clients_of_the_last_century_are_refused() {
    for flags in [0, flag::NTLM, flag::UNICODE] {
        let mut acceptor = NtlmAcceptor::new(Arc::default(), [0; 8], FileTime(0));
        let step = acceptor.step(&Negotiate { flags }.encode(), &Root(""));
        assert!(matches!(step, MechStep::Failed(Failure { error: AuthError::Options, .. })));
        assert!(acceptor.sign(b"x").is_none() && !acceptor.verify(b"x", &[0; 16]));
    }
}

/// The whole messages of MS-NLMP 4.2.4.3: "User" of "Domain" with "Password", a session key of 55s.
#[test]
fn the_example_of_the_specification() {
    let told = hex("4e544c4d53535000020000000c000c003800000033828ae20123456789abcdef0000000000000000\
         2400240044000000060070170000000f53006500720076006500720002000c0044006f006d00610069006e00\
         01000c0053006500720076006500720000000000");
    let message = hex("4e544c4d5353500003000000180018006c00000054005400840000000c000c0048000000080008005400\
         0000100010005c00000010001000d800000035828ae2050128000000000f44006f006d00610069006e00\
         550073006500720043004f004d005000550054004500520086c35097ac9cec102554764a57cccc19aaaa\
         aaaaaaaaaaaa68cd0ab851e51c96aabc927bebef6a1c01010000000000000000000000000000aaaaaaaa\
         aaaaaaaa0000000002000c0044006f006d00610069006e0001000c005300650072007600650072000000\
         000000000000c5dad2544fc9799094ce1ce90bc9d03e");
    let decoded = Challenge::decode(&told).unwrap();
    let mut acceptor = NtlmAcceptor::new(Arc::default(), decoded.challenge, FileTime(0));
    acceptor.target_info = decoded.target_info.to_vec();
    let offered = decoded.flags;
    acceptor.state = State::Challenged { negotiate: Vec::new(), challenge: told.clone(), offered };
    let MechStep::Done(None, who) = acceptor.step(&message, &Root("Password")) else {
        panic!("not accepted")
    };
    assert_eq!(who.session_key.expose(), [0x55; 16]);
    assert_eq!(
        who.identity,
        Identity::User { name: "User".into(), domain: "Domain".into(), sid: Sid::SYSTEM }
    );
    assert_eq!(who.workstation, "COMPUTER");
}
