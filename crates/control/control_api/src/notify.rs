//! Notifications: who is told of findings, and how.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Severity;

fn warning() -> Severity {
    Severity::Warning
}

/// Somebody who is told of findings: a program that takes JSON over HTTP (a webhook).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Notifier {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Where the JSON is sent: `https://HOST[:PORT]/PATH`, or `http://…` to addresses of private networks.
    pub url: String,
    /// It is told of findings that are at least so bad.
    #[serde(default = "warning")]
    pub severity: Severity,
    /// The header that carries the secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// File of the node's machine with the header's value in one line, which nobody but its owner may read. It is read for each notification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<String>,
    /// File of the node's machine with the authorities, in PEM, that are believed; absent for those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
    /// It may be an address of this machine or of the link, where services answer that ask nobody who it is.
    #[serde(default)]
    pub allow_local: bool,
}

/// A notifier, and how it fares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotifierStatus {
    /// What was configured.
    #[serde(flatten)]
    pub notifier: Notifier,
    /// Notifications that it took since the node started.
    pub delivered: u64,
    /// Those that were given up.
    pub failed: u64,
    /// Those that wait for it.
    pub waiting: u64,
    /// Why the last one was not taken; absent when it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
