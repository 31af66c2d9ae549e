//! One notification, sent once.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Request, header};
use control_api::Notifier;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use io_engine::plain_file;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::address::{Target, refused};

/// From looking up the name to the head of the answer.
const WITHIN: Duration = Duration::from_secs(10);
/// Where systems keep the authorities that they believe.
const SYSTEM_AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// Bytes of a file of authorities at most.
const MAX_AUTHORITIES: u64 = 8 << 20;
/// Bytes of a secret at most.
const MAX_SECRET: u64 = 4096;

/// The name of the header that carries a secret.
pub(super) fn header_name(text: &str) -> Result<HeaderName, String> {
    let name = HeaderName::try_from(text).map_err(|_| format!("{text:?} is no name of a header."))?;
    let of_the_protocol = [
        header::HOST,
        header::CONTENT_LENGTH,
        header::CONTENT_TYPE,
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        header::TE,
        header::UPGRADE,
    ];
    if of_the_protocol.contains(&name) {
        return Err(format!("The header {text} is the protocol's own."));
    }
    Ok(name)
}

/// What is in a plain file that is not longer than this. Nothing else is opened: a pipe would never end the waiting for its other end, a device
/// never the reading.
fn content(path: &Path, most: u64) -> Result<(Vec<u8>, u32), String> {
    let file = plain_file::open(path, OpenOptions::new().read(true)).map_err(|error| error.to_string())?;
    let mode = file.metadata().map_err(|error| error.to_string())?.permissions().mode();
    let mut bytes = Vec::new();
    // The length that is told may be another one than what is read: files of /proc have none.
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > most {
        return Err(format!("it has more than {most} bytes"));
    }
    Ok((bytes, mode))
}

/// The secret of a file: one line that nobody but the file's owner may read. What is in other files is sent nowhere.
fn secret(path: &Path) -> Result<HeaderValue, String> {
    let of = |why: &str| format!("the secret in {}: {why}", path.display());
    let (bytes, mode) = content(path, MAX_SECRET).map_err(|why| of(&why))?;
    if mode & 0o077 != 0 {
        return Err(of("others may read the file (chmod 600)"));
    }
    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    if line.is_empty() || !line.iter().all(|byte| *byte == b' ' || byte.is_ascii_graphic()) {
        return Err(of("it is not one line of printable characters"));
    }
    let mut value = HeaderValue::from_bytes(line).map_err(|_| of("it cannot be in a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The authorities in a file.
fn authorities(given: Option<&str>) -> Result<RootCertStore, String> {
    let usual = || SYSTEM_AUTHORITIES.into_iter().find(|path| Path::new(path).exists());
    let path = given.or_else(usual).ok_or("this machine has no file of authorities; name one (--ca FILE)")?;
    let of = |why: String| format!("the authorities in {path}: {why}");
    let (bytes, _) = content(Path::new(path), MAX_AUTHORITIES).map_err(of)?;
    let mut roots = RootCertStore::empty();
    let found = CertificateDer::pem_slice_iter(&bytes).filter_map(Result::ok);
    let (taken, _) = roots.add_parsable_certificates(found);
    if taken == 0 {
        return Err(of("it has none in PEM".into()));
    }
    Ok(roots)
}

/// The secret of a notifier, and the authorities that its host is believed by where it is asked over TLS. Blocks on the disk.
pub(super) fn files_of(notifier: &Notifier) -> Result<(Option<HeaderValue>, Option<RootCertStore>), String> {
    let secret = notifier.secret_file.as_deref().map(|path| secret(Path::new(path))).transpose()?;
    let https = Target::parse(&notifier.url)?.https;
    let roots = if https { Some(authorities(notifier.ca_file.as_deref())?) } else { None };
    Ok((secret, roots))
}

/// Sends one notification, and says why it was not taken.
pub(super) async fn send(notifier: &Notifier, body: String) -> Result<(), String> {
    let late = |_| Err(format!("it has not answered within {} s", WITHIN.as_secs()));
    tokio::time::timeout(WITHIN, try_once(notifier.clone(), body)).await.unwrap_or_else(late)
}

async fn try_once(notifier: Notifier, body: String) -> Result<(), String> {
    let target = Target::parse(&notifier.url)?;
    let mut request = Request::post(&target.path)
        .header(header::HOST, &target.authority)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close")
        .header(header::USER_AGENT, concat!("holdfast/", env!("CARGO_PKG_VERSION")));
    let of = notifier.clone();
    // Files are read off the threads that answer others.
    let read = tokio::task::spawn_blocking(move || files_of(&of));
    let (secret, roots) = read.await.map_err(|error| error.to_string())??;
    if let Some(secret) = secret {
        request = request.header(header_name(notifier.header.as_deref().unwrap_or("authorization"))?, secret);
    }
    let request = request.body(Body::from(body)).map_err(|error| error.to_string())?;
    let tcp = connect(&target, notifier.allow_local).await?;
    match roots {
        None => exchange(tcp, request).await,
        Some(roots) => {
            let name = ServerName::try_from(target.host.clone())
                .map_err(|_| format!("{} is no name that a certificate can have", target.host))?;
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let config = ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(&[&rustls::version::TLS13])
                .map_err(|error| error.to_string())?
                .with_root_certificates(roots)
                .with_no_client_auth();
            let tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await;
            exchange(tls.map_err(|error| format!("TLS: {error}"))?, request).await
        }
    }
}

/// Connects to one of the host's addresses: those that were looked at, so that a name cannot mean another one in between.
async fn connect(target: &Target, allow_local: bool) -> Result<TcpStream, String> {
    let host = &target.host;
    let found = tokio::net::lookup_host((host.as_str(), target.port)).await;
    let found = found.map_err(|error| format!("{host} is not found: {error}"))?;
    let mut why = format!("{host} has no address");
    for at in found.take(8) {
        if let Some(refusal) = refused(at.ip(), target.https, allow_local) {
            why = format!("nothing is sent to {}: {refusal}", at.ip());
            continue;
        }
        match TcpStream::connect(at).await {
            Ok(tcp) => return Ok(tcp),
            Err(error) => why = format!("{at} is not reached: {error}"),
        }
    }
    Err(why)
}

/// What it answers counts by its status; its body is not read, and nothing is followed anywhere.
async fn exchange<T>(io: T, request: Request<Body>) -> Result<(), String>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = handshake(TokioIo::new(io)).await.map_err(|error| error.to_string())?;
    let asking = async {
        let answer = sender.send_request(request).await.map_err(|error| format!("it broke off: {error}"))?;
        let status = answer.status();
        if status.is_success() { Ok(()) } else { Err(format!("it has answered {status}")) }
    };
    tokio::pin!(asking);
    tokio::pin!(connection);
    tokio::select! {
        biased;
        result = &mut asking => result,
        ended = &mut connection => match ended {
            // The answer may have come with the end.
            Ok(()) => asking.await,
            Err(error) => Err(format!("it broke off: {error}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_of_ones_own_is_a_secret() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("secret");
        let write = |text: &str, mode: u32| {
            std::fs::write(&path, text).expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
        };
        write("Bearer hunter2\n", 0o600);
        let value = secret(&path).expect("a secret");
        assert_eq!(value, "Bearer hunter2");
        assert!(!format!("{value:?}").contains("hunter2"));
        write("Bearer hunter2\n", 0o644);
        assert!(secret(&path).expect_err("readable").contains("chmod"));
        for wrong in ["", "\n", "root:x:0\nbin:x:1\n", "a\tb", "a\r\nX: y", &"x".repeat(5000)] {
            write(wrong, 0o600);
            assert!(secret(&path).is_err(), "{wrong:?}");
        }
        assert!(secret(dir.path()).is_err());
        for wrong in ["Host", "content-length", "a b", "", "x\n"] {
            assert!(header_name(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn only_plain_files_are_read_and_only_so_much_of_them() {
        let dir = tempfile::tempdir().expect("temp dir");
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&pipe).status();
        assert!(made.expect("mkfifo").success());
        let zero = Path::new("/dev/zero");
        for path in [zero, pipe.as_path()] {
            assert!(secret(path).expect_err("no secret").contains("not a plain file"), "{path:?}");
            let why = authorities(path.to_str()).expect_err("no authorities");
            assert!(why.contains("not a plain file"), "{why}");
        }
        let large = dir.path().join("large");
        let file = std::fs::File::create(&large).expect("made");
        file.set_len(MAX_AUTHORITIES + 1).expect("long");
        assert!(authorities(large.to_str()).expect_err("too large").contains("more than"));
        for cut in [
            "-----BEGIN CERTIFICATE-----\nMIIB",
            "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
        ] {
            std::fs::write(&large, cut).expect("written");
            assert!(authorities(large.to_str()).expect_err("none").contains("none in PEM"), "{cut}");
        }
        // It is told to be empty, and is not.
        assert!(secret(Path::new("/proc/self/maps")).is_err());
    }
}
