//! Where a node of a cluster answers its members, and nodes that want to join: TLS 1.3 with the cluster's certificates.
//!
//! A member shows its certificate. A node that wants to join has none yet: it is let in by its token, which it only shows after it has seen
//! that the other side's certificate is the cluster's. The limits are those of the API's other listeners.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use cluster_identity::ClusterIdentity;
use control_api::{Code, Problem};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::limits::{Connections, Limits};
use super::serve::Acceptor;

/// A node that is about to stop lets its answers end for so long.
const DRAIN: Duration = Duration::from_secs(2);

/// The listener; it ends with this value.
#[derive(Debug)]
pub(crate) struct Members {
    stop: watch::Sender<()>,
    acceptor: JoinHandle<()>,
    connections: Arc<Connections>,
}

fn tls(identity: &ClusterIdentity) -> Result<ServerConfig, String> {
    let pem = &identity.pem;
    let certificate = |text: &str| CertificateDer::from_pem_slice(text.as_bytes()).map_err(|e| e.to_string());
    let (authority, own) = (certificate(&pem.ca)?, certificate(&pem.node)?);
    // What is in the file of a key is not for messages.
    let key =
        PrivateKeyDer::from_pem_slice(pem.node_key.as_bytes()).map_err(|_| "the node's key is damaged")?;
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone()).map_err(|error| error.to_string())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|error| error.to_string())?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(verifier)
        // Whoever joins knows the authority by its fingerprint only: it has to be shown.
        .with_single_cert(vec![own, authority], key)
        .map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

impl Members {
    /// Listens at the identity's address; requests go to `router`. On the control plane's runtime.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub(crate) fn listen(identity: &ClusterIdentity, router: Router) -> Result<Self, Problem> {
        Self::listen_at(identity.record.api_address, tls(identity), router)
    }

    /// The same at this address, with these certificates.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub(crate) fn listen_at(
        at: SocketAddr,
        tls: Result<ServerConfig, String>,
        router: Router,
    ) -> Result<Self, Problem> {
        let failed = |why: String| {
            Problem::new(Code::Io, format!("The address for members of the cluster, {at}: {why}.")).todo(
                "It is in cluster/identity.toml of the data directory. Nodes cannot join here meanwhile.",
            )
        };
        let tls = tls.map_err(failed)?;
        let listener = super::bind(at).map_err(|error| failed(error.to_string()))?;
        listener.set_nonblocking(true).map_err(|error| failed(error.to_string()))?;
        let listener =
            tokio::net::TcpListener::from_std(listener).map_err(|error| failed(error.to_string()))?;
        let (stop, stopped) = watch::channel(());
        let (connections, requests) = (Arc::<Connections>::default(), Arc::default());
        let acceptor = Acceptor {
            tls: Arc::new(tls).into(),
            router,
            connections: connections.clone(),
            requests,
            limits: Limits::default(),
            stopped,
        };
        let acceptor = tokio::spawn(acceptor.run(listener));
        tracing::info!(address = %at, "members of the cluster are answered");
        Ok(Self { stop, acceptor, connections })
    }

    /// Listens no more; what is being answered gets a moment to end.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        let _ = self.acceptor.await;
        let ended = async {
            while self.connections.count() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let _ = tokio::time::timeout(DRAIN, ended).await;
    }
}
