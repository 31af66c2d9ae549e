//! Requests for certificates (PKCS #10): what a node that wants to join sends instead of its key.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rcgen::{
    CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm,
};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject as _;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode as _, Encode as _};
use x509_cert::request::CertReq;
use zeroize::Zeroizing;

use crate::authority::CertificateError;

/// The longest request, in bytes; one of ours takes some 400.
const MAX_BYTES: usize = 8 << 10;
/// A public key on an elliptic curve (RFC 5480, 2.1.1).
const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
/// The curve P-256 (RFC 5480, 2.1.1.1).
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
/// ECDSA with SHA-256 (RFC 5758, 3.2).
const ECDSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");

/// A key that its owner has shown to have. What else a request says counts for nothing: the authority decides what it signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRequest {
    public: Vec<u8>,
}

impl CertificateRequest {
    /// The request that this text is.
    ///
    /// # Errors
    /// When it is none, is for another kind of key, or is not signed by that key.
    pub fn from_pem(pem: &str) -> Result<Self, CertificateError> {
        let wrong = |why: &dyn std::fmt::Display| {
            CertificateError::new(format!("the request for a certificate: {why}"))
        };
        if pem.len() > MAX_BYTES {
            return Err(wrong(&format!("it is longer than {MAX_BYTES} bytes")));
        }
        // `CertReq::from_pem` decodes while it parses, and never ends on a length that is more than what there is (der 0.7).
        let der =
            CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).map_err(|error| wrong(&error))?;
        let request = CertReq::from_der(&der).map_err(|error| wrong(&error))?;
        let key = &request.info.public_key;
        let curve = key.algorithm.parameters.as_ref().and_then(|curve| curve.decode_as().ok());
        if key.algorithm.oid != EC_PUBLIC_KEY || curve != Some(P256) {
            return Err(wrong(&"its key is not one on the curve P-256"));
        }
        if request.algorithm.oid != ECDSA_SHA256 {
            return Err(wrong(&"it is not signed by ECDSA with SHA-256"));
        }
        let public = key.subject_public_key.as_bytes().unwrap_or_default().to_vec();
        let body = request.info.to_der().map_err(|error| wrong(&error))?;
        let signature = request.signature.as_bytes().unwrap_or_default();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &public)
            .verify(&body, signature)
            .map_err(|_| wrong(&"it is not signed by its key"))?;
        Ok(Self { public })
    }

    /// The public key: a point on the curve.
    #[must_use]
    pub fn public_key(&self) -> &[u8] {
        &self.public
    }
}

impl PublicKeyData for CertificateRequest {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// A new key in PEM, and the request for its certificate.
///
/// # Errors
/// When the system gives no random numbers.
pub fn new_key() -> Result<(Zeroizing<String>, String), CertificateError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(CertificateError::new)?;
    Ok((Zeroizing::new(key.serialize_pem()), requested(&key)?))
}

/// A request for a certificate of a key that is there already.
///
/// # Errors
/// When it is none, or is of another kind.
pub(crate) fn of_key(pem: &str) -> Result<String, CertificateError> {
    let key = KeyPair::from_pem_and_sign_algo(pem, &PKCS_ECDSA_P256_SHA256)
        .map_err(|_| CertificateError::new("the key is damaged"))?;
    requested(&key)
}

fn requested(key: &KeyPair) -> Result<String, CertificateError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(key).map_err(CertificateError::new)?;
    request.pem().map_err(CertificateError::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_beyond_the_end_is_refused() {
        // A sequence: the first two of the four bytes of its length.
        let pem = "-----BEGIN CERTIFICATE REQUEST-----\nMIT8MGI=\n-----END CERTIFICATE REQUEST-----\n";
        CertificateRequest::from_pem(pem).expect_err("cut short");
    }

    #[test]
    fn what_is_not_signed_by_its_key_is_refused() {
        let (key, pem) = new_key().expect("made");
        let request = CertificateRequest::from_pem(&pem).expect("right");
        assert_eq!(request.public, KeyPair::from_pem(&key).expect("a key").public_key_raw());
        for wrong in ["", "x", key.as_str(), &"A".repeat(MAX_BYTES + 1)] {
            CertificateRequest::from_pem(wrong).expect_err("no request");
        }
        // A character of the text changed: of the key, of the signature, or of what holds them together.
        let mut refused = 0;
        let lines: Vec<&str> = pem.lines().collect();
        let body = lines[1..lines.len() - 1].concat();
        for at in 0..body.len() - 4 {
            let mut changed = body.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("text");
            let pem = format!("{}\n{changed}\n{}\n", lines[0], lines[lines.len() - 1]);
            match CertificateRequest::from_pem(&pem) {
                Ok(other) => assert_eq!(other, request, "the same key"),
                Err(_) => refused += 1,
            }
        }
        assert!(refused >= body.len() - 8, "{refused} of {}", body.len());
    }
}
