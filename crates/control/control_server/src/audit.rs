//! The record of changes: who asked for what, from where, and what became of it. One JSON line each, in a file that is replaced
//! when it is full, of which the last few are kept.
//!
//! What is written is chosen field by field: names and paths, never a body, a query or a header, so no secret can be in it.
//! Attempts of nobody in particular are throttled: whoever reaches the port could otherwise push out what matters.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Query;
use axum::http::Uri;
use control_api::routes::Route;
use control_api::{AuditEntry, BASE_PATH, EventKind, Problem};
use parking_lot::Mutex;
use shard_runtime::Monotonic;

use crate::access::Asker;
use crate::network::Peer;
use crate::node::Node;

/// Bytes of a file after which another one begins.
const FILE_BYTES: u64 = 4 << 20;
/// Files that are kept, the current one among them.
const FILES: u32 = 8;
/// Bytes of what people have chosen, in a line.
const TEXT_BYTES: usize = 512;
/// Lines of nobody in particular in a minute.
const UNKNOWN_A_MINUTE: u32 = 10;
const MINUTE: Duration = Duration::from_secs(60);

/// The record.
#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    file: Option<(File, u64)>,
    /// When the minute began, the lines of it, and those left out.
    unknown: Option<(Monotonic, u32)>,
    left_out: u64,
    failing: bool,
}

impl Audit {
    /// One in this file and those beside it. Nothing is opened yet.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, inner: Mutex::default() }
    }

    /// The file before, and those before that.
    fn older(&self, n: u32) -> PathBuf {
        self.path.with_extension(format!("{n}.jsonl"))
    }

    /// Writes an entry down. A record that cannot be written is said in the log, once, and stops nothing: a full disk must not
    /// keep the administrator from making room. Blocks on the data directory's disk.
    pub(crate) fn write(&self, mut entry: AuditEntry, now: Monotonic) {
        let mut inner = self.inner.lock();
        if entry.proof.is_none() {
            match &mut inner.unknown {
                Some((since, lines)) if now.since(*since) < MINUTE => {
                    *lines += 1;
                    if *lines > UNKNOWN_A_MINUTE {
                        inner.left_out += 1;
                        return;
                    }
                }
                minute => *minute = Some((now, 1)),
            }
        }
        for text in [&mut entry.who, &mut entry.request, &mut entry.object] {
            cut(text);
        }
        // A line of its own: what was left out is nothing that this entry is about.
        let left_out = (inner.left_out > 0).then(|| AuditEntry {
            time: entry.time,
            who: "nobody".into(),
            proof: None,
            role: None,
            from: String::new(),
            operation: String::new(),
            request: String::new(),
            object: String::new(),
            status: 0,
            result: format!("{} attempts of nobody in particular were left out", inner.left_out),
        });
        inner.left_out = 0;
        let written = left_out.iter().chain([&entry]).try_for_each(|entry| {
            let mut line = serde_json::to_vec(entry)?;
            line.push(b'\n');
            self.append(&mut inner, &line)
        });
        if let Err(error) = &written
            && !inner.failing
        {
            tracing::error!(
                "the record of changes, {}: {error}; changes go on without it",
                self.path.display()
            );
        }
        inner.failing = written.is_err();
    }

    fn append(&self, inner: &mut Inner, line: &[u8]) -> io::Result<()> {
        if inner.file.as_ref().is_some_and(|(_, size)| size + line.len() as u64 > FILE_BYTES) {
            inner.file = None;
            self.rotate()?;
        }
        if inner.file.is_none() {
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
            let size = file.metadata()?.len();
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

fn cut(text: &mut String) {
    if text.len() > TEXT_BYTES {
        text.truncate(text.floor_char_boundary(TEXT_BYTES));
        text.push('…');
    }
}

/// What is learned of a change while it is made, by whoever reads its body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subject(Arc<Mutex<Learned>>);

#[derive(Debug, Default)]
struct Learned {
    names: Vec<String>,
    asker: Option<Asker>,
}

impl Subject {
    /// What it is about.
    pub(crate) fn names(&self, names: impl IntoIterator<Item = String>) {
        self.0.lock().names.extend(names);
    }

    /// Who it was, where that comes out only now.
    pub(crate) fn asker(&self, asker: Asker) {
        self.0.lock().asker = Some(asker);
    }
}

/// A change that is asked for. It is written down when it has ended; one that is dropped before was given up by its client.
pub(crate) struct Attempt {
    node: Arc<Node>,
    entry: Option<AuditEntry>,
    subject: Subject,
}

impl Attempt {
    /// Somebody asks for `route`.
    pub(crate) fn new(node: Arc<Node>, route: &Route, uri: &Uri, asker: Option<&Asker>, peer: Peer) -> Self {
        let mut entry = AuditEntry {
            time: 0,
            who: "nobody".into(),
            proof: None,
            role: None,
            from: match peer {
                Peer::Socket(_) => "socket".into(),
                Peer::Network(from) => from.to_string(),
                Peer::Node(number) => format!("node {}", node.node_called(number)),
            },
            operation: route.id.into(),
            request: format!("{} {}", route.method.lower().to_uppercase(), uri.path()),
            object: String::new(),
            status: 0,
            result: String::new(),
        };
        if let Some(asker) = asker {
            sign(&mut entry, asker);
        }
        let subject = Subject::default();
        // The parameters that a route has are names and numbers; others may be anything.
        let query =
            Query::<BTreeMap<String, String>>::try_from_uri(uri).map(|query| query.0).unwrap_or_default();
        let known = route.query.iter().filter_map(|key| Some(format!("{key}={}", query.get(*key)?)));
        subject.names(known);
        Self { node, entry: Some(entry), subject }
    }

    /// Where it is said what it is about.
    pub(crate) fn subject(&self) -> Subject {
        self.subject.clone()
    }

    /// It has ended.
    pub(crate) fn ended(&mut self, status: u16, result: &str) {
        let Some(mut entry) = self.entry.take() else { return };
        let Learned { names, asker } = std::mem::take(&mut *self.subject.0.lock());
        if let Some(asker) = asker {
            sign(&mut entry, &asker);
        }
        if status == 200 {
            let path = entry.request.split_once(' ').map_or("", |(_, path)| path);
            self.node.events().tell(EventKind::Changed, path.strip_prefix(BASE_PATH).unwrap_or(path));
        }
        self.node.record(AuditEntry { status, result: result.into(), object: names.join(" "), ..entry });
    }
}

fn sign(entry: &mut AuditEntry, asker: &Asker) {
    (entry.who, entry.proof, entry.role) = (asker.who(), Some(asker.proof), Some(asker.role));
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.ended(0, "abandoned");
    }
}

impl Node {
    /// Writes down what somebody has done.
    pub(crate) fn record(&self, entry: AuditEntry) {
        let (now, wall) = self.clocks();
        self.audit().write(AuditEntry { time: wall, ..entry }, now);
    }

    /// The newest entries of the record, the newest first.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn audit_list(&self, limit: Option<usize>) -> Result<Vec<AuditEntry>, Problem> {
        const USUAL: usize = 1000;
        const MOST: usize = 100_000;
        let limit = limit.unwrap_or(USUAL).min(MOST);
        self.audit().newest(limit).map_err(|error| {
            Problem::new(control_api::Code::Io, format!("The record of changes can't be read: {error}."))
        })
    }
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
            audit.write(entry(&n.to_string(), Some(Proof::Token)), at(0));
        }
        // As after a crash in the middle of a line.
        OpenOptions::new()
            .append(true)
            .open(&path)
            .expect("there")
            .write_all(b"{\"time\":\n")
            .expect("written");
        let audit = Audit::new(path);
        audit.write(entry("3", Some(Proof::Token)), at(0));
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
            audit.write(entry(&long, Some(Proof::Session)), at(0));
        }
        let sizes: Vec<u64> = fs::read_dir(dir.path())
            .expect("readable")
            .map(|file| file.and_then(|file| file.metadata()).expect("there").len())
            .collect();
        assert_eq!(sizes.len(), FILES as usize, "{sizes:?}");
        assert!(sizes.iter().all(|size| *size <= FILE_BYTES), "{sizes:?}");
        assert!(audit.newest(usize::MAX).expect("there")[0].object.len() < TEXT_BYTES + 4);
    }

    #[test]
    fn nobody_can_push_out_what_matters() {
        let dir = tempfile::tempdir().expect("temp dir");
        let audit = Audit::new(dir.path().join("audit.jsonl"));
        for second in 0..120 {
            for _ in 0..100 {
                audit.write(entry("", None), at(second));
            }
        }
        audit.write(entry("x", Some(Proof::Socket)), at(120));
        let all = audit.newest(usize::MAX).expect("there");
        // What was left out has a line of its own, after each minute.
        assert_eq!(all.len(), 2 * UNKNOWN_A_MINUTE as usize + 1 + 2);
        assert_eq!(all[0].object, "x");
        assert_eq!((&*all[1].object, &*all[1].who), ("", "nobody"));
        assert!(all[1].result.starts_with("5990 attempts"), "{}", all[1].result);
    }
}
