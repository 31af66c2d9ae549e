//! The report: what is wrong, worst first, then section by section how everything is. Made of a bundle and nothing else.

use control_api::{Severity, Status};
use serde::Serialize;

use super::bundle::Bundle;
use super::machine::Machine;
use super::samples::{self, Sample, VolumePerformance};
use super::section::Section;
use super::sections;
use crate::finding::Finding;
use crate::table::word;

/// How many of something there should be.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) what: &'static str,
    pub(super) count: u64,
}

/// The whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Report {
    /// `the node`, or the archive.
    pub(super) source: String,
    pub(super) node: String,
    pub(super) version: String,
    pub(super) made_unix: u64,
    /// As `status` has it; `unknown` where the node does not answer.
    pub(super) verdict: String,
    pub(super) summary: String,
    /// Worst first.
    pub(super) findings: Vec<Finding>,
    pub(super) sections: Vec<Section>,
    /// The busiest volume first.
    pub(super) performance: Vec<VolumePerformance>,
    /// Seconds that the performance is of.
    pub(super) samples: u64,
    /// What the charts are drawn of.
    #[serde(skip)]
    pub(super) seconds: Vec<Sample>,
    /// What could not be looked at, and why.
    pub(super) missing: std::collections::BTreeMap<String, String>,
}

impl Report {
    pub(super) fn of(bundle: &Bundle, source: &str, expected: &[Expected]) -> Self {
        let manifest = &bundle.manifest;
        let status = bundle.json::<Status>("status.json").ok();
        let sections = sections::all(bundle, status.as_ref());
        let seconds: Vec<Sample> = bundle.json("samples.json").unwrap_or_default();
        let mut findings = told(manifest.unreachable.as_deref(), status.as_ref());
        findings.extend(network(bundle));
        findings.extend(expected.iter().filter_map(|expected| unexpected(expected, &sections)));
        findings.sort_by_key(|finding| finding.severity);
        Self {
            source: source.to_owned(),
            node: manifest.node.clone(),
            version: manifest.version.clone(),
            made_unix: manifest.made_unix,
            verdict: status.as_ref().map_or_else(|| "unknown".into(), |status| word(&status.verdict)),
            summary: match &status {
                Some(status) => status.summary.clone(),
                None => "UNKNOWN: the node does not answer; what follows is what its machine and its configuration tell".into(),
            },
            findings,
            performance: samples::by_volume(&seconds),
            samples: seconds.iter().map(|sample| sample.sample).max().unwrap_or(0),
            seconds,
            sections,
            missing: manifest.missing.clone(),
        }
    }
}

/// What the node says of itself; or that it says nothing.
fn told(unreachable: Option<&str>, status: Option<&Status>) -> Vec<Finding> {
    if let Some(why) = unreachable {
        return vec![Finding {
            severity: Severity::Critical,
            subject: "node".into(),
            detail: format!(
                "it does not answer, so that nothing is served by it, and nothing is known of its disks ({why})"
            ),
            todo: "start it: systemctl start holdfast; if it ends again, journalctl -u holdfast -e says why"
                .into(),
        }];
    }
    let issues = status.into_iter().flat_map(|status| &status.issues);
    let finding = |issue: &control_api::Issue| Finding {
        severity: issue.severity,
        subject: subject(issue, status),
        detail: issue.detail.clone(),
        todo: issue.todo.clone(),
    };
    issues.map(finding).collect()
}

/// What an issue is about, and in a cluster which node says so, where that is not said by it.
fn subject(issue: &control_api::Issue, status: Option<&Status>) -> String {
    let names_node =
        ["node ", "nodes ", "cluster ", "clocks of "].iter().any(|of| issue.subject.starts_with(of));
    let Some(status) = status.filter(|status| status.cluster.is_some() && !names_node) else {
        return issue.subject.clone();
    };
    // Of other nodes they are named before the id.
    let node = issue.id.split_once(':').map_or(status.node.as_str(), |(node, _)| node);
    format!("{} (node {node})", issue.subject)
}

/// What about the machine's network costs speed or safety; what could merely be better is said by `holdfast net`.
fn network(bundle: &Bundle) -> impl Iterator<Item = Finding> {
    let machine = bundle.json::<Machine>("machine.json").unwrap_or_default();
    let all = machine.network.advice().into_iter().map(Finding::from);
    all.filter(|finding| finding.severity < Severity::Info)
}

/// A number that is not what it should be.
fn unexpected(expected: &Expected, sections: &[Section]) -> Option<Finding> {
    let found = sections.iter().find(|section| section.name == expected.what)?.count;
    if found == Some(expected.count) {
        return None;
    }
    let (count, what) = (expected.count, sections::one(expected.what));
    let fewer = found.is_none_or(|found| found < count);
    Some(Finding {
        severity: if fewer { Severity::Error } else { Severity::Warning },
        subject: expected.what.to_owned(),
        detail: match found {
            Some(found) => format!("{} expected, {found} found", crate::units::many(count, what)),
            None => format!("{} expected; how many there are is not known", crate::units::many(count, what)),
        },
        todo: if fewer {
            format!("find out which {what} is not there, and why")
        } else {
            format!("if the new {what} belongs here, expect one more")
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_cluster_a_finding_names_its_node() {
        let issue = |id: &str, subject: &str| {
            let text = serde_json::json!({ "code": "disk-missing", "id": id, "severity": "error", "subject": subject, "detail": "d", "todo": "t" });
            serde_json::from_value::<control_api::Issue>(text).expect("an issue")
        };
        let status = |cluster: bool| {
            let cluster = cluster.then(|| {
                serde_json::json!({ "cluster": "c", "node": "n1", "takes_part": true, "summary": [], "pools": [], "nodes": [] })
            });
            let text = serde_json::json!({
                "node": "n1", "version": "1", "uptime_seconds": 1, "ready": true, "verdict": "reduced", "summary": "", "issues": [],
                "jobs": [], "capacity_bytes": 0, "free_bytes": 0, "io_engine": "", "pid": 1, "data_dir": "", "cluster": cluster,
                "counts": { "pools": 0, "disks": 0, "volumes": 0, "targets": 0, "luns": 0, "luns_online": 0, "sessions": 0 },
            });
            serde_json::from_value::<Status>(text).expect("a status")
        };
        let clustered = status(true);
        assert_eq!(subject(&issue("n2:12", "disk d"), Some(&clustered)), "disk d (node n2)");
        assert_eq!(subject(&issue("12", "disk d"), Some(&clustered)), "disk d (node n1)");
        assert_eq!(subject(&issue("n2:12", "node n3"), Some(&clustered)), "node n3");
        assert_eq!(subject(&issue("12", "disk d"), Some(&status(false))), "disk d");
    }

    #[test]
    fn a_node_that_is_down_is_the_worst_finding() {
        let mut bundle = Bundle::new("1", 0);
        bundle.manifest.unreachable = Some("refused".into());
        bundle.put("config.toml", "schema = 1\n");
        let expected = [Expected { what: "disks", count: 4 }];
        let report = Report::of(&bundle, "x", &expected);
        assert_eq!(report.verdict, "unknown");
        assert_eq!(report.findings[0].severity, Severity::Critical);
        assert!(
            report.findings.iter().any(|finding| finding.detail.contains("4 disks expected")),
            "{:?}",
            report.findings
        );
    }

    #[test]
    fn other_numbers_than_expected_are_findings() {
        let section = |count| Section { name: "disks", count: Some(count), ..Section::default() };
        let expected = Expected { what: "disks", count: 3 };
        assert_eq!(unexpected(&expected, &[section(3)]), None);
        assert_eq!(unexpected(&expected, &[section(2)]).unwrap().severity, Severity::Error);
        let more = unexpected(&expected, &[section(4)]).unwrap();
        assert_eq!(more.severity, Severity::Warning);
        assert_eq!(more.detail, "3 disks expected, 4 found");
    }
}
