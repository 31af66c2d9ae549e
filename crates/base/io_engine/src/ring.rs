//! The ring engine: io_uring on the thread that uses it.
//!
//! Requests become submission entries at once and enter the kernel together at [`Engine::flush`]: one system
//! call for a batch. Completions are reaped without a system call.
//!
//! # UNSAFETY
//! The kernel reads and writes memory and descriptors that entries name. **Invariant:** from the moment an
//! entry is pushed until its completion is reaped, its slot owns the buffer and the target, and nobody else
//! has the buffer: an `IoBuf` is exclusive and moved in, a `SharedBuf` is never written. The slot also owns the list of
//! parts that an entry names, and does not touch it until then. Dropping the engine
//! waits for every request that is still in the kernel, then drops the slots.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::task::{Poll, Waker};

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use crate::slots::{Index, Running, Slots};
use crate::{Engine, IoCompletion, IoOp, IoRequest, SubmitToken};

/// Submission entries of a ring. A shard's turn rarely has more; what does not fit waits in order.
const ENTRIES: u32 = 512;
/// Completion entries: as many requests as may be in the kernel without overflow handling.
const COMPLETION_ENTRIES: u32 = 4096;
/// Longest single transfer given to the kernel, in bytes; the rest goes as a resumed short transfer.
const MAX_TRANSFER_BYTES: usize = 1 << 30;

/// io_uring as an [`Engine`].
pub struct RingEngine {
    inner: RefCell<Inner>,
}

struct Inner {
    ring: IoUring,
    slots: Slots,
    /// Requests that found no room in the submission queue, in order.
    backlog: VecDeque<Index>,
    /// Entries pushed but not yet submitted.
    unsubmitted: usize,
    /// Requests in the kernel or in the submission queue.
    pushed: usize,
    /// Wakers collected while reaping, woken when no borrow is held.
    wakers: Vec<Waker>,
}

impl RingEngine {
    /// Sets a ring up for this thread.
    ///
    /// # Errors
    /// What the kernel says: not permitted (`kernel.io_uring_disabled`, seccomp), not there, no memory.
    pub fn new() -> io::Result<Self> {
        // Task work of completions runs when this thread enters the kernel anyway, not by interrupting it; one
        // thread submits. Kernels before 6.0 refuse the flags, and do without.
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_cqsize(COMPLETION_ENTRIES)
            .build(ENTRIES)
            .or_else(|_| IoUring::builder().setup_cqsize(COMPLETION_ENTRIES).build(ENTRIES))?;
        let inner = Inner {
            ring,
            slots: Slots::default(),
            backlog: VecDeque::new(),
            unsubmitted: 0,
            pushed: 0,
            wakers: Vec::new(),
        };
        Ok(Self { inner: RefCell::new(inner) })
    }
}

impl Engine for RingEngine {
    fn kind(&self) -> &'static str {
        "ring"
    }

    fn event_fd(&self) -> io::Result<Option<OwnedFd>> {
        let raw = self.inner.borrow().ring.as_raw_fd();
        // SAFETY: the ring keeps its descriptor open for longer than this borrow lasts.
        let fd = unsafe { BorrowedFd::borrow_raw(raw) };
        fd.try_clone_to_owned().map(Some)
    }

    fn submit(&self, request: IoRequest) -> SubmitToken {
        let mut inner = self.inner.borrow_mut();
        let (index, token) = inner.slots.insert(request);
        if inner.backlog.is_empty() && inner.pushed < COMPLETION_ENTRIES as usize {
            inner.push(index, token);
        } else {
            inner.backlog.push_back(index);
        }
        token
    }

    fn poll(&self, token: SubmitToken, waker: &Waker) -> Poll<IoCompletion> {
        self.inner.borrow_mut().slots.poll(token, waker)
    }

    fn abandon(&self, token: SubmitToken) {
        self.inner.borrow_mut().slots.abandon(token);
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.borrow_mut().flush()
    }

    fn reap(&self) -> usize {
        let (count, mut wakers) = {
            let mut inner = self.inner.borrow_mut();
            let count = inner.reap();
            (count, std::mem::take(&mut inner.wakers))
        };
        // A waker may run code that submits: no borrow is held here.
        for waker in wakers.drain(..) {
            waker.wake();
        }
        self.inner.borrow_mut().wakers = wakers;
        count
    }

    fn wait(&self) -> io::Result<usize> {
        loop {
            let count = self.reap();
            if count > 0 {
                return Ok(count);
            }
            let mut inner = self.inner.borrow_mut();
            inner.flush()?;
            if inner.pushed == 0 {
                return Ok(0);
            }
            inner.enter(1)?;
        }
    }
}

impl Inner {
    fn push(&mut self, index: Index, token: SubmitToken) {
        let Some((_, running)) = self.slots.running(token) else { return };
        let Some(entry) = entry_for(running) else {
            let error = io::Error::new(io::ErrorKind::Unsupported, "the ring cannot reach a simulated file");
            if let Some(waker) = self.slots.finish(token, Err(error)) {
                self.wakers.push(waker);
            }
            return;
        };
        let entry = entry.user_data(token.0);
        // SAFETY: the slot of `index` owns the buffer and target that the entry names until the completion is
        // reaped (the module's invariant).
        let mut pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() && self.enter(0).is_ok() {
            // SAFETY: as above.
            pushed = unsafe { self.ring.submission().push(&entry) };
        }
        match pushed {
            Ok(()) => {
                self.unsubmitted += 1;
                self.pushed += 1;
            }
            Err(_) => self.backlog.push_back(index),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.pushed < COMPLETION_ENTRIES as usize {
            let Some(index) = self.backlog.pop_front() else { break };
            let before = self.backlog.len();
            let token = self.slots.token(index);
            self.push(index, token);
            if self.backlog.len() > before {
                break; // the queue is full: go on after the next completion
            }
        }
        if self.unsubmitted > 0 { self.enter(0) } else { Ok(()) }
    }

    /// Enters the kernel: submits what is queued and waits for `want` completions.
    fn enter(&mut self, want: usize) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(want) {
                Ok(submitted) => {
                    self.unsubmitted = self.unsubmitted.saturating_sub(submitted);
                    return Ok(());
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // The completion queue is full: the caller reaps and comes again.
                    Some(libc::EBUSY | libc::EAGAIN) => return Ok(()),
                    _ => return Err(error),
                },
            }
        }
    }

    fn reap(&mut self) -> usize {
        let mut count = 0;
        while let Some(completion) = self.next_completion() {
            self.pushed -= 1;
            let token = SubmitToken(completion.user_data());
            let Some((index, running)) = self.slots.running(token) else { continue };
            match progress(running, completion.result()) {
                Progress::Again => self.push(index, token),
                Progress::End(result) => {
                    count += 1;
                    if let Some(waker) = self.slots.finish(token, result) {
                        self.wakers.push(waker);
                    }
                }
            }
        }
        count
    }

    fn next_completion(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }
}

impl Drop for RingEngine {
    fn drop(&mut self) {
        // The kernel may still use the buffers of abandoned requests: wait for all of them.
        let inner = self.inner.get_mut();
        inner.backlog.clear();
        while inner.pushed > 0 {
            if inner.reap() == 0 && inner.enter(1).is_err() {
                // The ring is broken and the buffers may be in use: leaking them is the only safe way out.
                std::mem::forget(std::mem::take(&mut inner.slots));
                break;
            }
        }
    }
}

fn entry_for(running: &mut Running) -> Option<squeue::Entry> {
    let fd = types::Fd(running.request.target.raw_fd()?);
    let done = running.done;
    let at = running.request.offset + done as u64;
    let entry = match &mut running.request.op {
        IoOp::Read(buf) => {
            let rest = &mut buf[done..];
            let len = rest.len().min(MAX_TRANSFER_BYTES) as u32;
            opcode::Read::new(fd, rest.as_mut_ptr(), len).offset(at).build()
        }
        IoOp::Write { data, durable } => {
            let rest = &data[done..];
            let len = rest.len().min(MAX_TRANSFER_BYTES) as u32;
            let flags = if *durable { libc::RWF_DSYNC } else { 0 };
            opcode::Write::new(fd, rest.as_ptr(), len).offset(at).rw_flags(flags).build()
        }
        IoOp::WriteVectored { parts, durable } => {
            crate::request::list_parts(parts, done, &mut running.list);
            let flags = if *durable { libc::RWF_DSYNC } else { 0 };
            let (list, count) = (running.list.as_ptr(), running.list.len() as u32);
            opcode::Writev::new(fd, list, count).offset(at).rw_flags(flags).build()
        }
        IoOp::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        IoOp::PunchHole { len } => {
            opcode::Fallocate::new(fd, *len).offset(at).mode(crate::request::PUNCH_HOLE).build()
        }
        IoOp::ZeroRange { len } => {
            opcode::Fallocate::new(fd, *len).offset(at).mode(crate::request::ZERO_RANGE).build()
        }
    };
    Some(entry)
}

enum Progress {
    Again,
    End(io::Result<usize>),
}

/// What a completion of the kernel means for a request: done, failed, or short and to be resumed.
fn progress(running: &mut Running, result: i32) -> Progress {
    if result < 0 {
        let code = -result;
        // Not a failure of the medium: the request never started.
        if code == libc::EINTR || code == libc::EAGAIN {
            return Progress::Again;
        }
        return Progress::End(Err(io::Error::from_raw_os_error(code)));
    }
    let step = result as usize;
    let want = running.request.op.len();
    running.done += step;
    if running.done >= want {
        return Progress::End(Ok(running.done));
    }
    match (step, &running.request.op) {
        (0, IoOp::Write { .. } | IoOp::WriteVectored { .. }) => {
            Progress::End(Err(io::ErrorKind::WriteZero.into()))
        }
        (0, _) => Progress::End(Ok(running.done)), // end of file
        _ => Progress::Again,
    }
}
