//! The API as a client on the socket sees it: problems, confirmations, the document. Parts are in memory.
#![cfg(feature = "memory")]
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::sync::Arc;

use control_server::memory::{Machine, MemorySmb};
use control_server::{FoundDisk, NodeOptions, Running};
use shard_runtime::SystemClock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

async fn node(dir: &tempfile::TempDir) -> Running {
    node_on(dir, &Arc::new(Machine::default())).await
}

async fn node_on(dir: &tempfile::TempDir, machine: &Arc<Machine>) -> Running {
    let options = NodeOptions { data_dir: dir.path().join("data"), socket: None, shards: None, http: None };
    let node =
        Running::start_with(options, Arc::new(SystemClock::new()), |data, _| Ok(machine.backends(data)))
            .await;
    let node = node.expect("starts");
    node.wait_ready().await;
    node
}

/// Sends raw bytes and returns status line, headers and body.
async fn raw(node: &Running, request: &str) -> (u16, String, String) {
    let mut stream = UnixStream::connect(node.socket()).await.expect("listens");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    (status, head.to_lowercase(), body.to_owned())
}

async fn send(node: &Running, method: &str, path: &str, body: &str) -> (u16, String, serde_json::Value) {
    let len = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n{body}"
    );
    let (status, head, body) = raw(node, &request).await;
    (status, head, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_error_is_a_problem() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = node(&dir).await;
    for (method, path, body, status, code) in [
        ("GET", "/", "", 404, "not-found"),
        ("GET", "/v1/nothing", "", 404, "not-found"),
        ("PUT", "/v1/status", "", 404, "not-found"),
        ("GET", "/v1/pools/p", "", 404, "not-found"),
        ("GET", "/v1/jobs/999", "", 404, "not-found"),
        ("GET", "/v1/jobs/x", "", 400, "invalid-request"),
        ("GET", "/v1/counters?flows=perhaps", "", 400, "invalid-request"),
        ("POST", "/v1/pools", "{", 400, "invalid-request"),
        ("POST", "/v1/pools", "{\"name\":\"p\",\"disks\":[],\"extra\":1}", 400, "invalid-request"),
        ("POST", "/v1/targets", "{\"name\":\"not an iqn\"}", 400, "invalid-request"),
        ("GET", "/v1/volumes/v/content", "", 400, "invalid-request"),
        ("GET", "/v1/volumes/v/content?path=/x&offset=-1", "", 400, "invalid-request"),
    ] {
        let (got, head, problem) = send(&node, method, path, body).await;
        assert_eq!((got, problem["code"].as_str()), (status, Some(code)), "{method} {path}: {problem}");
        assert!(head.contains("application/problem+json"), "{method} {path}: {head}");
        assert_eq!(problem["status"], status);
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
    }
    node.stop().await.expect("stops");
}

/// Before any disk is touched, and with the size that would do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_of_slabs_that_are_too_large_is_refused_with_the_largest() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = node(&dir).await;
    for (slab, said) in [
        (128_u64 << 30, "the largest has 64.0 GiB"),
        (1 << 63, "the largest has 64.0 GiB"),
        (3 << 20, "from 256 KiB to 64.0 GiB"),
        (0, "the smallest has 256 KiB"),
    ] {
        let body = format!("{{\"name\":\"p\",\"disks\":[\"a\"],\"slab_bytes\":{slab},\"confirm\":\"p\"}}");
        let (status, _, problem) = send(&node, "POST", "/v1/pools", &body).await;
        assert_eq!((status, problem["code"].as_str()), (400, Some("invalid-request")), "{problem}");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(said)), "{slab}: {problem}");
    }
    node.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confirmation_must_name_the_thing() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = node(&dir).await;
    send(&node, "POST", "/v1/initiator-groups", "{\"name\":\"g\",\"any\":true}").await;
    let (status, _, problem) = send(&node, "DELETE", "/v1/initiator-groups/g", "").await;
    assert_eq!((status, problem["confirm"].as_str()), (409, Some("g")));
    assert!(problem["destroys"][0].as_str().is_some_and(|what| what.contains('g')));
    let (status, ..) = send(&node, "DELETE", "/v1/initiator-groups/g", "{\"confirm\":\"h\"}").await;
    assert_eq!(status, 400);
    let (status, ..) = send(&node, "DELETE", "/v1/initiator-groups/g", "{\"confirm\":\"g\"}").await;
    assert_eq!(status, 200);
    node.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn document_is_served_and_noise_is_survived() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = node(&dir).await;
    for noise in ["\0\0\0\0\r\n\r\n", "GET\r\n\r\n", "GET /v1/status HTTP/9.9\r\n\r\n"] {
        let mut stream = UnixStream::connect(node.socket()).await.expect("listens");
        stream.write_all(noise.as_bytes()).await.expect("sent");
        // The end of what is sent, or a server that waits for more would be waited for.
        stream.shutdown().await.expect("half closed");
        let mut answer = Vec::new();
        // Closed with or without an answer; both are right.
        let _ = stream.read_to_end(&mut answer).await;
    }
    let (status, _, document) = send(&node, "GET", "/v1/openapi.json", "").await;
    assert_eq!((status, document["openapi"].as_str()), (200, Some("3.1.0")));
    node.stop().await.expect("stops");
}

/// A node that was killed still has its disks when its successor starts: the kernel has to end its requests first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disks_that_are_in_use_for_a_moment_are_waited_for() {
    let dir = tempfile::tempdir().expect("temp dir");
    let machine = Arc::new(Machine::default());
    let disk = |id: &str| FoundDisk { id: id.into(), path: format!("/dev/{id}"), ..FoundDisk::default() };
    *machine.found.lock() = ["a", "b", "c"].map(disk).to_vec();
    let members = async |node: &Running| -> Vec<String> {
        let (_, _, pool) = send(node, "GET", "/v1/pools/p", "").await;
        let members = pool["members"].as_array().unwrap_or_else(|| panic!("{pool}"));
        members.iter().map(|member| member["state"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let first = node_on(&dir, &machine).await;
    let create = "{\"name\":\"p\",\"disks\":[\"a\",\"b\",\"c\"],\"confirm\":\"p\"}";
    let (status, _, problem) = send(&first, "POST", "/v1/pools", create).await;
    assert!(status < 300, "{problem}");
    first.stop().await.expect("stops");
    // At the start.
    machine.busy.lock().extend(["a", "b", "c"].map(|id| (id.to_owned(), 3)));
    let second = node_on(&dir, &machine).await;
    assert_eq!(members(&second).await, ["online"; 3]);
    second.stop().await.expect("stops");
    // And when a disk comes back later.
    machine.found.lock().retain(|found| found.id != "b");
    let third = node_on(&dir, &machine).await;
    assert!(members(&third).await.contains(&"missing".to_owned()));
    machine.busy.lock().insert("b".into(), 1);
    machine.found.lock().push(disk("b"));
    for _ in 0..2 {
        send(&third, "POST", "/v1/disks/rescan", "{}").await;
    }
    assert_eq!(members(&third).await, ["online"; 3]);
    third.stop().await.expect("stops");
}

/// Asks for the status until it is as wanted.
async fn status_until(node: &Running, wanted: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    let mut last = serde_json::Value::Null;
    for _ in 0..1200 {
        let (_, _, status) = send(node, "GET", "/v1/status", "").await;
        last = status.clone();
        if wanted(&status) {
            return status;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the status does not become as wanted: {last}");
}

/// What is refused of logs, and that each answer says what to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_gets_a_log_and_loses_it() {
    let dir = tempfile::tempdir().expect("temp dir");
    let machine = Arc::new(Machine::default());
    let disk = |id: &str| FoundDisk { id: id.into(), path: format!("/dev/{id}"), ..FoundDisk::default() };
    *machine.found.lock() = ["a", "b"].map(disk).to_vec();
    let node = node_on(&dir, &machine).await;
    let create = "{\"name\":\"p\",\"disks\":[\"a\",\"b\"],\"confirm\":\"p\"}";
    send(&node, "POST", "/v1/pools", create).await;
    let create = "{\"name\":\"v\",\"size_bytes\":1073741824,\"resiliency\":\"mirror2\"}";
    let (status, _, problem) = send(&node, "POST", "/v1/volumes", create).await;
    assert!(status < 300, "{problem}");
    let add = "{\"size_bytes\":1073741824}";
    for (method, path, body, expected) in [
        ("DELETE", "/v1/volumes/v/log", "", 404),
        ("POST", "/v1/volumes/w/log", add, 404),
        ("DELETE", "/v1/volumes/w/log", "", 404),
        ("POST", "/v1/volumes/v/log", "{\"size_bytes\":1024}", 400),
        ("POST", "/v1/volumes/v/log", "{\"size_bytes\":1073741824,\"pool\":\"q\"}", 404),
        ("POST", "/v1/volumes/v/log", add, 200),
        ("POST", "/v1/volumes/v/log", add, 409),
        ("DELETE", "/v1/volumes/v/log", "", 200),
        ("DELETE", "/v1/volumes/v/log", "", 404),
    ] {
        let (status, _, answer) = send(&node, method, path, body).await;
        assert_eq!(status, expected, "{method} {path} {body}: {answer}");
        if status == 200 {
            assert_eq!(answer["log"].is_null(), method == "DELETE", "{answer}");
        }
    }
}

/// Two of four disks away: the volume stops, the pool goes on. Three: the pool stops too. Both come back by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_stopped_is_opened_again_when_its_disks_are_back() {
    let dir = tempfile::tempdir().expect("temp dir");
    let machine = Arc::new(Machine::default());
    let disk = |id: &str| FoundDisk { id: id.into(), path: format!("/dev/{id}"), ..FoundDisk::default() };
    let all = ["a", "b", "c", "d"];
    *machine.found.lock() = all.map(disk).to_vec();
    let node = node_on(&dir, &machine).await;
    let create = "{\"name\":\"p\",\"disks\":[\"a\",\"b\",\"c\",\"d\"],\"confirm\":\"p\"}";
    send(&node, "POST", "/v1/pools", create).await;
    let create = "{\"name\":\"v\",\"size_bytes\":1073741824,\"resiliency\":\"mirror2\"}";
    let (status, _, problem) = send(&node, "POST", "/v1/volumes", create).await;
    assert!(status < 300, "{problem}");
    let fault = async |id: &str, rules: &str| {
        let path = format!("/v1/disks/faults?disk={id}");
        let (status, _, problem) = send(&node, "PUT", &path, &format!("{{\"rules\":[{rules}]}}")).await;
        assert!(status < 300, "{id}: {problem}");
    };
    for (path, what) in [
        ("/v1/shares", "{\"name\":\"s\",\"permissions\":[{\"who\":\"Everyone\",\"right\":\"read\"}]}"),
        ("/v1/luns", "{\"name\":\"l\",\"size_bytes\":4096}"),
    ] {
        let (status, _, problem) = send(&node, "POST", path, what).await;
        assert!(status < 300, "{path}: {problem}");
    }
    let open = "/v1/volumes/v";
    for away in [&all[..2], &all[..3]] {
        for id in away {
            fault(id, "{\"kind\":\"vanish\"}").await;
        }
        let status = status_until(&node, |status| status["verdict"] == "unavailable").await;
        assert!(status["summary"].as_str().is_some_and(|line| line.starts_with("UNAVAILABLE")), "{status}");
        // What is said to be done is about the disks, whether all of the data cannot be had or a part of it.
        let issues = status["issues"].as_array().expect("issues");
        let of = |subject: &str| issues.iter().find(|issue| issue["subject"] == subject).expect("an issue");
        for subject in ["share s", "LUN l"] {
            let todo = of(subject)["todo"].as_str().unwrap_or_default();
            assert!(todo.contains("holdfast volume show v"), "{status}");
        }
        // Also while its pool is closed, the volume is listed, and none of it can be had.
        let (_, _, volume) = send(&node, "GET", open, "").await;
        assert_eq!(volume["redundancy"], "unavailable", "{volume}");
        // What is beside the note says the same as the note.
        let (_, _, share) = send(&node, "GET", "/v1/shares/s", "").await;
        let (_, _, lun) = send(&node, "GET", "/v1/luns/l", "").await;
        for (part, serves) in [(&share, share["online"] == true), (&lun, lun["serving"] == "online")] {
            let why = part["problem"].as_str().unwrap_or_default();
            assert_eq!(serves, why.starts_with("some data of volume v cannot be had"), "{part}");
            assert!(!why.is_empty(), "{part}");
        }
        for id in away {
            fault(id, "").await;
        }
        // Also what the volume serves.
        let status = status_until(&node, |status| {
            status["summary"].as_str().is_some_and(|line| line.starts_with("OK"))
        });
        assert_eq!(status.await["verdict"], "fully-redundant");
        let (_, _, volume) = send(&node, "GET", open, "").await;
        assert_eq!(volume["online"], true, "{volume}");
    }
    // By hand: what serves asks first.
    let (status, _, problem) = send(&node, "POST", "/v1/volumes/v/reopen", "{}").await;
    assert_eq!((status, problem["confirm"].as_str()), (409, Some("v")));
    let (status, _, done) = send(&node, "POST", "/v1/volumes/v/reopen", "{\"confirm\":\"v\"}").await;
    assert_eq!(status, 200, "{done}");
    assert_eq!(send(&node, "POST", "/v1/volumes/w/reopen", "{}").await.0, 404);
    node.stop().await.expect("stops");
}

/// The file systems of both disks were full when a volume was opened, and have room again: nothing of the pool's slabs tells that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_without_space_takes_changes_again_by_itself() {
    let dir = tempfile::tempdir().expect("temp dir");
    let machine = Arc::new(Machine::default());
    let disk = |id: &str| FoundDisk { id: id.into(), path: format!("/dev/{id}"), ..FoundDisk::default() };
    *machine.found.lock() = ["a", "b"].map(disk).to_vec();
    let node = node_on(&dir, &machine).await;
    send(&node, "POST", "/v1/pools", "{\"name\":\"p\",\"disks\":[\"a\",\"b\"],\"confirm\":\"p\"}").await;
    let create = "{\"name\":\"v\",\"size_bytes\":1073741824,\"resiliency\":\"mirror2\"}";
    let (status, _, problem) = send(&node, "POST", "/v1/volumes", create).await;
    assert!(status < 300, "{problem}");
    machine.set_full(true);
    let (status, _, problem) = send(&node, "POST", "/v1/volumes/v/reopen", "{\"confirm\":\"v\"}").await;
    assert!(status < 300, "{problem}");
    let status = status_until(&node, |status| status["verdict"] == "unavailable").await;
    let said = status["issues"].to_string();
    assert!(said.contains("no space for its metadata"), "{said}");
    // As it has to be typed: the volume serves, and is interrupted.
    assert!(said.contains("`holdfast volume reopen v --yes`"), "{said}");
    machine.set_full(false);
    let status = status_until(&node, |status| status["verdict"] == "fully-redundant").await;
    assert!(status["summary"].as_str().is_some_and(|line| line.starts_with("OK")), "{status}");
    node.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_password_ends_sessions_when_asked_to() {
    let dir = tempfile::tempdir().expect("temp dir");
    let smb = Arc::new(MemorySmb::default());
    let options = NodeOptions { data_dir: dir.path().join("data"), socket: None, shards: None, http: None };
    let node = Running::start_with(options, Arc::new(SystemClock::new()), |data, _| {
        let mut backends = Arc::new(Machine::default()).backends(data);
        backends.smb = smb.clone();
        Ok(backends)
    });
    let node = node.await.expect("starts");
    node.wait_ready().await;
    let (status, _, made) =
        send(&node, "POST", "/v1/users", "{\"name\":\"alice\",\"password\":\"correct horse\"}").await;
    assert_eq!(status, 200, "{made}");
    for (more, ended) in [("", 0), (",\"end_sessions\":false", 0), (",\"end_sessions\":true", 1)] {
        let body = format!("{{\"password\":\"battery staple\"{more}}}");
        let (status, _, user) = send(&node, "POST", "/v1/users/ALICE/password", &body).await;
        assert_eq!((status, smb.take_ended().len()), (200, ended), "{more}: {user}");
    }
    let (status, ..) = send(&node, "PATCH", "/v1/users/alice", "{\"disabled\":true}").await;
    let ended: Vec<_> = smb.take_ended().iter().map(ToString::to_string).collect();
    assert_eq!((status, ended), (200, vec![made["sid"].as_str().expect("a SID").to_owned()]));
}

/// A policy from its making to the end of the LUN that had it, by name and by GUID.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_are_given_to_luns_and_taken_from_them() {
    let dir = tempfile::tempdir().expect("temp dir");
    let machine = Arc::new(Machine::default());
    *machine.found.lock() = vec![FoundDisk { id: "a".into(), path: "/dev/a".into(), ..FoundDisk::default() }];
    let node = node_on(&dir, &machine).await;
    let guid = "11111111-2222-3333-4444-555555555555";
    let create =
        format!("{{\"name\":\"gold\",\"guid\":\"{guid}\",\"kind\":\"MultiInstance\",\"max_iops\":500}}");
    for (method, path, body, status, said) in [
        ("POST", "/v1/pools", r#"{"name":"p","disks":["a"],"confirm":"p"}"#, 200, ""),
        ("POST", "/v1/volumes", r#"{"name":"v","size_bytes":1073741824,"resiliency":"simple"}"#, 200, ""),
        ("POST", "/v1/luns", r#"{"name":"l","size_bytes":4096}"#, 200, ""),
        ("POST", "/v1/qos/policies", &create, 200, r#""kind":"dedicated""#),
        ("POST", "/v1/qos/policies", &create, 409, "already"),
        ("POST", "/v1/qos/policies", r#"{"name":"x","min_iops":-1}"#, 400, ""),
        ("POST", "/v1/qos/policies", r#"{"name":"x","min_iops":2,"max_iops":1}"#, 400, "above its maximum"),
        ("PATCH", "/v1/qos/policies/GOLD", r#"{"min_iops":100}"#, 200, r#""min_iops":100"#),
        ("PATCH", "/v1/qos/policies/gold", r#"{"min_iops":501}"#, 400, "above its maximum"),
        ("PATCH", "/v1/qos/policies/gold", r#"{"min_iops":0}"#, 200, r#""max_iops":500,"#),
        ("PATCH", "/v1/qos/policies/gold", r#"{"kind":"aggregated"}"#, 400, "kind"),
        ("PATCH", "/v1/qos/policies/silver", "{}", 404, "no policy silver"),
        ("POST", "/v1/qos/assignments", r#"{"policy":"gold","lun":"m"}"#, 404, "no LUN m"),
        ("POST", "/v1/qos/assignments", r#"{"policy":"gold","lun":"l"}"#, 200, r#""luns":["l"]"#),
        ("GET", "/v1/qos/policies/GOLD", "", 200, r#""flows":[],"guid":"11111111"#),
        ("GET", &format!("/v1/qos/policies/{guid}"), "", 200, r#""luns":["l"]"#),
        ("GET", "/v1/qos/policies/silver", "", 404, "no policy silver"),
        ("DELETE", "/v1/qos/policies/gold", r#"{"confirm":"gold"}"#, 409, "is given to LUN l"),
        ("DELETE", "/v1/qos/policies/gold", r#"{"force":true}"#, 409, "confirmation-required"),
        ("DELETE", "/v1/qos/assignments?lun=l&policy=silver", "", 409, "does not have"),
        ("DELETE", &format!("/v1/qos/policies/{guid}"), r#"{"confirm":"gold","force":true}"#, 200, "gone"),
        ("GET", "/v1/status", "", 200, "its QoS policy 11111111-"),
        ("POST", "/v1/qos/policies", &create, 200, r#""luns":["l"]"#),
        ("DELETE", &format!("/v1/qos/assignments?lun=l&policy={guid}"), "", 200, "has no policy"),
        ("DELETE", "/v1/qos/assignments?lun=l", "", 404, "LUN l has no policy."),
        ("DELETE", "/v1/qos/assignments?lun=m", "", 404, "no LUN m"),
        // What is taken is one's own: by the place another one may hold.
        (
            "POST",
            "/v1/volumes/v/files",
            r#"{"path":"/a/b","kind":"file","size_bytes":1,"parents":true}"#,
            200,
            "",
        ),
        ("POST", "/v1/qos/assignments", r#"{"policy":"gold","volume":"v"}"#, 200, r#""places":["volume v"]"#),
        (
            "DELETE",
            "/v1/qos/assignments?lun=l",
            "",
            404,
            "no policy of its own. Policy gold, that of volume v, holds",
        ),
        ("POST", "/v1/qos/assignments", r#"{"policy":"gold","lun":"l"}"#, 200, r#""luns":["l"]"#),
        (
            "DELETE",
            "/v1/qos/assignments?lun=l",
            "",
            200,
            "any more. Policy gold, that of volume v, holds for it now.",
        ),
        ("POST", "/v1/qos/assignments", r#"{"policy":"gold","folder":"v:/a"}"#, 200, "folder v:/a"),
        ("DELETE", "/v1/qos/assignments?file=v:/A/B", "", 404, "Policy gold, that of folder v:/a, holds"),
        ("DELETE", "/v1/qos/assignments?file=v:/a/c", "", 404, "There is no file v:/a/c."),
        ("DELETE", "/v1/qos/assignments?volume=w", "", 404, "There is no volume w."),
        // What is not there, and what is something else.
        ("POST", "/v1/qos/assignments", r#"{"policy":"gold","file":"v:/a/c"}"#, 404, "no file v:/a/c"),
        ("POST", "/v1/qos/assignments", r#"{"policy":"gold","file":"v:/a"}"#, 400, "is a folder and no file"),
        (
            "POST",
            "/v1/qos/assignments",
            r#"{"policy":"gold","folder":"v:/a/b"}"#,
            400,
            "is a file and no folder",
        ),
        (
            "POST",
            "/v1/qos/assignments",
            r#"{"policy":"gold","folder":"v:/a/b/c"}"#,
            404,
            "no folder v:/a/b/c",
        ),
        ("POST", "/v1/qos/assignments", r#"{"policy":"gold","file":"v:/a/../b"}"#, 400, "not a path"),
        ("POST", "/v1/qos/assignments", r#"{"policy":"gold","file":"v:/A/B"}"#, 200, "file v:/A/B"),
        // What has gone has its policy taken all the same.
        ("DELETE", "/v1/volumes/v/files?path=/a/b", r#"{"confirm":"/a/b"}"#, 200, ""),
        (
            "DELETE",
            "/v1/qos/assignments?file=v:/a/b",
            "",
            200,
            "Policy gold, that of folder v:/a, holds for it now.",
        ),
        ("DELETE", "/v1/qos/assignments?folder=v:/a", "", 200, "that of volume v, holds"),
        ("DELETE", "/v1/qos/assignments?volume=v", "", 200, "volume v has no policy."),
        ("POST", "/v1/qos/assignments", r#"{"policy":"gold","lun":"l"}"#, 200, ""),
        ("DELETE", "/v1/luns/l", r#"{"confirm":"l"}"#, 200, ""),
        ("GET", "/v1/qos/policies", "", 200, r#""luns":[]"#),
        ("PATCH", "/v1/qos", r#"{"unit_bytes":4096}"#, 200, r#""unit_bytes":4096"#),
        ("PATCH", "/v1/qos", r#"{"volume_depth":0}"#, 400, "volume_depth"),
        ("GET", "/v1/config", "", 200, r#""qos_policy":[{"#),
    ] {
        let (got, _, answer) = send(&node, method, path, body).await;
        assert_eq!(got, status, "{method} {path} {body}: {answer}");
        assert!(answer.to_string().contains(said), "{method} {path} {body}: {answer}");
    }
    node.stop().await.expect("stops");
}

/// A role of the API is a group's, not a name's: it goes with the group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_are_given_to_groups_that_there_are() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = node(&dir).await;
    let made = "{\"name\":\"bob\",\"password\":\"correct horse\"}";
    assert_eq!(send(&node, "POST", "/v1/users", made).await.0, 200);
    assert_eq!(send(&node, "POST", "/v1/user-groups", "{\"name\":\"staff\"}").await.0, 200);
    for (given, words) in [("nosuch", "no group of users nosuch"), ("bob", "bob is a user")] {
        for role in ["operators", "viewers"] {
            let (status, _, problem) =
                send(&node, "PATCH", "/v1/http", &format!("{{\"{role}\":[\"{given}\"]}}")).await;
            assert_eq!(status, 404, "{given}: {problem}");
            assert!(problem["detail"].as_str().is_some_and(|said| said.contains(words)), "{problem}");
        }
    }
    let (status, _, now) = send(&node, "PATCH", "/v1/http", "{\"operators\":[\"STAFF\"]}").await;
    assert_eq!((status, &now["operators"]), (200, &serde_json::json!(["staff"])), "{now}");
    // A file names groups, too.
    let (_, _, config) = send(&node, "GET", "/v1/config", "").await;
    let mut file = config.clone();
    file["http"]["viewers"] = serde_json::json!(["nosuch"]);
    let body = serde_json::json!({ "config": file, "dry_run": true }).to_string();
    assert_eq!(send(&node, "PUT", "/v1/config", &body).await.0, 404);
    let body = serde_json::json!({ "config": config, "dry_run": true }).to_string();
    assert_eq!(send(&node, "PUT", "/v1/config", &body).await.0, 200);
    // It goes with the group, which says so, and another one of that name does not have it.
    let (status, _, asked) = send(&node, "DELETE", "/v1/user-groups/staff", "{}").await;
    assert!(status == 409 && asked.to_string().contains("The role operator of the API"), "{asked}");
    assert_eq!(send(&node, "DELETE", "/v1/user-groups/staff", "{\"confirm\":\"staff\"}").await.0, 200);
    assert_eq!(send(&node, "POST", "/v1/user-groups", "{\"name\":\"staff\"}").await.0, 200);
    let (_, _, now) = send(&node, "GET", "/v1/http", "").await;
    assert!(now["operators"].as_array().is_none_or(Vec::is_empty), "{now}");
    node.stop().await.expect("stops");
}
