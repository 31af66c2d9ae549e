//! Entries for fuzzing, and a stream to begin with.

use crate::{Meta, Parser, Record, Writer};

/// A stream as it comes; the first byte says in which pieces.
pub fn stream(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let mut parser = Parser::default();
    for piece in bytes.chunks(usize::from(*first) * 16 + 1) {
        parser.push(piece);
        while let Ok(Some(_)) = parser.next_record() {}
    }
    let _ = parser.finish();
}

/// What lies behind the checksums: the fuzzer would not get there by chance, whoever makes a stream would.
pub fn records(bytes: &[u8]) {
    let mut rest = bytes;
    let (mut writer, mut parser) = (Writer::default(), Parser::default());
    parser.push(&Writer::preamble());
    while let [kind, len, tail @ ..] = rest {
        let (payload, tail) = tail.split_at(tail.len().min(usize::from(*len)));
        rest = tail;
        if let Ok(record) = Record::decode(*kind, payload)
            && let Some(bytes) = writer.record(&record)
        {
            parser.push(&bytes);
            while let Ok(Some(_)) = parser.next_record() {}
        }
    }
    let _ = parser.finish();
}

/// A record of each kind, and the stream that they make.
#[must_use]
pub fn sample() -> (Vec<Record>, Vec<u8>) {
    let meta = Meta { attributes: 0x20, times: [1, 2, 3, 4], security: vec![7; 20] };
    let records = vec![
        Record::Begin {
            volume: [3; 16],
            base: "monday".into(),
            base_time: 5,
            target: "tuesday".into(),
            target_time: 6,
            directory: true,
        },
        Record::Remove { path: "old/name".into() },
        Record::Directory { path: "d".into(), meta: meta.clone() },
        Record::File { path: "d/file".into(), meta },
        Record::RemoveStream { name: "gone".into() },
        Record::Stream { name: String::new(), base_size: Some(10), size: 5000 },
        Record::Data { offset: 100, bytes: vec![9; 300] },
        Record::Hole { offset: 4096, len: 904 },
        Record::Stream { name: "more".into(), base_size: None, size: 0 },
        Record::Link { path: "d/other".into(), to: "d/file".into() },
    ];
    let (mut writer, mut bytes) = (Writer::default(), Writer::preamble());
    for record in &records {
        bytes.extend(writer.record(record).unwrap_or_default());
    }
    bytes.extend(writer.end());
    (records, bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hostile_bytes_are_refused_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            stream(&bytes);
            records(&bytes);
        }
    }
}
