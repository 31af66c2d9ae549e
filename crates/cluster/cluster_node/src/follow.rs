//! Keeps up with the shared state: reads it as a whole, then watches, and reads again whenever the watch ends.

use std::sync::Arc;
use std::time::Duration;

use cluster_store::{Change, ClusterStore, Range, Snapshot, StoreError, Watch};
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};

/// An answer of the store is waited for so long, before another one is asked for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// What is new in the shared state, in order.
pub(crate) enum News {
    Snapshot(Snapshot),
    Changed(Vec<Change>),
    /// Nothing can be read at the moment.
    Away(String),
}

/// Sends what is new under `root`, for ever. `again` makes it read everything anew.
pub(crate) async fn follow<Event>(
    store: Arc<dyn ClusterStore>,
    root: String,
    again: Arc<Notify>,
    events: mpsc::Sender<Event>,
    event: fn(News) -> Event,
) {
    loop {
        let ended = match begin(&store, &root).await {
            Ok((snapshot, mut watch)) => {
                if events.send(event(News::Snapshot(snapshot))).await.is_err() {
                    return;
                }
                loop {
                    tokio::select! {
                        biased;
                        () = again.notified() => break None,
                        changes = watch.next() => match changes {
                            Ok(changes) => {
                                if events.send(event(News::Changed(changes))).await.is_err() {
                                    return;
                                }
                            }
                            Err(error) => break Some(error),
                        }
                    }
                }
            }
            Err(error) => {
                if events.send(event(News::Away(error.to_string()))).await.is_err() {
                    return;
                }
                Some(error)
            }
        };
        if let Some(error) = ended {
            tracing::debug!("the shared state is read again: {error}");
            sleep(PAUSE).await;
        }
    }
}

/// What is there, and a watch from there on.
async fn begin(store: &Arc<dyn ClusterStore>, root: &str) -> Result<(Snapshot, Box<dyn Watch>), StoreError> {
    let late = |_| StoreError::NotDone(format!("no answer in {PATIENCE:?}"));
    let snapshot = timeout(PATIENCE, store.get(Range::Prefix(root.to_owned()))).await.map_err(late)??;
    let watch = timeout(PATIENCE, store.watch(root.to_owned(), snapshot.revision)).await.map_err(late)??;
    Ok((snapshot, watch))
}
