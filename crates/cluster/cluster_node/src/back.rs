//! What this node has seen of the store, and what it does when that has gone back in time.
//!
//! A store that is restored from a backup knows less than the pools' disks do, and than the votes say that it gave since. Epochs are judged by the disks
//! (`pool_ownership`, rule 7). Votes cannot be: an old vote would agree with a disk that missed the changes after it. So whoever notices it says
//! in the store up to which revision votes count for nothing, before it takes part again.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use cluster_store::keys::{ClusterName, Key, NodeId};
use cluster_store::values::{Value as _, WentBack};
use cluster_store::{
    Change, ClusterStore, Condition, Found, Revision, Snapshot, Step, StoreError, Transaction,
};
use tokio::task::JoinHandle;

use crate::remembered::{Reached, Remembered};
use crate::status::StoreWentBack;

/// It is kept on disk whenever the store has come so far since: some quarter of a minute with three nodes that beat. A store that is
/// restored to a later moment is not noticed by a node that was killed.
const KEEP_EVERY: u64 = 100;

/// A node that ends waits so long for its disk.
const END_WITHIN: Duration = Duration::from_secs(5);

/// What was seen.
pub(crate) struct Seen {
    remembered: Remembered,
    /// Where this node's beat is.
    beat: String,
    highest: Reached,
    kept: Reached,
    /// Is being kept: never two at a time, or the older could come last.
    keeping: Option<JoinHandle<io::Result<()>>>,
    /// The life before has noticed it.
    noticed: bool,
    went_back: Option<StoreWentBack>,
}

impl Seen {
    /// Blocks on the disk.
    pub(crate) fn load(remembered: Remembered, beat: String) -> Self {
        let highest = remembered.load();
        Self { remembered, beat, highest, kept: highest, keeping: None, noticed: false, went_back: None }
    }

    /// The store has shown what is there in this revision, or some of it.
    pub(crate) fn note<'a>(&mut self, revision: Revision, found: impl IntoIterator<Item = &'a Found>) {
        self.highest.revision = self.highest.revision.max(revision);
        for beat in found.into_iter().filter(|found| found.key == self.beat) {
            self.highest.beat = self.highest.beat.max(beat.modified);
        }
        let is_kept = self.keeping.as_ref().is_none_or(JoinHandle::is_finished);
        if is_kept && self.highest.revision.0 >= self.kept.revision.0.saturating_add(KEEP_EVERY) {
            self.keeping = Some(self.begin_keeping());
        }
    }

    /// The store has shown these changes, in order.
    pub(crate) fn note_changes(&mut self, changes: &[Change]) {
        if let Some(last) = changes.last() {
            self.note(last.revision, changes.iter().filter_map(|change| change.now.as_ref()));
        }
    }

    /// A life has ended, because the store `went_back` or for another reason; which it was, for people.
    pub(crate) fn notice(&mut self, went_back: bool) -> &'static str {
        self.noticed |= went_back;
        if went_back { "the shared state has gone back in time" } else { "others have taken its place" }
    }

    fn begin_keeping(&mut self) -> JoinHandle<io::Result<()>> {
        self.kept = self.highest;
        let (remembered, reached) = (self.remembered.clone(), self.highest);
        tokio::task::spawn_blocking(move || {
            remembered.keep(reached).inspect_err(|error| {
                tracing::warn!(%error, "how far the shared state has come cannot be kept");
            })
        })
    }

    /// Keeps what was seen, durably.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) async fn keep(&mut self) -> io::Result<()> {
        if let Some(earlier) = self.keeping.take() {
            // Whatever became of it, what is kept now comes after it.
            let _ = earlier.await;
        }
        self.begin_keeping().await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Keeps it as the node ends. Where that fails, which is told of, or a disk does not answer, less is noticed.
    pub(crate) async fn keep_at_end(&mut self) {
        if tokio::time::timeout(END_WITHIN, self.keep()).await.is_err() {
            tracing::warn!("the disk does not take in time how far the shared state has come");
        }
    }

    /// How far it went back, while that is of use to somebody.
    pub(crate) fn went_back(&self) -> Option<StoreWentBack> {
        self.went_back
    }

    /// Looks whether the store has gone back before a life begins, and says so in it. That this was done is durable when this returns: said
    /// once more later, it would take their worth from votes that were given in between.
    ///
    /// # Errors
    /// When it cannot be said, or kept that it was, with the reason: the life is not to begin.
    pub(crate) async fn look(
        &mut self,
        (me, cluster): (NodeId, &ClusterName),
        store: &Arc<dyn ClusterStore>,
        snapshot: &Snapshot,
    ) -> Result<(), String> {
        // No other node writes or removes it, but for one that removes this node from the cluster.
        let beat = modified(snapshot, &self.beat).unwrap_or_default();
        let found = Reached { revision: snapshot.revision, beat };
        let is_older = found.revision < self.highest.revision;
        if !is_older && found.beat >= self.highest.beat && !self.noticed {
            self.highest = found;
            return Ok(());
        }
        let back = match is_older || self.noticed {
            true => StoreWentBack { known: self.highest.revision, found: found.revision },
            // It counts from a higher revision on, and what this node has written last is not there.
            false => StoreWentBack { known: self.highest.beat, found: found.beat },
        };
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
        let before = std::mem::replace(&mut self.highest, found);
        if let Err(error) = self.keep().await {
            self.highest = before;
            return Err(format!("that the shared state has gone back in time cannot be kept: {error}"));
        }
        (self.noticed, self.went_back) = (false, Some(back));
        Ok(())
    }
}

/// The revision in which a key was changed last.
fn modified(snapshot: &Snapshot, path: &str) -> Option<Revision> {
    snapshot.found.iter().find(|found| found.key == path).map(|found| found.modified)
}

/// What is to be said in a store that has gone back; nothing where another node has said it since.
fn said(me: NodeId, cluster: &ClusterName, snapshot: &Snapshot) -> Result<Option<Transaction>, StoreError> {
    let find = |key: &Key| modified(snapshot, &key.path(cluster));
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
        let far = Reached { revision: Revision(100), ..Reached::default() };
        let begin = |number: &str| {
            let folder = folder.path().join(number);
            std::fs::create_dir_all(&folder).expect("made");
            Seen::load(Remembered::new(&folder, &cluster), Key::Beat(me).path(&cluster))
        };
        let mut seen = begin("1");
        seen.look((me, &cluster), &store, &all().await).await.expect("looked");
        assert_eq!((seen.went_back(), said().await), (None, None), "it is as far as it was, or further");
        // It was further, as a node remembers over its lives.
        Remembered::new(&folder.path().join("1"), &cluster).keep(far).expect("kept");
        let mut seen = begin("1");
        let found = all().await.revision;
        seen.look((me, &cluster), &store, &all().await).await.expect("looked");
        assert_eq!(seen.went_back(), Some(StoreWentBack { known: Revision(100), found }));
        assert_eq!(said().await, Some(found.0));
        // Another node notices it later: votes that were given meanwhile count.
        put("users/a").await;
        let other = NodeId::new(2).expect("a number");
        Remembered::new(&folder.path().join("1"), &cluster).keep(far).expect("kept");
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

    /// As `etcdctl snapshot restore --bump-revision` leaves it: it counts on from far above, without what was written last.
    #[tokio::test]
    async fn a_store_that_has_lost_this_nodes_last_beat_has_gone_back_whatever_it_counts() {
        let folder = tempfile::tempdir().expect("temp dir");
        let store: Arc<dyn ClusterStore> =
            Arc::new(LocalStore::open(&folder.path().join("store")).expect("a store"));
        let (me, cluster) = (NodeId::new(1).expect("a number"), ClusterName::new("c").expect("a name"));
        let beat = async || {
            let steps = vec![Step::Put(Key::Beat(me).path(&cluster), b"x".to_vec())];
            store.transact(Transaction { steps, ..Transaction::default() }).await.expect("done").revision
        };
        let all = async || store.get(Range::Prefix(cluster.root())).await.expect("read");
        let said = async || modified(&all().await, &Key::WentBack.path(&cluster));
        let begin = || Seen::load(Remembered::new(folder.path(), &cluster), Key::Beat(me).path(&cluster));
        let known = beat().await;
        let mut seen = begin();
        seen.look((me, &cluster), &store, &all().await).await.expect("looked");
        let shown = all().await;
        seen.note(shown.revision, &shown.found);
        assert_eq!(seen.highest.beat, known);
        // The end of its life.
        seen.keep().await.expect("kept");
        let mut seen = begin();
        seen.look((me, &cluster), &store, &all().await).await.expect("looked");
        assert_eq!((seen.went_back(), said().await), (None, None));
        // It beat on, a backup from before was restored, and others have brought that further than it ever was.
        let lost = Revision(known.0 + 1000);
        seen.highest.beat = lost;
        seen.keep().await.expect("kept");
        let steps = vec![Step::Put(format!("{}users/a", cluster.root()), b"x".to_vec())];
        for _ in 0..20 {
            let steps = steps.clone();
            store.transact(Transaction { steps, ..Transaction::default() }).await.expect("done");
        }
        let mut seen = begin();
        seen.look((me, &cluster), &store, &all().await).await.expect("looked");
        assert_eq!(seen.went_back(), Some(StoreWentBack { known: lost, found: known }));
        let first = said().await;
        assert!(first.is_some());
        // Killed at once, and started again after it has beaten: votes that were given since are good.
        drop(seen);
        beat().await;
        let mut seen = begin();
        seen.look((me, &cluster), &store, &all().await).await.expect("looked");
        assert_eq!((seen.went_back(), said().await), (None, first), "it is not said twice");
    }

    #[tokio::test]
    async fn what_is_kept_last_stays() {
        let folder = tempfile::tempdir().expect("temp dir");
        let remembered = Remembered::new(folder.path(), &ClusterName::new("c").expect("a name"));
        let mut seen = Seen::load(remembered.clone(), String::new());
        for number in 1..50 {
            seen.note(Revision(number * KEEP_EVERY), []);
        }
        seen.highest = Reached { revision: Revision(7), beat: Revision(6) };
        seen.keep().await.expect("kept");
        assert_eq!(remembered.load(), seen.highest);
    }
}
