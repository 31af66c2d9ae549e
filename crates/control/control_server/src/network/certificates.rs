//! Certificates of the API: given ones, or those of the node's own authority, made when they are first needed.
//!
//! ```text
//!   tls/ca.key ─ signs ─► tls/ca.pem     what clients are given to trust; ten years
//!        └────── signs ─► tls/node.pem   what the node shows; a year, made anew before it ends or when names change
//! ```
//! Keys are their owner's only (0600) and never leave the directory. An authority that cannot be read is not replaced: clients
//! trust it, and whoever has lost it has to know.

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use control_api::{Code, HttpCertificate, HttpConfig, Problem};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData as _,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest as _, Sha256};
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::data_dir::{make_private_dir, replace_file};

/// Largest file with certificates or a key that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// How long the authority holds.
const CA_SECONDS: u64 = 10 * 365 * DAY;
/// How long a certificate holds: browsers take none that was made for more than 398 days.
const LEAF_SECONDS: u64 = 365 * DAY;
/// So long before its end a certificate of the node's own is made anew.
const RENEW_SECONDS: u64 = 90 * DAY;
/// A clock of a client may be so much behind.
const BEFORE_SECONDS: u64 = DAY;
const DAY: u64 = 24 * 3600;
/// Most names in a certificate of the node's own.
const MAX_NAMES: usize = 256;

/// A certificate with its key, and what people are told of it.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    /// What a connection needs.
    pub(crate) key: Arc<CertifiedKey>,
    /// What people are told.
    pub(crate) told: HttpCertificate,
}

fn wrong(path: &Path, why: impl std::fmt::Display) -> Problem {
    Problem::new(Code::Damaged, format!("{}: {why}.", path.display()))
}

fn read(path: &Path) -> Result<Vec<u8>, Problem> {
    let failed = |error: std::io::Error| {
        let code = if error.kind() == ErrorKind::NotFound { Code::NotFound } else { Code::Io };
        Problem::new(code, format!("{}: {error}.", path.display()))
    };
    let mut bytes = Vec::new();
    fs::File::open(path).map_err(failed)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(wrong(path, "it is far too large for a certificate or key"));
    }
    Ok(bytes)
}

/// The fingerprint of a certificate, as people compare it.
pub(crate) fn fingerprint(der: &[u8]) -> String {
    let bytes: Vec<String> = Sha256::digest(der).iter().map(|byte| format!("{byte:02X}")).collect();
    bytes.join(":")
}

/// What is read out of a certificate.
struct Facts {
    names: Vec<String>,
    not_before: u64,
    not_after: u64,
}

fn facts(der: &[u8]) -> Result<Facts, String> {
    let certificate = x509_cert::Certificate::from_der(der).map_err(|error| error.to_string())?;
    let body = &certificate.tbs_certificate;
    let seconds = |time: &x509_cert::time::Time| time.to_unix_duration().as_secs();
    let mut names = Vec::new();
    if let Ok(Some((_, SubjectAltName(found)))) = body.get::<SubjectAltName>() {
        for name in &found {
            match name {
                GeneralName::DnsName(name) => names.push(name.to_string()),
                GeneralName::IpAddress(bytes) => names.extend(address(bytes.as_bytes())),
                _ => {}
            }
        }
    }
    names.sort();
    let (not_before, not_after) = (seconds(&body.validity.not_before), seconds(&body.validity.not_after));
    Ok(Facts { names, not_before, not_after })
}

fn address(bytes: &[u8]) -> Option<String> {
    let address = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
    };
    Some(address.to_string())
}

/// Puts certificates and their key together, and sees that they belong to each other and count now.
fn checked(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: &CryptoProvider,
) -> Result<Certificate, String> {
    let first = chain.first().ok_or("there is no certificate in it")?;
    let facts = facts(first)?;
    let told = HttpCertificate {
        own: false,
        names: facts.names,
        not_after: facts.not_after,
        fingerprint: fingerprint(first),
        ca_fingerprint: None,
        ca_file: None,
    };
    let key = CertifiedKey::from_der(chain, key, provider).map_err(|error| error.to_string())?;
    Ok(Certificate { key: Arc::new(key), told })
}

/// A given certificate.
///
/// # Errors
/// Says which file is wrong, and why.
pub(crate) fn given(config: &HttpConfig, provider: &CryptoProvider) -> Result<Certificate, Problem> {
    let (chain_path, key_path) = (Path::new(&config.certificate), Path::new(&config.key));
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&read(chain_path)?)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(chain_path, format!("it holds no certificate in PEM: {error}")))?;
    // What is in the file of a key is not for messages.
    let key = PrivateKeyDer::from_pem_slice(&read(key_path)?)
        .map_err(|_| wrong(key_path, "it holds no private key in PEM"))?;
    checked(chain, key, provider).map_err(|why| {
        wrong(chain_path, format!("it can't be used with the key {}: {why}", key_path.display()))
    })
}

/// The node's own authority, and what it signs.
#[derive(Debug)]
pub(crate) struct OwnCertificates {
    dir: PathBuf,
}

impl OwnCertificates {
    /// Those in this directory, which need not be there yet.
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Where the authority's certificate is.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// A certificate for these names that counts at `now` (seconds since 1970) and for long enough after: the one that is
    /// there, or a new one. `known` are the node's name and the configured ones.
    ///
    /// # Errors
    /// When the authority is damaged, or nothing can be written.
    pub(crate) fn certificate(
        &self,
        known: &[String],
        now: u64,
        provider: &CryptoProvider,
    ) -> Result<Certificate, Problem> {
        make_private_dir(&self.dir)
            .map_err(|error| Problem::new(Code::Io, format!("{}: {error}.", self.dir.display())))?;
        let (ca, ca_key) = self.authority(now)?;
        let names = names(known);
        let (path, key_path) = (self.dir.join("node.pem"), self.dir.join("node.key"));
        let there = || {
            let pem = read(&path).ok()?;
            let chain: Vec<_> = CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().ok()?;
            let key = PrivateKeyDer::from_pem_slice(&read(&key_path).ok()?).ok()?;
            // That of an authority before is not good any more.
            (chain.get(1) == Some(&ca)).then_some(())?;
            checked(chain, key, provider).ok()
        };
        let fresh = |certificate: &Certificate| {
            certificate.told.names == names && certificate.told.not_after > now.saturating_add(RENEW_SECONDS)
        };
        let mut certificate = match there().filter(fresh) {
            Some(certificate) => certificate,
            None => {
                let (chain, key) = self.sign(&ca, ca_key, &names, now)?;
                checked(chain, key, provider).map_err(|why| wrong(&path, why))?
            }
        };
        certificate.told.own = true;
        certificate.told.ca_fingerprint = Some(fingerprint(&ca));
        certificate.told.ca_file = Some(self.ca_file().to_string_lossy().into_owned());
        Ok(certificate)
    }

    fn write(&self, name: &str, content: &str) -> Result<(), Problem> {
        let path = self.dir.join(name);
        replace_file(&path, content.as_bytes())
            .map_err(|error| Problem::new(Code::Io, format!("{}: {error}.", path.display())))
    }

    /// The authority that is there, or a new one.
    fn authority(&self, now: u64) -> Result<(CertificateDer<'static>, KeyPair), Problem> {
        let (path, key_path) = (self.ca_file(), self.dir.join("ca.key"));
        let todo = "Put it back from a backup, or move the folder away: the node then makes another authority, which clients have to be given.";
        match (read(&path), read(&key_path)) {
            (Ok(pem), Ok(key)) => {
                let ca = CertificateDer::from_pem_slice(&pem).map_err(|error| {
                    wrong(&path, format!("the authority's certificate: {error}")).todo(todo)
                })?;
                let key = std::str::from_utf8(&key).ok().and_then(|key| KeyPair::from_pem(key).ok());
                let key = key.ok_or_else(|| wrong(&key_path, "the authority's key is damaged").todo(todo))?;
                let facts = facts(&ca).map_err(|why| wrong(&path, why).todo(todo))?;
                if !contains(&ca, &key.subject_public_key_info()) {
                    return Err(wrong(&path, "the authority's key is another one's").todo(todo));
                }
                // Clients have to be given another one in time.
                if facts.not_after < now.saturating_add(LEAF_SECONDS) && facts.not_before <= now {
                    tracing::warn!("the node's own authority of certificates ends soon: there is a new one");
                    return self.new_authority(now);
                }
                Ok((ca, key))
            }
            // A crash may have left the key alone: nobody trusts it yet.
            (Err(problem), Err(_) | Ok(_)) if problem.code == Code::NotFound => self.new_authority(now),
            (Err(problem), _) | (_, Err(problem)) => Err(problem.todo(todo)),
        }
    }

    fn new_authority(&self, now: u64) -> Result<(CertificateDer<'static>, KeyPair), Problem> {
        let key = KeyPair::generate().map_err(failed)?;
        let params = authority_params(&key, now);
        let ca = params.self_signed(&key).map_err(failed)?;
        self.write("ca.key", &key.serialize_pem())?;
        self.write("ca.pem", &ca.pem())?;
        tracing::info!(
            fingerprint = fingerprint(ca.der()),
            "the node has its own authority of certificates now"
        );
        Ok((ca.der().clone(), key))
    }

    fn sign(
        &self,
        ca: &CertificateDer<'static>,
        ca_key: KeyPair,
        names: &[String],
        now: u64,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Problem> {
        let mut params = CertificateParams::new(names).map_err(failed)?;
        set_validity(&mut params, now, LEAF_SECONDS);
        params.distinguished_name = DistinguishedName::new();
        let name = names.iter().find(|name| name.parse::<IpAddr>().is_err());
        params.distinguished_name.push(DnType::CommonName, name.map_or("holdfast", String::as_str));
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().map_err(failed)?;
        let issuer = Issuer::new(authority_params(&ca_key, now), ca_key);
        let made = params.signed_by(&key, &issuer).map_err(failed)?;
        let chain = vec![made.der().clone(), ca.clone()];
        // A crash between the two leaves a key that does not fit, and both are made anew.
        self.write("node.key", &key.serialize_pem())?;
        self.write("node.pem", &format!("{}{}", made.pem(), self.ca_pem()?))?;
        tracing::info!(names = names.join(" "), "the node has a new certificate");
        Ok((chain, key.into()))
    }

    fn ca_pem(&self) -> Result<String, Problem> {
        let path = self.ca_file();
        String::from_utf8(read(&path)?).map_err(|error| wrong(&path, error))
    }
}

fn failed(error: rcgen::Error) -> Problem {
    Problem::new(Code::Internal, format!("a certificate can't be made: {error}."))
}

/// Says from when until when a certificate counts, in seconds since 1970.
fn set_validity(params: &mut CertificateParams, now: u64, seconds: u64) {
    let start = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = start + Duration::from_secs(now.saturating_sub(BEFORE_SECONDS));
    params.not_after = start + Duration::from_secs(now + seconds);
}

/// The authority's own description. Its name comes from its key alone, so that it can be made again to sign with.
fn authority_params(key: &KeyPair, now: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    set_validity(&mut params, now, CA_SECONDS);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let mark: String = Sha256::digest(key.subject_public_key_info())
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("Holdfast node authority {mark}"));
    params
}

/// Whether a certificate is one for this public key.
fn contains(certificate: &[u8], public: &[u8]) -> bool {
    certificate.windows(public.len()).any(|part| part == public)
}

/// All names and addresses that a certificate is for, sorted: the given ones and those of the machine. What cannot be
/// in a certificate is left out.
fn names(known: &[String]) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".into(), "::1".into()];
    names.extend(known.iter().map(|name| match name.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => name.to_ascii_lowercase(),
    }));
    // Addresses of a link are of no use without its name.
    let of_a_link = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let ips = interfaces.iter().map(|each| each.ip()).filter(|ip| !of_a_link(ip));
    names.extend(ips.map(|ip| ip.to_string()));
    names.retain(|name| is_name(name));
    names.sort();
    names.dedup();
    names.truncate(MAX_NAMES);
    names
}

/// Whether this can be a name in a certificate: an address, or a host's name, perhaps with a star before it.
fn is_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    name.parse::<IpAddr>().is_ok()
        || (name.len() <= 253 && name.strip_prefix("*.").unwrap_or(name).split('.').all(label))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn provider() -> CryptoProvider {
        rustls::crypto::aws_lc_rs::default_provider()
    }

    #[test]
    fn own_certificates_are_kept_and_made_anew_in_time() {
        let dir = tempfile::tempdir().expect("temp dir");
        let own = OwnCertificates::new(dir.path().join("tls"));
        let known = ["Node1".to_owned(), "no name".into(), "10.1.2.3".into()];
        let first = own.certificate(&known, NOW, &provider()).expect("made");
        assert!(first.told.own);
        for name in ["node1", "10.1.2.3", "localhost", "127.0.0.1"] {
            assert!(first.told.names.iter().any(|there| there == name), "{name}: {:?}", first.told.names);
        }
        for name in ["ca.key", "ca.pem", "node.key", "node.pem"] {
            let mode = fs::metadata(dir.path().join("tls").join(name)).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let again = own.certificate(&known, NOW + 30 * DAY, &provider()).expect("there");
        assert_eq!(again.told, first.told);
        // Before its end, and for other names.
        let later = own.certificate(&known, NOW + 300 * DAY, &provider()).expect("made");
        assert_ne!(later.told.fingerprint, first.told.fingerprint);
        assert_eq!(later.told.ca_fingerprint, first.told.ca_fingerprint);
        assert!(later.told.not_after > first.told.not_after);
        let other = own.certificate(&["node2".into()], NOW + 300 * DAY, &provider()).expect("made");
        assert_ne!(other.told.fingerprint, later.told.fingerprint);
        // The authority too, in time.
        let far = own.certificate(&known, NOW + CA_SECONDS - 100 * DAY, &provider()).expect("made");
        assert_ne!(far.told.ca_fingerprint, first.told.ca_fingerprint);
    }

    #[test]
    fn a_damaged_certificate_is_made_anew_and_a_damaged_authority_is_said() {
        let dir = tempfile::tempdir().expect("temp dir");
        let own = OwnCertificates::new(dir.path().to_owned());
        let first = own.certificate(&[], NOW, &provider()).expect("made");
        for (file, content) in [("node.pem", "x"), ("node.key", "x"), ("node.key", "")] {
            fs::write(dir.path().join(file), content).expect("written");
            let again = own.certificate(&[], NOW, &provider()).expect("made anew");
            assert_eq!(again.told.ca_fingerprint, first.told.ca_fingerprint);
        }
        let key = fs::read(dir.path().join("ca.key")).expect("there");
        let other = KeyPair::generate().expect("made").serialize_pem();
        for content in ["x", "", other.as_str()] {
            fs::write(dir.path().join("ca.key"), content).expect("written");
            let problem = own.certificate(&[], NOW, &provider()).expect_err("damaged");
            assert_eq!(problem.code, Code::Damaged, "{problem}");
            assert!(problem.todo.is_some());
        }
        fs::remove_file(dir.path().join("ca.key")).expect("removed");
        own.certificate(&[], NOW, &provider()).expect_err("without its key");
        fs::write(dir.path().join("ca.key"), key).expect("written");
        let back = own.certificate(&[], NOW, &provider()).expect("back");
        assert_eq!(back.told.ca_fingerprint, first.told.ca_fingerprint);
    }

    #[test]
    fn given_ones_must_fit_together() {
        let dir = tempfile::tempdir().expect("temp dir");
        let own = OwnCertificates::new(dir.path().to_owned());
        own.certificate(&[], NOW, &provider()).expect("made");
        let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
        let config = |certificate: &str, key: &str| HttpConfig {
            certificate: path(certificate),
            key: path(key),
            ..HttpConfig::default()
        };
        let given_one = given(&config("node.pem", "node.key"), &provider()).expect("fits");
        assert!(!given_one.told.own);
        assert_eq!(given_one.key.cert.len(), 2);
        for (certificate, key, said) in [
            ("node.pem", "ca.key", "node.pem: it can't be used with the key"),
            ("node.key", "node.key", "there is no certificate"),
            ("node.pem", "node.pem", "it holds no private key"),
            ("none", "node.key", "No such file"),
        ] {
            let problem = given(&config(certificate, key), &provider()).expect_err("wrong");
            assert!(problem.detail.contains(said), "{certificate} {key}: {problem}");
        }
    }
}
