//! Persistent reservation parameter lists and TransportIDs (SPC-4 5.12, 6.14, 7.6.4).

use crate::be;
use crate::sense::{Sense, asc};

/// Longest iSCSI initiator port name: 223 bytes of name, `,i,0x` and 12 digits (RFC 7143 4.2.7.1).
pub const MAX_PORT_NAME_BYTES: usize = 223 + 5 + 12;

/// The types of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Others may read.
    WriteExclusive = 1,
    /// Others may do nothing.
    ExclusiveAccess = 3,
    /// Registrants may do all, others read.
    WriteExclusiveRegistrants = 5,
    /// Registrants may do all, others nothing.
    ExclusiveAccessRegistrants = 6,
    /// As 5, and every registrant is a holder.
    WriteExclusiveAll = 7,
    /// As 6, and every registrant is a holder.
    ExclusiveAccessAll = 8,
}

impl Kind {
    /// The type with this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::WriteExclusive,
            3 => Self::ExclusiveAccess,
            5 => Self::WriteExclusiveRegistrants,
            6 => Self::ExclusiveAccessRegistrants,
            7 => Self::WriteExclusiveAll,
            8 => Self::ExclusiveAccessAll,
            _ => return None,
        })
    }

    /// Whether non-holders may read.
    #[must_use]
    pub fn readable(self) -> bool {
        matches!(self, Self::WriteExclusive | Self::WriteExclusiveRegistrants | Self::WriteExclusiveAll)
    }

    /// Whether registrants have the holder's access.
    #[must_use]
    pub fn shared(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Whether every registrant is a holder.
    #[must_use]
    pub fn all(self) -> bool {
        matches!(self, Self::WriteExclusiveAll | Self::ExclusiveAccessAll)
    }
}

/// The parameter list of PERSISTENT RESERVE OUT, basic or REGISTER AND MOVE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutParameters {
    /// The key the nexus says it is registered with.
    pub key: u64,
    /// The new key, or the key to preempt.
    pub action_key: u64,
    /// Survive loss of power.
    pub aptpl: bool,
    /// ALL_TG_PT: the registration is for all target ports of the device.
    pub all_ports: bool,
    /// Whether a list of other initiator ports follows.
    pub specify_initiators: bool,
    /// REGISTER AND MOVE: unregister the nexus that asks.
    pub unregister: bool,
    /// REGISTER AND MOVE: the relative target port.
    pub target_port: u16,
    /// REGISTER AND MOVE: the initiator port's name.
    pub destination: String,
}

impl OutParameters {
    /// Reads the parameter list.
    ///
    /// # Errors
    /// The sense data to answer with.
    pub fn parse(data: &[u8], register_and_move: bool) -> Result<Self, Sense> {
        if data.len() < 24 || (!register_and_move && data.len() != 24 && data[20] & 8 == 0) {
            return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR));
        }
        let mut out = Self { key: be(data, 0, 8), action_key: be(data, 8, 8), ..Self::default() };
        if register_and_move {
            out.unregister = data[17] & 2 != 0;
            out.aptpl = data[17] & 1 != 0;
            out.target_port = be(data, 18, 2) as u16;
            let len = be(data, 20, 4) as usize;
            if data.len() - 24 != len {
                return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR));
            }
            out.destination = parse_transport_id(&data[24..]).ok_or(Sense::parameter_field(24))?;
        } else {
            out.specify_initiators = data[20] & 8 != 0;
            out.all_ports = data[20] & 4 != 0;
            out.aptpl = data[20] & 1 != 0;
        }
        Ok(out)
    }
}

/// The iSCSI TransportID of an initiator port (format 01b): header, name, NUL, padded to a multiple of 4.
#[must_use]
pub fn transport_id(port_name: &str) -> Vec<u8> {
    let mut out = vec![0x45, 0, 0, 0];
    out.extend_from_slice(port_name.as_bytes());
    out.push(0);
    out.resize(out.len().next_multiple_of(4).max(24), 0);
    let [high, low] = ((out.len() - 4) as u16).to_be_bytes();
    (out[2], out[3]) = (high, low);
    out
}

/// The port name in an iSCSI TransportID of format 01b, in lower case.
#[must_use]
pub fn parse_transport_id(bytes: &[u8]) -> Option<String> {
    if *bytes.first()? != 0x45 || bytes.get(1)? != &0 {
        return None;
    }
    let body = bytes.get(4..4 + be(bytes, 2, 2) as usize)?;
    let name = body.split(|byte| *byte == 0).next()?;
    if name.len() > MAX_PORT_NAME_BYTES || !name.contains(&b',') {
        return None;
    }
    Some(std::str::from_utf8(name).ok()?.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_ids_round_trip() {
        for name in ["iqn.x:a,i,0x000102030405", "iqn.2026-11.example:longer,i,0xffffffffffff"] {
            let id = transport_id(name);
            assert_eq!(id.len() % 4, 0);
            assert_eq!(parse_transport_id(&id).as_deref(), Some(name));
        }
        assert_eq!(parse_transport_id(&[0x45, 0, 0xff, 0xff, 1]), None);
    }
}
