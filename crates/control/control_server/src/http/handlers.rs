//! One handler for each route. They only unpack and pack; the node does the work.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter};
use control_api::{
    AddDisk, CacheUpdate, CheckRequest, ConfigRequest, Confirm, CountersQuery, DiskSelect, DiskUpdate,
    FaultRequest, FileClone, FileCreate, FileProvision, FileRename, GroupConfig, GroupUpdate, HistoryQuery,
    IscsiUpdate, List, LogCreate, LunCreate, LunForget, LunMap, LunUpdate, PoolCreate, PoolImport,
    PoolUpdate, PortalConfig, Rebalance, RemoveDisk, ReplaceDisk, TargetConfig, TargetUpdate, VolumeCreate,
    VolumeRename, VolumeUpdate,
};
use serde::Deserialize;

use super::failure::Failure;
use super::handle;
use super::parts::{Json, Params, S, Sent, answer, discard, number};
use crate::node::{Node, PutMode};

#[derive(Deserialize)]
struct DiskQuery {
    disk: String,
}

#[derive(Deserialize)]
struct PathQuery {
    #[serde(default = "root")]
    path: String,
}

fn root() -> String {
    "/".into()
}

#[derive(Deserialize)]
struct PoolQuery {
    pool: Option<String>,
}

#[derive(Deserialize)]
struct AddressQuery {
    address: String,
}

#[derive(Deserialize)]
struct KeepQuery {
    #[serde(default)]
    keep_file: bool,
}

#[derive(Deserialize)]
struct RedactQuery {
    #[serde(default)]
    redact: bool,
}

#[derive(Deserialize)]
struct GetQuery {
    path: String,
    #[serde(default)]
    offset: u64,
    len: Option<u64>,
}

#[derive(Deserialize)]
struct PutQuery {
    path: String,
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    truncate: PutMode,
}

/// The handler of the route named `id`.
pub(crate) fn handler(id: &str, filter: MethodFilter) -> Option<MethodRouter<Arc<Node>>> {
    let f = filter;
    Some(match id {
        "openapi" => handle(f, async || Json(control_api::openapi::document())),
        "status" => handle(f, async |State(n): S| answer(n.status().await)),
        "inspect" => handle(f, async |State(n): S| answer(n.inspect().await)),
        "counters" => {
            handle(f, async |State(n): S, Params(q): Params<CountersQuery>| Json(n.counters(q.flows)))
        }
        "history" => {
            handle(f, async |State(n): S, Params(q): Params<HistoryQuery>| answer(n.history(q).await))
        }
        "disk_list" => handle(f, async |State(n): S| answer(n.disk_list().await.map(List::from))),
        "disk_select" => handle(f, async |State(n): S, Sent(b): Sent<DiskSelect>| {
            answer(n.disk_select(b).await.map(List::from))
        }),
        "disk_rescan" => handle(f, async |State(n): S| answer(n.disk_rescan().await)),
        "disk_set" => {
            handle(f, async |State(n): S, Params(q): Params<DiskQuery>, Sent(b): Sent<DiskUpdate>| {
                answer(n.disk_set(&q.disk, b).await)
            })
        }
        "disk_fault" => {
            handle(f, async |State(n): S, Params(q): Params<DiskQuery>, Sent(b): Sent<FaultRequest>| {
                answer(n.disk_fault(&q.disk, b).await)
            })
        }
        _ => {
            return pool_handler(id, f)
                .or_else(|| file_handler(id, f))
                .or_else(|| iscsi_handler(id, f))
                .or_else(|| super::smb_handlers::handler(id, f))
                .or_else(|| super::snapshot_handlers::handler(id, f))
                .or_else(|| super::qos_handlers::handler(id, f))
                .or_else(|| super::quota_handlers::handler(id, f))
                .or_else(|| super::cluster_handlers::handler(id, f))
                .or_else(|| super::node_handlers::handler(id, f))
                .or_else(|| super::access_handlers::handler(id, f))
                .or_else(|| super::finding_handlers::handler(id, f));
        }
    })
}

fn pool_handler(id: &str, f: MethodFilter) -> Option<MethodRouter<Arc<Node>>> {
    type P = Path<String>;
    type D = Params<DiskQuery>;
    Some(match id {
        "pool_list" => handle(f, async |State(n): S| answer(n.pool_list().await.map(List::from))),
        "pool_create" => {
            handle(f, async |State(n): S, Sent(b): Sent<PoolCreate>| answer(n.pool_create(b).await))
        }
        "pool_import" => {
            handle(f, async |State(n): S, Sent(b): Sent<PoolImport>| answer(n.pool_import(b).await))
        }
        "pool_show" => handle(f, async |State(n): S, Path(p): P| answer(n.pool_show(&p).await)),
        "pool_update" => handle(f, async |State(n): S, Path(p): P, Sent(b): Sent<PoolUpdate>| {
            answer(n.pool_update(&p, b).await)
        }),
        "pool_delete" => handle(f, async |State(n): S, Path(p): P, Sent(b): Sent<Confirm>| {
            answer(n.pool_delete(&p, b.confirm).await)
        }),
        "pool_export" => handle(f, async |State(n): S, Path(p): P, Sent(b): Sent<Confirm>| {
            answer(n.pool_export(&p, b.confirm).await)
        }),
        "pool_forget" => handle(f, async |State(n): S, Path(p): P, Sent(b): Sent<Confirm>| {
            answer(n.pool_forget(&p, b.confirm).await)
        }),
        "pool_add_disk" => handle(f, async |State(n): S, Path(p): P, Sent(b): Sent<AddDisk>| {
            answer(n.pool_add_disk(&p, b).await)
        }),
        "pool_remove_disk" => {
            handle(f, async |State(n): S, Path(p): P, Params(q): D, Sent(b): Sent<RemoveDisk>| {
                answer(n.pool_remove_disk(&p, &q.disk, b).await)
            })
        }
        "pool_retire_disk" => handle(f, async |State(n): S, Path(p): P, Params(q): D| {
            answer(n.pool_retire_disk(&p, &q.disk).await)
        }),
        "pool_keep_disk" => handle(f, async |State(n): S, Path(p): P, Params(q): D| {
            answer(n.pool_keep_disk(&p, &q.disk).await)
        }),
        "pool_replace_disk" => {
            handle(f, async |State(n): S, Path(p): P, Params(q): D, Sent(b): Sent<ReplaceDisk>| {
                answer(n.pool_replace_disk(&p, &q.disk, b).await)
            })
        }
        "pool_repair" => handle(f, async |State(n): S, Path(p): P| answer(n.pool_repair(&p).await)),
        "pool_scrub" => handle(f, async |State(n): S, Path(p): P| answer(n.pool_scrub(&p).await)),
        "pool_rebalance" => handle(f, async |State(n): S, Path(p): P, Sent(b): Sent<Rebalance>| {
            answer(n.pool_rebalance(&p, b).await)
        }),
        "pool_check" => handle(f, async |State(n): S, Path(p): P, Sent(b): Sent<CheckRequest>| {
            answer(n.pool_check(&p, b).await)
        }),
        "volume_list" => handle(f, async |State(n): S| answer(n.volume_list().await.map(List::from))),
        "volume_create" => {
            handle(f, async |State(n): S, Sent(b): Sent<VolumeCreate>| answer(n.volume_create(b).await))
        }
        "volume_show" => handle(f, async |State(n): S, Path(v): P, Params(q): Params<PoolQuery>| {
            answer(n.volume_show(&v, q.pool.as_deref()).await)
        }),
        "volume_update" => handle(f, async |State(n): S, Path(v): P, Sent(b): Sent<VolumeUpdate>| {
            answer(n.volume_update(&v, b).await)
        }),
        "volume_rename" => handle(
            f,
            async |State(n): S, Path(v): P, Params(q): Params<PoolQuery>, Sent(b): Sent<VolumeRename>| {
                answer(n.volume_rename(&v, q.pool, b).await)
            },
        ),
        "volume_reopen" => handle(f, async |State(n): S, Path(v): P, Sent(b): Sent<Confirm>| {
            answer(n.volume_reopen(&v, b.confirm).await)
        }),
        "volume_log_add" => handle(f, async |State(n): S, Path(v): P, Sent(b): Sent<LogCreate>| {
            answer(n.volume_log_add(&v, b).await)
        }),
        "volume_log_remove" => {
            handle(f, async |State(n): S, Path(v): P| answer(n.volume_log_remove(&v).await))
        }
        "volume_give_up_log" => handle(f, async |State(n): S, Path(v): P, Sent(b): Sent<Confirm>| {
            answer(n.volume_give_up_log(&v, b.confirm).await)
        }),
        "cache_show" => handle(f, async |State(n): S| answer(n.cache_show().await)),
        "cache_update" => {
            handle(f, async |State(n): S, Sent(b): Sent<CacheUpdate>| answer(n.cache_update(b).await))
        }
        "volume_delete" => handle(
            f,
            async |State(n): S, Path(v): P, Params(q): Params<PoolQuery>, Sent(b): Sent<Confirm>| {
                answer(n.volume_delete(&v, q.pool.as_deref(), b.confirm).await)
            },
        ),
        "volume_check" => handle(f, async |State(n): S, Path(v): P, Sent(b): Sent<CheckRequest>| {
            answer(n.volume_check(&v, b).await)
        }),
        "config_show" => {
            handle(f, async |State(n): S, Params(q): Params<RedactQuery>| Json(n.config_show(q.redact)))
        }
        "config_apply" => {
            handle(f, async |State(n): S, Sent(b): Sent<ConfigRequest>| answer(n.config_apply(b).await))
        }
        "job_list" => handle(f, async |State(n): S| answer(n.job_list().await.map(List::from))),
        "job_show" => handle(f, async |State(n): S, Path(j): Path<String>| {
            answer(number(&n, &j).and_then(|j| n.job_show(j)))
        }),
        _ => return None,
    })
}

fn file_handler(id: &str, f: MethodFilter) -> Option<MethodRouter<Arc<Node>>> {
    type V = Path<String>;
    type Q = Params<PathQuery>;
    Some(match id {
        "file_list" => handle(f, async |State(n): S, Path(v): V, Params(q): Q| {
            answer(n.file_list(&v, &q.path).await.map(List::from))
        }),
        "file_stat" => {
            handle(f, async |State(n): S, Path(v): V, Params(q): Q| answer(n.file_stat(&v, &q.path).await))
        }
        "file_create" => handle(f, async |State(n): S, Path(v): V, Sent(b): Sent<FileCreate>| {
            answer(n.file_create(&v, b).await)
        }),
        "file_remove" => handle(f, async |State(n): S, Path(v): V, Params(q): Q, Sent(b): Sent<Confirm>| {
            answer(n.file_remove(&v, &q.path, b.confirm).await)
        }),
        "file_rename" => handle(f, async |State(n): S, Path(v): V, Sent(b): Sent<FileRename>| {
            answer(n.file_rename(&v, b).await)
        }),
        "file_clone" => handle(f, async |State(n): S, Path(v): V, Sent(b): Sent<FileClone>| {
            answer(n.file_clone(&v, b).await)
        }),
        "file_provision" => handle(f, async |State(n): S, Path(v): V, Sent(b): Sent<FileProvision>| {
            answer(n.file_provision(&v, b).await)
        }),
        "file_get" => handle(f, file_get),
        "file_put" => handle(f, async |State(n): S, Path(v): V, Params(q): Params<PutQuery>, body: Body| {
            let mut data = body.into_data_stream();
            let put = n.file_put(&v, &q.path, q.offset, q.truncate, &mut data).await;
            if put.is_err() {
                // A client that is still sending would see the connection break instead of the reason.
                discard(&mut data).await;
            }
            answer(put)
        }),
        _ => return None,
    })
}

async fn file_get(
    State(n): S,
    Path(v): Path<String>,
    Params(q): Params<GetQuery>,
) -> Result<Response, Failure> {
    let (len, stream) = n.file_get(&v, &q.path, q.offset, q.len).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, len.to_string()),
    ];
    Ok((headers, Body::from_stream(stream)).into_response())
}

fn iscsi_handler(id: &str, f: MethodFilter) -> Option<MethodRouter<Arc<Node>>> {
    type P = Path<String>;
    Some(match id {
        "iscsi_show" => handle(f, async |State(n): S| Json(n.iscsi_show())),
        "iscsi_update" => {
            handle(f, async |State(n): S, Sent(b): Sent<IscsiUpdate>| answer(n.iscsi_update(b).await))
        }
        "target_list" => handle(f, async |State(n): S| answer(n.target_list().await.map(List::from))),
        "target_create" => {
            handle(f, async |State(n): S, Sent(b): Sent<TargetConfig>| answer(n.target_create(b).await))
        }
        "target_update" => handle(f, async |State(n): S, Path(t): P, Sent(b): Sent<TargetUpdate>| {
            answer(n.target_update(&t, b).await)
        }),
        "target_delete" => handle(f, async |State(n): S, Path(t): P, Sent(b): Sent<Confirm>| {
            answer(n.target_delete(&t, b.confirm).await)
        }),
        "lun_list" => handle(f, async |State(n): S| answer(n.lun_list().await.map(List::from))),
        "lun_create" => {
            handle(f, async |State(n): S, Sent(b): Sent<LunCreate>| answer(n.lun_create(b).await))
        }
        "lun_show" => handle(f, async |State(n): S, Path(l): P| answer(n.lun_show(&l).await)),
        "lun_update" => handle(f, async |State(n): S, Path(l): P, Sent(b): Sent<LunUpdate>| {
            answer(n.lun_update(&l, b).await)
        }),
        "lun_delete" => handle(
            f,
            async |State(n): S, Path(l): P, Params(q): Params<KeepQuery>, Sent(b): Sent<Confirm>| {
                answer(n.lun_delete(&l, q.keep_file, b.confirm).await)
            },
        ),
        "lun_map" => {
            handle(f, async |State(n): S, Path(l): P, Sent(b): Sent<LunMap>| answer(n.lun_map(&l, b).await))
        }
        "lun_unmap" => {
            handle(f, async |State(n): S, Path(l): P, Sent(b): Sent<LunMap>| answer(n.lun_unmap(&l, b).await))
        }
        "lun_clear_reservations" => handle(f, async |State(n): S, Path(l): P, Sent(b): Sent<Confirm>| {
            answer(n.lun_clear_reservations(&l, b.confirm).await)
        }),
        "lun_forget_lost_writes" => handle(f, async |State(n): S, Path(l): P, Sent(b): Sent<LunForget>| {
            answer(n.lun_forget_lost_writes(&l, b).await)
        }),
        "group_list" => handle(f, async |State(n): S| Json(List::from(n.group_list()))),
        "group_create" => {
            handle(f, async |State(n): S, Sent(b): Sent<GroupConfig>| answer(n.group_create(b).await))
        }
        "group_update" => handle(f, async |State(n): S, Path(g): P, Sent(b): Sent<GroupUpdate>| {
            answer(n.group_update(&g, b).await)
        }),
        "group_delete" => handle(f, async |State(n): S, Path(g): P, Sent(b): Sent<Confirm>| {
            answer(n.group_delete(&g, b.confirm).await)
        }),
        "portal_list" => handle(f, async |State(n): S| answer(n.portal_list().await.map(List::from))),
        "portal_create" => {
            handle(f, async |State(n): S, Sent(b): Sent<PortalConfig>| answer(n.portal_create(b).await))
        }
        "portal_delete" => {
            handle(f, async |State(n): S, Params(q): Params<AddressQuery>, Sent(b): Sent<Confirm>| {
                answer(n.portal_delete(&q.address, b.confirm).await)
            })
        }
        "session_list" => handle(f, async |State(n): S| answer(n.session_list().await.map(List::from))),
        "session_end" => handle(f, async |State(n): S, Path(s): Path<String>, Sent(b): Sent<Confirm>| {
            match number(&n, &s) {
                Ok(id) => answer(n.session_end(id, b.confirm).await),
                Err(problem) => answer(Err(problem)),
            }
        }),
        _ => return None,
    })
}
