//! Every route of the API, in one table. The server registers handlers for exactly these (a test compares),
//! and the OpenAPI document is made from them.

mod access;
mod cluster;
mod findings;
mod iscsi;
mod nodes;
mod pool;
mod qos;
mod quota;
mod smb;
mod snapshot;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::*;

/// HTTP methods in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// Looks.
    Get,
    /// Makes, or acts.
    Post,
    /// Replaces.
    Put,
    /// Changes.
    Patch,
    /// Destroys.
    Delete,
}

impl Method {
    /// As OpenAPI writes it.
    #[must_use]
    pub fn lower(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Put => "put",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// What travels in a body.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// Nothing.
    Empty,
    /// JSON of this schema.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// Bytes of a file.
    Bytes,
    /// Text of this media type.
    Text(&'static str),
}

/// A route.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Method.
    pub method: Method,
    /// Path below [`BASE_PATH`], with `{parameters}`.
    pub path: &'static str,
    /// Name of the operation, unique.
    pub id: &'static str,
    /// Whom it is for at least; `None` where whoever connects may ask, to be let in.
    pub least: Option<Role>,
    /// One sentence.
    pub summary: &'static str,
    /// Query parameters.
    pub query: &'static [&'static str],
    /// What is sent.
    pub request: Body,
    /// What comes back.
    pub response: Body,
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const fn json<T: JsonSchema>() -> Body {
    Body::Json(schema::<T>)
}

const fn get(
    least: Role,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    response: Body,
) -> Route {
    let least = Some(least);
    Route { method: Method::Get, path, id, least, summary, query: &[], request: Body::Empty, response }
}

const fn send(
    least: Role,
    method: Method,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    request: Body,
    response: Body,
) -> Route {
    Route { method, path, id, least: Some(least), summary, query: &[], request, response }
}

const fn with_query(mut route: Route, query: &'static [&'static str]) -> Route {
    route.query = query;
    route
}

use Method::{Delete, Patch, Post, Put};
use Role::{Administrator, Operator, Viewer};

/// The routes.
pub const ROUTES: &[Route] =
    &joined::<{ WITH_FINDINGS.len() + access::ACCESS.len() }>(WITH_FINDINGS, access::ACCESS);

const WITH_FINDINGS: &[Route] =
    &joined::<{ WITH_CLUSTER.len() + findings::FINDINGS.len() }>(WITH_CLUSTER, findings::FINDINGS);

const WITH_CLUSTER: &[Route] =
    &joined::<{ WITH_NODES.len() + cluster::CLUSTER.len() }>(WITH_NODES, cluster::CLUSTER);

const WITH_NODES: &[Route] = &joined::<{ WITH_QOS.len() + nodes::NODES.len() }>(WITH_QOS, nodes::NODES);

const WITH_QOS: &[Route] = &joined::<{ WITH_QUOTAS.len() + qos::QOS.len() }>(WITH_QUOTAS, qos::QOS);

const WITH_QUOTAS: &[Route] =
    &joined::<{ WITH_SNAPSHOTS.len() + quota::QUOTAS.len() }>(WITH_SNAPSHOTS, quota::QUOTAS);

const WITH_SNAPSHOTS: &[Route] =
    &joined::<{ WITH_SMB.len() + snapshot::SNAPSHOT.len() }>(WITH_SMB, snapshot::SNAPSHOT);

const WITH_SMB: &[Route] = &joined::<{ WITH_POOLS.len() + smb::SMB.len() }>(WITH_POOLS, smb::SMB);

const WITH_POOLS: &[Route] = &joined::<{ WITH_ISCSI.len() + pool::POOLS.len() }>(WITH_ISCSI, pool::POOLS);

const WITH_ISCSI: &[Route] = &joined::<{ CORE.len() + iscsi::ISCSI.len() }>(CORE, iscsi::ISCSI);

/// Two tables as one.
const fn joined<const N: usize>(first: &[Route], second: &[Route]) -> [Route; N] {
    let mut all = [first[0]; N];
    let mut at = 0;
    while at < N {
        all[at] = if at < first.len() { first[at] } else { second[at - first.len()] };
        at += 1;
    }
    all
}

const CORE: &[Route] = &[
    get(Viewer, "/openapi.json", "openapi", "This document.", json::<serde_json::Value>()),
    get(
        Viewer,
        "/status",
        "status",
        "The node at a glance: is all data as redundant as promised?",
        json::<Status>(),
    ),
    with_query(
        get(
            Viewer,
            "/counters",
            "counters",
            "Raw counters of everything that does I/O, of QoS policies and flows with flows=true: differences of two answers are rates.",
            json::<Counters>(),
        ),
        &["flows"],
    ),
    with_query(
        get(
            Viewer,
            "/history",
            "history",
            "What counters were, in steps: each second for an hour, each minute for 30 days.",
            json::<History>(),
        ),
        &["from_unix_ms", "to_unix_ms", "step_seconds", "kind", "name", "sum"],
    ),
    get(
        Administrator,
        "/inspect",
        "inspect",
        "The live state of everything, for diagnosis.",
        json::<serde_json::Value>(),
    ),
    // --- disks ---
    get(Viewer, "/disks", "disk_list", "Disks of the machine and of pools.", json::<List<Disk>>()),
    send(
        Viewer,
        Post,
        "/disks/select",
        "disk_select",
        "Which disks selectors choose. Does nothing with them.",
        json::<DiskSelect>(),
        json::<List<Disk>>(),
    ),
    send(
        Operator,
        Post,
        "/disks/rescan",
        "disk_rescan",
        "Looks for new and returned disks.",
        Body::Empty,
        json::<RescanReport>(),
    ),
    with_query(
        send(
            Operator,
            Patch,
            "/disks",
            "disk_set",
            "Says what the disk doesn't: media type, enclosure, slot, model, serial number.",
            json::<DiskUpdate>(),
            json::<Disk>(),
        ),
        &["disk"],
    ),
    with_query(
        send(
            Administrator,
            Put,
            "/disks/faults",
            "disk_fault",
            "Switches faults on, for tests.",
            json::<FaultRequest>(),
            json::<Disk>(),
        ),
        &["disk"],
    ),
    // --- caches ---
    get(Viewer, "/cache", "cache_show", "The node's read cache.", json::<CacheStatus>()),
    send(
        Operator,
        Patch,
        "/cache",
        "cache_update",
        "Changes its size.",
        json::<CacheUpdate>(),
        json::<CacheStatus>(),
    ),
    // --- volumes ---
    get(Viewer, "/volumes", "volume_list", "Volumes.", json::<List<OnNode<Volume>>>()),
    send(
        Operator,
        Post,
        "/volumes",
        "volume_create",
        "Makes a space and a volume on it.",
        json::<VolumeCreate>(),
        json::<Volume>(),
    ),
    with_query(
        get(
            Viewer,
            "/volumes/{volume}",
            "volume_show",
            "A volume. Of several of one name, that of the pool that is named, or the one that is served.",
            json::<Volume>(),
        ),
        &["pool"],
    ),
    send(
        Operator,
        Patch,
        "/volumes/{volume}",
        "volume_update",
        "Grows a volume, or changes how it is cached.",
        json::<VolumeUpdate>(),
        json::<Volume>(),
    ),
    with_query(
        send(
            Administrator,
            Delete,
            "/volumes/{volume}",
            "volume_delete",
            "Destroys a volume and everything in it. Where several pools have one of its name, the pool must be named.",
            json::<Confirm>(),
            json::<Done>(),
        ),
        &["pool"],
    ),
    with_query(
        send(
            Administrator,
            Put,
            "/volumes/{volume}/name",
            "volume_rename",
            "Gives a volume another name; what is on it goes on. Where several pools have one of its name, the pool must be named.",
            json::<VolumeRename>(),
            json::<Volume>(),
        ),
        &["pool"],
    ),
    send(
        Operator,
        Post,
        "/volumes/{volume}/check",
        "volume_check",
        "Verifies all structures.",
        json::<CheckRequest>(),
        json::<CheckReport>(),
    ),
    send(
        Operator,
        Post,
        "/volumes/{volume}/reopen",
        "volume_reopen",
        "Closes a volume if it is open, and opens it.",
        json::<Confirm>(),
        json::<Done>(),
    ),
    send(
        Operator,
        Post,
        "/volumes/{volume}/log",
        "volume_log_add",
        "Puts a log before a volume in use.",
        json::<LogCreate>(),
        json::<Volume>(),
    ),
    send(
        Operator,
        Delete,
        "/volumes/{volume}/log",
        "volume_log_remove",
        "Brings what is in the log of a volume to the volume and takes the log away.",
        Body::Empty,
        json::<Volume>(),
    ),
    send(
        Administrator,
        Post,
        "/volumes/{volume}/give-up-log",
        "volume_give_up_log",
        "Opens a volume whose log is lost, without what was only there.",
        json::<Confirm>(),
        json::<Done>(),
    ),
    // --- files ---
    with_query(
        get(
            Viewer,
            "/volumes/{volume}/files",
            "file_list",
            "Entries of a directory.",
            json::<List<FileEntry>>(),
        ),
        &["path"],
    ),
    send(
        Administrator,
        Post,
        "/volumes/{volume}/files",
        "file_create",
        "Makes a file or directory.",
        json::<FileCreate>(),
        json::<FileEntry>(),
    ),
    with_query(
        send(
            Administrator,
            Delete,
            "/volumes/{volume}/files",
            "file_remove",
            "Removes a file or an empty directory.",
            json::<Confirm>(),
            json::<Done>(),
        ),
        &["path"],
    ),
    with_query(
        get(Viewer, "/volumes/{volume}/stat", "file_stat", "A file or directory.", json::<FileEntry>()),
        &["path"],
    ),
    send(
        Administrator,
        Post,
        "/volumes/{volume}/rename",
        "file_rename",
        "Moves a name.",
        json::<FileRename>(),
        json::<FileEntry>(),
    ),
    send(
        Administrator,
        Post,
        "/volumes/{volume}/clone",
        "file_clone",
        "Makes a file that shares another's storage.",
        json::<FileClone>(),
        json::<FileEntry>(),
    ),
    send(
        Administrator,
        Post,
        "/volumes/{volume}/provision",
        "file_provision",
        "Makes many images from one, each a disk of its own.",
        json::<FileProvision>(),
        json::<Provisioned>(),
    ),
    with_query(
        Route {
            method: Method::Get,
            path: "/volumes/{volume}/content",
            id: "file_get",
            least: Some(Administrator),
            summary: "Bytes of a file.",
            query: &[],
            request: Body::Empty,
            response: Body::Bytes,
        },
        &["path", "offset", "len"],
    ),
    with_query(
        send(
            Administrator,
            Put,
            "/volumes/{volume}/content",
            "file_put",
            "Writes bytes to a file, durably.",
            Body::Bytes,
            json::<FileEntry>(),
        ),
        &["path", "offset", "truncate"],
    ),
    // --- configuration, jobs ---
    with_query(
        get(Administrator, "/config", "config_show", "The declarative configuration.", json::<Config>()),
        &["redact"],
    ),
    send(
        Administrator,
        Put,
        "/config",
        "config_apply",
        "Puts a configuration in place, or says what would change.",
        json::<ConfigRequest>(),
        json::<ConfigDiff>(),
    ),
    get(Viewer, "/jobs", "job_list", "Work that takes long.", json::<List<OnNode<Job>>>()),
    get(Viewer, "/jobs/{job}", "job_show", "A job.", json::<Job>()),
];
