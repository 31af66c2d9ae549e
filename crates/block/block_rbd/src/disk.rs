//! The disk: ranges become transfers of the session that is there.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{
    BlockDevice, BlockError, BlockErrorKind, BlockFuture, Durability, Geometry, Reservations, UnmapBehavior,
    check_range,
};
use librbd::{Access, Failure, Held};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Address;
use crate::clock::Clock;
use crate::session::{OpenError, Session, Times, blocking, run};
use crate::table::Table;
use crate::verdict::{is_shut_out, kind};

/// Transfers under way at the most; more wait for their turn.
const DEPTH: usize = 128;
/// Bytes of one transfer of zeros at the most.
const ZEROES: u64 = 1 << 30;
const BLOCK: u32 = 512;
/// How often who waits for the end of all transfers looks whether the disk is gone.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A place among the transfers under way. Each transfer holds it to its end, also when nobody waits for it any more.
#[derive(Clone)]
struct Turn(Arc<OwnedSemaphorePermit>);

impl Turn {
    fn held(&self) -> Held {
        Box::new(Arc::clone(&self.0))
    }
}

/// An image of Ceph.
pub struct RbdDisk {
    address: Address,
    pub(crate) name: String,
    access: Access,
    times: Times,
    clock: Clock,
    geometry: Geometry,
    size: u64,
    identity: String,
    depth: Arc<Semaphore>,
    current: Mutex<Arc<Session>>,
    /// Held by who changes the session, the lock or the table.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// The key that this disk was registered under last.
    pub(crate) key: Mutex<Option<u64>>,
    /// Why it has ended for good.
    over: OnceLock<&'static str>,
}

impl RbdDisk {
    /// Connects to the cluster and opens the image.
    ///
    /// # Errors
    /// When it cannot be used.
    pub async fn open(address: Address, access: Access, times: Times) -> Result<Self, OpenError> {
        let wanted = address.clone();
        let opened = run(move || Session::open(&wanted, access, times)).await;
        let no_thread = |why: String| OpenError::Cluster(Failure::Thread(why));
        let (session, facts) = opened.unwrap_or_else(|why| Err(no_thread(why)))?;
        let clock = Clock::start(times.answer).map_err(|why| no_thread(why.to_string()))?;
        Ok(Self {
            name: address.to_string(),
            address,
            access,
            times,
            clock,
            geometry: Geometry {
                block_size: BLOCK,
                physical_block_size: 4096,
                optimal_io_size: 0,
                unmap: UnmapBehavior::Zeroes,
                rotational: false,
                read_only: access == Access::ReadOnly,
            },
            size: facts.size - facts.size % u64::from(BLOCK),
            identity: facts.identity,
            depth: Arc::new(Semaphore::new(DEPTH)),
            current: Mutex::new(Arc::new(session)),
            changing: tokio::sync::Mutex::default(),
            key: Mutex::default(),
            over: OnceLock::new(),
        })
    }

    /// What tells the image from all others, whatever it is called: cluster, pool, image.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Whether it has ended for good, as Ceph has not answered in time: it is to be opened anew.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.over.get().is_some()
    }

    /// Its address.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Ends when nothing that was begun is under way any more, also of what nobody waits for any more as it was given up. A disk that
    /// is gone is not waited for: whoever takes the lock next shuts it out.
    pub async fn settled(&self) {
        while !self.is_gone() {
            if self.clock.timeout(LOOK_EVERY, self.depth.acquire_many(DEPTH as u32)).await.is_some() {
                return;
            }
        }
    }

    pub(crate) fn error(&self, failure: Failure, doing: &'static str) -> BlockError {
        BlockError::new(kind(&failure), doing).on(&self.name).because(failure)
    }

    pub(crate) fn refused(&self, doing: &'static str, why: String) -> BlockError {
        BlockError::new(BlockErrorKind::Fenced, doing).on(&self.name).because(why)
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        check_range(offset, len, self.geometry.block_size, self.size).map_err(|error| error.on(&self.name))
    }

    fn check_write(&self, offset: u64, len: u64, doing: &'static str) -> Result<(), BlockError> {
        self.check(offset, len)?;
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(BlockError::new(BlockErrorKind::ReadOnly, doing).on(&self.name)),
        }
    }

    /// The session as it is; the cluster may have shut it out.
    fn current(&self) -> Arc<Session> {
        Arc::clone(&self.current.lock())
    }

    /// A session that has not been shut out, by who holds `changing`.
    pub(crate) async fn live(&self, doing: &'static str) -> Result<Arc<Session>, BlockError> {
        self.not_over(doing)?;
        let session = self.current();
        if !session.shut_out.load(Ordering::Acquire) {
            return Ok(session);
        }
        let (address, access, times) = (self.address.clone(), self.access, self.times);
        let gone = |why: String| BlockError::new(BlockErrorKind::Gone, doing).on(&self.name).because(why);
        let opened = run(move || Session::open(&address, access, times)).await.map_err(gone)?;
        let (session, facts) = opened.map_err(|error| gone(error.to_string()))?;
        if facts.identity != self.identity {
            return Err(gone("another image has its name now".into()));
        }
        let session = Arc::new(session);
        *self.current.lock() = Arc::clone(&session);
        Ok(session)
    }

    /// A session that may read.
    async fn reader(&self, doing: &'static str) -> Result<Arc<Session>, BlockError> {
        let session = self.current();
        if !session.shut_out.load(Ordering::Acquire) {
            self.not_over(doing)?;
            return Ok(session);
        }
        let _alone = self.changing.lock().await;
        self.live(doing).await
    }

    /// A session that has the lock.
    async fn writer(&self, doing: &'static str) -> Result<Arc<Session>, BlockError> {
        self.not_over(doing)?;
        let may_write = |session: &Session| {
            session.writes.load(Ordering::Acquire) && !session.shut_out.load(Ordering::Acquire)
        };
        let session = self.current();
        if may_write(&session) {
            return Ok(session);
        }
        let _alone = self.changing.lock().await;
        let session = self.live(doing).await?;
        if may_write(&session) {
            return Ok(session);
        }
        let (table, _) = self.table(&session, doing).await?;
        let taker = Arc::clone(&session);
        let taken = match table.holder() {
            Some((_, holder)) if holder == session.address() => {
                blocking(move || taker.take_lock().map(Ok)).await
            }
            Some((key, holder)) => {
                let why = format!("the client at {holder} has the disk reserved (key {key:#018x})");
                return Err(self.refused(doing, why));
            }
            None => blocking(move || taker.take_free_lock()).await,
        };
        match taken {
            Ok(Ok(())) => Ok(session),
            Ok(Err(owner)) => Err(self.refused(
                doing,
                format!("the client at {owner} has the image's exclusive lock; one that was killed has it for up to half a minute"),
            )),
            Err(failure) => {
                self.learn(&session, &failure);
                Err(self.error(failure, doing))
            }
        }
    }

    fn not_over(&self, doing: &'static str) -> Result<(), BlockError> {
        match self.over.get() {
            Some(why) => Err(BlockError::new(BlockErrorKind::Gone, doing).on(&self.name).because(*why)),
            None => Ok(()),
        }
    }

    /// The table of reservations with its version.
    pub(crate) async fn table(
        &self,
        session: &Arc<Session>,
        doing: &'static str,
    ) -> Result<(Table, Option<u64>), BlockError> {
        let reader = Arc::clone(session);
        let read = blocking(move || reader.read_table()).await;
        match read {
            Ok(None) => Ok((Table::default(), None)),
            Ok(Some(object)) => {
                let table = Table::decode(&object.bytes).map_err(|error| {
                    BlockError::new(BlockErrorKind::Io, doing).on(&self.name).because(error)
                })?;
                Ok((table, Some(object.version)))
            }
            Err(failure) => {
                self.learn(session, &failure);
                Err(self.error(failure, doing))
            }
        }
    }

    /// Takes note of what a failure says of the session.
    pub(crate) fn learn(&self, session: &Session, failure: &Failure) {
        match failure.code() {
            _ if is_shut_out(failure) => session.shut_out.store(true, Ordering::Release),
            // The lock is another's.
            Some(30) => session.writes.store(false, Ordering::Release),
            _ => {}
        }
    }

    /// The end of a transfer, which is not waited for without end.
    async fn ended<T>(
        &self,
        session: &Session,
        transfer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let timed_out = Failure::Answer { doing: "wait for Ceph", code: 110 };
        let ended = self.clock.timeout(self.times.answer, transfer).await.unwrap_or(Err(timed_out));
        if let Err(failure) = &ended {
            self.learn(session, failure);
            if failure.code() == Some(110) {
                session.undecided.store(true, Ordering::Release);
                let why = "Ceph has not answered a request in time";
                if self.over.set(why).is_ok() {
                    tracing::error!(disk = self.name, "{why}: the disk is away until it answers again");
                    // Those under way keep their places until Ceph answers them, which may be never.
                    self.depth.close();
                }
            }
        }
        ended
    }

    /// Whether what was refused may be tried again by a new client: one that nobody has registered was shut out for a reservation that
    /// may be over.
    fn may_try_again(&self, failure: &Failure) -> bool {
        is_shut_out(failure) && self.key.lock().is_none()
    }

    async fn read_range(&self, offset: u64, buf: IoBuf) -> Result<IoBuf, BlockError> {
        let (doing, len) = ("read", buf.len());
        self.check(offset, len as u64)?;
        if len == 0 {
            return Ok(buf);
        }
        let turn = self.turn(doing).await?;
        let session = self.reader(doing).await?;
        let failed = match self.ended(&session, session.image.read(offset, buf, turn.held())).await {
            Err(failure) if self.may_try_again(&failure) => {
                let session = self.reader(doing).await?;
                self.ended(&session, session.image.read(offset, IoBuf::new(len), turn.held())).await
            }
            ended => ended,
        };
        failed.map_err(|failure| self.error(failure, doing).at(offset, len as u64))
    }

    async fn turn(&self, doing: &'static str) -> Result<Turn, BlockError> {
        let closed = |_| BlockError::new(BlockErrorKind::Gone, doing).on(&self.name);
        Arc::clone(&self.depth).acquire_owned().await.map(|permit| Turn(Arc::new(permit))).map_err(closed)
    }

    /// Runs `change` with a session that has the lock.
    async fn change<F>(
        &self,
        doing: &'static str,
        (offset, len): (u64, u64),
        change: impl Fn(Arc<Session>, Held) -> F,
    ) -> Result<(), BlockError>
    where
        F: Future<Output = Result<(), Failure>>,
    {
        self.check_write(offset, len, doing)?;
        if len == 0 {
            return Ok(());
        }
        let turn = self.turn(doing).await?;
        let session = self.writer(doing).await?;
        let changed = match self.ended(&session, change(Arc::clone(&session), turn.held())).await {
            Err(failure) if self.may_try_again(&failure) => {
                let session = self.writer(doing).await?;
                self.ended(&session, change(Arc::clone(&session), turn.held())).await
            }
            ended => ended,
        };
        changed.map_err(|failure| self.error(failure, doing).at(offset, len))
    }

    async fn zero(&self, doing: &'static str, offset: u64, len: u64) -> Result<(), BlockError> {
        self.check_write(offset, len, doing)?;
        for at in (0..len).step_by(ZEROES as usize) {
            let (offset, len) = (offset + at, ZEROES.min(len - at));
            let zero = |session: Arc<Session>, held| async move {
                session.image.write_zeroes(offset, len as usize, held).await
            };
            self.change(doing, (offset, len), zero).await?;
        }
        Ok(())
    }
}

impl BlockDevice for RbdDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(self.read_range(offset, buf))
    }

    /// What Ceph has answered is durable on all copies, so both kinds of writes are the same.
    fn write(&self, offset: u64, data: SharedBuf, _: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            let write = |session: Arc<Session>, held| {
                let data = data.clone();
                async move { session.image.write(offset, data, held).await }
            };
            self.change("write", (offset, data.len() as u64), write).await
        })
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            let doing = "flush";
            let turn = self.turn(doing).await?;
            let session = self.reader(doing).await?;
            if !session.writes.load(Ordering::Acquire) {
                // It has written nothing, or has let go of the lock, before which everything was flushed.
                return Ok(());
            }
            let flushed = self.ended(&session, session.image.flush(turn.held())).await;
            match flushed {
                // Everything that was answered is durable, whether this client is let in or not.
                Err(failure) if self.may_try_again(&failure) => Ok(()),
                flushed => flushed.map_err(|failure| self.error(failure, doing)),
            }
        })
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(self.zero("unmap", offset, len))
    }

    fn write_zeroes(&self, offset: u64, len: u64, _: Durability) -> BlockFuture<'_, ()> {
        Box::pin(self.zero("write zeroes", offset, len))
    }

    fn reservations(&self) -> Option<&dyn Reservations> {
        (self.access == Access::ReadWrite).then_some(self)
    }
}
