//! [`LogicalUnit`]: one disk, its task set, attentions and reservations, and the admission of commands.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Mutex, RwLock};
use qos_gate::Permit;
use scsi_core::{ScsiCommand, ScsiResponse, ScsiStatus};
use scsi_defs::{Cdb, Effect, Op, Sense, SenseKey, asc};
use tokio::sync::Notify;

use crate::backing::{Backing, ReservationStore};
use crate::copy::EndedCopy;
use crate::departed::Departed;
use crate::flow::Flows;
use crate::meter::Meter;
use crate::mode::{Mode, WriteCache};
use crate::reply::{Failure, Outcome, gone};
use crate::reservations::{Port, Reservations};
use crate::sanitize::Sanitize;
use crate::storage::{Cached, Storage};
use crate::target::Caller;
use crate::task_set::Task;
use crate::token::{EndedToken, Tokens};

/// Most commands a unit holds, of all nexuses: bounds memory; more get TASK SET FULL.
pub const MAX_TASKS: usize = 4096;
/// Most attentions queued for a nexus; each code is there once, so this is never reached in practice.
const MAX_ATTENTIONS: usize = 16;

/// What a unit is.
#[derive(Clone, Debug)]
pub struct UnitConfig {
    /// Identifies the unit for ever, whatever its number: NAA 6, serial number and reservation row come from it.
    pub id: [u8; 16],
    /// Shown as the product, up to 16 printable ASCII characters.
    pub product: String,
    /// Logical block size: 512 or 4096.
    pub block_size: u32,
    /// Whether writes are cached until SYNCHRONIZE CACHE.
    pub write_cache: bool,
    /// Whether initiators may turn that on and off (MODE SELECT); what they saved then counts.
    pub initiator_write_cache: bool,
    /// Relative identifiers of all target ports (also their groups' tags), until [`LogicalUnit::set_target_ports`].
    pub target_ports: Vec<u16>,
}

/// Whether a unit serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitState {
    /// Yes.
    Online,
    /// Reads only, for the reason given.
    ReadOnly(String),
    /// The unit is not served, for the reason given.
    Offline(String),
    /// It will be served soon, and what it knows of reservations is not here yet: initiators are told to come again (BUSY).
    Busy,
}

pub(crate) struct NexusEntry {
    pub(crate) port: Port,
    /// It has read or written: what is on the medium is somebody's.
    pub(crate) used: bool,
    pub(crate) attentions: Vec<u16>,
    pub(crate) copies: VecDeque<EndedCopy>,
    pub(crate) tokens: VecDeque<EndedToken>,
    /// Cached writes may have been lost that this nexus has not been told of; its next flush does.
    pub(crate) lost_writes: bool,
}

pub(crate) struct Inner {
    pub(crate) nexuses: BTreeMap<u64, NexusEntry>,
    pub(crate) tasks: BTreeMap<u64, Task>,
    /// Tasks that are ordered.
    pub(crate) ordered: usize,
    /// Tasks that are orphans.
    pub(crate) orphans: usize,
    pub(crate) next_task: u64,
    pub(crate) sanitize: Sanitize,
    pub(crate) reservations: Reservations,
    pub(crate) legacy: Option<u64>,
    pub(crate) mode: Mode,
    pub(crate) saved_mode: Mode,
    pub(crate) cache: WriteCache,
    /// The row of saved mode pages does not say what `saved_mode` does: the storage was away.
    pub(crate) mode_unsaved: bool,
    /// Who was connected, and what it is to be told.
    pub(crate) departed: Departed,
    pub(crate) target_ports: Vec<u16>,
    pub(crate) state: UnitState,
    pub(crate) stopped: bool,
    /// It is not served any more; commands of sessions that saw it before it was taken away may still come.
    pub(crate) closed: bool,
    capacity: u64,
}

/// One disk.
pub struct LogicalUnit {
    pub(crate) config: UnitConfig,
    pub(crate) storage: RwLock<Storage>,
    /// Wakes commands that wait for the storage to come back.
    pub(crate) storage_changed: Notify,
    /// The storage is away, or the last that was heard of it is that it has stopped.
    pub(crate) failing: AtomicBool,
    /// Writes that no flush covers yet.
    pub(crate) cached: Cached,
    pub(crate) inner: Mutex<Inner>,
    /// One reservation change at a time, including its durable step.
    pub(crate) changes: tokio::sync::Mutex<()>,
    pub(crate) tasks_changed: Notify,
    pub(crate) tokens: Tokens,
    pub(crate) meter: Meter,
    /// Never locked while `inner` is.
    pub(crate) flows: Mutex<Flows>,
}

impl LogicalUnit {
    /// Opens a unit, with the reservations and mode pages that were stored.
    ///
    /// # Errors
    /// A message saying what is wrong with the configuration or the stored rows. A unit whose reservations cannot be read must
    /// not serve: someone may be fenced off.
    pub async fn open(
        config: UnitConfig,
        backing: Arc<dyn Backing>,
        store: Arc<dyn ReservationStore>,
    ) -> Result<Arc<Self>, String> {
        if !matches!(config.block_size, 512 | 4096) {
            return Err(format!("block size {} is not 512 or 4096", config.block_size));
        }
        let load = |kind: u8| {
            let key = Self::row_key(&config.id, kind);
            let store = store.clone();
            async move { store.load(&key).await.map_err(|error| format!("cannot read the unit's state: {error}")) }
        };
        let reservations = match load(b'r').await? {
            Some(row) => Reservations::decode(&row).ok_or("the stored reservations are damaged")?,
            None => Reservations::default(),
        };
        let cache = WriteCache { on: config.write_cache, by_initiators: config.initiator_write_cache };
        let mut mode = Mode { write_cache: cache.on, ..Mode::default() };
        if let Some(row) = load(b'm').await? {
            mode = Mode::decode(&row).ok_or("the stored mode pages are damaged")?;
            if !cache.by_initiators {
                // Saved when initiators still might.
                mode.write_cache = cache.on;
            }
        }
        let sanitize = match load(b's').await? {
            Some(row) => Sanitize::decode(&row).ok_or("the stored state of SANITIZE is damaged")?,
            None => Sanitize::Idle,
        };
        let inner = Inner {
            nexuses: BTreeMap::new(),
            tasks: BTreeMap::new(),
            ordered: 0,
            orphans: 0,
            sanitize,
            next_task: 0,
            reservations,
            legacy: None,
            mode,
            saved_mode: mode,
            cache,
            mode_unsaved: false,
            departed: Departed::default(),
            target_ports: config.target_ports.clone(),
            state: UnitState::Online,
            stopped: false,
            closed: false,
            capacity: backing.size() / u64::from(config.block_size),
        };
        Ok(Arc::new(Self {
            config,
            storage: RwLock::new(Storage { backing, store, away: false }),
            storage_changed: Notify::new(),
            failing: AtomicBool::new(false),
            cached: Cached::default(),
            inner: Mutex::new(inner),
            changes: tokio::sync::Mutex::new(()),
            tasks_changed: Notify::new(),
            tokens: Tokens::default(),
            meter: Meter::default(),
            flows: Mutex::default(),
        }))
    }

    pub(crate) fn row_key(id: &[u8; 16], kind: u8) -> Vec<u8> {
        [&id[..], &[kind]].concat()
    }

    /// Bytes of a block.
    pub(crate) fn block(&self) -> u64 {
        u64::from(self.config.block_size)
    }

    /// Blocks now; news of a change goes to all nexuses.
    pub(crate) fn blocks(&self) -> u64 {
        self.backing().size() / self.block()
    }

    /// Whether the unit serves, and why not.
    #[must_use]
    pub fn state(&self) -> UnitState {
        self.inner.lock().state.clone()
    }

    /// Changes whether the unit serves. Commands that run go on.
    pub fn set_state(&self, state: UnitState) {
        self.inner.lock().state = state;
    }

    /// Changes through which target ports the unit is reached; initiators hear of it. What it knows of its nexuses and their
    /// reservations stays.
    pub fn set_target_ports(&self, ports: Vec<u16>) {
        let mut inner = self.inner.lock();
        if inner.target_ports != ports {
            inner.target_ports = ports;
            inner.attention_all(None, asc::INQUIRY_DATA_CHANGED);
        }
    }

    /// Reservations now, for the administrator.
    #[must_use]
    pub fn reservations(&self) -> Reservations {
        self.inner.lock().reservations.clone()
    }

    /// Waits until the number of blocks changes and tells all nexuses; to be called in a loop by whoever owns the unit. The new
    /// size in bytes, which need not be a whole number of blocks: anybody may set the size of a file.
    ///
    /// # Errors
    /// The backing can no longer say.
    pub async fn watch_resize(&self) -> Result<u64, file_store::StoreError> {
        let mut known = self.inner.lock().capacity * self.block();
        loop {
            let size = self.backing().wait_resize(known).await?;
            if self.notice_capacity() {
                return Ok(size);
            }
            known = size;
        }
    }

    /// Whether the number of blocks is another than what initiators were told; they are told now.
    pub(crate) fn notice_capacity(&self) -> bool {
        let now = self.blocks();
        let mut inner = self.inner.lock();
        let changed = inner.capacity != now;
        if changed {
            inner.capacity = now;
            inner.attention_all(None, asc::CAPACITY_CHANGED);
        }
        changed
    }

    /// Raises an attention for one nexus.
    pub(crate) fn attention(&self, nexus: u64, code: u16) {
        self.inner.lock().attention(nexus, code);
    }

    /// LOGICAL UNIT RESET.
    pub(crate) async fn reset(&self) {
        self.abort(|_| true, None).await;
        let mut inner = self.inner.lock();
        inner.legacy = None;
        inner.stopped = false;
        inner.mode = inner.saved_mode;
        inner.attention_all(None, asc::DEVICE_RESET);
    }

    /// Carries a command out, from admission to response.
    ///
    /// `number` is told the command's number in the task set.
    pub(crate) async fn run(
        self: &Arc<Self>,
        caller: &Caller<'_>,
        parsed: Result<Cdb, Sense>,
        command: ScsiCommand,
        number: &Cell<Option<u64>>,
    ) -> Option<ScsiResponse> {
        let guard = match self.enter(caller, &parsed, command.attribute) {
            Ok(guard) => guard,
            Err(failure) => return Some(self.respond(Err(failure))),
        };
        let task = guard.1;
        number.set(Some(task));
        let medium = matches!(&parsed, Ok(cdb) if cdb.effect != Effect::Always);
        let mut outcome: Outcome = Err(Failure::Status(ScsiStatus::TaskAborted));
        if self.may_start(task, medium).await {
            outcome = match parsed {
                Ok(cdb) => self.carry_out(caller, task, &cdb, &command).await,
                Err(sense) => Err(sense.into()),
            };
        }
        let silent = self.aborted(task);
        drop(guard);
        if silent {
            let (tas, closed) = {
                let inner = self.inner.lock();
                (inner.mode.tas, inner.closed)
            };
            if closed {
                return Some(self.respond(Err(gone())));
            }
            return tas.then(|| self.respond(Err(Failure::Status(ScsiStatus::TaskAborted))));
        }
        Some(self.respond(outcome))
    }

    /// Reservations, state and write protection.
    pub(crate) fn admit(&self, caller: &Caller<'_>, cdb: &Cdb) -> Result<(), Failure> {
        let mut inner = self.inner.lock();
        inner.sanitize_allows(cdb.op)?;
        if inner.state == UnitState::Busy
            && !matches!(cdb.op, Op::Inquiry | Op::ReportLuns | Op::RequestSense)
        {
            return Err(Failure::Status(ScsiStatus::Busy));
        }
        let always = cdb.effect == Effect::Always;
        let reserving = cdb.op.is_reservation_command();
        let removes = cdb.op == Op::PreventAllow || cdb.op == Op::StartStop;
        if inner.legacy.is_some_and(|holder| holder != caller.nexus.id)
            && (!always || reserving || removes)
            && !matches!(cdb.op, Op::Release6 | Op::Release10)
        {
            return Err(Failure::Status(ScsiStatus::ReservationConflict));
        }
        if inner.reservations.reservation.is_some() && (!always || cdb.op == Op::StartStop && !cdb.bit(4, 0))
        {
            let reads = cdb.effect == Effect::Read;
            let allowed = inner
                .nexuses
                .get(&caller.nexus.id)
                .is_some_and(|e| inner.reservations.allows(&e.port, reads));
            if !allowed {
                return Err(Failure::Status(ScsiStatus::ReservationConflict));
            }
        }
        let medium = !always || matches!(cdb.op, Op::TestUnitReady | Op::ReadCapacity10 | Op::ReadCapacity16);
        if medium {
            if matches!(inner.state, UnitState::Offline(_)) {
                return Err(Sense::new(SenseKey::NotReady, asc::NOT_READY_OFFLINE).into());
            }
            if cdb.op == Op::TestUnitReady && self.is_away() {
                return Err(Failure::Away);
            }
            if inner.stopped && !matches!(cdb.op, Op::ModeSense6 | Op::ModeSense10) {
                return Err(Sense::new(SenseKey::NotReady, asc::INITIALIZING_COMMAND_REQUIRED).into());
            }
        }
        if cdb.effect == Effect::Write && self.protected(&inner, caller)
            || caller.read_only && inner.would_change_for_all(cdb)
        {
            return Err(Sense::new(SenseKey::DataProtect, asc::WRITE_PROTECTED).into());
        }
        if matches!(cdb.effect, Effect::Read | Effect::Write) {
            inner.uses(caller.nexus.id);
        }
        Ok(())
    }

    pub(crate) fn protected(&self, inner: &Inner, caller: &Caller<'_>) -> bool {
        caller.read_only
            || inner.mode.swp
            || self.backing().read_only()
            || matches!(inner.state, UnitState::ReadOnly(_))
    }

    fn respond(&self, outcome: Outcome) -> ScsiResponse {
        match outcome {
            Ok(reply) => ScsiResponse {
                status: ScsiStatus::Good,
                sense: Vec::new(),
                data_in: reply.data,
                transfer_length: reply.transfer,
            },
            Err(Failure::Status(status)) => {
                ScsiResponse { status, sense: Vec::new(), data_in: None, transfer_length: 0 }
            }
            Err(failure @ (Failure::Sense(_) | Failure::Away)) => {
                let descriptor = self.inner.lock().mode.d_sense;
                ScsiResponse {
                    status: ScsiStatus::CheckCondition,
                    sense: failure.sense().map(|sense| sense.encode(descriptor)).unwrap_or_default(),
                    data_in: None,
                    transfer_length: 0,
                }
            }
        }
    }

    /// Carries an admitted command out, whose place at the volume is kept until it has ended.
    pub(crate) async fn dispatch(
        self: &Arc<Self>,
        caller: &Caller<'_>,
        task: u64,
        cdb: &Cdb,
        command: &ScsiCommand,
        permit: Option<Permit>,
    ) -> Outcome {
        match cdb.op {
            op if op.is_reservation_command() => {
                self.reservation_command(caller, task, cdb, &command.data_out).await
            }
            Op::ModeSense6 | Op::ModeSense10 => self.mode_sense(caller, cdb),
            Op::ModeSelect6 | Op::ModeSelect10 => self.mode_select(caller, cdb, &command.data_out).await,
            Op::ExtendedCopy1
            | Op::ExtendedCopy4
            | Op::ReceiveCopyStatus1
            | Op::ReceiveCopyStatus4
            | Op::ReceiveCopyParameters => self.copy_command(caller, task, cdb, &command.data_out).await,
            Op::SanitizeOverwrite | Op::SanitizeBlockErase | Op::SanitizeExitFailure => {
                self.sanitize_command(caller, task, cdb, &command.data_out).await
            }
            Op::PopulateToken | Op::WriteUsingToken | Op::ReceiveRodTokenInformation => {
                self.token_command(caller, task, cdb, &command.data_out).await
            }
            Op::RequestSense => self.request_sense(caller, cdb),
            Op::SendDiagnostic => self.self_test(cdb).await,
            _ if cdb.effect == Effect::Always => self.inform(caller, cdb),
            _ => {
                let work = self.data_command(caller, task, cdb, command.data_out.clone());
                self.counted(caller.nexus, cdb.op, permit, work).await
            }
        }
    }
}

impl Inner {
    /// Whether a command that leaves the medium alone changes what other nexuses find: not for one that may only read.
    fn would_change_for_all(&self, cdb: &Cdb) -> bool {
        match cdb.op {
            Op::ModeSelect6 | Op::ModeSelect10 | Op::Reserve6 | Op::Reserve10 => true,
            // Power conditions are not kept; START stands for a unit that runs.
            Op::StartStop => cdb.byte(4) >> 4 == 0 && cdb.bit(4, 0) == self.stopped,
            op => op.is_persistent_reserve_out(),
        }
    }

    /// Takes note that a nexus reads or writes.
    pub(crate) fn uses(&mut self, nexus: u64) {
        if let Some(entry) = self.nexuses.get_mut(&nexus) {
            entry.used = true;
        }
    }

    fn attention(&mut self, nexus: u64, code: u16) {
        if let Some(entry) = self.nexuses.get_mut(&nexus)
            && !entry.attentions.contains(&code)
            && entry.attentions.len() < MAX_ATTENTIONS
        {
            entry.attentions.push(code);
        }
    }

    /// Raises an attention for every nexus but one.
    pub(crate) fn attention_all(&mut self, except: Option<u64>, code: u16) {
        let ids: Vec<u64> = self.nexuses.keys().copied().filter(|id| Some(*id) != except).collect();
        ids.into_iter().for_each(|id| self.attention(id, code));
    }

    /// Whether a nexus was to learn that cached writes may be lost; now it does.
    pub(crate) fn take_lost_writes(&mut self, nexus: u64) -> bool {
        self.nexuses.get_mut(&nexus).is_some_and(|entry| std::mem::take(&mut entry.lost_writes))
    }

    /// Copies of a nexus that can be asked about.
    pub(crate) fn ended_copies(&self, nexus: u64) -> impl Iterator<Item = &EndedCopy> {
        self.nexuses.get(&nexus).into_iter().flat_map(|entry| &entry.copies)
    }

    pub(crate) fn ended_copies_mut(&mut self, nexus: u64) -> Option<&mut VecDeque<EndedCopy>> {
        self.nexuses.get_mut(&nexus).map(|entry| &mut entry.copies)
    }

    /// The nexuses of a port now.
    pub(crate) fn nexuses_of(&self, port: &Port) -> Vec<u64> {
        self.nexuses.iter().filter(|(_, e)| e.port == *port).map(|(id, _)| *id).collect()
    }

    pub(crate) fn raise(&mut self, port: &Port, code: u16) {
        self.nexuses_of(port).into_iter().for_each(|id| self.attention(id, code));
    }

    pub(crate) fn port_of(&self, nexus: u64) -> Option<Port> {
        self.nexuses.get(&nexus).map(|entry| entry.port.clone())
    }
}
