//! Faults that tests switch on in a running node. Not in the CLI's help.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which operations a fault meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FaultOperation {
    /// Every operation.
    Any,
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
}

/// What a fault does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The operation fails with an input/output error.
    Error,
    /// The operation takes longer.
    Delay,
    /// The disk does operations one after another, and takes `delay_us` for each.
    Serial,
    /// Half of the write arrives, then it fails.
    Torn,
    /// The write is acknowledged and dropped.
    Lost,
    /// The write goes elsewhere.
    Misdirected,
    /// A bit of what is read is flipped.
    BitRot,
    /// The disk is gone.
    Vanish,
    /// The disk is back: all faults are switched off.
    Return,
}

/// A fault to switch on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// What happens.
    pub kind: FaultKind,
    /// To which operations.
    #[serde(default = "any")]
    pub operation: FaultOperation,
    /// First byte of the range it concerns.
    #[serde(default)]
    pub offset: u64,
    /// Length of the range; absent for all that follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub len: Option<u64>,
    /// How often it happens before it ends; absent for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Milliseconds, for `delay`.
    #[serde(default)]
    pub delay_ms: u64,
    /// Microseconds, for `serial`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_us: Option<u64>,
}

impl fmt::Display for FaultRule {
    /// As people write it: what happens, and to what.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            FaultKind::Error => "error",
            FaultKind::Delay => "delay",
            FaultKind::Serial => "serial",
            FaultKind::Torn => "torn",
            FaultKind::Lost => "lost",
            FaultKind::Misdirected => "misdirected",
            FaultKind::BitRot => "bit-rot",
            FaultKind::Vanish => "vanish",
            FaultKind::Return => "return",
        };
        let met = match self.operation {
            FaultOperation::Any => "everything",
            FaultOperation::Read => "reads",
            FaultOperation::Write => "writes",
            FaultOperation::Flush => "flushes",
        };
        match self.kind {
            // The disk as a whole.
            FaultKind::Vanish | FaultKind::Return => f.write_str(kind),
            _ => write!(f, "{kind} on {met}"),
        }
    }
}

fn any() -> FaultOperation {
    FaultOperation::Any
}

/// Faults of a disk: replaces what was switched on before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultRequest {
    /// The faults; none to switch all off.
    pub rules: Vec<FaultRule>,
}
