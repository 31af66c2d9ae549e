//! Entries for fuzzing, and a book to begin with.

use byte_codec::crc32c;
use control_api::{Acknowledgement, FindingQuery, Severity};

use crate::{Book, FindingCode, issue, read, write};

/// A file.
pub fn book(bytes: &[u8]) {
    if let Ok(mut book) = read(bytes) {
        let _ = write(&book);
        let issues = [issue(FindingCode::PoolSpace, Severity::Warning, "pool p", "d", "t")];
        for now in [0, 1, u64::MAX] {
            book.look(now, &issues);
            let _ = book.list(&FindingQuery::default());
        }
    }
}

/// What lies behind the checksum.
pub fn rows(json: &[u8]) {
    let mut bytes = b"HFFINDBK\x02\0\0\0".to_vec();
    bytes.extend((json.len() as u32).to_le_bytes());
    bytes.extend(crc32c(json).to_le_bytes());
    bytes.extend(json);
    book(&bytes);
}

/// A file with one finding that somebody knows of, and one that has gone.
#[must_use]
pub fn sample() -> Vec<u8> {
    let mut book = Book::default();
    let gone = issue(
        FindingCode::DiskMissing,
        Severity::Error,
        "disk d of pool p",
        "it is missing",
        "Bring it back.",
    );
    let there =
        issue(FindingCode::PoolSpace, Severity::Warning, "pool p", "80 % of it is in use", "Add a disk.");
    book.look(1_700_000_000, &[gone, there.clone()]);
    book.look(1_700_000_010, std::slice::from_ref(&there));
    book.look(1_700_001_000, std::slice::from_ref(&there));
    let id = crate::finding_id(&there.code, &there.subject);
    let who = Acknowledgement { by: "admin".into(), time: 1_700_001_001, note: "disks are ordered".into() };
    book.acknowledge(&id, who);
    write(&book).unwrap_or_default()
}
