//! Storage QoS: policies, which LUN has which, and what flows get.
//!
//! Rows of the configuration are `qos_policy` itself: [`Policy`], `Assignment`, `Place`, `QosSettings`.

use qos_policy::{FlowStatus, Policies, Policy, PolicyKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::config_check::check_policy;
use crate::{Code, Config, Problem, Protocol, Unanswered};

/// Changes what holds for all disks; fields that are absent stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QosUpdate {
    /// Bytes that count as one I/O, 1024 to 4194304.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit_bytes: Option<u32>,
    /// Requests at a volume at once, 1 to 65536.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_depth: Option<u32>,
    /// How long a volume may take for a request, in microseconds, while somebody with a minimum would suffer by its being longer: 20 to
    /// 10000000, or 0 for twice as long as when it is quiet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_target_us: Option<u32>,
}

/// Makes a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QosPolicyCreate {
    /// Its name.
    pub name: String,
    /// Its identity; absent for a new one. To be given where a policy moves here from another node with its disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guid: Option<Uuid>,
    /// Whom its numbers hold for.
    #[serde(default)]
    pub kind: PolicyKind,
    /// Normalised I/Os per second that are promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_iops: Option<u64>,
    /// Normalised I/Os per second that are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iops: Option<u64>,
    /// Bytes per second that are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bandwidth: Option<u64>,
}

/// Changes a policy; fields that are absent stay, 0 takes a number away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QosPolicyUpdate {
    /// Its new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Normalised I/Os per second that are promised; 0 for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_iops: Option<u64>,
    /// Normalised I/Os per second that are allowed; 0 for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iops: Option<u64>,
    /// Bytes per second that are allowed; 0 for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bandwidth: Option<u64>,
}

/// Takes a policy away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QosPolicyRemove {
    /// The policy's name, repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
    /// Also if LUNs have it: they are without limits then, and show `UnknownPolicyId`.
    #[serde(default)]
    pub force: bool,
}

/// A policy as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QosPolicy {
    /// What was configured.
    #[serde(flatten)]
    pub policy: Policy,
    /// LUNs that have it.
    pub luns: Vec<String>,
    /// What of volumes has it, as `file vm:/a.vhdx`, `folder vm:/vms` or `volume vm`.
    pub places: Vec<String>,
    /// The worst status of its flows.
    pub status: FlowStatus,
}

/// A policy as it is now, with those that use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QosPolicyDetail {
    /// The policy, and what it is given to.
    #[serde(flatten)]
    pub policy: QosPolicy,
    /// What initiators and clients do now with what has it, those in trouble first.
    pub flows: Vec<QosFlow>,
    /// In a cluster, the nodes that should have told of theirs and did not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<Unanswered>,
}

/// What has a policy: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QosSubject {
    /// A LUN.
    pub lun: Option<String>,
    /// A file, as `VOLUME:/PATH`.
    pub file: Option<String>,
    /// A folder, as `VOLUME:/PATH`: each file below it is a disk.
    pub folder: Option<String>,
    /// A share: the folder that it serves.
    pub share: Option<String>,
    /// A volume: each file in it is a disk.
    pub volume: Option<String>,
}

/// Gives a LUN, file, folder, share or volume its policy: exactly one of these is named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QosAssign {
    /// The policy's name or GUID.
    pub policy: String,
    /// The LUN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun: Option<String>,
    /// The file, as `VOLUME:/PATH`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The folder, as `VOLUME:/PATH`: each file below it is a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The share: the folder that it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// The volume: each file in it is a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
}

impl QosAssign {
    /// What is to have it.
    #[must_use]
    pub fn subject(self) -> (String, QosSubject) {
        let Self { policy, lun, file, folder, share, volume } = self;
        (policy, QosSubject { lun, file, folder, share, volume })
    }
}

/// What one initiator does with one LUN, or one client with one file, over the last seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QosFlow {
    /// How it fares.
    pub status: FlowStatus,
    /// What it speaks.
    pub protocol: Protocol,
    /// The initiator's name, or the client's user and address.
    pub initiator: String,
    /// The LUN; empty for a file of a share.
    pub lun: String,
    /// The file, or that of the LUN.
    pub file: String,
    /// The volume that the file is on.
    pub volume: String,
    /// The node.
    pub node: String,
    /// Its policy's name; absent for none, and for one that is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Its policy's identity, also of one that is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_guid: Option<Uuid>,
    /// Normalised I/Os per second that its policy promises.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_iops: Option<u64>,
    /// Normalised I/Os per second that its policy allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iops: Option<u64>,
    /// Bytes per second that its policy allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bandwidth: Option<u64>,
    /// Reads per second.
    pub read_iops: u64,
    /// Writes per second.
    pub write_iops: u64,
    /// Normalised I/Os per second, reads and writes.
    pub normalized_iops: u64,
    /// Bytes read per second.
    pub read_bandwidth: u64,
    /// Bytes written per second.
    pub write_bandwidth: u64,
    /// How long a request was held back on the average, in microseconds.
    pub held_us: u64,
    /// How long a request took after that on the average, in microseconds.
    pub disk_us: u64,
    /// Requests that are held back now.
    pub waiting: u64,
    /// Requests at the volume now.
    pub in_flight: u64,
    /// Requests that found a queue full and were refused, since the flow was there.
    pub refused: u64,
    /// How long it was looked at, in milliseconds.
    pub window_ms: u64,
}

/// A volume: what it can do, as far as its answers have shown, and what is promised of that. I/Os are normalised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QosVolume {
    /// The volume.
    pub volume: String,
    /// The node.
    pub node: String,
    /// The worst status of its flows.
    pub status: FlowStatus,
    /// I/Os per second that it does when more are wanted; absent until that was so for a second or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u64>,
    /// The mean size of the requests with which the capacity was learnt, in bytes, each as a whole number of units: with smaller ones it does fewer
    /// I/Os, as far as it is short of bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_request_bytes: Option<u64>,
    /// I/Os per second that its flows are promised together.
    pub promised: u64,
    /// I/Os per second that it does now.
    pub used: u64,
    /// I/Os per second that are promised to nobody; absent as the capacity is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headroom: Option<u64>,
    /// Requests that may be at it now: fewer than configured while somebody would suffer by more.
    pub depth: u64,
    /// How long it takes for a request lately, on the average, in microseconds.
    pub latency_us: u64,
    /// How long the same requests took when it was quiet, in microseconds.
    pub quiet_latency_us: u64,
    /// Requests that are held back now.
    pub waiting: u64,
    /// Requests at it now.
    pub in_flight: u64,
    /// Its flows.
    pub flows: u64,
    /// What its pool does in the background, which shares the disks with all volumes of the pool; absent while the pool is not open on the
    /// node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<QosBackground>,
}

/// What a pool does in the background, in bytes per second over the last 5 to 10 seconds. None of it is a flow of a volume: it has limits of its own,
/// and gives way to clients by how long they wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QosBackground {
    /// The pool.
    pub pool: String,
    /// Copied so that everything has the copies that were promised, and off disks that leave.
    pub restoring: u64,
    /// Copied so that disks are equally full.
    pub rebalancing: u64,
    /// Read to find what is damaged.
    pub scrubbing: u64,
    /// Brought from the logs of volumes to the pool.
    pub destaging: u64,
    /// So much of restoring and rebalancing goes on together, however long clients wait.
    pub floor: u64,
    /// More than this is not restored and rebalanced; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_limit: Option<u64>,
    /// More than this is not scrubbed; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub_limit: Option<u64>,
}

impl QosBackground {
    /// All of it together.
    #[must_use]
    pub fn all(&self) -> u64 {
        [self.restoring, self.rebalancing, self.scrubbing, self.destaging]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

fn wrong(error: &qos_policy::PolicyError) -> Problem {
    Problem::new(Code::InvalidRequest, format!("{error}."))
}

impl Config {
    /// Policies, to be looked up.
    #[must_use]
    pub fn policies(&self) -> Policies {
        Policies::new(&self.qos_policies, &self.qos_assignments, &self.qos_places)
    }

    /// Takes LUNs out, with what hangs on them: a LUN of the same name that is made later is another disk.
    pub fn remove_luns(&mut self, goes: impl Fn(&crate::LunConfig) -> bool) {
        let gone: std::collections::BTreeSet<String> =
            self.luns.iter().filter(|lun| goes(lun)).map(|lun| lun.name.clone()).collect();
        self.luns.retain(|lun| !gone.contains(&lun.name));
        self.qos_assignments.retain(|row| !gone.contains(&row.lun));
    }

    /// Checks what a change of `before` to this brings or alters by rules that are newer than what may be there: a configuration that
    /// was valid when it was written is loaded, and serves.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check_changed(&self, before: &Self) -> Result<(), Problem> {
        let (had, has) = ((&*before.qos_policies, &before.qos), (&*self.qos_policies, &self.qos));
        qos_policy::check_changed(had, has).map_err(|error| wrong(&error))?;
        crate::lun_numbers::check_changed(before, self)?;
        if self.policy == before.policy { Ok(()) } else { check_policy(&self.policy) }
    }

    /// Checks policies and what they are given to.
    pub(crate) fn check_qos(&self) -> Result<(), Problem> {
        qos_policy::check_settings(&self.qos).map_err(|error| wrong(&error))?;
        qos_policy::check_policies(&self.qos_policies).map_err(|error| wrong(&error))?;
        qos_policy::check_assignments(&self.qos_assignments).map_err(|error| wrong(&error))?;
        qos_policy::check_places(&self.qos_places).map_err(|error| wrong(&error))?;
        let luns: std::collections::BTreeSet<&str> = self.luns.iter().map(|lun| lun.name.as_str()).collect();
        match self.qos_assignments.iter().find(|row| !luns.contains(row.lun.as_str())) {
            Some(row) => Err(Problem::new(
                Code::InvalidRequest,
                format!("There is no LUN {} to have policy {}.", row.lun, row.policy),
            )
            .todo("`holdfast lun list` shows what there is.")),
            None => Ok(()),
        }
    }
}
