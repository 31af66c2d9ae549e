//! The sentence is never better than the worst line below it.

use control_api::Acknowledgement;

use super::*;
use crate::{FindingCode, issue as issue_of};

/// What is said where no pool waits and nothing is unknown.
fn headline(
    ready: bool,
    empty: bool,
    redundancy: Option<RedundancyState>,
    issues: &[Issue],
) -> (Verdict, String) {
    super::headline(&Known { ready, empty, redundancy, ..Known::default() }, issues)
}

fn issue(severity: Severity, subject: &str, detail: &str) -> Issue {
    issue_of(FindingCode::PoolSpace, severity, subject, detail, "")
}

const SEVERITIES: [Severity; 4] = [Severity::Critical, Severity::Error, Severity::Warning, Severity::Info];
pub(crate) const REDUNDANCIES: [RedundancyState; 4] = [
    RedundancyState::Unavailable,
    RedundancyState::Reduced,
    RedundancyState::Restoring,
    RedundancyState::Full,
];

/// What the first word of a sentence says about the worst below it.
pub(crate) fn severity_of(sentence: &str) -> Severity {
    match sentence.split(':').next().unwrap_or_default() {
        "UNAVAILABLE" => Severity::Critical,
        "REDUCED" | "FAULT" | "UNKNOWN" => Severity::Error,
        "RESTORING" | "WARNING" | "STARTING" => Severity::Warning,
        "OK" | "EMPTY" => Severity::Info,
        other => panic!("nobody says {other}"),
    }
}

pub(crate) fn never_better(ready: bool, empty: bool, redundancy: Option<RedundancyState>, issues: &[Issue]) {
    let (verdict, sentence) = headline(ready, empty, redundancy, issues);
    let worst = issues.iter().map(|issue| issue.severity).min().unwrap_or(Severity::Info);
    assert!(severity_of(&sentence) <= worst, "{sentence} above {issues:?}");
    let of_data = match redundancy {
        Some(RedundancyState::Unavailable) => Severity::Critical,
        Some(RedundancyState::Reduced) => Severity::Error,
        Some(RedundancyState::Restoring) => Severity::Warning,
        _ => Severity::Info,
    };
    if ready {
        assert!(severity_of(&sentence) <= of_data, "{sentence} while data is {redundancy:?}");
    }
    assert_eq!(
        verdict == Verdict::Unavailable,
        worst == Severity::Critical || of_data == Severity::Critical,
        "{verdict:?} above {issues:?}"
    );
}

#[test]
fn the_sentence_is_as_bad_as_the_worst() {
    let redundancies = REDUNDANCIES.map(Some).into_iter().chain([None]);
    for redundancy in redundancies {
        for (ready, empty) in [(true, true), (true, false), (false, true), (false, false)] {
            for set in 0..16_u32 {
                let listed = SEVERITIES.iter().enumerate().filter(|(bit, _)| set & 1 << bit != 0);
                let issues: Vec<Issue> = listed.map(|(_, severity)| issue(*severity, "it", "x")).collect();
                never_better(ready, empty, redundancy, &issues);
            }
        }
    }
    assert_eq!(
        headline(true, false, Some(RedundancyState::Full), &[]).1,
        "OK: all data is as redundant as promised."
    );
    assert_eq!(headline(true, true, None, &[]).1, "EMPTY: there are no pools yet.");
    let missing = issue(Severity::Error, "disk d of pool p", "it is missing");
    assert_eq!(
        headline(true, false, Some(RedundancyState::Restoring), &[missing]),
        (
            Verdict::Reduced,
            "REDUCED: all data is there; copies are being restored, and 1 thing below must be put right."
                .to_owned()
        ),
        "FAULT would speak of data that is as redundant as promised"
    );
}

/// Ceph's mute is the model: what somebody knows of does not make the sentence worse. Neither what the data is nor what clients cannot read is
/// ever quiet.
#[test]
fn what_is_acknowledged_is_quiet_unless_it_is_the_data() {
    let known = |severity| {
        let acknowledged = Some(Acknowledgement { by: "a".into(), time: 1, note: String::new() });
        Issue { acknowledged, ..issue(severity, "known", "x") }
    };
    let full = Some(RedundancyState::Full);
    let (verdict, sentence) = headline(true, false, full, &[known(Severity::Error)]);
    assert_eq!(verdict, Verdict::FullyRedundant);
    assert_eq!(sentence, "OK: all data is as redundant as promised. 1 thing below is acknowledged.");
    let (_, sentence) =
        headline(true, false, full, &[known(Severity::Error), issue(Severity::Warning, "b", "x")]);
    assert!(sentence.starts_with("WARNING") && sentence.contains("1 thing below needs"), "{sentence}");
    let (verdict, sentence) = headline(true, false, full, &[known(Severity::Critical)]);
    assert_eq!(verdict, Verdict::Unavailable);
    assert!(sentence.starts_with("UNAVAILABLE"), "{sentence}");
    for redundancy in REDUNDANCIES {
        let loud = headline(true, false, Some(redundancy), &[issue(Severity::Error, "known", "x")]).0;
        let (verdict, sentence) = headline(true, false, Some(redundancy), &[known(Severity::Error)]);
        assert_eq!(verdict, loud, "what programs read is the same");
        if redundancy != RedundancyState::Full {
            assert!(!sentence.starts_with("OK"), "{sentence}");
        }
    }
    let mut lines = [known(Severity::Error), issue(Severity::Info, "i", "x"), known(Severity::Critical)];
    sort(&mut lines);
    assert_eq!(lines.map(|line| line.severity), [Severity::Critical, Severity::Info, Severity::Error]);
}
