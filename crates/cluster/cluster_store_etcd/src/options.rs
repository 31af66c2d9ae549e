//! Where etcd is, how it is reached, and how long it is waited for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

/// The most endpoints: etcd itself advises against more than seven members.
const MAX_ENDPOINTS: usize = 16;

/// What a store is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// `https://HOST:PORT` with [`Self::tls`], `http://HOST:PORT` without; in the order in which they are tried.
    pub endpoints: Vec<String>,
    /// Certificates for both sides; none is for tests and for an etcd that only this machine reaches.
    pub tls: Option<Tls>,
    /// How long what is waited for.
    pub patience: Patience,
    /// Which etcd it has to be; none takes the first that answers, and no other after it.
    pub cluster_id: Option<u64>,
}

/// Certificates in PEM.
#[derive(Clone)]
pub struct Tls {
    /// Authorities one of which has signed etcd's certificate.
    pub ca: Vec<u8>,
    /// What this node shows, with the certificates between.
    pub certificate: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// How long what is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// A connection with its TLS.
    pub connect: Duration,
    /// The answer to a request, from when it was asked for.
    pub request: Duration,
    /// After so much silence of an endpoint the requests that come next go to another one.
    pub rotate_after: Duration,
    /// After so much silence of a watch it is asked for a sign of life, and after as much again given up.
    pub watch_silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            request: Duration::from_secs(5),
            rotate_after: Duration::from_millis(350),
            watch_silence: Duration::from_secs(5),
        }
    }
}

/// What is wrong with options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionsError(String);

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl OptionsError {
    pub(crate) fn without_tls() -> Self {
        Self("etcd: certificates for endpoints that are reached without TLS".into())
    }
}

impl std::error::Error for OptionsError {}

/// One endpoint, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// As it was written, without a slash at the end.
    pub(crate) url: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Whom the certificate has to name; none without TLS.
    pub(crate) name: Option<ServerName<'static>>,
}

pub(crate) fn endpoints(texts: &[String], tls: bool) -> Result<Vec<Endpoint>, OptionsError> {
    if texts.is_empty() || texts.len() > MAX_ENDPOINTS {
        return Err(OptionsError(format!(
            "etcd: {} endpoints are given, 1 to {MAX_ENDPOINTS} are possible",
            texts.len()
        )));
    }
    texts.iter().map(|text| endpoint(text, tls)).collect()
}

fn endpoint(text: &str, tls: bool) -> Result<Endpoint, OptionsError> {
    let scheme = if tls { "https://" } else { "http://" };
    let wrong = |why: &str| OptionsError(format!("etcd: the endpoint {text:?} {why}"));
    let url = text.trim_end_matches('/');
    let rest = url.strip_prefix(scheme).ok_or_else(|| {
        wrong(if tls {
            "does not begin with https:// although certificates are given"
        } else {
            "does not begin with http:// although no certificates are given"
        })
    })?;
    let (host, port) = rest.rsplit_once(':').ok_or_else(|| wrong("has no port; etcd's own is 2379"))?;
    let port =
        port.parse().ok().filter(|port| *port != 0).ok_or_else(|| wrong("has no port of 1 to 65535"))?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if bare.is_empty() || (bare.contains(':') && bare == host) || bare.contains(['/', '@', '?', '#', ' ']) {
        return Err(wrong("is not SCHEME://HOST:PORT, an IPv6 address in brackets"));
    }
    let name = ServerName::try_from(bare.to_owned())
        .map_err(|_| wrong("has a host that is no name and no address"))?;
    Ok(Endpoint { url: url.to_owned(), host: bare.to_owned(), port, name: tls.then_some(name) })
}

/// What TLS needs; only version 1.3.
pub(crate) fn client_config(tls: &Tls) -> Result<Arc<ClientConfig>, OptionsError> {
    let wrong = |what: &str, why: &dyn fmt::Display| OptionsError(format!("etcd: {what}: {why}"));
    let mut roots = RootCertStore::empty();
    for authority in certificates(&tls.ca).map_err(|error| wrong("the authority's certificate", &error))? {
        roots.add(authority).map_err(|error| wrong("the authority's certificate", &error))?;
    }
    if roots.is_empty() {
        return Err(OptionsError("etcd: the file of the authority has no certificate in PEM".into()));
    }
    let chain = certificates(&tls.certificate).map_err(|error| wrong("the node's certificate", &error))?;
    let key = PrivateKeyDer::from_pem_slice(&tls.key).map_err(|error| wrong("the node's key", &error))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| wrong("TLS", &error))?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(|error| wrong("the node's certificate with its key", &error))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, rustls::pki_types::pem::Error> {
    CertificateDer::pem_slice_iter(pem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(endpoint: &str) -> Result<Vec<Endpoint>, OptionsError> {
        endpoints(&[endpoint.to_owned()], false)
    }

    #[test]
    fn endpoints_are_taken_apart() {
        for (text, host, port) in [
            ("http://etcd1:2379", "etcd1", 2379),
            ("http://10.0.0.1:1/", "10.0.0.1", 1),
            ("http://[fe80::1]:2379", "fe80::1", 2379),
        ] {
            let found = one(text).expect(text);
            assert_eq!((found[0].host.as_str(), found[0].port), (host, port), "{text}");
        }
        for text in [
            "",
            "etcd1:2379",
            "https://etcd1:2379",
            "http://etcd1",
            "http://etcd1:0",
            "http://etcd1:65536",
            "http://:2379",
            "http://fe80::1:2379",
            "http://a/b:1",
            "http://user@host:1",
            "http://a b:1",
        ] {
            let error = one(text).expect_err(text);
            assert!(error.to_string().contains("etcd: the endpoint"), "{error}");
        }
        assert!(endpoints(&[], false).is_err());
    }

    #[test]
    fn certificates_that_are_none_are_named() {
        let tls = Tls { ca: b"x".to_vec(), certificate: Vec::new(), key: Vec::new() };
        let text = client_config(&tls).expect_err("none").to_string();
        assert!(text.contains("authority"), "{text}");
    }
}
