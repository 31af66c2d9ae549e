//! The book of findings: what was seen at looks, since when, how often, who knows of it, and what has gone.

use std::collections::{BTreeMap, BTreeSet};

use control_api::{Acknowledgement, Finding, FindingQuery, FindingState, Issue, Severity};
use serde::{Deserialize, Serialize};

/// Seconds that a finding must have stayed away to count as gone.
pub const CLEAR_AFTER: u64 = 300;
/// Most findings that are followed; of more, the worst are. A node with more of them has one trouble, not so many.
pub const MOST_FINDINGS: usize = 2000;
/// Most findings that are remembered after they have gone.
pub const MOST_CLEARED: usize = 500;
/// Seconds that one is remembered after it has gone: thirty days.
pub const KEPT_SECONDS: u64 = 30 * 86_400;
/// Bytes that are kept of each text of a finding.
const MOST_TEXT: usize = 1000;
/// Bytes that are kept of a note.
const MOST_NOTE: usize = 500;
/// When a finding was last seen is written at least so often, in seconds.
const FRESHEN: u64 = 3600;

/// The id of a finding: FNV-1a of its code and its subject, in hexadecimal.
#[must_use]
pub fn finding_id(code: &str, subject: &str) -> String {
    let bytes = code.bytes().chain([0]).chain(cut(subject, MOST_TEXT).into_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// A finding as the book has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    pub(crate) code: String,
    pub(crate) subject: String,
    pub(crate) severity: Severity,
    /// The worst that it was this time: what is told of it is told once.
    pub(crate) worst: Severity,
    pub(crate) detail: String,
    pub(crate) todo: String,
    pub(crate) first_seen: u64,
    pub(crate) last_seen: u64,
    /// Since when it has been there without being gone at any look; none from a file that does not tell it, where it is `first_seen`.
    #[serde(default)]
    pub(crate) since: Option<u64>,
    /// Since when it has stayed away.
    pub(crate) gone: Option<u64>,
    /// It counts as gone.
    pub(crate) cleared: bool,
    pub(crate) times: u64,
    pub(crate) acknowledged: Option<(Severity, Acknowledgement)>,
}

impl Row {
    fn of(issue: &Issue, now: u64, times: u64) -> Self {
        Self {
            code: issue.code.clone(),
            subject: cut(&issue.subject, MOST_TEXT),
            severity: issue.severity,
            worst: issue.severity,
            detail: cut(&issue.detail, MOST_TEXT),
            todo: cut(&issue.todo, MOST_TEXT),
            first_seen: now,
            last_seen: now,
            since: Some(now),
            gone: None,
            cleared: false,
            times,
            acknowledged: None,
        }
    }

    fn state(&self) -> FindingState {
        match (self.cleared, self.gone) {
            (true, _) => FindingState::Cleared,
            (false, Some(_)) => FindingState::Clearing,
            (false, None) => FindingState::Active,
        }
    }

    fn finding(&self, id: &str) -> Finding {
        Finding {
            id: id.to_owned(),
            code: self.code.clone(),
            severity: self.severity,
            subject: self.subject.clone(),
            detail: self.detail.clone(),
            todo: self.todo.clone(),
            state: self.state(),
            first_seen: self.first_seen,
            last_seen: self.last_seen,
            cleared: self.gone.filter(|_| self.cleared),
            times: self.times,
            acknowledged: self.acknowledged.as_ref().map(|(_, who)| who.clone()),
        }
    }
}

/// What has changed at a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It was first seen, this time.
    Seen(Finding),
    /// It has become worse than it ever was this time.
    Worse(Finding),
    /// It has gone.
    Cleared(Finding),
}

impl News {
    /// The finding.
    #[must_use]
    pub fn finding(&self) -> &Finding {
        match self {
            Self::Seen(finding) | Self::Worse(finding) | Self::Cleared(finding) => finding,
        }
    }
}

/// The book.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Book {
    pub(crate) rows: BTreeMap<String, Row>,
    changed: bool,
}

/// A text that is not longer than this, cut where a character begins.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

impl Book {
    /// Takes the issues of a look into the book. `now` is in seconds since 1970, by a clock that may be set.
    pub fn look(&mut self, now: u64, issues: &[Issue]) -> Vec<News> {
        let mut news = Vec::new();
        let mut worst_first: Vec<&Issue> = issues.iter().filter(|issue| !issue.code.is_empty()).collect();
        worst_first.sort_by_key(|issue| issue.severity);
        let mut seen = BTreeSet::new();
        for issue in worst_first {
            let id = finding_id(&issue.code, &issue.subject);
            // Two lines of one rule about one thing are one finding: the worse one.
            if seen.len() >= MOST_FINDINGS || !seen.insert(id.clone()) {
                continue;
            }
            self.see(now, id, issue, &mut news);
        }
        for (id, row) in self.rows.iter_mut().filter(|(id, row)| !row.cleared && !seen.contains(*id)) {
            let gone = match row.gone {
                // A clock that was set back would keep it for ever.
                Some(gone) if gone <= now => gone,
                _ => {
                    self.changed = true;
                    *row.gone.insert(now)
                }
            };
            if now - gone >= CLEAR_AFTER {
                row.cleared = true;
                self.changed = true;
                news.push(News::Cleared(row.finding(id)));
            }
        }
        self.forget(now);
        news
    }

    fn see(&mut self, now: u64, id: String, issue: &Issue, news: &mut Vec<News>) {
        let fresh = match self.rows.get(&id) {
            None => Some(1),
            Some(row) if row.cleared => Some(row.times.saturating_add(1)),
            Some(_) => None,
        };
        if let Some(times) = fresh {
            let row = Row::of(issue, now, times);
            news.push(News::Seen(row.finding(&id)));
            self.rows.insert(id, row);
            self.changed = true;
            return;
        }
        let Some(row) = self.rows.get_mut(&id) else { return };
        let before = (row.severity, row.gone, row.acknowledged.is_some());
        row.severity = issue.severity;
        row.detail = cut(&issue.detail, MOST_TEXT);
        row.todo = cut(&issue.todo, MOST_TEXT);
        if row.gone.take().is_some() {
            row.times = row.times.saturating_add(1);
            // It is the same finding, and it was gone: what is said of how long it has been there is about this time.
            row.since = Some(now);
        }
        // Worse is less: the order of severities is worst first.
        row.acknowledged.take_if(|(known, _)| issue.severity < *known);
        let worse = issue.severity < row.worst;
        row.worst = row.worst.min(issue.severity);
        if now < row.last_seen || now - row.last_seen >= FRESHEN {
            self.changed = true;
        }
        let written = (row.severity, row.gone, row.acknowledged.is_some()) == before;
        self.changed |= !written;
        // `last_seen` alone is not worth a write each time; what is on the disk is at most an hour old.
        row.last_seen = now;
        row.first_seen = row.first_seen.min(now);
        row.since = Some(row.since.unwrap_or(row.first_seen).min(now));
        if worse {
            news.push(News::Worse(row.finding(&id)));
        }
    }

    fn forget(&mut self, now: u64) {
        let count = self.rows.len();
        self.rows.retain(|_, row| {
            !row.cleared || row.gone.is_none_or(|gone| now.saturating_sub(gone) < KEPT_SECONDS)
        });
        let cleared = self.rows.values().filter(|row| row.cleared).count();
        if cleared > MOST_CLEARED {
            let mut old: Vec<(u64, String)> = self
                .rows
                .iter()
                .filter(|(_, row)| row.cleared)
                .map(|(id, row)| (row.gone.unwrap_or(0), id.clone()))
                .collect();
            old.sort();
            for (_, id) in old.into_iter().take(cleared - MOST_CLEARED) {
                self.rows.remove(&id);
            }
        }
        // What may come back counts as followed, too: the oldest of it goes when there is too much.
        let mut clearing: Vec<(u64, String)> = self
            .rows
            .iter()
            .filter(|(_, row)| !row.cleared && row.gone.is_some())
            .map(|(id, row)| (row.gone.unwrap_or(0), id.clone()))
            .collect();
        if clearing.len() > MOST_FINDINGS {
            clearing.sort();
            for (_, id) in clearing.iter().take(clearing.len() - MOST_FINDINGS) {
                self.rows.remove(id);
            }
        }
        self.changed |= self.rows.len() != count;
    }

    /// Says of each issue what the book knows of it.
    pub fn annotate(&self, issues: &mut [Issue]) {
        for issue in issues.iter_mut().filter(|issue| !issue.code.is_empty()) {
            issue.id = finding_id(&issue.code, &issue.subject);
            let Some(row) = self.rows.get(&issue.id).filter(|row| !row.cleared) else { continue };
            // One that was gone at the last look has not been there since then.
            issue.since = row.since.or(Some(row.first_seen)).filter(|_| row.gone.is_none());
            // One that has just got worse is not known of.
            let known = row.acknowledged.as_ref().filter(|(known, _)| issue.severity >= *known);
            issue.acknowledged = known.map(|(_, who)| who.clone());
        }
    }

    /// Somebody knows of a finding that is there, or may come back. `None` when there is none such.
    pub fn acknowledge(&mut self, id: &str, who: Acknowledgement) -> Option<Finding> {
        let row = self.rows.get_mut(id).filter(|row| !row.cleared)?;
        let note = cut(&who.note, MOST_NOTE);
        row.acknowledged = Some((row.severity, Acknowledgement { note, ..who }));
        self.changed = true;
        Some(row.finding(id))
    }

    /// It is not acknowledged any more. `None` when there is no such finding.
    pub fn unacknowledge(&mut self, id: &str) -> Option<Finding> {
        let row = self.rows.get_mut(id).filter(|row| !row.cleared)?;
        self.changed |= row.acknowledged.take().is_some();
        Some(row.finding(id))
    }

    /// The findings that are asked for: those that are there first, the worst first; what somebody knows of after what nobody does.
    ///
    /// # Errors
    /// When the state that is asked for is none.
    pub fn list(&self, query: &FindingQuery) -> Result<Vec<Finding>, String> {
        let wanted: &[FindingState] = match query.state.as_deref() {
            None | Some("active") => &[FindingState::Active, FindingState::Clearing],
            Some("cleared") => &[FindingState::Cleared],
            Some("all") => &[FindingState::Active, FindingState::Clearing, FindingState::Cleared],
            Some(other) => return Err(format!("{other:?} is no state of findings: active, cleared, all.")),
        };
        let fits = |row: &Row| {
            wanted.contains(&row.state())
                && query.severity.is_none_or(|least| row.severity <= least)
                && query.code.as_ref().is_none_or(|code| row.code == *code)
                && query.acknowledged.is_none_or(|known| row.acknowledged.is_some() == known)
        };
        let mut found: Vec<Finding> =
            self.rows.iter().filter(|(_, row)| fits(row)).map(|(id, row)| row.finding(id)).collect();
        found.sort_by(|a, b| {
            let key = |finding: &Finding| {
                let newest = u64::MAX - finding.cleared.unwrap_or(0);
                (
                    finding.state == FindingState::Cleared,
                    finding.acknowledged.is_some(),
                    finding.severity,
                    newest,
                )
            };
            (key(a), &a.subject).cmp(&(key(b), &b.subject))
        });
        found.truncate(query.limit.unwrap_or(usize::MAX));
        Ok(found)
    }

    /// Whether it has changed since this was last asked: then it is to be written.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// What was taken could not be written: it is to be tried again.
    pub fn keep_changed(&mut self) {
        self.changed = true;
    }
}

#[cfg(test)]
mod tests;
