//! Handlers of snapshots.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter};
use control_api::{Confirm, FileClone, List, SnapshotCreate, SnapshotSchedule};
use serde::Deserialize;

use super::failure::Failure;
use super::handle;
use super::parts::{Params, S, Sent, answer, discard};
use crate::node::Node;

#[derive(Deserialize)]
struct SpaceQuery {
    #[serde(default)]
    space: bool,
}

#[derive(Deserialize)]
struct PathQuery {
    path: String,
}

#[derive(Deserialize)]
struct DiffQuery {
    base: String,
    target: String,
}

#[derive(Deserialize)]
struct ApplyQuery {
    onto: String,
    to: String,
}

/// The handler of the route named `id`.
pub(super) fn handler(id: &str, f: MethodFilter) -> Option<MethodRouter<Arc<Node>>> {
    type V = Path<String>;
    type Two = Path<(String, String)>;
    Some(match id {
        "snapshot_list" => handle(f, async |State(n): S, Path(v): V, Params(q): Params<SpaceQuery>| {
            answer(n.snapshot_list(&v, q.space).await.map(List::from))
        }),
        "snapshot_create" => handle(f, async |State(n): S, Path(v): V, Sent(b): Sent<SnapshotCreate>| {
            answer(n.snapshot_create(&v, b).await)
        }),
        "snapshot_show" => {
            handle(f, async |State(n): S, Path((v, s)): Two| answer(n.snapshot_show(&v, &s).await))
        }
        "snapshot_delete" => handle(f, async |State(n): S, Path((v, s)): Two, Sent(b): Sent<Confirm>| {
            answer(n.snapshot_delete(&v, &s, b.confirm).await)
        }),
        "tree_clone" => handle(f, async |State(n): S, Path(v): V, Sent(b): Sent<FileClone>| {
            answer(n.tree_clone(&v, b).await)
        }),
        "snapshot_diff" => handle(f, snapshot_diff),
        "snapshot_apply" => {
            handle(f, async |State(n): S, Path(v): V, Params(q): Params<ApplyQuery>, body: Body| {
                let mut data = body.into_data_stream();
                let applied = n.snapshot_apply(&v, &q.onto, &q.to, &mut data).await;
                if applied.is_err() {
                    // A client that is still sending would see the connection break instead of the reason.
                    discard(&mut data).await;
                }
                answer(applied)
            })
        }
        "file_space" => handle(f, async |State(n): S, Path(v): V, Params(q): Params<PathQuery>| {
            answer(n.file_space(&v, &q.path).await)
        }),
        "schedule_list" => {
            handle(f, async |State(n): S, Path(v): V| answer(n.schedule_list(&v).await.map(List::from)))
        }
        "schedule_set" => handle(f, async |State(n): S, Path(v): V, Sent(b): Sent<SnapshotSchedule>| {
            answer(n.schedule_set(&v, b).await)
        }),
        "schedule_delete" => handle(f, async |State(n): S, Path((v, s)): Two, Sent(b): Sent<Confirm>| {
            answer(n.schedule_delete(&v, &s, b.confirm).await)
        }),
        _ => return None,
    })
}

async fn snapshot_diff(
    State(n): S,
    Path(v): Path<String>,
    Params(q): Params<DiffQuery>,
) -> Result<Response, Failure> {
    let stream = n.snapshot_diff(&v, &q.base, &q.target).await?;
    let headers = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((headers, Body::from_stream(stream)).into_response())
}
