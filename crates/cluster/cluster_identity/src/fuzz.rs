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

/// A valid file.
#[must_use]
pub fn record_sample() -> &'static str {
    "schema = 1\ncluster = \"store1\"\nnode = 3\nname = \"alpha\"\nlink_listen = \"0.0.0.0:7400\"\n\
     link_addresses = [\"10.0.0.1:7400\", \"alpha.example:7400\"]\napi_address = \"[fe80::1]:7401\"\n\
     [etcd]\nendpoints = [\"https://10.0.0.1:7402\"]\nid = \"00000000000000ab\"\n\
     [etcd.managed]\nname = \"node-3\"\nclient_url = \"https://10.0.0.1:7402\"\npeer_url = \"https://10.0.0.1:7403\"\n"
}

/// A valid token.
#[must_use]
pub fn token_sample() -> String {
    let address = std::net::SocketAddr::from(([10, 0, 0, 1], 7401));
    JoinToken::of([7; 32], [9; 16], address).to_text().to_string()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_taken() {
        assert!(NodeRecord::parse(record_sample()).is_ok());
        assert!(JoinToken::parse(&token_sample()).is_ok());
    }
}
