//! A node with real parts, and what it answers over its socket.

use std::path::Path;

use control_server::{NodeOptions, Running};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// The answer to a request, and whether it was done.
pub(crate) async fn ask(node: &Running, method: &str, path: &str, body: &str) -> (bool, Value) {
    let len = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n{body}"
    );
    let mut stream = UnixStream::connect(node.socket()).await.expect("listens");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
    (head.starts_with("HTTP/1.1 2"), serde_json::from_str(body).unwrap_or_default())
}

/// What is answered to a request that has to work.
#[allow(dead_code, reason = "some tests look at refusals only")]
pub(crate) async fn send(node: &Running, method: &str, path: &str, body: &Value) -> Value {
    let (done, answer) = ask(node, method, path, &body.to_string()).await;
    assert!(done, "{method} {path}: {answer}");
    answer
}

/// What there is.
#[allow(dead_code, reason = "some tests only change things")]
pub(crate) async fn get(node: &Running, path: &str) -> Value {
    send(node, "GET", path, &Value::Null).await
}

/// What is said to a request that is refused with this code.
#[allow(dead_code, reason = "some tests refuse nothing")]
pub(crate) async fn refused(node: &Running, method: &str, path: &str, body: &Value, code: &str) -> String {
    let (done, problem) = ask(node, method, path, &body.to_string()).await;
    assert!(!done && problem["code"] == code, "{method} {path}: {problem}");
    problem.to_string()
}

/// A node that keeps everything in this folder.
#[allow(dead_code, reason = "some tests have their node on parts in memory")]
pub(crate) async fn start(dir: &Path) -> Running {
    let options = NodeOptions { data_dir: dir.join("data"), socket: None, shards: Some(1), http: None };
    let node = Running::start(options).await.expect("starts");
    node.wait_ready().await;
    node
}
