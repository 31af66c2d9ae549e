//! Entries for fuzzing: any bytes, never a panic, never unbounded work.

use crate::chap::{ChapUser, Secret};
use crate::keys::{Negotiator, Offer, Phase};
use crate::login::{Access, Auth, LoginMachine, LoginPolicy, LoginSubject, Refusal};
use crate::login_client::{LoginClient, Next, Wish};
use crate::name::IscsiName;
use crate::pdu::{BHS_BYTES, Bhs, Frame, parse_ahs};
use crate::text;
use crate::url::{Url, without_secrets};

/// A header and its additional segments.
pub fn fuzz_pdu(bytes: &[u8]) {
    let Some(bhs) = Bhs::from_prefix(bytes) else { return };
    for (header, data) in [(false, false), (true, true)] {
        if let Ok(frame) = Frame::of(&bhs, header, data, 1 << 18) {
            assert!(frame.end >= frame.data_start + frame.data_len);
        }
    }
    for ahs in parse_ahs(&bytes[BHS_BYTES..]) {
        let _ = format!("{ahs:?}");
    }
}

/// Text and the negotiation of what it says.
pub fn fuzz_text(bytes: &[u8]) {
    let Ok(pairs) = text::parse(bytes) else { return };
    let mut negotiator = Negotiator::new(Offer::default());
    for (key, value) in &pairs {
        for phase in [Phase::Leading, Phase::Joining, Phase::Discovery, Phase::FullFeature] {
            let _ = negotiator.handle(key, value, phase);
        }
        let _ = text::binary(value, 1024);
    }
    negotiator.settle();
    assert!(negotiator.session.first_burst <= negotiator.session.max_burst);
}

struct Open;

impl LoginPolicy for Open {
    fn access(&self, subject: &LoginSubject) -> Result<Access, Refusal> {
        let user = ChapUser { name: "u".into(), secret: Secret::new("s") };
        let auth = if subject.initiator.as_str().contains("chap") {
            Auth::Chap { users: vec![user], mutual: None }
        } else {
            Auth::None
        };
        Ok(Access { portal_group: 1, alias: None, auth })
    }
}

/// A whole login: PDUs one after another, each a header with its data.
pub fn fuzz_login(mut bytes: &[u8]) {
    let mut machine = LoginMachine::new(Offer::default());
    while let Some(bhs) = Bhs::from_prefix(bytes) {
        let len = bhs.data_len().min(bytes.len() - BHS_BYTES);
        let data = &bytes[BHS_BYTES..BHS_BYTES + len];
        bytes = &bytes[BHS_BYTES + len..];
        let step = machine.request(&bhs, data, &Open, &mut |out| out.fill(7));
        if step.ended() {
            return;
        }
    }
}

/// A whole login from the initiator's side: the target's PDUs one after another, each a header with its data. The first
/// byte says what the initiator knows.
pub fn fuzz_login_client(bytes: &[u8]) {
    let Some((knows, mut bytes)) = bytes.split_first() else { return };
    let Ok(name) = IscsiName::parse("iqn.2000-01.test:x") else { return };
    let account = |bit: u8, secret: &str| {
        let user = ChapUser { name: "u".into(), secret: Secret::new(secret) };
        (knows & bit != 0).then_some(user)
    };
    let mut client = LoginClient::new(Wish {
        initiator: name.clone(),
        target: name,
        isid: [0x80, 0, 0, 0, 0, 1],
        offer: Offer::default(),
        header_digest: knows & 4 != 0,
        data_digest: knows & 8 != 0,
        user: account(1, "s"),
        target_user: account(2, "t"),
    });
    let _ = client.begin();
    while let Some(bhs) = Bhs::from_prefix(bytes) {
        let len = bhs.data_len().min(bytes.len() - BHS_BYTES);
        let data = &bytes[BHS_BYTES..BHS_BYTES + len];
        bytes = &bytes[BHS_BYTES + len..];
        match client.response(&bhs, data, &mut |out| out.fill(7)) {
            Ok(Next::Send(_)) => {}
            Ok(Next::Done(agreed)) => {
                assert!(agreed.session.first_burst <= agreed.session.max_burst);
                assert!((512..1 << 24).contains(&agreed.connection.peer_max_recv));
                return;
            }
            Err(_) => return,
        }
    }
}

/// An address of a LUN: what is taken is written without its login and read as the same place.
pub fn fuzz_url(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let shown = without_secrets(&text);
    if let Ok(url) = Url::parse(&text) {
        let again =
            Url::parse(&url.to_string()).map(|again| (again.host, again.port, again.target, again.lun));
        assert_eq!(again, Ok((url.host, url.port, url.target, url.lun)));
        assert!(
            Url::parse(&shown).is_ok_and(|shown| shown.password.is_none() && shown.target_password.is_none())
        );
    }
}
