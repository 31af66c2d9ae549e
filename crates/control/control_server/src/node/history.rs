//! The node's past: a look at its counters each second, and what is asked of what was seen.

use std::sync::Arc;
use std::time::Duration;

use control_api::{Code, CounterKind, History, HistoryQuery, Problem};
use counter_history::Query;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::Node;
use super::forecast::LOOK_EVERY as LOOK_AHEAD_EVERY;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What is asked for where nobody says from when on.
const USUAL_SPAN_MS: u64 = 3_600_000;

fn kinds(text: &str) -> Result<Vec<CounterKind>, Problem> {
    let kind = |word: &str| {
        serde_json::from_value(word.into()).map_err(|_| {
            Problem::new(Code::InvalidRequest, format!("There are no counters of the kind {word:?}."))
        })
    };
    text.split(',').filter(|word| !word.is_empty()).map(kind).collect()
}

impl Node {
    /// Looks at the counters each second until the node stops.
    pub(crate) async fn remember(self: Arc<Self>) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failed = false;
        let mut looked_ahead = None;
        loop {
            let stops = tokio::select! {
                () = self.stopped() => true,
                _ = ticks.tick() => false,
            };
            let node = self.clone();
            let look = move || {
                node.watch_background();
                node.past.take(&node.counters(true), node.wall_ms(), stops)
            };
            match spawn_blocking(look).await {
                Ok(Err(error)) if !failed => {
                    tracing::warn!(%error, "the history of counters cannot be written, and is tried again");
                    failed = true;
                }
                Ok(Ok(())) => failed = false,
                _ => {}
            }
            if stops {
                return;
            }
            let now = self.clock.now();
            if looked_ahead.is_none_or(|last| now.since(last) >= LOOK_AHEAD_EVERY) {
                looked_ahead = Some(now);
                // By itself: it waits for its turn to read, and looks go on.
                let node = self.clone();
                tokio::spawn(async move { node.look_ahead().await });
            }
        }
    }

    pub(super) fn wall_ms(&self) -> u64 {
        self.clock.wall().0 / 1_000_000
    }

    /// What counters were.
    ///
    /// # Errors
    /// When what is asked for makes no sense or would be too much.
    pub(crate) async fn history(&self, asked: HistoryQuery) -> Result<History, Problem> {
        let to_ms = asked.to_unix_ms.unwrap_or_else(|| self.wall_ms());
        let query = Query {
            from_ms: asked.from_unix_ms.unwrap_or_else(|| to_ms.saturating_sub(USUAL_SPAN_MS)),
            to_ms,
            step_seconds: asked.step_seconds,
            kinds: kinds(asked.kind.as_deref().unwrap_or_default())?,
            name: asked.name,
            sum: asked.sum,
        };
        let found = self.past.read(query).await?;
        Ok(History {
            node: self.name(),
            step_seconds: found.step_seconds,
            since_unix_ms: found.since_ms,
            steps: found.steps,
        })
    }
}
