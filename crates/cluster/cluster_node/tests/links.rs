//! Links between nodes: who is let in, and what a stranger can do.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod scene;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use cluster_node::{
    ClusterNode, DriverFuture, Incarnations, LinkTls, NodeOptions, Order, Ownership, PoolDriver, Settings,
    Timings, node_name,
};
use cluster_store::LocalStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use scene::{cluster, id};
use test_etcd::{Authority, Identity, own_address, own_port, wait_for};

struct Nothing;

impl PoolDriver for Nothing {
    fn carry_out<'a>(&'a self, _: &'a Ownership, _: Order) -> DriverFuture<'a> {
        Box::pin(async { Ok(()) })
    }

    fn hung(&self, _: cluster_store::keys::PoolId) {}
}

struct Scene {
    _stop: tokio::sync::oneshot::Sender<()>,
    authority: Authority,
    node: ClusterNode,
    _folder: tempfile::TempDir,
}

impl Scene {
    fn start() -> Self {
        let runtime = scene::runtime();
        let handle = runtime.handle().clone();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        std::thread::spawn(move || runtime.block_on(stopped));
        let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("temp dir"));
        let identity = authority.issue(&[&node_name(id(1))]);
        let (address, port) = (own_address(), own_port());
        let options = NodeOptions {
            node: id(1),
            cluster: cluster(),
            addresses: vec![format!("{address}:{port}")],
            release: "test".into(),
            name: "one".into(),
            api: String::new(),
            bus: String::new(),
            permit: cluster_node::NodePermit::default(),
            aside: cluster_node::Aside::none(),
            paused: false,
            sight: None,
            listener: std::net::TcpListener::bind((address, port)).expect("bound"),
            tls: LinkTls::new(
                authority.pem().as_bytes(),
                identity.certificate.as_bytes(),
                identity.key.as_bytes(),
            )
            .expect("certificates"),
            timings: Timings::new(Settings::default()).expect("times"),
            incarnations: Incarnations::open(&folder.path().join("node")).expect("opened"),
        };
        let store = LocalStore::open(&folder.path().join("store")).expect("opened");
        let node = ClusterNode::start(options, Arc::new(store), Arc::new(Nothing), &handle).expect("starts");
        Self { _stop: stop, authority, node, _folder: folder }
    }

    /// What the node answers to these bytes of whoever shows this certificate, until it closes the connection or is silent.
    fn say(&self, identity: Option<&Identity>, bytes: &[u8]) -> Result<Vec<u8>, std::io::Error> {
        let mut roots = RootCertStore::empty();
        let pem = self.authority.pem().as_bytes();
        roots.add(CertificateDer::from_pem_slice(pem).expect("a certificate")).expect("added");
        let config =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_protocol_versions(&[&rustls::version::TLS13])
                .expect("TLS")
                .with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some(identity) => {
                let chain =
                    vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).expect("one")];
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
                config.with_client_auth_cert(chain, key).expect("they fit")
            }
        };
        let name = ServerName::try_from(node_name(id(1))).expect("a name");
        let client = ClientConnection::new(Arc::new(config), name).expect("a client");
        let tcp = TcpStream::connect(self.node.address())?;
        tcp.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut stream = StreamOwned::new(client, tcp);
        stream.write_all(bytes)?;
        stream.flush()?;
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut frame = vec![0; usize::from(u16::from_le_bytes(length))];
        stream.read_exact(&mut frame)?;
        Ok(frame)
    }
}

fn hello(cluster: &str, from: u16, to: u16) -> Vec<u8> {
    let mut body = b"\x01HFNL\x01\0".to_vec();
    body.extend_from_slice(&(cluster.len() as u16).to_le_bytes());
    body.extend_from_slice(cluster.as_bytes());
    body.extend_from_slice(&from.to_le_bytes());
    body.extend_from_slice(&to.to_le_bytes());
    let mut bytes = (body.len() as u16).to_le_bytes().to_vec();
    bytes.extend_from_slice(&body);
    bytes
}

#[test]
fn only_nodes_of_the_cluster_are_heard() {
    let scene = Scene::start();
    let own = scene.authority.issue(&[&node_name(id(2))]);
    let greeted = scene.say(Some(&own), &hello("test", 2, 1)).expect("let in");
    assert_eq!(greeted, hello("test", 1, 2)[2..], "it greets as who it is");
    // A certificate of the cluster for something else: refused, with a reason.
    let other = scene.authority.issue(&["node-22.holdfast", "etcd.example", "node-2.holdfast.example"]);
    for (identity, bytes, why) in [
        (&other, hello("test", 2, 1), "certificate is not that of node-2.holdfast"),
        (&own, hello("test", 3, 1), "certificate is not that of node-3.holdfast"),
        (&own, hello("other", 2, 1), "another cluster"),
        (&own, hello("test", 2, 5), "node 1, not node 5"),
    ] {
        let refused = scene.say(Some(identity), &bytes).expect("an answer");
        assert_eq!(refused[0], 2, "{why}");
        assert!(String::from_utf8_lossy(&refused).contains(why), "{why}: {refused:?}");
    }
    // One of another authority, or none, is not even listened to.
    let stranger = Authority::new().issue(&[&node_name(id(2))]);
    assert!(scene.say(Some(&stranger), &hello("test", 2, 1)).is_err());
    assert!(scene.say(None, &hello("test", 2, 1)).is_err());
}

#[test]
fn what_is_no_greeting_ends_the_link_and_nothing_else() {
    let scene = Scene::start();
    let own = scene.authority.issue(&[&node_name(id(2))]);
    let ask = [17, 0, 3, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    for bytes in [&[0xff, 0xff][..], &[0, 0], &[1, 0, 9], &ask, b"GET / HTTP/1.1\r\n\r\n"] {
        assert!(scene.say(Some(&own), bytes).is_err(), "{bytes:?}");
    }
    // Neither do connections that say nothing at all, as many as there are places for greetings, for longer than a moment.
    let silent: Vec<TcpStream> =
        (0..80).filter_map(|_| TcpStream::connect(scene.node.address()).ok()).collect();
    wait_for("it is heard again", || scene.say(Some(&own), &hello("test", 2, 1)).is_ok());
    drop(silent);
    assert_eq!(scene.node.status().borrow().incarnation, 1, "its life went on");
}
