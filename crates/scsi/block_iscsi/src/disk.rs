//! The disk: reads and writes become orders for its lanes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{
    BlockDevice, BlockError, BlockErrorKind, BlockFuture, Durability, Geometry, Reservations, UnmapBehavior,
    check_range,
};
use futures_util::future::try_join_all;
use iscsi_client::ClientError;
use parking_lot::Mutex;
use scsi_core::WireLun;
use scsi_defs::request;
use shard_runtime::{sleep, spawn_local};
use tokio::sync::Notify;

use crate::connection::Connection;
use crate::greeting::{Facts, greet};
use crate::lane::{Data, Failure, Order};
use crate::serve;
use crate::settings::Settings;
use crate::shared::{Home, Shared};

/// Bytes of one command at the most, whatever the target would take: with more, others wait behind it.
const PIECE: u64 = 1 << 20;

/// How often is looked whether everything has ended.
const LOOK: Duration = Duration::from_millis(5);

/// A unit of an iSCSI target.
pub struct IscsiDisk {
    pub(crate) shared: Arc<Shared>,
    pub(crate) geometry: Geometry,
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
            doubts: AtomicU64::new(0),
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

    /// Whether it has ended for good, as its target stayed away for too long, or has lost writes: what is there is to be opened anew.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.shared.is_over() || self.shared.poisoned.load(Ordering::Acquire)
    }

    /// Ends it at once and for good, as somebody knows that its target is not there any more: nobody waits for time-outs.
    pub fn end(&self, why: &str) {
        self.shared.give_up(BlockErrorKind::Gone, why);
    }

    /// Ends when nothing that was begun is under way any more, also of what nobody waits for. Call on a shard.
    pub async fn settled(&self) {
        while self.shared.lanes.iter().any(|lane| lane.load() > 0) {
            sleep(LOOK).await;
        }
    }

    /// Its address, without secrets.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    pub(crate) fn blocks(&self, bytes: u64) -> u64 {
        bytes / u64::from(self.geometry.block_size)
    }

    pub(crate) fn check(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        check_range(offset, len, self.geometry.block_size, self.size())
            .map_err(|error| error.on(&self.shared.name))
    }

    pub(crate) fn error(&self, failure: Failure, doing: &'static str) -> BlockError {
        BlockError::new(failure.kind, doing).on(&self.shared.name).because(failure.why)
    }

    /// Cuts a range into commands of up to `piece` bytes, given as offset and length.
    pub(crate) fn pieces(&self, offset: u64, len: u64, piece: u64) -> impl Iterator<Item = (u64, u64)> {
        let block = u64::from(self.geometry.block_size);
        let piece = (piece / block * block).max(block);
        (0..len.div_ceil(piece)).map(move |n| (offset + n * piece, piece.min(len - n * piece)))
    }

    /// Bytes of one read or write at the most.
    pub(crate) fn piece(&self) -> u64 {
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
