//! Traces of what another program did to a file or disk, line by line: fio's iolog, versions 2 and 3, and blkparse's text.
//!
//! Only reads and writes are taken. Times count from the first of them.

use crate::error::{ProfileError, refuse};
use crate::limits;

/// Longest line of a trace in bytes.
pub const LINE_BYTES: usize = 8192;
/// Bytes of blkparse's sectors.
const SECTOR: u64 = 512;

/// How a trace is replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The file that the trace is in.
    pub path: String,
    /// The file or device (`8,16`) of the trace whose operations are taken; when absent, the trace must have one only.
    pub name: Option<String>,
    /// As fast as the requests outstanding allow, rather than at the trace's times.
    pub fast: bool,
    /// Until the trace ends, whatever the duration says.
    pub whole: bool,
}

/// One operation of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds after the first operation.
    pub at: u64,
    /// Byte offset.
    pub offset: u64,
    /// Bytes, at least 1.
    pub len: u32,
    /// Whether it was written.
    pub is_write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Fio2,
    Fio3,
    Blkparse,
}

/// Takes a trace line by line; holds one name and nothing that grows.
#[derive(Debug)]
pub struct Parser {
    format: Option<Format>,
    /// The name whose operations are taken, once it is known.
    name: Option<String>,
    chosen: bool,
    line: u64,
    /// Nanoseconds that version 2 has waited so far.
    waited: u64,
    first: Option<u64>,
    last: u64,
    skipped: u64,
}

impl Parser {
    /// For the operations on `name`, or on the only name there is.
    #[must_use]
    pub fn new(name: Option<&str>) -> Self {
        Self {
            format: None,
            name: name.map(str::to_owned),
            chosen: name.is_some(),
            line: 0,
            waited: 0,
            first: None,
            last: 0,
            skipped: 0,
        }
    }

    /// Operations that were neither reads nor writes (flushes, discards), or on another name, so far.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The next line; its operation if it has one.
    ///
    /// # Errors
    /// Which line makes no sense, and why.
    pub fn line(&mut self, line: &str) -> Result<Option<Record>, ProfileError> {
        self.line += 1;
        let line = line.trim();
        let found = match self.format {
            None => self.begin(line),
            Some(Format::Fio2 | Format::Fio3) => self.fio(line),
            Some(Format::Blkparse) => self.blkparse(line),
        };
        found.map_err(|why| ProfileError(format!("line {} of the trace: {why}", self.line)))
    }

    /// The first line that is not empty tells the format.
    fn begin(&mut self, line: &str) -> Result<Option<Record>, ProfileError> {
        match line {
            "" => return Ok(None),
            "fio version 2 iolog" => self.format = Some(Format::Fio2),
            "fio version 3 iolog" => self.format = Some(Format::Fio3),
            _ if is_device(line.split_ascii_whitespace().next().unwrap_or_default()) => {
                self.format = Some(Format::Blkparse);
                return self.blkparse(line);
            }
            _ => {
                return refuse(
                    "it is neither fio's iolog of version 2 or 3 nor the text of blkparse (binary traces: run blkparse first)",
                );
            }
        }
        Ok(None)
    }

    /// `[microseconds] name action [offset length]`
    fn fio(&mut self, line: &str) -> Result<Option<Record>, ProfileError> {
        let mut fields = line.split_ascii_whitespace();
        let stamp = match self.format {
            Some(Format::Fio3) => Some(match fields.next() {
                None => return Ok(None),
                Some(field) => number(field, "a time in microseconds")?,
            }),
            _ => None,
        };
        let Some(name) = fields.next() else { return Ok(None) };
        let Some(action) = fields.next() else { return refuse(format!("no action follows '{name}'")) };
        let is_write = match action {
            "add" | "open" | "close" => return Ok(None),
            "read" => false,
            "write" => true,
            "wait" if stamp.is_none() => {
                let microseconds = number(fields.next().unwrap_or_default(), "microseconds to wait")?;
                self.waited = self.waited.saturating_add(microseconds.saturating_mul(1000));
                return Ok(None);
            }
            "sync" | "datasync" | "sync_file_range" | "trim" => {
                self.skipped += 1;
                return Ok(None);
            }
            _ => return refuse(format!("'{action}' is no action of fio")),
        };
        let offset = number(fields.next().unwrap_or_default(), "an offset")?;
        let length = number(fields.next().unwrap_or_default(), "a length")?;
        let at = stamp.map_or(self.waited, |microseconds| microseconds.saturating_mul(1000));
        self.record(name, at, offset, length, is_write)
    }

    /// `major,minor cpu sequence seconds pid action rwbs sector + count [process]`
    fn blkparse(&mut self, line: &str) -> Result<Option<Record>, ProfileError> {
        let fields: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
        // Other events (plugs, merges, completions) and the sums at the end are not what was asked of the device.
        let [device, _, _, seconds, _, "Q", rwbs, sector, "+", count] = fields.as_slice() else {
            return Ok(None);
        };
        if !is_device(device) {
            return Ok(None);
        }
        let is_write = match (rwbs.contains('D'), rwbs.contains('R'), rwbs.contains('W')) {
            (false, true, false) => false,
            (false, false, true) => true,
            _ => {
                self.skipped += 1;
                return Ok(None);
            }
        };
        let at = nanoseconds(seconds)?;
        let bytes = |field: &str, what| {
            number(field, what)?
                .checked_mul(SECTOR)
                .ok_or_else(|| ProfileError(format!("{what} of {field} is too large")))
        };
        let (offset, length) = (bytes(sector, "a sector")?, bytes(count, "a number of sectors")?);
        self.record(device, at, offset, length, is_write)
    }

    fn record(
        &mut self,
        name: &str,
        at: u64,
        offset: u64,
        length: u64,
        is_write: bool,
    ) -> Result<Option<Record>, ProfileError> {
        match &self.name {
            None => self.name = Some(name.to_owned()),
            Some(mine) if mine == name => {}
            Some(_) if self.chosen => {
                self.skipped += 1;
                return Ok(None);
            }
            Some(mine) => {
                return refuse(format!(
                    "it has operations on '{mine}' and on '{name}': choose one with --replay-name"
                ));
            }
        }
        let Some(len) = u32::try_from(length).ok().filter(|len| (1..=limits::BLOCK_BYTES).contains(len))
        else {
            return refuse(format!(
                "a length of {length} bytes: it is between 1 and {}",
                limits::BLOCK_BYTES
            ));
        };
        if offset.checked_add(length).is_none_or(|end| end > i64::MAX as u64) {
            return refuse(format!("offset {offset} is beyond what a file can have"));
        }
        // Lines of several processors may be a little out of order: none is replayed before its predecessor.
        let since = at.saturating_sub(*self.first.get_or_insert(at));
        self.last = self.last.max(since);
        Ok(Some(Record { at: self.last, offset, len, is_write }))
    }
}

/// `8,16`
fn is_device(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once(',').is_some_and(|(major, minor)| digits(major) && digits(minor))
}

fn number(text: &str, what: &str) -> Result<u64, ProfileError> {
    match text.parse() {
        Ok(number) => Ok(number),
        Err(_) => refuse(format!("'{text}' stands where {what} is expected")),
    }
}

/// `12.000345678` in seconds.
fn nanoseconds(text: &str) -> Result<u64, ProfileError> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let seconds = number(whole, "a time in seconds")?;
    let digits = part.get(..9).unwrap_or(part);
    let fraction = number(digits, "a fraction of a second")? * 10u64.pow(9 - digits.len() as u32);
    Ok(seconds.saturating_mul(1_000_000_000).saturating_add(fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str, name: Option<&str>) -> Result<(Vec<Record>, u64), ProfileError> {
        let mut parser = Parser::new(name);
        let mut records = Vec::new();
        for line in text.lines() {
            records.extend(parser.line(line)?);
        }
        Ok((records, parser.skipped()))
    }

    fn record(at: u64, offset: u64, len: u32, is_write: bool) -> Record {
        Record { at, offset, len, is_write }
    }

    #[test]
    fn fio_version_2_waits() {
        let text = "fio version 2 iolog\n/dev/x add\n/dev/x open\n/dev/x read 0 4096\n/dev/x wait 1500 0\n\
            /dev/x write 8192 512\n/dev/x datasync 0 0\n/dev/x wait 500 0\n/dev/x read 4096 4096\n/dev/x close\n";
        let (records, skipped) = all(text, None).unwrap();
        assert_eq!(
            records,
            [
                record(0, 0, 4096, false),
                record(1_500_000, 8192, 512, true),
                record(2_000_000, 4096, 4096, false)
            ]
        );
        assert_eq!(skipped, 1);
    }

    /// As fio 3.33 writes it.
    #[test]
    fn fio_version_3_has_times() {
        let text = "fio version 3 iolog\n21 /f add\n121 /f open\n124 /f read 61440 4096\n238076 /f read 774144 4096\n\
            238270 /f write 491520 4096\n238200 /g trim 0 4096\n2988245 /f close\n";
        let (records, skipped) = all(text, None).unwrap();
        let at = |us: u64| us * 1000;
        assert_eq!(
            records,
            [
                record(0, 61_440, 4096, false),
                record(at(237_952), 774_144, 4096, false),
                record(at(238_146), 491_520, 4096, true)
            ]
        );
        assert_eq!(skipped, 1);
        let text = "fio version 3 iolog\n1 /f read 0 1\n2 /g read 0 1\n";
        assert!(
            all(text, None)
                .unwrap_err()
                .0
                .contains("line 3 of the trace: it has operations on '/f' and on '/g'")
        );
        assert_eq!(all(text, Some("/g")).unwrap(), (vec![record(0, 0, 1, false)], 1));
    }

    #[test]
    fn blkparse_has_queued_requests() {
        let text = "  8,16   1        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n\
            8,16   1        2     0.000001829   697  G   W 223490 + 8 [kjournald]\n\
            8,16   1        3     0.000500000   697  P   N [kjournald]\n\
            8,16   0        4     0.000400000   697  Q  RA 64 + 16 [cat]\n\
            8,16   0        5     0.001500000   697  Q   D 64 + 16 [fstrim]\n\
            8,16   0        6     1.5   697  Q  WFS 8 + 1 [x]\nCPU0 (8,16):\n Reads Queued:           1,        8KiB\n";
        let (records, skipped) = all(text, None).unwrap();
        assert_eq!(
            records,
            [
                record(0, 223_490 * 512, 4096, true),
                record(400_000, 64 * 512, 8192, false),
                record(1_500_000_000, 4096, 512, true)
            ]
        );
        assert_eq!(skipped, 1);
    }

    #[test]
    fn what_is_no_trace_is_refused_by_line() {
        for (text, part) in [
            ("hello", "line 1 of the trace: it is neither"),
            ("fio version 2 iolog\n/f read x 4096", "line 2 of the trace: 'x' stands where an offset"),
            ("fio version 2 iolog\n/f read 0 0", "a length of 0 bytes"),
            ("fio version 2 iolog\n/f read 18446744073709551615 4096", "beyond what a file can have"),
            ("fio version 3 iolog\n/f read 0 1", "a time in microseconds"),
            ("fio version 2 iolog\n/f fly 0 1", "'fly' is no action"),
            ("8,0 0 1 x 1 Q R 0 + 1 [p]", "a time in seconds"),
            ("8,0 0 1 0.0 1 Q R 99999999999999999999 + 1 [p]", "a sector"),
        ] {
            let why = all(text, None).unwrap_err();
            assert!(why.0.contains(part), "{text}: {why}");
        }
    }
}
