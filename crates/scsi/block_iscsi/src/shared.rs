//! What all parts of a disk share: its lanes, what it knows of the unit, and whether it has failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aligned_buffer::IoBuf;
use block_device::{BlockError, BlockErrorKind};
use iscsi_client::ClientError;
use parking_lot::Mutex;
use scsi_defs::answer::Capacity;
use tokio::sync::Notify;

use crate::connection::Connection;
use crate::greeting::{self, Facts, greet};
use crate::lane::{Data, Failure, Job, Lane, Order, Outcome};
use crate::settings::Settings;

/// What all parts of a disk share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) name: String,
    pub(crate) lun: [u8; 8],
    pub(crate) lanes: Vec<Arc<Lane>>,
    pub(crate) facts: Facts,
    pub(crate) size: AtomicU64,
    pub(crate) resized: Notify,
    /// A question for the size is under way.
    pub(crate) sizing: AtomicBool,
    /// The shard that opened it: the lanes' tasks are there.
    pub(crate) home: Home,
    /// Commands that ended with something in the target's cache, counted; and how many of them a flush that succeeded covers.
    pub(crate) written: AtomicU64,
    pub(crate) flushed: AtomicU64,
    pub(crate) poisoned: AtomicBool,
    /// The target does not know WRITE SAME.
    pub(crate) no_write_same: AtomicBool,
    pub(crate) closed: Mutex<Option<Failure>>,
    /// Counts what has made it doubtful that commands under way are answered at all: each lane asks then.
    pub(crate) doubts: AtomicU64,
    pub(crate) registration: Mutex<Registration>,
    /// Changes of the registration, one at a time.
    pub(crate) registering: tokio::sync::Mutex<()>,
}

/// Wakes what runs on the disk's own shard.
#[derive(Default)]
pub(crate) struct Home {
    pub(crate) size_wanted: Notify,
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

    /// Somebody has taken the disk, or has ended commands of one lane: those of the others may have been ended without an answer.
    pub(crate) fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::AcqRel);
        self.lanes.iter().for_each(|lane| lane.work.notify_one());
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

    pub(crate) fn check_poison(&self, doing: &'static str) -> Result<(), BlockError> {
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
