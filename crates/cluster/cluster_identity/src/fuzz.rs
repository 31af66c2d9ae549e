//! Entries for fuzzing: what stands on disk, what people paste, and what a node that wants to join sends.

use crate::record::NodeRecord;
use crate::request::CertificateRequest;
use crate::token::JoinToken;

/// Bytes as the file `identity.toml`: what is taken is written and taken again.
pub fn record(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(record) = NodeRecord::parse(text) {
        let again = record.to_text().map(|text| NodeRecord::parse(&text));
        assert_eq!(again, Ok(Ok(record)), "what was taken can be kept");
    }
}

/// Bytes as a token: what is taken is the same token when it is shown again.
pub fn token(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(token) = JoinToken::parse(text) {
        assert!(JoinToken::parse(&token.to_text()) == Ok(token), "what was taken can be shown");
    }
    let _ = JoinToken::key_of_secret(text);
}

/// Bytes as a request for a certificate.
pub fn request(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = CertificateRequest::from_pem(text);
    }
}
