//! Where the API is served, and with which certificate, while the node runs.

use serde_json::{Value, json};

use crate::client::Client;
use crate::world::World;

async fn subjects(world: &World) -> Vec<String> {
    let status = world.local("GET", "/v1/status", &json!({})).await;
    let issues = status["issues"].as_array().cloned().unwrap_or_default();
    let subject = |issue: &Value| issue["subject"].as_str().unwrap_or_default().to_owned();
    issues.iter().map(subject).filter(|subject| subject.starts_with("HTTP")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_and_certificates_are_taken_or_refused_as_a_whole() {
    let world = World::start().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("free");
    let taken = taken.local_addr().map(|at| (taken, at.to_string())).expect("bound");
    let tls = world.dir.path().join("data/tls");
    let file = |name: &str| tls.join(name).to_string_lossy().into_owned();
    let before = world.local("GET", "/v1/http", &json!({})).await;
    for (update, said) in [
        (json!({ "listen": [taken.1] }), "in use"),
        (json!({ "listen": ["here"] }), "is not ADDRESS:PORT"),
        (json!({ "listen": ["127.0.0.1:0", "127.0.0.1:0"] }), "twice"),
        (json!({ "certificate": "/a" }), "needs its key"),
        (json!({ "certificate": "a", "key": "/b" }), "must start with"),
        (json!({ "certificate": file("none"), "key": file("node.key") }), "No such file"),
        (json!({ "certificate": file("node.pem"), "key": file("ca.key") }), "can't be used with the key"),
    ] {
        let (status, problem) = world.locally("PATCH", "/v1/http", &update).await;
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(status >= 400 && detail.contains(said), "{update}: {status} {problem}");
        assert!(!problem.to_string().contains("PRIVATE"), "{problem}");
    }
    assert_eq!(world.local("GET", "/v1/http", &json!({})).await["listen"], before["listen"]);
    assert_eq!(subjects(&world).await, Vec::<String>::new());
    // One more address, with a given certificate: that of the node itself does.
    for name in ["node.pem", "node.key"] {
        std::fs::copy(tls.join(name), tls.join(format!("given-{name}"))).expect("copied");
    }
    let update = json!({ "listen": ["127.0.0.1:0"], "certificate": file("given-node.pem"), "key": file("given-node.key") });
    let now = world.local("PATCH", "/v1/http", &update).await;
    assert_eq!(now["certificate_in_use"]["own"], false);
    let added = now["listeners"][0]["listening"].as_str().expect("listens").to_owned();
    let client = Client::new(added, &tls.join("ca.pem"));
    assert_eq!(client.send("GET", "/v1/status", &[], "").await.status, 401);
    assert_eq!(world.client.send("GET", "/v1/status", &[], "").await.status, 401);
    // A given one that ends is told in time.
    world.pass(345 * 24 * 3600);
    assert_eq!(subjects(&world).await, ["HTTP certificate"]);
    // And the node's own again, on no address of the configuration.
    let update = json!({ "listen": [], "certificate": "", "key": "" });
    let now = world.local("PATCH", "/v1/http", &update).await;
    assert_eq!(now["certificate_in_use"]["own"], true);
    assert_eq!(subjects(&world).await, Vec::<String>::new());
    world.stop().await;
}
