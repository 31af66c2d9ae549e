//! Metrics: what status, lists and counters know, in the text format of Prometheus.
//!
//! Names follow Prometheus' rules: base units (seconds, bytes), `_total` for what only grows. Labels hold names of things of the
//! configuration, never clients': their number is bounded by it, and families are cut at [`text::SAMPLES_MAX`]. Flows of storage
//! QoS, which clients make, are limited to the worst ones. Nobody's password, path or file name is in here.

mod text;

use std::collections::BTreeMap;

use control_api::{
    CounterKind, Counters, JobState, LunState, OperationCounters, Pool, PoolState, Problem, Protocol,
    RedundancyState, Session, Severity, Share, Status, Verdict, Volume,
};
use serde::Serialize;

use crate::node::Node;
use text::{Kind, Text};

/// Flows that are told of: those that fare worst.
const FLOWS_MAX: usize = 256;

/// A value of the API as it is written in JSON ("read-only").
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

fn flag(yes: bool) -> f64 {
    if yes { 1.0 } else { 0.0 }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

impl Node {
    /// All metrics now, as text.
    ///
    /// # Errors
    /// As the node's status.
    pub async fn metrics(&self) -> Result<String, Problem> {
        let mut text = Text::default();
        node(&mut text, &self.status().await?);
        pools(&mut text, &self.pool_list().await?);
        volumes(&mut text, &self.volume_list().await?);
        let mut states: BTreeMap<String, (String, String)> = BTreeMap::new();
        for disk in self.disk_list().await? {
            if let Some(pool) = disk.pool {
                states.insert(disk.id, (pool, word(&disk.state)));
            }
        }
        let mut disks =
            text.family(Kind::Gauge, "holdfast_disk_info", "A disk of a pool, with its state; always 1.");
        for (disk, (pool, state)) in &states {
            disks.add(&[("disk", disk), ("pool", pool), ("state", state)], 1.0);
        }
        let luns = self.lun_list().await?;
        let mut sizes = text.family(Kind::Gauge, "holdfast_lun_size_bytes", "Size of a LUN.");
        for lun in &luns {
            sizes.add(&[("lun", &lun.config.name)], lun.size_bytes as f64);
        }
        let mut online = text.family(
            Kind::Gauge,
            "holdfast_lun_serving",
            "Whether a LUN serves as configured: 1, or 0 where something keeps it from that.",
        );
        for lun in &luns {
            let serves = lun.problem.is_none()
                && (lun.serving == lun.config.state || lun.serving != LunState::Offline);
            online.add(&[("lun", &lun.config.name)], flag(serves));
        }
        shares(&mut text, &self.share_list().await?);
        sessions(&mut text, &self.session_list().await?);
        operations(&mut text, &self.counters(false));
        self.flows(&mut text);
        let http = self.http_show();
        text.gauge(
            "holdfast_http_connections",
            "Connections of the API over the network.",
            http.connections as f64,
        );
        text.gauge("holdfast_http_sessions", "Users that are logged in to the API.", http.sessions as f64);
        if let Some(certificate) = http.in_use {
            text.gauge(
                "holdfast_http_certificate_not_after_seconds",
                "Until when the certificate of the API counts, in seconds since 1970.",
                certificate.not_after as f64,
            );
        }
        Ok(text.finish())
    }

    fn flows(&self, text: &mut Text) {
        // The list begins with those that fare worst.
        let mut flows = self.qos_flow_list();
        flows.truncate(FLOWS_MAX);
        type Value = fn(&control_api::QosFlow) -> f64;
        let families: [(&'static str, &str, Value); 2] = [
            (
                "holdfast_qos_flow_iops",
                "Normalised operations per second of an initiator on a LUN.",
                |flow| flow.normalized_iops as f64,
            ),
            (
                "holdfast_qos_flow_held_seconds",
                "How long an operation of an initiator on a LUN waits for its turn, on the average.",
                |flow| flow.held_us as f64 / 1e6,
            ),
        ];
        for (name, help, value) in families {
            let mut family = text.family(Kind::Gauge, name, help);
            for flow in &flows {
                let status = word(&flow.status);
                let policy = flow.policy.as_deref().unwrap_or_default();
                let labels = [
                    ("lun", &*flow.lun),
                    ("initiator", &*flow.initiator),
                    ("policy", policy),
                    ("status", &status),
                ];
                family.add(&labels, value(flow));
            }
        }
    }
}

fn node(text: &mut Text, status: &Status) {
    text.family(Kind::Gauge, "holdfast_build_info", "The node's name and version; always 1.")
        .add(&[("node", &status.node), ("version", &status.version)], 1.0);
    text.gauge("holdfast_ready", "Whether everything that starts at start has started.", flag(status.ready));
    text.gauge("holdfast_uptime_seconds", "How long the node has run.", status.uptime_seconds as f64);
    let mut verdict = text.family(
        Kind::Gauge,
        "holdfast_redundancy_verdict",
        "Whether all data is as redundant as promised: 1 for what holds now.",
    );
    for each in
        [Verdict::FullyRedundant, Verdict::Restoring, Verdict::Reduced, Verdict::Unavailable, Verdict::Empty]
    {
        verdict.add(&[("verdict", &word(&each))], flag(status.verdict == each));
    }
    let mut issues = text.family(
        Kind::Gauge,
        "holdfast_issues",
        "What is not as it should be, as `holdfast status` says it.",
    );
    for severity in [Severity::Critical, Severity::Error, Severity::Warning, Severity::Info] {
        let count = status.issues.iter().filter(|issue| issue.severity == severity).count();
        issues.add(&[("severity", &word(&severity))], count as f64);
    }
    let running = status.jobs.iter().filter(|job| job.state == JobState::Running);
    let mut jobs: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for job in running {
        let (count, left) = jobs.entry(word(&job.kind)).or_default();
        *count += 1;
        *left += job.total_bytes.saturating_sub(job.done_bytes);
    }
    let mut family =
        text.family(Kind::Gauge, "holdfast_jobs_running", "Work that takes long and is under way.");
    for (kind, (count, _)) in &jobs {
        family.add(&[("kind", kind)], *count as f64);
    }
    let mut family =
        text.family(Kind::Gauge, "holdfast_jobs_left_bytes", "What work under way still has to do.");
    for (kind, (_, left)) in &jobs {
        family.add(&[("kind", kind)], *left as f64);
    }
    let memory = &status.request_memory;
    text.gauge(
        "holdfast_request_memory_limit_bytes",
        "Memory that the requests of all clients may take.",
        memory.limit_bytes as f64,
    );
    text.gauge(
        "holdfast_request_memory_used_bytes",
        "Memory that the requests of all clients take.",
        memory.used_bytes as f64,
    );
    text.gauge(
        "holdfast_request_memory_images_bytes",
        "What of the memory of requests the images of LUNs hold.",
        memory.images_bytes as f64,
    );
    text.counter(
        "holdfast_request_memory_waits_total",
        "How often a connection has waited for memory for its requests.",
        memory.waits as f64,
    );
    text.counter(
        "holdfast_request_memory_ended_total",
        "Connections that were ended because others waited for memory.",
        memory.ended as f64,
    );
}

/// A family with a sample for each thing.
fn each<T>(
    text: &mut Text,
    kind: Kind,
    name: &'static str,
    help: &str,
    things: &[T],
    tell: impl Fn(&T) -> (Vec<(&str, &str)>, f64),
) {
    let mut family = text.family(kind, name, help);
    for thing in things {
        let (labels, value) = tell(thing);
        family.add(&labels, value);
    }
}

fn pools(text: &mut Text, pools: &[Pool]) {
    type Value = fn(&Pool) -> f64;
    let families: [(&'static str, &str, Value); 8] = [
        ("holdfast_pool_online", "Whether a pool serves reads and writes.", |pool| {
            flag(matches!(pool.state, PoolState::Online | PoolState::Degraded))
        }),
        ("holdfast_pool_redundant", "Whether all data of a pool is as redundant as promised.", |pool| {
            flag(pool.redundancy == RedundancyState::Full)
        }),
        ("holdfast_pool_capacity_bytes", "Bytes of all disks of a pool.", |pool| pool.capacity_bytes as f64),
        ("holdfast_pool_allocated_bytes", "Bytes of a pool that volumes take, all copies counted.", |pool| {
            pool.allocated_bytes as f64
        }),
        ("holdfast_pool_free_bytes", "Bytes of a pool that are free for new data.", |pool| {
            pool.free_bytes as f64
        }),
        ("holdfast_pool_repair_bytes", "Bytes to copy until a pool is as redundant as promised.", |pool| {
            pool.repair_bytes as f64
        }),
        ("holdfast_pool_disks", "Disks of a pool.", |pool| pool.disks as f64),
        ("holdfast_pool_disks_missing", "Disks of a pool that are missing or have failed.", |pool| {
            pool.disks_missing as f64
        }),
    ];
    for (name, help, value) in families {
        each(text, Kind::Gauge, name, help, pools, |pool| (vec![("pool", &*pool.name)], value(pool)));
    }
    each(
        text,
        Kind::Counter,
        "holdfast_pool_copied_bytes_total",
        "Bytes copied since a pool was opened, to restore copies and to bring returned disks up to date.",
        pools,
        |pool| (vec![("pool", &*pool.name)], pool.copied_bytes as f64),
    );
}

fn volumes(text: &mut Text, volumes: &[Volume]) {
    type Value = fn(&Volume) -> f64;
    let families: [(&'static str, &str, Value); 4] = [
        ("holdfast_volume_online", "Whether a volume serves.", |volume| flag(volume.online)),
        ("holdfast_volume_size_bytes", "Size of a volume.", |volume| volume.size_bytes as f64),
        ("holdfast_volume_used_bytes", "Bytes of a volume that files take.", |volume| {
            volume.used_bytes as f64
        }),
        (
            "holdfast_volume_allocated_bytes",
            "Bytes that a volume takes in its pool, all copies counted.",
            |volume| volume.allocated_bytes as f64,
        ),
    ];
    for (name, help, value) in families {
        each(text, Kind::Gauge, name, help, volumes, |volume| {
            (vec![("volume", &*volume.name), ("pool", &*volume.pool)], value(volume))
        });
    }
}

fn shares(text: &mut Text, shares: &[Share]) {
    type Value = fn(&Share) -> f64;
    let families: [(&'static str, &str, Value); 3] = [
        ("holdfast_share_online", "Whether a share is served.", |share| flag(share.online)),
        ("holdfast_share_sessions", "Sessions that are connected to a share.", |share| share.sessions as f64),
        ("holdfast_share_opens", "What clients have open over a share.", |share| share.opens as f64),
    ];
    for (name, help, value) in families {
        each(text, Kind::Gauge, name, help, shares, |share| {
            (vec![("share", &*share.config.name)], value(share))
        });
    }
    let help = "Changes of what is kept of persistent opens that could not be made durable.";
    each(text, Kind::Counter, "holdfast_share_unsaved_total", help, shares, |share| {
        (vec![("share", &*share.config.name)], share.traffic.unsaved as f64)
    });
}

fn sessions(text: &mut Text, sessions: &[Session]) {
    let mut family = text.family(Kind::Gauge, "holdfast_sessions", "Sessions of clients.");
    for protocol in [Protocol::Iscsi, Protocol::Smb] {
        let count = sessions.iter().filter(|session| session.protocol == protocol).count();
        family.add(&[("protocol", &word(&protocol))], count as f64);
    }
}

/// What is done with things of the configuration. Sessions come and go, and are not told of one by one; processors others tell of.
fn operations(text: &mut Text, counters: &Counters) {
    let kinds =
        [CounterKind::Share, CounterKind::Lun, CounterKind::Volume, CounterKind::Space, CounterKind::Disk];
    let things: Vec<(String, _)> = counters
        .items
        .iter()
        .filter(|item| kinds.contains(&item.kind))
        .map(|item| (word(&item.kind), item))
        .collect();
    type Value = fn(&OperationCounters) -> f64;
    let families: [(&'static str, &str, Value); 4] = [
        ("holdfast_operations_total", "Operations that succeeded.", |done| done.operations as f64),
        ("holdfast_operation_bytes_total", "Bytes that operations moved.", |done| done.bytes as f64),
        ("holdfast_operation_errors_total", "Operations that failed.", |done| done.errors as f64),
        (
            "holdfast_operation_seconds_total",
            "Time that operations took, all added up: by operation it is their mean latency.",
            |done| seconds(done.latency_ns),
        ),
    ];
    for (name, help, value) in families {
        let mut family = text.family(Kind::Counter, name, help);
        for (kind, item) in &things {
            for (operation, done) in [("read", &item.read), ("write", &item.write), ("other", &item.other)] {
                if let Some(done) = done {
                    let labels = [("kind", &**kind), ("name", &*item.name), ("operation", operation)];
                    family.add(&labels, value(done));
                }
            }
        }
    }
    let mut family = text.family(Kind::Gauge, "holdfast_operations_in_flight", "Operations under way.");
    for (kind, item) in &things {
        if let Some(now) = item.in_flight {
            family.add(&[("kind", kind), ("name", &item.name)], now as f64);
        }
    }
}
