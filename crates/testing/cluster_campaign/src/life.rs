//! What the tasks of one life of a node share: what they wait for, what they send, and the permit.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use cluster_store::{Outcome, StoreError, Transaction};
use pool_ownership::{BootTime, Failure, Order};

use crate::case::Sabotage;
use crate::disk::{Command, DiskReply};

/// Virtual nanoseconds, the true time.
pub(crate) type Time = u64;
pub(crate) const MILLISECOND: Time = 1_000_000;
pub(crate) const SECOND: Time = 1000 * MILLISECOND;

/// What a task waits for.
pub(crate) type WaitId = u64;

pub(crate) enum Answer {
    /// `None`: no answer in time.
    Disk(Option<DiskReply>),
    Store(Option<Result<Outcome, StoreError>>),
    Slept,
}

/// What tasks have done that concerns the world.
pub(crate) enum Out {
    Disk {
        wait: WaitId,
        disk: usize,
        session: u64,
        epoch: u64,
        command: Command,
    },
    Store {
        wait: WaitId,
        transaction: Transaction,
    },
    Sleep {
        wait: WaitId,
        time: Time,
    },
    Report {
        pool: usize,
        epoch: u64,
        result: Result<Order, Failure>,
    },
    /// A client is answered: the value that was read or written.
    Answer {
        client: usize,
        operation: u64,
        pool: usize,
        epoch: u64,
        value: u64,
    },
}

#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) waiting: BTreeSet<WaitId>,
    pub(crate) mailbox: BTreeMap<WaitId, Answer>,
    pub(crate) out: Vec<Out>,
    next: WaitId,
    pub(crate) sessions: u64,
    /// By the node's own clock.
    pub(crate) now: BootTime,
    pub(crate) permit: BootTime,
    /// Pools whose clients are let in, with the epoch.
    pub(crate) published: BTreeMap<usize, u64>,
    /// The connection of each client that counts.
    pub(crate) connections: BTreeMap<usize, u64>,
}

/// One life of a node.
pub(crate) struct Life {
    pub(crate) sabotage: Sabotage,
    pub(crate) inner: RefCell<Inner>,
    /// Something has changed that a task may wait for.
    pub(crate) progress: Cell<bool>,
}

pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

impl Life {
    pub(crate) fn new(sabotage: Sabotage, sessions: u64) -> Rc<Self> {
        let inner = Inner { sessions, ..Inner::default() };
        Rc::new(Self { sabotage, inner: RefCell::new(inner), progress: Cell::new(false) })
    }

    fn wait(&self, out: impl FnOnce(WaitId) -> Out) -> WaitId {
        let mut inner = self.inner.borrow_mut();
        inner.next += 1;
        let id = inner.next;
        inner.waiting.insert(id);
        inner.out.push(out(id));
        id
    }

    async fn answer(&self, id: WaitId) -> Answer {
        poll_fn(|_| match self.inner.borrow_mut().mailbox.remove(&id) {
            Some(answer) => {
                self.progress.set(true);
                Poll::Ready(answer)
            }
            None => Poll::Pending,
        })
        .await
    }

    /// Something arrives; only the first answer counts.
    pub(crate) fn deliver(&self, id: WaitId, answer: Answer) {
        let mut inner = self.inner.borrow_mut();
        if inner.waiting.remove(&id) {
            inner.mailbox.insert(id, answer);
        }
    }

    /// A number for a new session with a disk.
    pub(crate) fn new_session(&self) -> u64 {
        let mut inner = self.inner.borrow_mut();
        inner.sessions += 1;
        inner.sessions
    }

    pub(crate) async fn disk(
        &self,
        disk: usize,
        session: u64,
        epoch: u64,
        command: Command,
    ) -> Option<DiskReply> {
        let id = self.wait(|wait| Out::Disk { wait, disk, session, epoch, command });
        match self.answer(id).await {
            Answer::Disk(reply) => reply,
            _ => None,
        }
    }

    pub(crate) async fn store(&self, transaction: Transaction) -> Option<Result<Outcome, StoreError>> {
        let id = self.wait(|wait| Out::Store { wait, transaction });
        match self.answer(id).await {
            Answer::Store(answer) => answer,
            _ => None,
        }
    }

    pub(crate) async fn sleep(&self, time: Time) {
        let id = self.wait(|wait| Out::Sleep { wait, time });
        self.answer(id).await;
    }

    pub(crate) fn send(&self, out: Out) {
        self.inner.borrow_mut().out.push(out);
    }

    /// Whether an answer may be given, as a shard sees it.
    pub(crate) fn may_answer(&self, pool: usize, epoch: u64) -> bool {
        let inner = self.inner.borrow();
        let permitted = inner.now < inner.permit || self.sabotage == Sabotage::NoPermitCheck;
        permitted && inner.published.get(&pool) == Some(&epoch)
    }
}

/// A lock between tasks of one life.
#[derive(Default)]
pub(crate) struct Lock(Cell<bool>);

pub(crate) struct Guard<'a>(&'a Lock, &'a Life);

impl Lock {
    pub(crate) async fn take<'a>(&'a self, life: &'a Life) -> Guard<'a> {
        poll_fn(|_| if self.0.replace(true) { Poll::Pending } else { Poll::Ready(()) }).await;
        Guard(self, life)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.0.set(false);
        self.1.progress.set(true);
    }
}

/// Several at once.
pub(crate) async fn all<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        for (future, value) in &mut futures {
            if value.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *value = Some(ready);
            }
        }
        if futures.iter().all(|(_, value)| value.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    futures.into_iter().filter_map(|(_, value)| value).collect()
}
