//! The node's book of findings: looked into at each status, kept on a file, told to who listens.
//!
//! Invariant: an acknowledgement is on the disk before it is answered. What a look changes is written within [`LOOK_EVERY`]; a crash before that
//! costs no more than that it is seen anew.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use control_api::{
    Acknowledge, Acknowledgement, Code, EventKind, Finding, FindingQuery, Issue, PortalInfo, Problem,
    Session, Share,
};
use health_rules::{Book, DiskWatch, News, RepairWatch};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use super::{Node, missing};
use crate::access::Asker;
use crate::data_dir::replace_file;

/// How often findings are looked for while nobody asks.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often it is looked which disks answer.
const LOOK_AT_DISKS_EVERY: Duration = Duration::from_secs(5);
/// A look takes one part of so many of the time at most, unless even that would be too seldom.
const LOOK_SHARE: u32 = 50;
/// What is wrong is found so soon, however long a look takes.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(120);
/// Each so many looks, the clocks of other nodes are compared with this one's.
const CLOCKS_EVERY: u32 = 6;
/// News that wait to be told at most.
const MOST_NEWS: usize = 1000;
/// Bytes of a note at most.
const MOST_NOTE: usize = 500;

/// The findings of this node.
pub(crate) struct Findings {
    path: PathBuf,
    book: Mutex<Book>,
    news: Mutex<Vec<News>>,
    repair: Mutex<RepairWatch>,
    disks: Mutex<DiskWatch>,
    /// By how many seconds clocks of other nodes are ahead.
    clocks: Mutex<BTreeMap<String, i64>>,
    /// Held by whoever writes the file: an older state never replaces a newer one.
    writing: Arc<Mutex<()>>,
}

impl Findings {
    /// What an earlier life of the node has left. A file that is not to be believed is set aside by name, and the node runs.
    pub(super) fn open(path: PathBuf) -> Self {
        let book = match read(&path) {
            Ok(book) => book,
            Err(why) => {
                let aside = path.with_extension("damaged");
                let done = fs::rename(&path, &aside);
                let aside = aside.display();
                tracing::warn!(%why, %aside, set_aside = done.is_ok(), "what was known of findings is not known any more");
                Book::default()
            }
        };
        Self {
            path,
            book: Mutex::new(book),
            news: Mutex::default(),
            repair: Mutex::default(),
            disks: Mutex::default(),
            clocks: Mutex::default(),
            writing: Arc::default(),
        }
    }

    /// Says of each issue what is known of it; when the node is ready, after they were taken into the book. What is not open yet
    /// while a node starts is no news.
    pub(super) fn look(&self, ready: bool, now: u64, issues: &mut [Issue]) {
        let mut book = self.book.lock();
        if ready {
            let fresh = book.look(now, issues);
            let mut news = self.news.lock();
            let room = MOST_NEWS.saturating_sub(news.len());
            news.extend(fresh.into_iter().take(room));
        }
        book.annotate(issues);
    }

    /// Says of each issue what is known of it, without a look.
    pub(super) fn annotate(&self, issues: &mut [Issue]) {
        self.book.lock().annotate(issues);
    }

    /// What is seen by several looks only. `now` is in seconds since the node started.
    pub(super) fn issues(&self, now: u64, me: &str) -> Vec<Issue> {
        let mut issues = self.repair.lock().issues(now);
        issues.extend(self.disks.lock().issues(now));
        issues.extend(
            self.clocks.lock().iter().filter_map(|(other, ahead)| health_rules::of_clock(me, other, *ahead)),
        );
        issues
    }

    /// Disks that have not answered for so many seconds. `now` is in seconds since the node started.
    pub(super) fn silent_disks(&self, now: u64, seconds: u64) -> Vec<String> {
        self.disks.lock().silent(now, seconds).into_iter().map(|silent| silent.disk.disk.clone()).collect()
    }

    fn take_news(&self) -> Vec<News> {
        std::mem::take(&mut *self.news.lock())
    }

    /// Puts the book on its file if it has changed. Blocks on the data directory's disk.
    fn keep(&self) -> io::Result<()> {
        let _writing = self.writing.lock();
        let bytes = {
            let mut book = self.book.lock();
            if !book.take_changed() {
                return Ok(());
            }
            health_rules::write(&book)
        };
        let kept = bytes.map_err(io::Error::other).and_then(|bytes| replace_file(&self.path, &bytes));
        if kept.is_err() {
            self.book.lock().keep_changed();
        }
        kept
    }
}

fn read(path: &Path) -> Result<Book, String> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Book::default()),
        Err(error) => return Err(error.to_string()),
        Ok(meta) if meta.len() > health_rules::MAX_FILE_BYTES => {
            return Err(format!("it has {} bytes", meta.len()));
        }
        Ok(_) => {}
    }
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    health_rules::read(&bytes).map_err(|error| error.to_string())
}

/// How long it is until the next look, when one has taken so long: at the size that some have, looks take no noticeable part of a processor.
fn until_next(took: Duration) -> Duration {
    took.saturating_mul(LOOK_SHARE).clamp(LOOK_EVERY, LOOK_AT_LEAST_EVERY)
}

impl Node {
    /// Seconds since it started.
    pub(crate) fn uptime_seconds(&self) -> u64 {
        self.clock.now().since(self.started).as_secs()
    }

    /// Looks which disks answer until the node stops. By itself, as a look for findings waits for what such a disk holds up.
    pub(crate) async fn watch_disks(self: Arc<Self>) {
        let looking = async {
            loop {
                self.findings.disks.lock().look(self.uptime_seconds(), self.disk_answers(|_| true));
                tokio::time::sleep(LOOK_AT_DISKS_EVERY).await;
            }
        };
        tokio::select! {
            () = self.stopped() => {}
            () = looking => {}
        }
    }

    /// Looks for findings until the node stops, and tells what is new.
    pub(crate) async fn watch_findings(self: Arc<Self>) {
        let mut round = 0_u32;
        let mut failing = false;
        let mut pause = LOOK_EVERY;
        loop {
            // A look waits for volumes that do not answer, a node that stops does not wait for the look.
            tokio::select! {
                () = self.stopped() => {
                    let _ = self.keep_findings().await;
                    return;
                }
                () = async {
                    tokio::time::sleep(pause).await;
                    pause = self.look_for_findings(round).await;
                } => {}
            }
            round = round.wrapping_add(1);
            match self.keep_findings().await {
                Err(error) if !failing => {
                    failing = true;
                    tracing::warn!(%error, "findings cannot be kept, and it is tried again");
                }
                Err(_) => {}
                Ok(()) => failing = false,
            }
        }
    }

    /// Looks once, and says how long it is until the next time.
    async fn look_for_findings(self: &Arc<Self>, round: u32) -> Duration {
        if round.is_multiple_of(CLOCKS_EVERY) {
            self.compare_clocks().await;
        }
        let begun = self.clock.now();
        if let Ok(pools) = self.pool_list().await {
            self.findings.repair.lock().look(self.uptime_seconds(), &pools);
        }
        // A look is part of each status.
        let _ = self.status().await;
        for news in self.findings.take_news() {
            self.tell_of(&news);
        }
        until_next(self.clock.now().since(begun))
    }

    async fn keep_findings(self: &Arc<Self>) -> io::Result<()> {
        let node = self.clone();
        spawn_blocking(move || node.findings.keep())
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    fn tell_of(&self, news: &News) {
        let finding = news.finding();
        let Finding { code, subject, detail, id, .. } = finding;
        let what = match news {
            News::Seen(_) => "a finding is new",
            News::Worse(_) => "a finding has become worse",
            News::Cleared(_) => "a finding has cleared",
        };
        tracing::info!(code, subject, detail, severity = ?finding.severity, "{what}");
        self.events().tell(EventKind::Finding, id.clone());
        self.notifications.take(&self.name(), news, self.clocks().1);
    }

    /// What there is to say of how clients reach what is served.
    pub(super) fn client_issues(
        &self,
        sessions: &[Session],
        shares: &[Share],
        portals: &[PortalInfo],
    ) -> Vec<Issue> {
        let mut issues = health_rules::of_unencrypted(sessions, shares);
        match self.others() {
            // Who has a way to each node has more than one: a node sees its own only.
            None => issues.extend(health_rules::of_initiators(sessions, portals)),
            Some(_) => {
                let places = self.places();
                issues.extend(health_rules::of_shares_on_clusters(shares, &|share| {
                    share.online && places.of(&share.config).is_some()
                }));
            }
        }
        issues.extend(self.notifications.issues());
        issues
    }

    /// Findings.
    ///
    /// # Errors
    /// When what is asked for makes no sense.
    pub(crate) fn finding_list(&self, query: &FindingQuery) -> Result<Vec<Finding>, Problem> {
        let found = self.findings.book.lock().list(query);
        found.map_err(|why| Problem::new(Code::InvalidRequest, why))
    }

    /// Says that somebody knows of a finding.
    ///
    /// # Errors
    /// When there is none such, or it cannot be kept.
    pub(crate) async fn finding_acknowledge(
        self: &Arc<Self>,
        id: &str,
        request: Acknowledge,
        asker: &Asker,
    ) -> Result<Finding, Problem> {
        if request.note.len() > MOST_NOTE || request.note.chars().any(char::is_control) {
            let detail = format!("A note is one line of at most {MOST_NOTE} bytes.");
            return Err(Problem::new(Code::InvalidRequest, detail));
        }
        let who = Acknowledgement { by: asker.who(), time: self.clocks().1, note: request.note };
        let id = self.own_id(id);
        let found = self.findings.book.lock().acknowledge(id, who);
        self.changed_finding(id, found).await
    }

    /// Takes back that somebody knows of a finding.
    ///
    /// # Errors
    /// When there is none such, or it cannot be kept.
    pub(crate) async fn finding_unacknowledge(self: &Arc<Self>, id: &str) -> Result<Finding, Problem> {
        let id = self.own_id(id);
        let found = self.findings.book.lock().unacknowledge(id);
        self.changed_finding(id, found).await
    }

    /// An id, which lists of a cluster say with the node's name.
    fn own_id<'a>(&self, id: &'a str) -> &'a str {
        id.split_once(':').filter(|(node, _)| *node == self.name()).map_or(id, |(_, id)| id)
    }

    async fn changed_finding(self: &Arc<Self>, id: &str, found: Option<Finding>) -> Result<Finding, Problem> {
        let found = found.ok_or_else(|| missing("finding", id, "holdfast health list"))?;
        self.keep_findings().await.map_err(|error| {
            Problem::new(
                Code::Io,
                format!("this holds until the node is started again, as it cannot be kept: {error}"),
            )
        })?;
        self.events().tell(EventKind::Finding, id);
        Ok(found)
    }

    /// Asks the other nodes what time it is.
    async fn compare_clocks(&self) {
        let Some((peers, _)) = self.others() else { return };
        let asking = peers.into_iter().map(|peer| async move {
            let ahead =
                tokio::time::timeout(Duration::from_secs(2), self.clock_of(&peer)).await.ok().flatten();
            Some((peer.name, ahead?))
        });
        let seen: BTreeMap<String, i64> =
            futures_util::future::join_all(asking).await.into_iter().flatten().collect();
        *self.findings.clocks.lock() = seen;
    }

    /// By how many seconds another node's clock is ahead, by the date of an answer that came at once.
    async fn clock_of(&self, peer: &crate::cluster::NodePeer) -> Option<i64> {
        let by = self.itself(control_api::Role::Viewer);
        let uri = format!("{}/me", control_api::BASE_PATH);
        let request = axum::http::Request::builder().uri(uri).body(axum::body::Body::empty()).ok()?;
        let answer = self.call(peer, by, request).await.ok()?;
        let date = answer.headers().get(axum::http::header::DATE)?.to_str().ok()?;
        let theirs = http_date(date)?;
        Some(i64::try_from(theirs).ok()? - i64::try_from(self.clocks().1).ok()?)
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` in seconds since 1970.
fn http_date(text: &str) -> Option<u64> {
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_once(", ")?.1.split(' ');
    let day: u64 = words.next()?.parse().ok()?;
    let name = words.next()?;
    let month = months.iter().position(|month| *month == name)? as u64 + 1;
    let year: u64 = words.next()?.parse().ok().filter(|year| (1970..10_000).contains(year))?;
    let mut clock = words.next()?.split(':').map(|part| part.parse::<u64>().ok());
    let (hours, minutes, seconds) = (clock.next()??, clock.next()??, clock.next()??);
    if !(1..=31).contains(&day) || hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    // Days of the civil calendar, by counting years from March.
    let (of_year, of_month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        365 * of_year + of_year / 4 - of_year / 100 + of_year / 400 + (153 * of_month + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    Some(days * 86_400 + hours * 3600 + minutes * 60 + seconds)
}

#[cfg(test)]
mod tests {
    use control_api::Severity;
    use health_rules::{FindingCode, issue};

    use super::*;

    #[test]
    fn looks_that_take_long_come_less_often() {
        assert_eq!(until_next(Duration::from_millis(3)), LOOK_EVERY);
        assert_eq!(until_next(Duration::from_secs(1)), Duration::from_secs(50));
        assert_eq!(until_next(Duration::MAX), LOOK_AT_LEAST_EVERY);
    }

    #[test]
    fn dates_are_read() {
        assert_eq!(http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(http_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(http_date("Thu, 29 Feb 2024 12:00:00 GMT"), Some(1_709_208_000));
        for wrong in [
            "",
            "x",
            "Sun, 06 Xyz 1994 08:49:37 GMT",
            "Sun, 06 Nov 0000 08:49:37 GMT",
            "Sun, 99 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(http_date(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_known_outlives_the_node_and_damage_is_set_aside() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("findings.book");
        let line = || [issue(FindingCode::PoolSpace, Severity::Warning, "pool p", "d", "t")];
        let first = Findings::open(path.clone());
        first.look(false, 50, &mut line());
        assert!(first.take_news().is_empty(), "it starts");
        first.look(true, 100, &mut line());
        assert_eq!(first.take_news().len(), 1);
        let id = health_rules::finding_id("pool-space", "pool p");
        let who = Acknowledgement { by: "a".into(), time: 101, note: String::new() };
        first.book.lock().acknowledge(&id, who);
        first.keep().expect("kept");
        let second = Findings::open(path.clone());
        let mut lines = line();
        second.look(true, 200, &mut lines);
        assert!(second.take_news().is_empty(), "it is no news after a restart");
        assert_eq!((lines[0].since, lines[0].acknowledged.is_some()), (Some(100), true));
        let mut bytes = fs::read(&path).expect("there");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&path, bytes).expect("damaged");
        let third = Findings::open(path.clone());
        assert!(third.book.lock().list(&FindingQuery::default()).expect("a list").is_empty());
        assert!(path.with_extension("damaged").exists() && !path.exists());
        third.look(true, 300, &mut line());
        third.keep().expect("a new one begins");
    }
}
