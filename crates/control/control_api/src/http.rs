//! The API and the pages over the network: where they are served, with which certificate, who gets which role.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Code, Listener, Problem};

/// How the API is served over the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// Addresses that it is served on, `ADDRESS:PORT`; none for not over the network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listen: Vec<String>,
    /// Names and addresses that the node's own certificate is also made for; those of the machine are in it anyway.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// File with a certificate and those between it and its authority, in PEM; empty for one of the node's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub certificate: String,
    /// File with the certificate's private key, in PEM.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// Groups of users whose members are operators. Those of `Administrators` are administrators.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operators: Vec<String>,
    /// Groups of users whose members are viewers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub viewers: Vec<String>,
}

impl HttpConfig {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Changes how the API is served over the network; fields that are absent stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpUpdate {
    /// Addresses that it is served on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<Vec<String>>,
    /// Names that the node's own certificate is also made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    /// File with a certificate; empty for one of the node's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// File with its private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Groups of users whose members are operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operators: Option<Vec<String>>,
    /// Groups of users whose members are viewers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub viewers: Option<Vec<String>>,
    /// Confirms that sessions end: the name that the node has asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// The certificate that clients are shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HttpCertificate {
    /// Whether the node has made it.
    pub own: bool,
    /// Names and addresses that it is for.
    pub names: Vec<String>,
    /// Until when it counts, in seconds since 1970 UTC.
    pub not_after: u64,
    /// SHA-256 of it, in hexadecimal with colons.
    pub fingerprint: String,
    /// SHA-256 of the node's own authority, which clients may trust; absent with given certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_fingerprint: Option<String>,
    /// File with the node's own authority, to be copied to clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
}

/// The API over the network as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HttpStatus {
    /// What was configured.
    #[serde(flatten)]
    pub config: HttpConfig,
    /// Where it listens.
    pub listeners: Vec<Listener>,
    /// The certificate; absent before it was first needed.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "certificate_in_use")]
    pub in_use: Option<HttpCertificate>,
    /// Users that are logged in.
    pub sessions: u64,
    /// Connections now.
    pub connections: u64,
}

/// Most addresses, names or groups.
const MAX_LISTED: usize = 64;

impl HttpConfig {
    /// Whether it makes sense by itself.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        let wrong = |detail: String| Err(Problem::new(Code::InvalidRequest, detail));
        for (what, list) in [
            ("listen", &self.listen),
            ("names", &self.names),
            ("operators", &self.operators),
            ("viewers", &self.viewers),
        ] {
            if list.len() > MAX_LISTED {
                return wrong(format!("http.{what}: more than {MAX_LISTED}."));
            }
            if let Some(twice) = list.iter().enumerate().find(|(at, item)| list[..*at].contains(item)) {
                return wrong(format!("http.{what}: {:?} is there twice.", twice.1));
            }
            if let Some(bad) = list.iter().find(|item| item.is_empty() || item.chars().any(char::is_control))
            {
                return wrong(format!("http.{what}: {bad:?} can't be one."));
            }
        }
        if let Some(bad) = self.listen.iter().find(|address| address.parse::<SocketAddr>().is_err()) {
            return Err(Problem::new(
                Code::InvalidRequest,
                format!("http.listen: {bad:?} is not ADDRESS:PORT."),
            )
            .todo("For example 0.0.0.0:8443 or [::]:8443."));
        }
        if self.certificate.is_empty() != self.key.is_empty() {
            return Err(Problem::new(
                Code::InvalidRequest,
                "http: a certificate needs its key, and a key its certificate.",
            )
            .todo("Name both files, or none for a certificate of the node's own."));
        }
        if let Some(path) =
            [&self.certificate, &self.key].into_iter().find(|path| !path.is_empty() && !path.starts_with('/'))
        {
            return wrong(format!("http: the path {path:?} must start with '/'."));
        }
        Ok(())
    }
}
