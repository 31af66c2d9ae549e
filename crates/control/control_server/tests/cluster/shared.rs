//! What all nodes have in common: configuration and users.

use control_api::{Protocol, Session, SmbSession};
use serde_json::json;
use smb_protocol::security::Sid;

use crate::world::{Member, World, comes, make};

/// What each of two administrators makes.
const GROUPS: usize = 30;
const USERS: usize = 5;

fn has_user(node: &Member, name: &str) -> bool {
    let users = node.get("/v1/users");
    users["items"].as_array().into_iter().flatten().any(|user| user["name"] == name)
}

#[test]
fn a_change_on_one_node_is_one_on_all() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    first.send("POST", "/v1/users", &json!({ "name": "ann", "password": "correct horse" }));
    let second = world.start(2);
    assert!(has_user(&second, "ann"), "it begins with what all have");
    assert_eq!(second.get("/v1/config")["lun"][0]["name"], "l");
    // Both change it; each sees what the other has changed.
    second.send(
        "POST",
        "/v1/initiator-groups",
        &json!({ "name": "g2", "initiators": ["iqn.2026-11.example:b"] }),
    );
    first.send(
        "POST",
        "/v1/initiator-groups",
        &json!({ "name": "g1", "initiators": ["iqn.2026-11.example:a"] }),
    );
    second.send("POST", "/v1/users", &json!({ "name": "bob", "password": "battery staple" }));
    let groups = |node: &Member| node.get("/v1/config")["initiator_group"].as_array().map_or(0, Vec::len);
    comes("both have both", || groups(&first) == groups(&second) && has_user(&first, "bob"));
    // What is a node's own stays its own.
    first.send("POST", "/v1/portals", &json!({ "address": "127.0.0.1:0" }));
    assert!(second.get("/v1/config")["portal"].is_null());
    // A LUN more, asked of the node that does not have the pool, is made by the one that has it, and both know it.
    let lun = json!({ "name": "m", "volume": "v", "size_bytes": 8192, "map": [{ "everyone": true }] });
    second.send("POST", "/v1/luns", &lun);
    assert!(first.serves("m", "s"));
    comes("the other node knows it", || second.get("/v1/config")["lun"].as_array().map_or(0, Vec::len) == 2);
    for node in [first, second] {
        node.stop();
    }
    // A node that comes back while nobody else is there has what was known last.
    let second = world.start(2);
    assert_eq!(second.get("/v1/config")["lun"].as_array().map_or(0, Vec::len), 2);
    assert!(has_user(&second, "bob"));
    comes("it takes over what is nobody's", || second.serves("m", "s"));
    second.stop();
}

/// Two administrators who do not know of each other: nobody is refused for what the other one does.
#[test]
fn changes_on_two_nodes_at_the_same_time_are_all_made() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    let second = world.start(2);
    let many = |node: &Member, who: &str| {
        for number in 0..GROUPS {
            let name = format!("{who}{number}");
            let group = json!({ "name": name, "initiators": [format!("iqn.2026-11.example:{name}")] });
            node.send("POST", "/v1/initiator-groups", &group);
            if number < USERS {
                node.send("POST", "/v1/users", &json!({ "name": name, "password": "correct horse" }));
            }
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| many(&second, "b"));
        many(&first, "a");
        other.join().expect("nothing is refused");
    });
    for node in [&first, &second] {
        let groups = || node.get("/v1/config")["initiator_group"].as_array().map_or(0, Vec::len);
        comes("it has all groups", || groups() == 2 * GROUPS);
        comes("it has all users", || {
            (0..USERS)
                .all(|number| has_user(node, &format!("a{number}")) && has_user(node, &format!("b{number}")))
        });
    }
    for node in [first, second] {
        node.stop();
    }
}

/// A user who is made anew under the name of another is somebody else, also where the change is heard of late.
#[test]
fn sessions_of_a_user_end_though_another_one_has_its_name() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    let made = |password: &str| {
        let user = first.send("POST", "/v1/users", &json!({ "name": "bob", "password": password }));
        user["sid"].as_str().and_then(|sid| sid.parse::<Sid>().ok()).expect("a SID")
    };
    let old = made("correct horse");
    // What happens meanwhile the second node finds as one change, when it follows again.
    let second = world.start(2);
    second.smb.users.lock().insert(old);
    second.freeze();
    first.send("DELETE", "/v1/users/bob", &json!({ "confirm": "bob" }));
    let new = made("battery staple");
    assert_ne!(old, new);
    second.smb.users.lock().insert(new);
    second.thaw();
    let mut ended = Vec::new();
    comes("the sessions of the one who is gone end", || {
        ended.extend(second.smb.take_ended());
        ended.contains(&old)
    });
    assert!(!ended.contains(&new), "{ended:?}");
    for node in [first, second] {
        node.stop();
    }
}

/// Who disables a user is asked, whichever node the user is connected to.
#[test]
fn sessions_with_another_node_are_asked_about() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    let user = first.send("POST", "/v1/users", &json!({ "name": "bob", "password": "correct horse" }));
    let second = world.start(2);
    let nodes = || first.get("/v1/cluster")["nodes"].clone();
    comes("both take part", || {
        nodes().as_array().is_some_and(|all| all.iter().filter(|node| node["state"] == "up").count() == 2)
    });
    let disable = json!({ "disabled": true });
    let smb = SmbSession {
        user: "bob".into(),
        sid: user["sid"].as_str().expect("a SID").into(),
        ..SmbSession::default()
    };
    let session = |number: usize| Session {
        id: number as u64,
        protocol: Protocol::Smb,
        address: format!("192.0.2.7:{number}"),
        smb: Some(smb.clone()),
        ..Session::default()
    };
    *second.smb.connected.lock() = (1..=12).map(session).collect();
    // A node that is too busy to answer in time is named instead, and asked again.
    comes("both sessions are asked about", || {
        let (done, problem) = first.ask("PATCH", "/v1/users/bob", &disable);
        assert!(!done && problem["code"] == "confirmation-required", "{problem}");
        let asked = problem.to_string();
        asked.contains("192.0.2.7:1 ends") && asked.contains("2 sessions more of bob")
    });
    // And whoever has had the old password is out of all nodes.
    let password = json!({ "password": "battery staple", "end_sessions": true });
    comes("it is out of the other node", || first.ask("POST", "/v1/users/bob/password", &password).0);
    assert!(second.smb.connected.lock().is_empty());
    for node in [first, second] {
        node.stop();
    }
}
