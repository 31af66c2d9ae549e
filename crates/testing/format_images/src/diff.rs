//! A stream of differences with every kind of record.

use diff_format::{Meta, Parser, Record, Writer};

use crate::check::{content, same, same_bytes};
use crate::{Fallible, Image};

fn records() -> Vec<Record> {
    let meta = |security: &[u8]| Meta {
        attributes: 0x2021,
        times: [1_700_000_000_000_000_001, 2, 3, 1_800_000_000_000_000_004],
        security: security.to_vec(),
    };
    vec![
        Record::Begin {
            volume: *b"volume identity.",
            base: "monday".into(),
            base_time: 5,
            target: "tuesday".into(),
            target_time: 1_700_000_000_000_000_000,
            directory: true,
        },
        Record::Remove { path: "old/Straße".into() },
        Record::Directory { path: "d".into(), meta: meta(b"") },
        Record::File { path: "d/file".into(), meta: meta(b"a security descriptor") },
        Record::RemoveStream { name: "gone".into() },
        Record::Stream { name: String::new(), base_size: Some(10), size: 5000 },
        Record::Data { offset: 96, bytes: content("diff", 1, 0, 320) },
        Record::Hole { offset: 4096, len: 904 },
        Record::Stream { name: "more".into(), base_size: None, size: 0 },
    ]
}

fn written() -> Fallible<Vec<u8>> {
    let (mut writer, mut bytes) = (Writer::default(), Writer::preamble());
    for record in records() {
        bytes.extend(writer.record(&record).ok_or("a record is too long")?);
    }
    bytes.extend(writer.end());
    Ok(bytes)
}

/// The image.
///
/// # Errors
/// When a record cannot be written.
pub fn make() -> Fallible<Image> {
    Ok(Image { disks: vec![("stream".into(), written()?)] })
}

/// What a stream says.
///
/// # Errors
/// What is wrong with it.
pub fn read(bytes: &[u8]) -> Fallible<Vec<Record>> {
    let mut parser = Parser::default();
    parser.push(bytes);
    let mut found = Vec::new();
    while let Some(record) = parser.next_record()? {
        found.push(record);
    }
    parser.finish()?;
    Ok(found)
}

/// Reads the stream, compares its records, and writes them anew.
///
/// # Errors
/// What is not as it was.
pub fn check(image: &Image) -> Fallible {
    let (_, bytes) = image.disks.first().ok_or("no stream is in the image")?;
    let mut expected = records();
    expected.push(Record::End { records: expected.len() as u64, data: 320 });
    same("the records", &read(bytes)?, &expected)?;
    same_bytes("the stream that these records make", &written()?, bytes)
}
