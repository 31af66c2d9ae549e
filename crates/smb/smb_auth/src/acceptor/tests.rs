//! Conversations between our two sides, with somebody between them.

use proptest::prelude::*;

use super::*;
use crate::account::{Account, AccountState, NtHash};
use crate::fuzz::samples::{self, PASSWORD, USER, client};
use crate::fuzz::{self, acceptor_of_samples};
use crate::initiator::{Answer, Initiator};
use crate::ntlm::policy::Policy;
use crate::spnego::{init, mech_list};
use smb_protocol::security::sid::Sid;

struct Users(AccountState);

impl Accounts for Users {
    fn account(&self, domain: &str, user: &str) -> Option<Account> {
        (user.eq_ignore_ascii_case(USER) && domain == "Domain").then(|| Account {
            name: USER.to_owned(),
            sid: Sid::SYSTEM,
            nt_hash: NtHash::of_password(PASSWORD),
            state: self.0,
        })
    }
}

/// Runs an authentication; `between` may change every token, the client's and the server's.
fn converse(
    client: &mut Initiator,
    acceptor: &mut Acceptor,
    state: AccountState,
    between: &mut dyn FnMut(usize, Vec<u8>) -> Vec<u8>,
) -> Result<Authenticated, AuthError> {
    let mut token = client.first();
    for round in 0.. {
        token = between(2 * round, token);
        match acceptor.step(&token, &Users(state)) {
            Step::Failed(failure) => return Err(failure.error),
            Step::Continue(answer) => match client.step(&between(2 * round + 1, answer))? {
                Answer::Continue(next) => token = next,
                Answer::Done => return Err(AuthError::OutOfTurn),
            },
            Step::Done(answer, who) => {
                assert_eq!(client.step(&between(2 * round + 1, answer))?, Answer::Done);
                assert_eq!(client.session_key().unwrap(), who.session_key);
                return Ok(who);
            }
        }
    }
    Err(AuthError::OutOfTurn)
}

fn plain(
    user: &str,
    password: &str,
    policy: Policy,
    state: AccountState,
) -> Result<Authenticated, AuthError> {
    let mut client = client(user, password, None);
    converse(&mut client, &mut acceptor_of_samples(policy), state, &mut |_, token| token)
}

#[test]
fn a_user_with_the_right_password() {
    let policy = Policy { require_mic: true, ..Policy::default() };
    for user in [USER, "uSER"] {
        let who = plain(user, PASSWORD, policy.clone(), AccountState::Active).unwrap();
        assert_eq!(
            who.identity,
            Identity::User { name: USER.into(), domain: "Domain".into(), sid: Sid::SYSTEM }
        );
        assert_eq!(who.target_name.as_deref(), Some("cifs/server"));
        assert_eq!((who.workstation.as_str(), who.session_key.expose()), ("COMPUTER", &[0x55; 16][..]));
        assert!(!format!("{who:?}").contains("85"), "the key is not shown");
    }
}

#[test]
fn everybody_else() {
    let none = Policy::default;
    let active = AccountState::Active;
    assert_eq!(plain(USER, "password", none(), active), Err(AuthError::WrongPassword));
    assert_eq!(plain("Other", PASSWORD, none(), active), Err(AuthError::UnknownUser));
    assert_eq!(plain("", "", none(), active), Err(AuthError::Anonymous));
    for state in [AccountState::Disabled, AccountState::Expired, AccountState::PasswordExpired] {
        assert_eq!(plain(USER, PASSWORD, none(), state), Err(AuthError::Account(state)));
        // Who does not know the password does not learn that the account is disabled.
        assert_eq!(plain(USER, "password", none(), state), Err(AuthError::WrongPassword));
    }
    // Who is locked out does not learn whether the password was right.
    let locked = AccountState::LockedOut;
    assert_eq!(plain(USER, PASSWORD, none(), locked), Err(AuthError::Account(locked)));
    assert_eq!(plain(USER, "password", none(), locked), Err(AuthError::Account(locked)));
}

#[test]
fn anonymous_where_it_is_allowed() {
    let policy = Policy { anonymous: true, ..Policy::default() };
    let who = plain("", "", policy, AccountState::Active).unwrap();
    assert_eq!(who.identity, Identity::Anonymous);
}

#[test]
fn another_mechanism_first() {
    for decoy in [oid::KERBEROS, oid::NEGOEX] {
        let mut seen = Vec::new();
        let mut client = client(USER, PASSWORD, Some(decoy));
        let mut acceptor = acceptor_of_samples(Policy::default());
        let who = converse(&mut client, &mut acceptor, AccountState::Active, &mut |at, token| {
            seen.push((at, token.clone()));
            token
        });
        assert!(who.is_ok());
        let asked = NegTokenResp::decode(&seen[1].1).unwrap();
        assert_eq!((asked.state, asked.mechanism), (Some(NegState::RequestMic), Some(oid::NTLMSSP)));
        assert_eq!(seen.len(), 6);
    }
}

#[test]
fn a_better_mechanism_taken_off_the_list() {
    let mut client = client(USER, PASSWORD, Some(oid::KERBEROS));
    let mut acceptor = acceptor_of_samples(Policy::default());
    let result = converse(&mut client, &mut acceptor, AccountState::Active, &mut |at, token| {
        if at == 0 { init(&[oid::NTLMSSP], None) } else { token }
    });
    assert_eq!(result, Err(AuthError::MechListMic));
}

#[test]
fn a_code_taken_away() {
    // Where the first choice was not taken the code must be there; elsewhere there was nothing to take off the list.
    for decoy in [Some(oid::KERBEROS), None] {
        let mut client = client(USER, PASSWORD, decoy);
        let mut acceptor = acceptor_of_samples(Policy::default());
        let result = converse(&mut client, &mut acceptor, AccountState::Active, &mut |at, token| {
            match NegTokenResp::decode(&token) {
                Ok(inner) if at % 2 == 0 => NegTokenResp { mic: None, ..inner }.encode(),
                _ => token,
            }
        });
        match decoy {
            Some(_) => assert_eq!(result, Err(AuthError::MechListMic)),
            None => assert!(result.is_ok()),
        }
    }
}

#[test]
fn ntlm_without_a_frame() {
    let messages = samples::ntlm();
    let mut acceptor = acceptor_of_samples(Policy::default());
    assert!(matches!(acceptor.step(&messages[0], &Users(AccountState::Active)), Step::Continue(_)));
    let Step::Done(answer, who) = acceptor.step(&messages[2], &Users(AccountState::Active)) else {
        panic!("not accepted")
    };
    assert!(answer.is_empty());
    assert_eq!(who.session_key.expose(), [0x55; 16]);
    let again = acceptor.step(&messages[2], &Users(AccountState::Active));
    assert!(matches!(again, Step::Failed(Failure { error: AuthError::OutOfTurn, .. })));
}

#[test]
fn nothing_in_common() {
    let mut acceptor = acceptor_of_samples(Policy::default());
    let only_kerberos = init(&[oid::KERBEROS, oid::MS_KERBEROS], Some(b"ticket"));
    let step = acceptor.step(&only_kerberos, &Users(AccountState::Active));
    assert!(matches!(step, Step::Failed(Failure { error: AuthError::NoMechanism, .. })));
    let mut none = Acceptor::new(Vec::new());
    let step = none.step(&samples::ntlm()[0], &Users(AccountState::Active));
    assert!(matches!(step, Step::Failed(Failure { error: AuthError::NoMechanism, .. })));
}

#[test]
fn a_failure_says_who_it_was() {
    let mut client = client("Other", PASSWORD, None);
    let mut acceptor = acceptor_of_samples(Policy::default());
    let Step::Continue(challenge) = acceptor.step(&client.first(), &Users(AccountState::Active)) else {
        panic!("no challenge")
    };
    let Ok(Answer::Continue(token)) = client.step(&challenge) else { panic!("no answer") };
    let Step::Failed(failure) = acceptor.step(&token, &Users(AccountState::Active)) else { panic!("let in") };
    assert_eq!((failure.user.as_str(), failure.domain.as_str()), ("Other", "Domain"));
    assert_eq!(failure.workstation, "COMPUTER");
    assert!(failure.error.is_guess());
}

proptest! {
    /// Whatever one bit somebody between changes: the server lets nobody in with it, or it was a bit that neither side
    /// reads, and both have the same key.
    #[test]
    fn somebody_between(round in 0..4_usize, at in any::<prop::sample::Index>(), bit in 0..8_u32, decoy: bool) {
        let mut client = client(USER, PASSWORD, decoy.then_some(oid::KERBEROS));
        let policy = Policy { require_mic: true, ..Policy::default() };
        let mut acceptor = acceptor_of_samples(policy);
        let result = converse(&mut client, &mut acceptor, AccountState::Active, &mut |number, mut token| {
            if number == round {
                let at = at.index(token.len());
                token[at] ^= 1_u8 << bit;
            }
            token
        });
        if let Ok(who) = result {
            prop_assert_eq!(client.session_key().unwrap(), who.session_key);
        }
    }

    #[test]
    fn damaged_tokens_do_no_harm(
        which in any::<prop::sample::Index>(),
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        cut in any::<prop::sample::Index>(),
    ) {
        for (seeds, target) in [
            (samples::spnego(), fuzz::spnego as fn(&[u8])),
            (samples::ntlm(), fuzz::ntlm),
            (samples::conversations(), fuzz::conversation),
        ] {
            let mut bytes = which.get(&seeds).clone();
            for (at, value) in &hits {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            target(&bytes);
            target(&bytes[..cut.index(bytes.len())]);
        }
    }

    #[test]
    fn rubbish_does_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        fuzz::spnego(&bytes);
        fuzz::ntlm(&bytes);
        fuzz::ntlm(&[b"NTLMSSP\0\x03\0\0\0", bytes.as_slice()].concat());
        fuzz::conversation(&bytes);
    }
}

#[test]
fn every_bit_of_the_answer_counts() {
    let messages = samples::ntlm();
    let policy = Policy { require_mic: true, ..Policy::default() };
    for at in 0..messages[2].len() {
        for bit in 0..8 {
            let mut acceptor = acceptor_of_samples(policy.clone());
            acceptor.step(&messages[0], &Users(AccountState::Active));
            let mut answer = messages[2].clone();
            answer[at] ^= 1 << bit;
            let step = acceptor.step(&answer, &Users(AccountState::Active));
            assert!(matches!(step, Step::Failed(_)), "byte {at} bit {bit}");
        }
    }
}

#[test]
fn lists_are_covered_as_they_were_sent() {
    let list = mech_list(&[oid::KERBEROS, oid::NTLMSSP]);
    let token = init(&[oid::KERBEROS, oid::NTLMSSP], None);
    assert_eq!(NegTokenInit::decode(&token).unwrap().mechanisms.bytes(), list);
}

#[test]
fn each_answer_is_judged_once() {
    use std::cell::RefCell;
    struct Counting(AccountState, RefCell<Vec<bool>>);
    impl Accounts for Counting {
        fn account(&self, domain: &str, user: &str) -> Option<Account> {
            Users(self.0).account(domain, user)
        }
        fn judged(&self, account: &Account, right: bool) {
            assert_eq!(account.name, USER);
            self.1.borrow_mut().push(right);
        }
    }
    for (user, password, state, expected) in [
        (USER, PASSWORD, AccountState::Active, &[true][..]),
        (USER, "wrong", AccountState::Active, &[false]),
        (USER, "wrong", AccountState::Disabled, &[false]),
        // Who is locked out is not looked at, and nobody is not counted.
        (USER, PASSWORD, AccountState::LockedOut, &[]),
        ("Other", PASSWORD, AccountState::Active, &[]),
    ] {
        let accounts = Counting(state, RefCell::default());
        let (mut client, mut acceptor) =
            (client(user, password, None), acceptor_of_samples(Policy::default()));
        let Step::Continue(challenge) = acceptor.step(&client.first(), &accounts) else {
            panic!("no challenge")
        };
        let Ok(Answer::Continue(token)) = client.step(&challenge) else { panic!("no answer") };
        acceptor.step(&token, &accounts);
        acceptor.step(&token, &accounts);
        assert_eq!(*accounts.1.borrow(), expected, "{user} {password} {state}");
    }
}

/// The client would notice too; here it is the server that must.
#[test]
fn the_server_insists_on_the_code_over_a_list_it_did_not_take_the_first_of() {
    let accounts = Users(AccountState::Active);
    let mut client = client(USER, PASSWORD, Some(oid::KERBEROS));
    let mut acceptor = acceptor_of_samples(Policy::default());
    let mut token = client.first();
    let failure = loop {
        match acceptor.step(&token, &accounts) {
            Step::Continue(answer) => {
                let Ok(Answer::Continue(next)) = client.step(&answer) else { panic!("no answer") };
                let inner = NegTokenResp::decode(&next).unwrap();
                token = NegTokenResp { mic: None, ..inner }.encode();
            }
            Step::Done(..) => panic!("let in"),
            Step::Failed(failure) => break failure,
        }
    };
    assert_eq!((failure.error, failure.user.as_str()), (AuthError::MechListMic, USER));
}
