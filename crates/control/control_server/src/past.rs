//! The history of a node's counters: where it lies, who writes it, and how many read it at once.

use std::sync::Arc;

use control_api::{Code, Counters, Problem};
use counter_history::{CounterHistory, Found, Query, QueryError};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::data_dir::{DataDir, make_private_dir};

/// Where it is, in the data directory.
const DIR: &str = "history";
/// So many may read it at once: thirty days take a second of a processor.
const READERS: usize = 2;

/// The node's past.
#[derive(Debug)]
pub(crate) struct Past {
    /// Nothing where its files cannot be used: the node runs without.
    history: Arc<Mutex<Option<CounterHistory>>>,
    readers: Semaphore,
}

impl Past {
    /// What an earlier life of the node has left. Files that cannot be used are set aside.
    pub(crate) fn open(data: &DataDir) -> Self {
        let dir = data.join(DIR);
        let opened = make_private_dir(&dir).and_then(|()| CounterHistory::open(&dir));
        let history = match opened {
            Ok((history, told)) => {
                told.iter().for_each(|what| tracing::warn!(what, "history of counters: a file is set aside"));
                Some(history)
            }
            Err(error) => {
                tracing::warn!(dir = %dir.display(), %error, "no history of counters is kept");
                None
            }
        };
        Self { history: Arc::new(Mutex::new(history)), readers: Semaphore::new(READERS) }
    }

    /// Takes a look at counters, the last one before the node ends. It writes to files, which may take its time.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn take(&self, counters: &Counters, wall_ms: u64, last: bool) -> std::io::Result<()> {
        let mut history = self.history.lock();
        let Some(history) = &mut *history else { return Ok(()) };
        let taken = history.take(counters, wall_ms);
        if last { taken.and(history.close()) } else { taken }
    }

    /// What was seen.
    ///
    /// # Errors
    /// When what is asked for makes no sense or would be too much.
    pub(crate) async fn read(&self, query: Query) -> Result<Found, Problem> {
        let Ok(_reading) = self.readers.acquire().await else {
            return Err(Problem::new(Code::Unavailable, "The node is stopping."));
        };
        let history = self.history.clone();
        // Whoever writes has the lock for as long as the files take.
        let read = spawn_blocking(move || {
            let snapshot = history.lock().as_ref().map(CounterHistory::snapshot);
            snapshot.ok_or_else(none_kept)?.read(&query).map_err(why)
        });
        read.await.map_err(|error| Problem::new(Code::Internal, error.to_string()))?
    }
}

fn none_kept() -> Problem {
    Problem::new(Code::Unavailable, "This node keeps no history of its counters.")
        .todo("Its log says why: `history` in its data directory cannot be used.")
}

fn why(error: QueryError) -> Problem {
    match error {
        QueryError::TooMuch => {
            Problem::new(Code::InvalidRequest, "There are too many things and steps for one answer.")
                .todo("Ask for longer steps, for one kind or name, or for sums.")
        }
        QueryError::TooShort(since) => {
            let since = since.map_or_else(
                || "none are there yet".to_owned(),
                |since| format!("the first ends {} s after 1970", since / 1000),
            );
            let detail = format!("Steps of less than a minute are kept for about an hour: {since}.");
            Problem::new(Code::InvalidRequest, detail)
                .todo("Ask for steps of a minute or longer, or for a later beginning.")
        }
        QueryError::Empty => Problem::new(
            Code::InvalidRequest,
            "The span ends before it begins, or a step has no length or more than ten years.",
        ),
    }
}
