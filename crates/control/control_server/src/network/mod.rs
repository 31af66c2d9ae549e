//! The API and the pages over the network: TLS 1.3, HTTP/1.1, and limits on what peers may hold.
//!
//! ```text
//!   accept ─► a place? ─► handshake in time? ─► hyper (heads in time, of bounded size) ─► room for a request? ─► the router
//! ```
//! Who asks is decided in the router (`http::gate`), by what the request shows and the [`Peer`] that is put beside it here.
//!
//! Invariants:
//! * Nothing is read of a peer before there is a place for it; each wait for a peer has an end.
//! * Only TLS 1.3 is spoken; there is no way to the router without it but the node's own socket.

mod certificates;
mod limits;
mod members;
mod serve;
mod stall;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use control_api::{Code, HttpCertificate, HttpConfig, Listener, Problem, Proof, Role};
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) use limits::{Limits, Place, peer};
pub(crate) use members::Members;

use certificates::{Certificate, OwnCertificates};
use limits::Connections;

/// Where a request comes from. Each connection's requests carry it; one without is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The node's own socket, from a process of this user.
    Socket(u32),
    /// The network.
    Network(SocketAddr),
    /// Another node of the cluster, of this number, for somebody who has asked that one ([`Through`] says who).
    Node(u16),
}

/// For whom another node asks; believed, as the node is one of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Through {
    pub(crate) who: String,
    pub(crate) role: Option<Role>,
    pub(crate) proof: Option<Proof>,
}

/// The certificates that the other side of a connection has shown, which were verified.
#[derive(Clone)]
pub(crate) struct Shown(pub(crate) Option<Arc<[CertificateDer<'static>]>>);

/// Before a given certificate ends, people are told for so long.
pub(crate) const ENDS_SOON_SECONDS: u64 = 21 * 24 * 3600;

/// How often, and how long between, an address is tried that is in use: the node itself may have served it, or one that holds it, until now.
const BIND_ATTEMPTS: u32 = 20;
const BIND_PAUSE: Duration = Duration::from_millis(10);

/// How long connections may take to end when an address is not served any more, or the node stops.
const DRAIN: Duration = Duration::from_secs(2);

/// The certificate in use, which changes while connections come in.
#[derive(Debug, Default)]
struct InUse(Mutex<Option<Certificate>>);

impl ResolvesServerCert for InUse {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.lock().as_ref().map(|certificate| certificate.key.clone())
    }
}

/// An address that is served.
#[derive(Debug)]
struct Listening {
    at: SocketAddr,
    /// Ends its connections when dropped.
    stop: watch::Sender<()>,
    /// Ends when the socket is closed.
    acceptor: JoinHandle<()>,
}

/// What is needed to serve; absent before the node runs, and after.
#[derive(Clone)]
struct Serving {
    runtime: Handle,
    router: Router,
    tls: Arc<ServerConfig>,
    /// Served whatever the configuration says.
    always: Option<SocketAddr>,
}

/// The listeners.
pub(crate) struct Network {
    own: OwnCertificates,
    provider: Arc<CryptoProvider>,
    in_use: Arc<InUse>,
    connections: Arc<Connections>,
    requests: Arc<Connections>,
    limits: Limits,
    serving: Mutex<Option<Serving>>,
    listeners: Mutex<BTreeMap<String, Listening>>,
}

/// Listens. Whoever listened there until now may take a moment to end.
#[expect(
    clippy::disallowed_methods,
    reason = "a thread of the control plane, which is no shard; it waits for 0.2 s at most"
)]
fn bind(at: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    for _ in 0..BIND_ATTEMPTS {
        match kept_listeners::listen(at) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => std::thread::sleep(BIND_PAUSE),
            other => return other,
        }
    }
    kept_listeners::listen(at)
}

impl Network {
    /// One that serves nothing yet. Certificates are kept in `dir`.
    pub(crate) fn new(dir: &Path, limits: Limits) -> Self {
        Self {
            own: OwnCertificates::new(dir.to_owned()),
            provider: Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
            in_use: Arc::default(),
            connections: Arc::default(),
            requests: Arc::default(),
            limits,
            serving: Mutex::default(),
            listeners: Mutex::default(),
        }
    }

    /// From now on requests go to `router`, on this runtime. `always` is served whatever the configuration says.
    ///
    /// # Errors
    /// When there is no TLS, which does not happen with the provider that is built in.
    pub(crate) fn start(&self, router: Router, always: Option<SocketAddr>) -> Result<(), Problem> {
        let mut tls = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| Problem::new(Code::Internal, format!("TLS: {error}.")))?
            .with_no_client_auth()
            .with_cert_resolver(self.in_use.clone());
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        *self.serving.lock() =
            Some(Serving { runtime: Handle::current(), router, tls: Arc::new(tls), always });
        Ok(())
    }

    /// Makes what is served equal to the configuration. `names` are what the node is called; `now` is in seconds since 1970.
    /// Returns what could not be done, as ("HTTP address …", "why"). Waits for nobody, and binds to addresses at most.
    pub(crate) fn apply(&self, config: &HttpConfig, names: &[String], now: u64) -> Vec<(String, String)> {
        let Some(serving) = self.serving.lock().clone() else { return Vec::new() };
        let wanted: Vec<String> =
            config.listen.iter().cloned().chain(serving.always.map(|at| at.to_string())).collect();
        let mut listeners = self.listeners.lock();
        listeners.retain(|address, listening| {
            let stays = wanted.contains(address);
            if !stays {
                kept_listeners::close(listening.at);
            }
            stays
        });
        if wanted.is_empty() {
            return Vec::new();
        }
        let mut trouble = Vec::new();
        if let Err(problem) = self.renew(config, names, now) {
            // One that was good goes on: a node that cannot be reached any more is worse.
            let kept =
                if self.in_use.0.lock().is_some() { "; the certificate before is still shown" } else { "" };
            trouble.push(("HTTP certificate".to_owned(), format!("{}{kept}", problem.detail)));
        }
        for address in wanted {
            if listeners.contains_key(&address) {
                continue;
            }
            match self.listen(&address, &serving) {
                Ok(listening) => {
                    tracing::info!(address = %listening.at, "the API is served over the network");
                    listeners.insert(address, listening);
                }
                Err(why) => trouble.push((format!("HTTP address {address}"), why)),
            }
        }
        trouble
    }

    /// Takes the certificate that the configuration wants now.
    fn renew(&self, config: &HttpConfig, names: &[String], now: u64) -> Result<(), Problem> {
        let certificate = if config.certificate.is_empty() {
            let names: Vec<String> = names.iter().chain(&config.names).cloned().collect();
            self.own.certificate(&names, now, &self.provider)?
        } else {
            certificates::given(config, &self.provider)?
        };
        *self.in_use.0.lock() = Some(certificate);
        Ok(())
    }

    fn listen(&self, address: &str, serving: &Serving) -> Result<Listening, String> {
        let at: SocketAddr = address.parse().map_err(|_| "it is not ADDRESS:PORT".to_owned())?;
        if self.in_use.0.lock().is_none() {
            return Err("there is no certificate".into());
        }
        let listener = bind(at).map_err(|error| error.to_string())?;
        listener.set_nonblocking(true).map_err(|error| error.to_string())?;
        // Whoever changes the configuration may be on another runtime.
        let _here = serving.runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).map_err(|error| error.to_string())?;
        let at = listener.local_addr().map_err(|error| error.to_string())?;
        let (stop, stopped) = watch::channel(());
        let acceptor = serve::Acceptor {
            tls: serving.tls.clone().into(),
            router: serving.router.clone(),
            connections: self.connections.clone(),
            requests: self.requests.clone(),
            limits: self.limits,
            stopped,
        };
        let acceptor = serving.runtime.spawn(acceptor.run(listener));
        Ok(Listening { at, stop, acceptor })
    }

    /// Serves nothing any more: nobody listens when this ends, and connections get a moment to end.
    pub(crate) async fn stop(&self) {
        // The router holds the node, and the node this.
        self.serving.lock().take();
        let listeners = std::mem::take(&mut *self.listeners.lock());
        let (stops, acceptors): (Vec<_>, Vec<_>) =
            listeners.into_values().map(|listening| (listening.stop, listening.acceptor)).unzip();
        drop(stops);
        let ended = async {
            for acceptor in acceptors {
                let _ = acceptor.await;
            }
            while self.connections.count() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(DRAIN, ended).await.is_err() {
            tracing::info!(connections = self.connections.count(), "connections of the API were cut off");
        }
    }

    /// Where it listens, for each address of the configuration.
    pub(crate) fn listeners(&self, config: &HttpConfig) -> Vec<Listener> {
        let always = self.serving.lock().as_ref().and_then(|serving| serving.always).map(|at| at.to_string());
        let listeners = self.listeners.lock();
        let mut wanted: Vec<&String> = config.listen.iter().chain(&always).collect();
        wanted.dedup();
        let tell = |address: &String| Listener {
            address: address.clone(),
            listening: listeners.get(address).map(|listening| listening.at.to_string()),
            problem: None,
        };
        wanted.into_iter().map(tell).collect()
    }

    /// The certificate that clients are shown.
    pub(crate) fn certificate(&self) -> Option<HttpCertificate> {
        self.in_use.0.lock().as_ref().map(|certificate| certificate.told.clone())
    }

    /// Connections now.
    pub(crate) fn connections(&self) -> usize {
        self.connections.count()
    }
}
