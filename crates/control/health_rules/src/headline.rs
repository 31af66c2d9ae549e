//! The sentence above all lines, and the order of the lines.

use control_api::{Issue, RedundancyState, Severity, Verdict};

use crate::unserved::is_of_unserved;

/// Whether somebody knows of a line, so that it does not make the sentence worse. A critical one always does: clients are without their data.
fn is_quiet(issue: &Issue) -> bool {
    issue.acknowledged.is_some() && issue.severity != Severity::Critical
}

/// Puts the worst first, and after all that nobody knows of, what somebody does.
pub fn sort(issues: &mut [Issue]) {
    issues.sort_by(|a, b| (is_quiet(a), a.severity, &a.subject).cmp(&(is_quiet(b), b.severity, &b.subject)));
}

/// What is known of the data beside the lines.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// All has been opened that could be.
    pub ready: bool,
    /// There are no pools.
    pub empty: bool,
    /// The cluster has removed the node that says it: of the cluster's data nothing is here, and nothing is known.
    pub removed: bool,
    /// The worst redundancy of data that can be looked into.
    pub redundancy: Option<RedundancyState>,
    /// Pools that no node serves, each as a part of a sentence.
    pub waits: &'a [String],
    /// What is not known of pools, likewise.
    pub not_known: &'a [String],
}

/// The answer to "is all data as redundant as promised?", and a sentence that is as bad as the worst that was found, or is not known.
pub fn headline(known: &Known<'_>, issues: &[Issue]) -> (Verdict, String) {
    let &Known { ready, empty, waits, not_known, .. } = known;
    if known.removed {
        let sentence =
            "REMOVED: the cluster has removed this node, and nothing of the cluster is served here.";
        return (Verdict::Reduced, sentence.to_owned());
    }
    // What programs read is about the data: it is the same whoever knows of what.
    let worst = issues.iter().map(|issue| issue.severity).min().unwrap_or(Severity::Info);
    // Of data that is not known nobody says that it is as redundant as promised.
    let redundancy = match known.redundancy {
        redundancy if not_known.is_empty() => redundancy,
        Some(redundancy) => Some(redundancy.min(RedundancyState::Reduced)),
        None => Some(RedundancyState::Reduced),
    };
    let verdict = match redundancy {
        _ if worst == Severity::Critical || !waits.is_empty() => Verdict::Unavailable,
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
        (Verdict::Unavailable, _) => unavailable(known, issues),
        (Verdict::Reduced, _) if !not_known.is_empty() => of_not_known(known),
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
    let is_news = worst <= Severity::Error || !waits.is_empty() || !not_known.is_empty();
    match (ready, is_news) {
        (true, _) => (verdict, sentence),
        // What is not open yet is no news.
        (false, false) => (verdict, "STARTING: pools and volumes are being opened.".to_owned()),
        (false, true) => (verdict, format!("{sentence} (Starting: pools and volumes are being opened.)")),
    }
}

/// Clients are without some of their data: what waits for a pool that moves is said as that, and not taken for lost.
fn unavailable(known: &Known<'_>, issues: &[Issue]) -> String {
    let is_more = |issue: &Issue| issue.severity == Severity::Critical && !is_of_unserved(issue);
    let more = known.waits.is_empty()
        || known.redundancy == Some(RedundancyState::Unavailable)
        || issues.iter().any(is_more);
    let more = more.then(|| "some data cannot be read or written now".to_owned());
    let parts = more.into_iter().chain(known.waits.iter().chain(known.not_known).cloned());
    format!("UNAVAILABLE: {}.", parts.collect::<Vec<_>>().join("; "))
}

/// What is not known, and what is known to be worse than promised beside it.
fn of_not_known(known: &Known<'_>) -> String {
    let reduced = known.redundancy == Some(RedundancyState::Reduced);
    let reduced = reduced.then(|| "other data has fewer copies than promised".to_owned());
    let parts = known.not_known.iter().cloned().chain(reduced);
    format!("UNKNOWN: {}.", parts.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
pub(crate) mod tests;
