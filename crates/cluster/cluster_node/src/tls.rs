//! Certificates of the links between nodes: both sides show one of the cluster's authority, which names the node.

use std::io;
use std::sync::Arc;

use cluster_store::keys::NodeId;
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// What is wrong with certificates.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("links between nodes: {0}")]
pub struct TlsError(String);

/// The name that the certificate of a node has to be for.
#[must_use]
pub fn node_name(node: NodeId) -> String {
    format!("node-{node}.holdfast")
}

/// The certificates of a node for its links.
#[derive(Clone, Debug)]
pub struct LinkTls {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
}

impl LinkTls {
    /// All in PEM: the cluster's authority, this node's certificate for [`node_name`] (good for servers and clients), and its key.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn new(authority: &[u8], certificate: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let wrong = |what: &str, why: &dyn std::fmt::Display| TlsError(format!("{what}: {why}"));
        let mut roots = RootCertStore::empty();
        for each in certificates(authority).map_err(|error| wrong("the authority's certificate", &error))? {
            roots.add(each).map_err(|error| wrong("the authority's certificate", &error))?;
        }
        if roots.is_empty() {
            return Err(TlsError("there is no certificate of an authority in PEM".into()));
        }
        let roots = Arc::new(roots);
        let chain = certificates(certificate).map_err(|error| wrong("the node's certificate", &error))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| wrong("the node's key", &error))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let versions = &[&rustls::version::TLS13];
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(|error| wrong("TLS", &error))?
            .with_client_cert_verifier(
                verifier.map_err(|error| wrong("the authority's certificate", &error))?,
            )
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| wrong("the node's certificate with its key", &error))?;
        // Each link shows its certificate: none is taken over from a link before.
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|error| wrong("TLS", &error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(|error| wrong("the node's certificate with its key", &error))?;
        client.resumption = rustls::client::Resumption::disabled();
        Ok(Self { server: Arc::new(server), client: Arc::new(client) })
    }

    /// What a listener of this node needs that other nodes connect to.
    #[must_use]
    pub fn server_config(&self) -> ServerConfig {
        (*self.server).clone()
    }

    /// Takes a connection from another node of the cluster; which one it is, [`is_of`] says.
    ///
    /// # Errors
    /// When the other side shows no certificate of the cluster's authority, or the connection breaks.
    pub async fn accept(&self, tcp: TcpStream) -> io::Result<server::TlsStream<TcpStream>> {
        TlsAcceptor::from(self.server.clone()).accept(tcp).await
    }

    /// Begins a connection to a node, which shows its certificate.
    ///
    /// # Errors
    /// When the other side is not that node, or the connection breaks.
    pub async fn connect(&self, node: NodeId, tcp: TcpStream) -> io::Result<client::TlsStream<TcpStream>> {
        let name = server_name(node).ok_or(io::ErrorKind::InvalidInput)?;
        TlsConnector::from(self.client.clone()).connect(name, tcp).await
    }
}

/// Whether the certificate that the other side has shown, and that the authority has signed, is this node's.
#[must_use]
pub fn is_of(shown: Option<&[CertificateDer<'static>]>, node: NodeId) -> bool {
    let Some(first) = shown.and_then(<[_]>::first) else { return false };
    let Ok(certificate) = ParsedCertificate::try_from(first) else { return false };
    server_name(node).is_some_and(|name| verify_server_name(&certificate, &name).is_ok())
}

pub(crate) fn server_name(node: NodeId) -> Option<ServerName<'static>> {
    ServerName::try_from(node_name(node)).ok()
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, rustls::pki_types::pem::Error> {
    CertificateDer::pem_slice_iter(pem).collect()
}
