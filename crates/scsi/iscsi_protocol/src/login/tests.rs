//! Logins as initiators do them, and as they should not.

use super::*;
use crate::chap::{Algorithm, Secret};
use crate::text::{binary, hex, parse};

struct Policy(Auth);

impl LoginPolicy for Policy {
    fn access(&self, subject: &LoginSubject) -> Result<Access, Refusal> {
        if subject.target.as_ref().is_some_and(|t| t.as_str() != "iqn.2026-01.org.example:t") {
            return Err(LoginStatus::NOT_FOUND.because("no such target"));
        }
        Ok(Access { portal_group: 7, alias: Some("disk".into()), auth: self.0.clone() })
    }
}

fn chap_policy() -> Policy {
    let users = vec![ChapUser { name: "me".into(), secret: Secret::new("secret secret") }];
    Policy(Auth::Chap { users, mutual: None })
}

fn send(
    m: &mut LoginMachine,
    policy: &Policy,
    flags: u8,
    keys: &[(&str, &str)],
) -> (LoginStep, Vec<(String, String)>) {
    let mut data = Vec::new();
    for (k, v) in keys {
        put(&mut data, k, v);
    }
    let mut bhs = Bhs::new(opcode::LOGIN | 0x40, flags);
    bhs.set_data_len(data.len());
    let step = m.request(&bhs, &data, policy, &mut |out| out.fill(3));
    let pairs = parse(&step.response.data).unwrap();
    (step, pairs)
}

const NAMES: [(&str, &str); 2] =
    [("InitiatorName", "iqn.2026-01.org.example:i"), ("TargetName", "iqn.2026-01.org.example:t")];

#[test]
fn straight_to_full_feature() {
    let mut m = LoginMachine::new(Offer::default());
    let mut keys = NAMES.to_vec();
    keys.extend([("InitialR2T", "No"), ("X-a", "b"), ("MaxRecvDataSegmentLength", "1048576")]);
    let (step, pairs) = send(&mut m, &Policy(Auth::None), 0x87, &keys);
    assert_eq!(step.outcome, Outcome::Done);
    assert_eq!(step.response.bhs.flags(), 0x87);
    assert!(pairs.contains(&("TargetPortalGroupTag".into(), "7".into())));
    assert!(pairs.contains(&("X-a".into(), "NotUnderstood".into())));
    let result = m.result().unwrap();
    assert!(!result.session.initial_r2t);
    assert_eq!(result.connection.peer_max_recv, 1_048_576);
    assert_eq!(result.connection.max_recv, Offer::default().max_recv);
}

#[test]
fn chap_then_operational() {
    let (mut m, policy) = (LoginMachine::new(Offer::default()), chap_policy());
    let mut keys = NAMES.to_vec();
    keys.push(("AuthMethod", "CHAP,None"));
    let (step, pairs) = send(&mut m, &policy, 0x81, &keys);
    assert_eq!(step.response.bhs.flags(), 0, "no transit before the proof");
    assert!(pairs.contains(&("AuthMethod".into(), "CHAP".into())));
    let (_, pairs) = send(&mut m, &policy, 0x00, &[("CHAP_A", "5")]);
    let get = |k: &str| pairs.iter().find(|(key, _)| key == k).unwrap().1.clone();
    let proof = Algorithm::Md5.response(
        get("CHAP_I").parse().unwrap(),
        &Secret::new("secret secret"),
        &binary(&get("CHAP_C"), 1024).unwrap(),
    );
    let (step, _) = send(&mut m, &policy, 0x81, &[("CHAP_N", "me"), ("CHAP_R", &hex(&proof))]);
    assert_eq!(step.response.bhs.flags(), 0x81);
    let (step, _) = send(&mut m, &policy, 0x87, &[("HeaderDigest", "CRC32C")]);
    assert_eq!(step.outcome, Outcome::Done);
    assert_eq!(m.result().unwrap().user.map(|user| user.name).as_deref(), Some("me"));
}

#[test]
fn no_way_around_chap() {
    let refused = Outcome::Refused(LoginStatus::AUTHENTICATION_FAILURE);
    for flags in [0x87, 0x83, 0x81, 0x04] {
        let mut m = LoginMachine::new(Offer::default());
        let (step, _) = send(&mut m, &chap_policy(), flags, &NAMES);
        assert_eq!(step.outcome, refused, "{flags:#x}");
    }
    let mut m = LoginMachine::new(Offer::default());
    let mut keys = NAMES.to_vec();
    keys.push(("AuthMethod", "None"));
    assert_eq!(send(&mut m, &chap_policy(), 0x83, &keys).0.outcome, refused);
    let mut m = LoginMachine::new(Offer::default());
    let mut keys = NAMES.to_vec();
    keys.push(("AuthMethod", "CHAP"));
    send(&mut m, &chap_policy(), 0x00, &keys);
    let (step, _) = send(&mut m, &chap_policy(), 0x83, &[]);
    assert_eq!(step.outcome, Outcome::Continue);
    assert_eq!(step.response.bhs.flags() & 0x80, 0, "still not in");
}

#[test]
fn refusals() {
    let status = |flags, keys: &[(&str, &str)]| {
        let mut m = LoginMachine::new(Offer::default());
        send(&mut m, &Policy(Auth::None), flags, keys).0.outcome
    };
    assert_eq!(status(0x87, &[]), Outcome::Refused(LoginStatus::MISSING_PARAMETER));
    assert_eq!(status(0x87, &NAMES[..1]), Outcome::Refused(LoginStatus::MISSING_PARAMETER));
    assert_eq!(
        status(0x87, &[NAMES[0], ("TargetName", "iqn.2026-01.x:y")]),
        Outcome::Refused(LoginStatus::NOT_FOUND)
    );
    assert_eq!(
        status(0x87, &[NAMES[0], ("SessionType", "Other")]),
        Outcome::Refused(LoginStatus::SESSION_TYPE)
    );
    assert_eq!(status(0x84, &NAMES), Outcome::Refused(LoginStatus::INITIATOR_ERROR));
    assert_eq!(status(0xc7, &NAMES), Outcome::Refused(LoginStatus::INITIATOR_ERROR));
    assert_eq!(status(0x87, &[NAMES[0], ("SessionType", "Discovery")]), Outcome::Done);
}

#[test]
fn text_over_several_requests() {
    let mut m = LoginMachine::new(Offer::default());
    let policy = Policy(Auth::None);
    let (step, pairs) = send(&mut m, &policy, 0x44, &NAMES[..1]);
    assert_eq!((step.outcome, pairs.len()), (Outcome::Continue, 0));
    assert_eq!(send(&mut m, &policy, 0x87, &NAMES[1..]).0.outcome, Outcome::Done);
}

#[test]
fn endless_logins_end() {
    let mut m = LoginMachine::new(Offer::default());
    let policy = Policy(Auth::None);
    let mut outcome = send(&mut m, &policy, 0x04, &NAMES).0.outcome;
    for _ in 0..MAX_LOGIN_REQUESTS {
        outcome = send(&mut m, &policy, 0x04, &[]).0.outcome;
    }
    assert_eq!(outcome, Outcome::Refused(LoginStatus::INITIATOR_ERROR));
}

proptest::proptest! {
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..600), stage in 0u8..=255) {
        let mut framed = vec![0u8; 48];
        framed[0] = 0x43;
        framed[1] = stage;
        framed[6..8].copy_from_slice(&(bytes.len() as u16).to_be_bytes());
        framed.extend_from_slice(&bytes);
        crate::fuzz::fuzz_login(&framed);
        crate::fuzz::fuzz_pdu(&framed);
        crate::fuzz::fuzz_text(&bytes);
    }
}
