//! The blocking engine: a few threads that make ordinary system calls.
//!
//! It takes over where io_uring is not permitted. Every request crosses two threads, which costs several times
//! the CPU of the ring; it is the fallback, not an alternative.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use crate::carry_out::carry_out;
use crate::slots::Slots;
use crate::{Engine, IoCompletion, IoOp, IoRequest, SubmitToken};

/// Threads of one engine: enough to keep a disk's queue busy, few enough for a small machine.
const THREADS: usize = 8;

/// System calls on threads as an [`Engine`].
pub struct BlockingEngine {
    slots: RefCell<Slots>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queues: Mutex<Queues>,
    /// Work arrived, or the engine closes.
    work: Condvar,
    /// A request ended.
    ended: Condvar,
    event: OwnedFd,
}

#[derive(Default)]
struct Queues {
    requests: VecDeque<(SubmitToken, IoRequest)>,
    completions: Vec<(SubmitToken, IoCompletion)>,
    running: usize,
    closing: bool,
}

impl BlockingEngine {
    /// Starts the threads.
    ///
    /// # Errors
    /// What the system says when it has no descriptor or thread left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no memory is involved; the result is checked.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        let event = unsafe { OwnedFd::from_raw_fd(event) };
        let shared = Arc::new(Shared {
            queues: Mutex::new(Queues::default()),
            work: Condvar::new(),
            ended: Condvar::new(),
            event,
        });
        let mut threads = Vec::with_capacity(THREADS);
        for index in 0..THREADS {
            let shared = Arc::clone(&shared);
            let name = format!("io-{index}");
            threads.push(std::thread::Builder::new().name(name).spawn(move || shared.serve())?);
        }
        Ok(Self { slots: RefCell::default(), shared, threads })
    }
}

impl Engine for BlockingEngine {
    fn kind(&self) -> &'static str {
        "blocking"
    }

    fn event_fd(&self) -> io::Result<Option<OwnedFd>> {
        self.shared.event.try_clone().map(Some)
    }

    fn submit(&self, request: IoRequest) -> SubmitToken {
        // The buffers travel with the request; the slot keeps an empty one in their place.
        let placeholder = IoRequest { target: request.target.clone(), offset: 0, op: IoOp::Sync };
        let (_, token) = self.slots.borrow_mut().insert(placeholder);
        let mut queues = self.shared.queues.lock();
        queues.requests.push_back((token, request));
        queues.running += 1;
        self.shared.work.notify_one();
        token
    }

    fn poll(&self, token: SubmitToken, waker: &Waker) -> Poll<IoCompletion> {
        self.slots.borrow_mut().poll(token, waker)
    }

    fn abandon(&self, token: SubmitToken) {
        self.slots.borrow_mut().abandon(token);
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn reap(&self) -> usize {
        let mut ignored = [0u8; 8];
        // SAFETY: the buffer is 8 bytes, as an eventfd asks; the result does not matter (empty is fine).
        unsafe { libc::read(self.shared.event.as_raw_fd(), ignored.as_mut_ptr().cast(), 8) };
        let completions = {
            let mut queues = self.shared.queues.lock();
            queues.running -= queues.completions.len();
            std::mem::take(&mut queues.completions)
        };
        let count = completions.len();
        let mut wakers = Vec::with_capacity(count);
        {
            let mut slots = self.slots.borrow_mut();
            for (token, completion) in completions {
                if let Some((_, running)) = slots.running(token) {
                    running.request.op = completion.op;
                }
                wakers.extend(slots.finish(token, completion.result));
            }
        }
        for waker in wakers {
            waker.wake();
        }
        count
    }

    fn wait(&self) -> io::Result<usize> {
        let mut queues = self.shared.queues.lock();
        while queues.completions.is_empty() && queues.running > 0 {
            self.shared.ended.wait(&mut queues);
        }
        drop(queues);
        Ok(self.reap())
    }
}

impl Drop for BlockingEngine {
    fn drop(&mut self) {
        self.shared.queues.lock().closing = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn serve(&self) {
        loop {
            let (token, request) = {
                let mut queues = self.queues.lock();
                loop {
                    if let Some(next) = queues.requests.pop_front() {
                        break next;
                    }
                    if queues.closing {
                        return;
                    }
                    self.work.wait(&mut queues);
                }
            };
            let completion = carry_out(request);
            self.queues.lock().completions.push((token, completion));
            self.ended.notify_one();
            let one = 1u64.to_ne_bytes();
            // SAFETY: 8 readable bytes; a full counter means that a wake-up is pending already.
            unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), 8) };
        }
    }
}
