//! Events are told as they happen, to whoever may see them and as long as it may.

use serde_json::json;

use crate::world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_told_until_whoever_listens_may_not_any_more() {
    let world = World::start().await;
    let (token, id) = world.token("viewer", None).await;
    let bearer = format!("Bearer {token}");
    let mut stream = world.client.open("GET", "/v1/events", &[("authorization", &bearer)]).await;
    let head = stream.until("\r\n\r\n").await;
    assert!(head.contains("text/event-stream") && head.starts_with("HTTP/1.1 200"), "{head}");
    world.local("POST", "/v1/user-groups", &json!({ "name": "new" })).await;
    let told = stream.until("\"subject\":\"/user-groups\"").await;
    assert!(told.contains("event: changed"), "{told}");
    // What jobs and health are is told to who has just come.
    stream.until("event: health").await;
    world.local("DELETE", &format!("/v1/tokens/{id}"), &json!({ "confirm": id })).await;
    let rest = stream.rest().await;
    assert!(!rest.contains("/tokens"), "it ends before it tells more: {rest}");
    // One that listens does not keep the node from stopping.
    let (token, _) = world.token("viewer", None).await;
    let bearer = format!("Bearer {token}");
    let mut stream = world.client.open("GET", "/v1/events", &[("authorization", &bearer)]).await;
    stream.until("\r\n\r\n").await;
    world.stop().await;
    stream.rest().await;
}
