//! The joining node's side: whom it speaks to is known before anything is said.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cluster_identity::JoinToken;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::error::{JoinError, Kind};
use crate::messages::{ADMIT_PATH, Admission, JoinRequest, MAX_ANSWER_BYTES, Refusal};

/// A connection with its TLS.
const CONNECT: Duration = Duration::from_secs(10);
/// The answer: the member waits for etcd.
const ANSWER: Duration = Duration::from_secs(60);

/// Trusts the authority with the token's fingerprint, which the other side shows with its certificate, and nobody else.
struct ByToken {
    token: JoinToken,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for ByToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ByToken")
    }
}

impl ServerCertVerifier for ByToken {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let unknown = || rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let authority = intermediates.iter().find(|shown| self.token.is_of(shown)).ok_or_else(unknown)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, &[], server_name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Asks the member that the token names to be let in.
///
/// # Errors
/// When it does not answer, is not of the token's cluster, or says no.
pub async fn ask(token: &JoinToken, request: &JoinRequest) -> Result<Admission, JoinError> {
    let at = token.address();
    let away = |why: &dyn fmt::Display| {
        JoinError::new(
            Kind::Away,
            format!("The node at {at} does not answer: {why}."),
            "See that it runs and that this node reaches that address; then try again with the same token.",
        )
    };
    let bad = |why: &dyn fmt::Display| {
        JoinError::new(
            Kind::Damaged,
            format!("What the node at {at} answers makes no sense: {why}."),
            "Try again.",
        )
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = ByToken { token: token.clone(), provider: provider.clone() };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| bad(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let connecting = async {
        let tcp = TcpStream::connect(at).await.map_err(|error| away(&error))?;
        let name = ServerName::from(at.ip());
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await.map_err(|error| {
            match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                Some(rustls::Error::InvalidCertificate(_)) => JoinError::new(
                    Kind::Token,
                    format!("The node at {at} does not belong to the cluster that the token is of."),
                    "The token is an old one, or somebody else answers at that address: make another one with `holdfast cluster token`.",
                ),
                _ => away(&error),
            }
        })
    };
    let stream = timeout(CONNECT, connecting).await.map_err(|_| away(&"no connection in time"))??;
    let body = serde_json::to_vec(request).map_err(|error| bad(&error))?;
    let asked = Request::builder()
        .method(Method::POST)
        .uri(ADMIT_PATH)
        .header(HOST, at.to_string())
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| bad(&error))?;
    let answering = async {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| away(&error))?;
        let exchange = async {
            let response = sender.send_request(asked).await.map_err(|error| away(&error))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
            let bytes = body.map_err(|error| away(&error))?.to_bytes();
            Ok::<_, JoinError>((status, bytes))
        };
        tokio::select! {
            biased;
            answer = exchange => answer,
            ended = connection => Err(away(&ended.err().map_or_else(|| "it closed the connection".into(), |error| error.to_string()))),
        }
    };
    let (status, bytes) = timeout(ANSWER, answering).await.map_err(|_| away(&"no answer in time"))??;
    if status != StatusCode::OK {
        return Err(refused(&bytes, status, &bad));
    }
    let admission: Admission = serde_json::from_slice(&bytes).map_err(|error| bad(&error))?;
    Ok(admission)
}

fn refused(bytes: &[u8], status: StatusCode, bad: &dyn Fn(&dyn fmt::Display) -> JoinError) -> JoinError {
    let Ok(refusal) = serde_json::from_slice::<Refusal>(bytes) else { return bad(&status) };
    let kind = match refusal.code.as_str() {
        "forbidden" => Kind::Token,
        "already-exists" => Kind::Taken,
        "wrong-state" => Kind::State,
        "unsupported" => Kind::Release,
        "invalid-request" => Kind::Invalid,
        "not-found" => Kind::NotFound,
        "unavailable" => Kind::Away,
        _ => return bad(&format!("{status} {}", refusal.detail)),
    };
    JoinError::new(kind, refusal.detail, refusal.todo)
}
