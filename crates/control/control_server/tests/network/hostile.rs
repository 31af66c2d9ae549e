//! Requests that are not meant well.

use crate::world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tricks_with_paths_lead_nowhere() {
    let world = World::start().await;
    for path in [
        "/v1/../v1/status",
        "/v1//status",
        "//v1/status",
        "/V1/status",
        "/v1/status/",
        "/v1/%73tatus",
        "/v1/status%00",
        "/v1/status;x=y",
        "/%2e%2e/v1/status",
        "/assets/../v1/status",
        "/v1/volumes/..%2f..%2fstatus",
        "/v1/volumes/%2e%2e/content?path=../../../etc/passwd",
        "/..%2f..%2f..%2fetc%2fpasswd",
        "/assets/%2e%2e/%2e%2e/tls/ca.key",
        "/metrics/",
        "/METRICS",
    ] {
        let answer = world.client.send("GET", path, &[], "").await;
        assert!(matches!(answer.status, 400 | 401 | 404 | 200), "{path}: {answer:?}");
        // What is answered to nobody is a page at most.
        let page = answer.headers.get("content-type").is_some_and(|media| media.starts_with("text/html"));
        assert!(answer.status != 200 || page, "{path}: {answer:?}");
        assert!(!answer.body.contains("uptime_seconds") && !answer.body.contains("PRIVATE"), "{path}");
    }
    for (method, path) in [
        ("OPTIONS", "/v1/status"),
        ("TRACE", "/v1/status"),
        ("CONNECT", "127.0.0.1:22"),
        ("GET", "https://elsewhere.example/v1/status"),
        ("PUT", "/v1/status"),
        ("POST", "/"),
        ("HEAD", "/v1/status"),
    ] {
        let answer = world.client.send(method, path, &[], "").await;
        assert!((400..500).contains(&answer.status), "{method} {path}: {answer:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_are_bounded_and_not_looked_at_before_it_is_known_who_asks() {
    let world = World::start().await;
    let large = format!("{{\"name\":\"{}\"}}", "x".repeat(5 << 20));
    let (token, _) = world.token("administrator", None).await;
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let answer = world.client.send("POST", "/v1/volumes", &headers, &large).await;
    assert_eq!((answer.status, answer.code()), (400, "invalid-request".into()), "{answer:?}");
    assert!(answer.body.contains("length limit"), "{answer:?}");
    // Said to be long and never sent: nobody waits for it.
    let head = "POST /v1/volumes HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n";
    assert_eq!(world.client.raw(head.as_bytes()).await.status, 401);
    let long = format!("{{\"user\":\"{}\",\"password\":\"x\"}}", "u".repeat(5000));
    let answer = world.client.send("POST", "/v1/login", &[("x-holdfast-request", "1")], &long).await;
    assert_eq!(answer.status, 400, "{answer:?}");
    for body in ["", "[]", "null", "{\"user\":1,\"password\":2}", "{\"user\":\"a\"}", "\u{0}"] {
        let answer = world.client.send("POST", "/v1/login", &[("x-holdfast-request", "1")], body).await;
        assert_eq!(answer.status, 400, "{body:?}: {answer:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_readings_of_one_request_are_refused() {
    let world = World::start().await;
    let (token, _) = world.token("administrator", None).await;
    let (viewer, _) = world.token("viewer", None).await;
    let smuggled = "GET /v1/me HTTP/1.1\r\nhost: x\r\n\r\n";
    for request in [
        format!(
            "POST /v1/disks/rescan HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-length: 4\r\ncontent-length: 5\r\nconnection: close\r\n\r\n{smuggled}"
        ),
        format!(
            "GET /v1/config HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {viewer}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
        ),
        format!(
            "GET /v1/config HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}, Bearer {viewer}\r\nconnection: close\r\n\r\n"
        ),
        format!(
            "GET /v1/config HTTP/1.1\nhost: x\nauthorization : Bearer {token}\r\nconnection: close\r\n\r\n"
        ),
        "GET /v1/status HTTP/1.0\r\n\r\n".to_owned(),
    ] {
        let answer = world.client.raw(request.as_bytes()).await;
        assert!(matches!(answer.status, 0 | 400 | 401), "{request}: {answer:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_has_the_headers_that_browsers_heed() {
    let world = World::start().await;
    let (token, _) = world.token("viewer", None).await;
    let bearer = format!("Bearer {token}");
    for (path, headers) in [
        ("/", Vec::new()),
        ("/nothing.js", Vec::new()),
        ("/v1/status", Vec::new()),
        ("/v1/nothing", Vec::new()),
        ("/v1/status", vec![("authorization", bearer.as_str())]),
        ("/metrics", vec![("authorization", bearer.as_str())]),
    ] {
        let answer = world.client.send("GET", path, &headers, "").await;
        let header = |name: &str| answer.headers.get(name).map(String::as_str).unwrap_or_default();
        assert!(header("content-security-policy").contains("default-src 'none'"), "{path}: {answer:?}");
        assert!(!header("content-security-policy").contains("unsafe"), "{path}");
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header("referrer-policy"), "no-referrer", "{path}");
        assert!(!header("cache-control").is_empty(), "{path}");
        assert!(!answer.headers.contains_key("server"), "{path}: {answer:?}");
        assert!(
            !answer.headers.values().any(|value| value.contains(env!("CARGO_PKG_VERSION"))),
            "{path}: {answer:?}"
        );
    }
    world.stop().await;
}

/// Who asks is looked at again when all of a body is there: meanwhile the user may be gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_comes_after_its_user_has_gone_changes_nothing() {
    let world = World::start().await;
    let cookie = world.session("ada").await;
    let body = r#"{"role":"administrator","name":"late"}"#;
    let length = body.len().to_string();
    let headers = [("cookie", cookie.as_str()), ("x-holdfast-request", "1"), ("content-length", &length)];
    let mut slow = world.client.open("POST", "/v1/tokens", &headers).await;
    slow.write(&body.as_bytes()[..10]).await;
    // Another request of hers has been answered: the first has been let in by then.
    assert_eq!(world.client.send("GET", "/v1/me", &headers[..1], "").await.status, 200);
    world.local("DELETE", "/v1/users/ada", &serde_json::json!({ "confirm": "ada" })).await;
    slow.write(&body.as_bytes()[10..]).await;
    let answer = slow.rest().await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    world.stop().await;
}
