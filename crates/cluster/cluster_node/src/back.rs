//! What this node has seen of the store, and what it does when that has gone back in time.
//!
//! A store that is restored from a backup knows less than the pools' disks do, and than the votes say that it gave since. Epochs are judged by the disks
//! (`pool_ownership`, rule 7). Votes cannot be: an old vote would agree with a disk that missed the changes after it. So whoever notices it says
//! in the store up to which revision votes count for nothing, before it takes part again.

use std::sync::Arc;

use cluster_store::keys::{ClusterName, Key, NodeId};
use cluster_store::values::{Value as _, WentBack};
use cluster_store::{ClusterStore, Condition, Revision, Snapshot, Step, StoreError, Transaction};

use crate::remembered::Remembered;
use crate::status::StoreWentBack;

/// It is kept on disk whenever the store has come so far since: some minutes with three nodes that beat.
const KEEP_EVERY: u64 = 1000;

/// What was seen.
pub(crate) struct Seen {
    remembered: Remembered,
    highest: Revision,
    kept: Revision,
    /// The life before has noticed it.
    noticed: bool,
    went_back: Option<StoreWentBack>,
}

impl Seen {
    /// Blocks on the disk.
    pub(crate) fn load(remembered: Remembered) -> Self {
        let highest = remembered.load();
        Self { remembered, highest, kept: highest, noticed: false, went_back: None }
    }

    /// The store has shown this revision.
    pub(crate) fn note(&mut self, revision: Revision) {
        self.highest = self.highest.max(revision);
        if self.highest.0 >= self.kept.0.saturating_add(KEEP_EVERY) {
            self.keep();
        }
    }

    /// A life has ended, because the store `went_back` or for another reason; which it was, for people.
    pub(crate) fn notice(&mut self, went_back: bool) -> &'static str {
        self.noticed |= went_back;
        if went_back { "the shared state has gone back in time" } else { "others have taken its place" }
    }

    /// Keeps what was seen, in the background.
    pub(crate) fn keep(&mut self) {
        if self.kept == self.highest {
            return;
        }
        self.kept = self.highest;
        let (remembered, revision) = (self.remembered.clone(), self.highest);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = remembered.keep(revision) {
                tracing::warn!(%error, "how far the shared state has come cannot be kept");
            }
        });
    }

    /// How far it went back, while that is of use to somebody.
    pub(crate) fn went_back(&self) -> Option<StoreWentBack> {
        self.went_back
    }

    /// Looks whether the store has gone back before a life begins, and says so in it.
    ///
    /// # Errors
    /// When it cannot be said, with the reason: the life is not to begin.
    pub(crate) async fn look(
        &mut self,
        (me, cluster): (NodeId, &ClusterName),
        store: &Arc<dyn ClusterStore>,
        snapshot: &Snapshot,
    ) -> Result<(), String> {
        if snapshot.revision >= self.highest && !self.noticed {
            self.highest = snapshot.revision;
            return Ok(());
        }
        let back = StoreWentBack { known: self.highest, found: snapshot.revision };
        tracing::error!(
            known = back.known.0,
            found = back.found.0,
            "the shared state has gone back in time: it was restored from a backup"
        );
        let saying = async {
            let Some(transaction) = said(me, cluster, snapshot)? else { return Ok(()) };
            match store.transact(transaction).await?.done {
                true => Ok(()),
                false => Err(StoreError::NotDone("another node says the same".into())),
            }
        };
        saying.await.map_err(|error| {
            format!("the shared state has gone back in time, which cannot be said in it: {error}")
        })?;
        (self.highest, self.noticed, self.went_back) = (snapshot.revision, false, Some(back));
        self.keep();
        Ok(())
    }
}

/// What is to be said in a store that has gone back; nothing where another node has said it since.
fn said(me: NodeId, cluster: &ClusterName, snapshot: &Snapshot) -> Result<Option<Transaction>, StoreError> {
    let find = |key: &Key| {
        let path = key.path(cluster);
        snapshot.found.iter().find(|found| found.key == path).map(|found| found.modified)
    };
    let (key, there) = (Key::WentBack.path(cluster), find(&Key::WentBack));
    // This node has written nothing since: what is newer than its last beat is said of this time, and not of an earlier one.
    if there.is_some_and(|there| there > find(&Key::Beat(me)).unwrap_or_default()) {
        return Ok(None);
    }
    let value = WentBack { up_to: snapshot.revision.0 };
    let value = value.encode().map_err(|why| StoreError::Invalid(why.to_string()))?;
    Ok(Some(Transaction {
        conditions: vec![Condition::Modified(key.clone(), there.unwrap_or_default())],
        steps: vec![Step::Put(key, value)],
        reads: Vec::new(),
    }))
}

#[cfg(test)]
mod tests {
    use cluster_store::LocalStore;
    use cluster_store::Range;

    use super::*;

    #[tokio::test]
    async fn what_has_gone_back_is_said_once_before_a_life_begins() {
        let folder = tempfile::tempdir().expect("temp dir");
        let store: Arc<dyn ClusterStore> =
            Arc::new(LocalStore::open(&folder.path().join("store")).expect("a store"));
        let (me, cluster) = (NodeId::new(1).expect("a number"), ClusterName::new("c").expect("a name"));
        let put = async |key: &str| {
            let steps = vec![Step::Put(format!("{}{key}", cluster.root()), b"x".to_vec())];
            store.transact(Transaction { steps, ..Transaction::default() }).await.expect("done");
        };
        let all = async || store.get(Range::Prefix(cluster.root())).await.expect("read");
        let said = async || {
            let found = all().await.found.into_iter().find(|found| found.key.ends_with("store/back"))?;
            Some(WentBack::decode(&found.value).expect("a value").up_to)
        };
        put("beats/00001").await;
        for _ in 0..5 {
            put("users/a").await;
        }
        let begin = |number: &str| {
            let folder = folder.path().join(number);
            std::fs::create_dir_all(&folder).expect("made");
            Seen::load(Remembered::new(&folder, &cluster))
        };
        let mut seen = begin("1");
        seen.look((me, &cluster), &store, &all().await).await.expect("looked");
        assert_eq!((seen.went_back(), said().await), (None, None), "it is as far as it was, or further");
        // It was further, as a node remembers over its lives.
        Remembered::new(&folder.path().join("1"), &cluster).keep(Revision(100)).expect("kept");
        let mut seen = begin("1");
        let found = all().await.revision;
        seen.look((me, &cluster), &store, &all().await).await.expect("looked");
        assert_eq!(seen.went_back(), Some(StoreWentBack { known: Revision(100), found }));
        assert_eq!(said().await, Some(found.0));
        // Another node notices it later: votes that were given meanwhile count.
        put("users/a").await;
        let other = NodeId::new(2).expect("a number");
        Remembered::new(&folder.path().join("1"), &cluster).keep(Revision(100)).expect("kept");
        let mut seen = begin("1");
        seen.look((other, &cluster), &store, &all().await).await.expect("looked");
        assert!(seen.went_back().is_some());
        assert_eq!(said().await, Some(found.0));
        // A life that noticed it by its own chain says so, however far the store is by now; and it is said of another time.
        put("beats/00001").await;
        let found = all().await.revision;
        let mut seen = begin("2");
        seen.notice(true);
        seen.look((me, &cluster), &store, &all().await).await.expect("looked");
        assert_eq!(said().await, Some(found.0));
    }
}
