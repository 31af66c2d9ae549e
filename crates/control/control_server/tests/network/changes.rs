//! The record of changes says what was changed: of each kind of change, what was before and what is after, and why it was refused.

use serde_json::{Value, json};

use crate::world::World;

/// Of the newest entry: its fields as people read them, why it was refused, and what is left out.
async fn newest(world: &World) -> (Vec<String>, String, String) {
    let entries = world.local("GET", "/v1/audit?limit=1", &json!({})).await;
    let entry = &entries["items"][0];
    let value = |value: &Value| if value.is_null() { "-".to_owned() } else { value.to_string() };
    let field = |change: &Value| {
        let name = change["field"].as_str().unwrap_or_default();
        match change["secret"] == true {
            true => format!("{name}: secret"),
            false => format!("{name}: {} > {}", value(&change["old"]), value(&change["new"])),
        }
    };
    let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let fields = entry["changes"].as_array().into_iter().flatten().map(field).collect();
    (fields, text("reason"), text("left_out"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_record_says_what_was_before_and_what_is_after() {
    let world = World::start().await;
    let target = "iqn.2026-11.example:t";
    let secret = "seeded-chap-secret-1";
    let auth = json!({ "chap": [{ "user": "u", "secret": secret }] });
    for (method, path, body, fields) in [
        // What is made: what was asked for.
        (
            "POST",
            "/v1/initiator-groups".to_owned(),
            json!({ "name": "g", "initiators": ["iqn.2026-11.example:a"] }),
            vec!["name: - > \"g\"", "initiators: - > [\"iqn.2026-11.example:a\"]"],
        ),
        // What is changed, in a list and by itself.
        (
            "PATCH",
            "/v1/initiator-groups/g".to_owned(),
            json!({ "add": ["iqn.2026-11.example:b"] }),
            vec![
                "initiators: [\"iqn.2026-11.example:a\"] > [\"iqn.2026-11.example:a\",\"iqn.2026-11.example:b\"]",
            ],
        ),
        ("PATCH", "/v1/users/vera".to_owned(), json!({ "comment": "c" }), vec!["comment: - > \"c\""]),
        // Nothing.
        ("PATCH", "/v1/users/vera".to_owned(), json!({ "comment": "c" }), vec![]),
        // A secret, which no answer shows.
        (
            "POST",
            "/v1/users/vera/password".to_owned(),
            json!({ "password": "seeded-new-password" }),
            vec!["password: secret"],
        ),
        (
            "POST",
            "/v1/targets".to_owned(),
            json!({ "name": target, "auth": auth }),
            vec![
                "name: - > \"iqn.2026-11.example:t\"",
                "auth.chap: - > [{\"secret\":\"(secret)\",\"user\":\"u\"}]",
            ],
        ),
        ("PATCH", format!("/v1/targets/{target}"), json!({ "alias": "x" }), vec!["alias: - > \"x\""]),
        // What only one route shows of all.
        ("PATCH", "/v1/smb".to_owned(), json!({ "domain": "D" }), vec!["domain: \"WORKGROUP\" > \"D\""]),
        // What is deleted: what was there.
        (
            "DELETE",
            "/v1/initiator-groups/g".to_owned(),
            json!({ "confirm": "g" }),
            vec!["name: \"g\" > -", "initiators: [\"iqn.2026-11.example:a\",\"iqn.2026-11.example:b\"] > -"],
        ),
    ] {
        world.local(method, &path, &body).await;
        let (told, reason, left_out) = newest(&world).await;
        // A default that is shown, as `any`, may come with the rest.
        let told: Vec<_> = told.iter().filter(|told| !told.starts_with("any: ")).collect();
        assert_eq!(told, fields, "{method} {path}");
        assert_eq!((&*reason, &*left_out), ("", ""), "{method} {path}");
    }
    let record = std::fs::read_to_string(world.dir.path().join("data/audit.jsonl")).expect("there");
    for seed in [secret, "seeded-new-password"] {
        assert!(!record.contains(seed), "{seed} in {record}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_configuration_is_told_of_by_what_differs() {
    let world = World::start().await;
    let target = |secret: &str| {
        let auth = json!({ "chap": [{ "user": "u", "secret": secret }] });
        json!({ "name": "iqn.2026-11.example:t", "auth": auth })
    };
    world.local("POST", "/v1/targets", &target("seeded-chap-secret-1")).await;
    let mut config = world.local("GET", "/v1/config", &json!({})).await;
    config["target"][0] = target("seeded-chap-secret-2");
    config["initiator_group"] = json!([{ "name": "g", "initiators": ["iqn.2026-11.example:a"] }]);
    world.local("PUT", "/v1/config", &json!({ "config": config, "confirm": "apply" })).await;
    let (told, _, _) = newest(&world).await;
    assert!(told.iter().any(|told| told.starts_with("initiator_group")), "{told:?}");
    assert!(
        told.contains(&"target[iqn.2026-11.example:t].auth.chap[u].secret: secret".to_owned()),
        "{told:?}"
    );
    assert!(told.iter().all(|told| !told.contains("seeded")), "{told:?}");
    // What was asked for has the secret that no answer has, so its target is told once more.
    assert_eq!(told.len(), 3, "{told:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_record_says_why_a_change_was_refused() {
    let world = World::start().await;
    let (status, _) = world.locally("PATCH", "/v1/luns/none", &json!({ "size_bytes": 1 })).await;
    assert_eq!(status, 404);
    let (told, reason, _) = newest(&world).await;
    assert!(reason.contains("none"), "{reason}");
    assert_eq!(told, ["size_bytes: - > 1"], "what was asked for");
    // What is wrong with a body may be what somebody has typed in the wrong place.
    let typed = json!({ "name": "u", "password": "seeded-password", "role": "seeded-role" });
    assert_eq!(world.locally("POST", "/v1/users", &typed).await.0, 400);
    let (told, reason, _) = newest(&world).await;
    assert_eq!((told.len(), &*reason), (0, "The request's body is not what is taken here."));
    let (status, _) = world.locally("DELETE", "/v1/users/vera", &json!({})).await;
    assert_eq!(status, 409);
    let (told, reason, _) = newest(&world).await;
    assert!(told.is_empty() && !reason.is_empty(), "nothing is gone: {told:?}, {reason}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_cannot_be_written_stops_nothing_and_is_told_of() {
    let world = World::start_before(|data| {
        // A folder stands where the file is to be.
        std::fs::create_dir_all(data.join("audit.jsonl")).expect("made");
    })
    .await;
    let issue = async || {
        let status = world.local("GET", "/v1/status", &json!({})).await;
        let issues = status["issues"].as_array().cloned().unwrap_or_default();
        issues.into_iter().find(|issue| issue["code"] == "record-not-written")
    };
    world.local("PATCH", "/v1/users/vera", &json!({ "comment": "1" })).await;
    assert_eq!(
        world.local("GET", "/v1/users/vera", &json!({})).await["comment"],
        "1",
        "it is done all the same"
    );
    let told = issue().await.expect("it is told of")["detail"].to_string();
    assert!(told.contains("changes are not in it"), "{told}");
    std::fs::remove_dir(world.dir.path().join("data/audit.jsonl")).expect("removed");
    world.local("PATCH", "/v1/users/vera", &json!({ "comment": "2" })).await;
    assert_eq!(issue().await, None);
    let entries = world.local("GET", "/v1/audit", &json!({})).await;
    let entries = entries["items"].as_array().expect("a list");
    let missing =
        entries.iter().filter(|entry| entry["result"].to_string().contains("could not be written down"));
    assert_eq!((missing.count(), entries.len()), (1, 2), "{entries:?}");
    world.stop().await;
}
