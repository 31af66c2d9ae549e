//! Entries for fuzzing: any bytes, never a panic, never unbounded work.

use crate::chap::{ChapUser, Secret};
use crate::keys::{Negotiator, Offer, Phase};
use crate::login::{Access, Auth, LoginMachine, LoginPolicy, LoginStatus, LoginSubject};
use crate::pdu::{BHS_BYTES, Bhs, Frame, parse_ahs};
use crate::text;

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
    fn access(&self, subject: &LoginSubject) -> Result<Access, LoginStatus> {
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
