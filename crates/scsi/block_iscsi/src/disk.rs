//! The disk: reads and writes become orders for its lanes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{
    BlockDevice, BlockError, BlockErrorKind, BlockFuture, Durability, Geometry, Reservations, UnmapBehavior,
    check_range,
};
use futures_util::future::try_join_all;
use iscsi_client::ClientError;
use parking_lot::Mutex;
use scsi_core::WireLun;
use scsi_defs::answer::Capacity;
use scsi_defs::request;
use shard_runtime::spawn_local;
use tokio::sync::Notify;

use crate::connection::Connection;
use crate::greeting::{self, Facts, greet};
use crate::lane::{Data, Failure, Job, Lane, Order, Outcome};
use crate::serve;
use crate::settings::Settings;

/// Bytes of one command at the most, whatever the target would take: with more, others wait behind it.
const PIECE: u64 = 1 << 20;
/// Bytes that one command zeroes or unmaps at the most: targets may take long for more.
const ZERO_PIECE: u64 = 64 << 20;

/// What all parts of a disk share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) name: String,
    pub(crate) lun: [u8; 8],
    pub(crate) lanes: Vec<Arc<Lane>>,
    facts: Facts,
    size: AtomicU64,
    resized: Notify,
    /// A question for the size is under way.
    sizing: AtomicBool,
    /// The shard that opened it: the lanes' tasks are there.
    home: Home,
    /// Volatile writes that completed, counted; and how many of them a flush that succeeded covers.
    written: AtomicU64,
    flushed: AtomicU64,
    poisoned: AtomicBool,
    /// The target does not know WRITE SAME.
    no_write_same: AtomicBool,
    closed: Mutex<Option<Failure>>,
    pub(crate) registration: Mutex<Registration>,
    /// Changes of the registration, one at a time.
    pub(crate) registering: tokio::sync::Mutex<()>,
}

/// Wakes what runs on the disk's own shard.
#[derive(Default)]
struct Home {
    size_wanted: Notify,
}

/// What this disk is registered under.
#[derive(Default)]
pub(crate) struct Registration {
    pub(crate) key: Option<u64>,
    /// The target has forgotten it, or somebody has taken it away while we were not connected.
    pub(crate) lost: bool,
}

impl Shared {
    /// Whether the disk is closed or gone.
    pub(crate) fn is_over(&self) -> bool {
        self.closed.lock().is_some()
    }

    /// Ends everything that waits and comes.
    pub(crate) fn give_up(&self, kind: BlockErrorKind, why: &str) {
        self.closed.lock().get_or_insert_with(|| Failure { kind, why: why.to_owned() });
        self.lanes.iter().for_each(|lane| lane.close(kind, why));
        self.home.size_wanted.notify_one();
    }

    /// Ends a job of a disk that is over.
    pub(crate) fn fail_closed(&self, job: Job) {
        let closed = self.closed.lock().clone();
        let gone = Failure { kind: BlockErrorKind::Gone, why: "the disk is closed".into() };
        job.end(Err(closed.unwrap_or(gone)));
    }

    /// Looks at a unit that was connected to again: whether it is still the same, and what it has forgotten meanwhile.
    pub(crate) async fn meet_again(&self, connection: &mut Connection) -> Result<(), ClientError> {
        let greeting = greet(connection, &self.settings, self.lun).await?;
        let (now, before) = (&greeting.facts, &self.facts);
        if now.identity != before.identity || now.capacity.block != before.capacity.block {
            return Err(ClientError::NotADisk("there is another unit in its place".into()));
        }
        if greeting.started {
            self.hear_of_start();
        }
        self.set_size(now.capacity);
        let key = self.registration.lock().key;
        if let Some(key) = key
            && !greeting::is_registered(connection, &self.settings, self.lun, key).await?
        {
            let mut registration = self.registration.lock();
            if registration.key == Some(key) {
                tracing::error!("{}: the target does not have our registration any more", self.name);
                registration.lost = true;
            }
        }
        Ok(())
    }

    /// The target has started anew: its cache is empty.
    pub(crate) fn hear_of_start(&self) {
        let unflushed = self.written.load(Ordering::Acquire) != self.flushed.load(Ordering::Acquire);
        if self.facts.write_cache && unflushed && !self.poisoned.swap(true, Ordering::AcqRel) {
            tracing::error!(
                "{}: the target has started anew with writes in its cache that no flush had covered",
                self.name
            );
        }
    }

    pub(crate) fn set_size(&self, capacity: Capacity) {
        if capacity.block == self.facts.capacity.block
            && self.size.swap(capacity.bytes(), Ordering::AcqRel) != capacity.bytes()
        {
            tracing::info!("{}: the unit has {} bytes now", self.name, capacity.bytes());
            self.resized.notify_waiters();
        }
    }

    /// Has the size asked for, on the disk's own shard.
    pub(crate) fn look_at_size(&self) {
        if !self.sizing.swap(true, Ordering::AcqRel) {
            self.home.size_wanted.notify_one();
        }
    }

    /// Carries an order out on the lane with the least to do.
    pub(crate) async fn carry_out(&self, order: Order) -> Outcome {
        match self.lanes.iter().min_by_key(|lane| lane.load()) {
            Some(lane) => on(lane, order).await,
            None => Err(Failure { kind: BlockErrorKind::Gone, why: "the disk has no lane".into() }),
        }
    }

    fn check_poison(&self, doing: &'static str) -> Result<(), BlockError> {
        // One that is gone says so itself.
        match self.poisoned.load(Ordering::Acquire) && !self.is_over() {
            false => Ok(()),
            true => Err(BlockError::new(BlockErrorKind::Poisoned, doing).on(&self.name)),
        }
    }
}

/// Carries an order out on a lane.
pub(crate) async fn on(lane: &Arc<Lane>, order: Order) -> Outcome {
    let gone = || Err(Failure { kind: BlockErrorKind::Gone, why: "the disk's shard has ended".into() });
    lane.submit(order).await.unwrap_or_else(|_| gone())
}

/// An order that takes up to `len` bytes.
pub(crate) fn order_in(cdb: &[u8], len: usize) -> Order {
    Order::new(cdb, Data::In(IoBuf::zeroed(len)))
}

/// A unit of an iSCSI target.
pub struct IscsiDisk {
    pub(crate) shared: Arc<Shared>,
    geometry: Geometry,
}

impl IscsiDisk {
    /// Connects all lanes and asks the unit what it is. Call on a shard, inside its `LocalSet`: the sessions live there.
    ///
    /// # Errors
    /// When the target does not let us in, or the unit is no disk, or not ready.
    pub async fn open(settings: Settings) -> Result<Self, ClientError> {
        let url = &settings.login.url;
        let (name, lun) = (
            format!("iscsi://{}:{}/{}/{}", url.host, url.port, url.target, url.lun),
            WireLun::from_number(url.lun).0,
        );
        let mut connections = Vec::new();
        let mut first: Option<Facts> = None;
        for lane in 0..settings.lanes.clamp(1, Settings::MAX_LANES) {
            let mut connection = Connection::open(&settings, &settings.login_of(lane)).await?;
            let facts = greet(&mut connection, &settings, lun).await?.facts;
            if first.as_ref().is_some_and(|first| first.identity != facts.identity) {
                return Err(ClientError::NotADisk("its sessions lead to different units".into()));
            }
            first.get_or_insert(facts);
            connections.push(connection);
        }
        let facts = first.ok_or(ClientError::Protocol("there is no session"))?;
        let geometry = Geometry {
            block_size: facts.capacity.block,
            physical_block_size: facts.physical,
            optimal_io_size: 0,
            unmap: match (facts.thin.write_same && facts.zeros, facts.thin.unmap) {
                (true, _) => UnmapBehavior::Zeroes,
                (false, true) => UnmapBehavior::Unspecified,
                (false, false) => UnmapBehavior::Ignored,
            },
            rotational: facts.rotates,
            read_only: facts.write_protected,
        };
        let shared = Arc::new(Shared {
            settings,
            name,
            lun,
            lanes: connections.iter().map(|_| Arc::default()).collect(),
            size: AtomicU64::new(facts.capacity.bytes()),
            facts,
            resized: Notify::new(),
            sizing: AtomicBool::new(false),
            home: Home::default(),
            // What an earlier process wrote may still be in the target's cache: the first flush must reach it.
            written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            poisoned: AtomicBool::new(false),
            no_write_same: AtomicBool::new(false),
            closed: Mutex::default(),
            registration: Mutex::default(),
            registering: tokio::sync::Mutex::new(()),
        });
        for (lane, connection) in connections.into_iter().enumerate() {
            spawn_local(serve::run(Arc::clone(&shared), lane, connection));
        }
        spawn_local(watch_size(Arc::clone(&shared)));
        Ok(Self { shared, geometry })
    }

    /// What tells the unit from any other (vital product data page 83h or 80h); empty when it does not say.
    #[must_use]
    pub fn identity(&self) -> &[u8] {
        &self.shared.facts.identity
    }

    /// Its address, without secrets.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    fn blocks(&self, bytes: u64) -> u64 {
        bytes / u64::from(self.geometry.block_size)
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        check_range(offset, len, self.geometry.block_size, self.size())
            .map_err(|error| error.on(&self.shared.name))
    }

    fn check_write(&self, doing: &'static str, offset: u64, len: u64) -> Result<(), BlockError> {
        self.check(offset, len)?;
        let kind = match (self.geometry.read_only, self.shared.registration.lock().lost) {
            (true, _) => BlockErrorKind::ReadOnly,
            (false, true) => BlockErrorKind::Fenced,
            (false, false) => return self.shared.check_poison(doing),
        };
        Err(BlockError::new(kind, doing).on(&self.shared.name).at(offset, len))
    }

    fn error(&self, failure: Failure, doing: &'static str) -> BlockError {
        BlockError::new(failure.kind, doing).on(&self.shared.name).because(failure.why)
    }

    /// Cuts a range into commands of up to `piece` bytes, given as offset and length.
    fn pieces(&self, offset: u64, len: u64, piece: u64) -> impl Iterator<Item = (u64, u64)> {
        let block = u64::from(self.geometry.block_size);
        let piece = (piece / block * block).max(block);
        (0..len.div_ceil(piece)).map(move |n| (offset + n * piece, piece.min(len - n * piece)))
    }

    /// Bytes of one read or write at the most.
    fn piece(&self) -> u64 {
        let most =
            self.shared.facts.most_blocks.map(|most| u64::from(most) * u64::from(self.geometry.block_size));
        most.unwrap_or(PIECE).min(PIECE)
    }

    async fn read_piece(&self, at: u64, buf: IoBuf) -> Result<IoBuf, BlockError> {
        let len = buf.len() as u64;
        let cdb = request::read(self.blocks(at), self.blocks(len) as u32);
        match self.shared.carry_out(Order::new(&cdb, Data::In(buf))).await {
            Ok((Data::In(buf), _)) => Ok(buf),
            Ok(_) => Err(BlockError::new(BlockErrorKind::Io, "read").on(&self.shared.name)),
            Err(failure) => Err(self.error(failure, "read").at(at, len)),
        }
    }

    async fn read_range(&self, offset: u64, mut buf: IoBuf) -> Result<IoBuf, BlockError> {
        let len = buf.len() as u64;
        self.check(offset, len)?;
        if len <= self.piece() {
            return if len == 0 { Ok(buf) } else { self.read_piece(offset, buf).await };
        }
        let pieces = self.pieces(offset, len, self.piece());
        let reads = pieces.map(|(at, len)| self.read_piece(at, IoBuf::new(len as usize)));
        let mut at = 0;
        for piece in try_join_all(reads).await? {
            buf[at..at + piece.len()].copy_from_slice(&piece);
            at += piece.len();
        }
        Ok(buf)
    }

    /// Runs commands that write, and sees to their durability; `fua` says that they do so themselves.
    async fn change(
        &self,
        doing: &'static str,
        durability: Durability,
        fua: bool,
        commands: impl Iterator<Item = (u64, u64, Order)>,
    ) -> Result<(), BlockError> {
        let cached = self.shared.facts.write_cache && !fua;
        let work = commands.map(|(at, len, order)| async move {
            let done = self.shared.carry_out(order).await;
            done.map(drop).map_err(|failure| self.error(failure, doing).at(at, len))
        });
        let done = try_join_all(work).await.map(drop);
        if cached {
            // Also what has failed may be there in part.
            self.shared.written.fetch_add(1, Ordering::AcqRel);
        }
        if durability == Durability::Volatile {
            return done;
        }
        if let Err(error) = done {
            // What a target without space or rights refuses has changed nothing; of anything else nobody knows what is lost.
            if !leaves_durable(error.kind()) {
                self.shared.poisoned.store(true, Ordering::Release);
            }
            return Err(error);
        }
        if cached { self.flush_cache().await } else { self.shared.check_poison(doing) }
    }

    async fn write_range(
        &self,
        offset: u64,
        data: SharedBuf,
        durability: Durability,
    ) -> Result<(), BlockError> {
        let len = data.len() as u64;
        self.check_write("write", offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let durable = durability == Durability::Durable && self.shared.facts.write_cache;
        let fua = durable && self.shared.facts.fua;
        let commands = self.pieces(offset, len, self.piece()).map(|(at, len)| {
            let cdb = request::write(self.blocks(at), self.blocks(len) as u32, fua);
            let from = (at - offset) as usize;
            (at, len, Order::new(&cdb, Data::Out(data.slice(from..from + len as usize))))
        });
        self.change("write", durability, fua, commands).await
    }

    /// Makes a range read as zeros; with `unmap`, by giving its blocks up where that does.
    async fn zero(
        &self,
        doing: &'static str,
        (offset, len): (u64, u64),
        durability: Durability,
        unmap: bool,
    ) -> Result<(), BlockError> {
        self.check_write(doing, offset, len)?;
        let block = self.geometry.block_size as usize;
        if len == 0 {
            return Ok(());
        }
        if !self.shared.no_write_same.load(Ordering::Relaxed) {
            let zeros = IoBuf::zeroed(block).freeze();
            let most =
                self.shared.facts.most_same.unwrap_or(u64::MAX).saturating_mul(block as u64).min(ZERO_PIECE);
            let commands = self.pieces(offset, len, most).map(|(at, len)| {
                let cdb = request::write_same(self.blocks(at), self.blocks(len) as u32, unmap);
                (at, len, Order::new(&cdb, Data::Out(zeros.clone())))
            });
            // Volatile at first: that the target does not know the command is no failure of durability.
            match self.change(doing, Durability::Volatile, false, commands).await {
                Err(error) if error.kind() == BlockErrorKind::Unsupported => {
                    self.shared.no_write_same.store(true, Ordering::Relaxed);
                }
                done if durability == Durability::Volatile => return done,
                Ok(()) if self.shared.facts.write_cache => return self.flush_cache().await,
                Ok(()) => return self.shared.check_poison(doing),
                Err(error) => {
                    if !leaves_durable(error.kind()) {
                        self.shared.poisoned.store(true, Ordering::Release);
                    }
                    return Err(error);
                }
            }
        }
        let zeros = IoBuf::zeroed(self.piece().min(len) as usize).freeze();
        let commands = self.pieces(offset, len, self.piece()).map(|(at, len)| {
            let cdb = request::write(self.blocks(at), self.blocks(len) as u32, false);
            (at, len, Order::new(&cdb, Data::Out(zeros.slice(0..len as usize))))
        });
        self.change(doing, durability, false, commands).await
    }

    async fn give_back(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        if self.geometry.unmap == UnmapBehavior::Zeroes {
            return self.zero("unmap", (offset, len), Durability::Volatile, true).await;
        }
        self.check_write("unmap", offset, len)?;
        if self.geometry.unmap == UnmapBehavior::Ignored || len == 0 {
            return Ok(());
        }
        let most = self.shared.facts.most_unmapped.map_or(u64::MAX, u64::from);
        let most = most.saturating_mul(u64::from(self.geometry.block_size)).min(ZERO_PIECE);
        let commands = self.pieces(offset, len, most).map(|(at, len)| {
            let list = request::unmap_list(self.blocks(at), self.blocks(len) as u32);
            (at, len, Order::new(&request::UNMAP, Data::Out(IoBuf::copy_from(&list).freeze())))
        });
        self.change("unmap", Durability::Volatile, false, commands).await
    }

    async fn flush_cache(&self) -> Result<(), BlockError> {
        self.shared.check_poison("flush")?;
        let covered = self.shared.written.load(Ordering::Acquire);
        match self.shared.carry_out(Order::new(&request::SYNCHRONIZE_CACHE, Data::None)).await {
            Ok(_) => {
                self.shared.flushed.fetch_max(covered, Ordering::AcqRel);
                // The target may have started anew meanwhile.
                self.shared.check_poison("flush")
            }
            // One that has no cache need not know how to flush it.
            Err(Failure { kind: BlockErrorKind::Unsupported, .. }) if !self.shared.facts.write_cache => {
                Ok(())
            }
            Err(failure) => {
                if failure.kind != BlockErrorKind::Fenced {
                    self.shared.poisoned.store(true, Ordering::Release);
                }
                Err(self.error(failure, "flush"))
            }
        }
    }
}

/// Whether a durable write that failed so leaves what was durable before as it is, and known.
fn leaves_durable(kind: BlockErrorKind) -> bool {
    matches!(
        kind,
        BlockErrorKind::NoSpace
            | BlockErrorKind::ReadOnly
            | BlockErrorKind::Fenced
            | BlockErrorKind::OutOfRange
    )
}

/// Asks for the size when it is said to have changed.
async fn watch_size(shared: Arc<Shared>) {
    loop {
        shared.home.size_wanted.notified().await;
        if shared.is_over() {
            return;
        }
        // Cleared first: what is said from now on may be of a later size.
        shared.sizing.store(false, Ordering::Release);
        serve::learn_size(Arc::clone(&shared)).await;
    }
}

impl Drop for IscsiDisk {
    /// Ends the sessions. Registrations stay: the target keeps them.
    fn drop(&mut self) {
        self.shared.give_up(BlockErrorKind::Gone, "the disk is closed");
    }
}

impl BlockDevice for IscsiDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn size(&self) -> u64 {
        self.shared.size.load(Ordering::Acquire)
    }

    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(self.read_range(offset, buf))
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(self.write_range(offset, data, durability))
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(self.flush_cache())
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(self.give_back(offset, len))
    }

    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(self.zero("write zeroes", (offset, len), durability, false))
    }

    fn wait_resize(&self, known: u64) -> BlockFuture<'_, u64> {
        Box::pin(async move {
            loop {
                let resized = self.shared.resized.notified();
                let size = self.size();
                if size != known {
                    return Ok(size);
                }
                resized.await;
            }
        })
    }

    fn reservations(&self) -> Option<&dyn Reservations> {
        Some(self)
    }
}
