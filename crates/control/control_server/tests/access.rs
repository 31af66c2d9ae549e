//! The access matrix of the API: every route × who connects to the socket, and whether what goes was named.
//!
//! There is one role here, the machine's administrator: root, and the user that the node runs as. Who else comes near is turned
//! away by the socket, twice: by its mode, and by its credentials where somebody opened the folder up.
#![cfg(feature = "memory")]
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as BlockingStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use access_matrix::Matrix;
use control_api::routes::{ROUTES, Route};
use control_server::memory::Machine;
use control_server::{FoundDisk, NodeOptions, Running};
use shard_runtime::SystemClock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// Shows something.
    Looks,
    /// Makes or changes something, or sets work going.
    Changes,
    /// Takes something away, or does something to it that cannot be taken back: it has to be named once more.
    Destroys,
    /// Destroys what is not in this test's node: a session, an open file, a snapshot, a volume without its log.
    DestroysElsewhere,
}
use Does::{Changes, Destroys, DestroysElsewhere, Looks};

/// Every route of the API.
const ROWS: [(&str, Does); ROUTES.len()] = [
    ("openapi", Looks),
    ("status", Looks),
    ("counters", Looks),
    ("history", Looks),
    ("inspect", Looks),
    ("disk_list", Looks),
    ("disk_select", Looks),
    ("disk_set", Changes),
    ("disk_fault", Changes),
    ("disk_rescan", Changes),
    ("pool_list", Looks),
    ("pool_create", Changes),
    ("pool_import", Changes),
    ("pool_show", Looks),
    ("pool_update", Changes),
    ("pool_delete", Destroys),
    ("pool_check", Changes),
    ("pool_add_disk", Changes),
    ("pool_export", Destroys),
    ("pool_forget", DestroysElsewhere),
    ("pool_keep_disk", Changes),
    ("pool_rebalance", Changes),
    ("pool_remove_disk", Changes),
    ("pool_repair", Changes),
    ("pool_replace_disk", Changes),
    ("pool_retire_disk", Changes),
    ("pool_scrub", Changes),
    ("volume_list", Looks),
    ("volume_create", Changes),
    ("volume_show", Looks),
    ("volume_update", Changes),
    ("volume_rename", Changes),
    ("volume_delete", Destroys),
    ("volume_check", Changes),
    ("volume_give_up_log", DestroysElsewhere),
    ("volume_log_add", Changes),
    ("volume_log_remove", Changes),
    ("volume_reopen", Destroys),
    ("cache_show", Looks),
    ("cache_update", Changes),
    ("file_list", Looks),
    ("file_create", Changes),
    ("file_remove", Destroys),
    ("file_rename", Changes),
    ("file_clone", Changes),
    ("file_provision", Changes),
    ("tree_clone", Changes),
    ("file_stat", Looks),
    ("file_space", Looks),
    ("file_get", Looks),
    ("file_put", Changes),
    ("snapshot_list", Looks),
    ("snapshot_create", Changes),
    ("snapshot_show", Looks),
    ("snapshot_delete", DestroysElsewhere),
    ("snapshot_diff", Looks),
    ("snapshot_apply", Changes),
    ("quota_list", Looks),
    ("quota_update", Changes),
    ("quota_set", Changes),
    ("schedule_list", Looks),
    ("schedule_set", Changes),
    ("schedule_delete", DestroysElsewhere),
    ("lun_list", Looks),
    ("lun_create", Changes),
    ("lun_show", Looks),
    ("lun_update", Changes),
    ("lun_delete", Destroys),
    ("lun_map", Changes),
    ("lun_unmap", Changes),
    ("lun_clear_reservations", DestroysElsewhere),
    ("lun_forget_lost_writes", DestroysElsewhere),
    ("target_list", Looks),
    ("target_create", Changes),
    ("target_update", Changes),
    ("target_delete", Destroys),
    ("group_list", Looks),
    ("group_create", Changes),
    ("group_update", Changes),
    ("group_delete", Destroys),
    ("portal_list", Looks),
    ("portal_create", Changes),
    ("portal_delete", Destroys),
    ("iscsi_show", Looks),
    ("iscsi_update", Changes),
    ("qos_show", Looks),
    ("qos_update", Changes),
    ("qos_policy_list", Looks),
    ("qos_policy_show", Looks),
    ("qos_policy_create", Changes),
    ("qos_policy_update", Changes),
    ("qos_policy_delete", Destroys),
    ("qos_assign", Changes),
    ("qos_unassign", Changes),
    ("qos_flow_list", Looks),
    ("qos_volume_list", Looks),
    ("session_list", Looks),
    ("session_end", DestroysElsewhere),
    ("open_list", Looks),
    ("open_close", DestroysElsewhere),
    ("smb_show", Looks),
    ("smb_update", Changes),
    ("share_list", Looks),
    ("share_create", Changes),
    ("share_show", Looks),
    ("share_update", Changes),
    ("share_delete", Destroys),
    ("user_list", Looks),
    ("user_create", Changes),
    ("user_show", Looks),
    ("user_update", Changes),
    ("user_rename", Changes),
    ("user_delete", Destroys),
    ("user_password", Changes),
    ("user_unlock", Changes),
    ("user_group_list", Looks),
    ("user_group_create", Changes),
    ("user_group_show", Looks),
    ("user_group_update", Changes),
    ("user_group_rename", Changes),
    ("user_group_delete", Destroys),
    ("finding_list", Looks),
    ("finding_acknowledge", Changes),
    ("finding_unacknowledge", Changes),
    ("notifier_list", Looks),
    ("notifier_set", Changes),
    ("notifier_remove", DestroysElsewhere),
    ("notifier_test", Changes),
    ("login", Changes),
    ("logout", Changes),
    ("me", Looks),
    ("http_show", Looks),
    ("http_update", Changes),
    ("token_list", Looks),
    ("token_create", Changes),
    ("token_revoke", DestroysElsewhere),
    ("audit_list", Looks),
    ("metrics", Looks),
    ("event_stream", Looks),
    ("config_show", Looks),
    ("config_apply", Changes),
    ("job_list", Looks),
    ("job_show", Looks),
    ("cluster_show", Looks),
    ("cluster_balance", Looks),
    ("node_pause", Changes),
    ("node_resume", Changes),
    ("pool_move", Changes),
    ("cluster_place", Looks),
    ("cluster_init", Changes),
    ("cluster_token", Changes),
    ("cluster_join", Changes),
    ("cluster_leave", Changes),
    ("node_remove", Destroys),
];

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

const fn has_row(id: &str) -> bool {
    let mut at = 0;
    while at < ROWS.len() {
        if same(ROWS[at].0, id) {
            return true;
        }
        at += 1;
    }
    false
}

const _: () = {
    let mut at = 0;
    while at < ROUTES.len() {
        assert!(has_row(ROUTES[at].id), "a route has no row");
        at += 1;
    }
};

const COLUMNS: [&str; 4] = [
    "administrator",
    "administrator, without naming what goes",
    "another user of the machine",
    "another user, the socket's mode opened up",
];

/// What the routes' parameters stand for.
const NAMES: [(&str, &str); 15] = [
    ("{policy}", "gold"),
    ("{pool}", "p"),
    ("{volume}", "v"),
    ("{lun}", "l"),
    ("{target}", "iqn.2026-11.example:t"),
    ("{share}", "s"),
    ("{user}", "alice"),
    ("{snapshot}", "snap"),
    ("{schedule}", "plan"),
    ("{session}", "1"),
    ("{open}", "1"),
    ("{job}", "1"),
    ("{token}", "1"),
    ("{finding}", "1"),
    ("{notifier}", "hook"),
];

fn path_of(route: &Route) -> String {
    let group = if route.id.starts_with("user_group") { "staff" } else { "g" };
    let mut path = format!("/v1{}", route.path).replace("{group}", group);
    for (parameter, name) in NAMES {
        path = path.replace(parameter, name);
    }
    let value = |key: &str| match key {
        "address" => "127.0.0.1:3260",
        "disk" => "a",
        "lun" => "l",
        "path" if route.id == "file_remove" => "/f",
        "path" => "/",
        _ => "",
    };
    let query: Vec<String> = route
        .query
        .iter()
        .filter(|key| !value(key).is_empty())
        .map(|key| format!("{key}={}", value(key)))
        .collect();
    if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
}

/// A request that is whole, and asks for as little as it can.
fn request(route: &Route, body: &str) -> String {
    let (method, path) = (route.method.lower().to_uppercase(), path_of(route));
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

async fn send(node: &Running, request: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(node.socket()).await.expect("listens");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    // A stream of events goes on until somebody ends it: that it has begun is enough.
    while !String::from_utf8_lossy(&answer).contains("text/event-stream") {
        if stream.read_buf(&mut answer).await.expect("answered") == 0 {
            break;
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

/// A node with one of everything that can be taken away.
async fn node(dir: &tempfile::TempDir) -> Running {
    let options = NodeOptions { data_dir: dir.path().join("data"), socket: None, shards: None, http: None };
    let machine = Arc::new(Machine::default());
    let disk = |id: &str| FoundDisk { id: id.into(), path: format!("/dev/{id}"), ..FoundDisk::default() };
    *machine.found.lock() = ["a", "b"].map(disk).to_vec();
    let node =
        Running::start_with(options, Arc::new(SystemClock::new()), |data, _| Ok(machine.backends(data)))
            .await
            .expect("starts");
    node.wait_ready().await;
    for (id, body) in [
        ("pool_create", r#"{"name":"p","disks":["a","b"],"confirm":"p"}"#),
        ("volume_create", r#"{"name":"v","size_bytes":1073741824}"#),
        ("file_create", r#"{"path":"/f","size_bytes":4096}"#),
        ("target_create", r#"{"name":"iqn.2026-11.example:t"}"#),
        ("group_create", r#"{"name":"g","any":true}"#),
        ("lun_create", r#"{"name":"l","size_bytes":4096}"#),
        ("qos_policy_create", r#"{"name":"gold","max_iops":100}"#),
        ("portal_create", r#"{"address":"127.0.0.1:3260","group":1}"#),
        ("user_create", r#"{"name":"alice","password":"correct horse"}"#),
        ("user_group_create", r#"{"name":"staff"}"#),
        ("share_create", r#"{"name":"s"}"#),
    ] {
        let route = ROUTES.iter().find(|route| route.id == id).expect("a route");
        let (status, body) = send(&node, &request(route, body)).await;
        assert_eq!(status, 200, "{id}: {body}");
    }
    node
}

/// Everything that is there, as far as the API shows it.
async fn everything(node: &Running) -> Vec<String> {
    let mut all = Vec::new();
    for id in ["config_show", "pool_list", "volume_list", "file_list", "user_list", "lun_list"] {
        let route = ROUTES.iter().find(|route| route.id == id).expect("a route");
        all.push(send(node, &request(route, "")).await.1);
    }
    all
}

/// What the variable says that [`another_user`] connects to.
const SOCKET: &str = "HOLDFAST_TEST_SOCKET";

/// Runs as another user, started by the test below: sends every request, and says a line for each. By itself it has nothing to do.
#[test]
fn another_user() {
    let Some(path) = std::env::var_os(SOCKET) else { return };
    for route in ROUTES {
        let said = match BlockingStream::connect(&path) {
            Err(error) => format!("{:?}", error.kind()),
            Ok(mut stream) => {
                let sent = stream.write_all(request(route, "{}").as_bytes());
                let mut answer = Vec::new();
                let read = stream.read_to_end(&mut answer);
                drop((sent, read));
                format!("{} bytes", answer.len())
            }
        };
        println!("said {said}");
    }
}

/// What another user gets, for each route; `None` where this test cannot become one.
fn as_another_user(socket: &Path) -> Option<Vec<String>> {
    let child = Command::new(std::env::current_exe().ok()?)
        .args(["--exact", "another_user", "--nocapture"])
        .env(SOCKET, socket)
        .uid(65_534)
        .gid(65_534)
        .output()
        .ok()?;
    let out = String::from_utf8_lossy(&child.stdout).into_owned();
    let said: Vec<String> =
        out.lines().filter_map(|line| line.strip_prefix("said ").map(str::to_owned)).collect();
    (said.len() == ROUTES.len()).then_some(said)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_matrix_of_routes() {
    let about = "On the socket there is one role. Other users of the machine are turned away by the socket's mode, and by their credentials.";
    let mut matrix = Matrix::new("API", about, &COLUMNS);
    let dir = tempfile::tempdir().expect("temp dir");
    let node = node(&dir).await;
    let before = everything(&node).await;
    let socket = node.socket().to_owned();
    let by_mode = tokio::task::spawn_blocking(move || as_another_user(&socket)).await.expect("ended");
    for part in node.socket().ancestors().take_while(|part| part.starts_with(dir.path())) {
        let mode = if part == node.socket() { 0o666 } else { 0o755 };
        std::fs::set_permissions(part, PermissionsExt::from_mode(mode)).expect("opened up");
    }
    let socket = node.socket().to_owned();
    let by_credentials = tokio::task::spawn_blocking(move || as_another_user(&socket)).await.expect("ended");
    if by_mode.is_none() {
        eprintln!("skipped: only root can try as another user");
    }
    assert!(everything(&node).await == before, "another user has changed something");
    for (at, route) in ROUTES.iter().enumerate() {
        let does = ROWS.iter().find(|(id, _)| *id == route.id).expect("a row").1;
        // Without a body that makes sense: that it is answered at all is what counts, and that looking changes nothing.
        let (status, body) = send(&node, &request(route, if does == Looks { "" } else { "{" })).await;
        let unknown = body.contains(&format!("There is no {}", route.method.lower().to_uppercase()));
        let result = if !unknown { Ok(()) } else { Err(format!("got {status}: {body}")) };
        matrix.cell(route.id, "answered", result);
        if does == Destroys {
            let (status, body) = send(&node, &request(route, "{}")).await;
            let result = if status == 409 { Ok(()) } else { Err(format!("got {status}: {body}")) };
            matrix.cell(route.id, "409, nothing goes", result);
        } else {
            matrix.cell(route.id, "", Ok(()));
        }
        for (said, expected, shown) in [
            (&by_mode, "PermissionDenied", "cannot connect"),
            (&by_credentials, "0 bytes", "closed unanswered"),
        ] {
            let got = said.as_ref().map(|said| said[at].as_str());
            let right = got.is_none_or(|got| got == expected);
            matrix.cell(route.id, shown, if right { Ok(()) } else { Err(format!("got {got:?}")) });
        }
    }
    assert!(
        everything(&node).await == before,
        "what was not named has gone, or looking has changed something"
    );
    matrix.finish();
    node.stop().await.expect("stops");
}
