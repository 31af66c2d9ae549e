//! Counters that only grow, from which whoever asks twice makes rates.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a counter is of, from the clients' side down.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum CounterKind {
    /// A session of the SMB server.
    SmbSession,
    /// A session of an initiator.
    IscsiSession,
    /// A share.
    Share,
    /// A LUN.
    Lun,
    /// A volume: what is done with its files, by whomever.
    Volume,
    /// A space of a pool: what reaches it below the caches of its volume.
    Space,
    /// A disk.
    #[default]
    Disk,
    /// A processor of the node's machine, whoever uses it.
    Processor,
    /// A pool: how full it is.
    Pool,
    /// A QoS policy in use: what those that have it do together on this node.
    QosPolicy,
    /// One initiator's use of one LUN, or one client's of one file, as QoS sees it.
    QosFlow,
}

/// Operations of one kind since the node began to count. All of it only grows until the thing or the node begins anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OperationCounters {
    /// Those that succeeded.
    pub operations: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Those that failed.
    pub errors: u64,
    /// Nanoseconds that those that succeeded took, all added up. Its growth per nanosecond is the mean queue length, its growth
    /// per operation the mean latency.
    pub latency_ns: u64,
}

/// Nanoseconds that a processor has spent since the machine started, as the kernel counts them: in steps of 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessorCounters {
    /// Time spent in programs.
    pub user_ns: u64,
    /// Time spent in the kernel, interrupts included.
    pub privileged_ns: u64,
    /// The part of the kernel's time that was spent in interrupts of devices.
    pub interrupt_ns: u64,
    /// The part of the kernel's time that was spent in what interrupts leave for later (softirqs; Windows' DPCs).
    pub deferred_ns: u64,
    /// Time in which the processor had nothing to do, or in which another guest had it.
    pub idle_ns: u64,
}

/// What QoS counts of a policy or flow beside its reads and writes, and what holds for it now. I/Os are normalised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QosCounters {
    /// I/Os that went to the volume. It only grows, as all up to `held_ns` do.
    pub normalized: u64,
    /// I/Os that were asked for, those that still wait or were given up too.
    pub asked: u64,
    /// Nanoseconds that requests waited for limits and for others before they went to the volume, all added up.
    pub held_ns: u64,
    /// I/Os per second that are promised; absent for none. Of a dedicated policy, here and below, those of all its LUNs and files in use
    /// together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_iops: Option<u64>,
    /// I/Os per second that are allowed; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iops: Option<u64>,
    /// Bytes per second that are allowed; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bandwidth: Option<u64>,
}

/// Counters of one thing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectCounters {
    /// What it is.
    pub kind: CounterKind,
    /// Its name; of spaces `POOL/SPACE`, of processors their number, of sessions the user or initiator, the client's address and the number; of flows
    /// the LUN, or `VOLUME:/PATH` of the file, and the initiator or client.
    pub name: String,
    /// Reads; of sessions, those of files and LUNs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<OperationCounters>,
    /// Writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<OperationCounters>,
    /// Flushes and unmaps; of shares all other requests, without bytes and times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<OperationCounters>,
    /// Operations under way now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
    /// Requests or commands of a session, of all kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Bytes that the node sent to a session's client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    /// Bytes that the node received from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// What a processor did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<ProcessorCounters>,
    /// Bytes of a pool that data has taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Bytes of a pool that data may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// What QoS counts of a policy or flow. Latencies of its reads and writes are those on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<QosCounters>,
}

impl ObjectCounters {
    /// A thing of which nothing is counted.
    #[must_use]
    pub fn new(kind: CounterKind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into(), ..Self::default() }
    }
}

/// Which counters are asked for, in the query of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CountersQuery {
    /// With QoS policies and flows, which may be very many: what a policy did is the sum of what its flows did.
    #[serde(default)]
    pub flows: bool,
}

/// All counters of a node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// The node's name.
    pub node: String,
    /// The node's process. Another one than before has counted from zero.
    pub process: u32,
    /// Nanoseconds since the node started, by a clock that nobody sets.
    pub monotonic_ns: u64,
    /// The things.
    pub items: Vec<ObjectCounters>,
}
