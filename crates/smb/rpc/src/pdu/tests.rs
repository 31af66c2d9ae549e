//! PDUs that we did not write: a bind of Windows, and what lies about its lengths.

use super::{Bind, Header, HeaderError, Pdu, Syntax, answer, flag, kind};
use crate::error::Fault;
use crate::ndr::Order;

/// A bind to srvsvc as Windows 10 sends it: NDR, NDR64, and the question for features.
pub(crate) const WINDOWS_BIND: &str = "05000b0310000000a0000000020000001810181000000000030000000000\
    0100c84f324b7016d30112785a47bf6ee18803000000045d888aeb1cc9119fe808002b10486002000000\
    01000100c84f324b7016d30112785a47bf6ee188030000003305 7171babe37498319b5dbef9ccc3601000000\
    02000100c84f324b7016d30112785a47bf6ee188030000002c1cb76c12984045030000000000000001000000";

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn a_bind_of_windows() {
    let bytes = hex(WINDOWS_BIND);
    let header = Header::decode(&bytes).unwrap().unwrap();
    assert_eq!((header.kind, header.fragment, header.auth, header.call), (kind::BIND, 160, 0, 2));
    assert_eq!(bytes.len(), 160);
    assert!(header.has(flag::FIRST_FRAG) && header.has(flag::LAST_FRAG) && header.order == Order::Little);
    let bind = Bind::decode(&Pdu::new(header, &bytes).unwrap()).unwrap();
    assert_eq!((bind.max_xmit, bind.max_recv, bind.group), (4120, 4120, 0));
    assert_eq!(bind.contexts.len(), 3);
    assert_eq!(bind.contexts[0].transfers, [Syntax::NDR]);
    assert_eq!(bind.contexts[2].transfers[0].features(), Some(3));
    assert_eq!(bind.contexts[0].transfers[0].features(), None);
}

#[test]
fn lengths_that_lie() {
    let good = hex(WINDOWS_BIND);
    assert_eq!(Header::decode(&good[..15]), Ok(None));
    let with = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        bad
    };
    assert_eq!(Header::decode(&with(0, &[4])), Err(HeaderError::Version));
    assert_eq!(Header::decode(&with(1, &[2])), Err(HeaderError::Version));
    assert_eq!(Header::decode(&with(8, &[15, 0])), Err(HeaderError::Length));
    assert_eq!(Header::decode(&with(8, &[0xd1, 0x16])), Err(HeaderError::Length));
    assert_eq!(Header::decode(&with(10, &[0xff, 0xff])), Err(HeaderError::Length));
    // Contexts that are not there.
    let bytes = with(24, &[200]);
    let header = Header::decode(&bytes).unwrap().unwrap();
    assert!(Bind::decode(&Pdu::new(header, &bytes).unwrap()).is_err());
    let bytes = with(24, &[0]);
    assert!(Bind::decode(&Pdu::new(header, &bytes).unwrap()).is_err(), "a bind to nothing");
}

#[test]
fn what_we_send_has_the_lengths_that_it_says() {
    for pdu in [
        answer::bind_nak(1, answer::Reject::ProtocolVersion),
        answer::fault(1, 0, Fault::ACCESS_DENIED, true),
        answer::response(1, 0, true, 3, b"abc"),
        answer::bind_ack(1, false, false, (4280, 4280), 7, "\\PIPE\\srvsvc", &[answer::Outcome::Accepted]),
        answer::with_token(answer::bind_nak(1, answer::Reject::LocalLimit), 10, 6, 0, b"token"),
    ] {
        let header = Header::decode(&pdu).unwrap().unwrap();
        assert_eq!(usize::from(header.fragment), pdu.len());
        assert!(Pdu::new(header, &pdu).is_ok());
    }
    assert_eq!(answer::fault(1, 0, Fault::ACCESS_DENIED, true).len(), 32);
}
