//! Routes of snapshots.

use super::Method::{Delete, Post, Put};
use super::{Body, Method, Route, get, json, send, with_query};
use crate::*;

/// The routes.
pub(super) const SNAPSHOT: &[Route] = &[
    with_query(
        get(
            "/volumes/{volume}/snapshots",
            "snapshot_list",
            "Snapshots, the oldest first.",
            json::<List<Snapshot>>(),
        ),
        &["space"],
    ),
    send(
        Post,
        "/volumes/{volume}/snapshots",
        "snapshot_create",
        "Takes a snapshot of a file, a directory or the volume.",
        json::<SnapshotCreate>(),
        json::<Snapshot>(),
    ),
    get(
        "/volumes/{volume}/snapshots/{snapshot}",
        "snapshot_show",
        "A snapshot, with what it takes.",
        json::<Snapshot>(),
    ),
    send(
        Delete,
        "/volumes/{volume}/snapshots/{snapshot}",
        "snapshot_delete",
        "Deletes a snapshot; its space comes back in the background.",
        json::<Confirm>(),
        json::<Done>(),
    ),
    send(
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
            summary: "What differs between two files or trees, as a stream.",
            query: &[],
            request: Body::Empty,
            response: Body::Bytes,
        },
        &["base", "target"],
    ),
    with_query(
        send(
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
        get("/volumes/{volume}/space", "file_space", "What a file or tree takes.", json::<SpaceUse>()),
        &["path"],
    ),
    get(
        "/volumes/{volume}/snapshot-schedules",
        "schedule_list",
        "When snapshots are taken, and how many stay.",
        json::<List<SnapshotSchedule>>(),
    ),
    send(
        Post,
        "/volumes/{volume}/snapshot-schedules",
        "schedule_set",
        "Makes a schedule, or replaces the one of that name.",
        json::<SnapshotSchedule>(),
        json::<SnapshotSchedule>(),
    ),
    send(
        Delete,
        "/volumes/{volume}/snapshot-schedules/{schedule}",
        "schedule_delete",
        "Deletes a schedule; its snapshots stay.",
        json::<Confirm>(),
        json::<Done>(),
    ),
];
