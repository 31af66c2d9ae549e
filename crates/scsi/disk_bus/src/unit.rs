//! The unit: sessions, what they have not heard yet, and the way of each to the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block_device::BlockDevice as _;
use disk_gate::{Gate, GatedDisk};
use parking_lot::Mutex;
use scsi_core::{
    Nexus, ScsiCommand, ScsiDevice, ScsiFuture, ScsiResponse, TaskManagement, TaskManagementOutcome, WireLun,
};
use scsi_defs::{Cdb, Effect, Op, Sense, SenseKey, asc};

use crate::reply::{Outcome, response};

/// Ports that are known to have heard of the start of this process. Those beyond hear of it with each session, which costs them a flush at most.
const MAX_MET: usize = 4096;

/// A session of another node.
pub(crate) struct Session {
    pub(crate) disk: GatedDisk,
    /// It has not heard yet that this process is another one than it knows.
    news: AtomicBool,
    /// What the session before it had under way has ended.
    alone: AtomicBool,
}

impl Session {
    /// Waits for what the session before this one had under way. Nothing of this one begins before that has ended.
    async fn comes_first(&self) {
        if !self.alone.load(Ordering::Acquire) {
            self.disk.settled().await;
            self.alone.store(true, Ordering::Release);
        }
    }
}

/// A disk of this machine, for other nodes: unit 0 of a target of its own.
pub struct BusUnit {
    gate: Arc<Gate>,
    /// What tells it from any other disk, whatever it is called here.
    pub(crate) identity: String,
    sessions: Mutex<BTreeMap<u64, Arc<Session>>>,
    met: Mutex<BTreeSet<String>>,
}

impl BusUnit {
    /// A disk behind its gate. `identity` is what the hardware is known by (a serial number, the path of a file), in printable ASCII: initiators
    /// that connect again make sure by it that they do not meet another disk.
    #[must_use]
    pub fn new(gate: Arc<Gate>, identity: &str) -> Self {
        let printable =
            identity.bytes().map(|byte| if (0x20..0x7f).contains(&byte) { char::from(byte) } else { '?' });
        Self { gate, identity: printable.collect(), sessions: Mutex::default(), met: Mutex::default() }
    }

    /// Its gate.
    #[must_use]
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    async fn run(&self, session: &Session, lun: WireLun, command: &ScsiCommand) -> Outcome {
        let cdb = Cdb::parse(&command.cdb)?;
        if lun.number() != Some(0) {
            return Err(Sense::illegal(asc::LUN_NOT_SUPPORTED).into());
        }
        // These leave the news to others (SAM-5 5.14.1).
        if !matches!(cdb.op, Op::Inquiry | Op::ReportLuns | Op::RequestSense)
            && session.news.swap(false, Ordering::AcqRel)
        {
            return Err(Sense::new(SenseKey::UnitAttention, asc::POWER_ON).into());
        }
        if cdb.effect == Effect::Write || cdb.op.is_persistent_reserve_out() {
            session.comes_first().await;
        }
        match cdb.effect {
            _ if cdb.op.is_reservation_command() => self.reserve(session, &cdb, &command.data_out).await,
            Effect::Read | Effect::Write => self.move_data(session, &cdb, command).await,
            _ if matches!(cdb.op, Op::SyncCache10 | Op::SyncCache16) => {
                session.disk.flush().await?;
                crate::reply::Reply::took(0)
            }
            _ => self.inform(&cdb),
        }
    }
}

impl ScsiDevice for BusUnit {
    fn reaches(&self, _nexus: &Arc<Nexus>, _other: &Arc<Nexus>) -> bool {
        // No node ends the sessions of another one by a reset: taking a disk over is the gate's.
        false
    }

    fn nexus_established(&self, nexus: &Arc<Nexus>) {
        let port = nexus.initiator_port_name();
        let Ok(disk) = GatedDisk::new(self.gate.clone(), &port) else {
            return tracing::error!("disk {}: too many initiators use it", self.gate.name());
        };
        let mut met = self.met.lock();
        let news = !met.contains(&port);
        if met.len() < MAX_MET {
            met.insert(port);
        }
        let session = Session { disk, news: AtomicBool::new(news), alone: AtomicBool::new(false) };
        self.sessions.lock().insert(nexus.id, Arc::new(session));
    }

    fn nexus_lost(&self, nexus: &Arc<Nexus>) {
        self.sessions.lock().remove(&nexus.id);
    }

    fn execute<'a>(
        &'a self,
        nexus: &'a Arc<Nexus>,
        lun: WireLun,
        command: ScsiCommand,
    ) -> ScsiFuture<'a, Option<ScsiResponse>> {
        let session = self.sessions.lock().get(&nexus.id).cloned();
        Box::pin(async move {
            let outcome = match session {
                Some(session) => self.run(&session, lun, &command).await,
                None => Err(Sense::illegal(asc::INSUFFICIENT_RESOURCES).into()),
            };
            Some(response(outcome))
        })
    }

    fn task_management<'a>(
        &'a self,
        nexus: &'a Arc<Nexus>,
        lun: WireLun,
        function: TaskManagement,
    ) -> ScsiFuture<'a, TaskManagementOutcome> {
        let session = self.sessions.lock().get(&nexus.id).cloned();
        Box::pin(async move {
            match (function, session) {
                _ if lun.number() != Some(0) => TaskManagementOutcome::IncorrectLun,
                // The transport has dropped them; what they have begun ends first.
                (TaskManagement::AbortTaskSet, Some(session)) => {
                    session.disk.settled().await;
                    TaskManagementOutcome::Complete
                }
                _ => TaskManagementOutcome::Rejected,
            }
        })
    }
}
