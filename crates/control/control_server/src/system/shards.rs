//! The shards of this node.

use std::sync::Arc;
use std::time::Duration;

use cluster_node::Watchdog;
use control_api::{Code, Problem};
use parking_lot::{Mutex, RwLock};
use shard_runtime::{Shard, ShardGone, Shards};
use tcp_service::{Answers, LoopWatch, ShardJob, Spawner};

use crate::backend::{ShardBackend, Work};

/// A loop of a node of a cluster that did not turn for so long has stood still: its clients may have been answered elsewhere since.
const STAND_STILL: Duration = Duration::from_secs(1);

/// Notices that a shard's loop stood still.
struct Watched(Watchdog);

impl LoopWatch for Watched {
    fn look(&self) -> u64 {
        self.0.look()
    }
}

/// Threads that serve, one per core unless told otherwise.
pub struct SystemShards {
    count: usize,
    engine: String,
    /// Emptied when the node stops: a shard ends when nobody can give it work any more.
    shards: RwLock<Vec<Shard>>,
    /// Taken when the node stops.
    threads: Mutex<Option<Shards>>,
    answers: Answers,
    /// One for each shard of a node of a cluster.
    watched: Vec<Arc<Watched>>,
}

impl SystemShards {
    /// Starts `count` shards, or one per core.
    ///
    /// # Errors
    /// When the system doesn't give threads or an I/O engine.
    pub fn start(count: Option<usize>) -> Result<Arc<Self>, Problem> {
        Self::answering(count, Answers::default())
    }

    /// The same; their connections answer while `answers` permits it.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(super) fn answering(count: Option<usize>, answers: Answers) -> Result<Arc<Self>, Problem> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = Shards::start(count.unwrap_or(cores)).map_err(|error| {
            Problem::new(Code::Io, format!("shards can't be started: {error}"))
                .todo("Check limits of threads and locked memory (ulimit -u, ulimit -l).")
        })?;
        let engine = match threads.engine() {
            (name, None) => name.to_owned(),
            (name, Some(why)) => format!("{name} ({why})"),
        };
        let shards = threads.all().to_vec();
        // A node on its own is the only one that answers.
        let watched = shards.iter().filter(|_| answers.are_permitted());
        let watched = watched.map(|shard| {
            let watched = Arc::new(Watched(Watchdog::new(STAND_STILL)));
            let turns = watched.clone();
            // A shard that is gone watches over nothing.
            let _ = shard.spawn(move || async move {
                loop {
                    shard_runtime::sleep(STAND_STILL / 4).await;
                    turns.0.look();
                }
            });
            watched
        });
        let watched = watched.collect();
        Ok(Arc::new(Self {
            count: shards.len(),
            engine,
            shards: RwLock::new(shards),
            threads: Mutex::new(Some(threads)),
            answers,
            watched,
        }))
    }

    /// A shard by its number, any number; none when the node has stopped.
    pub(super) fn shard(&self, number: usize) -> Option<Shard> {
        self.shards.read().get(number % self.count).cloned()
    }

    /// Runs work on a shard and brings its result back.
    pub(super) async fn run<T, M, F>(&self, number: usize, make: M) -> Result<T, Problem>
    where
        T: Send + 'static,
        M: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<T, Problem>> + 'static,
    {
        let shard = self.shard(number).ok_or(ShardGone);
        match async { shard?.run(make).await }.await {
            Ok(result) => result,
            Err(gone) => Err(Problem::new(Code::Unavailable, gone.to_string())),
        }
    }
}

impl Spawner for SystemShards {
    fn shards(&self) -> usize {
        self.count
    }

    fn spawn(&self, shard: usize, job: ShardJob) {
        // A shard that is gone drops the job, which its owner notices.
        if let Some(shard) = self.shard(shard) {
            let _ = shard.spawn(job);
        }
    }

    fn answers(&self) -> Answers {
        self.answers.clone()
    }

    fn watch(&self, shard: usize) -> Option<Arc<dyn LoopWatch>> {
        self.watched.get(shard % self.count).map(|watched| watched.clone() as Arc<dyn LoopWatch>)
    }
}

impl ShardBackend for SystemShards {
    fn engine(&self) -> String {
        self.engine.clone()
    }

    fn stop(&self) -> Work<'_, ()> {
        self.shards.write().clear();
        let threads = self.threads.lock().take();
        Box::pin(async move {
            let Some(threads) = threads else { return Ok(()) };
            // Joins threads: not for the control plane's own.
            let stopped = tokio::task::spawn_blocking(move || threads.stop()).await;
            stopped.map_err(|error| Problem::new(Code::Internal, format!("shards did not stop: {error}")))
        })
    }
}
