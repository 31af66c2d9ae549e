//! Errors that the node has written to its log.

use std::collections::VecDeque;

use control_api::{Issue, Severity, many};

use crate::{FindingCode, issue};

/// Seconds for which an error is worth a line.
const NEWS: u64 = 3600;
/// Errors whose times are kept; more are told as "at least so many".
const MOST: usize = 1000;
/// Bytes of an error's text that are kept.
const MOST_TEXT: usize = 300;

/// The errors of the last hour.
#[derive(Clone, Debug, Default)]
pub struct LogErrors {
    times: VecDeque<u64>,
    last: String,
}

impl LogErrors {
    /// None so far.
    #[must_use]
    pub const fn new() -> Self {
        Self { times: VecDeque::new(), last: String::new() }
    }

    /// One was written. `now` is in seconds, by a clock that nobody sets.
    pub fn note(&mut self, now: u64, text: &str) {
        if self.times.len() >= MOST {
            self.times.pop_front();
        }
        self.times.push_back(now);
        self.last = text.chars().filter(|c| !c.is_control()).take(MOST_TEXT).collect();
    }

    /// The line about them.
    pub fn issue(&mut self, now: u64) -> Option<Issue> {
        while self.times.front().is_some_and(|time| now.saturating_sub(*time) >= NEWS) {
            self.times.pop_front();
        }
        let count = self.times.len();
        if count == 0 {
            return None;
        }
        let least = if count == MOST { "at least " } else { "" };
        let detail =
            format!("the node has written {least}{} to it within an hour, the last one: {}", many(count as u64, "error"), self.last);
        let todo = "`journalctl -u holdfast -p err` shows them, where the node is a service; otherwise look at what it prints.";
        Some(issue(FindingCode::LogErrors, Severity::Info, "log", detail, todo))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fires_for_an_hour_and_clears() {
        let mut errors = LogErrors::new();
        assert_eq!(errors.issue(0), None);
        errors.note(10, "a disk\nfailed");
        errors.note(20, "again");
        let told = errors.issue(30).expect("told");
        assert!(told.detail.contains("2 errors") && told.detail.ends_with("again"), "{}", told.detail);
        assert!(errors.issue(20 + NEWS - 1).expect("told").detail.contains("1 error "));
        assert_eq!(errors.issue(20 + NEWS), None);
        for _ in 0..3 * MOST {
            errors.note(9000, &"x".repeat(10_000));
        }
        let told = errors.issue(9000).expect("told");
        assert!(told.detail.contains("at least 1000 errors") && told.detail.len() < 500, "{}", told.detail);
    }
}
