//! Notifications: who is told of findings. Each has a queue of bounded length, and a delivery at a time; nobody waits for it.
//!
//! ```text
//!   news of the book ─► queue of each notifier ─► [`send`]: one try, 10 s at most ─► taken, or tried again: after 5 s, 20 s, 80 s, … at most 6 times
//! ```
//! Invariants:
//! * A notification that cannot be delivered costs a bounded amount of memory and time, and is told of as a finding, of which nobody is notified.
//! * Only what an administrator has configured is ever connected to, and no address of this machine or of the link unless that was said: at
//!   such addresses answer services that ask nobody who it is (of clouds, for example).
//! * A secret is in a file of its own that is read when it is needed; it is neither kept, shown nor logged.

mod address;
mod send;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

use control_api::{Code, Finding, FindingState, Issue, Notifier, NotifierStatus, Problem, Severity};
use health_rules::{FindingCode, News, issue};
use parking_lot::Mutex;
use serde::Serialize;

use crate::data_dir::replace_file;

/// Most notifiers.
const MOST: usize = 16;
/// Bytes of their file at most.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Notifications that wait for one at most; the oldest go.
const QUEUE: usize = 200;
/// Tries after which a notification is given up.
const TRIES: u32 = 6;
/// Seconds between the first and the second try; four times as many each time, up to ten minutes.
const FIRST_PAUSE: u64 = 5;
const LONGEST_PAUSE: u64 = 600;

/// What is sent, as JSON.
#[derive(Serialize)]
struct Message<'a> {
    /// `new`, `worse`, `cleared` or `test`.
    event: &'a str,
    /// The node that says so.
    node: &'a str,
    /// When, in seconds since 1970 UTC.
    time: u64,
    finding: &'a Finding,
}

#[derive(Debug)]
struct Entry {
    notifier: Notifier,
    /// Which of all that ever were it is: a try that was begun before it was changed says nothing of it.
    serial: u64,
    queue: VecDeque<String>,
    /// Tries of the first of the queue.
    tries: u32,
    /// It is not tried before, in seconds of the node's monotonic clock.
    not_before: u64,
    busy: bool,
    delivered: u64,
    failed: u64,
    problem: Option<String>,
    /// The last one was given up.
    given_up: bool,
}

impl Entry {
    fn new(notifier: Notifier, serial: u64) -> Self {
        Self {
            notifier,
            serial,
            queue: VecDeque::new(),
            tries: 0,
            not_before: 0,
            busy: false,
            delivered: 0,
            failed: 0,
            problem: None,
            given_up: false,
        }
    }

    fn status(&self) -> NotifierStatus {
        NotifierStatus {
            notifier: self.notifier.clone(),
            delivered: self.delivered,
            failed: self.failed,
            waiting: self.queue.len() as u64,
            problem: self.problem.clone(),
        }
    }

    fn push(&mut self, body: String) {
        // What is under way is the first.
        if self.queue.len() >= QUEUE {
            self.queue.remove(usize::from(self.busy));
            self.failed += 1;
        }
        self.queue.push_back(body);
    }

    /// A try has ended.
    fn ended(&mut self, now: u64, result: Result<(), String>) {
        self.busy = false;
        match result {
            Ok(()) => {
                self.queue.pop_front();
                self.delivered += 1;
                (self.tries, self.not_before, self.problem, self.given_up) = (0, 0, None, false);
            }
            Err(why) => {
                self.problem = Some(why);
                self.tries += 1;
                self.not_before = now + pause(self.tries);
                if self.tries >= TRIES {
                    self.queue.pop_front();
                    self.failed += 1;
                    (self.tries, self.given_up) = (0, true);
                }
            }
        }
    }
}

/// Seconds until the next try, after so many.
fn pause(tries: u32) -> u64 {
    let longer = 4_u64.saturating_pow(tries.saturating_sub(1));
    FIRST_PAUSE.saturating_mul(longer).min(LONGEST_PAUSE)
}

/// All who are told.
pub(crate) struct Notifications {
    path: PathBuf,
    /// Nobody holds it while a file is written: each status looks into it.
    entries: Mutex<BTreeMap<String, Entry>>,
    serials: AtomicU64,
    /// Held by whoever changes who is told, from looking to writing.
    changes: Mutex<()>,
    /// Why it is not known who was configured.
    damaged: Mutex<Option<String>>,
}

/// A try that is to be made.
pub(crate) struct Due {
    notifier: Notifier,
    serial: u64,
    body: String,
}

impl Notifications {
    /// Those who were configured. A file that is not to be believed is set aside by name: nobody is told then, which is a finding until
    /// somebody is set again.
    pub(crate) fn open(path: PathBuf) -> Self {
        let (notifiers, damaged) = match read(&path) {
            Ok(notifiers) => (notifiers, None),
            Err(error) => {
                let aside = path.with_extension("damaged");
                let set_aside = fs::rename(&path, &aside).is_ok();
                tracing::warn!(%error, aside = %aside.display(), set_aside, "nobody is notified of findings: the file of notifiers cannot be read");
                (Vec::new(), Some(format!("{error}; what was left of it is {}", aside.display())))
            }
        };
        let known = notifiers.into_iter().take(MOST).filter(|notifier| check(notifier).is_ok());
        let all = Self {
            path,
            entries: Mutex::default(),
            serials: AtomicU64::new(1),
            changes: Mutex::new(()),
            damaged: Mutex::new(damaged),
        };
        known.for_each(|notifier| all.put(notifier));
        all
    }

    /// Has somebody told from now on. What waited for one of the name waits for this one: whoever mends an address wants what was not taken there.
    fn put(&self, notifier: Notifier) {
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let mut entries = self.entries.lock();
        let before = entries.remove(&notifier.name);
        let mut entry = Entry::new(notifier, serial);
        entry.queue = before.map(|before| before.queue).unwrap_or_default();
        entries.insert(entry.notifier.name.clone(), entry);
    }

    /// Has everybody told whom it concerns.
    pub(crate) fn take(&self, node: &str, news: &News, now: u64) {
        let finding = news.finding();
        if finding.code == FindingCode::NotifyFailed.name() {
            return;
        }
        let event = match news {
            News::Seen(_) => "new",
            News::Worse(_) => "worse",
            News::Cleared(_) => "cleared",
        };
        let mut entries = self.entries.lock();
        let concerned = entries.values_mut().filter(|entry| finding.severity <= entry.notifier.severity);
        for entry in concerned {
            if let Ok(body) = serde_json::to_string(&Message { event, node, time: now, finding }) {
                entry.push(body);
            }
        }
    }

    /// What is wrong with them.
    pub(crate) fn issues(&self) -> Vec<Issue> {
        let entries = self.entries.lock();
        let told = entries.iter().filter(|(_, entry)| entry.given_up).map(|(name, entry)| {
            let why = entry.problem.as_deref().unwrap_or("no reason is known");
            let detail = format!("it does not take notifications, and {} were given up: {why}", entry.failed);
            let todo = format!(
                "`holdfast notify test {name}` tries; `holdfast notify set {name} …` changes where it is."
            );
            issue(FindingCode::NotifyFailed, Severity::Warning, format!("notifier {name}"), detail, todo)
        });
        let damaged = self.damaged.lock().clone().map(|why| {
            let detail = format!("who is to be told of findings is not known, and nobody is: {why}");
            let todo = "`holdfast notify set NAME …` says who; `holdfast notify list` shows who is told.";
            issue(FindingCode::NotifyFailed, Severity::Warning, "notifiers", detail, todo)
        });
        told.chain(damaged).collect()
    }

    /// Puts a notifier in the place of the one of its name. Blocks on the data directory's disk.
    pub(crate) fn set(&self, notifier: Notifier) -> Result<NotifierStatus, Problem> {
        let _changing = self.changes.lock();
        let (name, mut all) = (notifier.name.clone(), self.configured());
        all.insert(name.clone(), notifier.clone());
        if all.len() > MOST {
            return Err(Problem::new(Code::TooMany, format!("There are {MOST} notifiers already.")));
        }
        // They are read again for each notification; who has them wrong hears of it now.
        send::files_of(&notifier)
            .map_err(|why| Problem::new(Code::InvalidRequest, format!("Nothing is kept: {why}.")))?;
        self.save(&all)?;
        self.put(notifier);
        *self.damaged.lock() = None;
        self.entries.lock().get(&name).map(Entry::status).ok_or_else(|| unknown(&name))
    }

    /// Takes one away. Blocks on the data directory's disk.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Problem> {
        let _changing = self.changes.lock();
        let mut all = self.configured();
        all.remove(name).ok_or_else(|| unknown(name))?;
        self.save(&all)?;
        self.entries.lock().remove(name);
        Ok(())
    }

    /// Those who are told, and how each fares.
    pub(crate) fn list(&self) -> Vec<NotifierStatus> {
        self.entries.lock().values().map(Entry::status).collect()
    }

    /// How one was configured.
    ///
    /// # Errors
    /// When there is none such.
    pub(crate) fn get(&self, name: &str) -> Result<Notifier, Problem> {
        self.entries.lock().get(name).map(|entry| entry.notifier.clone()).ok_or_else(|| unknown(name))
    }

    /// Sends a notification that says that it is a test.
    ///
    /// # Errors
    /// When it is not taken, with the reason.
    pub(crate) async fn test(&self, name: &str, node: &str, now: u64) -> Result<(), Problem> {
        let notifier = self.get(name)?;
        let finding = Finding {
            id: "test".into(),
            code: "test".into(),
            severity: Severity::Info,
            subject: format!("node {node}"),
            detail: "this is a test of notifications: nothing is wrong".into(),
            todo: String::new(),
            state: FindingState::Active,
            first_seen: now,
            last_seen: now,
            cleared: None,
            times: 1,
            acknowledged: None,
        };
        let message = Message { event: "test", node, time: now, finding: &finding };
        let body = serde_json::to_string(&message)
            .map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        send::send(&notifier, body).await.map_err(|why| {
            Problem::new(Code::WrongState, format!("{name} has not taken the test: {why}."))
                .todo(format!("`holdfast notify set {name}` changes where it is and what is sent along."))
        })?;
        if let Some(entry) = self.entries.lock().get_mut(name) {
            (entry.problem, entry.given_up, entry.not_before) = (None, false, 0);
        }
        Ok(())
    }

    fn configured(&self) -> BTreeMap<String, Notifier> {
        self.entries.lock().iter().map(|(name, entry)| (name.clone(), entry.notifier.clone())).collect()
    }

    fn save(&self, notifiers: &BTreeMap<String, Notifier>) -> Result<(), Problem> {
        let all: Vec<&Notifier> = notifiers.values().collect();
        let text = serde_json::to_vec_pretty(&all).map_err(io::Error::other);
        let kept = text.and_then(|text| replace_file(&self.path, &text));
        kept.map_err(|error| Problem::new(Code::Io, format!("this cannot be kept: {error}")))
    }

    /// What can be sent now, each to whom; it is under way from now on.
    pub(crate) fn due(&self, now: u64) -> Vec<Due> {
        let mut entries = self.entries.lock();
        let due = entries.values_mut().filter(|entry| !entry.busy && entry.not_before <= now);
        due.filter_map(|entry| {
            let body = entry.queue.front()?.clone();
            entry.busy = true;
            Some(Due { notifier: entry.notifier.clone(), serial: entry.serial, body })
        })
        .collect()
    }

    /// A try for a notifier has ended; nothing when it is another one by now.
    pub(crate) fn ended(&self, due: &Due, now: u64, result: Result<(), String>) {
        let mut entries = self.entries.lock();
        let tried = entries.get_mut(&due.notifier.name).filter(|entry| entry.serial == due.serial);
        if let Some(entry) = tried {
            entry.ended(now, result);
        }
    }
}

impl Due {
    /// Tries it.
    ///
    /// # Errors
    /// Why it was not taken.
    pub(crate) async fn send(&self) -> Result<(), String> {
        send::send(&self.notifier, self.body.clone()).await
    }
}

fn read(path: &PathBuf) -> io::Result<Vec<Notifier>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
        Ok(meta) if meta.len() > MAX_FILE_BYTES => {
            return Err(io::Error::other(format!("it has {} bytes", meta.len())));
        }
        Ok(_) => {}
    }
    serde_json::from_slice(&fs::read(path)?).map_err(io::Error::other)
}

/// Whether a notifier makes sense.
///
/// # Errors
/// Why it does not.
pub(crate) fn check(notifier: &Notifier) -> Result<(), Problem> {
    let wrong = |why: String| Err(Problem::new(Code::InvalidRequest, why));
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if notifier.name.is_empty() || notifier.name.len() > 40 || !notifier.name.chars().all(plain) {
        return wrong("The name of a notifier has 1 to 40 lower-case letters, digits and hyphens.".into());
    }
    let target = match address::Target::parse(&notifier.url) {
        Ok(target) => target,
        Err(why) => return wrong(why),
    };
    // A name is looked up each time; of an address it is known now.
    if let Ok(ip) = target.host.parse()
        && let Some(refusal) = address::refused(ip, target.https, notifier.allow_local)
    {
        return wrong(format!("Nothing would be sent to {ip}: {refusal}."));
    }
    if let Some(header) = &notifier.header
        && let Err(why) = send::header_name(header)
    {
        return wrong(why);
    }
    let files = [&notifier.secret_file, &notifier.ca_file];
    if files.into_iter().flatten().any(|path| !path.starts_with('/') || path.len() > 4096) {
        return wrong("Files of the node's machine are named by absolute paths.".into());
    }
    Ok(())
}

fn unknown(name: &str) -> Problem {
    Problem::new(Code::NotFound, format!("There is no notifier {name}."))
        .todo("`holdfast notify list` shows which there are.")
}

#[cfg(test)]
mod tests;
