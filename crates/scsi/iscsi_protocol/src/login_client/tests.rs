//! Logins against our own target's side, and against targets that break the rules.

use super::*;
use crate::chap::Secret;
use crate::login::{Access, Auth, LoginMachine, LoginPolicy, LoginSubject, Outcome, Refusal};

struct Policy(Auth);

impl LoginPolicy for Policy {
    fn access(&self, subject: &LoginSubject) -> Result<Access, Refusal> {
        match &subject.target {
            Some(target) if target.as_str().ends_with(":t") => {
                Ok(Access { portal_group: 1, alias: Some("disk".into()), auth: self.0.clone() })
            }
            _ => Err(LoginStatus::NOT_FOUND.because("no such target")),
        }
    }
}

fn account(name: &str, secret: &str) -> ChapUser {
    ChapUser { name: name.into(), secret: Secret::new(secret) }
}

fn wish() -> Wish {
    Wish {
        initiator: IscsiName::parse("iqn.2026-01.org.example:i").unwrap(),
        target: IscsiName::parse("iqn.2026-01.org.example:t").unwrap(),
        isid: [0x80, 1, 2, 3, 0, 1],
        offer: Offer::default(),
        header_digest: false,
        data_digest: false,
        user: None,
        target_user: None,
    }
}

fn chap() -> Policy {
    let (me, it) = (account("me", "a secret of mine"), account("it", "a secret of its"));
    Policy(Auth::Chap { users: vec![me], mutual: Some(it) })
}

fn meet(wish: Wish, offer: Offer, policy: &Policy) -> Result<Agreed, LoginError> {
    let (mut client, mut server) = (LoginClient::new(wish), LoginMachine::new(offer));
    let mut request = client.begin();
    loop {
        let answer = server.request(&request.bhs, &request.data, policy, &mut |out| out.fill(3));
        let mut bhs = answer.response.bhs;
        if answer.outcome == Outcome::Done {
            bhs.set_u16(14, 9);
        }
        match client.response(&bhs, &answer.response.data, &mut |out| out.fill(4))? {
            Next::Send(next) => request = next,
            Next::Done(agreed) => return Ok(agreed),
        }
    }
}

#[test]
fn without_authentication() {
    let ours = Wish { header_digest: true, data_digest: true, ..wish() };
    let theirs = Offer { max_burst: 131_072, first_burst: 4096, initial_r2t: true, ..Offer::default() };
    let agreed = meet(ours, theirs, &Policy(Auth::None)).unwrap();
    assert_eq!(agreed.tsih, 9);
    assert!(agreed.connection.header_digest && agreed.connection.data_digest);
    assert_eq!((agreed.session.max_burst, agreed.session.first_burst), (131_072, 4096));
    assert!(agreed.session.initial_r2t && agreed.session.immediate_data);
    assert_eq!(agreed.connection.peer_max_recv, Offer::default().max_recv);
}

#[test]
fn digests_that_are_wanted_are_had() {
    let ours = Wish { data_digest: true, ..wish() };
    let theirs = Offer { allow_digests: false, ..Offer::default() };
    let error = meet(ours, theirs, &Policy(Auth::None)).unwrap_err();
    assert_eq!(error, LoginError::Key("DataDigest", "None".into()));
}

#[test]
fn with_chap() {
    let me = Some(account("me", "a secret of mine"));
    let it = Some(account("it", "a secret of its"));
    let ours = |user: &Option<ChapUser>, target: &Option<ChapUser>| Wish {
        user: user.clone(),
        target_user: target.clone(),
        ..wish()
    };
    let refused = LoginError::Refused(LoginStatus::AUTHENTICATION_FAILURE);
    assert!(meet(ours(&me, &None), Offer::default(), &chap()).is_ok());
    assert!(meet(ours(&me, &it), Offer::default(), &chap()).is_ok());
    assert_eq!(meet(wish(), Offer::default(), &chap()).unwrap_err(), refused);
    let guess = Some(account("me", "guessed"));
    assert_eq!(meet(ours(&guess, &None), Offer::default(), &chap()).unwrap_err(), refused);
    // Who is ready to prove itself may be let in without; but not when the target should prove itself.
    let open = Policy(Auth::None);
    assert!(meet(ours(&me, &None), Offer::default(), &open).is_ok());
    assert!(meet(ours(&me, &it), Offer::default(), &open).is_err());
    let other = Some(account("it", "a secret of others"));
    let error = meet(ours(&me, &other), Offer::default(), &chap()).unwrap_err();
    assert_eq!(error, LoginError::Chap(ChapError::Credentials));
}

#[test]
fn refusals_have_words() {
    let ours = Wish { target: IscsiName::parse("iqn.2026-01.org.example:none").unwrap(), ..wish() };
    let error = meet(ours, Offer::default(), &Policy(Auth::None)).unwrap_err();
    assert_eq!(error, LoginError::Refused(LoginStatus::NOT_FOUND));
    assert!(error.to_string().contains("0203h"), "{error}");
}

/// A response with these flags and keys.
fn response(flags: u8, status: u16, keys: &[(&str, &str)]) -> (Bhs, Vec<u8>) {
    let mut bhs = Bhs::new(opcode::LOGIN_RESPONSE, flags);
    bhs.set_u32(16, TAG);
    bhs.set_u16(36, status);
    let mut data = Vec::new();
    keys.iter().for_each(|(key, value)| put(&mut data, key, value));
    (bhs, data)
}

fn told(wish: &Wish, responses: &[(Bhs, Vec<u8>)]) -> Result<Next, LoginError> {
    let mut client = LoginClient::new(wish.clone());
    let mut next = Next::Send(client.begin());
    for (bhs, data) in responses {
        next = client.response(bhs, data, &mut |out| out.fill(1))?;
    }
    Ok(next)
}

#[test]
fn targets_that_break_the_rules() {
    let security = response(0x81, 0, &[("AuthMethod", "None")]);
    let after = |keys: &[(&str, &str)]| told(&wish(), &[security.clone(), response(0x87, 0, keys)]);
    assert!(matches!(after(&[]), Ok(Next::Done(_))));
    for keys in [
        [("HeaderDigest", "CRC32C")],
        [("MaxRecvDataSegmentLength", "0")],
        [("MaxRecvDataSegmentLength", "16777216")],
        [("MaxBurstLength", "16777215")],
        [("FirstBurstLength", "x")],
        [("MaxOutstandingR2T", "0")],
        [("DataPDUInOrder", "No")],
        [("ErrorRecoveryLevel", "2")],
        [("MaxConnections", "2")],
        [("InitialR2T", "Maybe")],
    ] {
        assert!(matches!(after(&keys), Err(LoginError::Key(..))), "{keys:?}");
    }
    let skips = told(&wish(), &[response(0x83, 0, &[("AuthMethod", "None")])]);
    assert!(matches!(skips, Err(LoginError::Protocol(_))));
    let me = Wish { user: Some(account("me", "a secret of mine")), ..wish() };
    let early = told(&me, &[response(0x81, 0, &[("AuthMethod", "CHAP")])]);
    assert!(matches!(early, Err(LoginError::Protocol(_))));
    let endless = vec![response(0x00, 0, &[]); 64];
    assert!(matches!(told(&wish(), &endless), Err(LoginError::Protocol(_))));
}

#[test]
fn moved_and_continued() {
    let moved = told(&wish(), &[response(0, 0x0101, &[("TargetAddress", "10.0.0.1:3261,1")])]);
    assert_eq!(moved.unwrap_err(), LoginError::Moved("10.0.0.1:3261".into()));
    let parts = [response(0x40, 0, &[("TargetAlias", "a")]), response(0x81, 0, &[("AuthMethod", "None")])];
    let Next::Send(offer) = told(&wish(), &parts).unwrap() else { panic!("not in yet") };
    assert!(offer.data.starts_with(b"HeaderDigest="));
    let asked = [response(0x81, 0, &[("AuthMethod", "None")]), response(0x04, 0, &[("X-new", "1")])];
    let Next::Send(answer) = told(&wish(), &asked).unwrap() else { panic!("not in yet") };
    assert_eq!(answer.data, b"X-new=NotUnderstood\0");
}
