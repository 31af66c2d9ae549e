//! The shards of a node: threads that serve.
//!
//! One turn of a shard: run every task that is ready (they queue I/O) → hand the queued I/O to the kernel in
//! one call → collect completions → sleep until a socket, a timer or a completion wakes it.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use io_engine::{EngineGuard, detect};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

/// Work for a shard: made here, run there. `None` is the order to stop.
type Job = Option<Box<dyn FnOnce() + Send>>;

/// A way to start work on one shard. Cheap to clone.
#[derive(Clone)]
pub struct Shard {
    index: usize,
    jobs: mpsc::UnboundedSender<Job>,
}

/// The shard is not there any more: the node is stopping.
#[derive(Debug, PartialEq, Eq)]
pub struct ShardGone;

impl std::fmt::Display for ShardGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the shard has stopped or the task on it panicked")
    }
}

impl std::error::Error for ShardGone {}

impl Shard {
    /// Which shard this is, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Starts a task on the shard. `make` crosses threads, the future it makes does not.
    ///
    /// # Errors
    /// When the shard has stopped.
    pub fn spawn<M, F>(&self, make: M) -> Result<(), ShardGone>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        let job = Box::new(move || drop(tokio::task::spawn_local(make())));
        self.jobs.send(Some(job)).map_err(|_| ShardGone)
    }

    /// Runs a future on the shard and gives its result back to any thread.
    ///
    /// # Errors
    /// When the shard has stopped, or the future panicked.
    pub async fn run<M, F, T>(&self, make: M) -> Result<T, ShardGone>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        self.spawn(move || async move {
            let _ = sender.send(make().await);
        })?;
        receiver.await.map_err(|_| ShardGone)
    }
}

/// All shards of a node.
pub struct Shards {
    shards: Vec<Shard>,
    threads: Vec<JoinHandle<()>>,
    next: AtomicUsize,
    engine: &'static str,
    fallback_reason: Option<String>,
}

impl Shards {
    /// Starts `count` shards, at least one.
    ///
    /// # Errors
    /// When a thread, an engine or an event loop cannot be had.
    pub fn start(count: usize) -> io::Result<Self> {
        let mut all = Self {
            shards: Vec::new(),
            threads: Vec::new(),
            next: AtomicUsize::new(0),
            engine: "",
            fallback_reason: None,
        };
        for index in 0..count.max(1) {
            let (jobs, queue) = mpsc::unbounded_channel();
            let (started, result) = std::sync::mpsc::channel();
            let thread = std::thread::Builder::new().name(format!("shard-{index}"));
            all.threads.push(thread.spawn(move || serve(queue, &started))?);
            let began =
                result.recv().unwrap_or_else(|_| Err(io::Error::other("a shard died at its start")))?;
            all.engine = began.0;
            all.fallback_reason = began.1;
            all.shards.push(Shard { index, jobs });
        }
        Ok(all)
    }

    /// The shards, by index.
    #[must_use]
    pub fn all(&self) -> &[Shard] {
        &self.shards
    }

    /// A shard, each in its turn.
    #[must_use]
    pub fn next(&self) -> &Shard {
        &self.shards[self.next.fetch_add(1, Ordering::Relaxed) % self.shards.len()]
    }

    /// Which engine does the I/O, and why it is not the ring if it isn't.
    #[must_use]
    pub fn engine(&self) -> (&'static str, Option<&str>) {
        (self.engine, self.fallback_reason.as_deref())
    }

    /// Stops all shards: tasks are dropped, requests in flight are waited for. Handles that others still have
    /// find the shard gone.
    pub fn stop(mut self) {
        for shard in self.shards.drain(..) {
            // One that has ended by itself needs no order.
            let _ = shard.jobs.send(None);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

type Began = io::Result<(&'static str, Option<String>)>;

fn serve(mut queue: mpsc::UnboundedReceiver<Job>, started: &std::sync::mpsc::Sender<Began>) {
    let prepared = detect().and_then(|found| {
        let runtime = Builder::new_current_thread()
            .enable_all()
            // Sockets are looked at after this many tasks at the latest; the default of 61 lets a batch of
            // disk completions run to its end first.
            .on_thread_park(turn)
            .build()?;
        Ok((found, runtime))
    });
    let (found, runtime) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            let _ = started.send(Err(error));
            return;
        }
    };
    let kind = found.engine.kind();
    let guard = io_engine::install(found.engine);
    let _ = started.send(Ok((kind, found.fallback_reason)));
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        match watch(&guard) {
            Ok(Some(ready)) => drop(tokio::task::spawn_local(collect(ready))),
            Ok(None) => {}
            Err(error) => {
                tracing::error!("a shard cannot watch its I/O engine and stops: {error}");
                return;
            }
        }
        crate::adopt_detached_work();
        while let Some(Some(job)) = queue.recv().await {
            job();
        }
    });
    // Tasks go before the engine: their futures give their requests up, then the engine waits for the kernel.
    drop(local);
    drop::<EngineGuard>(guard);
}

/// What a shard does before it sleeps.
fn turn() {
    io_engine::flush();
    io_engine::reap();
}

/// Makes the event loop watch the engine's completions.
fn watch(guard: &EngineGuard) -> io::Result<Option<AsyncFd<OwnedFd>>> {
    let Some(fd) = guard.engine().event_fd()? else { return Ok(None) };
    #[expect(
        deprecated,
        reason = "the successor is unsafe for the sake of types that do not own their descriptor"
    )]
    AsyncFd::with_interest(fd, Interest::READABLE).map(Some)
}

/// Collects completions whenever the engine's descriptor says that there are some.
async fn collect(ready: AsyncFd<OwnedFd>) {
    while let Ok(mut guard) = ready.readable().await {
        // Cleared before reaping: what ends from here on makes the descriptor ready again.
        guard.clear_ready();
        io_engine::reap();
    }
}
