//! [`Flow`]: what one client does with one disk; how its requests enter, wait and leave.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use qos_scheduler::{Answer, FlowId, Kind, RequestId};
use shard_runtime::Monotonic;
use tokio::sync::oneshot;

use super::{Disk, Gate};
use crate::rules::DiskName;
use crate::window::Window;

/// Numbers of flows, of all gates: one that comes again is another flow, which counts from zero.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// One client's use of one disk.
pub struct Flow {
    disk: Arc<Disk>,
    client: String,
    pub(crate) id: FlowId,
    /// Requests that have left the volume, and how long they were there together, in nanoseconds.
    pub(crate) done: AtomicU64,
    pub(crate) disk_nanos: AtomicU64,
    /// The part of `disk_nanos` that reads took.
    pub(crate) read_nanos: AtomicU64,
    pub(crate) number: u64,
    pub(crate) window: Mutex<Window>,
}

/// What becomes of a request that enters.
pub enum Entry {
    /// It goes to the volume now.
    Now(Permit),
    /// It waits.
    Later(Turn),
}

/// As many requests of the flow, or of all flows, wait as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

impl Flow {
    pub(crate) fn new(disk: Arc<Disk>, client: String, id: FlowId, now: u64) -> Self {
        Self {
            disk,
            client,
            id,
            done: AtomicU64::new(0),
            disk_nanos: AtomicU64::new(0),
            read_nanos: AtomicU64::new(0),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            window: Mutex::new(Window::new(now)),
        }
    }

    /// The client.
    #[must_use]
    pub fn client(&self) -> &str {
        &self.client
    }

    pub(crate) fn disk_name(&self) -> &DiskName {
        &self.disk.name
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.disk.gate
    }

    /// A request of so many bytes enters.
    ///
    /// # Errors
    /// A queue is full.
    pub fn enter(self: &Arc<Self>, kind: Kind, bytes: u64) -> Result<Entry, Refused> {
        let gate = self.gate();
        let now = gate.now();
        let (send, turn) = {
            let mut state = gate.state.lock();
            if state.scheduler.try_pass(now, self.id, kind, bytes) {
                drop(state);
                return Ok(Entry::Now(Permit::new(self.clone(), now, Asks { kind, bytes, held: 0 })));
            }
            let (send, turn) = oneshot::channel();
            let waiter = Waiter { turn: send, flow: self.clone(), kind, bytes };
            match state.scheduler.enqueue(now, self.id, kind, bytes, waiter) {
                Ok(request) => (None, Some(Turn { flow: self.clone(), request, turn })),
                Err((_, waiter)) => (Some(waiter), None),
            }
        };
        // Let go of without the lock.
        drop(send);
        let turn = turn.ok_or(Refused)?;
        gate.pump(now, None);
        Ok(Entry::Later(turn))
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        let now = self.gate().now();
        let mut state = self.disk.gate.state.lock();
        // Nothing waits: what waits holds its flow.
        let left = state.scheduler.remove_flow(now, self.id);
        if let Some(known) = state.disks.get_mut(&self.disk.name)
            && known.flows.get(&self.client).is_some_and(|flow| flow.strong_count() == 0)
        {
            known.flows.remove(&self.client);
        }
        drop(state);
        drop(left);
        // What was left to this one others may have, and nobody else may tell them.
        self.gate().pump(now, None);
    }
}

/// What a request is, and how long it waited.
#[derive(Clone, Copy)]
pub(crate) struct Asks {
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
    pub(crate) held: u64,
}

/// The right of one request to be at the volume, until it is dropped.
pub struct Permit {
    /// Absent once it was given back.
    flow: Option<Arc<Flow>>,
    since: u64,
    asks: Asks,
}

impl Permit {
    pub(crate) fn new(flow: Arc<Flow>, since: u64, asks: Asks) -> Self {
        Self { flow: Some(flow), since, asks }
    }

    /// When it was given, by the gate's clock.
    #[must_use]
    pub fn since(&self) -> Monotonic {
        Monotonic(self.since)
    }

    /// Gives it back at this time, which was read from the gate's clock: looking at that is most of what a request costs that nothing
    /// holds back.
    pub fn leave(mut self, now: Monotonic) {
        self.end(|_| now);
    }

    fn end(&mut self, now: impl FnOnce(&Gate) -> Monotonic) {
        let Some(flow) = self.flow.take() else { return };
        let now = now(flow.gate()).0;
        flow.done.fetch_add(1, Ordering::Relaxed);
        let nanos = now.saturating_sub(self.since);
        flow.disk_nanos.fetch_add(nanos, Ordering::Relaxed);
        let Asks { kind, bytes, held } = self.asks;
        if kind == Kind::Read {
            flow.read_nanos.fetch_add(nanos, Ordering::Relaxed);
        }
        flow.gate().pump(now, Some((&flow, Answer { kind, bytes, nanos, held })));
    }

    /// Gives back a right that nobody used; whose it was.
    pub(crate) fn unused(mut self) -> Option<Arc<Flow>> {
        self.flow.take()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end(|gate| gate.clock.now());
    }
}

/// A request that waits. Dropped before its turn has come, it is as if it had never entered.
pub struct Turn {
    flow: Arc<Flow>,
    request: RequestId,
    turn: oneshot::Receiver<Permit>,
}

impl Future for Turn {
    /// `None` only if its flow was taken away, which does not happen while this is held.
    type Output = Option<Permit>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.turn).poll(context).map(Result::ok)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let gate = self.flow.gate();
        let now = gate.now();
        let waiter = gate.state.lock().scheduler.cancel(now, self.request);
        if waiter.is_some() {
            // Whom it stood before may go on.
            gate.pump(now, None);
        }
        // A permit that came in the meantime is dropped with the channel.
        self.turn.close();
    }
}

/// Who waits for a permit.
pub(crate) struct Waiter {
    pub(crate) turn: oneshot::Sender<Permit>,
    pub(crate) flow: Arc<Flow>,
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
}
