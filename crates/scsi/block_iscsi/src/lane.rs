//! Jobs on their way to a session.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::BlockErrorKind;
use iscsi_client::Transfer;
use parking_lot::Mutex;
use shard_runtime::Monotonic;
use tokio::sync::{Notify, oneshot};

/// How often one job is begun at the most, for whatever reasons it was not carried out.
pub(crate) const ATTEMPTS: u32 = 64;

/// A job's data.
#[derive(Debug)]
pub(crate) enum Data {
    None,
    /// Filled by the target.
    In(IoBuf),
    Out(SharedBuf),
}

impl Data {
    pub(crate) fn transfer(&self) -> Transfer {
        match self {
            Self::None => Transfer::None,
            Self::In(buf) => Transfer::In(buf.len() as u32),
            Self::Out(buf) => Transfer::Out(buf.len() as u32),
        }
    }
}

/// What a disk has to be told to do.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) cdb: [u8; 16],
    pub(crate) cdb_len: usize,
    pub(crate) data: Data,
    /// What comes may be shorter than the buffer.
    pub(crate) may_be_short: bool,
    /// Whether it may be done twice.
    pub(crate) repeatable: bool,
    /// What it writes may stay in the target's cache.
    pub(crate) cached: bool,
    /// It changes what is on the disk.
    pub(crate) changes: bool,
}

impl Order {
    pub(crate) fn new(cdb: &[u8], data: Data) -> Self {
        let mut bytes = [0; 16];
        let len = cdb.len().min(16);
        bytes[..len].copy_from_slice(&cdb[..len]);
        let (may_be_short, repeatable, cached, changes) = (false, true, false, false);
        Self { cdb: bytes, cdb_len: len, data, may_be_short, repeatable, cached, changes }
    }

    pub(crate) fn once(self) -> Self {
        Self { repeatable: false, ..self }
    }

    pub(crate) fn short(self) -> Self {
        Self { may_be_short: true, ..self }
    }
}

/// Why an order was not carried out, or perhaps not.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: BlockErrorKind,
    pub(crate) why: String,
}

/// How an order ended: the buffer comes back with the bytes that came.
pub(crate) type Outcome = Result<(Data, usize), Failure>;

/// An order under way.
pub(crate) struct Job {
    pub(crate) order: Order,
    reply: oneshot::Sender<Outcome>,
    /// When it was begun last.
    pub(crate) begun: Monotonic,
    /// Since when the target has been busy for it.
    pub(crate) busy_since: Option<Monotonic>,
    pub(crate) attempts: u32,
    /// An earlier sending was ended before it was done: what it has done nobody knows.
    pub(crate) cut: bool,
    _load: Load,
}

impl Job {
    pub(crate) fn end(self, result: Result<usize, Failure>) {
        let data = self.order.data;
        let _ = self.reply.send(result.map(|moved| (data, moved)));
    }

    pub(crate) fn fail(self, kind: BlockErrorKind, why: &str) {
        // Who writes must not take it for not done.
        let unknown = self.cut && !matches!(self.order.data, Data::In(_));
        let why = match unknown {
            true => format!(
                "{why}; an earlier sending was cut short, and whether it was carried out is not known"
            ),
            false => why.to_owned(),
        };
        self.end(Err(Failure { kind, why }));
    }

    /// Nobody waits for it any more.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.reply.is_closed()
    }
}

/// Counts a job to its lane as long as it lives.
struct Load(Arc<Lane>);

impl Drop for Load {
    fn drop(&mut self) {
        self.0.load.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One session, as others see it.
#[derive(Default)]
pub(crate) struct Lane {
    jobs: Mutex<Queue>,
    /// Jobs that wait or run.
    load: AtomicUsize,
    /// Wakes the lane's task.
    pub(crate) work: Notify,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Why nothing is taken any more.
    closed: Option<Failure>,
}

impl Lane {
    pub(crate) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// Puts an order in the queue.
    pub(crate) fn submit(self: &Arc<Self>, order: Order) -> oneshot::Receiver<Outcome> {
        let (reply, receiver) = oneshot::channel();
        self.load.fetch_add(1, Ordering::Relaxed);
        let load = Load(Arc::clone(self));
        let job =
            Job { order, reply, begun: Monotonic(0), busy_since: None, attempts: 0, cut: false, _load: load };
        let mut queue = self.jobs.lock();
        match &queue.closed {
            Some(failure) => {
                let failure = failure.clone();
                drop(queue);
                job.end(Err(failure));
            }
            None => {
                queue.jobs.push_back(job);
                drop(queue);
                self.work.notify_one();
            }
        }
        receiver
    }

    /// The next job, unless nobody waits for it any more.
    pub(crate) fn take(&self) -> Option<Job> {
        let mut queue = self.jobs.lock();
        loop {
            let job = queue.jobs.pop_front()?;
            if !job.is_forgotten() {
                return Some(job);
            }
        }
    }

    /// Puts jobs back, before all others. They end where nothing is taken any more: another lane may have found meanwhile that the target is
    /// gone, and nobody would ever look for them here.
    pub(crate) fn put_back(&self, jobs: Vec<Job>) {
        let closed = {
            let mut queue = self.jobs.lock();
            let Some(closed) = &queue.closed else {
                jobs.into_iter().rev().for_each(|job| queue.jobs.push_front(job));
                return;
            };
            closed.clone()
        };
        jobs.into_iter().for_each(|job| job.fail(closed.kind, &closed.why));
    }

    /// Ends all that waits, and all that comes.
    pub(crate) fn close(&self, kind: BlockErrorKind, why: &str) {
        let jobs = {
            let mut queue = self.jobs.lock();
            queue.closed.get_or_insert_with(|| Failure { kind, why: why.to_owned() });
            std::mem::take(&mut queue.jobs)
        };
        jobs.into_iter().for_each(|job| job.fail(kind, why));
        self.work.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_back_when_the_disk_is_gone_ends() {
        let lane = Arc::new(Lane::default());
        let mut waits = lane.submit(Order::new(&[0; 6], Data::None));
        let job = lane.take().expect("it was submitted");
        lane.close(BlockErrorKind::Gone, "the target stays away");
        lane.put_back(vec![job]);
        let ended = waits.try_recv().expect("nobody would look for it any more");
        assert!(matches!(ended, Err(Failure { kind: BlockErrorKind::Gone, .. })), "{ended:?}");
        assert_eq!(lane.load(), 0);
    }
}
