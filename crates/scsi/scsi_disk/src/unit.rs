//! [`LogicalUnit`]: one disk, and all that is known of it. What acts on it is in the files above this one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use observe::IoTotals;
use parking_lot::{Mutex, RwLock};
use scsi_core::ScsiStatus;
use scsi_defs::asc;
use shard_runtime::Clock;
use tokio::sync::Notify;

use crate::backing::{Backing, ReservationStore};
use crate::departed::Departed;
use crate::ended::{EndedCopy, EndedToken};
use crate::flow::Flows;
use crate::losses::Losses;
use crate::meter::Meter;
use crate::mode::{Mode, WriteCache};
use crate::port_groups::PortGroup;
use crate::reply::{Failure, gone};
use crate::reservations::{Port, Reservations, host_of};
use crate::sanitize::Sanitize;
use crate::storage::{Cached, Storage};
use crate::task_set::TaskSet;
use crate::tokens::Tokens;

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
    /// Whether what is written is gone with the unit, flushed or not: writes are cached always, and whoever has written is told of the loss when
    /// the unit is opened next, by its next flush.
    pub discards_writes: bool,
    /// Whether reservations outlive the node that serves it, also where no initiator asks for that (APTPL): another one goes on, and
    /// initiators see no loss of power.
    pub keep_reservations: bool,
    /// Through which target ports it is reached, until [`LogicalUnit::set_port_groups`].
    pub port_groups: Vec<PortGroup>,
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
    /// Another node serves it, this one if that is known: its commands are brought there.
    Elsewhere(Option<u16>),
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
    /// Its host has been told of that over another nexus: it is told here as well while it is there, and nobody waits for that.
    pub(crate) host_knows: bool,
    /// The row names its port, as it may have cached writes.
    pub(crate) named: bool,
}

pub(crate) struct Inner {
    pub(crate) nexuses: BTreeMap<u64, NexusEntry>,
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
    /// Names of hosts that wrote to the unit when it was open before, and have not been told what may be lost of that.
    pub(crate) untold: BTreeSet<String>,
    /// Whom the row of the volume names: who is to be told, and who may have cached writes. Changed under `naming`.
    pub(crate) kept_losses: Losses,
    /// The row may have been changed or not: a change of it was begun, and its end is not known.
    pub(crate) losses_unsure: bool,
    /// Hosts that have written to a unit which discards that, since its storage came: the row goes on naming them.
    pub(crate) wrote: BTreeSet<String>,
    /// How many storages it has let go of. Changed together with the storage, under both locks: who has begun to change
    /// something of a unit that discards it, and finds another number at its end, has changed what is gone.
    pub(crate) storages: u64,
    pub(crate) port_groups: Vec<PortGroup>,
    pub(crate) state: UnitState,
    pub(crate) stopped: bool,
    /// It is not served any more; commands of sessions that saw it before it was taken away may still come.
    pub(crate) closed: bool,
    /// Since when commands have got no answer from whoever serves it, and when the last did not; by the clock of what brings them.
    unanswered: Option<(u64, u64)>,
    /// It is served elsewhere by then, or anew here: who comes late is to come again.
    pub(crate) moves: bool,
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
    /// Its state is [`UnitState::Elsewhere`]; to be looked at with each command.
    elsewhere: AtomicBool,
    /// One change at a time of whom the row names, including its durable step.
    pub(crate) naming: tokio::sync::Mutex<()>,
    /// Cached writes that there were when that was looked at last.
    pub(crate) cached_before: AtomicU64,
    /// One reservation change at a time, including its durable step.
    pub(crate) changes: tokio::sync::Mutex<()>,
    /// Its lock is taken while `inner` is, never the other way round.
    pub(crate) tasks: Arc<TaskSet>,
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
        // Truly so, whatever else is said: none of it is ever durable.
        mode.write_cache |= config.discards_writes;
        let sanitize = match load(b's').await? {
            Some(row) => Sanitize::decode(&row).ok_or("the stored state of SANITIZE is damaged")?,
            None => Sanitize::Idle,
        };
        let kept_losses = match load(b'l').await? {
            Some(row) => Losses::decode(&row).ok_or("the stored list of lost writes is damaged")?,
            None => Losses::default(),
        };
        // A host comes back by any of its ports. Earlier releases named ports.
        let untold = kept_losses.0.iter().map(|name| host_of(name).to_owned()).collect();
        let inner = Inner {
            nexuses: BTreeMap::new(),
            sanitize,
            reservations,
            legacy: None,
            mode,
            saved_mode: mode,
            cache,
            mode_unsaved: false,
            departed: Departed::default(),
            untold,
            kept_losses,
            losses_unsure: false,
            wrote: BTreeSet::new(),
            storages: 0,
            port_groups: config.port_groups.clone(),
            state: UnitState::Online,
            stopped: false,
            closed: false,
            moves: false,
            unanswered: None,
            capacity: backing.size() / u64::from(config.block_size),
        };
        Ok(Arc::new(Self {
            config,
            storage: RwLock::new(Storage { backing, store, away: false }),
            storage_changed: Notify::new(),
            failing: AtomicBool::new(false),
            cached: Cached::default(),
            naming: tokio::sync::Mutex::default(),
            cached_before: AtomicU64::new(0),
            inner: Mutex::new(inner),
            elsewhere: AtomicBool::new(false),
            changes: tokio::sync::Mutex::new(()),
            tasks: Arc::default(),
            tokens: Tokens::default(),
            meter: Meter::default(),
            flows: Mutex::default(),
        }))
    }

    pub(crate) fn row_key(id: &[u8; 16], kind: u8) -> Vec<u8> {
        [&id[..], &[kind]].concat()
    }

    /// NAA designator of the unit (SPC-4 7.8.6.6). An id that is a UUID of version 8 gives NAA 3, locally assigned: 60
    /// bits of chance that claim to be nobody's. All other ids give the NAA 6 that units had before there was that;
    /// the designator of a unit never changes, as to a host it would become another disk.
    pub(crate) fn designator(&self) -> Vec<u8> {
        let id = self.config.id;
        if id[6] >> 4 != 8 {
            let mut naa = id.to_vec();
            naa[0] = 0x60 | naa[0] & 0x0f;
            return naa;
        }
        let mut naa = id[8..].to_vec();
        naa[0] = 0x30 | naa[0] & 0x0f;
        naa
    }

    /// The unit serial number.
    pub(crate) fn serial(&self) -> String {
        self.config.id.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Bytes of a block.
    pub(crate) fn block(&self) -> u64 {
        u64::from(self.config.block_size)
    }

    pub(crate) fn backing(&self) -> Arc<dyn Backing> {
        self.storage.read().backing.clone()
    }

    pub(crate) fn store(&self) -> Arc<dyn ReservationStore> {
        self.storage.read().store.clone()
    }

    pub(crate) fn is_away(&self) -> bool {
        self.storage.read().away
    }

    /// Whether commands find nothing there: it is away, or has stopped as far as is known.
    pub(crate) fn storage_fails(&self) -> bool {
        self.failing.load(Ordering::SeqCst)
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
        let mut inner = self.inner.lock();
        self.elsewhere.store(matches!(state, UnitState::Elsewhere(_)), Ordering::SeqCst);
        inner.state = state;
    }

    /// Whether another node serves it.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.elsewhere.load(Ordering::SeqCst)
    }

    /// It is about to be closed because it is served elsewhere, or anew: late commands are told to come again.
    pub fn moves(&self) {
        self.inner.lock().moves = true;
    }

    /// Changes through which target ports the unit is reached, and how; initiators hear of it. What it knows of its nexuses and their
    /// reservations stays.
    pub fn set_port_groups(&self, groups: Vec<PortGroup>) {
        let mut inner = self.inner.lock();
        if inner.port_groups == groups {
            return;
        }
        let others =
            !inner.port_groups.iter().map(|group| group.tag).eq(groups.iter().map(|group| group.tag));
        inner.port_groups = groups;
        inner.attention_all(None, asc::ACCESS_STATE_CHANGED);
        if others {
            inner.attention_all(None, asc::INQUIRY_DATA_CHANGED);
        }
    }

    pub(crate) fn port_groups(&self) -> Vec<PortGroup> {
        self.inner.lock().port_groups.clone()
    }

    /// Counts commands from now on, with latencies by this clock, which is that of the queue that they wait in, if there is one. Only
    /// the first call does something.
    pub fn count_with(&self, clock: Arc<dyn Clock>) {
        self.meter.count_with(clock);
    }

    /// What initiators have read, written and flushed since counting began. Bytes are those that the commands asked for.
    #[must_use]
    pub fn totals(&self) -> IoTotals {
        self.meter.totals()
    }

    pub(crate) fn still_wanted(&self, task: u64) -> Result<(), Failure> {
        if self.tasks.aborted(task) { Err(Failure::Status(ScsiStatus::TaskAborted)) } else { Ok(()) }
    }

    /// Reservations now, for the administrator.
    #[must_use]
    pub fn reservations(&self) -> Reservations {
        self.inner.lock().reservations.clone()
    }

    /// Whether an initiator port is there now, over that target port.
    #[must_use]
    pub fn is_connected(&self, port: &Port) -> bool {
        self.inner.lock().nexuses.values().any(|entry| entry.port == *port)
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
}

impl Inner {
    /// A command has got no answer from whoever serves it, or nobody does: for how long that has been so. A time in which none
    /// came, this long, says nothing.
    pub(crate) fn unanswered(&mut self, now: u64, apart: Duration) -> Duration {
        let known = self.unanswered.filter(|(_, last)| now.saturating_sub(*last) <= apart.as_nanos() as u64);
        let since = known.map_or(now, |(since, _)| since);
        self.unanswered = Some((since, now));
        Duration::from_nanos(now.saturating_sub(since))
    }

    /// Whoever serves it has answered a command.
    pub(crate) fn answered(&mut self) {
        self.unanswered = None;
    }

    /// What a command is told that comes when the unit is closed.
    pub(crate) fn gone(&self) -> Failure {
        if self.moves { Failure::OnTheWay } else { gone() }
    }

    /// Whether a nexus has gone to what stands for the unit from now on, while its commands may wait here for their turn: what it holds
    /// and may do is not known here any more.
    pub(crate) fn left_behind(&self, nexus: u64) -> bool {
        self.moves && !self.nexuses.contains_key(&nexus)
    }

    /// Relative identifiers of the ports of all groups.
    pub(crate) fn target_ports(&self) -> Vec<u16> {
        self.port_groups.iter().map(|group| group.tag).collect()
    }

    /// Takes note that a nexus reads or writes.
    pub(crate) fn uses(&mut self, nexus: u64) {
        if let Some(entry) = self.nexuses.get_mut(&nexus) {
            entry.used = true;
        }
    }

    pub(crate) fn attention(&mut self, nexus: u64, code: u16) {
        if let Some(entry) = self.nexuses.get_mut(&nexus)
            && !entry.attentions.contains(&code)
            // Who is told of a reset looks at all ways anew, and initiators count what they are told.
            && !(code == asc::ACCESS_STATE_CHANGED && entry.attentions.contains(&asc::POWER_ON))
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
