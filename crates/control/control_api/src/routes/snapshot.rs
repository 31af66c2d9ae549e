//! Routes of snapshots.

use super::Method::{Delete, Post, Put};
use super::Role::{Administrator, Operator, Viewer};
use super::{Body, Method, Route, get, json, send, with_query};
use crate::*;

/// The routes.
pub(super) const SNAPSHOT: &[Route] = &[
    with_query(
        get(
            Viewer,
            "/volumes/{volume}/snapshots",
            "snapshot_list",
            "Snapshots, the oldest first.",
            json::<List<Snapshot>>(),
        ),
        &["space"],
    ),
    send(
        Operator,
        Post,
        "/volumes/{volume}/snapshots",
        "snapshot_create",
        "Takes a snapshot of a file, a directory or the volume.",
        json::<SnapshotCreate>(),
        json::<Snapshot>(),
    ),
    get(
        Viewer,
        "/volumes/{volume}/snapshots/{snapshot}",
        "snapshot_show",
        "A snapshot, with what it takes.",
        json::<Snapshot>(),
    ),
    send(
        Administrator,
        Delete,
        "/volumes/{volume}/snapshots/{snapshot}",
        "snapshot_delete",
        "Deletes a snapshot; its space comes back in the background.",
        json::<Confirm>(),
        json::<Done>(),
    ),
    send(
        Administrator,
        Post,
        "/volumes/{volume}/tree-clone",
        "tree_clone",
        "Makes a file or tree that shares another's storage, also one of a snapshot.",
        json::<FileClone>(),
        json::<FileEntry>(),
    ),
    with_query(
        Route {
            method: Method::Get,
            path: "/volumes/{volume}/snapshot-diff",
            id: "snapshot_diff",
            least: Some(Administrator),
            summary: "What differs between two files or trees, as a stream.",
            query: &[],
            request: Body::Empty,
            response: Body::Bytes,
        },
        &["base", "target"],
    ),
    with_query(
        send(
            Administrator,
            Put,
            "/volumes/{volume}/snapshot-diff",
            "snapshot_apply",
            "Makes a copy of a file or tree with the differences of a stream applied.",
            Body::Bytes,
            json::<FileEntry>(),
        ),
        &["onto", "to"],
    ),
    with_query(
        get(
            Viewer,
            "/volumes/{volume}/space",
            "file_space",
            "What a file or tree takes.",
            json::<SpaceUse>(),
        ),
        &["path"],
    ),
    get(
        Viewer,
        "/volumes/{volume}/snapshot-schedules",
        "schedule_list",
        "When snapshots are taken, and how many stay.",
        json::<List<SnapshotSchedule>>(),
    ),
    send(
        Administrator,
        Post,
        "/volumes/{volume}/snapshot-schedules",
        "schedule_set",
        "Makes a schedule, or replaces the one of that name.",
        json::<SnapshotSchedule>(),
        json::<SnapshotSchedule>(),
    ),
    send(
        Operator,
        Delete,
        "/volumes/{volume}/snapshot-schedules/{schedule}",
        "schedule_delete",
        "Deletes a schedule; its snapshots stay.",
        json::<Confirm>(),
        json::<Done>(),
    ),
];
