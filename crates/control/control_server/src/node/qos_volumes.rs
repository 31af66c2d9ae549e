//! Storage QoS: what volumes can do, and what is promised of that.

use std::collections::BTreeMap;

use control_api::{FlowStatus, Issue, Place, PlaceKind, QosFlow, QosVolume, Severity, human_bytes};
use health_rules::{FindingCode, of_rule};
use uuid::Uuid;

use super::Node;
use super::qos::describe_all;
use crate::backend::{FlowOn, QueueOf};

/// A capacity is what was measured over a moment: what is promised beyond it by less than this, in percent, may be there.
const NEARLY: u64 = 5;

impl Node {
    /// What volumes can do, those whose flows are in trouble first.
    pub fn qos_volume_list(&self) -> Vec<QosVolume> {
        let queues = self.queues_here();
        let flows = self.flows_here();
        let config = self.config.get();
        let on: Vec<Option<Uuid>> = flows.iter().map(|flow| flow.guid).collect();
        let described = describe_all(&config, (&self.name(), &self.backends.qos_exchange), flows);
        let mut listed = volumes((&self.name(), config.qos.unit_bytes), queues, &on, &described);
        let background = self.background_by_volume();
        for volume in &mut listed {
            volume.background = background.get(&volume.volume).cloned();
        }
        listed
    }

    /// Queues of volumes that this node serves: it has one for each of the cluster, as its pool may come here.
    fn queues_here(&self) -> Vec<QueueOf> {
        let is_here = self.what_is_here();
        let queues = self.backends.iscsi.queues().into_iter();
        queues.filter(|queue| is_here(&queue.volume, queue.guid)).collect()
    }

    /// Flows on such volumes.
    pub(super) fn flows_here(&self) -> Vec<FlowOn> {
        let is_here = self.what_is_here();
        let flows = self.backends.iscsi.flows().into_iter();
        flows.filter(|flow| is_here(&flow.volume, flow.guid)).collect()
    }

    fn what_is_here(&self) -> impl Fn(&str, Option<Uuid>) -> bool + use<> {
        let is_elsewhere = self.what_is_elsewhere();
        move |volume, volume_guid| {
            let (volume, path) = (volume.to_owned(), "/".to_owned());
            !is_elsewhere(&Place { volume, volume_guid, path, kind: PlaceKind::Folder, policy: Uuid::nil() })
        }
    }

    /// What is wrong with what volumes promise, for the status.
    pub(super) fn qos_volume_issues(&self) -> Vec<Issue> {
        let unit_bytes = self.qos_show().unit_bytes;
        issues(&volumes((&self.name(), unit_bytes), self.queues_here(), &[], &[]))
    }
}

/// `on`: which volume each flow is on, as far as that is known by more than its name.
fn volumes(
    (node, unit_bytes): (&str, u32),
    queues: Vec<QueueOf>,
    on: &[Option<Uuid>],
    flows: &[QosFlow],
) -> Vec<QosVolume> {
    let mut sums: BTreeMap<(Option<Uuid>, &str), (u64, u64, FlowStatus)> = BTreeMap::new();
    for (guid, flow) in on.iter().zip(flows) {
        let (count, used, worst) = sums.entry((*guid, flow.volume.as_str())).or_default();
        *count += 1;
        *used = used.saturating_add(flow.normalized_iops);
        *worst = flow.status.max(*worst);
    }
    let of = |QueueOf { volume, guid, report }: QueueOf| {
        let (flows, used, status) = sums.get(&(guid, volume.as_str())).copied().unwrap_or_default();
        let learnt = report.learnt;
        let capacity = (learnt.units > 0).then_some(learnt.units);
        let promised = report.promised.units;
        let longer = u128::from(learnt.slowdown_permille.max(1000));
        QosVolume {
            volume,
            node: node.to_owned(),
            status,
            capacity,
            capacity_request_bytes: capacity.map(|_| {
                let bytes = u128::from(learnt.request_units_permille) * u128::from(unit_bytes) / 1000;
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }),
            promised,
            used,
            headroom: capacity.map(|capacity| capacity.saturating_sub(promised)),
            depth: learnt.depth.into(),
            // What was measured is not 0, which says that nothing was.
            latency_us: learnt.latency.div_ceil(1000),
            quiet_latency_us: u64::try_from(u128::from(learnt.latency).div_ceil(longer)).unwrap_or(u64::MAX),
            waiting: report.waiting.into(),
            in_flight: report.in_flight.into(),
            flows,
            background: None,
        }
    };
    let mut volumes: Vec<QosVolume> = queues.into_iter().map(of).collect();
    volumes.sort_by(|a, b| (b.status, &a.volume).cmp(&(a.status, &b.volume)));
    volumes
}

/// Volumes of which more is promised than they do.
fn issues(volumes: &[QosVolume]) -> Vec<Issue> {
    let promised_too_much = |volume: &&QosVolume| {
        volume.capacity.is_some_and(|capacity| {
            u128::from(volume.promised) * 100 > u128::from(capacity) * u128::from(100 + NEARLY)
        })
    };
    let issue = |volume: &QosVolume| {
        Issue {
        severity: Severity::Warning,
        subject: format!("volume {}", volume.volume),
        detail: format!(
            "the QoS policies of those that use it promise {} IOPS together, and when more than it does was last asked of it it did {}, in requests \
             of {}: all minimums are then met to the same part",
            volume.promised,
            volume.capacity.unwrap_or_default(),
            human_bytes(volume.capacity_request_bytes.unwrap_or_default()),
        ),
        todo: "`holdfast qos volume list` shows what volumes do; lower minimums, or move what has them to another volume.".to_owned(), ..of_rule(FindingCode::QosOverpromised) }
    };
    volumes.iter().filter(promised_too_much).map(issue).collect()
}

#[cfg(test)]
mod tests {
    use qos_gate::VolumeReport;

    use super::*;

    fn queue(guid: u128, units: u64, promised: u64) -> QueueOf {
        let mut report = VolumeReport::default();
        (report.learnt.units, report.learnt.depth) = (units, 16);
        report.learnt.request_units_permille = 2500;
        (report.learnt.latency, report.learnt.slowdown_permille) = (3_000_000, 1500);
        report.promised.units = promised;
        QueueOf { volume: "v".into(), guid: Some(Uuid::from_u128(guid)), report }
    }

    #[test]
    fn a_volume_shows_what_it_does_and_what_of_that_is_promised() {
        let flow = |iops, status| QosFlow {
            volume: "v".into(),
            normalized_iops: iops,
            status,
            ..QosFlow::default()
        };
        let flows = [
            flow(100, FlowStatus::Ok),
            flow(50, FlowStatus::InsufficientThroughput),
            flow(7, FlowStatus::Ok),
        ];
        let on = [1, 1, 2].map(|guid| Some(Uuid::from_u128(guid)));
        let queues = vec![queue(2, 0, 10), queue(1, 1000, 400)];
        let volumes = volumes(("n", 8192), queues, &on, &flows);
        let first = &volumes[0];
        assert_eq!((first.status, first.used, first.flows), (FlowStatus::InsufficientThroughput, 150, 2));
        assert_eq!((first.capacity, first.promised, first.headroom), (Some(1000), 400, Some(600)));
        assert_eq!(first.capacity_request_bytes, Some(20_480));
        assert_eq!((first.depth, first.latency_us, first.quiet_latency_us), (16, 3000, 2000));
        let second = &volumes[1];
        assert_eq!((second.used, second.capacity, second.headroom), (7, None, None), "nobody knows yet");
        assert_eq!(second.capacity_request_bytes, None);
        let mut quick = queue(3, 0, 0);
        quick.report.learnt.latency = 700;
        let quick = &super::volumes(("n", 8192), vec![quick, queue(4, 0, 0)], &[], &[])[0];
        assert_eq!((quick.latency_us, quick.quiet_latency_us), (1, 1), "it is not unknown");
    }

    #[test]
    fn the_status_names_volumes_of_which_more_is_promised_than_they_do() {
        let said =
            |units, promised| issues(&volumes(("n", 8192), vec![queue(1, units, promised)], &[], &[])).len();
        assert_eq!(said(1000, 1100), 1);
        assert_eq!(said(1000, 1040), 0, "that may be there");
        assert_eq!(said(0, 1_000_000), 0, "nobody knows yet");
        let issue = &issues(&volumes(("n", 8192), vec![queue(1, 1000, 2000)], &[], &[]))[0];
        assert!(
            issue.detail.contains("promise 2000 IOPS")
                && issue.detail.contains("it did 1000, in requests of 20.0 KiB"),
            "{issue:?}"
        );
    }
}
