//! Users and groups: who is asked before sessions end, what becomes of names, and what the record of changes says of them.

use control_api::{Session, SmbSession};
use control_server::FoundDisk;
use serde_json::{Value, json};

use crate::world::World;

impl World {
    /// What is said to a request that is refused with this code.
    async fn refused(&self, method: &str, path: &str, body: &Value, code: &str) -> Value {
        let (status, answer) = self.locally(method, path, body).await;
        assert!(status >= 400 && answer["code"] == code, "{method} {path}: {status} {answer}");
        answer
    }

    /// The newest entry of the record of changes.
    async fn newest(&self) -> Value {
        self.local("GET", "/v1/audit?limit=1", &json!({})).await["items"][0].clone()
    }

    /// The share `s` on a volume.
    async fn share(&self, permissions: &Value) {
        let disk = |id: &str| FoundDisk { id: id.into(), path: format!("/dev/{id}"), ..FoundDisk::default() };
        *self.machine.found.lock() = ["a", "b"].map(disk).to_vec();
        self.local("POST", "/v1/disks/rescan", &json!({})).await;
        self.local("POST", "/v1/pools", &json!({ "name": "p", "disks": ["a", "b"], "confirm": "p" })).await;
        self.local("POST", "/v1/volumes", &json!({ "name": "v", "size_bytes": 1 << 30 })).await;
        self.local("POST", "/v1/shares", &json!({ "name": "s", "permissions": permissions })).await;
    }
}

fn lines(problem: &Value) -> String {
    problem["destroys"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join("\n")
}

/// A field of an entry: what was there, and what is there now.
fn field(entry: &Value, name: &str) -> (Value, Value) {
    let changes = entry["changes"].as_array().cloned().unwrap_or_default();
    let change = changes.into_iter().find(|change| change["field"] == name);
    let change = change.unwrap_or_else(|| panic!("no {name}: {entry}"));
    (change["old"].clone(), change["new"].clone())
}

fn connected(user: &str, sid: &str) -> Session {
    let smb = SmbSession { user: user.into(), sid: sid.into(), opens: 3, ..SmbSession::default() };
    Session { address: "192.0.2.7:50000".into(), smb: Some(smb), ..Session::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_would_end_are_asked_about() {
    let world = World::start().await;
    // Of nobody's session, nobody is asked.
    world.local("PATCH", "/v1/users/vera", &json!({ "disabled": true })).await;
    world.local("PATCH", "/v1/users/vera", &json!({ "disabled": false })).await;
    world.local("PATCH", "/v1/user-groups/staff", &json!({ "remove": ["otto"] })).await;
    world.local("PATCH", "/v1/user-groups/staff", &json!({ "add": ["otto"] })).await;

    let (ada, otto) = (world.session("ada").await, world.session("otto").await);
    let alive = async |cookie: &str| {
        world.client.send("GET", "/v1/me", &[("cookie", cookie)], "").await.status == 200
    };
    let disable = json!({ "disabled": true });
    let told = lines(&world.refused("PATCH", "/v1/users/otto", &disable, "confirmation-required").await);
    assert!(told.contains("1 session of otto with the management of the node ends"), "{told}");
    *world.smb.connected.lock() = vec![connected("otto", ""), connected("vera", "")];
    let told = lines(&world.refused("PATCH", "/v1/users/OTTO", &disable, "confirmation-required").await);
    assert!(
        told.contains("The session of otto from 192.0.2.7:50000 ends") && told.contains("3 open files"),
        "{told}"
    );
    assert!(!told.contains("vera") && told.contains("with the management"), "{told}");
    // Who only changes its comment, or is let in again, ends nothing.
    world.local("PATCH", "/v1/users/otto", &json!({ "comment": "c", "disabled": false })).await;
    let leave = json!({ "remove": ["ada"] });
    let told =
        world.refused("PATCH", "/v1/user-groups/Administrators", &leave, "confirmation-required").await;
    assert!(lines(&told).contains("1 session of ada") && told["confirm"] == "Administrators", "{told}");
    // Of who takes the group away, and of who takes its role.
    let told =
        lines(&world.refused("DELETE", "/v1/user-groups/staff", &json!({}), "confirmation-required").await);
    assert!(told.contains("1 session of otto"), "{told}");
    let roles = json!({ "operators": [] });
    let told = lines(&world.refused("PATCH", "/v1/http", &roles, "confirmation-required").await);
    assert!(told.contains("1 session of otto"), "{told}");
    // A role in place of the other one ends nothing.
    world.local("PATCH", "/v1/http", &json!({ "operators": ["watchers"], "viewers": ["staff"] })).await;
    let mut config = world.local("GET", "/v1/config", &json!({})).await;
    config["http"]["viewers"] = json!([]);
    let apply = json!({ "config": config });
    let told = lines(&world.refused("PUT", "/v1/config", &apply, "confirmation-required").await);
    assert!(told.contains("1 session of otto"), "{told}");
    let told = lines(&world.refused("DELETE", "/v1/users/otto", &json!({}), "confirmation-required").await);
    assert!(told.contains("1 session of otto") && told.contains("192.0.2.7"), "{told}");
    assert!(alive(&ada).await && alive(&otto).await, "nothing was done");

    let confirmed = json!({ "remove": ["ada"], "confirm": "Administrators" });
    world.local("PATCH", "/v1/user-groups/Administrators", &confirmed).await;
    let confirmed = json!({ "disabled": true, "confirm": "otto" });
    world.local("PATCH", "/v1/users/otto", &confirmed).await;
    assert!(!alive(&ada).await && !alive(&otto).await);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn initiators_that_would_find_no_target_are_asked_about() {
    let world = World::start().await;
    let chap = |on: bool| json!({ "discovery_chap": on });
    world.local("PATCH", "/v1/iscsi", &chap(true)).await;
    world.local("PATCH", "/v1/iscsi", &chap(false)).await;
    let session = |host: &str, user: Option<&str>| Session {
        initiator: format!("iqn.2026-11.example:{host}"),
        target: "iqn.2026-11.example:t".into(),
        address: "192.0.2.9:1".into(),
        chap_user: user.map(str::to_owned),
        ..Session::default()
    };
    *world.iscsi.connected.lock() = vec![session("a", Some("u"))];
    world.local("PATCH", "/v1/iscsi", &chap(true)).await;
    world.local("PATCH", "/v1/iscsi", &chap(false)).await;
    world.iscsi.connected.lock().push(session("b", None));
    let told = world.refused("PATCH", "/v1/iscsi", &chap(true), "confirmation-required").await;
    assert!(
        lines(&told).contains("example:b from 192.0.2.9:1") && !lines(&told).contains("example:a"),
        "{told}"
    );
    assert_ne!(world.local("GET", "/v1/iscsi", &json!({})).await["discovery_chap"], true);
    let confirmed = json!({ "discovery_chap": true, "confirm": "discovery" });
    assert_eq!(world.local("PATCH", "/v1/iscsi", &confirmed).await["discovery_chap"], true);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_with_a_user_or_group_is_recorded() {
    let world = World::start().await;
    let permissions = json!([{ "who": "nora", "right": "full" }, { "who": "staff", "right": "read" }]);
    world.share(&permissions).await;
    world.local("PATCH", "/v1/user-groups/watchers", &json!({ "add": ["staff", "nora"] })).await;
    let sid =
        world.local("GET", "/v1/users/nora", &json!({})).await["sid"].as_str().expect("a SID").to_owned();
    world.local("DELETE", "/v1/users/nora", &json!({ "confirm": "nora" })).await;
    let entry = world.newest().await;
    assert_eq!(entry["object"], format!("nora ({sid})"));
    assert_eq!(field(&entry, "permissions").0, json!([{ "share": "s", "right": "full" }]));
    assert_eq!(field(&entry, "groups").0, json!(["watchers"]));
    assert_eq!(field(&entry, "sid").0, json!(sid));
    world.local("DELETE", "/v1/user-groups/staff", &json!({ "confirm": "staff" })).await;
    let entry = world.newest().await;
    assert_eq!(field(&entry, "permissions").0, json!([{ "share": "s", "right": "read" }]));
    assert_eq!(field(&entry, "roles").0, json!(["operator"]));
    assert_eq!(
        (field(&entry, "groups").0, field(&entry, "members").0),
        (json!(["watchers"]), json!(["otto"]))
    );
    // Nobody may connect to the share any more, and somebody says so.
    let issue = async || {
        let status = world.local("GET", "/v1/status", &json!({})).await;
        let issues = status["issues"].as_array().cloned().unwrap_or_default();
        issues.into_iter().find(|issue| issue["code"] == "share-nobody")
    };
    let told = issue().await.expect("a finding");
    assert!(told["subject"] == "share s" && told["detail"].to_string().contains("no permissions"), "{told}");
    // A configuration may still have who is gone.
    let mut config = world.local("GET", "/v1/config", &json!({})).await;
    config["share"][0]["permission"] = json!([{ "who": sid, "right": "full" }]);
    world.local("PUT", "/v1/config", &json!({ "config": config })).await;
    let told = issue().await.expect("a finding");
    assert!(told["detail"].as_str().is_some_and(|told| told.contains(&sid)), "{told}");
    world.local("PATCH", "/v1/shares/s", &json!({ "grant": [{ "who": "vera", "right": "read" }] })).await;
    assert_eq!(issue().await, None);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_name_changes_nothing_else() {
    let world = World::start().await;
    world.share(&json!([{ "who": "otto", "right": "full" }])).await;
    let cookie = world.session("otto").await;
    let before = world.local("GET", "/v1/users/otto", &json!({})).await;
    let sid = before["sid"].as_str().expect("a SID");
    *world.smb.connected.lock() = vec![connected("otto", sid)];
    for (to, code) in [("VERA", "already-exists"), ("staff", "already-exists"), ("a/b", "invalid-request")] {
        world.refused("PUT", "/v1/users/otto/name", &json!({ "name": to }), code).await;
    }
    world.refused("PUT", "/v1/users/none/name", &json!({ "name": "x" }), "not-found").await;
    let after = world.local("PUT", "/v1/users/otto/name", &json!({ "name": "Otto2" })).await;
    let mut expected = before.clone();
    (expected["name"], expected["sessions"]) = (json!("Otto2"), json!(1));
    assert_eq!(after, expected);
    let entry = world.newest().await;
    assert_eq!(field(&entry, "name"), (json!("otto"), json!("Otto2")));
    assert_eq!(entry["object"], format!("otto ({sid})"));
    let share = world.local("GET", "/v1/shares/s", &json!({})).await;
    assert_eq!(share["permission"], json!([{ "who": "Otto2", "right": "full" }]));
    // Its session with the API goes on, and it logs in by the new name.
    let me = world.client.send("GET", "/v1/me", &[("cookie", &cookie)], "").await;
    assert_eq!(
        (me.status, &me.json()["user"], &me.json()["role"]),
        (200, &json!("Otto2"), &json!("operator"))
    );
    assert_eq!(world.log_in("otto", crate::world::PASSWORD).await.status, 401);
    world.session("OTTO2").await;
    world.refused("PUT", "/v1/user-groups/Users/name", &json!({ "name": "x" }), "unsupported").await;
    world.local("PUT", "/v1/user-groups/staff/name", &json!({ "name": "crew" })).await;
    assert_eq!(field(&world.newest().await, "name"), (json!("staff"), json!("crew")));
    let me = world.client.send("GET", "/v1/me", &[("cookie", &cookie)], "").await;
    assert_eq!(me.json()["role"], "operator", "the role is the group's, whatever it is called");
    assert_eq!(world.local("GET", "/v1/http", &json!({})).await["operators"], json!(["crew"]));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_in_a_circle_are_refused_with_the_chain() {
    let world = World::start().await;
    world.local("POST", "/v1/user-groups", &json!({ "name": "all", "members": ["staff"] })).await;
    world.local("PATCH", "/v1/user-groups/staff", &json!({ "add": ["watchers"] })).await;
    // Nothing of a request that would make one is done.
    let add = json!({ "comment": "c", "add": ["nora", "all"] });
    let told = world.refused("PATCH", "/v1/user-groups/watchers", &add, "invalid-request").await;
    assert!(
        told["detail"].as_str().is_some_and(|told| told.contains("watchers in staff, staff in all")),
        "{told}"
    );
    let watchers = world.local("GET", "/v1/user-groups/watchers", &json!({})).await;
    assert_eq!((&watchers["members"], &watchers["comment"]), (&json!(["vera"]), &json!("")));
    // Who is meant is told by name, with the SID.
    let again =
        world.refused("PATCH", "/v1/user-groups/staff", &json!({ "add": ["otto"] }), "already-exists").await;
    let told = again["detail"].as_str().unwrap_or_default();
    assert!(told.starts_with("Otto (S-1-5-21-") || told.starts_with("otto (S-1-5-21-"), "{told}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_of_a_group_that_is_gone_is_told_with_what_works() {
    let world = World::start().await;
    let config = world.local("GET", "/v1/config", &json!({})).await;
    let gone = config["http"]["operators"][0].as_str().expect("a SID").to_owned();
    world.local("DELETE", "/v1/user-groups/staff", &json!({ "confirm": "staff" })).await;
    let told = world.refused("PUT", "/v1/config", &json!({ "config": config }), "not-found").await;
    let todo = told["todo"].as_str().unwrap_or_default();
    assert!(
        told["detail"].as_str().is_some_and(|told| told.contains("http.operators") && told.contains(&gone)),
        "{told}"
    );
    assert!(!todo.contains("group create") && todo.contains("take"), "no new group has that SID: {todo}");
    // All that is wrong is told at once, each with what can be done.
    let mut named = config.clone();
    (named["http"]["operators"], named["http"]["viewers"]) =
        (json!(["crew", "vera"]), json!([gone, "watchers"]));
    let told = world.refused("PUT", "/v1/config", &json!({ "config": named }), "not-found").await;
    let (detail, todo) = (told["detail"].to_string(), told["todo"].to_string());
    for part in ["http.operators", "crew", "vera is a user", "http.viewers", &gone] {
        assert!(detail.contains(part), "{part}: {detail}");
    }
    assert!(todo.contains("`holdfast group create crew`") && !todo.contains("group create vera"), "{todo}");
    world.local("POST", "/v1/user-groups", &json!({ "name": "crew" })).await;
    (named["http"]["operators"], named["http"]["viewers"]) = (json!(["crew"]), json!(["watchers"]));
    // Who only asks what would come of it has changed nothing.
    world.local("PUT", "/v1/config", &json!({ "config": named, "dry_run": true })).await;
    assert_eq!(world.newest().await["result"], "dry-run");
    world.local("PUT", "/v1/config", &json!({ "config": named })).await;
    // The record has the name that was typed, and whose it is.
    let crew = world.local("GET", "/v1/user-groups/crew", &json!({})).await["sid"]
        .as_str()
        .expect("a SID")
        .to_owned();
    let entry = world.newest().await;
    assert_eq!(field(&entry, "http.operators").1, json!([format!("crew ({crew})")]));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_record_says_what_each_change_is_about() {
    let world = World::start().await;
    world.share(&json!([])).await;
    let group = json!({ "name": "g", "initiators": ["iqn.2026-11.example:a"] });
    world.local("POST", "/v1/initiator-groups", &group).await;
    let target = "iqn.2026-11.example:t";
    world.local("POST", "/v1/targets", &json!({ "name": target })).await;
    for (method, path, body, object) in [
        ("POST", "/v1/luns", json!({ "name": "l", "size_bytes": 1 << 20 }), "l"),
        ("POST", "/v1/luns/l/map", json!({ "group": "g" }), "l"),
        ("PATCH", "/v1/luns/l", json!({ "write_cache": false }), "l"),
        ("PATCH", "/v1/targets/iqn.2026-11.example%3At", json!({ "alias": "x" }), target),
        ("DELETE", "/v1/luns/l?keep_file=false", json!({ "confirm": "l" }), "l"),
        ("POST", "/v1/volumes/v/files", json!({ "path": "/f", "kind": "file", "size_bytes": 512 }), "v /f"),
        ("POST", "/v1/luns", json!({ "name": "m", "path": "/f" }), "m /f"),
        ("DELETE", "/v1/luns/m?keep_file=true", json!({ "confirm": "m" }), "m keep_file=true"),
    ] {
        world.local(method, path, &body).await;
        assert_eq!(world.newest().await["object"], object, "{method} {path}");
    }
    // Where it is from now on is what changed.
    world.local("POST", "/v1/luns", &json!({ "name": "l", "size_bytes": 512 })).await;
    let moved = json!({ "path": "/f", "confirm": "l" });
    world.local("PATCH", "/v1/luns/l", &moved).await;
    let entry = world.newest().await;
    assert_eq!((&entry["object"], field(&entry, "path")), (&json!("l"), (json!("/luns/l"), json!("/f"))));
    // What is refused is about something, too; and of who is made the SID is told.
    world.refused("PATCH", "/v1/luns/none", &json!({ "write_cache": true }), "not-found").await;
    assert_eq!(world.newest().await["object"], "none");
    let made = world.local("POST", "/v1/users", &json!({ "name": "zoe", "password": "correct horse" })).await;
    assert_eq!(world.newest().await["object"], format!("zoe ({})", made["sid"].as_str().expect("a SID")));
    world.local("PATCH", "/v1/users/zoe", &json!({ "comment": "c" })).await;
    assert_eq!(world.newest().await["object"], format!("zoe ({})", made["sid"].as_str().expect("a SID")));
    // And who has asked is known whatever the user is called later.
    let cookie = world.session("ada").await;
    let headers = [("cookie", cookie.as_str()), ("x-holdfast-request", "1")];
    world.client.send("PATCH", "/v1/users/zoe", &headers, "{\"comment\":\"d\"}").await;
    let ada = world.local("GET", "/v1/users/ada", &json!({})).await["sid"].clone();
    let entry = world.newest().await;
    assert_eq!((&entry["who"], &entry["sid"]), (&json!("user ada"), &ada));
    // As many entries as can be had.
    for limit in ["0", "100001"] {
        let told =
            world.refused("GET", &format!("/v1/audit?limit={limit}"), &json!({}), "invalid-request").await;
        assert!(told["detail"].as_str().is_some_and(|told| told.contains("1 to 100000")), "{told}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bound_initiator_group_says_what_is_bound_and_how_to_unbind_it() {
    let world = World::start().await;
    for name in ["g", "h"] {
        let group = json!({ "name": name, "initiators": ["iqn.2026-11.example:a"] });
        world.local("POST", "/v1/initiator-groups", &group).await;
    }
    let user = |user: &str, groups: &[&str]| json!({ "user": user, "secret": format!("a secret of {user} here"), "groups": groups });
    let auth = json!({ "chap": [user("one", &["g"]), user("two", &["g", "h"])] });
    world.local("POST", "/v1/targets", &json!({ "name": "iqn.2026-11.example:t", "auth": auth })).await;
    let told = world.refused("DELETE", "/v1/initiator-groups/g", &json!({}), "in-use").await;
    let (detail, todo) = (told["detail"].to_string(), told["todo"].to_string());
    assert!(detail.contains("one of target iqn.2026-11.example:t, two of target"), "{detail}");
    assert!(todo.contains("target remove-user iqn.2026-11.example:t one`"), "{todo}");
    assert!(todo.contains("target set-user iqn.2026-11.example:t two --group h`"), "{todo}");
    // What is said works.
    let unbind = json!({ "set_user": { "user": "two", "groups": ["h"] } });
    world.local("PATCH", "/v1/targets/iqn.2026-11.example%3At", &unbind).await;
    let remove = json!({ "remove_user": "one", "confirm": "iqn.2026-11.example:t" });
    world.local("PATCH", "/v1/targets/iqn.2026-11.example%3At", &remove).await;
    world.local("DELETE", "/v1/initiator-groups/g", &json!({ "confirm": "g" })).await;
    let taken =
        world.refused("POST", "/v1/initiator-groups", &json!({ "name": "h" }), "already-exists").await;
    assert!(
        taken["detail"].as_str().is_some_and(|told| told.starts_with("There is an initiator group")),
        "{taken}"
    );
    world.stop().await;
}
