//! Storage QoS: policies, which LUN has which, and what initiators get.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use control_api::{
    Code, Config, Done, FlowStatus, Issue, LunConfig, Policies, Policy, PolicyKind, Problem, Protocol,
    QosFlow, QosPolicy, QosPolicyCreate, QosPolicyDetail, QosPolicyRemove, QosPolicyUpdate, QosSettings,
    QosUpdate, Severity,
};
use health_rules::{FindingCode, of_rule};
use qos_exchange::Exchange;
use qos_gate::{Asked, DiskName, FlowReport};
use qos_policy::{Effective, Measured};
use uuid::Uuid;

use super::luns::new_guid;
use super::{Node, confirm, missing, taken};
use crate::backend::FlowOn;

/// LUNs that are named where many have a policy.
const NAMED: usize = 5;

pub(super) fn find(config: &Config, word: &str) -> Result<Policy, Problem> {
    let found = Policies::find(&config.qos_policies, word).cloned();
    found.ok_or_else(|| missing("policy", word, "holdfast qos policy list"))
}

/// What has a policy, in words.
fn subjects_of(config: &Config, policy: Uuid) -> Vec<String> {
    let luns = config.qos_assignments.iter().filter(|row| row.policy == policy);
    let luns = luns.map(|row| format!("LUN {}", row.lun));
    let places = config.qos_places.iter().filter(|place| place.policy == policy);
    luns.chain(places.map(ToString::to_string)).collect()
}

/// The first few of some names.
fn few(names: &[String]) -> String {
    let shown = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > NAMED { format!("{shown} and {} more", names.len() - NAMED) } else { shown }
}

/// A number of a change: absent stays, 0 is none.
fn changed(now: Option<u64>, wanted: Option<u64>) -> Option<u64> {
    wanted.map_or(now, |value| (value > 0).then_some(value))
}

impl Node {
    /// What nodes tell each other of the demand for policies that they share.
    pub(crate) fn qos_exchange(&self) -> Arc<Exchange> {
        self.backends.qos_exchange.clone()
    }

    /// What holds for all disks.
    pub fn qos_show(&self) -> QosSettings {
        self.config.with(|config| config.qos)
    }

    /// Changes what holds for all disks.
    pub async fn qos_update(&self, update: QosUpdate) -> Result<QosSettings, Problem> {
        let _changing = self.changes.lock().await;
        self.change(|config| {
            let qos = &mut config.qos;
            qos.unit_bytes = update.unit_bytes.unwrap_or(qos.unit_bytes);
            qos.volume_depth = update.volume_depth.unwrap_or(qos.volume_depth);
            qos.latency_target_us = update.latency_target_us.unwrap_or(qos.latency_target_us);
            Ok(*qos)
        })
        .await
    }

    /// Policies, those with flows in trouble first.
    pub fn qos_policy_list(&self) -> Vec<QosPolicy> {
        let config = self.config.get();
        let flows = self.qos_flow_list();
        let mut worst: BTreeMap<Uuid, FlowStatus> = BTreeMap::new();
        for flow in &flows {
            if let Some(guid) = flow.policy_guid {
                let status = worst.entry(guid).or_default();
                *status = flow.status.max(*status);
            }
        }
        let mut luns: BTreeMap<Uuid, Vec<String>> = BTreeMap::new();
        for row in &config.qos_assignments {
            luns.entry(row.policy).or_default().push(row.lun.clone());
        }
        let mut places: BTreeMap<Uuid, Vec<String>> = BTreeMap::new();
        for place in &config.qos_places {
            places.entry(place.policy).or_default().push(place.to_string());
        }
        let mut policies: Vec<QosPolicy> = config
            .qos_policies
            .into_iter()
            .map(|policy| QosPolicy {
                luns: luns.remove(&policy.guid).unwrap_or_default(),
                places: places.remove(&policy.guid).unwrap_or_default(),
                status: worst.get(&policy.guid).copied().unwrap_or_default(),
                policy,
            })
            .collect();
        policies.sort_by(|a, b| (b.status, &a.policy.name).cmp(&(a.status, &b.policy.name)));
        policies
    }

    /// A policy by its name or GUID, and its flows.
    pub fn qos_policy_detail(&self, word: &str) -> Result<QosPolicyDetail, Problem> {
        let guid = self.config.with(|config| find(config, word).map(|policy| policy.guid))?;
        let flows = self.qos_flow_list().into_iter();
        let flows = flows.filter(|flow| flow.policy_guid == Some(guid)).collect();
        Ok(QosPolicyDetail { policy: self.qos_policy_show(guid)?, flows, unanswered: Vec::new() })
    }

    pub(super) fn qos_policy_show(&self, guid: Uuid) -> Result<QosPolicy, Problem> {
        let all = self.qos_policy_list();
        let found = all.into_iter().find(|policy| policy.policy.guid == guid);
        found.ok_or_else(|| missing("policy", &guid.to_string(), "holdfast qos policy list"))
    }

    /// Makes a policy.
    pub async fn qos_policy_create(&self, request: QosPolicyCreate) -> Result<QosPolicy, Problem> {
        let _changing = self.changes.lock().await;
        let guid = match request.guid {
            Some(guid) => guid,
            None => new_guid()?,
        };
        self.change(|config| {
            let same = |there: &Policy| there.name.eq_ignore_ascii_case(&request.name);
            if config.qos_policies.iter().any(same) {
                return Err(taken("policy", &request.name));
            }
            config.qos_policies.push(Policy {
                guid,
                name: request.name.clone(),
                kind: request.kind,
                min_iops: request.min_iops,
                max_iops: request.max_iops,
                max_bandwidth: request.max_bandwidth,
            });
            Ok(())
        })
        .await?;
        self.qos_policy_show(guid)
    }

    /// Changes a policy, also for what waits.
    pub async fn qos_policy_update(&self, word: &str, update: QosPolicyUpdate) -> Result<QosPolicy, Problem> {
        let _changing = self.changes.lock().await;
        let guid = self
            .change(|config| {
                let guid = find(config, word)?.guid;
                let policy = config.qos_policies.iter_mut().find(|policy| policy.guid == guid);
                if let Some(policy) = policy {
                    if let Some(name) = &update.name {
                        policy.name.clone_from(name);
                    }
                    policy.min_iops = changed(policy.min_iops, update.min_iops);
                    policy.max_iops = changed(policy.max_iops, update.max_iops);
                    policy.max_bandwidth = changed(policy.max_bandwidth, update.max_bandwidth);
                }
                Ok(guid)
            })
            .await?;
        self.qos_policy_show(guid)
    }

    /// Takes a policy away.
    pub async fn qos_policy_delete(&self, word: &str, request: QosPolicyRemove) -> Result<Done, Problem> {
        let _changing = self.changes.lock().await;
        let (policy, subjects) = self.config.with(|config| {
            let policy = find(config, word)?;
            let subjects = subjects_of(config, policy.guid);
            Ok((policy, subjects))
        })?;
        let name = &policy.name;
        if !subjects.is_empty() && !request.force {
            return Err(Problem::new(
                Code::InUse,
                format!("Policy {name} is given to {}.", few(&subjects)),
            )
            .todo(
                "Take it from them with `holdfast qos unassign`, or repeat with --force: they are without limits then, and show UnknownPolicyId.",
            ));
        }
        confirm(name, request.confirm.as_deref(), || {
            vec![format!(
                "Policy {name} disappears; what it is given to ({}) has no limits and no minimum then.",
                subjects.len()
            )]
        })?;
        self.change(|config| {
            config.qos_policies.retain(|there| there.guid != policy.guid);
            Ok(())
        })
        .await?;
        Ok(Done::new(format!("Policy {name} is gone.")))
    }

    /// What is wrong with policies, for the status.
    pub(super) fn qos_issues(&self) -> Vec<Issue> {
        if self.config.with(|config| config.qos_assignments.is_empty() && config.qos_places.is_empty()) {
            return Vec::new();
        }
        issues(&self.config.get(), &self.qos_flow_list())
    }

    /// What initiators do with LUNs and clients with files, those in trouble first.
    pub fn qos_flow_list(&self) -> Vec<QosFlow> {
        let reports = self.flows_here();
        let config = self.config.get();
        let mut flows = describe_all(&config, (&self.name(), &self.backends.qos_exchange), reports);
        flows.sort_by(|a, b| {
            let hurts = |flow: &QosFlow| (flow.status, flow.held_us.saturating_mul(flow.normalized_iops));
            (hurts(b), &a.lun, &a.file, &a.initiator).cmp(&(hurts(a), &b.lun, &b.file, &b.initiator))
        });
        flows
    }
}

/// A flow, the volume that it is on, and what holds for it.
struct Known<'a> {
    volume: String,
    report: FlowReport,
    file: String,
    effective: Effective<'a>,
}

pub(super) fn describe_all(
    config: &Config,
    (node, exchange): (&str, &Exchange),
    reports: Vec<FlowOn>,
) -> Vec<QosFlow> {
    let policies = config.policies();
    let luns: BTreeMap<&str, &LunConfig> = config.luns.iter().map(|lun| (lun.name.as_str(), lun)).collect();
    let known = |FlowOn { volume, guid, report }: FlowOn| {
        let on = (guid, volume.as_str());
        let (file, effective) = match &report.disk {
            DiskName::File(path) => (path.clone(), policies.of_file(on, path)),
            DiskName::Flow(_, path) => {
                let asked = match report.asked {
                    Asked::Policy(guid) => policies.of_guid(guid),
                    Asked::Nothing | Asked::Terms(_) => Effective::None,
                };
                let said = policies.of_file(on, path);
                (path.clone(), if said == Effective::None { asked } else { said })
            }
            DiskName::Lun(name) => {
                let file = luns.get(name.as_str()).map(|lun| lun.path.clone()).unwrap_or_default();
                let effective = policies.of_lun_at(name, on, &file);
                (file, effective)
            }
        };
        Known { volume, report, file, effective }
    };
    let known: Vec<Known<'_>> = reports.into_iter().map(known).collect();
    let together = together(&known, exchange);
    known.into_iter().map(|known| describe(&together, node, known)).collect()
}

/// LUNs whose policy is not there, and policies whose minimum is asked for and not met.
fn issues(config: &Config, flows: &[QosFlow]) -> Vec<Issue> {
    let known: BTreeSet<Uuid> = config.qos_policies.iter().map(|policy| policy.guid).collect();
    let mut issues = Vec::new();
    for row in config.qos_assignments.iter().filter(|row| !known.contains(&row.policy)) {
        issues.push(Issue {
            severity: Severity::Warning,
            subject: format!("lun {}", row.lun),
            detail: format!("its QoS policy {} is not there: it has no limits and no minimum", row.policy),
            todo: format!(
                "Give it another with `holdfast qos assign POLICY --lun {}`, or none with `holdfast qos unassign --lun {}`.",
                row.lun, row.lun
            ), ..of_rule(FindingCode::QosPolicyMissing) });
    }
    for place in config.qos_places.iter().filter(|place| !known.contains(&place.policy)) {
        issues.push(Issue {
            severity: Severity::Warning,
            subject: place.to_string(),
            detail: format!("its QoS policy {} is not there: it has no limits and no minimum", place.policy),
            todo: "Give it another with `holdfast qos assign`, or none with `holdfast qos unassign`."
                .to_owned(),
            ..of_rule(FindingCode::QosPolicyMissing)
        });
    }
    let mut missed: BTreeMap<&str, (u64, BTreeSet<&str>)> = BTreeMap::new();
    for flow in flows.iter().filter(|flow| flow.status == FlowStatus::InsufficientThroughput) {
        let (Some(policy), Some(min)) = (&flow.policy, flow.min_iops) else { continue };
        let disk = if flow.lun.is_empty() { &flow.file } else { &flow.lun };
        missed.entry(policy).or_insert_with(|| (min, BTreeSet::new())).1.insert(disk);
    }
    for (policy, (min, luns)) in missed {
        let luns: Vec<String> = luns.into_iter().map(str::to_owned).collect();
        issues.push(Issue {
            severity: Severity::Warning,
            subject: format!("qos policy {policy}"),
            detail: format!(
                "LUNs or files ask for the minimum of {min} IOPS that it promises and do not get it: {}",
                few(&luns)
            ),
            todo: "`holdfast qos flow list` shows who has how much; lower minimums, or move LUNs to another volume."
                .to_owned(), ..of_rule(FindingCode::QosMinimumMissed) });
    }
    issues
}

/// All flows of an aggregated policy.
#[derive(Clone, Copy, Default)]
struct Together {
    measured: Measured,
    /// It is divided by what a node has said that is lost.
    is_lost: bool,
}

/// All flows of each aggregated policy together: each volume's say how they fare there once. Those of other nodes ask for what they get, at least.
fn together(known: &[Known<'_>], exchange: &Exchange) -> BTreeMap<Uuid, Together> {
    let mut seen: BTreeSet<(Uuid, &str)> = BTreeSet::new();
    let mut sums: BTreeMap<Uuid, Together> = BTreeMap::new();
    for Known { volume, report, effective, .. } in known {
        if let Effective::Policy(policy) = effective
            && policy.kind == PolicyKind::Aggregated
            && seen.insert((policy.guid, volume))
        {
            let sum = &mut sums.entry(policy.guid).or_default().measured;
            sum.asked = sum.asked.saturating_add(report.measured.asked);
            sum.got = sum.got.saturating_add(report.measured.got);
            sum.waited_permille = sum.waited_permille.saturating_add(report.measured.waited_permille);
        }
    }
    for (policy, Together { measured, is_lost }) in &mut sums {
        let elsewhere = exchange.got_elsewhere(*policy);
        measured.asked = measured.asked.saturating_add(elsewhere);
        measured.got = measured.got.saturating_add(elsewhere);
        *is_lost = exchange.is_lost(*policy);
    }
    sums
}

fn describe(together: &BTreeMap<Uuid, Together>, node: &str, known: Known<'_>) -> QosFlow {
    let Known { volume, report, file, effective } = known;
    let (protocol, lun) = match report.disk {
        DiskName::Lun(name) => (Protocol::Iscsi, name),
        DiskName::File(_) | DiskName::Flow(..) => (Protocol::Smb, String::new()),
    };
    let mut flow = QosFlow {
        node: node.to_owned(),
        volume,
        file,
        protocol,
        lun,
        initiator: report.client,
        read_iops: report.read_iops,
        write_iops: report.write_iops,
        normalized_iops: report.normalized_iops,
        read_bandwidth: report.read_bandwidth,
        write_bandwidth: report.write_bandwidth,
        held_us: report.held_nanos / 1000,
        disk_us: report.disk_nanos / 1000,
        waiting: report.waiting.into(),
        in_flight: report.in_flight.into(),
        refused: report.refused,
        window_ms: report.window_nanos / 1_000_000,
        ..QosFlow::default()
    };
    match effective {
        Effective::None => {
            if let Asked::Terms(terms) = report.asked {
                (flow.min_iops, flow.max_iops) = (terms.min_iops, terms.max_iops);
                flow.max_bandwidth = terms.max_bandwidth;
                flow.status = FlowStatus::of(terms.min_iops, report.measured);
            }
        }
        Effective::Unknown(guid) => {
            flow.status = FlowStatus::UnknownPolicyId;
            flow.policy_guid = Some(guid);
        }
        Effective::Policy(policy) => {
            flow.policy = Some(policy.name.clone());
            flow.policy_guid = Some(policy.guid);
            (flow.min_iops, flow.max_iops) = (policy.min_iops, policy.max_iops);
            flow.max_bandwidth = policy.max_bandwidth;
            let together = together.get(&policy.guid).copied();
            let together = together.unwrap_or(Together { measured: report.measured, is_lost: false });
            flow.status = FlowStatus::of(policy.min_iops, together.measured);
            if together.is_lost {
                flow.status = flow.status.max(FlowStatus::LostCommunication);
            }
        }
    }
    flow
}

#[cfg(test)]
mod tests {
    use control_api::Assignment;
    use qos_gate::FlowTotals;

    use super::*;

    fn policy(kind: PolicyKind) -> Policy {
        Policy {
            guid: Uuid::from_u128(1),
            name: "gold".into(),
            kind,
            min_iops: Some(1000),
            max_iops: None,
            max_bandwidth: None,
        }
    }

    fn report(disk: &str, got: u64) -> FlowReport {
        FlowReport {
            disk: DiskName::from(disk),
            asked: Asked::Nothing,
            client: "iqn.2026-01.io.x:1".into(),
            window_nanos: 5_000_000_000,
            read_iops: got,
            write_iops: 0,
            normalized_iops: got,
            read_bandwidth: 0,
            write_bandwidth: 0,
            held_nanos: 2_000_000,
            disk_nanos: 1_000_000,
            waiting: 3,
            in_flight: 1,
            refused: 0,
            measured: Measured { asked: 5000, got, waited_permille: 3000 },
            totals: FlowTotals::default(),
        }
    }

    fn config(kind: PolicyKind) -> Config {
        let row = |lun: &str, policy| Assignment { lun: lun.into(), policy: Uuid::from_u128(policy) };
        Config {
            qos_policies: vec![policy(kind)],
            qos_assignments: vec![row("a", 1), row("b", 1), row("c", 2)],
            ..Config::default()
        }
    }

    fn flows(config: &Config, reports: &[(&str, FlowReport)]) -> Vec<QosFlow> {
        let on = |(volume, report): &(&str, FlowReport)| FlowOn {
            volume: (*volume).to_owned(),
            guid: None,
            report: report.clone(),
        };
        describe_all(config, ("n", &Exchange::default()), reports.iter().map(on).collect())
    }

    #[test]
    fn a_dedicated_minimum_is_each_disks_and_an_aggregated_one_that_of_all_volumes() {
        let reports = [("v", report("a", 600)), ("w", report("b", 600)), ("w", report("c", 1))];
        let dedicated = flows(&config(PolicyKind::Dedicated), &reports);
        let aggregated = flows(&config(PolicyKind::Aggregated), &reports);
        let status = |flows: &[QosFlow]| flows.iter().map(|flow| flow.status).collect::<Vec<_>>();
        use FlowStatus::{InsufficientThroughput, Ok, UnknownPolicyId};
        assert_eq!(status(&dedicated), [InsufficientThroughput, InsufficientThroughput, UnknownPolicyId]);
        assert_eq!(status(&aggregated), [Ok, Ok, UnknownPolicyId], "1200 of 1000 together");
        assert_eq!((dedicated[0].held_us, dedicated[0].disk_us), (2000, 1000));
        assert_eq!((dedicated[2].policy.clone(), dedicated[2].policy_guid), (None, Some(Uuid::from_u128(2))));
    }

    #[test]
    fn the_status_names_policies_that_are_missing_and_minimums_that_are_missed() {
        let config = config(PolicyKind::Dedicated);
        let found = issues(&config, &flows(&config, &[("v", report("a", 600)), ("v", report("b", 1000))]));
        let said: Vec<String> =
            found.iter().map(|issue| format!("{}: {}", issue.subject, issue.detail)).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].starts_with("lun c: its QoS policy 00000000-0000-0000-0000-000000000002 is not there")
        );
        assert!(
            said[1].starts_with("qos policy gold: ") && said[1].ends_with("do not get it: a"),
            "{said:?}"
        );
        assert!(issues(&Config::default(), &[]).is_empty());
    }

    #[test]
    fn zero_takes_a_number_away_and_nothing_leaves_it() {
        assert_eq!(changed(Some(5), None), Some(5));
        assert_eq!(changed(Some(5), Some(0)), None);
        assert_eq!(changed(None, Some(7)), Some(7));
    }
}
