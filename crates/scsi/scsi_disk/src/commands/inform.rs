//! What a unit tells about itself: INQUIRY, capacity, supported commands, target port groups, logs, sense data, its self-test.

use std::collections::BTreeMap;

use scsi_core::WireLun;
use scsi_defs::cdb::{COMMANDS, Entry, find};
use scsi_defs::{Cdb, Op, Sense, SenseKey, asc};

use crate::limits::{
    MAX_COMPARE_BLOCKS, MAX_TOKEN_RANGES, MAX_TOKEN_TRANSFER, MAX_TRANSFER_BYTES, MAX_UNMAP_DESCRIPTORS,
    TOKEN_TIMEOUTS,
};
use crate::port_groups;
use crate::reply::{Failure, Outcome, Reply};
use crate::unit::LogicalUnit;
use crate::view::{Caller, MappedUnit};

const VENDOR: &[u8; 8] = b"HOLDFAST";
const VERSIONS: [u16; 4] = [0x00a0, 0x0460, 0x04c0, 0x0960]; // SAM-5, SPC-4, SBC-3, iSCSI

/// Standard INQUIRY data of a number without a unit.
pub(crate) fn absent_inquiry(cdb: &Cdb, peripheral: u8) -> Result<Vec<u8>, Sense> {
    if cdb.bit(1, 0) || cdb.byte(2) != 0 {
        return Err(Sense::cdb_field(1));
    }
    Ok(standard(peripheral, "no unit"))
}

fn standard(peripheral: u8, product: &str) -> Vec<u8> {
    // Byte 5: third-party copy, implicit ALUA; byte 7: command queuing.
    let mut out = vec![peripheral, 0, 6, 0x12, 91, 0x18, 0, 2];
    out.extend_from_slice(VENDOR);
    out.extend_from_slice(&ascii(product, 16));
    out.extend_from_slice(b"0001");
    out.resize(58, 0);
    VERSIONS.iter().for_each(|version| out.extend_from_slice(&version.to_be_bytes()));
    out.resize(96, 0);
    out
}

fn ascii(text: &str, len: usize) -> Vec<u8> {
    let printable = text.bytes().map(|byte| if (0x20..0x7f).contains(&byte) { byte } else { b'?' });
    let mut out: Vec<u8> = printable.take(len).collect();
    out.resize(len, b' ');
    out
}

/// REPORT LUNS.
pub(crate) fn report_luns(view: &BTreeMap<u16, MappedUnit>, cdb: &Cdb) -> Result<Vec<u8>, Sense> {
    if !matches!(cdb.byte(2), 0..=2) {
        return Err(Sense::cdb_field(2));
    }
    if cdb.length() < 16 {
        return Err(Sense::cdb_field(6));
    }
    let none = BTreeMap::new();
    let luns = if cdb.byte(2) == 1 { &none } else { view }; // 1: well-known units only, of which there are none
    let mut out = ((luns.len() * 8) as u32).to_be_bytes().to_vec();
    out.extend_from_slice(&[0; 4]);
    luns.keys().for_each(|lun| out.extend_from_slice(&WireLun::from_number(*lun).0));
    Ok(out)
}

impl LogicalUnit {
    /// SEND DIAGNOSTIC (SPC-4 6.42): the default self-test, which looks whether the medium can be read.
    pub(crate) async fn self_test(&self, cdb: &Cdb) -> Outcome {
        let length = u16::from_be_bytes([cdb.byte(3), cdb.byte(4)]);
        if length != 0 {
            return Err(Sense::cdb_field(3).into()); // there are no diagnostic pages
        }
        if cdb.bit(1, 2) && self.blocks() > 0 {
            self.read_exact(0, self.block()).await.map_err(|failure| match failure {
                Failure::Away => Failure::Away,
                _ => Sense::new(SenseKey::HardwareError, asc::FAILED_SELF_TEST).into(),
            })?;
        }
        Reply::good(0)
    }

    pub(crate) fn request_sense(&self, caller: &Caller<'_>, cdb: &Cdb) -> Outcome {
        let mut inner = self.inner.lock();
        let none = Sense::new(SenseKey::NoSense, asc::NONE);
        let mut sense = inner.sanitize.sense().unwrap_or(none);
        if let Some(entry) = inner.nexuses.get_mut(&caller.nexus.id)
            && !entry.attentions.is_empty()
        {
            sense = Sense::new(SenseKey::UnitAttention, entry.attentions.remove(0));
        }
        Reply::parameters(&sense.encode(cdb.bit(1, 0)), cdb.length())
    }

    /// The commands that tell and change nothing on the medium.
    pub(crate) fn inform(&self, caller: &Caller<'_>, cdb: &Cdb) -> Outcome {
        let last = self.blocks().saturating_sub(1);
        let out = match cdb.op {
            Op::TestUnitReady | Op::PreventAllow => return Reply::good(0),
            Op::StartStop => {
                if cdb.byte(4) >> 4 == 0 && cdb.bit(4, 1) {
                    return Err(Sense::cdb_field(4).into()); // LOEJ: the medium is not removable
                }
                if cdb.byte(4) >> 4 == 0 {
                    self.inner.lock().stopped = !cdb.bit(4, 0);
                }
                return Reply::good(0);
            }
            Op::Inquiry if cdb.bit(1, 0) => self.vpd(caller, cdb.byte(2))?,
            Op::Inquiry if cdb.byte(2) != 0 => return Err(Sense::cdb_field(2).into()),
            Op::Inquiry => standard(0, &self.config.product),
            Op::ReportLuns => report_luns(caller.view, cdb)?,
            Op::ReadCapacity10 => {
                if !cdb.bit(8, 0) && cdb.lba() != 0 {
                    return Err(Sense::cdb_field(2).into());
                }
                let last = u32::try_from(last).unwrap_or(u32::MAX);
                let out = [last.to_be_bytes(), self.config.block_size.to_be_bytes()].concat();
                return Reply::parameters(&out, 8);
            }
            Op::ReadCapacity16 => {
                let mut out = last.to_be_bytes().to_vec();
                out.extend_from_slice(&self.config.block_size.to_be_bytes());
                let ratio = (u64::from(self.backing().physical_block_size()) / self.block()).max(1);
                let provisioning = 0x80 | u8::from(self.backing().unmap_zeroes()) << 6;
                out.extend_from_slice(&[0, ratio.ilog2() as u8, provisioning, 0]);
                out.resize(32, 0);
                out
            }
            Op::ReadDefect10 => vec![0, cdb.byte(2) & 0x1f, 0, 0],
            Op::ReadDefect12 => vec![0, cdb.byte(1) & 0x1f, 0, 0, 0, 0, 0, 0],
            Op::LogSense => log_page(cdb)?,
            Op::ReportTargetPortGroups => self.report_port_groups(cdb)?,
            Op::ReportOpcodes => supported_opcodes(cdb, |opcode| self.has(opcode))?,
            // ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET, TARGET RESET.
            Op::ReportTaskManagement if cdb.length() < 4 => return Err(Sense::cdb_field(6).into()),
            Op::ReportTaskManagement => {
                let mut out = vec![0xda, 0, 0, if cdb.bit(2, 7) { 12 } else { 0 }];
                out.resize(if cdb.bit(2, 7) { 16 } else { 4 }, 0);
                out
            }
            _ => return Err(Sense::illegal(scsi_defs::asc::INVALID_OPCODE).into()),
        };
        Reply::parameters(&out, cdb.length())
    }

    fn report_port_groups(&self, cdb: &Cdb) -> Result<Vec<u8>, Sense> {
        let extended = match cdb.byte(1) >> 5 {
            0 => false,
            1 => true,
            _ => return Err(Sense::cdb_field(1)),
        };
        Ok(port_groups::report(&self.port_groups(), extended))
    }

    fn vpd(&self, caller: &Caller<'_>, page: u8) -> Result<Vec<u8>, Sense> {
        let mut out = vec![0, page, 0, 0];
        match page {
            0x00 => out.extend_from_slice(&[0x00, 0x80, 0x83, 0x86, 0x8f, 0xb0, 0xb1, 0xb2]),
            0x80 => out.extend_from_slice(self.serial().as_bytes()),
            0x83 => {
                let designator = self.designator();
                out.extend_from_slice(&[1, 3, 0, designator.len() as u8]);
                out.extend_from_slice(&designator);
                out.extend_from_slice(&[2, 1, 0, 40]);
                out.extend_from_slice(VENDOR);
                out.extend_from_slice(self.serial().as_bytes());
                let [high, low] = caller.nexus.target_port.to_be_bytes();
                out.extend_from_slice(&[0x51, 0x94, 0, 4, 0, 0, high, low]);
                out.extend_from_slice(&[0x51, 0x95, 0, 4, 0, 0, high, low]);
            }
            0x86 => {
                out.extend_from_slice(&[0, 0x07, 1, 0]); // SIMPLE, ORDERED, HEAD OF QUEUE; V_SUP
                out.resize(64, 0);
            }
            0x8f => {
                // Limits of tokens: ranges, seconds, blocks.
                out.extend_from_slice(&[0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0]);
                out.extend_from_slice(&MAX_TOKEN_RANGES.to_be_bytes());
                out.extend_from_slice(&TOKEN_TIMEOUTS.1.to_be_bytes());
                out.extend_from_slice(&TOKEN_TIMEOUTS.0.to_be_bytes());
                for bytes in [MAX_TOKEN_TRANSFER, MAX_TOKEN_TRANSFER / 4] {
                    out.extend_from_slice(&(bytes / self.block()).to_be_bytes());
                }
                // Supported commands: EXTENDED COPY(LID1), the token commands, the RECEIVE COPY service actions.
                out.extend_from_slice(&[
                    0, 1, 0, 16, 12, 0x83, 4, 0, 1, 0x10, 0x11, 0x84, 4, 0, 3, 5, 7, 0, 0, 0,
                ]);
                // Supported descriptors: block to block, identification.
                out.extend_from_slice(&[0, 8, 0, 4, 2, 2, 0xe4, 0]);
            }
            0xb0 => {
                let blocks = |bytes: u64| ((bytes / self.block()) as u32).to_be_bytes();
                // WSNZ: WRITE SAME wants a count.
                out.extend_from_slice(&[1, MAX_COMPARE_BLOCKS]);
                let granule = self.backing().physical_block_size().max(4096);
                out.extend_from_slice(&((u64::from(granule) / self.block()) as u16).to_be_bytes());
                out.extend_from_slice(&blocks(MAX_TRANSFER_BYTES));
                out.extend_from_slice(&blocks(1 << 20));
                out.extend_from_slice(&blocks(MAX_TRANSFER_BYTES));
                out.extend_from_slice(&u32::MAX.to_be_bytes());
                out.extend_from_slice(&MAX_UNMAP_DESCRIPTORS.to_be_bytes());
                out.extend_from_slice(&blocks(u64::from(granule)));
                out.resize(64, 0);
                out[32] = 0x80; // UGAVALID, aligned at 0
            }
            0xb1 => {
                let rate: u16 = if self.backing().rotational() { 7200 } else { 1 };
                out.extend_from_slice(&rate.to_be_bytes());
                out.resize(64, 0);
                out[7] = 0x40; // after a block erase, reads find zeros
            }
            0xb2 => {
                let zeroes = u8::from(self.backing().unmap_zeroes()) << 2;
                out.extend_from_slice(&[0, 0xe0 | zeroes, 2, 0]);
            }
            _ => return Err(Sense::cdb_field(2)),
        }
        let [high, low] = ((out.len() - 4) as u16).to_be_bytes();
        (out[2], out[3]) = (high, low);
        Ok(out)
    }
}

fn log_page(cdb: &Cdb) -> Result<Vec<u8>, Sense> {
    match (cdb.byte(2) & 0x3f, cdb.byte(3)) {
        (0, 0) => Ok(vec![0, 0, 0, 2, 0, 0x2f]),
        // Informational exceptions: none.
        (0x2f, 0) => Ok(vec![0x2f, 0, 0, 8, 0, 0, 3, 4, 0, 0, 0, 0]),
        _ => Err(Sense::cdb_field(2)),
    }
}

const TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The commands with an opcode that the unit `has`.
fn supported_opcodes(cdb: &Cdb, has: impl Fn(u8) -> bool) -> Result<Vec<u8>, Sense> {
    let (timeouts, opcode) = (cdb.bit(2, 7), cdb.byte(3));
    let action = u16::from_be_bytes([cdb.byte(4), cdb.byte(5)]);
    let commands = || COMMANDS.iter().filter(|entry| has(entry.opcode));
    let found = |action: u16| {
        let action = u8::try_from(action).ok().filter(|action| *action < 32 && has(opcode))?;
        find(opcode, action)
    };
    let has_actions = commands().any(|entry| entry.opcode == opcode && entry.action.is_some());
    let entry: Option<&Entry> = match cdb.byte(2) & 7 {
        0 => {
            let mut list = Vec::new();
            for entry in commands() {
                let flags = u8::from(timeouts) << 1 | u8::from(entry.action.is_some());
                let len = entry.usage.len() as u8;
                list.extend_from_slice(&[entry.opcode, 0, 0, entry.action.unwrap_or(0), 0, flags, 0, len]);
                list.extend_from_slice(if timeouts { &TIMEOUTS } else { &[] });
            }
            let mut out = (list.len() as u32).to_be_bytes().to_vec();
            out.extend_from_slice(&list);
            return Ok(out);
        }
        1 if has_actions => return Err(Sense::cdb_field(2)),
        1 => found(0),
        2 if has(opcode) && !has_actions => return Err(Sense::cdb_field(2)),
        2 => found(action),
        3 if has_actions => found(action),
        3 => found(0).filter(|_| action == 0),
        _ => return Err(Sense::cdb_field(2)),
    };
    let Some(entry) = entry else { return Ok(vec![0, 1, 0, 0]) };
    let mut out = vec![0, u8::from(timeouts) << 7 | 3, 0, entry.usage.len() as u8];
    out.extend_from_slice(entry.usage);
    if let Some(action) = entry.action {
        // In the usage data the service action stands as its value.
        out[5] = out[5] & 0xe0 | action;
    }
    out.extend_from_slice(if timeouts { &TIMEOUTS } else { &[] });
    Ok(out)
}
