//! The status of all nodes as one: never better than the worst of them, or than what is not known.

use control_api::{Counts, Issue, Severity, Status, Verdict};
use health_rules::{FindingCode, issue};
use serde_json::Value;

use crate::node::{Node, headline};

/// The status of the node that is asked, with what the others have told, and what those did not tell that are silent.
pub(super) fn merged(node: &Node, own: Value, others: Vec<(String, Value)>, silent: &[String]) -> Value {
    let Ok(own) = serde_json::from_value::<Status>(own.clone()) else { return own };
    // One of another release may say it in another way.
    let told = others.into_iter().map(|(name, status)| {
        serde_json::from_value::<Status>(status).map_err(|_| name.clone()).map(|told| (name, told))
    });
    let (mut heard, mut unheard) = (Vec::new(), silent.to_vec());
    for each in told {
        match each {
            Ok(told) => heard.push(told),
            Err(name) => unheard.push(name),
        }
    }
    let unknown = unheard.into_iter().map(|name| {
        let pools = own.cluster.iter().flat_map(|cluster| &cluster.pools);
        let of =
            pools.filter(|pool| pool.owner.as_deref() == Some(&name)).map(|pool| pool.name.clone()).collect();
        (name, of)
    });
    let unknown: Vec<(String, Vec<String>)> = unknown.collect();
    let all = together(own, heard, &unknown);
    tracing::trace!(node = %node.name(), verdict = ?all.verdict, "status of all nodes");
    serde_json::to_value(all).unwrap_or_default()
}

fn worse(a: Verdict, b: Verdict) -> Verdict {
    let rank = |verdict| match verdict {
        Verdict::Unavailable => 0,
        Verdict::Reduced => 1,
        Verdict::Restoring => 2,
        Verdict::FullyRedundant => 3,
        Verdict::Empty => 4,
    };
    if rank(a) <= rank(b) { a } else { b }
}

/// What all have told. `unknown` are the nodes that have not, each with its pools.
fn together(mut own: Status, others: Vec<(String, Status)>, unknown: &[(String, Vec<String>)]) -> Status {
    let mut worst = own.verdict;
    for (name, other) in others {
        worst = worse(worst, other.verdict);
        for issue in other.issues {
            let same = |known: &&mut Issue| known.subject == issue.subject && known.detail == issue.detail;
            match own.issues.iter_mut().find(same) {
                // Whoever knows of it knows of what all nodes see, and it is there since the first of them saw it.
                Some(known) => {
                    known.since = known.since.into_iter().chain(issue.since).min();
                    // Who knows of a line knows of nothing worse than that.
                    let worst = known.severity.min(issue.severity);
                    if known.severity != worst {
                        (known.severity, known.acknowledged) = (worst, None);
                    }
                    if known.acknowledged.is_none() && issue.acknowledged.is_some() && issue.severity == worst
                    {
                        // It is taken back where it was said.
                        (known.id, known.acknowledged) = (id_at(&name, &issue.id), issue.acknowledged);
                    }
                }
                None => {
                    let subject = of_node(&name, issue.subject);
                    let id = id_at(&name, &issue.id);
                    own.issues.push(Issue { id, subject, ..issue });
                }
            }
        }
        for mut job in other.jobs {
            job.subject = format!("{} on node {name}", job.subject);
            own.jobs.push(job);
        }
        own.counts = sum(own.counts, other.counts);
        own.capacity_bytes += other.capacity_bytes;
        own.free_bytes += other.free_bytes;
    }
    let mut not_known = Vec::new();
    for (name, pools) in unknown {
        let (severity, detail) = if pools.is_empty() {
            (Severity::Warning, "it does not answer; it has no pools".to_owned())
        } else {
            not_known.push(format!(
                "node {name} does not answer: how it is with {} is not known",
                pools.join(", ")
            ));
            let detail = format!(
                "it does not answer; what is wrong with its pools ({}) is not shown",
                pools.join(", ")
            );
            (Severity::Error, detail)
        };
        let todo = format!(
            "Ask again; if that stays so, look at node {name} itself. `holdfast cluster status` says whether the others hear of it."
        );
        own.issues.push(issue(FindingCode::NodeSilent, severity, format!("node {name}"), detail, todo));
    }
    if !not_known.is_empty() {
        worst = worse(worst, Verdict::Reduced);
    }
    health_rules::sort(&mut own.issues);
    (own.verdict, own.summary) = headline(own.ready, worst == Verdict::Empty, worst, &own.issues);
    if !not_known.is_empty() && own.verdict != Verdict::Unavailable {
        own.summary = format!("UNKNOWN: {}.", not_known.join("; "));
    }
    own
}

/// The id of a finding of another node; none where it has none.
fn id_at(node: &str, id: &str) -> String {
    if id.is_empty() { String::new() } else { format!("{node}:{id}") }
}

/// What an issue is about, where it is about something that each node has of its own.
fn of_node(node: &str, subject: String) -> String {
    let common = ["pool ", "volume ", "lun ", "share ", "disk ", "node "];
    if common.iter().any(|word| subject.starts_with(word)) {
        subject
    } else {
        format!("node {node}, {subject}")
    }
}

/// Pools, targets, LUNs and shares are in the configuration of all; what is in use, and open, each node counts of its own.
fn sum(a: Counts, b: Counts) -> Counts {
    let luns = a.luns.max(b.luns);
    let shares = a.shares.max(b.shares);
    Counts {
        pools: a.pools.max(b.pools),
        disks: a.disks + b.disks,
        volumes: a.volumes + b.volumes,
        targets: a.targets.max(b.targets),
        luns,
        luns_online: luns.min(a.luns_online + b.luns_online),
        sessions: a.sessions + b.sessions,
        shares,
        shares_online: shares.min(a.shares_online + b.shares_online),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(node: &str, verdict: &str, issues: Value) -> Status {
        serde_json::from_value(json!({
            "node": node, "version": "1", "uptime_seconds": 1, "ready": true, "verdict": verdict, "summary": "",
            "issues": issues, "jobs": [], "capacity_bytes": 10, "free_bytes": 5, "io_engine": "", "pid": 1, "data_dir": "",
            "counts": { "pools": 2, "disks": 2, "volumes": 1, "targets": 1, "luns": 3, "luns_online": 1, "sessions": 2 },
        }))
        .expect("a status")
    }

    fn all(own: Status, others: Vec<(String, Status)>, unknown: &[(String, Vec<String>)]) -> Status {
        together(own, others, unknown)
    }

    #[test]
    fn the_first_line_is_never_better_than_the_worst_node() {
        let fine = || status("n1", "fully-redundant", json!([]));
        let reduced = |severity: &str| {
            let issue = json!([{ "severity": severity, "subject": "pool p2", "detail": "d", "todo": "" }]);
            ("n2".to_owned(), status("n2", "reduced", issue))
        };
        let told = all(fine(), vec![reduced("error")], &[]);
        assert_eq!(told.verdict, Verdict::Reduced);
        assert!(told.summary.starts_with("REDUCED"), "{}", told.summary);
        assert_eq!((told.counts.luns, told.counts.luns_online, told.counts.sessions), (3, 2, 4));
        assert_eq!(told.capacity_bytes, 20);
        let told = all(fine(), vec![reduced("critical")], &[]);
        assert!(told.summary.starts_with("UNAVAILABLE"), "{}", told.summary);
        let told = all(fine(), vec![("n2".into(), status("n2", "fully-redundant", json!([])))], &[]);
        assert!(told.summary.starts_with("OK"), "{}", told.summary);
    }

    #[test]
    fn what_is_not_known_is_not_called_fine() {
        let fine = status("n1", "fully-redundant", json!([]));
        let told = all(fine.clone(), Vec::new(), &[("n2".into(), vec!["p2".into()])]);
        assert!(told.summary.starts_with("UNKNOWN: node n2"), "{}", told.summary);
        assert_eq!(told.verdict, Verdict::Reduced);
        let told = all(fine, Vec::new(), &[("n3".into(), Vec::new())]);
        assert!(told.summary.starts_with("WARNING"), "{}", told.summary);
    }

    #[test]
    fn what_both_say_is_said_once() {
        let issues = json!([
            { "severity": "warning", "subject": "pool p", "detail": "d", "todo": "" },
            { "severity": "warning", "subject": "portal a", "detail": "e", "todo": "" },
        ]);
        let same = json!([{ "severity": "warning", "subject": "pool p", "detail": "d", "todo": "" }]);
        let told = all(
            status("n1", "fully-redundant", same),
            vec![("n2".into(), status("n2", "fully-redundant", issues))],
            &[],
        );
        let subjects: Vec<&str> = told.issues.iter().map(|issue| issue.subject.as_str()).collect();
        assert_eq!(subjects, ["node n2, portal a", "pool p"]);
    }

    #[test]
    fn an_acknowledgement_of_another_node_is_taken_back_there() {
        let line = |known: bool, severity: &str| {
            let who = known.then(|| json!({ "by": "a", "time": 5 }));
            json!([{ "code": "node-away", "id": "1234", "severity": severity, "subject": "node n3", "detail": "d", "todo": "", "acknowledged": who }])
        };
        let status = |node: &str, issues| status(node, "fully-redundant", issues);
        let told = |own, other| all(status("n1", own), vec![("n2".into(), status("n2", other))], &[]);
        let said = |told: Status| (told.issues[0].id.clone(), told.issues[0].acknowledged.is_some());
        let (open, known) = (line(false, "warning"), line(true, "warning"));
        assert_eq!(said(told(open.clone(), open.clone())), ("1234".into(), false));
        assert_eq!(said(told(open.clone(), known.clone())), ("n2:1234".into(), true));
        assert_eq!(said(told(known.clone(), open.clone())), ("1234".into(), true));
        assert_eq!(said(told(known.clone(), known)), ("1234".into(), true));
        // Whichever of the two says it: it is as bad as the worse of them.
        assert_eq!(told(open, line(false, "error")).issues[0].severity, Severity::Error);
        for (own, other) in [("error", "warning"), ("warning", "error")] {
            let told = told(line(own == "warning", own), line(other == "warning", other));
            assert_eq!((told.issues[0].severity, &told.issues[0].acknowledged), (Severity::Error, &None));
        }
    }
}
