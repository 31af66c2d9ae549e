//! The sentence above all lines, and the order of the lines.

use control_api::{Issue, RedundancyState, Severity, Verdict};

/// Whether somebody knows of a line, so that it does not make the sentence worse. A critical one always does: clients are without their data.
fn is_quiet(issue: &Issue) -> bool {
    issue.acknowledged.is_some() && issue.severity != Severity::Critical
}

/// Puts the worst first, and after all that nobody knows of, what somebody does.
pub fn sort(issues: &mut [Issue]) {
    issues.sort_by(|a, b| (is_quiet(a), a.severity, &a.subject).cmp(&(is_quiet(b), b.severity, &b.subject)));
}

/// The answer to "is all data as redundant as promised?", and a sentence that is as bad as the worst that was found.
pub fn headline(
    ready: bool,
    empty: bool,
    redundancy: Option<RedundancyState>,
    issues: &[Issue],
) -> (Verdict, String) {
    // What programs read is about the data: it is the same whoever knows of what.
    let worst = issues.iter().map(|issue| issue.severity).min().unwrap_or(Severity::Info);
    let verdict = match redundancy {
        _ if worst == Severity::Critical => Verdict::Unavailable,
        Some(RedundancyState::Unavailable) => Verdict::Unavailable,
        Some(RedundancyState::Reduced) => Verdict::Reduced,
        // What is wrong besides may be what keeps it from being restored wholly.
        Some(RedundancyState::Restoring) if worst == Severity::Error => Verdict::Reduced,
        Some(RedundancyState::Restoring) => Verdict::Restoring,
        None if empty => Verdict::Empty,
        Some(RedundancyState::Full) | None => Verdict::FullyRedundant,
    };
    let unknown = |issue: &&Issue| !is_quiet(issue);
    let worst = if verdict == Verdict::Reduced && redundancy == Some(RedundancyState::Restoring) {
        worst
    } else {
        issues.iter().filter(unknown).map(|issue| issue.severity).min().unwrap_or(Severity::Info)
    };
    let data = match verdict {
        Verdict::Restoring => "all data is there; copies are being restored",
        Verdict::Empty => "there are no pools yet",
        _ => "all data is as redundant as promised",
    };
    let counted =
        |issue: &&Issue| issue.severity == worst && (!is_quiet(issue) || verdict == Verdict::Reduced);
    let count = |_| match issues.iter().filter(counted).count() {
        1 => ("1 thing".to_owned(), "needs"),
        count => (format!("{count} things"), "need"),
    };
    let sentence = match (verdict, worst) {
        (Verdict::Unavailable, _) => "UNAVAILABLE: some data cannot be read or written now.".to_owned(),
        (Verdict::Reduced, _) if redundancy == Some(RedundancyState::Restoring) => format!(
            "REDUCED: all data is there; copies are being restored, and {} below must be put right.",
            count(worst).0
        ),
        (Verdict::Reduced, _) => "REDUCED: all data is there, with fewer copies than promised.".to_owned(),
        (_, Severity::Error) => format!("FAULT: {data}, but {} below must be put right.", count(worst).0),
        (Verdict::Restoring, _) => format!("RESTORING: {data}."),
        (_, Severity::Warning) => {
            let (things, need) = count(worst);
            format!("WARNING: {data}; {things} below {need} attention soon.")
        }
        (Verdict::Empty, _) => format!("EMPTY: {data}."),
        _ => format!("OK: {data}."),
    };
    let quiet = issues.iter().filter(|issue| is_quiet(issue) && issue.severity < Severity::Info).count();
    let sentence = match quiet {
        0 => sentence,
        1 => format!("{sentence} 1 thing below is acknowledged."),
        quiet => format!("{sentence} {quiet} things below are acknowledged."),
    };
    match (ready, worst) {
        (true, _) => (verdict, sentence),
        // What is not open yet is no news.
        (false, Severity::Warning | Severity::Info) => {
            (verdict, "STARTING: pools and volumes are being opened.".to_owned())
        }
        (false, _) => (verdict, format!("{sentence} (Starting: pools and volumes are being opened.)")),
    }
}

#[cfg(test)]
pub(crate) mod tests;
