//! Entries for fuzzing, and a segment to begin with.

use control_api::CounterKind;

use crate::segment::{Frames, HEADER, Names, frame, header, read_header};
use crate::step::{Step, Thing};
use crate::values::{FIELDS, Values};

/// A segment as it lies on a file.
pub fn segment(bytes: &[u8]) {
    if read_header(bytes).is_err() {
        return;
    }
    let mut frames = Frames::new(bytes.get(HEADER..).unwrap_or_default());
    while let Ok(Some(_)) = frames.next() {}
}

/// What lies behind the checksums: the fuzzer would not get there by chance, whoever makes a file would. Pieces of the bytes, each after its
/// length, are payloads.
pub fn payloads(bytes: &[u8]) {
    let mut frames = Frames::new(&[]);
    let mut rest = bytes;
    while let [low, high, tail @ ..] = rest {
        let (payload, tail) = tail.split_at(tail.len().min(usize::from(u16::from_le_bytes([*low, *high]))));
        rest = tail;
        if let Ok(frame) = frames.payload(payload) {
            assert!(frame.things.iter().all(|(number, _)| *number < frames.names().len()), "a name is known");
        }
    }
}

/// A segment of two steps, and their payloads as [`payloads`] takes them.
#[must_use]
pub fn sample() -> (Vec<u8>, Vec<u8>) {
    let mut values = [0; FIELDS];
    values.iter_mut().enumerate().for_each(|(place, value)| *value = (place as u64) << (2 * place));
    let thing = |kind, name: &str| Thing { kind, name: name.into(), values: Values(values) };
    let step = |wall_ms, things| Step { wall_ms, nanos: 1_000_000_000, things };
    let first =
        step(1_700_000_001_000, vec![thing(CounterKind::Lun, "disk1"), thing(CounterKind::Processor, "0")]);
    let second =
        step(1_700_000_002_000, vec![thing(CounterKind::Lun, "disk1"), thing(CounterKind::Pool, "p")]);
    let mut names = Names::default();
    let frames = [frame(&first, &mut names), frame(&second, &mut names)].map(Option::unwrap_or_default);
    let mut payloads = Vec::new();
    for frame in &frames {
        let payload = frame.get(8..).unwrap_or_default();
        payloads.extend((payload.len() as u16).to_le_bytes());
        payloads.extend(payload);
    }
    ([header(1, first.wall_ms), frames.concat()].concat(), payloads)
}
