//! Values there and back, in both orders, and what is refused.

use proptest::prelude::*;
use smb_protocol::security::sid::Sid;

use super::{BadStub, MAX_STRING_UNITS, NdrIn, NdrOut, Order};

#[test]
fn structures_with_deferred_parts_come_back() {
    let mut out = NdrOut::new();
    out.u16(7);
    out.pointer(true);
    let elements = [("bob", Some(Sid::USERS)), ("", None), ("Ä\u{1f980}", Some(Sid::EVERYONE))];
    out.array(&elements, |out, (name, sid)| {
        out.unicode(name);
        out.sid(*sid);
    });
    out.wide("after");
    out.u64(9);
    let bytes = out.finish();
    let mut r = NdrIn::new(&bytes, Order::Little);
    assert_eq!((r.u16(), r.pointer(), r.conformance(3, 12)), (Ok(7), Ok(true), Ok(())));
    let heads: Vec<_> = (0..3).map(|_| (r.unicode_head().unwrap(), r.pointer().unwrap())).collect();
    for ((head, present), (name, sid)) in heads.into_iter().zip(elements) {
        assert_eq!(r.unicode_body(head).unwrap(), name);
        assert_eq!(present.then(|| r.sid().unwrap()), sid);
    }
    assert_eq!((r.pointer(), r.u64()), (Ok(true), Ok(9)));
    assert_eq!(r.wide().as_deref(), Ok("after"));
    assert_eq!(r.left(), 0);
}

#[test]
fn counts_that_do_not_fit_are_refused_before_anything_is_made() {
    let huge = [0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f];
    let reader = || NdrIn::new(&huge, Order::Little);
    assert_eq!(reader().count(1), Err(BadStub));
    assert_eq!(reader().varying(1), Err(BadStub));
    assert_eq!(reader().wide(), Err(BadStub));
    assert_eq!(reader().unicodes(usize::MAX), Err(BadStub));
    assert_eq!(reader().bytes(0x7fff_ffff), Err(BadStub));
    let mut long = NdrOut::new();
    long.wide(&"x".repeat(MAX_STRING_UNITS));
    assert_eq!(
        NdrIn::new(&long.finish(), Order::Little).wide_pointer(),
        Err(BadStub),
        "too long with its zero"
    );
}

#[test]
fn strings_end_with_their_zero() {
    let text = |units: &[u16]| {
        let count = units.len() as u32;
        let head = [count, 0, count].into_iter().flat_map(u32::to_be_bytes);
        head.chain(units.iter().flat_map(|unit| unit.to_be_bytes())).collect::<Vec<u8>>()
    };
    let read = |units: &[u16]| NdrIn::new(&text(units), Order::Big).wide();
    assert_eq!(read(&[0x61, 0, 0x62, 0]).as_deref(), Ok("a"));
    assert_eq!(read(&[0x61]), Err(BadStub));
    assert_eq!(read(&[]), Err(BadStub));
    assert_eq!(read(&[0xd800, 0]), Err(BadStub));
}

#[test]
fn sids_that_lie_are_refused() {
    let mut out = NdrOut::new();
    out.sid_body(&Sid::ADMINISTRATORS);
    let good = out.finish();
    assert_eq!(NdrIn::new(&good, Order::Little).sid(), Ok(Sid::ADMINISTRATORS));
    for (at, value) in [(0, 3), (4, 2), (5, 3), (5, 1)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert_eq!(NdrIn::new(&bad, Order::Little).sid(), Err(BadStub), "{at}");
    }
    let mut many = vec![16, 0, 0, 0, 1, 16, 0, 0, 0, 0, 0, 5];
    many.resize(12 + 64, 1);
    assert_eq!(NdrIn::new(&many, Order::Little).sid(), Err(BadStub));
}

proptest! {
    #[test]
    fn strings_there_and_back(text in "[^\\u{0}]{0,40}") {
        let mut out = NdrOut::new();
        out.wide(&text);
        out.unicode(&text);
        let bytes = out.finish();
        let mut r = NdrIn::new(&bytes, Order::Little);
        prop_assert_eq!(r.pointer(), Ok(true));
        let head = r.unicode_head().unwrap();
        let first = r.wide();
        prop_assert_eq!(first.as_deref(), Ok(text.as_str()));
        let second = r.unicode_body(head);
        prop_assert_eq!(second.as_deref(), Ok(text.as_str()));
    }

    #[test]
    fn any_bytes_are_only_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        crate::fuzz::ndr(&bytes);
        crate::fuzz::pipe(&bytes);
    }
}
