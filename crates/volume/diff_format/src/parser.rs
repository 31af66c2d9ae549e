//! Records to bytes, and bytes as they come to records.

use byte_codec::{Reader, Writer as Bytes, crc32c};

use crate::error::DiffError;
use crate::record::{PAYLOAD_MAX, Record};

const MAGIC: [u8; 16] = *b"\x89HFDIFF\r\n\x1a\n\0\0\0\0\0";
const VERSION: u32 = 1;
/// Features a reader must know (bits); none yet.
const KNOWN_FEATURES: u32 = 0;
/// Magic, version, features, checksum.
const PREAMBLE: usize = 28;
/// Type, three zeros, length of the payload, number.
const HEADER: usize = 16;
const CRC: usize = 4;

/// Makes a stream of records.
#[derive(Debug, Default)]
pub struct Writer {
    records: u64,
    data: u64,
}

impl Writer {
    /// What every stream begins with.
    #[must_use]
    pub fn preamble() -> Vec<u8> {
        let mut w = Bytes::default();
        w.raw(&MAGIC);
        w.u32(VERSION);
        w.u32(KNOWN_FEATURES);
        with_crc(w.finish())
    }

    /// The bytes of the next record; `None` when a path or data is too long for one.
    #[must_use]
    pub fn record(&mut self, record: &Record) -> Option<Vec<u8>> {
        let payload = record.payload()?;
        let mut w = Bytes::default();
        w.u8(record.kind());
        w.raw(&[0; 3]);
        w.u32(payload.len() as u32);
        w.u64(self.records);
        w.raw(&payload);
        self.records += 1;
        if let Record::Data { bytes, .. } = record {
            self.data += bytes.len() as u64;
        }
        Some(with_crc(w.finish()))
    }

    /// The bytes of the last record.
    #[must_use]
    pub fn end(mut self) -> Vec<u8> {
        let end = Record::End { records: self.records, data: self.data };
        self.record(&end).unwrap_or_default()
    }
}

fn with_crc(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// Where a stream is, for what may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Preamble,
    Begin,
    /// Between files, or in one that has no stream yet.
    Tree,
    /// In a file or directory.
    File,
    /// In a stream: its size, and where the last range ended.
    Stream {
        size: u64,
        end: u64,
    },
    End,
}

/// Takes bytes as they come and gives records. Holds one record at most.
#[derive(Debug)]
pub struct Parser {
    held: Vec<u8>,
    /// What of `held` has been given out: taken away with the next bytes, once, not record by record.
    used: usize,
    at: At,
    records: u64,
    data: u64,
    failed: Option<DiffError>,
}

impl Default for Parser {
    fn default() -> Self {
        Self { held: Vec::new(), used: 0, at: At::Preamble, records: 0, data: 0, failed: None }
    }
}

impl Parser {
    /// Most bytes that it makes sense to [`push`](Self::push) before asking for records again.
    pub const PIECE: usize = 1 << 20;

    /// More bytes of the stream. Ask for records until there is none before the next ones, so that little is held.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.drain(..self.used);
        self.used = 0;
        self.held.extend_from_slice(bytes);
    }

    /// The next record; `None` when more bytes are needed, or the stream has ended.
    ///
    /// # Errors
    /// What is wrong with the stream; the same again, whatever is pushed.
    pub fn next_record(&mut self) -> Result<Option<Record>, DiffError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let next = self.parse();
        if let Err(error) = &next {
            self.failed = Some(error.clone());
            self.held = Vec::new();
            self.used = 0;
        }
        next
    }

    /// Nothing more comes: whether that was all.
    ///
    /// # Errors
    /// [`DiffError::Truncated`] before the end; what was wrong before.
    pub fn finish(&self) -> Result<(), DiffError> {
        match (&self.failed, self.at) {
            (Some(error), _) => Err(error.clone()),
            (None, At::End) if self.left().is_empty() => Ok(()),
            (None, At::End) => Err(DiffError::Damaged(self.records)),
            (None, _) => Err(DiffError::Truncated),
        }
    }

    fn left(&self) -> &[u8] {
        &self.held[self.used..]
    }

    fn parse(&mut self) -> Result<Option<Record>, DiffError> {
        if self.at == At::Preamble {
            if self.left().len() < PREAMBLE {
                return if MAGIC.starts_with(&self.left()[..self.left().len().min(MAGIC.len())]) {
                    Ok(None)
                } else {
                    Err(DiffError::NotADiff)
                };
            }
            preamble(&self.left()[..PREAMBLE])?;
            self.used += PREAMBLE;
            self.at = At::Begin;
        }
        let number = self.records;
        if self.at == At::End {
            return if self.left().is_empty() { Ok(None) } else { Err(DiffError::Damaged(number)) };
        }
        if self.left().len() < HEADER {
            return Ok(None);
        }
        let mut r = Reader::new(self.left());
        let of = |error| DiffError::of(number, error);
        let kind = r.u8().map_err(of)?;
        let zeros = r.raw(3).map_err(of)?;
        let (zero, len, counted) = (zeros == [0; 3], r.u32().map_err(of)? as usize, r.u64().map_err(of)?);
        // Before anything is waited for: a damaged length must not make this hold the rest of the stream.
        if !zero || len > PAYLOAD_MAX || counted != number {
            return Err(DiffError::Damaged(number));
        }
        let whole = HEADER + len + CRC;
        if self.left().len() < whole {
            return Ok(None);
        }
        let crc = crc32c(&self.left()[..HEADER + len]).to_le_bytes();
        if crc != self.left()[HEADER + len..whole] {
            return Err(DiffError::Damaged(number));
        }
        let record = Record::decode(kind, &self.left()[HEADER..HEADER + len]).map_err(of)?;
        self.used += whole;
        self.place(&record).map_err(|what| DiffError::Invalid(number, what))?;
        self.records += 1;
        Ok(Some(record))
    }

    /// Whether the record may be where it is.
    fn place(&mut self, record: &Record) -> Result<(), &'static str> {
        let before = self.at;
        self.at = match (before, record) {
            (At::Begin, Record::Begin { .. }) => At::Tree,
            (At::Begin, _) => return Err("it does not say what the stream is about"),
            (_, Record::Begin { .. }) => return Err("it begins again"),
            (_, Record::Remove { .. } | Record::Link { .. }) => At::Tree,
            (_, Record::Directory { .. } | Record::File { .. }) => At::File,
            (At::Tree, _) if !matches!(record, Record::End { .. }) => return Err("it belongs to no file"),
            (_, Record::Stream { size, .. }) => At::Stream { size: *size, end: 0 },
            (_, Record::RemoveStream { name }) if name.is_empty() => return Err("a file without data"),
            (_, Record::RemoveStream { .. }) => At::File,
            (At::Stream { size, end }, Record::Data { offset, bytes }) => {
                self.data += bytes.len() as u64;
                range(size, end, *offset, bytes.len() as u64)?
            }
            (At::Stream { size, end }, Record::Hole { offset, len }) => range(size, end, *offset, *len)?,
            (_, Record::Data { .. } | Record::Hole { .. }) => return Err("it belongs to no stream"),
            (_, Record::End { records, data }) => {
                if (*records, *data) != (self.records, self.data) {
                    return Err("it counts other records than there were");
                }
                At::End
            }
        };
        Ok(())
    }
}

/// A range behind the one before, within the size.
fn range(size: u64, end: u64, offset: u64, len: u64) -> Result<At, &'static str> {
    let to = offset.checked_add(len).ok_or("a range beyond all files")?;
    if offset < end || to > size || len == 0 {
        return Err("a range that overlaps, is empty or lies beyond the end");
    }
    Ok(At::Stream { size, end: to })
}

fn preamble(bytes: &[u8]) -> Result<(), DiffError> {
    let mut r = Reader::new(bytes);
    if r.raw(MAGIC.len()) != Ok(&MAGIC) {
        return Err(DiffError::NotADiff);
    }
    let damaged = |_| DiffError::Damaged(0);
    let (version, features, crc) =
        (r.u32().map_err(damaged)?, r.u32().map_err(damaged)?, r.u32().map_err(damaged)?);
    if crc != crc32c(&bytes[..PREAMBLE - CRC]) {
        return Err(DiffError::Damaged(0));
    }
    if version != VERSION {
        return Err(DiffError::Unsupported(version));
    }
    if features & !KNOWN_FEATURES != 0 {
        return Err(DiffError::Unsupported(features));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::sample;

    fn parse(bytes: &[u8], piece: usize) -> Result<Vec<Record>, DiffError> {
        let (mut parser, mut records) = (Parser::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            parser.push(piece);
            while let Some(record) = parser.next_record()? {
                records.push(record);
            }
        }
        parser.finish().map(|()| records)
    }

    #[test]
    fn records_survive_in_any_pieces() {
        let (records, bytes) = sample();
        for piece in [1, 7, 16, 100, 1 << 20] {
            let mut found = parse(&bytes, piece).expect("sound");
            assert!(matches!(found.pop(), Some(Record::End { .. })));
            assert_eq!(found, records);
        }
    }

    #[test]
    fn every_damage_is_noticed() {
        let (_, bytes) = sample();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x11;
            assert!(parse(&damaged, 4096).is_err(), "byte {at}");
            assert!(parse(&bytes[..at], 4096).is_err(), "cut at {at}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(parse(&longer, 4096).is_err());
    }

    #[test]
    fn records_out_of_place_are_refused() {
        let begin = Record::Begin {
            volume: [1; 16],
            base: String::new(),
            base_time: 0,
            target: String::new(),
            target_time: 0,
            directory: false,
        };
        let file = Record::File { path: String::new(), meta: crate::Meta::default() };
        let stream = Record::Stream { name: String::new(), base_size: None, size: 100 };
        let data = |offset: u64, len: usize| Record::Data { offset, bytes: vec![1; len] };
        let up = Record::Remove { path: "a/../b".into() };
        for wrong in [
            vec![file.clone()],
            vec![begin.clone(), begin.clone()],
            vec![begin.clone(), stream.clone()],
            vec![begin.clone(), file.clone(), data(0, 1)],
            vec![begin.clone(), file.clone(), stream.clone(), data(99, 2)],
            vec![begin.clone(), file.clone(), stream.clone(), data(0, 2), data(1, 2)],
            vec![begin.clone(), file, stream, Record::Hole { offset: u64::MAX, len: 2 }],
            vec![begin.clone(), Record::End { records: 5, data: 0 }],
            vec![begin, up],
        ] {
            let (mut writer, mut bytes) = (Writer::default(), Writer::preamble());
            for record in &wrong {
                bytes.extend(writer.record(record).expect("short"));
            }
            bytes.extend(writer.end());
            assert!(matches!(parse(&bytes, 4096), Err(DiffError::Invalid(..))), "{wrong:?}");
        }
    }
}
