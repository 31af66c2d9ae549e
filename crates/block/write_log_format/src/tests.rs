//! What is written is read again; what is damaged is refused.

use byte_codec::{Checksum, DecodeError};
use proptest::prelude::*;

use crate::{
    BLOCK, Batch, Entry, EntryKind, LABELS_INSIDE, Label, MAX_DATA, MAX_ENTRIES, NO_LOG, Side, State, fuzz,
};

fn label() -> Label {
    Label {
        generation: 7,
        state: State::Attached,
        checksum: Checksum::Xxh3,
        log: [9; 16],
        shift: 1 << 20,
        ring: 64 << 20,
        tail: 3 * BLOCK,
        tail_batch: 5,
        reached: 9,
    }
}

#[test]
fn labels_come_back_and_the_newer_one_counts() {
    for (side, other) in [(Side::Front, Side::Back), (Side::Back, Side::Front)] {
        let bytes = label().encode(side);
        assert_eq!(Label::decode(side, &bytes), Ok(label()));
        assert_eq!(Label::decode(other, &bytes), Err(DecodeError::WrongMagic));
    }
    let void = Label { generation: 8, state: State::Void, ..label() };
    let older = Label { checksum: Checksum::Crc32c, ..label() };
    assert_eq!(Label::decode(Side::Front, &older.encode(Side::Front)), Ok(older));
    assert_eq!(Label::newer(Some(label()), Some(void)), Some(void));
    assert_eq!(Label::newer(Some(void), Some(label())), Some(void));
    assert_eq!(Label::newer(None, Some(label())), Some(label()));
    assert_eq!(Label::newer(None, None), None);
    for bad in [
        Label { ring: 0, ..label() },
        Label { ring: 5000, ..label() },
        Label { shift: BLOCK, ..label() },
        Label { log: NO_LOG, ..label() },
        Label { tail: 1, ..label() },
        Label { tail: u64::MAX - (BLOCK - 1), ..label() },
        Label { tail_batch: 10, ..label() },
    ] {
        assert!(matches!(Label::decode(Side::Front, &bad.encode(Side::Front)), Err(DecodeError::Invalid(_))));
    }
}

#[test]
fn labels_lie_before_the_content_or_inside_of_it() {
    let inside = Label { shift: 0, ..label() };
    assert_eq!(Label::decode(Side::Back, &inside.encode(Side::Back)), Ok(inside));
    assert_eq!((label().place(Side::Back), label().place(Side::Front)), (BLOCK, BLOCK));
    assert_eq!((inside.place(Side::Back), inside.place(Side::Front)), (LABELS_INSIDE + BLOCK, BLOCK));
    assert_eq!(Label { generation: 8, ..inside }.place(Side::Back), LABELS_INSIDE);
    let none = Label { state: State::Void, log: NO_LOG, ..inside };
    assert_eq!(Label::decode(Side::Back, &none.encode(Side::Back)), Ok(none));
    assert!(none.says_none() && !inside.says_none() && !Label { state: State::Void, ..inside }.says_none());
}

fn sealed(entries: &[Entry]) -> (Batch, Vec<u8>) {
    let mut batch = Batch::lay_out([3; 16], 42, entries).expect("fits");
    let mut bytes = vec![0; batch.head.batch_len() as usize];
    for (number, place) in batch.places.iter().enumerate() {
        bytes[place.clone()].fill(number as u8 + 1);
    }
    batch.seal(Checksum::Xxh3, &mut bytes);
    (batch, bytes)
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let kind = prop_oneof![Just(EntryKind::Data), Just(EntryKind::Zeroes), Just(EntryKind::Forget)];
    let entry = (kind, 0_u64..1 << 40, 1_u64..32).prop_map(|(kind, at, count)| Entry {
        kind,
        offset: at * 512,
        len: count * 512,
    });
    proptest::collection::vec(entry, 1..=MAX_ENTRIES)
}

proptest! {
    #[test]
    fn batches_come_back_whole_or_not_at_all(entries in entries(), at in 0.0_f64..1.0, bit in 0_u8..8) {
        let (batch, mut bytes) = sealed(&entries);
        prop_assert_eq!(&Batch::decode(Checksum::Xxh3, &bytes), &Ok(batch.clone()));
        prop_assert!(Batch::decode(Checksum::Xxh3, &bytes[..bytes.len() - bytes.len().min(512 + BLOCK as usize)]).is_err()
            || batch.places.iter().all(|place| place.is_empty()) );
        let used = batch.places.last().map_or(BLOCK as usize, |place| place.end);
        let at = (at * used as f64) as usize;
        bytes[at] ^= 1 << bit;
        prop_assert!(Batch::decode(Checksum::Xxh3, &bytes).is_err(), "byte {} of {}", at, used);
    }

    #[test]
    fn any_bytes_are_stood(bytes in proptest::collection::vec(any::<u8>(), 0..9000)) {
        fuzz::label(&bytes);
        fuzz::batch(&bytes);
    }
}

#[test]
fn too_much_is_refused() {
    let entry = Entry { kind: EntryKind::Data, offset: 0, len: MAX_DATA };
    assert!(Batch::lay_out([0; 16], 0, &[entry]).is_ok());
    assert!(Batch::lay_out([0; 16], 0, &[entry, entry]).is_err());
    assert!(Batch::lay_out([0; 16], 0, &[]).is_err());
    let small = Entry { len: 512, ..entry };
    assert!(Batch::lay_out([0; 16], 0, &[small; MAX_ENTRIES + 1]).is_err());
}
