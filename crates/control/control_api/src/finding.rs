//! Findings: what is not as it should be, remembered over looks and restarts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::{Acknowledgement, Severity};

/// Whether a finding is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FindingState {
    /// It was there at the last look.
    Active,
    /// It was not there at the last look, and may come back: it counts as gone when it stays away for some minutes.
    Clearing,
    /// It is gone.
    Cleared,
}

/// Something that is not as it should be, or was not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// What it is asked for by: made of its code and what it is about, and the same at every node and after every restart.
    pub id: String,
    /// The rule, by its stable name ("disk-missing").
    pub code: String,
    /// How bad it is, or was at the end.
    pub severity: Severity,
    /// What it is about ("disk wwn-0x5000…", "pool p1").
    pub subject: String,
    /// What is wrong, and what that does.
    pub detail: String,
    /// What to do.
    pub todo: String,
    /// Whether it is there.
    pub state: FindingState,
    /// When it was first seen this time, in seconds since 1970 UTC.
    pub first_seen: u64,
    /// When it was last seen.
    pub last_seen: u64,
    /// When it had gone; absent while it is there or may come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleared: Option<u64>,
    /// How often it has come, as far as it is remembered.
    pub times: u64,
    /// Who knows of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledgement>,
}

/// Which findings are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FindingQuery {
    /// `active` (with those that may come back), `cleared` or `all`; `active` where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Only those that are at least so bad.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// Only those of this rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Only those that somebody knows of, or only those that nobody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<bool>,
    /// At most so many, the worst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Says that somebody knows of a finding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Acknowledge {
    /// What there is to say of it, for others; at most 500 bytes.
    #[serde(default)]
    pub note: String,
}
