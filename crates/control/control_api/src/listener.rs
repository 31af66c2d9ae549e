//! Addresses that something is served on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An address that shares, or the API, are served on, as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listener {
    /// As configured.
    pub address: String,
    /// Where it listens, with the port that was chosen for port 0; absent when it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listening: Option<String>,
    /// Why it does not listen, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
