//! What is said on the management API: requests, responses, errors, and the declarative configuration.
//!
//! ```text
//!   CLI, scripts ──► control_client ──HTTP/JSON over a Unix socket──► control_server ──► pools, volumes, LUNs
//!                          └───────────── control_api: these types ─────────────┘
//! ```
//!
//! Vocabulary: a *disk* is a block device or file of the machine, named by a stable id; a *pool* owns disks;
//! a *volume* is a space of a pool with a file store on it; a *file* lives in a volume; a *LUN* is a file
//! offered to initiators by a *target* under a number; an *initiator group* says who may see it; a *portal*
//! is an address that the targets are served on; a *share* is a folder of a volume that SMB clients see; *users* and
//! their *groups* are who may; a *policy* is what LUNs are promised and allowed, a *flow* what one initiator does with one; an *open* is a file that a client of a share has open; a *job* is work that takes long.
//!
//! Invariants:
//! * Version 1 ([`BASE_PATH`]) only grows: fields are added with a default, never renamed or given another
//!   meaning. Requests refuse unknown fields, responses may carry fields a client does not know.
//! * Every route is in [`routes::ROUTES`], from which the OpenAPI 3.1 document is made ([`openapi::document`]).
//! * Lists travel as `{"items": [...]}` ([`List`]); errors as RFC 9457 problem details ([`Problem`]) with a
//!   stable `code`.
//! * Sizes are bytes, durations are in the unit that the field's name says, times are seconds since 1970 UTC.
//! * A request that destroys something carries `confirm`, which must repeat the name of the thing; without
//!   it, the answer is the problem `confirmation-required`, whose `destroys` says what would be lost.
//! * Wherever disks can be named they can be selected by what they are, in one grammar ([`Selector`]).
//!
//! Deliberately absent: any I/O, any clock, defaults that depend on the machine.

mod access;
mod account;
mod account_groups;
mod cache;
mod cluster;
mod cluster_balance;
mod cluster_status;
mod config;
mod config_check;
mod config_diff;
mod config_parts;
mod counters;
mod disk;
mod disk_select;
mod event;
mod fault;
mod file;
mod finding;
mod history;
mod http;
mod iscsi;
mod job;
mod listener;
mod lun;
mod lun_cache;
mod lun_numbers;
mod lun_places;
mod lun_reservations;
mod node_disk;
mod notify;
mod on_node;
pub mod openapi;
mod pool;
mod pool_address;
mod pool_home;
mod problem;
mod qos;
mod quota;
mod resiliency;
pub mod routes;
mod selector;
mod share_kind;
mod smb;
mod smb_check;
mod snapshot;
mod status;
mod units;
mod volume;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use access::{
    AUDIT_ENTRIES_MAX, ApiToken, ApiTokenCreate, ApiTokenCreated, AuditChange, AuditEntry, Login, Me, Proof,
    Role,
};
pub use account::{AccountRename, HeldPermission, Password, PasswordChange, User, UserCreate, UserUpdate};
pub use account_groups::{UserGroup, UserGroupCreate, UserGroupUpdate};
pub use cache::{
    CacheConfig, CachePolicyUpdate, CacheStatus, CacheUpdate, LogCreate, LogMode, MAX_READ_AHEAD_BYTES,
    ReadAhead, ReadCacheCounters, VolumeCache, VolumeConfig, VolumeLog,
};
pub use cluster::{ClusterInit, ClusterJoin, ClusterPlace, ClusterToken, GivenEtcd};
pub use cluster_balance::{BalanceMove, BalanceNode, BalanceReason, BalanceStay, ClusterBalance};
pub use cluster_status::{
    ClusterMember, ClusterMemberState, ClusterPool, ClusterPoolState, ClusterStatus, EtcdAlarm,
    EtcdAlarmKind, EtcdMemberState, EtcdMemberStatus, NodePause, PoolMove,
};
pub use config::{
    CONFIG_SCHEMA, Config, ConfigChange, ConfigDiff, ConfigRequest, DiskConfig, DiskLogin, ISCSI_DISK,
    NodeConfig, PolicyConfig, PoolConfig, PoolMoves, RBD_DISK,
};
pub use config_check::{
    CHAP_SECRET_BYTES, MAX_ISCSI_NAME_BYTES, MAX_ITEMS, MAX_LUN_NUMBER, MAX_NAME_BYTES, check_iscsi_name,
    check_name,
};
pub use config_diff::REDACTED;
pub use config_parts::{LocalConfig, LocalHttp, LocalSmb, SharedConfig, SharedHttp, SharedSmb};
pub use counters::{
    CounterKind, Counters, CountersQuery, ObjectCounters, OperationCounters, ProcessorCounters, QosCounters,
};
pub use disk::{Disk, DiskState, DiskUpdate, IoCounters, MediaType, RescanReport};
pub use disk_select::DiskSelect;
pub use event::{Event, EventKind};
pub use fault::{FaultKind, FaultOperation, FaultRequest, FaultRule};
pub use file::{
    FileClone, FileCreate, FileEntry, FileKind, FileProvision, FileRename, PROVISION_MAX, Provisioned,
};
pub use finding::{Acknowledge, Finding, FindingQuery, FindingState};
pub use history::{History, HistoryQuery, HistoryStep, name_matches};
pub use http::{HttpCertificate, HttpConfig, HttpStatus, HttpUpdate};
pub use iscsi::{
    AuthConfig, ChapUser, ChapUserUpdate, GroupConfig, GroupUpdate, IscsiConfig, IscsiUpdate, PortalConfig,
    PortalInfo, Protocol, Session, Target, TargetConfig, TargetUpdate, TargetUser,
};
pub use job::{Job, JobKind, JobState};
pub use listener::Listener;
pub use lun::{Lun, LunConfig, LunCreate, LunForget, LunFormat, LunMap, LunState, LunUpdate, MapConfig};
pub use lun_cache::{
    LunWriteCache, LunWriteCacheNow, WRITE_CACHE_BYTES, WRITE_CACHE_MIN_BYTES, WriteCacheDiscard,
    WriteCachePlace,
};
pub use lun_numbers::SharedNumber;
pub use lun_reservations::{LunReservations, Registrant, ReservationKind};
pub use node_disk::{NodeDisk, is_network_disk, is_unit};
pub use notify::{Notifier, NotifierStatus};
pub use on_node::{OnNode, Unanswered, numbered};
pub use pool::{
    AddDisk, Balance, CheckFinding, CheckReport, CheckRequest, Pool, PoolCreate, PoolDetail, PoolForecast,
    PoolImport, PoolMember, PoolState, Rebalance, RebalanceReport, RebalancedDisk, RemoveDisk, ReplaceDisk,
    SLAB_BYTES_MAX, SLAB_BYTES_MIN, Scrub, SpaceState, check_slab_bytes,
};
pub use pool_address::{PoolAddress, PoolUpdate, ServiceAddress};
pub use pool_home::check_home;
pub use problem::{Code, Problem};
pub use qos::{
    QosAssign, QosBackground, QosFlow, QosPolicy, QosPolicyCreate, QosPolicyDetail, QosPolicyRemove,
    QosPolicyUpdate, QosSubject, QosUpdate, QosVolume,
};
pub use qos_policy::{Assignment, FlowStatus, Place, PlaceKind, Policies, Policy, PolicyKind, QosSettings};
pub use quota::{OwnerQuota, QuotaLimits, QuotaMode, QuotaUpdate, VolumeQuotas};
pub use resiliency::{RedundancyState, Resiliency};
pub use selector::{MAX_SELECTOR_BYTES, Selector, choose, natural_order};
pub use share_kind::ShareKind;
pub use smb::{
    Demand, Share, ShareCaching, ShareConfig, ShareCreate, SharePermission, ShareRight, ShareTraffic,
    ShareUpdate, Smb1Attempt, SmbConfig, SmbConstraint, SmbDialect, SmbInterface, SmbOpen, SmbSession,
    SmbStatus, SmbUpdate,
};
pub use smb_check::{check_share_name, parse_network};
pub use snapshot::{Snapshot, SnapshotCreate, SnapshotSchedule, SpaceUse};
pub use status::{
    Acknowledgement, CountedPool, Counts, Issue, RequestMemory, Severity, Status, UncountedPool, Verdict,
};
pub use units::{human_bytes, many, parse_bytes, with_article};
pub use volume::{LogPlace, Provisioning, Volume, VolumeCreate, VolumeRename, VolumeUpdate};

/// Prefix of every route.
pub const BASE_PATH: &str = "/v1";

/// Where the node listens when nothing else is said.
pub const DEFAULT_SOCKET: &str = "/run/holdfast/holdfast.sock";

/// The cookie of a session. Browsers keep one of this prefix for the host that set it, over TLS only.
pub const SESSION_COOKIE: &str = "__Host-holdfast-session";

/// The header that changes carry which are asked for with a cookie: pages of others cannot send it.
pub const REQUEST_HEADER: &str = "x-holdfast-request";

/// The header of what a page asks for by itself, again and again: it does not keep the session of who has gone away alive.
pub const POLL_HEADER: &str = "x-holdfast-poll";

/// Name of the socket inside a data directory.
pub const SOCKET_NAME: &str = "holdfast.sock";

/// A list as it travels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct List<T> {
    /// The things listed, sorted by what hurts most, then by name.
    pub items: Vec<T>,
    /// In a cluster, the nodes that should have told of theirs and did not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<Unanswered>,
}

impl<T> From<Vec<T>> for List<T> {
    fn from(items: Vec<T>) -> Self {
        Self { items, unanswered: Vec::new() }
    }
}

/// The body of a request that destroys something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Confirm {
    /// The name of the thing to destroy, repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// An answer that says only that it was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// One sentence for people: what was done.
    pub message: String,
    /// The job that goes on with it, if it takes longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
    /// The node whose job that is, where it is not the one that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

impl Done {
    /// Done, with a sentence.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), job: None, node: None }
    }
}
