//! Secrets that are put into the node are looked for wherever it tells of itself.

use control_api::routes::{Body, Method, ROUTES};
use serde_json::json;

use crate::world::{PASSWORD, World};

/// What must not be seen again: a CHAP secret, passwords right and wrong, what somebody typed in the wrong place.
const CHAP: &str = "seeded-chap-secret-1";
const TYPED: &str = "seeded-password-typed-as-name";
const WRONG: &str = "seeded-wrong-password";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_in_the_record_the_metrics_or_an_answer() {
    let world = World::start().await;
    let target =
        json!({ "name": "iqn.2026-11.example:t", "auth": { "chap": [{ "user": "u", "secret": CHAP }] } });
    world.local("POST", "/v1/targets", &target).await;
    let (token, _) = world.token("viewer", None).await;
    let (administrator, _) = world.token("administrator", None).await;
    let cookie = world.session("ada").await;
    let session = cookie.split_once('=').expect("a value").1;
    let mut seen = Vec::new();
    seen.push(world.log_in("ada", WRONG).await.body);
    seen.push(world.log_in(TYPED, WRONG).await.body);
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    // A viewer is shown no secret anywhere; an administrator is shown them in the configuration only.
    for route in ROUTES.iter().filter(|route| route.method == Method::Get && route.id != "event_stream") {
        let path = format!("/v1{}", route.path.replace("{target}", "iqn.2026-11.example:t"));
        seen.push(world.client.send("GET", &path, &headers, "").await.body);
        if route.id != "config_show" && !matches!(route.response, Body::Bytes) {
            let bearer = format!("Bearer {administrator}");
            seen.push(world.client.send("GET", &path, &[("authorization", &bearer)], "").await.body);
        }
    }
    // Errors repeat what they are about, but not who asked.
    for body in ["{", "{\"name\":1}", &format!("{{\"user\":\"x\",\"passwort\":\"{WRONG}\"}}")] {
        seen.push(world.client.send("POST", "/v1/targets", &headers, body).await.body);
        seen.push(world.client.send("POST", "/v1/login", &[("x-holdfast-request", "1")], body).await.body);
    }
    let data = world.dir.path().join("data");
    for name in ["audit.jsonl", "tokens.json"] {
        seen.push(std::fs::read_to_string(data.join(name)).expect("there"));
    }
    for secret in [CHAP, TYPED, WRONG, PASSWORD, &token, &administrator, session] {
        for text in &seen {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    // So that it is known to have been looked for in the right place.
    assert!(seen.iter().any(|text| text.contains("POST /v1/targets")), "the record has the change");
    assert!(seen.iter().any(|text| text.contains("holdfast_build_info")), "the metrics were read");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_record_says_who_what_and_how_it_ended() {
    let world = World::start().await;
    let cookie = world.session("otto").await;
    let change = [("cookie", cookie.as_str()), ("x-holdfast-request", "1")];
    world.client.send("POST", "/v1/volumes", &change, "{\"name\":\"v1\",\"size_bytes\":1073741824}").await;
    world.client.send("POST", "/v1/users", &change, "{\"name\":\"eve\",\"password\":\"12345678\"}").await;
    world.client.send("POST", "/v1/users", &[], "{}").await;
    world.log_in("vera", "wrong").await;
    world.local("PATCH", "/v1/users/vera", &json!({ "comment": "x" })).await;
    let vera =
        world.local("GET", "/v1/users/vera", &json!({})).await["sid"].as_str().expect("a SID").to_owned();
    let entries = world.local("GET", "/v1/audit?limit=6", &json!({})).await;
    let lines: Vec<String> = entries["items"]
        .as_array()
        .expect("a list")
        .iter()
        .rev()
        .map(|entry| {
            let text = |key: &str| entry[key].as_str().unwrap_or("-").to_owned();
            let from = if text("from") == "socket" { "socket" } else { "network" };
            let who = if text("who").starts_with("uid ") { "uid".to_owned() } else { text("who") };
            format!(
                "{who} {} {from} {} [{}] {} {}",
                text("role"),
                text("request"),
                text("object"),
                entry["status"],
                text("result")
            )
        })
        .collect();
    assert_eq!(
        lines.iter().map(|line| line.replace(&vera, "SID")).collect::<Vec<_>>(),
        [
            "user otto operator network POST /v1/login [otto] 200 done",
            "user otto operator network POST /v1/volumes [v1] 404 not-found",
            "user otto operator network POST /v1/users [-] 403 forbidden",
            "nobody - network POST /v1/users [-] 401 unauthenticated",
            "nobody - network POST /v1/login [vera] 401 unauthenticated",
            "uid administrator socket PATCH /v1/users/vera [vera (SID)] 200 done",
        ]
    );
    world.stop().await;
}
