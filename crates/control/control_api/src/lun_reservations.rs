//! What initiators have reserved of a LUN.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The type of a reservation (SPC-4 5.12.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReservationKind {
    /// The holder may write, everybody reads.
    WriteExclusive,
    /// The holder alone may read and write.
    ExclusiveAccess,
    /// Registrants may write, everybody reads.
    WriteExclusiveRegistrantsOnly,
    /// Registrants may read and write, nobody else.
    ExclusiveAccessRegistrantsOnly,
    /// As registrants only, and each registrant is a holder.
    WriteExclusiveAllRegistrants,
    /// As registrants only, and each registrant is a holder.
    ExclusiveAccessAllRegistrants,
    /// RESERVE of SCSI-2: the holder alone may read and write, as long as its session lasts.
    Reserve,
}

impl ReservationKind {
    /// In words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::WriteExclusive => "write exclusive",
            Self::ExclusiveAccess => "exclusive access",
            Self::WriteExclusiveRegistrantsOnly => "write exclusive, registrants only",
            Self::ExclusiveAccessRegistrantsOnly => "exclusive access, registrants only",
            Self::WriteExclusiveAllRegistrants => "write exclusive, all registrants",
            Self::ExclusiveAccessAllRegistrants => "exclusive access, all registrants",
            Self::Reserve => "SCSI-2 RESERVE, as long as its session lasts",
        }
    }

    /// Whether registrants may do what the holder may.
    #[must_use]
    pub fn lets_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess | Self::Reserve)
    }

    /// Whether those that it keeps off may read.
    #[must_use]
    pub fn lets_read(self) -> bool {
        matches!(
            self,
            Self::WriteExclusive | Self::WriteExclusiveRegistrantsOnly | Self::WriteExclusiveAllRegistrants
        )
    }
}

/// A nexus that is registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Registrant {
    /// The initiator's name.
    pub initiator: String,
    /// The name of its port: the initiator's, and the session identifier.
    pub port: String,
    /// The target that it is registered through; empty where only an earlier release knew.
    pub target: String,
    /// The relative target port.
    pub target_port: u16,
    /// Its key, 0x and 16 digits.
    pub key: String,
    /// Whether it holds the reservation.
    pub holds: bool,
    /// Whether it is connected now.
    pub connected: bool,
}

/// What initiators have reserved of a LUN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LunReservations {
    /// The type of the reservation; absent where initiators are registered only, which keeps nobody off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ReservationKind>,
    /// The names of the initiators that hold it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<String>,
    /// Who is registered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub registrants: Vec<Registrant>,
    /// Counts changes of registrations; from 0 with each start of the node that serves the LUN.
    pub generation: u32,
    /// Whether an initiator has asked that all this outlives a loss of power (APTPL).
    pub aptpl: bool,
}

impl LunReservations {
    /// Who keeps others off, in half a sentence.
    #[must_use]
    pub fn held(&self) -> Option<String> {
        let kind = self.kind?;
        Some(format!("reserved by {} ({})", self.holders.join(", "), kind.text()))
    }

    /// Whether it keeps an initiator from writing.
    #[must_use]
    pub fn fences(&self, initiator: &str) -> bool {
        let Some(kind) = self.kind else { return false };
        let same = |name: &String| name.eq_ignore_ascii_case(initiator);
        let registered = || self.registrants.iter().any(|registrant| same(&registrant.initiator));
        let lets_in = self.holders.iter().any(same) || (kind.lets_registrants() && registered());
        !lets_in
    }
}
