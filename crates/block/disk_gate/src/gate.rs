//! The gate itself: changes of who may write, one at a time.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use block_device::{BlockError, BlockErrorKind, BlockFuture, Device};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::port::Port;
use crate::record::{DiskIdentity, decode, encode};
use crate::records::Records;
use crate::table::{Registration, Table};

/// Most initiators that a gate knows at a time; those that nobody uses and that are not registered make room.
const MAX_PORTS: usize = 4096;

/// Says which disk a device is now.
pub trait Identify: Send + Sync + 'static {
    /// The identity of what the device holds. The same as long as it is the same member of the same pool.
    fn identify<'a>(&'a self, device: &'a Device) -> BlockFuture<'a, DiskIdentity>;
}

/// How a gate is opened.
pub struct Settings {
    /// The disk, which nobody else has open.
    pub device: Device,
    /// What it is called.
    pub name: String,
    /// Where what must be kept is kept.
    pub records: Arc<dyn Records>,
    /// Which disk it is.
    pub identify: Arc<dyn Identify>,
    /// What it is known by while it is no member of a pool, if it may have been used like that: what was kept under this then is taken over.
    pub blank: Option<DiskIdentity>,
}

/// Why a gate is not opened, or an initiator not let near it.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The disk cannot be read.
    #[error("{0}")]
    Disk(#[source] BlockError),
    /// Too many initiators use it.
    #[error("more than {MAX_PORTS} initiators use the disk")]
    Ports,
}

/// What has failed, so that nobody knows who may write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// The record says nothing.
    Damage,
    /// It could not be read.
    Reading,
    /// It could not be written.
    Keeping,
}

/// Why nobody may write.
struct Broken {
    by: By,
    why: String,
}

impl Broken {
    fn new(records: &dyn Records, disk: DiskIdentity, error: &io::Error, by: By) -> Self {
        let (by, place) =
            (if error.kind() == io::ErrorKind::InvalidData { By::Damage } else { by }, records.place(disk));
        let why = match by {
            By::Damage => format!(
                "what is kept of its reservations, {place}, cannot be used: {error}. Nobody may write to the disk, as a former owner might. When no node uses its pool, remove the file, and start this node again"
            ),
            By::Reading => format!(
                "what is kept of its reservations, {place}, cannot be read: {error}. Nobody may write to the disk, as a former owner might; it is tried again"
            ),
            By::Keeping => {
                format!("what is to be kept of its reservations, {place}: {error}; it is tried again")
            }
        };
        Self { by, why }
    }
}

/// What is known, in memory.
struct State {
    table: Table,
    /// What a change that is under way makes of it: nobody begins who loses by it.
    next: Option<Table>,
    ports: BTreeMap<Box<str>, Arc<Port>>,
    /// Why nobody may write, whatever the table says.
    broken: Option<Broken>,
    /// The identity under which the table is kept; none while nothing is.
    kept_as: Option<DiskIdentity>,
}

impl State {
    fn permits(&self, port: &str) -> bool {
        self.broken.is_none()
            && self.table.permits(port)
            && self.next.as_ref().is_none_or(|next| next.permits(port))
    }

    /// Nobody writes any more.
    fn break_down(&mut self, broken: Broken) {
        self.ports.values().for_each(|port| port.bar());
        self.broken = Some(broken);
    }

    /// Whoever may write does from now on, and nobody else.
    fn let_in(&self) {
        for port in self.ports.values() {
            if self.permits(&port.name) { port.admit() } else { port.bar() }
        }
    }
}

/// The gate of one disk.
pub struct Gate {
    pub(crate) device: Device,
    name: String,
    records: Arc<dyn Records>,
    identify: Arc<dyn Identify>,
    blank: Option<DiskIdentity>,
    /// Held by whoever changes the table.
    changing: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

impl Gate {
    /// Opens the gate of a disk, with what is kept of it. One whose record is damaged is opened as well: it says so, and nobody writes.
    /// Call on a shard.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub async fn open(settings: Settings) -> Result<Arc<Self>, GateError> {
        let Settings { device, name, records, identify, blank } = settings;
        let disk = identify.identify(&device).await.map_err(GateError::Disk)?;
        let load = records.clone();
        let (table, kept_as, broken) = match on_thread(move || load_of(&*load, disk, blank)).await {
            Ok((table, kept_as)) => (table, kept_as, None),
            Err(error) => {
                let broken = Broken::new(&*records, disk, &error, By::Reading);
                tracing::error!("disk {name}: {}", broken.why);
                (Table::default(), None, Some(broken))
            }
        };
        let state = Mutex::new(State { table, next: None, ports: BTreeMap::new(), broken, kept_as });
        Ok(Arc::new(Self {
            device,
            name,
            records,
            identify,
            blank,
            changing: tokio::sync::Mutex::new(()),
            state,
        }))
    }

    /// What the disk is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The disk itself, for what does not change it.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Why nobody may write, where that is so.
    #[must_use]
    pub fn broken(&self) -> Option<String> {
        self.state.lock().broken.as_ref().map(|broken| broken.why.clone())
    }

    /// Tries again to keep or to read who may write, where that has failed; whether all is well then. What is damaged stays so. Call on a
    /// shard, and to its end.
    pub async fn mend(&self) -> bool {
        let _one = self.changing.lock().await;
        self.mend_alone().await
    }

    /// The same for who changes the table anyway.
    ///
    /// What could not be kept was answered to nobody, so the state before it is kept once more: afterwards that one is certain.
    async fn mend_alone(&self) -> bool {
        let (broken, table) = {
            let state = self.state.lock();
            (state.broken.as_ref().map(|broken| broken.by), state.table.clone())
        };
        let by = match broken {
            None => return true,
            Some(By::Damage) => return false,
            Some(by) => by,
        };
        let Ok(disk) = self.identify.identify(&self.device).await else { return false };
        let (records, blank) = (self.records.clone(), self.blank);
        let mended = on_thread(move || match by {
            By::Reading => load_of(&*records, disk, blank),
            By::Keeping | By::Damage => {
                save_as(&*records, disk, blank, &encode(disk, &table))?;
                Ok((table, Some(disk)))
            }
        });
        let (table, kept_as) = match mended.await {
            Ok(mended) => mended,
            Err(error) => {
                self.state.lock().break_down(Broken::new(&*self.records, disk, &error, by));
                return false;
            }
        };
        let mut state = self.state.lock();
        (state.table, state.kept_as, state.next, state.broken) = (table, kept_as, None, None);
        state.let_in();
        true
    }

    /// Who is registered, in the order of their names.
    #[must_use]
    pub fn registrations(&self) -> Vec<Registration> {
        let state = self.state.lock();
        let all = state.table.registered.iter();
        all.map(|(port, key)| Registration { port: port.clone(), key: *key }).collect()
    }

    /// The initiator of this name: the same word for all who have the name.
    pub(crate) fn port(&self, name: &str) -> Result<Arc<Port>, GateError> {
        let mut state = self.state.lock();
        if let Some(port) = state.ports.get(name) {
            return Ok(port.clone());
        }
        if state.ports.len() >= MAX_PORTS {
            // Nothing is under way at one that nobody else has.
            state.ports.retain(|_, port| Arc::strong_count(port) > 1);
        }
        if state.ports.len() >= MAX_PORTS {
            return Err(GateError::Ports);
        }
        let port = Arc::new(Port::new(name, !state.permits(name)));
        state.ports.insert(name.into(), port.clone());
        Ok(port)
    }

    /// Reads the table.
    pub(crate) fn look<T>(
        &self,
        doing: &'static str,
        look: impl FnOnce(&Table) -> T,
    ) -> Result<T, BlockError> {
        let state = self.state.lock();
        match &state.broken {
            // Nobody knows who is registered.
            Some(Broken { why, .. }) => {
                Err(BlockError::new(BlockErrorKind::Io, doing).on(&self.name).because(why.clone()))
            }
            None => Ok(look(&state.table)),
        }
    }

    /// Why a port must not write now.
    pub(crate) fn refusal(&self, doing: &'static str) -> BlockError {
        match &self.state.lock().broken {
            Some(Broken { why, .. }) => {
                BlockError::new(BlockErrorKind::Io, doing).on(&self.name).because(why.clone())
            }
            None => BlockError::new(BlockErrorKind::Fenced, doing)
                .on(&self.name)
                .because("the disk is reserved, and this initiator is not registered"),
        }
    }

    /// Changes the table: bars those who lose by it, waits for what they have under way, keeps it, and lets those in who win by it. To be
    /// carried out to its end.
    pub(crate) async fn change(
        &self,
        doing: &'static str,
        change: impl FnOnce(&mut Table) -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let _one = self.changing.lock().await;
        // Whoever asks again has what failed before tried again.
        self.mend_alone().await;
        let before = self.look(doing, Table::clone)?;
        let mut after = before.clone();
        change(&mut after).map_err(|error| error.on(&self.name))?;
        // A disk that was made a member meanwhile has another identity.
        let disk = self.identify.identify(&self.device).await.map_err(|error| error.on(&self.name))?;
        let kept_as = self.state.lock().kept_as;
        if after == before && (kept_as.is_none() || kept_as == Some(disk)) {
            return Ok(());
        }
        let losers: Vec<Arc<Port>> = {
            let mut state = self.state.lock();
            state.next = Some(after.clone());
            let losers = state.ports.values().filter(|port| !after.permits(&port.name));
            losers.inspect(|port| port.bar()).cloned().collect()
        };
        for port in losers {
            port.idle().await;
        }
        let (records, record) = (self.records.clone(), encode(disk, &after));
        let blank = self.blank;
        let kept = on_thread(move || save_as(&*records, disk, blank, &record)).await;
        let mut state = self.state.lock();
        if let Err(error) = kept {
            // Which of both states comes back after a crash, nobody knows.
            let broken = Broken::new(&*self.records, disk, &error, By::Keeping);
            tracing::error!("disk {}: nobody may write any more: {}", self.name, broken.why);
            let error = BlockError::new(BlockErrorKind::Io, doing).on(&self.name).because(broken.why.clone());
            state.break_down(broken);
            return Err(error);
        }
        (state.table, state.kept_as) = (after, Some(disk));
        state.next = None;
        state.let_in();
        Ok(())
    }
}

/// What is kept of a disk, and under which identity. What was kept of it before it became a member is kept under its new one from now on.
fn load_of(
    records: &dyn Records,
    disk: DiskIdentity,
    blank: Option<DiskIdentity>,
) -> io::Result<(Table, Option<DiskIdentity>)> {
    let of = |disk| match records.load(disk)? {
        Some(bytes) => decode(disk, &bytes)
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string())),
        None => Ok(None),
    };
    if let Some(table) = of(disk)? {
        return Ok((table, Some(disk)));
    }
    let Some(blank) = blank.filter(|blank| *blank != disk) else { return Ok((Table::default(), None)) };
    match of(blank)? {
        Some(table) if table != Table::default() => {
            save_as(records, disk, Some(blank), &encode(disk, &table))?;
            Ok((table, Some(disk)))
        }
        _ => Ok((Table::default(), None)),
    }
}

/// Keeps a record; what was kept of the disk before it became a member says nothing from then on.
fn save_as(
    records: &dyn Records,
    disk: DiskIdentity,
    blank: Option<DiskIdentity>,
    record: &[u8],
) -> io::Result<()> {
    records.save(disk, record)?;
    match blank.filter(|blank| *blank != disk) {
        Some(blank)
            if records.load(blank)?.is_some_and(|kept| decode(blank, &kept) != Ok(Table::default())) =>
        {
            records.save(blank, &encode(blank, &Table::default()))
        }
        _ => Ok(()),
    }
}

/// Runs what blocks on a thread of its own.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (done, result) = oneshot::channel();
    shard_runtime::spawn_thread("gate", move || {
        let _ = done.send(work());
    })?;
    result.await.unwrap_or_else(|_| Err(io::Error::other("the thread has ended")))
}
