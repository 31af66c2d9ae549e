//! The whole cluster is seen from any node, and asked of any.

use serde_json::{Value, json};

use crate::world::{Member, World, comes, make};

fn items(node: &Member, path: &str) -> Vec<Value> {
    node.get(path)["items"].as_array().cloned().unwrap_or_default()
}

/// A pool `q` with a volume `w`, on the disks that `make` has left.
fn make_other(node: &Member) {
    node.send("POST", "/v1/pools", &json!({ "name": "q", "disks": ["c", "d"], "confirm": "q" }));
    node.send("POST", "/v1/volumes", &json!({ "name": "w", "pool": "q", "size_bytes": 1 << 30 }));
}

#[test]
fn any_node_tells_of_all_and_does_what_another_one_has_to_do() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    let second = world.start(2);
    comes("the second node takes part", || second.takes_part());
    comes("each knows the other", || first.get("/v1/cluster")["nodes"].as_array().map(Vec::len) == Some(2));
    comes("the second node knows", || second.pool("p") == ("n1".into(), "online".into()));
    make_other(&second);
    comes("the first node knows", || first.pool("q") == ("n2".into(), "online".into()));

    // Lists are the same everywhere, and say which node has what.
    for node in [&first, &second] {
        let of = |path: &str| -> Vec<(String, String)> {
            let text = |item: &Value, field: &str| item[field].as_str().unwrap_or_default().to_owned();
            let mut all: Vec<_> =
                items(node, path).iter().map(|item| (text(item, "name"), text(item, "node"))).collect();
            all.sort();
            all
        };
        let both = |a: &str, b: &str| vec![(a.to_owned(), "n1".to_owned()), (b.to_owned(), "n2".to_owned())];
        comes("pools", || of("/v1/pools") == both("p", "q"));
        comes("volumes", || of("/v1/volumes") == both("v", "w"));
        let lun = items(node, "/v1/luns").remove(0);
        assert_eq!((&lun["node"], &lun["problem"]), (&json!("n1"), &Value::Null), "{lun}");
        let share = items(node, "/v1/shares").remove(0);
        assert_eq!((&share["node"], &share["online"]), (&json!("n1"), &json!(true)), "{share}");
        let status = node.get("/v1/status");
        assert_eq!(status["issues"], json!([]), "{status}");
        assert_eq!(status["counts"]["volumes"], 2, "{status}");
        assert_eq!(status["counts"]["luns_online"], 1, "{status}");
        let disks = items(node, "/v1/disks");
        assert!(disks.iter().all(|disk| disk["state"] == "online"), "{disks:?}");
        assert_eq!(disks.len(), 4, "{disks:?}");
    }

    // What another node has is asked of it: looked at, changed, confirmed, refused.
    assert_eq!(second.get("/v1/pools/p")["name"], "p");
    assert_eq!(second.get("/v1/volumes/v")["pool"], "p");
    let made = json!({ "name": "l2", "volume": "v", "size_bytes": 8192 });
    second.send("POST", "/v1/luns", &made);
    assert_eq!(first.get("/v1/luns/l2")["name"], "l2");
    let done = second.send("POST", "/v1/pools/p/scrub", &Value::Null);
    // What a node numbers itself has its name before the number, also at that node.
    let job = format!("/v1/jobs/{}:{}", done["node"].as_str().unwrap_or("n1"), done["job"]);
    for node in [&first, &second] {
        if done["job"].is_number() {
            assert_eq!(node.get(&job)["subject"], "pool p", "{done}");
        }
        for number in ["n1:999", "n1%3a999", "n1%3A999"] {
            let session = format!("/v1/sessions/{number}");
            node.refused("DELETE", &session, &json!({ "confirm": "999" }), "not-found");
        }
        node.refused("DELETE", "/v1/sessions/n9:1", &json!({}), "not-found");
    }
    let told = second.refused("DELETE", "/v1/luns/l2", &json!({}), "confirmation-required");
    assert!(told.contains("l2"), "{told}");
    second.send("DELETE", "/v1/luns/l2", &json!({ "confirm": "l2" }));
    first.refused("GET", "/v1/luns/l2", &Value::Null, "not-found");
    let told = second.refused("GET", "/v1/volumes/none", &Value::Null, "not-found");
    assert!(told.contains("none"), "{told}");
    // The owner has written down who it was, and through whom it came.
    let recorded = first.get("/v1/audit").to_string();
    assert!(recorded.contains("node n2") && recorded.contains("lun_delete"), "{recorded}");
    // Both say what was there: the owner has looked, and the node that was asked has heard it.
    for node in [&first, &second] {
        let entries = items(node, "/v1/audit");
        let of = |operation: &str| {
            entries.iter().find(|entry| entry["operation"] == operation && entry["result"] == "done")
        };
        let deleted = of("lun_delete").expect("recorded");
        let size = deleted["changes"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|change| change["field"] == "size_bytes");
        assert_eq!(size.map(|size| &size["old"]), Some(&json!(8192)), "{deleted}");
        let made = of("lun_create").expect("recorded");
        assert!(made["object"].as_str().is_some_and(|object| object.contains("l2")), "{made}");
        assert!(made["changes"].to_string().contains("size_bytes"), "{made}");
        let refused =
            entries.iter().find(|entry| entry["result"] == "confirmation-required").expect("recorded");
        assert!(refused["reason"].as_str().is_some_and(|reason| reason.contains("l2")), "{refused}");
    }

    // A node that stands still is named, and what it had is shown as it was known.
    second.freeze();
    comes("it is said who does not answer", || {
        let list = first.get("/v1/volumes");
        let told = list["unanswered"][0]["detail"].as_str().unwrap_or_default().to_owned();
        let known = list["items"].as_array().into_iter().flatten().find(|item| item["name"] == "w").cloned();
        told.contains("1 volume is shown as it was known")
            && known.is_some_and(|item| item["online"] == false)
    });
    second.thaw();
    comes("all is well again", || {
        let list = first.get("/v1/volumes");
        list["unanswered"].is_null() && list["items"].as_array().map(Vec::len) == Some(2)
    });
    for node in [first, second] {
        node.stop();
    }
}

#[test]
fn what_is_made_on_a_volume_is_made_where_that_is() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    let (second, third) = (world.start(2), world.start(3));
    comes("all take part", || [&second, &third].iter().all(|node| node.takes_part()));
    make_other(&second);
    comes("the third knows", || third.pool("p").1 == "online" && third.pool("q").1 == "online");
    // Two other nodes have pools: only the request says which of them is meant.
    third.send("POST", "/v1/luns", &json!({ "name": "l3", "volume": "w", "size_bytes": 8192 }));
    comes("all know it", || items(&first, "/v1/luns").iter().any(|lun| lun["name"] == "l3"));
    third.send("POST", "/v1/shares", &json!({ "name": "s3", "volume": "w" }));
    third.send("POST", "/v1/volumes", &json!({ "name": "u", "pool": "q", "size_bytes": 1 << 30 }));
    assert_eq!(first.get("/v1/volumes/u")["pool"], "q");
    for node in [first, second, third] {
        node.stop();
    }
}

/// etcd loses its leader while a node does what another one has asked of it: it is done, and whoever asked is told so.
#[test]
fn what_was_begun_for_another_node_is_finished_though_watches_break_off() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    let second = world.start(2);
    comes("the other node takes part", || second.takes_part());
    // The move cannot be written down for now.
    *world.store.about.lock().expect("a lock") = Some("/owner");
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| second.send("POST", "/v1/pools/p/move", &json!({ "node": "n2" })));
        comes("it is begun", || world.store.holds("/orders/", "\"begun\":true"));
        world.store.break_watches();
        *world.store.about.lock().expect("a lock") = None;
        asked.join().expect("it is told that it was done");
    });
    comes("it has moved", || second.pool("p") == ("n2".into(), "online".into()));
    for node in [first, second] {
        node.stop();
    }
}

#[test]
fn policies_are_given_to_what_is_on_a_volume_by_any_node() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    let (second, third) = (world.start(2), world.start(3));
    comes("all take part", || [&second, &third].iter().all(|node| node.takes_part()));
    make_other(&second);
    comes("the third knows", || third.pool("p").1 == "online" && third.pool("q").1 == "online");
    first.send("POST", "/v1/volumes/v/files", &json!({ "path": "/a", "kind": "file", "size_bytes": 1 }));
    third.send("POST", "/v1/qos/policies", &json!({ "name": "gold", "max_iops": 500 }));
    comes("all know the policy", || {
        [&first, &second].iter().all(|node| items(node, "/v1/qos/policies").len() == 1)
    });
    // A volume is listed once, by the node that has it; each node keeps a queue for all of them.
    second.send("POST", "/v1/shares", &json!({ "name": "t", "volume": "w" }));
    for node in [&first, &second, &third] {
        comes("volumes are listed where they are", || {
            let of = |item: &Value| (item["volume"].clone(), item["node"].clone());
            let mut all: Vec<_> = items(node, "/v1/qos/volumes").iter().map(of).collect();
            all.sort_by_key(|(volume, _)| volume.to_string());
            all == [(json!("v"), json!("n1")), (json!("w"), json!("n2"))]
        });
        assert_eq!(node.get("/v1/qos/policies/gold")["flows"], json!([]));
    }
    let places = |node: &Member| items(node, "/v1/qos/policies")[0]["places"].clone();
    // Two other nodes have pools: the volume says which of them is meant.
    for (subject, at, named) in
        [("volume", "w", "volume w"), ("file", "v:/a", "file v:/a"), ("folder", "v:/", "volume v")]
    {
        third.send("POST", "/v1/qos/assignments", &json!({ "policy": "gold", subject: at }));
        comes("all know who has it", || {
            [&first, &second, &third].iter().all(|node| places(node) == json!([named]))
        });
        let row = &third.get("/v1/config")["qos_place"][0];
        assert!(row["volume_guid"].is_string(), "the owner has said which volume it is: {row}");
        third.send("DELETE", &format!("/v1/qos/assignments?{subject}={at}"), &Value::Null);
        comes("none has it", || [&first, &second, &third].iter().all(|node| places(node) == json!([])));
    }
    let assign = |subject: &str, at: &str, code: &str| {
        third.refused("POST", "/v1/qos/assignments", &json!({ "policy": "gold", subject: at }), code)
    };
    assert!(assign("file", "v:/b", "not-found").contains("no file v:/b"));
    assert!(assign("volume", "none", "not-found").contains("no volume none"));
    assert!(assign("folder", "v:/a", "invalid-request").contains("is a file and no folder"));
    for (gone, told) in
        [("file=v:/b", "no file v:/b"), ("volume=none", "no volume none"), ("file=v:/a", "has no policy")]
    {
        let path = format!("/v1/qos/assignments?{gone}");
        assert!(third.refused("DELETE", &path, &Value::Null, "not-found").contains(told), "{gone}");
    }
    for node in [first, second, third] {
        node.stop();
    }
}
