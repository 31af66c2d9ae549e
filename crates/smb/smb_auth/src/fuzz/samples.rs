//! Tokens as seeds for the fuzzer and for tests.

use smb_protocol::FileTime;

use crate::acceptor::Step;
use crate::account::{NoAccounts, NtHash};
use crate::fuzz::acceptor_of_samples;
use crate::initiator::{Answer, Initiator};
use crate::ntlm::client::{Credentials, Randomness};
use crate::ntlm::policy::Policy;
use crate::spnego::{NegTokenInit, NegTokenResp, hint, oid};

/// The user of the samples.
pub const USER: &str = "User";
/// Its password.
pub const PASSWORD: &str = "Password";
/// The server's challenge.
pub const CHALLENGE: [u8; 8] = [1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
/// The time.
pub const NOW: u64 = 0x01dd_9ca2_7ca0_cd24;

/// The client of the samples; an empty user stays anonymous.
#[must_use]
pub fn client(user: &str, password: &str, decoy: Option<&'static [u8]>) -> Initiator {
    let credentials = Credentials {
        user: user.to_owned(),
        domain: "Domain".to_owned(),
        nt_hash: NtHash::of_password(password),
        workstation: "COMPUTER".to_owned(),
        target_name: "cifs/server".to_owned(),
    };
    let random = Randomness { challenge: [0xaa; 8], session_key: [0x55; 16], now: FileTime(NOW) };
    Initiator::new(credentials, random, decoy)
}

/// The tokens of both sides of an authentication, in order.
fn tokens(user: &str, decoy: Option<&'static [u8]>) -> Vec<Vec<u8>> {
    let mut acceptor = acceptor_of_samples(Policy::default());
    let mut client = client(user, PASSWORD, decoy);
    let mut all = vec![client.first()];
    while let Some(Step::Continue(answer)) = all.last().map(|token| acceptor.step(token, &NoAccounts)) {
        let next = client.step(&answer);
        all.push(answer);
        match next {
            Ok(Answer::Continue(token)) => all.push(token),
            _ => break,
        }
    }
    all
}

/// Tokens of SPNEGO.
#[must_use]
pub fn spnego() -> Vec<Vec<u8>> {
    [tokens(USER, None), tokens(USER, Some(oid::KERBEROS)), vec![hint(&[oid::NTLMSSP])]].concat()
}

/// Messages of NTLM.
#[must_use]
pub fn ntlm() -> Vec<Vec<u8>> {
    tokens(USER, None)
        .iter()
        .filter_map(|token| {
            let first = NegTokenInit::decode(token).ok().and_then(|token| token.token);
            let inner = first.or_else(|| NegTokenResp::decode(token).ok().and_then(|token| token.token));
            inner.map(<[u8]>::to_vec)
        })
        .collect()
}

/// What the client sends in whole authentications, for [`super::conversation`].
#[must_use]
pub fn conversations() -> Vec<Vec<u8>> {
    let raw = ntlm();
    [tokens(USER, None), tokens(USER, Some(oid::MS_KERBEROS)), tokens("", None), raw]
        .iter()
        .map(|tokens| {
            let sent = tokens.iter().step_by(2);
            sent.flat_map(|token| [&(token.len() as u16).to_le_bytes(), token.as_slice()].concat()).collect()
        })
        .collect()
}
