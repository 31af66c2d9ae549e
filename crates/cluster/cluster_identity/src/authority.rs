//! The cluster's authority, and the certificates that it signs.
//!
//! A certificate names its node (`cluster_node::node_name`), and the addresses that etcd compares with where a connection comes from.
//! It holds as long as the authority does: the cluster's nodes talk to each other or they do not, and an end of a certificate that
//! nobody has thought of would be an outage of all of them at once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use cluster_node::node_name;
use cluster_store::keys::NodeId;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use x509_cert::Certificate;
use x509_cert::der::{Decode as _, Encode as _};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use zeroize::Zeroizing;

use crate::record::NodeName;

/// How long the authority and what it signs hold: 20 years, in seconds.
const SECONDS: u64 = 20 * 365 * 24 * 3600;
/// A clock of another node may be so much behind, in seconds: ten years, as that of a machine whose battery is empty.
const BEFORE_SECONDS: u64 = 10 * 365 * 24 * 3600;
/// The most addresses in a certificate.
pub const MAX_ADDRESSES: usize = 64;

/// What is wrong with a certificate or key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct CertificateError(String);

impl CertificateError {
    pub(crate) fn new(what: impl std::fmt::Display) -> Self {
        Self(what.to_string())
    }
}

/// Who signs the certificates of a cluster's nodes.
pub struct Authority {
    certificate: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    /// A new one; `now` is in seconds since 1970.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn new(now: u64) -> Result<Self, CertificateError> {
        let key = KeyPair::generate().map_err(CertificateError::new)?;
        let made = authority_params(&key, now).self_signed(&key).map_err(CertificateError::new)?;
        Ok(Self { certificate: made.der().clone(), pem: made.pem(), key })
    }

    /// The one of these files.
    ///
    /// # Errors
    /// When they cannot be read, or do not belong together.
    pub fn from_pem(pem: &str, key_pem: &str) -> Result<Self, CertificateError> {
        let (certificate, parsed) = read(pem).map_err(|error| {
            CertificateError(format!("the certificate of the cluster's authority: {error}"))
        })?;
        // What is in the file of a key is not for messages.
        let key = KeyPair::from_pem(key_pem)
            .map_err(|_| CertificateError::new("the key of the cluster's authority is damaged"))?;
        if !is_for(&parsed, &key) {
            return Err(CertificateError::new("the key of the cluster's authority is another one's"));
        }
        Ok(Self { certificate, pem: pem.to_owned(), key })
    }

    /// Its certificate, in PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Its key, in PEM.
    #[must_use]
    pub fn key_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(self.key.serialize_pem())
    }

    /// SHA-256 of its certificate.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        fingerprint(&self.certificate)
    }

    /// A certificate in PEM for a node with this key, good for both ends of a connection. `addresses` are those of its machine: etcd
    /// refuses connections from others. This machine's own (127.0.0.1, ::1) are always there.
    ///
    /// # Errors
    /// When there are too many addresses, or signing fails.
    pub fn issue(
        &self,
        key: &impl PublicKeyData,
        node: NodeId,
        name: &NodeName,
        addresses: &[IpAddr],
        now: u64,
    ) -> Result<String, CertificateError> {
        if addresses.len() > MAX_ADDRESSES {
            let what =
                format!("a certificate for {} addresses; {MAX_ADDRESSES} are possible", addresses.len());
            return Err(CertificateError(what));
        }
        let mut all = addresses.to_vec();
        all.extend([IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]);
        all.sort();
        all.dedup();
        let mut params = CertificateParams::new([node_name(node)]).map_err(CertificateError::new)?;
        params.subject_alt_names.extend(all.into_iter().map(SanType::IpAddress));
        set_validity(&mut params, now);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name.as_str());
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        // The authority's own name comes from its key alone, so that it can be made again to sign with.
        let issuer = Issuer::new(authority_params(&self.key, now), &self.key);
        Ok(params.signed_by(key, &issuer).map_err(CertificateError::new)?.pem())
    }

    /// Whether this certificate is one that the authority has signed for this node, and for this key.
    pub(crate) fn check(&self, pem: &str, key_pem: &str, node: NodeId) -> Result<(), CertificateError> {
        let (_, parsed) =
            read(pem).map_err(|error| CertificateError(format!("the node's certificate: {error}")))?;
        let key =
            KeyPair::from_pem(key_pem).map_err(|_| CertificateError::new("the node's key is damaged"))?;
        if !is_for(&parsed, &key) {
            return Err(CertificateError::new("the node's key is not that of its certificate"));
        }
        let body = parsed.tbs_certificate.to_der().map_err(CertificateError::new)?;
        let signed = parsed.signature.as_bytes().is_some_and(|signature| {
            let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, self.key.public_key_raw());
            public.verify(&body, signature).is_ok()
        });
        if !signed {
            return Err(CertificateError::new(
                "the node's certificate is not signed by the cluster's authority",
            ));
        }
        if !names(&parsed).any(|name| name == node_name(node)) {
            return Err(CertificateError(format!("the node's certificate is not that of node {node}")));
        }
        Ok(())
    }
}

/// SHA-256 of a certificate.
pub(crate) fn fingerprint(certificate: &[u8]) -> [u8; 32] {
    Sha256::digest(certificate).into()
}

/// The names of hosts in a certificate.
fn names(certificate: &Certificate) -> impl Iterator<Item = String> {
    let found = certificate.tbs_certificate.get::<SubjectAltName>().ok().flatten();
    let names = found.map(|(_, names)| names.0).unwrap_or_default();
    names.into_iter().filter_map(|name| match name {
        GeneralName::DnsName(name) => Some(name.to_string()),
        _ => None,
    })
}

/// The first certificate of a text in PEM.
fn read(pem: &str) -> Result<(CertificateDer<'static>, Certificate), CertificateError> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| CertificateError(format!("there is none in PEM: {error}")))?;
    let parsed = Certificate::from_der(&der).map_err(CertificateError::new)?;
    Ok((der, parsed))
}

fn is_for(certificate: &Certificate, key: &KeyPair) -> bool {
    certificate.tbs_certificate.subject_public_key_info.subject_public_key.as_bytes()
        == Some(key.public_key_raw())
}

fn set_validity(params: &mut CertificateParams, now: u64) {
    let start = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = start + Duration::from_secs(now.saturating_sub(BEFORE_SECONDS));
    params.not_after = start + Duration::from_secs(now.saturating_add(SECONDS));
}

fn authority_params(key: &KeyPair, now: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    set_validity(&mut params, now);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let mark: String =
        Sha256::digest(key.public_key_raw()).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("Holdfast cluster authority {mark}"));
    params
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{CertificateRequest, new_key};

    const NOW: u64 = 1_800_000_000;

    fn node(number: u16) -> NodeId {
        NodeId::new(number).expect("a number")
    }

    #[test]
    fn a_certificate_is_for_its_node_key_and_authority() {
        let authority = Authority::new(NOW).expect("made");
        let (key, asked) = new_key().expect("made");
        let asked = CertificateRequest::from_pem(&asked).expect("right");
        let name = NodeName::new("alpha").expect("a name");
        let addresses = ["10.0.0.1".parse().expect("an address")];
        let pem = authority.issue(&asked, node(7), &name, &addresses, NOW).expect("signed");
        let again = Authority::from_pem(authority.pem(), &authority.key_pem()).expect("kept");
        assert_eq!(again.fingerprint(), authority.fingerprint());
        again.check(&pem, &key, node(7)).expect("its own");
        let told = |result: Result<(), CertificateError>| result.expect_err("wrong").to_string();
        assert!(told(again.check(&pem, &key, node(8))).contains("node 8"));
        let other = Authority::new(NOW).expect("made");
        assert!(told(other.check(&pem, &key, node(7))).contains("not signed"));
        let (other_key, _) = new_key().expect("made");
        assert!(told(again.check(&pem, &other_key, node(7))).contains("not that of its certificate"));
        assert!(told(again.check(&pem, "x", node(7))).contains("key is damaged"));
        assert!(told(again.check("x", &key, node(7))).contains("none in PEM"));
        for (certificate, its_key) in
            [(authority.pem(), other.key_pem().as_str()), ("", other.key_pem().as_str()), (other.pem(), "")]
        {
            Authority::from_pem(certificate, its_key).expect_err("no authority");
        }
        // rustls, by which links and etcd are checked, agrees.
        cluster_node::LinkTls::new(authority.pem().as_bytes(), pem.as_bytes(), key.as_bytes())
            .expect("links");
        let many = vec![addresses[0]; MAX_ADDRESSES + 1];
        authority.issue(&asked, node(7), &name, &many, NOW).expect_err("too many");
    }
}
