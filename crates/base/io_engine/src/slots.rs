//! Requests in flight: a slab whose entries own the buffers until the request has ended.
//!
//! Life of an entry: `insert` → in flight → `finish` → the future takes the completion; or the future is
//! dropped first (`abandon`) and the entry is freed when the request ends. Entries are reused, so after
//! warm-up nothing is allocated; a generation in the token tells an old token from a new one.

use std::task::{Poll, Waker};

use crate::{IoCompletion, IoRequest, SubmitToken};

/// Index of an entry.
pub(crate) type Index = u32;

struct Entry {
    generation: u32,
    state: State,
}

enum State {
    Free,
    Running { running: Running, waker: Option<Waker>, abandoned: bool },
    Done(IoCompletion),
}

/// A request in flight and how far it has come.
pub(crate) struct Running {
    /// The request, with its buffers.
    pub(crate) request: IoRequest,
    /// Bytes transferred so far.
    pub(crate) done: usize,
    /// What the kernel is told of the parts of a vectored write; on the heap, so that it stays where it is.
    pub(crate) list: Vec<libc::iovec>,
}

#[derive(Default)]
pub(crate) struct Slots {
    entries: Vec<Entry>,
    free: Vec<Index>,
}

impl Slots {
    pub(crate) fn insert(&mut self, request: IoRequest) -> (Index, SubmitToken) {
        let state = State::Running {
            running: Running { request, done: 0, list: Vec::new() },
            waker: None,
            abandoned: false,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize].state = state;
                index
            }
            None => {
                self.entries.push(Entry { generation: 0, state });
                (self.entries.len() - 1) as Index
            }
        };
        (index, self.token(index))
    }

    /// The token that names the present use of `index`.
    pub(crate) fn token(&self, index: Index) -> SubmitToken {
        SubmitToken(u64::from(self.entries[index as usize].generation) << 32 | u64::from(index))
    }

    fn entry(&mut self, token: SubmitToken) -> Option<(Index, &mut Entry)> {
        let index = token.0 as Index;
        let entry = self.entries.get_mut(index as usize)?;
        (u64::from(entry.generation) == token.0 >> 32).then_some((index, entry))
    }

    /// The request behind a completion of the kernel; `None` for a token that means nothing.
    pub(crate) fn running(&mut self, token: SubmitToken) -> Option<(Index, &mut Running)> {
        match self.entry(token)? {
            (index, Entry { state: State::Running { running, .. }, .. }) => Some((index, running)),
            _ => None,
        }
    }

    /// Ends a request. The returned waker, if any, is to be woken once no borrow is held.
    pub(crate) fn finish(&mut self, token: SubmitToken, result: std::io::Result<usize>) -> Option<Waker> {
        let (index, entry) = self.entry(token)?;
        match std::mem::replace(&mut entry.state, State::Free) {
            State::Running { running, waker, abandoned } => {
                if abandoned {
                    self.release(index);
                } else {
                    entry.state = State::Done(IoCompletion { result, op: running.request.op });
                }
                waker
            }
            other => {
                entry.state = other;
                None
            }
        }
    }

    pub(crate) fn poll(&mut self, token: SubmitToken, new_waker: &Waker) -> Poll<IoCompletion> {
        let Some((index, entry)) = self.entry(token) else { return Poll::Pending };
        match &mut entry.state {
            State::Running { waker, .. } => {
                match waker {
                    Some(waker) => waker.clone_from(new_waker),
                    None => *waker = Some(new_waker.clone()),
                }
                Poll::Pending
            }
            State::Done(_) => match std::mem::replace(&mut entry.state, State::Free) {
                State::Done(completion) => {
                    self.release(index);
                    Poll::Ready(completion)
                }
                _ => Poll::Pending,
            },
            State::Free => Poll::Pending,
        }
    }

    pub(crate) fn abandon(&mut self, token: SubmitToken) {
        if let Some((index, entry)) = self.entry(token) {
            match &mut entry.state {
                State::Running { abandoned, waker, .. } => {
                    *abandoned = true;
                    *waker = None;
                }
                State::Done(_) => {
                    entry.state = State::Free;
                    self.release(index);
                }
                State::Free => {}
            }
        }
    }

    fn release(&mut self, index: Index) {
        let entry = &mut self.entries[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
    }
}
