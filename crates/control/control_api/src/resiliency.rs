//! How data survives the loss of disks, and whether it would now.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How data survives the loss of disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Resiliency {
    /// One copy: a lost disk loses data.
    Simple,
    /// Two copies: one disk may be lost.
    #[default]
    Mirror2,
    /// Three copies: two disks may be lost.
    Mirror3,
    /// One column of each stripe is parity: one disk may be lost.
    Parity1,
    /// Two columns of each stripe are parity: two disks may be lost.
    Parity2,
}

impl Resiliency {
    /// Copies of each block.
    #[must_use]
    pub fn copies(self) -> u8 {
        match self {
            Self::Simple | Self::Parity1 | Self::Parity2 => 1,
            Self::Mirror2 => 2,
            Self::Mirror3 => 3,
        }
    }

    /// Columns of each stripe that hold parity.
    #[must_use]
    pub fn parity(self) -> u8 {
        match self {
            Self::Parity1 => 1,
            Self::Parity2 => 2,
            _ => 0,
        }
    }
}

impl fmt::Display for Resiliency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Simple => "simple",
            Self::Mirror2 => "mirror2",
            Self::Mirror3 => "mirror3",
            Self::Parity1 => "parity1",
            Self::Parity2 => "parity2",
        })
    }
}

impl FromStr for Resiliency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "simple" => Ok(Self::Simple),
            "mirror2" => Ok(Self::Mirror2),
            "mirror3" => Ok(Self::Mirror3),
            "parity1" => Ok(Self::Parity1),
            "parity2" => Ok(Self::Parity2),
            other => Err(format!(
                "{other:?} is not a resiliency: use simple, mirror2, mirror3, parity1 or parity2"
            )),
        }
    }
}

/// Whether data is as redundant as promised. The order is by how much it hurts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RedundancyState {
    /// Some data cannot be read now.
    Unavailable,
    /// All data is there, with fewer copies than promised, and nothing restores it now.
    Reduced,
    /// All data is there; copies are being restored.
    Restoring,
    /// Every copy that was promised is there.
    Full,
}
