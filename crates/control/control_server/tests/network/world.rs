//! A node with users of each role, and what they have.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use control_server::memory::{Machine, MemoryIscsi, MemorySmb};
use control_server::{NodeOptions, Running};
use serde_json::{Value, json};
use shard_runtime::{Clock, Monotonic, SystemClock, WallTime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::client::{Answer, Client};

/// The machine's clock, moved on by hand.
pub(crate) struct Moved {
    real: SystemClock,
    by: AtomicU64,
}

impl Clock for Moved {
    fn now(&self) -> Monotonic {
        Monotonic(self.real.now().0 + self.by.load(Ordering::Relaxed))
    }

    fn wall(&self) -> WallTime {
        WallTime(self.real.wall().0 + self.by.load(Ordering::Relaxed))
    }
}

pub(crate) const PASSWORD: &str = "correct horse battery";

pub(crate) struct World {
    pub(crate) node: Running,
    pub(crate) client: Client,
    pub(crate) clock: Arc<Moved>,
    pub(crate) machine: Arc<Machine>,
    /// Who is taken to be connected.
    pub(crate) smb: Arc<MemorySmb>,
    pub(crate) iscsi: Arc<MemoryIscsi>,
    pub(crate) dir: tempfile::TempDir,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_before(|_| {}).await
    }

    /// The same; before it starts, its data directory is made ready.
    pub(crate) async fn start_before(prepare: impl FnOnce(&Path)) -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        prepare(&dir.path().join("data"));
        let clock = Arc::new(Moved { real: SystemClock::new(), by: AtomicU64::new(0) });
        let machine = Arc::new(Machine::default());
        let options = NodeOptions {
            data_dir: dir.path().join("data"),
            socket: None,
            shards: None,
            http: Some("127.0.0.1:0".parse().expect("an address")),
        };
        let (iscsi, smb) = (Arc::new(MemoryIscsi::default()), Arc::new(MemorySmb::default()));
        let (parts, of) = ((iscsi.clone(), smb.clone()), machine.clone());
        let node = Running::start_with(options, clock.clone(), move |data, _| {
            let mut backends = of.backends(data);
            (backends.iscsi, backends.smb) = parts;
            Ok(backends)
        })
        .await;
        let node = node.expect("starts");
        node.wait_ready().await;
        let address = node.http()[0].1.clone().expect("listens");
        let client = Client::new(address, &dir.path().join("data/tls/ca.pem"));
        let world = Self { node, client, clock, machine, smb, iscsi, dir };
        for (user, group) in
            [("ada", "Administrators"), ("otto", "staff"), ("vera", "watchers"), ("nora", "")]
        {
            if !matches!(group, "" | "Administrators") {
                world.local("POST", "/v1/user-groups", &json!({ "name": group })).await;
            }
            let groups: Vec<&str> = Some(group).filter(|group| !group.is_empty()).into_iter().collect();
            let new = json!({ "name": user, "password": PASSWORD, "groups": groups });
            world.local("POST", "/v1/users", &new).await;
        }
        world.local("PATCH", "/v1/http", &json!({ "operators": ["staff"], "viewers": ["watchers"] })).await;
        world
    }

    /// Asks over the node's socket; it has to work.
    pub(crate) async fn local(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.locally(method, path, body).await;
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    }

    /// Asks over the node's socket: the status, and what is answered.
    pub(crate) async fn locally(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        let mut stream = UnixStream::connect(self.node.socket()).await.expect("listens");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, serde_json::from_str(body).expect("JSON"))
    }

    /// A token, as it is shown, and its id.
    pub(crate) async fn token(&self, role: &str, expires_seconds: Option<u64>) -> (String, String) {
        let made = self
            .local("POST", "/v1/tokens", &json!({ "role": role, "expires_seconds": expires_seconds }))
            .await;
        let text = |key: &str| made[key].as_str().expect("text").to_owned();
        (text("secret"), text("id"))
    }

    pub(crate) async fn log_in(&self, user: &str, password: &str) -> Answer {
        let body = json!({ "user": user, "password": password }).to_string();
        self.client.send("POST", "/v1/login", &[("x-holdfast-request", "1")], &body).await
    }

    /// The cookie of a session of this user.
    pub(crate) async fn session(&self, user: &str) -> String {
        let answer = self.log_in(user, PASSWORD).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.headers["set-cookie"].split(';').next().expect("a cookie").to_owned()
    }

    pub(crate) fn pass(&self, seconds: u64) {
        self.clock.by.fetch_add(seconds * 1_000_000_000, Ordering::Relaxed);
    }

    pub(crate) async fn stop(self) {
        self.node.stop().await.expect("stops");
    }
}
