//! Entries for fuzzing: any bytes, never a panic, never unbounded work.

pub mod samples;

use std::sync::Arc;

use smb_protocol::FileTime;
use smb_protocol::security::sid::Sid;

use crate::acceptor::{Acceptor, Step};
use crate::account::{Account, AccountState, Accounts, NtHash};
use crate::ntlm::acceptor::{NtlmAcceptor, NtlmServer};
use crate::ntlm::av_pairs::AvPairs;
use crate::ntlm::message::{Authenticate, Challenge, Negotiate};
use crate::ntlm::policy::Policy;
use crate::spnego::{NegTokenInit, NegTokenResp};

/// A token of SPNEGO.
pub fn spnego(bytes: &[u8]) {
    if let Ok(token) = NegTokenInit::decode(bytes) {
        assert!(token.mechanisms.iter().count() > 0, "a list of mechanisms is never empty");
    }
    if let Ok(token) = NegTokenResp::decode(bytes) {
        assert_eq!(NegTokenResp::decode(&token.encode()), Ok(token));
    }
}

/// A message of NTLM, or a list of attributes.
pub fn ntlm(bytes: &[u8]) {
    let _ = Negotiate::decode(bytes);
    if let Ok(challenge) = Challenge::decode(bytes) {
        assert_eq!(Challenge::decode(&challenge.encode()), Ok(challenge));
        let _ = AvPairs::decode(challenge.target_info);
    }
    if let Ok(message) = Authenticate::decode(bytes) {
        let whole = message.encode();
        let again = Authenticate::decode(&whole);
        assert_eq!(again.map(|again| again.encode()), Ok(whole));
        let _ = message.nt_response.get(44..).map(AvPairs::decode);
    }
    if let Ok(pairs) = AvPairs::decode(bytes) {
        assert_eq!(AvPairs::decode(pairs.bytes()), Ok(pairs));
    }
}

struct One;

impl Accounts for One {
    fn account(&self, _: &str, user: &str) -> Option<Account> {
        let nt_hash = NtHash::of_password(samples::PASSWORD);
        let state = AccountState::Active;
        (user == samples::USER).then(|| Account { name: user.to_owned(), sid: Sid::SYSTEM, nt_hash, state })
    }
}

/// The server of [`samples`].
#[must_use]
pub fn acceptor_of_samples(policy: Policy) -> Acceptor {
    let name = "SERVER".to_owned();
    let server = NtlmServer { computer: name.clone(), domain: name, policy, ..NtlmServer::default() };
    let ntlm = NtlmAcceptor::new(Arc::new(server), samples::CHALLENGE, FileTime(samples::NOW));
    Acceptor::new(vec![Box::new(ntlm)])
}

/// A whole authentication: tokens one after another, each after its length in two bytes.
pub fn conversation(mut bytes: &[u8]) {
    let mut acceptor = acceptor_of_samples(Policy { anonymous: true, ..Policy::default() });
    while let Some((len, rest)) = bytes.split_first_chunk::<2>() {
        let len = usize::from(u16::from_le_bytes(*len)).min(rest.len());
        let (token, rest) = rest.split_at(len);
        bytes = rest;
        match acceptor.step(token, &One) {
            Step::Continue(_) => {}
            Step::Done(..) => assert!(matches!(acceptor.step(token, &One), Step::Failed(_)), "done is done"),
            Step::Failed(failure) => {
                let _ = failure.error.status();
                assert!(matches!(acceptor.step(token, &One), Step::Failed(_)), "failed is failed");
                return;
            }
        }
    }
}
