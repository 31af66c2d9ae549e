//! Command descriptor blocks: one table says what every command looks like.

use crate::be;
use crate::sense::{Sense, asc};

/// What a command does to the medium, for write protection and reservations (SPC-4 table 66).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Allowed whoever holds a reservation.
    Always,
    /// Reads the medium.
    Read,
    /// Changes the medium.
    Write,
    /// Leaves the medium alone, but a reservation of another nexus excludes it.
    Exclusive,
}

/// A command's row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Which command.
    pub op: Op,
    /// First byte.
    pub opcode: u8,
    /// Service action, for the opcodes that have one (bits 0–4 of byte 1).
    pub action: Option<u8>,
    /// What it does.
    pub effect: Effect,
    /// The bits that mean something; its length is the CDB's. (The "CDB usage data" of SPC-4 6.35.)
    pub usage: &'static [u8],
}

macro_rules! commands {
    ($($name:ident $opcode:literal $action:expr, $effect:ident, [$($usage:literal),*];)*) => {
        /// The commands of a disk. Names are the standard's.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the standard's names say it")]
        pub enum Op { $($name),* }
        /// Every command, by opcode and service action.
        pub const COMMANDS: &[Entry] = &[$(Entry {
            op: Op::$name, opcode: $opcode, action: $action, effect: Effect::$effect, usage: &[$opcode, $($usage),*],
        }),*];
    };
}

// Byte 0 is the opcode. The control byte is 0: NACA is not supported and the rest is reserved.
commands! {
    TestUnitReady 0x00 None, Always, [0, 0, 0, 0, 0];
    RequestSense 0x03 None, Always, [1, 0, 0, 0xff, 0];
    Read6 0x08 None, Read, [0x1f, 0xff, 0xff, 0xff, 0];
    Write6 0x0a None, Write, [0x1f, 0xff, 0xff, 0xff, 0];
    Inquiry 0x12 None, Always, [1, 0xff, 0xff, 0xff, 0];
    ModeSelect6 0x15 None, Exclusive, [0x11, 0, 0, 0xff, 0];
    Reserve6 0x16 None, Always, [0, 0, 0, 0, 0];
    Release6 0x17 None, Always, [0, 0, 0, 0, 0];
    ModeSense6 0x1a None, Exclusive, [8, 0xff, 0xff, 0xff, 0];
    StartStop 0x1b None, Always, [1, 0, 0x0f, 0xf7, 0];
    SendDiagnostic 0x1d None, Exclusive, [0x17, 0, 0xff, 0xff, 0];
    PreventAllow 0x1e None, Always, [0, 0, 0, 3, 0];
    ReadCapacity10 0x25 None, Always, [0, 0xff, 0xff, 0xff, 0xff, 0, 0, 1, 0];
    Read10 0x28 None, Read, [0xfa, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0];
    Write10 0x2a None, Write, [0xfa, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0];
    WriteVerify10 0x2e None, Write, [0xf6, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0];
    Verify10 0x2f None, Read, [0xf6, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0];
    Prefetch10 0x34 None, Read, [2, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0];
    SyncCache10 0x35 None, Exclusive, [6, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0];
    ReadDefect10 0x37 None, Always, [0, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0];
    WriteSame10 0x41 None, Write, [0xf8, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0];
    Unmap 0x42 None, Write, [1, 0, 0, 0, 0, 0x1f, 0xff, 0xff, 0];
    SanitizeOverwrite 0x48 Some(1), Write, [0xbf, 0, 0, 0, 0, 0, 0xff, 0xff, 0];
    SanitizeBlockErase 0x48 Some(2), Write, [0xbf, 0, 0, 0, 0, 0, 0xff, 0xff, 0];
    SanitizeExitFailure 0x48 Some(0x1f), Write, [0xbf, 0, 0, 0, 0, 0, 0xff, 0xff, 0];
    LogSense 0x4d None, Always, [1, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 0];
    ModeSelect10 0x55 None, Exclusive, [0x11, 0, 0, 0, 0, 0, 0xff, 0xff, 0];
    Reserve10 0x56 None, Always, [0, 0, 0, 0, 0, 0, 0, 0, 0];
    Release10 0x57 None, Always, [0, 0, 0, 0, 0, 0, 0, 0, 0];
    ModeSense10 0x5a None, Exclusive, [0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0];
    PrInReadKeys 0x5e Some(0), Always, [0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0];
    PrInReadReservation 0x5e Some(1), Always, [0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0];
    PrInReportCapabilities 0x5e Some(2), Always, [0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0];
    PrInReadFullStatus 0x5e Some(3), Always, [0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0];
    PrOutRegister 0x5f Some(0), Always, [0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0];
    PrOutReserve 0x5f Some(1), Always, [0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0];
    PrOutRelease 0x5f Some(2), Always, [0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0];
    PrOutClear 0x5f Some(3), Always, [0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0];
    PrOutPreempt 0x5f Some(4), Always, [0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0];
    PrOutPreemptAbort 0x5f Some(5), Always, [0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0];
    PrOutRegisterIgnore 0x5f Some(6), Always, [0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0];
    PrOutRegisterMove 0x5f Some(7), Always, [0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0];
    ExtendedCopy1 0x83 Some(0), Write, [0x1f, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
    ExtendedCopy4 0x83 Some(1), Write, [0x1f, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
    PopulateToken 0x83 Some(0x10), Read, [0x1f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0];
    WriteUsingToken 0x83 Some(0x11), Write, [0x1f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0];
    ReceiveCopyStatus1 0x84 Some(0), Exclusive, [0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
    ReceiveCopyParameters 0x84 Some(3), Exclusive, [0x1f, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
    ReceiveCopyStatus4 0x84 Some(5), Exclusive, [0x1f, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
    ReceiveRodTokenInformation 0x84 Some(7), Exclusive, [0x1f, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
    Read16 0x88 None, Read, [0xfa, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0];
    CompareAndWrite 0x89 None, Write, [0xfa, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, 0x1f, 0];
    Write16 0x8a None, Write, [0xfa, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0];
    OrWrite 0x8b None, Write, [0xfa, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0];
    WriteVerify16 0x8e None, Write, [0xf6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0];
    Verify16 0x8f None, Read, [0xf6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0];
    Prefetch16 0x90 None, Read, [2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0];
    SyncCache16 0x91 None, Exclusive, [6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0];
    WriteSame16 0x93 None, Write, [0xf9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0];
    ReadCapacity16 0x9e Some(0x10), Always, [0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0];
    GetLbaStatus 0x9e Some(0x12), Read, [0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0];
    ReportLuns 0xa0 None, Always, [0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
    ReportTargetPortGroups 0xa3 Some(0x0a), Always, [0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
    ReportOpcodes 0xa3 Some(0x0c), Always, [0x1f, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0];
    ReportTaskManagement 0xa3 Some(0x0d), Always, [0x1f, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
    Read12 0xa8 None, Read, [0xfa, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0];
    Write12 0xaa None, Write, [0xfa, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0];
    WriteVerify12 0xae None, Write, [0xf6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0];
    Verify12 0xaf None, Read, [0xf6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0];
    ReadDefect12 0xb7 None, Always, [0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0];
}

/// A command whose bits are all defined ones.
#[derive(Clone, Copy, Debug)]
pub struct Cdb {
    /// Which.
    pub op: Op,
    /// What it does to the medium.
    pub effect: Effect,
    bytes: [u8; 16],
}

/// The table's row of a CDB's first two bytes.
#[must_use]
pub fn find(opcode: u8, action: u8) -> Option<&'static Entry> {
    COMMANDS.iter().find(|entry| entry.opcode == opcode && entry.action.is_none_or(|a| a == action & 0x1f))
}

/// Whether any command has this opcode.
#[must_use]
pub fn opcode_known(opcode: u8) -> bool {
    COMMANDS.iter().any(|entry| entry.opcode == opcode)
}

impl Op {
    /// Whether this is RESERVE, RELEASE or one of the PERSISTENT RESERVE commands.
    #[must_use]
    pub fn is_reservation_command(self) -> bool {
        use Op::*;
        matches!(
            self,
            Reserve6
                | Release6
                | Reserve10
                | Release10
                | PrInReadKeys
                | PrInReadReservation
                | PrInReportCapabilities
                | PrInReadFullStatus
                | PrOutRegister
                | PrOutReserve
                | PrOutRelease
                | PrOutClear
                | PrOutPreempt
                | PrOutPreemptAbort
                | PrOutRegisterIgnore
                | PrOutRegisterMove
        )
    }
}

impl Op {
    /// Whether this is one of the PERSISTENT RESERVE OUT service actions.
    #[must_use]
    pub fn is_persistent_reserve_out(self) -> bool {
        use Op::*;
        matches!(
            self,
            PrOutRegister
                | PrOutReserve
                | PrOutRelease
                | PrOutClear
                | PrOutPreempt
                | PrOutPreemptAbort
                | PrOutRegisterIgnore
                | PrOutRegisterMove
        )
    }
}

impl Cdb {
    /// Checks a CDB. Bytes after the command's length are padding of the transport.
    ///
    /// # Errors
    /// The sense data to answer with.
    pub fn parse(cdb: &[u8]) -> Result<Self, Sense> {
        let (Some(&opcode), action) = (cdb.first(), cdb.get(1).copied().unwrap_or(0)) else {
            return Err(Sense::illegal(asc::INVALID_OPCODE));
        };
        let Some(entry) = find(opcode, action) else {
            return Err(if opcode_known(opcode) {
                Sense::cdb_field(1)
            } else {
                Sense::illegal(asc::INVALID_OPCODE)
            });
        };
        let Some(cdb) = cdb.get(..entry.usage.len()) else {
            return Err(Sense::cdb_field(cdb.len() as u16));
        };
        let mut bytes = [0; 16];
        for (i, (byte, usage)) in cdb.iter().zip(entry.usage).enumerate() {
            let undefined = byte & !usage;
            if i > 0 && undefined != 0 {
                let mut sense = Sense::cdb_field(i as u16);
                sense.field = Some((true, i as u16, Some(undefined.ilog2() as u8)));
                return Err(sense);
            }
            bytes[i] = *byte;
        }
        Ok(Self { op: entry.op, effect: entry.effect, bytes })
    }

    /// One byte.
    #[must_use]
    pub fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    /// One bit.
    #[must_use]
    pub fn bit(&self, at: usize, bit: u8) -> bool {
        self.byte(at) >> (bit & 7) & 1 == 1
    }

    /// The logical block address.
    #[must_use]
    pub fn lba(&self) -> u64 {
        match self.bytes[0] >> 5 {
            0 => be(&self.bytes, 1, 3) & 0x1f_ffff,
            4 => be(&self.bytes, 2, 8),
            _ => be(&self.bytes, 2, 4),
        }
    }

    /// The transfer, allocation or parameter list length, in the command's unit.
    #[must_use]
    pub fn length(&self) -> u32 {
        let (at, len) = match (self.op, self.bytes[0] >> 5) {
            (Op::Inquiry, _) => (3, 2),
            (Op::CompareAndWrite, _) => (13, 1),
            (_, 0) => (4, 1),
            (_, 1 | 2) if self.bytes[0] == 0x5f => (5, 4),
            (_, 1 | 2) => (7, 2),
            (_, 4) => (10, 4),
            _ => (6, 4),
        };
        let length = be(&self.bytes, at, len) as u32;
        if length == 0 && matches!(self.op, Op::Read6 | Op::Write6) { 256 } else { length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sound() {
        for entry in COMMANDS {
            let length = [6, 10, 10, 0, 16, 12][usize::from(entry.opcode >> 5)];
            assert_eq!(entry.usage.len(), length, "{:?}", entry.op);
            assert_eq!(find(entry.opcode, entry.action.unwrap_or(0)).map(|e| e.op), Some(entry.op));
        }
    }

    #[test]
    fn fields() {
        let cdb = Cdb::parse(&[0x28, 8, 0, 0, 1, 2, 0, 0, 7, 0]).unwrap();
        assert_eq!((cdb.op, cdb.lba(), cdb.length(), cdb.bit(1, 3)), (Op::Read10, 258, 7, true));
        assert_eq!(
            Cdb::parse(&[8, 0x1f, 0xff, 0xff, 0, 0]).map(|c| (c.lba(), c.length())),
            Ok((0x1f_ffff, 256))
        );
        assert_eq!(
            Cdb::parse(&[0x28, 0, 0, 0, 0, 0, 0xe0, 0, 7, 0]).unwrap_err().field,
            Some((true, 6, Some(7)))
        );
        assert_eq!(Cdb::parse(&[0x28, 0]).unwrap_err().code, asc::INVALID_FIELD_IN_CDB);
        assert_eq!(Cdb::parse(&[0xff, 0]).unwrap_err().code, asc::INVALID_OPCODE);
        assert_eq!(
            Cdb::parse(&[0x5e, 9, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap_err().code,
            asc::INVALID_FIELD_IN_CDB
        );
    }
}
