//! How a flow fares, in the words of Windows Server and MS-SQOS.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Part of the minimum, in percent, that counts as met: a window of some seconds begins and ends within a request.
const MET_PERCENT: u64 = 98;

/// How a flow fares, worst last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum FlowStatus {
    /// It gets what it is promised, or nothing was, or it asks for less.
    #[default]
    Ok,
    /// Its policy is divided among nodes by what one had said that is not heard any more.
    LostCommunication,
    /// Its policy is not there: it has no limits and no minimum.
    UnknownPolicyId,
    /// It asks for at least its minimum and does not get it.
    InsufficientThroughput,
}

impl std::fmt::Display for FlowStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ok => "Ok",
            Self::LostCommunication => "LostCommunication",
            Self::UnknownPolicyId => "UnknownPolicyId",
            Self::InsufficientThroughput => "InsufficientThroughput",
        })
    }
}

/// What was measured over a window, for all flows that a minimum holds for together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Normalised I/Os per second that were asked for.
    pub asked: u64,
    /// Normalised I/Os per second that went to the volume.
    pub got: u64,
    /// Requests that waited on the average, in thousandths: at the node, or behind others in the queue of the volume.
    pub waited_permille: u64,
}

impl FlowStatus {
    /// How a flow fares with this minimum. Insufficient is only who asks for the minimum and does not get it.
    ///
    /// A client that sends the next request when one is answered asks for as much as it gets; what it would ask for without
    /// waiting is seen from how long it waits: all there is when something always does.
    #[must_use]
    pub fn of(min_iops: Option<u64>, measured: Measured) -> Self {
        let Some(min) = min_iops else { return Self::Ok };
        let missed = measured.got.saturating_mul(100) < min.saturating_mul(MET_PERCENT);
        let moved = 1000u64.saturating_sub(measured.waited_permille);
        let would = measured.got.saturating_mul(1000).checked_div(moved).unwrap_or(u64::MAX);
        if missed && measured.asked.max(would) >= min { Self::InsufficientThroughput } else { Self::Ok }
    }
}
