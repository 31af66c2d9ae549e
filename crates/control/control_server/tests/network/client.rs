//! A client over TLS: requests as they are written, answers as they come.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// What was answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// By lower-case name; of several of one name the last.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// Who trusts the node's authority.
#[derive(Clone)]
pub(crate) struct Client {
    tls: TlsConnector,
    pub(crate) address: String,
}

impl Client {
    pub(crate) fn new(address: String, ca: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(ca).expect("the authority")).expect("taken");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { tls: Arc::new(tls).into(), address }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(&self.address).await.expect("listens");
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        self.tls.connect(name, stream).await.expect("a handshake")
    }

    /// Sends bytes as they are, and reads to the end of the connection.
    pub(crate) async fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = self.connect().await;
        // It may be refused before all of it is there.
        let _ = stream.write_all(request).await;
        parse(&Stream(stream).rest().await)
    }

    /// Asks, and leaves the answer to be read bit by bit.
    pub(crate) async fn open(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Stream {
        let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request =
            format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{more}\r\n", self.address);
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.expect("sent");
        Stream(stream)
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let (host, length) = (&self.address, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n{more}\r\n{body}"
        );
        self.raw(request.as_bytes()).await
    }
}

/// An answer while it comes.
pub(crate) struct Stream(TlsStream<TcpStream>);

impl Stream {
    /// Sends more of what was begun.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.expect("sent");
        self.0.flush().await.expect("sent");
    }

    /// What comes up to this text, with it.
    pub(crate) async fn until(&mut self, text: &str) -> String {
        let mut bytes = Vec::new();
        while !String::from_utf8_lossy(&bytes).contains(text) {
            let byte = self.0.read_u8().await;
            bytes.push(
                byte.unwrap_or_else(|error| panic!("{error} after {}", String::from_utf8_lossy(&bytes))),
            );
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// What comes until it ends, or is cut off.
    pub(crate) async fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        let _ = self.0.read_to_end(&mut bytes).await;
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn parse(text: &str) -> Answer {
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return Answer::default() };
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or_default();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    Answer { status, headers, body: body.to_owned() }
}
