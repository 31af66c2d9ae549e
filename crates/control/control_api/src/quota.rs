//! Quotas: how much of a volume the files of each user may take.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What quotas of a volume do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum QuotaMode {
    /// Nothing is counted.
    #[default]
    Off,
    /// What each user has is counted, and nothing is refused.
    Track,
    /// What would pass a limit is refused.
    Enforce,
}

/// Quotas of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeQuotas {
    /// The volume.
    pub volume: String,
    /// What quotas do.
    pub mode: QuotaMode,
    /// What was there is still being counted: figures are too low, and nothing is refused until that has ended.
    pub counting: bool,
    /// Bytes at which a warning is due, for owners without limits of their own; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_warning_bytes: Option<u64>,
    /// Bytes that each of them may have; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_limit_bytes: Option<u64>,
    /// Those with limits of their own, and those who own something. Who has the largest part of its limit comes first.
    pub owners: Vec<OwnerQuota>,
}

/// The quota of one owner of files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OwnerQuota {
    /// Its name; its SID, where nobody here has that.
    pub owner: String,
    /// Its SID.
    pub sid: String,
    /// Space of its files in bytes, clones wholly counted; 0 while quotas are off.
    pub used_bytes: u64,
    /// Bytes at which a warning is due; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning_bytes: Option<u64>,
    /// Bytes that it may have; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// These limits are its own, not those of everybody.
    pub own_limits: bool,
}

impl OwnerQuota {
    /// How much of its limit it has, in thousandths; none without a limit.
    #[must_use]
    pub fn per_mille(&self) -> Option<u64> {
        self.limit_bytes.map(|limit| {
            let part = u128::from(self.used_bytes) * 1000 / u128::from(limit.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        })
    }
}

/// Changes what holds for a volume; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotaUpdate {
    /// What quotas do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<QuotaMode>,
    /// Bytes at which a warning is due, for owners without limits of their own; 0 for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_warning_bytes: Option<u64>,
    /// Bytes that each of them may have; 0 for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_limit_bytes: Option<u64>,
}

/// Gives an owner limits of its own; what is absent stays what holds for it now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotaLimits {
    /// Bytes at which a warning is due; 0 for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning_bytes: Option<u64>,
    /// Bytes that it may have; 0 for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// Take its own limits away: those of everybody hold for it again.
    #[serde(default)]
    pub default: bool,
}
