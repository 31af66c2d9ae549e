//! Sense data: why a command failed, in fixed and descriptor format (SPC-4 4.5).

/// The class of the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // the names are the standard's
pub enum SenseKey {
    NoSense = 0,
    RecoveredError = 1,
    NotReady = 2,
    MediumError = 3,
    HardwareError = 4,
    IllegalRequest = 5,
    UnitAttention = 6,
    DataProtect = 7,
    CopyAborted = 0xa,
    AbortedCommand = 0xb,
    Miscompare = 0xe,
}

/// Additional sense codes with their qualifiers, as `asc << 8 | ascq`. The names are the standard's.
#[allow(missing_docs)]
pub mod asc {
    pub const NONE: u16 = 0x0000;
    pub const BECOMING_READY: u16 = 0x0401;
    pub const PORT_UNAVAILABLE: u16 = 0x040c;
    pub const SANITIZE_IN_PROGRESS: u16 = 0x041b;
    pub const NOT_READY_OFFLINE: u16 = 0x0412;
    pub const INITIALIZING_COMMAND_REQUIRED: u16 = 0x0402;
    pub const COMMUNICATION_FAILURE: u16 = 0x0800;
    pub const UNREACHABLE_COPY_TARGET: u16 = 0x0804;
    pub const COPY_TARGET_NOT_REACHABLE: u16 = 0x0d02;
    pub const WRITE_ERROR: u16 = 0x0c00;
    pub const UNRECOVERED_READ_ERROR: u16 = 0x1100;
    pub const PARAMETER_LIST_LENGTH_ERROR: u16 = 0x1a00;
    pub const MISCOMPARE: u16 = 0x1d00;
    pub const INVALID_OPCODE: u16 = 0x2000;
    pub const LBA_OUT_OF_RANGE: u16 = 0x2100;
    pub const INVALID_TOKEN_UNKNOWN: u16 = 0x2300;
    pub const INVALID_TOKEN_CORRUPT: u16 = 0x2304;
    pub const INVALID_TOKEN_EXPIRED: u16 = 0x2307;
    pub const INVALID_FIELD_IN_CDB: u16 = 0x2400;
    pub const LUN_NOT_SUPPORTED: u16 = 0x2500;
    pub const INVALID_FIELD_IN_PARAMETER_LIST: u16 = 0x2600;
    pub const INVALID_RELEASE_OF_RESERVATION: u16 = 0x2604;
    pub const TOO_MANY_TARGET_DESCRIPTORS: u16 = 0x2606;
    pub const UNSUPPORTED_TARGET_DESCRIPTOR: u16 = 0x2607;
    pub const TOO_MANY_SEGMENT_DESCRIPTORS: u16 = 0x2608;
    pub const UNSUPPORTED_SEGMENT_DESCRIPTOR: u16 = 0x2609;
    pub const WRITE_PROTECTED: u16 = 0x2700;
    pub const SPACE_ALLOCATION_FAILED: u16 = 0x2707;
    pub const POWER_ON: u16 = 0x2900;
    pub const DEVICE_RESET: u16 = 0x2903;
    pub const NEXUS_LOSS: u16 = 0x2907;
    pub const MODE_PARAMETERS_CHANGED: u16 = 0x2a01;
    pub const RESERVATIONS_PREEMPTED: u16 = 0x2a03;
    pub const RESERVATIONS_RELEASED: u16 = 0x2a04;
    pub const REGISTRATIONS_PREEMPTED: u16 = 0x2a05;
    pub const ACCESS_STATE_CHANGED: u16 = 0x2a06;
    pub const CAPACITY_CHANGED: u16 = 0x2a09;
    pub const COMMAND_SEQUENCE_ERROR: u16 = 0x2c00;
    pub const COMMANDS_CLEARED: u16 = 0x2f00;
    pub const SANITIZE_FAILED: u16 = 0x3103;
    pub const FAILED_SELF_TEST: u16 = 0x3e03;
    pub const NOT_RESERVED: u16 = 0x2c0b;
    pub const SAVING_NOT_SUPPORTED: u16 = 0x3900;
    pub const MEDIUM_NOT_PRESENT: u16 = 0x3a00;
    pub const INQUIRY_DATA_CHANGED: u16 = 0x3f03;
    pub const REPORTED_LUNS_CHANGED: u16 = 0x3f0e;
    pub const INTERNAL_TARGET_FAILURE: u16 = 0x4400;
    pub const INSUFFICIENT_REGISTRATION_RESOURCES: u16 = 0x5504;
    pub const INSUFFICIENT_RESOURCES: u16 = 0x5503;
}

/// One failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// Class.
    pub key: SenseKey,
    /// Code and qualifier, one of [`asc`].
    pub code: u16,
    /// The block or offset concerned.
    pub information: Option<u64>,
    /// Where the wrong field is: (in the CDB, byte, bit).
    pub field: Option<(bool, u16, Option<u8>)>,
}

impl Sense {
    /// A failure without further information.
    #[must_use]
    pub const fn new(key: SenseKey, code: u16) -> Self {
        Self { key, code, information: None, field: None }
    }

    /// ILLEGAL REQUEST with `code`.
    #[must_use]
    pub const fn illegal(code: u16) -> Self {
        Self::new(SenseKey::IllegalRequest, code)
    }

    /// A wrong field of the CDB at `byte`.
    #[must_use]
    pub const fn cdb_field(byte: u16) -> Self {
        Self {
            key: SenseKey::IllegalRequest,
            code: asc::INVALID_FIELD_IN_CDB,
            information: None,
            field: Some((true, byte, None)),
        }
    }

    /// A wrong field of the parameter list at `byte`.
    #[must_use]
    pub const fn parameter_field(byte: u16) -> Self {
        Self {
            key: SenseKey::IllegalRequest,
            code: asc::INVALID_FIELD_IN_PARAMETER_LIST,
            information: None,
            field: Some((false, byte, None)),
        }
    }

    /// The same with INFORMATION.
    #[must_use]
    pub const fn with_information(mut self, information: u64) -> Self {
        self.information = Some(information);
        self
    }

    /// The same with how far something is, in 65536ths: it stands where a field pointer would.
    #[must_use]
    pub const fn with_progress(mut self, done: u16) -> Self {
        self.field = Some((false, done, None));
        self
    }

    /// The sense data, in descriptor format (D_SENSE=1) or fixed format. Fixed format has room for 32 bits of
    /// INFORMATION; a larger value is left out, with VALID clear.
    #[must_use]
    pub fn encode(&self, descriptor: bool) -> Vec<u8> {
        let [code, qualifier] = self.code.to_be_bytes();
        let key = self.key as u8;
        let pointer = self.field.map(|(in_cdb, byte, bit)| {
            let [high, low] = byte.to_be_bytes();
            [0x80 | u8::from(in_cdb) << 6 | bit.map_or(0, |bit| 8 | bit & 7), high, low]
        });
        if !descriptor {
            let mut out = vec![0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, code, qualifier, 0, 0, 0, 0];
            if let Some(information) = self.information.and_then(|value| u32::try_from(value).ok()) {
                out[0] |= 0x80;
                out[3..7].copy_from_slice(&information.to_be_bytes());
            }
            if let Some(pointer) = pointer {
                out[15..18].copy_from_slice(&pointer);
            }
            return out;
        }
        let mut out = vec![0x72, key, code, qualifier, 0, 0, 0, 0];
        if let Some(information) = self.information {
            out.extend_from_slice(&[0, 10, 0x80, 0]);
            out.extend_from_slice(&information.to_be_bytes());
        }
        if let Some([a, b, c]) = pointer {
            out.extend_from_slice(&[2, 6, 0, 0, a, b, c, 0]);
        }
        out[7] = (out.len() - 8) as u8;
        out
    }
}

/// What an initiator reads in sense data of a device, which may say anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// Class: the number of a [`SenseKey`], or another one.
    pub key: u8,
    /// Code and qualifier, see [`asc`].
    pub code: u16,
}

impl Reported {
    /// Reads sense data of either format; `None` when it is neither.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
        let (key, code) = match bytes.first()? & 0x7f {
            0x70 | 0x71 => (at(2), [at(12), at(13)]),
            0x72 | 0x73 => (at(1), [at(2), at(3)]),
            _ => return None,
        };
        Some(Self { key: key & 0x0f, code: u16::from_be_bytes(code) })
    }

    /// Whether its class is this one.
    #[must_use]
    pub fn is(self, key: SenseKey) -> bool {
        self.key == key as u8
    }
}

impl std::fmt::Display for Reported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = match self.key {
            0 => "NO SENSE",
            1 => "RECOVERED ERROR",
            2 => "NOT READY",
            3 => "MEDIUM ERROR",
            4 => "HARDWARE ERROR",
            5 => "ILLEGAL REQUEST",
            6 => "UNIT ATTENTION",
            7 => "DATA PROTECT",
            0xa => "COPY ABORTED",
            0xb => "ABORTED COMMAND",
            0xe => "MISCOMPARE",
            _ => "another sense key",
        };
        let [code, qualifier] = self.code.to_be_bytes();
        write!(f, "{key} ({:x}h/{code:02x}h/{qualifier:02x}h)", self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats() {
        let sense = Sense::cdb_field(7).with_information(0x1_0000_0000);
        let fixed = sense.encode(false);
        assert_eq!((fixed.len(), fixed[0], fixed[2], fixed[12]), (18, 0x70, 5, 0x24));
        assert_eq!(fixed[15..18], [0xc0, 0, 7]);
        let descriptor = sense.encode(true);
        assert_eq!((descriptor[0], descriptor[1], descriptor[7]), (0x72, 5, 20));
        assert_eq!(descriptor[12..20], 0x1_0000_0000_u64.to_be_bytes());
        assert_eq!(Sense::new(SenseKey::Miscompare, 0x1d00).with_information(9).encode(false)[0], 0xf0);
    }

    #[test]
    fn read_again() {
        for (key, code) in
            [(SenseKey::UnitAttention, asc::POWER_ON), (SenseKey::MediumError, asc::WRITE_ERROR)]
        {
            for descriptor in [false, true] {
                let read = Reported::parse(&Sense::new(key, code).encode(descriptor)).unwrap();
                assert!(read.is(key) && read.code == code);
            }
        }
        assert_eq!(Reported::parse(&[]), None);
        assert_eq!(Reported::parse(&[0x7f; 20]), None);
        let short = Reported::parse(&[0x70, 0, 0xf6]).unwrap();
        assert_eq!(short.to_string(), "UNIT ATTENTION (6h/00h/00h)");
    }
}
