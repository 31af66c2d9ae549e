//! The record of changes: who asked for what, from where, what is otherwise since, and what became of it. One JSON line each, in a file that
//! is replaced when it is full, of which the last few are kept.
//!
//! What is written is chosen: names, paths, and fields of what was changed as [`fields`] tells them, which hides secrets; never a query or a
//! header. Attempts that are refused, and those of nobody in particular, are throttled for each who makes them: they could otherwise push out
//! what matters, and hide what others try.
//!
//! Invariants:
//! * No change waits for the record, and none fails for it: a full disk must not keep the administrator from making room. What could not be
//!   written is counted; the count is a line of its own as soon as lines can be written again, and a finding until then.
//! * A line is whole, or is not read: what a full disk or a crash has cut is ended before the next line begins.

pub(crate) mod addresses;
pub(crate) mod fields;
pub(crate) mod order;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use control_api::{AuditEntry, Issue, Severity};
use health_rules::FindingCode;
use parking_lot::Mutex;
use shard_runtime::Monotonic;

use fields::cut;

/// Bytes of a file after which another one begins.
const FILE_BYTES: u64 = 4 << 20;
/// Files that are kept, the current one among them.
const FILES: u32 = 8;
/// Bytes of what people have chosen, in a line.
const TEXT_BYTES: usize = 512;
/// Lines in a minute about what one of them is refused; those of nobody in particular are one.
const REFUSED_A_MINUTE: u32 = 10;
/// So many are told apart in a minute; what is refused to more of them counts as that of nobody in particular.
const REFUSED_APART: usize = 1024;
const MINUTE: Duration = Duration::from_secs(60);

/// The record.
#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    inner: Mutex<Inner>,
    /// Never held while the disk is waited for: shards look at it.
    absent: Mutex<Absent>,
}

#[derive(Debug, Default)]
struct Inner {
    file: Option<(File, u64)>,
}

/// What is not in it.
#[derive(Debug, Default)]
struct Absent {
    /// When the minute began, and the lines of it about what was refused, by whom.
    minute: Option<Monotonic>,
    refused: BTreeMap<String, u32>,
    /// Refused attempts that have no line.
    left_out: u64,
    /// Changes that are not in it, and why the last one is not; none since it was written the last time.
    missed: u64,
    failing: Option<String>,
}

impl Absent {
    /// Whether there is a line for one more that was refused.
    fn admits(&mut self, who: &str, now: Monotonic) -> bool {
        if self.minute.is_none_or(|since| now.since(since) >= MINUTE) {
            self.minute = Some(now);
            self.refused.clear();
        }
        let apart = self.refused.len() < REFUSED_APART || self.refused.contains_key(who);
        let lines = self.refused.entry(if apart { who } else { "" }.to_owned()).or_default();
        *lines += 1;
        let admitted = *lines <= REFUSED_A_MINUTE;
        self.left_out += u64::from(!admitted);
        admitted
    }
}

/// Whether it says that somebody was refused, which whoever asks can cause any number of times.
fn is_refusal(entry: &AuditEntry) -> bool {
    entry.proof.is_none() || matches!(entry.status, 401 | 403 | 404)
}

impl Audit {
    /// One in this file and those beside it. Nothing is opened yet.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, inner: Mutex::default(), absent: Mutex::default() }
    }

    /// The file before, and those before that.
    fn older(&self, n: u32) -> PathBuf {
        self.path.with_extension(format!("{n}.jsonl"))
    }

    /// Whether an entry is to be written down: of what is refused, so much in a minute. What is not has been counted. Waits for no disk.
    pub(crate) fn admits(&self, entry: &AuditEntry, now: Monotonic) -> bool {
        !is_refusal(entry) || self.absent.lock().admits(&entry.who, now)
    }

    /// Writes an entry down that was [admitted](Self::admits). A record that cannot be written is said in the log, once. Blocks on the data
    /// directory's disk.
    pub(crate) fn write(&self, mut entry: AuditEntry) {
        let mut inner = self.inner.lock();
        for text in
            [&mut entry.who, &mut entry.request, &mut entry.object, &mut entry.reason, &mut entry.left_out]
        {
            // What anybody may have sent: it writes no lines of its own, and controls nobody's terminal.
            if text.contains(char::is_control) {
                *text = text.replace(char::is_control, "\u{fffd}");
            }
            cut(text, TEXT_BYTES);
        }
        let (left_out, missed) = {
            let mut absent = self.absent.lock();
            (std::mem::take(&mut absent.left_out), std::mem::take(&mut absent.missed))
        };
        // Lines of their own: neither is anything that this entry is about.
        let line = |count: u64, what: &str| {
            let (time, result) = (entry.time, format!("{count} {what}"));
            (count > 0).then(|| AuditEntry { time, who: "nobody".into(), result, ..AuditEntry::default() })
        };
        let lines = [
            line(left_out, "refused attempts were left out"),
            line(missed, "changes before this one could not be written down"),
        ];
        let written = lines.iter().flatten().chain([&entry]).try_for_each(|entry| {
            let mut line = serde_json::to_vec(entry)?;
            line.push(b'\n');
            self.append(&mut inner, &line)
        });
        let mut absent = self.absent.lock();
        match written {
            Ok(()) => absent.failing = None,
            Err(error) => {
                absent.left_out += left_out;
                absent.missed += missed + 1;
                if absent.failing.replace(error.to_string()).is_none() {
                    tracing::error!(
                        "the record of changes, {}: {error}; changes go on without it",
                        self.path.display()
                    );
                }
            }
        }
    }

    /// A change is not in it, as there were too many at once to write down. Waits for no disk.
    pub(crate) fn miss(&self) {
        self.absent.lock().missed += 1;
    }

    /// That changes are not in it, if some are not.
    pub(crate) fn issue(&self) -> Option<Issue> {
        let absent = self.absent.lock();
        let missing = format!("{} changes are not in it", absent.missed);
        let (what, todo) = match &absent.failing {
            Some(why) => (
                format!("it cannot be written: {why}; {missing}, and more go on without it"),
                format!(
                    "Make room at {}, or mend its file system. The next change tries again.",
                    self.path.display()
                ),
            ),
            None if absent.missed > 0 => (
                format!("there were too many at once to write down: {missing}"),
                "The next change writes down how many they were. The log says who was connected.".into(),
            ),
            None => return None,
        };
        let code = FindingCode::RecordNotWritten;
        Some(health_rules::issue(code, Severity::Error, "record of changes", what, todo))
    }

    fn append(&self, inner: &mut Inner, line: &[u8]) -> io::Result<()> {
        if inner.file.as_ref().is_some_and(|(_, size)| size + line.len() as u64 > FILE_BYTES) {
            inner.file = None;
            self.rotate()?;
        }
        if inner.file.is_none() {
            let mut file =
                OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&self.path)?;
            let mut size = file.metadata()?.len();
            let mut last = [b'\n'];
            if size > 0 {
                file.read_exact_at(&mut last, size - 1)?;
            }
            if last != [b'\n'] {
                file.write_all(b"\n")?;
                size += 1;
            }
            inner.file = Some((file, size));
        }
        let Some((file, size)) = &mut inner.file else { return Ok(()) };
        let done = file.write_all(line);
        *size += line.len() as u64;
        if done.is_err() {
            inner.file = None;
        }
        done
    }

    /// Gives each file the next number, the last one up.
    fn rotate(&self) -> io::Result<()> {
        for n in (1..FILES).rev() {
            let from = if n == 1 { self.path.clone() } else { self.older(n - 1) };
            match fs::rename(from, self.older(n)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// The newest entries, the newest first. Lines that cannot be read (a crash may have cut one) are left out.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn newest(&self, limit: usize) -> io::Result<Vec<AuditEntry>> {
        let mut found = Vec::new();
        for n in 0..FILES {
            let path = if n == 0 { self.path.clone() } else { self.older(n) };
            let mut entries = match read(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                other => other?,
            };
            entries.reverse();
            found.extend(entries);
            if found.len() >= limit {
                break;
            }
        }
        found.truncate(limit);
        Ok(found)
    }
}

fn read(path: &Path) -> io::Result<Vec<AuditEntry>> {
    let file = File::open(path)?;
    // A line more than fits was written by somebody else.
    let lines = BufReader::new(io::Read::take(file, 2 * FILE_BYTES)).split(b'\n');
    let mut entries = Vec::new();
    for line in lines {
        entries.extend(serde_json::from_slice::<AuditEntry>(&line?).ok());
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use control_api::{Proof, Role};

    use super::*;

    fn entry(object: &str, proof: Option<Proof>) -> AuditEntry {
        AuditEntry {
            time: 1,
            who: "alice".into(),
            proof,
            role: proof.map(|_| Role::Operator),
            from: "192.0.2.1:1".into(),
            operation: "volume_create".into(),
            request: "POST /v1/volumes".into(),
            object: object.into(),
            status: 200,
            result: "done".into(),
            ..AuditEntry::default()
        }
    }

    fn write(audit: &Audit, entry: AuditEntry, now: Monotonic) {
        if audit.admits(&entry, now) {
            audit.write(entry);
        }
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    #[test]
    fn the_newest_come_first_and_survive() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("audit.jsonl");
        let audit = Audit::new(path.clone());
        assert!(audit.newest(10).expect("nothing yet").is_empty());
        for n in 0..3 {
            write(&audit, entry(&n.to_string(), Some(Proof::Token)), at(0));
        }
        // As after a crash in the middle of a line.
        OpenOptions::new()
            .append(true)
            .open(&path)
            .expect("there")
            .write_all(b"{\"time\":")
            .expect("written");
        let audit = Audit::new(path);
        write(&audit, entry("3", Some(Proof::Token)), at(0));
        let objects: Vec<String> =
            audit.newest(3).expect("there").into_iter().map(|entry| entry.object).collect();
        assert_eq!(objects, ["3", "2", "1"]);
    }

    #[test]
    fn it_is_bounded_and_lines_are_cut() {
        let dir = tempfile::tempdir().expect("temp dir");
        let audit = Audit::new(dir.path().join("audit.jsonl"));
        let long = "ä".repeat(10_000);
        for _ in 0..60_000 {
            write(&audit, entry(&long, Some(Proof::Session)), at(0));
        }
        let sizes: Vec<u64> = fs::read_dir(dir.path())
            .expect("readable")
            .map(|file| file.and_then(|file| file.metadata()).expect("there").len())
            .collect();
        assert_eq!(sizes.len(), FILES as usize, "{sizes:?}");
        assert!(sizes.iter().all(|size| *size <= FILE_BYTES), "{sizes:?}");
        assert!(audit.newest(usize::MAX).expect("there")[0].object.len() < TEXT_BYTES + 4);
    }

    /// Who has not even logged in names things as it likes.
    #[test]
    fn nobody_writes_lines_of_its_own_or_controls_a_terminal() {
        let dir = tempfile::tempdir().expect("temp dir");
        let audit = Audit::new(dir.path().join("audit.jsonl"));
        write(&audit, entry("x\n2026-01-01 alice \u{1b}]0;\u{7}", None), at(0));
        let found = audit.newest(1).expect("there").remove(0).object;
        assert_eq!(found, "x\u{fffd}2026-01-01 alice \u{fffd}]0;\u{fffd}");
    }

    #[test]
    fn nobody_can_push_out_what_matters() {
        let dir = tempfile::tempdir().expect("temp dir");
        let audit = Audit::new(dir.path().join("audit.jsonl"));
        for second in 0..120 {
            for _ in 0..100 {
                write(&audit, entry("", None), at(second));
            }
        }
        write(&audit, entry("x", Some(Proof::Socket)), at(120));
        let all = audit.newest(usize::MAX).expect("there");
        // What was left out has a line of its own, after each minute.
        assert_eq!(all.len(), 2 * REFUSED_A_MINUTE as usize + 1 + 2);
        assert_eq!(all[0].object, "x");
        assert_eq!((&*all[1].object, &*all[1].who), ("", "nobody"));
        assert!(all[1].result.starts_with("5990 refused"), "{}", all[1].result);
    }

    /// As where somebody with a token that may only look asks for changes, and as many people as there are guess passwords.
    #[test]
    fn what_is_refused_to_one_hides_nothing_of_another() {
        let dir = tempfile::tempdir().expect("temp dir");
        let audit = Audit::new(dir.path().join("audit.jsonl"));
        let refused = |who: &str, proof| AuditEntry { who: who.into(), status: 403, ..entry("r", proof) };
        for number in 0..100 {
            write(&audit, refused("viewer", Some(Proof::Token)), at(0));
            write(&audit, refused("user mallory", None), at(0));
            write(&audit, entry("a change", Some(Proof::Token)), at(0));
            write(&audit, refused(&format!("user {number}"), None), at(0));
        }
        let all = audit.newest(usize::MAX).expect("there");
        let of = |who: &str| all.iter().filter(|entry| entry.who == who && entry.object == "r").count();
        assert_eq!((of("viewer"), of("user mallory"), of("user 99")), (10, 10, 1));
        assert_eq!(all.iter().filter(|entry| entry.object == "a change").count(), 100);
        for number in 0..2 * REFUSED_APART {
            write(&audit, refused(&format!("stranger {number}"), None), at(60));
        }
        let all = audit.newest(usize::MAX).expect("there");
        let strangers = all.iter().filter(|entry| entry.who.starts_with("stranger")).count();
        assert_eq!(strangers, REFUSED_APART + REFUSED_A_MINUTE as usize);
    }

    #[test]
    fn what_was_too_much_at_once_is_told() {
        let dir = tempfile::tempdir().expect("temp dir");
        let audit = Audit::new(dir.path().join("audit.jsonl"));
        audit.miss();
        assert!(audit.issue().expect("an issue").detail.contains("1 changes are not in it"));
        write(&audit, entry("kept", Some(Proof::Socket)), at(0));
        assert!(audit.issue().is_none());
        assert_eq!(audit.newest(usize::MAX).expect("there").len(), 2);
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_told() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("audit.jsonl");
        let audit = Audit::new(path.clone());
        // As where the file system is broken: no file can be made there.
        fs::create_dir(&path).expect("made");
        for _ in 0..3 {
            write(&audit, entry("lost", Some(Proof::Socket)), at(0));
        }
        let issue = audit.issue().expect("an issue");
        assert!(issue.detail.contains("3 changes are not in it"), "{}", issue.detail);
        fs::remove_dir(&path).expect("removed");
        write(&audit, entry("kept", Some(Proof::Socket)), at(0));
        assert!(audit.issue().is_none());
        let all = audit.newest(usize::MAX).expect("there");
        assert_eq!(all.len(), 2);
        assert_eq!((&*all[0].object, &*all[1].who), ("kept", "nobody"));
        assert!(all[1].result.starts_with("3 changes"), "{}", all[1].result);
    }

    #[test]
    fn a_line_that_a_full_disk_has_cut_spoils_no_other() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("audit.jsonl");
        let audit = Audit::new(path.clone());
        write(&audit, entry("1", Some(Proof::Socket)), at(0));
        let cut = fs::metadata(&path).expect("there").len() - 10;
        OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(cut)).expect("cut");
        audit.inner.lock().file = None;
        write(&audit, entry("2", Some(Proof::Socket)), at(0));
        let objects: Vec<String> =
            audit.newest(9).expect("there").into_iter().map(|entry| entry.object).collect();
        assert_eq!(objects, ["2"]);
    }
}
