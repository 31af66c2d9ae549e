//! What peers may hold, and how each wait for them ends. The router is a small one; time-outs are short, and what is waited for
//! is the end of the connection.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use control_api::HttpConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Limits, Network};

const NOW: u64 = 1_800_000_000;

/// A listener on a free port, with a route that answers and one that waits until it is told to go on.
struct Served {
    network: Network,
    address: String,
    tls: TlsConnector,
    go_on: Arc<Notify>,
    _dir: tempfile::TempDir,
}

fn config() -> HttpConfig {
    HttpConfig { listen: vec!["127.0.0.1:0".into()], ..HttpConfig::default() }
}

fn connector(ca: &Path) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).expect("the authority")).expect("taken");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(tls).into()
}

fn serve(limits: Limits) -> Served {
    let dir = tempfile::tempdir().expect("temp dir");
    let network = Network::new(dir.path(), limits);
    let go_on = Arc::new(Notify::new());
    let waiting = go_on.clone();
    let wait = move || {
        let waiting = waiting.clone();
        async move { waiting.notified().await }
    };
    let router = Router::new().route("/", get(async || "here")).route("/wait", get(wait));
    network.start(router, None).expect("started");
    // The certificate must count now, as the client looks at the real clock.
    let now = std::fs::metadata(dir.path()).and_then(|meta| meta.modified()).expect("a time");
    let now = now.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    assert_eq!(network.apply(&config(), &["node1".into()], now), []);
    let address = network.listeners(&config())[0].listening.clone().expect("listens");
    let tls = connector(&dir.path().join("ca.pem"));
    Served { network, address, tls, go_on, _dir: dir }
}

impl Served {
    async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(&self.address).await?;
        self.tls.connect(ServerName::try_from("node1").expect("a name"), stream).await
    }

    /// What is answered to these bytes until the connection ends.
    async fn answer(&self, request: &str) -> String {
        let mut stream = self.connect().await.expect("a handshake");
        let _ = stream.write_all(request.as_bytes()).await;
        rest(&mut stream).await
    }
}

async fn rest(stream: &mut TlsStream<TcpStream>) -> String {
    let mut answer = Vec::new();
    // It may be cut off, which is an end as well.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_serves_by_its_own_certificate_and_stops() {
    let served = serve(Limits::default());
    let answer = served.answer("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("here"), "{answer}");
    // Another authority's client does not take it.
    let other = serve(Limits::default());
    let stranger = Served { tls: other.tls.clone(), ..served };
    stranger.connect().await.expect_err("not its authority");
    // Applying the same again disturbs nobody.
    let mut kept = other.connect().await.expect("a handshake");
    assert_eq!(other.network.apply(&config(), &["node1".into()], NOW), []);
    kept.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    kept.read_exact(&mut [0; 12]).await.expect("answered");
    assert_eq!(other.network.connections(), 1);
    other.network.stop().await;
    rest(&mut kept).await;
    // Somebody else may listen at that port by now, whose certificate is of another authority.
    other.connect().await.expect_err("nobody listens");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_configured_any_more_ends() {
    let served = serve(Limits::default());
    let mut kept = served.connect().await.expect("a handshake");
    assert_eq!(served.network.apply(&HttpConfig::default(), &[], NOW), []);
    rest(&mut kept).await;
    let trouble = served.network.apply(
        &HttpConfig { listen: vec!["192.0.2.1:1".into(), "here".into()], ..HttpConfig::default() },
        &[],
        NOW,
    );
    let subjects: Vec<&str> = trouble.iter().map(|(subject, _)| subject.as_str()).collect();
    assert_eq!(subjects, ["HTTP address 192.0.2.1:1", "HTTP address here"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_are_bounded() {
    let served = serve(Limits { head_bytes: 8192, headers: 16, ..Limits::default() });
    let head = |more: String| format!("GET / HTTP/1.1\r\nhost: x\r\n{more}connection: close\r\n\r\n");
    let long = served.answer(&head(format!("x: {}\r\n", "y".repeat(9000)))).await;
    assert!(long.starts_with("HTTP/1.1 431"), "{long}");
    let many = served.answer(&head((0..20).map(|n| format!("x{n}: y\r\n")).collect())).await;
    assert!(many.starts_with("HTTP/1.1 431"), "{many}");
    let target = served.answer(&format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "y".repeat(9000))).await;
    assert!(target.starts_with("HTTP/1.1 4"), "{target}");
    let enough = served.answer(&head((0..10).map(|n| format!("x{n}: y\r\n")).collect())).await;
    assert!(enough.starts_with("HTTP/1.1 200"), "{enough}");
    for nonsense in
        ["\0\0\0\0\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\nhost: a\nb: c\0\r\n\r\n"]
    {
        let answer = served.answer(nonsense).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{nonsense:?}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_are_ended() {
    let short = Duration::from_millis(200);
    let served = serve(Limits { handshake: short, head: short, ..Limits::default() });
    // One that says nothing at all, one that begins a handshake, one that begins a request, one that makes another wait.
    for beginning in [&b""[..], &b"\x16\x03\x01\x02\x00"[..]] {
        let mut stream = TcpStream::connect(&served.address).await.expect("listens");
        stream.write_all(beginning).await.expect("sent");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty(), "{answer:?}");
    }
    for beginning in ["", "GET / HT", "GET / HTTP/1.1\r\nhost: x\r\n", "GET / HTTP/1.1\r\nhost: x\r\n\r\n"] {
        served.answer(beginning).await;
    }
    while served.network.connections() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // An answer that takes long is waited for.
    let mut stream = served.connect().await.expect("a handshake");
    stream.write_all(b"GET /wait HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.expect("sent");
    tokio::time::sleep(3 * short).await;
    served.go_on.notify_one();
    assert!(rest(&mut stream).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_and_requests_are_bounded() {
    let served = serve(Limits { per_address: 3, requests: 1, ..Limits::default() });
    let mut first = served.connect().await.expect("a handshake");
    let mut second = served.connect().await.expect("a handshake");
    let third = served.connect().await.expect("a handshake");
    served.connect().await.expect_err("a fourth is too many");
    drop(third);
    while served.network.connections() > 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    first.write_all(b"GET /wait HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.expect("sent");
    while served.network.requests.count() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    second.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.expect("sent");
    let answer = rest(&mut second).await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: 1"), "{answer}");
    served.go_on.notify_one();
    assert!(rest(&mut first).await.starts_with("HTTP/1.1 200"));
}
