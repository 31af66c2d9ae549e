//! The seam between SCSI devices and the transports that carry commands to them.
//!
//! A transport (iSCSI) owns sessions, data transfer and sequencing; a [`ScsiDevice`] owns logical units, their
//! masking, unit attentions, reservations and data. Words are SAM-5's: an *I_T nexus* is one initiator port's
//! relation with one target port; for iSCSI that is one session.

mod share;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use aligned_buffer::SharedBuf;
use observe::IoTally;

pub use share::Shares;

/// The future of a command. It stays on the shard that started it.
pub type ScsiFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Longest sense data a device returns, in bytes (SPC-4 4.5.1).
pub const MAX_SENSE_BYTES: usize = 252;

/// One I_T nexus. Two nexuses of the same initiator port over different target ports differ in `target` or
/// `target_port`; a session that reinstates another is a new nexus with the same names.
pub struct Nexus {
    /// Unique for the life of the process.
    pub id: u64,
    /// The initiator's name (`iqn.…`), normalised to lower case.
    pub initiator: String,
    /// What distinguishes ports of one initiator: iSCSI's ISID.
    pub initiator_port: [u8; 6],
    /// The target's name (`iqn.…`): a unit that two targets have is reached over ports of both.
    pub target: String,
    /// The target port group tag, which is also the relative target port identifier, from 1. Each target counts its own.
    pub target_port: u16,
    /// What came over it: commands on the medium of all its units, counted by the device.
    pub io: IoTally,
}

impl fmt::Debug for Nexus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nexus({}: {}, port {})", self.id, self.initiator_port_name(), self.target_port)
    }
}

impl Nexus {
    /// The SCSI initiator port's name (RFC 7143 4.4.1): what a persistent reservation remembers.
    #[must_use]
    pub fn initiator_port_name(&self) -> String {
        let isid: String = self.initiator_port.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{},i,0x{isid}", self.initiator)
    }
}

/// An 8-byte logical unit number as it is on the wire (SAM-5 4.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireLun(pub [u8; 8]);

impl WireLun {
    /// The unit's number, when the address uses the single-level peripheral (0–255) or flat (0–16383) method.
    #[must_use]
    pub fn number(self) -> Option<u16> {
        let [a, b, rest @ ..] = self.0;
        match (a >> 6, rest == [0; 6]) {
            (0b00, true) if a == 0 => Some(u16::from(b)),
            (0b01, true) => Some(u16::from_be_bytes([a & 0x3f, b])),
            _ => None,
        }
    }

    /// The address of unit `number`: peripheral below 256, flat up to 16383.
    #[must_use]
    pub fn from_number(number: u16) -> Self {
        let [a, b] = number.to_be_bytes();
        let first = if number < 256 { a } else { 0x40 | (a & 0x3f) };
        Self([first, b, 0, 0, 0, 0, 0, 0])
    }
}

/// How a command is ordered with others (SAM-5 8.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskAttribute {
    /// The task may run in any order (SIMPLE).
    Simple,
    /// After all before it, before all after it.
    Ordered,
    /// Before all that have not started.
    HeadOfQueue,
    /// Auto contingent allegiance; not supported by our devices.
    Aca,
}

/// A command with all its outgoing data.
#[derive(Clone, Debug)]
pub struct ScsiCommand {
    /// The command descriptor block; at most 16 bytes for what disks use, longer ones are refused by the device.
    pub cdb: Vec<u8>,
    /// Data from the initiator, complete; empty when there is none. Shorter or longer than the command asks
    /// for when the initiator's expected length differs.
    pub data_out: SharedBuf,
    /// How many bytes the initiator is ready to take; 0 for commands without data-in.
    pub data_in_limit: u32,
    /// Ordering.
    pub attribute: TaskAttribute,
}

/// Status bytes (SAM-5 5.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ScsiStatus {
    /// Done.
    Good = 0x00,
    /// Sense data tells.
    CheckCondition = 0x02,
    /// Try again later.
    Busy = 0x08,
    /// Another nexus holds a reservation.
    ReservationConflict = 0x18,
    /// Too many commands.
    TaskSetFull = 0x28,
    /// Aborted by another nexus, with TAS=1.
    TaskAborted = 0x40,
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct ScsiResponse {
    /// The status byte.
    pub status: ScsiStatus,
    /// Sense data; empty unless `status` is CHECK CONDITION.
    pub sense: Vec<u8>,
    /// Data for the initiator, already cut to the allocation length but maybe longer than `data_in_limit`
    /// (the transport cuts it and reports the residual overflow).
    pub data_in: Option<SharedBuf>,
    /// Length of the transfer that the command itself asked for, in bytes, either way. The transport derives
    /// residual counts from it and the expected length.
    pub transfer_length: u64,
}

/// Task management functions (SAM-5 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskManagement {
    /// All commands of this nexus on the unit.
    AbortTaskSet,
    /// All commands of all nexuses on the unit.
    ClearTaskSet,
    /// Reset the unit.
    LogicalUnitReset,
    /// Reset all units the nexus sees.
    TargetWarmReset,
    /// The same, and the transport drops its sessions.
    TargetColdReset,
}

/// How a task management function ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskManagementOutcome {
    /// Done.
    Complete,
    /// There is no such unit.
    IncorrectLun,
    /// The function is not supported.
    Rejected,
}

/// A SCSI target device: logical units behind a transport.
///
/// # Contract
/// * The transport calls [`ScsiDevice::nexus_established`] before the first command of a nexus and
///   [`ScsiDevice::nexus_lost`] after its last one has ended or been dropped.
/// * Commands of a nexus are started in the order of their numbers (CmdSN), and polled on that shard only.
///   ABORT TASK is the transport's: it drops the future; the effect of the command is then undecided.
/// * For the other functions, the transport first stops its own commands concerned, then calls
///   [`ScsiDevice::task_management`]; commands of *other* nexuses are stopped by the device, which makes their
///   futures end (with TASK ABORTED status if the control mode page says TAS, else with `None`: no response).
/// * No input makes a device panic; wrong LUNs, opcodes and fields get the SCSI answer.
pub trait ScsiDevice: Send + Sync + 'static {
    /// Whether a nexus may change all that another one of the device uses: it sees each unit of the other's with as many rights, and not
    /// all of them only to read. A reset of the whole target by it, which ends the other's session, is the transport's to refuse if not.
    fn reaches(&self, _nexus: &Arc<Nexus>, _other: &Arc<Nexus>) -> bool {
        true
    }
    /// A nexus came into being.
    fn nexus_established(&self, nexus: &Arc<Nexus>);

    /// A nexus is gone.
    fn nexus_lost(&self, nexus: &Arc<Nexus>);

    /// Carries a command out. `None` when it was aborted and must not be answered.
    fn execute<'a>(
        &'a self,
        nexus: &'a Arc<Nexus>,
        lun: WireLun,
        command: ScsiCommand,
    ) -> ScsiFuture<'a, Option<ScsiResponse>>;

    /// Ends when nothing that the transport has dropped before is begun any more, wherever it was on its way to. Aborting a task has its effect
    /// by then.
    fn settled(&self) -> ScsiFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Carries a task management function out.
    fn task_management<'a>(
        &'a self,
        nexus: &'a Arc<Nexus>,
        lun: WireLun,
        function: TaskManagement,
    ) -> ScsiFuture<'a, TaskManagementOutcome>;
}
