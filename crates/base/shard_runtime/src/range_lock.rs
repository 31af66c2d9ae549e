//! Locks on byte ranges, of a column of a pool or a stream of a volume.
//!
//! Whoever changes a range locks it, so that overlapping changes happen one after another. First come, first served: a waiter never starves behind later ones that overlap it.
//!
//! Cost uncontended: two short mutexes, no allocation after warm-up.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// The locked and awaited ranges of one thing.
#[derive(Default)]
pub struct RangeLocks {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    held: Vec<Ticket>,
    waiting: Vec<(Ticket, Option<Waker>)>,
    next: u64,
}

#[derive(Clone, Copy)]
struct Ticket {
    id: u64,
    start: u64,
    end: u64,
}

impl Ticket {
    fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

impl RangeLocks {
    /// Waits until no one holds a part of the range, and holds it until the guard is dropped.
    #[must_use]
    pub fn lock(&self, offset: u64, len: u64) -> Locking<'_> {
        Locking { locks: self, start: offset, end: offset.saturating_add(len), state: State::New }
    }

    fn release(&self, id: u64) {
        let wakers = {
            let mut inner = self.inner.lock();
            inner.held.retain(|ticket| ticket.id != id);
            inner.grant()
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Inner {
    fn is_free(&self, ticket: &Ticket, waiting_before: usize) -> bool {
        !self.held.iter().any(|held| held.overlaps(ticket))
            && !self.waiting[..waiting_before].iter().any(|(earlier, _)| earlier.overlaps(ticket))
    }

    /// Moves every waiter that may go on to the holders, and returns whom to wake.
    fn grant(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let mut at = 0;
        while at < self.waiting.len() {
            let ticket = self.waiting[at].0;
            if self.is_free(&ticket, at) {
                let (ticket, waker) = self.waiting.remove(at);
                self.held.push(ticket);
                wakers.extend(waker);
            } else {
                at += 1;
            }
        }
        wakers
    }
}

enum State {
    New,
    Waiting(u64),
    Done,
}

/// The future of [`RangeLocks::lock`].
pub struct Locking<'a> {
    locks: &'a RangeLocks,
    start: u64,
    end: u64,
    state: State,
}

impl<'a> Future for Locking<'a> {
    type Output = RangeGuard<'a>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<RangeGuard<'a>> {
        let locks = self.locks;
        let mut inner = locks.inner.lock();
        let id = match self.state {
            State::New => {
                let id = inner.next;
                inner.next += 1;
                let ticket = Ticket { id, start: self.start, end: self.end };
                let before = inner.waiting.len();
                if inner.is_free(&ticket, before) {
                    inner.held.push(ticket);
                } else {
                    inner.waiting.push((ticket, Some(cx.waker().clone())));
                }
                id
            }
            State::Waiting(id) => id,
            State::Done => return Poll::Pending,
        };
        if let Some((_, waker)) = inner.waiting.iter_mut().find(|(ticket, _)| ticket.id == id) {
            *waker = Some(cx.waker().clone());
            drop(inner);
            self.state = State::Waiting(id);
            return Poll::Pending;
        }
        drop(inner);
        self.state = State::Done;
        Poll::Ready(RangeGuard { locks, id })
    }
}

impl Drop for Locking<'_> {
    fn drop(&mut self) {
        if let State::Waiting(id) = self.state {
            let wakers = {
                let mut inner = self.locks.inner.lock();
                inner.waiting.retain(|(ticket, _)| ticket.id != id);
                inner.held.retain(|ticket| ticket.id != id);
                inner.grant()
            };
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

/// Holds a range.
pub struct RangeGuard<'a> {
    locks: &'a RangeLocks,
    id: u64,
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        self.locks.release(self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn overlapping_ranges_wait_in_order_and_others_do_not() {
        let locks = RangeLocks::default();
        let first = poll(pin!(locks.lock(0, 10))).expect("free");
        let mut second = pin!(locks.lock(5, 10));
        assert!(poll(second.as_mut()).is_none());
        let _other = poll(pin!(locks.lock(20, 10))).expect("free");
        // Free now, but behind the second, which came first.
        let mut third = pin!(locks.lock(12, 5));
        assert!(poll(third.as_mut()).is_none());
        drop(first);
        let second = poll(second).expect("its turn");
        assert!(poll(third.as_mut()).is_none());
        drop(second);
        assert!(poll(third).is_some());
    }

    #[test]
    fn a_waiter_that_gives_up_lets_the_next_go() {
        let locks = RangeLocks::default();
        let held = poll(pin!(locks.lock(0, 10))).expect("free");
        {
            let mut second = pin!(locks.lock(0, 20));
            assert!(poll(second.as_mut()).is_none());
            let mut third = pin!(locks.lock(10, 10));
            assert!(poll(third.as_mut()).is_none());
        }
        assert!(poll(pin!(locks.lock(10, 10))).is_some(), "both waiters are gone");
        drop(held);
        assert!(poll(pin!(locks.lock(0, 100))).is_some());
    }
}
