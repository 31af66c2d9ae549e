//! The book as it lies on a file.
//!
//! ```text
//!   0        8        12       16       20                     20 + n
//!   ┌────────┬────────┬────────┬────────┬──────────────────────┐
//!   │HFFINDBK│version │length n│ CRC32C │ rows, JSON of n bytes│      numbers are little-endian; the checksum is of the JSON
//!   └────────┴────────┴────────┴────────┴──────────────────────┘
//! ```
//! It is replaced as a whole. A file of another version, of another length or with another checksum is not believed, no part of it.

use std::collections::BTreeMap;
use std::fmt;

use byte_codec::crc32c;

use crate::book::{Book, MOST_CLEARED, MOST_FINDINGS, Row, finding_id};

const MAGIC: &[u8; 8] = b"HFFINDBK";
/// Version 2 has `since` in each row.
const VERSION: u32 = 2;
/// What earlier releases wrote.
const EARLIER: u32 = 1;
const HEADER: usize = 20;
/// Most bytes of a file: each finding takes less than six thousand, and of most a tenth of that.
pub const MAX_FILE_BYTES: u64 = 32 << 20;

/// Why a file is not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileError {
    /// It is none, or damaged.
    Damaged(String),
    /// A newer release wrote it.
    Newer(u32),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(why) => write!(f, "it is damaged: {why}"),
            Self::Newer(version) => write!(f, "it has version {version}, which this release does not know"),
        }
    }
}

impl std::error::Error for FileError {}

fn damaged(why: impl Into<String>) -> FileError {
    FileError::Damaged(why.into())
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    bytes.try_into().ok().map(u32::from_le_bytes)
}

/// The bytes of a file with this book.
///
/// # Errors
/// When it would be larger than a file may be.
pub fn write(book: &Book) -> Result<Vec<u8>, FileError> {
    let rows: Vec<&Row> = book.rows.values().collect();
    let json = serde_json::to_vec(&rows).map_err(|error| damaged(error.to_string()))?;
    let length = u32::try_from(json.len()).map_err(|_| damaged("it is too large"))?;
    if json.len() as u64 + HEADER as u64 > MAX_FILE_BYTES {
        return Err(damaged("it is too large"));
    }
    let mut bytes = Vec::with_capacity(HEADER + json.len());
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend(crc32c(&json).to_le_bytes());
    bytes.extend(json);
    Ok(bytes)
}

/// The book that is in a file.
///
/// # Errors
/// When the file is not to be believed.
pub fn read(bytes: &[u8]) -> Result<Book, FileError> {
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(damaged("it is too large"));
    }
    if bytes.get(..8) != Some(MAGIC.as_slice()) {
        return Err(damaged("it does not begin as one"));
    }
    let (Some(version), Some(length), Some(sum)) = (number(bytes, 8), number(bytes, 12), number(bytes, 16))
    else {
        return Err(damaged("its head is cut short"));
    };
    if version != VERSION && version != EARLIER {
        return Err(FileError::Newer(version));
    }
    let json = bytes.get(HEADER..).unwrap_or_default();
    if json.len() as u64 != u64::from(length) {
        return Err(damaged(format!("it has {} bytes of {length}", json.len())));
    }
    if crc32c(json) != sum {
        return Err(damaged("its checksum differs"));
    }
    let mut rows: Vec<Row> = serde_json::from_slice(json).map_err(|error| damaged(error.to_string()))?;
    rows.iter_mut().for_each(|row| row.since = row.since.or(Some(row.first_seen)));
    if rows.len() > 2 * MOST_FINDINGS + MOST_CLEARED {
        return Err(damaged(format!("it has {} findings", rows.len())));
    }
    let mut book = Book::default();
    let id = |row: &Row| finding_id(&row.code, &row.subject);
    book.rows = rows.into_iter().map(|row| (id(&row), row)).collect::<BTreeMap<_, _>>();
    Ok(book)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    #[test]
    fn what_is_written_is_read() {
        let bytes = fuzz::sample();
        let book = read(&bytes).expect("a book");
        assert_eq!(book.rows.len(), 2);
        assert_eq!(write(&book).expect("bytes"), bytes);
    }

    /// What an earlier release has written stays readable: these bytes never change.
    #[test]
    fn the_first_version_stays_as_it_is() {
        let json = br#"[{"code":"pool-space","subject":"pool p","severity":"warning","worst":"error","detail":"d","todo":"t","first_seen":1,"last_seen":2,"gone":3,"cleared":false,"times":4,"acknowledged":["warning",{"by":"a","time":5,"note":"n"}]}]"#;
        let mut bytes = b"HFFINDBK\x01\0\0\0".to_vec();
        bytes.extend((json.len() as u32).to_le_bytes());
        bytes.extend(crc32c(json).to_le_bytes());
        bytes.extend(json);
        let book = read(&bytes).expect("a book");
        let row = book.rows.values().next().expect("a row");
        assert_eq!((row.first_seen, row.since, row.gone, row.times), (1, Some(1), Some(3), 4));
        assert!(row.acknowledged.is_some() && write(&book).expect("bytes")[8] == 2);
    }

    /// Nor do these.
    #[test]
    fn the_second_version_stays_as_it_is() {
        let json = br#"[{"code":"pool-space","subject":"pool p","severity":"warning","worst":"error","detail":"d","todo":"t","first_seen":1,"last_seen":3,"since":2,"gone":null,"cleared":false,"times":4,"acknowledged":null}]"#;
        let mut bytes = b"HFFINDBK\x02\0\0\0".to_vec();
        bytes.extend((json.len() as u32).to_le_bytes());
        bytes.extend(crc32c(json).to_le_bytes());
        bytes.extend(json);
        let book = read(&bytes).expect("a book");
        assert_eq!(write(&book).expect("bytes"), bytes);
    }

    #[test]
    fn a_changed_byte_is_noticed_wherever_it_is() {
        let good = fuzz::sample();
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            assert!(read(&bytes).is_err(), "byte {at}");
            assert!(read(&good[..at]).is_err(), "cut at {at}");
        }
        let mut newer = good;
        newer[8] = 3;
        assert_eq!(read(&newer), Err(FileError::Newer(3)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_stood(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            fuzz::book(&bytes);
            fuzz::rows(&bytes);
        }
    }
}
