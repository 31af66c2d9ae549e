//! Tokens that clients of other people sent to this acceptor: pyspnego 0.12.4 and impacket 0.13.1, recorded with the
//! challenge and the time of the samples.

use super::*;
use crate::account::{Account, AccountState, NtHash};
use crate::fuzz::acceptor_of_samples;
use crate::fuzz::samples::PASSWORD;
use crate::hex::hex;
use crate::ntlm::policy::Policy;
use smb_protocol::security::sid::Sid;

const PYSPNEGO_FIRST: &str = "604806062b0601050502a03e303ca00e300c060a2b06010401823702020aa22a04284e544c4d5353500001000000378208e2\
    00000000280000000000000028000000000c04000000000f";
const PYSPNEGO_LAST: &str = "a182013b30820137a0030a0101a282011a048201164e544c4d535350000300000018001800580000008a008a007000000000\
    000000fa00000008000800fa0000000400040002010000100010000601000035828ae2000c04000000000f6d7cfc68bc2a28\
    121c67c699edfacbfe00000000000000000000000000000000000000000000000087c61e22288b2145634aa5a58069519701\
    0100000000000024cda07ca29cdd01d7df75b176d12d100000000002000c0053004500520056004500520001000c00530045\
    00520056004500520004000000030000000700080024cda07ca29cdd010900160063006900660073002f0073006500720076\
    006500720006000400020000000000000000000000550073006500720056004d00ca7fc5141c9bf79f274ad00fa833afe3a3\
    12041001000000ae3c2dbbfd378a5e00000000";
/// What pyspnego has checked, the code over the list in it.
const PYSPNEGO_DONE: &str = "a11b3019a0030a0100a31204100100000057d424a5f1573f2c00000000";
const PYSPNEGO_KEY: &str = "3df2ed923ba7701e329c6473cd9ce602";
const IMPACKET_FIRST: &str = "604006062b0601050502a0363034a00e300c060a2b06010401823702020aa22204204e544c4d5353500001000000358288e0\
    00000000000000000000000000000000";
const IMPACKET_LAST: &str = "a181ef3081eca281e90481e64e544c4d5353500003000000180018004c000000720072006400000000000000400000000800\
    080040000000040004004800000010001000d6000000358288e05500730065007200570053009a3d42c16673f1a3149a0f84\
    367ed042476379634757474ed5c7e0f3f55e5f50d57884b543364b1c010100000000000024cda07ca29cdd01476379634757\
    474e0000000002000c0053004500520056004500520001000c00530045005200560045005200040000000300000007000800\
    24cda07ca29cdd0109000a0063006900660073002f0000000000d9d2900f0cb4667af4972dfcbf13dddd";
const IMPACKET_KEY: &str = "42774b33476e3064395a445253335952";
const IMPACKET_NOBODY: &str = "a15b3059a25704554e544c4d5353500003000000010001004400000000000000450000000000000040000000000000004000\
    000004000400400000001000100045000000358288e05700530000aa6ae804e85c306ff84a691d0e1ef926";
const IMPACKET_NOBODYS_KEY: &str = "747261454b6b6d55724c777a59706b4b";

struct User;

impl Accounts for User {
    fn account(&self, _: &str, user: &str) -> Option<Account> {
        let (nt_hash, state) = (NtHash::of_password(PASSWORD), AccountState::Active);
        (user == "User").then(|| Account { name: user.into(), sid: Sid::SYSTEM, nt_hash, state })
    }
}

/// The last token and the key, or why not.
fn answer(policy: Policy, first: &str, last: &str) -> Result<(Vec<u8>, Authenticated), AuthError> {
    let mut acceptor = acceptor_of_samples(policy);
    assert!(matches!(acceptor.step(&hex(first), &User), Step::Continue(_)));
    match acceptor.step(&hex(last), &User) {
        Step::Done(token, who) => Ok((token, who)),
        Step::Continue(_) => Err(AuthError::OutOfTurn),
        Step::Failed(failure) => Err(failure.error),
    }
}

#[test]
fn pyspnego_with_both_codes() {
    let policy = Policy { require_mic: true, ..Policy::default() };
    let (token, who) = answer(policy, PYSPNEGO_FIRST, PYSPNEGO_LAST).unwrap();
    assert_eq!((token, who.session_key.expose()), (hex(PYSPNEGO_DONE), hex(PYSPNEGO_KEY).as_slice()));
    assert_eq!(who.target_name.as_deref(), Some("cifs/server"));
}

#[test]
fn impacket_without_any() {
    let (_, who) = answer(Policy::default(), IMPACKET_FIRST, IMPACKET_LAST).unwrap();
    assert_eq!(who.session_key.expose(), hex(IMPACKET_KEY));
    assert_eq!((who.workstation.as_str(), &who.identity), ("WS", &user_of("User")));
    let policy = Policy { require_mic: true, ..Policy::default() };
    assert_eq!(answer(policy, IMPACKET_FIRST, IMPACKET_LAST), Err(AuthError::MicMissing));
}

#[test]
fn impacket_as_nobody() {
    let policy = Policy { anonymous: true, ..Policy::default() };
    let (_, who) = answer(policy, IMPACKET_FIRST, IMPACKET_NOBODY).unwrap();
    assert_eq!(
        (who.session_key.expose(), who.identity),
        (hex(IMPACKET_NOBODYS_KEY).as_slice(), Identity::Anonymous)
    );
    assert_eq!(answer(Policy::default(), IMPACKET_FIRST, IMPACKET_NOBODY), Err(AuthError::Anonymous));
}

fn user_of(name: &str) -> Identity {
    Identity::User { name: name.into(), domain: String::new(), sid: Sid::SYSTEM }
}
