//! Epochs and votes of pools, in what nodes share: [`cluster_store`].
//!
//! ```text
//!   pools/P/owner     the epoch in which the pool has an owner     rises with each opening (`take`)
//!   pools/P/witness   the newest epoch and change                  written only while nobody has a higher epoch
//! ```
//! A two-disk mirror survives the loss of either disk because of the vote, and a disk that missed the last changes is never opened
//! alone by mistake. A vote is a transaction that depends on both keys as they were when they were compared: between looking and
//! writing nobody takes the pool unseen.
//!
//! In a store that was restored from a backup (`store/back`, `cluster_node`) a vote from before that counts for nothing: a disk that missed what came
//! after it would be believed on the strength of it. The pool then needs a majority of its disks, and votes anew.
//!
//! A node of a cluster writes itself as the holder of what it makes or imports; who takes over from whom, `pool_ownership` decides. A node on
//! its own has its store in its data directory, whose lock it holds: nobody else takes its pools, so it writes no holder. Whoever
//! reads the store when the node joins others finds pools that are free, with their epochs.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use cluster_store::keys::{ClusterName, Key, PoolId};
use cluster_store::values::{Holder, Owner, Value, Vote as Record, WentBack};
use cluster_store::{ClusterStore, Condition, Found, Outcome, Revision, Step, StoreError, Transaction};
use control_api::{Code, Problem};
use pool::{Node, QuorumWitness, Vote, WitnessFuture};
use pool_format::{Epoch, Guid, Seq};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::earlier_witness::EarlierVotes;
use crate::backend::{PoolOwner, Work};
use crate::cluster::Life;

/// What a node on its own calls its cluster.
pub(crate) const ALONE: &str = "local";
/// How often a transaction is tried whose keys somebody else has changed meanwhile.
const TRIES: u32 = 100;

/// Epochs and votes in a store. Clones use the same.
#[derive(Clone)]
pub(crate) struct Ownership(Arc<Inner>);

struct Inner {
    store: Arc<dyn ClusterStore>,
    cluster: ClusterName,
    earlier: EarlierVotes,
    node: Node,
    /// Who this node is among the others that the store is shared with; nothing when it is not.
    holder: Option<Life>,
    /// What earlier releases left has been taken over.
    begun: OnceCell<()>,
    /// The store may block, and shards must not: its threads are the control plane's.
    control: Handle,
}

/// Whom a pool belongs to that is this node's.
fn holder(life: &Life) -> io::Result<Holder> {
    let holder = life.holder();
    holder.ok_or_else(|| {
        io::Error::new(ErrorKind::NotConnected, "this node does not take part in its cluster now")
    })
}

fn failed(error: &StoreError) -> io::Error {
    io::Error::other(error.to_string())
}

fn wrong(key: &str, why: impl std::fmt::Display) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("{key}: {why}"))
}

/// What is kept of a pool, with the revisions that it has.
struct Kept {
    owner: Option<Owner>,
    vote: Option<Record>,
    /// Votes up to this revision of the store count for nothing.
    went_back: Revision,
    revisions: (Revision, Revision),
}

impl Kept {
    /// The vote that counts.
    fn counted(&self) -> Option<Record> {
        self.vote.filter(|_| self.revisions.1 > self.went_back)
    }

    fn highest(&self) -> u64 {
        let owner = self.owner.as_ref().map_or(0, |owner| owner.epoch);
        owner.max(self.vote.map_or(0, |vote| vote.epoch))
    }
}

impl Inner {
    fn keys(&self, pool: Guid) -> (String, String) {
        let pool = PoolId(Uuid::from_bytes(pool.0));
        (Key::Owner(pool).path(&self.cluster), Key::Witness(pool).path(&self.cluster))
    }

    async fn read(&self, pool: Guid) -> io::Result<Kept> {
        let (owner, vote) = self.keys(pool);
        let back = Key::WentBack.path(&self.cluster);
        let reads = vec![owner.clone(), vote.clone(), back.clone()];
        let asked = self.store.transact(Transaction { reads, ..Transaction::default() });
        let mut reads = asked.await.map_err(|error| failed(&error))?.reads.into_iter();
        let (found_owner, found_vote) = (reads.next().flatten(), reads.next().flatten());
        let went_back = match reads.next().flatten() {
            Some(found) => Revision(WentBack::decode(&found.value).map_err(|why| wrong(&back, why))?.up_to),
            None => Revision(0),
        };
        let revision = |found: &Option<Found>| found.as_ref().map_or(Revision(0), |found| found.modified);
        Ok(Kept {
            went_back,
            revisions: (revision(&found_owner), revision(&found_vote)),
            owner: found_owner
                .map(|found| Owner::decode(&found.value).map_err(|why| wrong(&owner, why)))
                .transpose()?,
            vote: found_vote
                .map(|found| Record::decode(&found.value).map_err(|why| wrong(&vote, why)))
                .transpose()?,
        })
    }

    /// Changes what is kept of a pool if it is still what was read.
    async fn change(&self, pool: Guid, kept: &Kept, steps: Vec<Step>) -> io::Result<bool> {
        let (owner, vote) = self.keys(pool);
        let conditions =
            vec![Condition::Modified(owner, kept.revisions.0), Condition::Modified(vote, kept.revisions.1)];
        let asked = self.store.transact(Transaction { conditions, steps, reads: Vec::new() });
        let Outcome { done, .. } = asked.await.map_err(|error| failed(&error))?;
        Ok(done)
    }

    async fn load(&self, pool: Guid) -> io::Result<Option<(Epoch, Seq)>> {
        // One that could not be taken over when the node started.
        let earlier = self.earlier.load(pool)?;
        let kept = self.read(pool).await?;
        if kept.vote.is_some() && kept.counted().is_none() {
            tracing::warn!(
                %pool,
                "the vote for a pool is from before the shared state was restored from a backup: it does not count"
            );
        }
        let vote = kept.counted().map(|vote| (Epoch(vote.epoch), Seq(vote.sequence)));
        Ok(vote.max(earlier))
    }

    async fn vote(&self, pool: Guid, epoch: Epoch, seq: Seq) -> io::Result<Vote> {
        let (_, key) = self.keys(pool);
        let value = Record { epoch: epoch.0, sequence: seq.0 }.encode().map_err(|why| wrong(&key, why))?;
        for _ in 0..TRIES {
            let kept = self.read(pool).await?;
            if kept.highest() > epoch.0 {
                return Ok(Vote::Refused(Epoch(kept.highest())));
            }
            if self.change(pool, &kept, vec![Step::Put(key.clone(), value.clone())]).await? {
                return Ok(Vote::Given);
            }
        }
        Err(io::Error::other(format!("{key} is changed again and again by somebody else")))
    }

    async fn take(&self, pool: Guid, above: u64) -> io::Result<u64> {
        let (key, _) = self.keys(pool);
        for _ in 0..TRIES {
            let kept = self.read(pool).await?;
            self.refuse_held(&kept)?;
            let epoch = kept.highest().max(above).saturating_add(1);
            if self.change(pool, &kept, vec![self.owned(&key, epoch)?]).await? {
                return Ok(epoch);
            }
        }
        Err(io::Error::other(format!("{key} is changed again and again by somebody else")))
    }

    /// Refuses a pool that another node has: it is not taken, it is moved.
    fn refuse_held(&self, kept: &Kept) -> io::Result<()> {
        let holder = kept.owner.as_ref().and_then(|owner| owner.holder);
        match (&self.holder, holder) {
            (Some(life), Some(holder)) if holder.node != life.node() => Err(io::Error::new(
                ErrorKind::ResourceBusy,
                format!("node {} of the cluster has the pool", holder.node),
            )),
            _ => Ok(()),
        }
    }

    fn owned(&self, key: &str, epoch: u64) -> io::Result<Step> {
        let holder = self.holder.as_ref().map(holder).transpose()?;
        let value = Owner { epoch, holder }.encode().map_err(|why| wrong(key, why))?;
        Ok(Step::Put(key.to_owned(), value))
    }

    async fn made(&self, pool: Guid, epoch: u64) -> io::Result<()> {
        let (key, _) = self.keys(pool);
        for _ in 0..TRIES {
            let kept = self.read(pool).await?;
            self.refuse_held(&kept)?;
            if kept.owner.as_ref().is_some_and(|owner| owner.epoch >= epoch)
                || self.change(pool, &kept, vec![self.owned(&key, epoch)?]).await?
            {
                return Ok(());
            }
        }
        Err(io::Error::other(format!("{key} is changed again and again by somebody else")))
    }

    async fn forget(&self, pool: Guid) -> io::Result<()> {
        let (owner, vote) = self.keys(pool);
        let id = PoolId(Uuid::from_bytes(pool.0));
        let beside = [Key::Served(id), Key::Clients(id), Key::Home(id), Key::PoolDisks(id)]
            .map(|key| key.path(&self.cluster));
        for _ in 0..TRIES {
            let kept = self.read(pool).await?;
            self.refuse_held(&kept)?;
            let keys = [&owner, &vote].into_iter().chain(&beside);
            let steps = keys.map(|key| Step::Delete(key.clone())).collect();
            if self.change(pool, &kept, steps).await? {
                return self.earlier.forget(pool);
            }
        }
        Err(io::Error::other(format!("{owner} is changed again and again by somebody else")))
    }

    /// Brings the votes of earlier releases to the store. Their files go when they are durable there: a release that does not know the
    /// store finds no vote then, rather than an old one that agrees with stale disks.
    async fn take_over_earlier(&self) -> io::Result<()> {
        for pool in self.earlier.pools()? {
            match self.earlier.load(pool) {
                Ok(Some((epoch, seq))) => {
                    if let Vote::Refused(known) = self.vote(pool, epoch, seq).await? {
                        tracing::info!(%pool, %known, "the vote that an earlier release kept is an older one");
                    }
                    self.earlier.forget(pool)?;
                }
                Ok(None) => {}
                // The pool says so when it is opened.
                Err(error) => {
                    tracing::error!(%pool, %error, "the vote that an earlier release kept cannot be read")
                }
            }
        }
        Ok(())
    }
}

impl Ownership {
    /// Epochs and votes in `store`, with what earlier releases kept. Blocks on the data directory's disk.
    ///
    /// # Errors
    /// When the node's identity can be neither read nor made.
    pub(super) fn new(
        store: Arc<dyn ClusterStore>,
        shared: Option<(ClusterName, Life)>,
        earlier: EarlierVotes,
        control: Handle,
    ) -> io::Result<Self> {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let node = Node { id: earlier.node()?, name: name.trim().to_owned() };
        let (cluster, holder) = match shared {
            Some((cluster, life)) => (cluster, Some(life)),
            None => {
                let alone = ClusterName::new(ALONE);
                (alone.ok_or_else(|| io::Error::other("no name of a cluster"))?, None)
            }
        };
        Ok(Self(Arc::new(Inner { store, cluster, earlier, node, holder, begun: OnceCell::new(), control })))
    }

    /// The node's identity.
    pub(crate) fn id(&self) -> Uuid {
        Uuid::from_bytes(self.0.node.id.0)
    }

    /// Whether the node is one of a cluster.
    pub(super) fn is_of_a_cluster(&self) -> bool {
        self.0.holder.is_some()
    }

    /// The number by which disks tell nodes apart: the one that the node has in its cluster, or, on a node of its own, one by chance.
    pub(super) fn number(&self) -> u16 {
        self.0.holder.as_ref().map_or(self.id().as_fields().1, |life| life.node().number())
    }

    /// Does this where it may block, and after what earlier releases left has been taken over.
    async fn with<T, F>(&self, work: impl FnOnce(Arc<Inner>) -> F + Send + 'static) -> io::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = io::Result<T>> + Send + 'static,
    {
        let (inner, control) = (self.0.clone(), self.0.control.clone());
        let ended = self.0.control.spawn_blocking(move || {
            control.block_on(async {
                inner.begun.get_or_try_init(|| inner.take_over_earlier()).await?;
                work(inner.clone()).await
            })
        });
        ended.await.map_err(io::Error::other)?
    }
}

impl QuorumWitness for Ownership {
    fn load(&self, pool: Guid) -> WitnessFuture<'_, Option<(Epoch, Seq)>> {
        Box::pin(self.with(move |inner| async move { inner.load(pool).await }))
    }

    fn store(&self, pool: Guid, epoch: Epoch, seq: Seq) -> WitnessFuture<'_, Vote> {
        Box::pin(self.with(move |inner| async move { inner.vote(pool, epoch, seq).await }))
    }

    fn node(&self) -> Option<Node> {
        Some(self.0.node.clone())
    }

    fn forget(&self, pool: Guid) -> WitnessFuture<'_, ()> {
        Box::pin(self.with(move |inner| async move { inner.forget(pool).await }))
    }
}

fn problem(error: &io::Error) -> Problem {
    match error.kind() {
        ErrorKind::ResourceBusy => {
            return Problem::new(Code::OtherNode, format!("{error}.")).todo(
                "`holdfast cluster status` says which node has which pool; `holdfast pool move` moves one.",
            );
        }
        ErrorKind::NotConnected => {
            return Problem::new(Code::Unavailable, format!("{error}."))
                .todo("`holdfast cluster status` says what it waits for.");
        }
        _ => {}
    }
    Problem::new(Code::Io, format!("what this node keeps of who owns its pools: {error}"))
        .todo("Make space or repair the file system of the data directory; the node tries again by itself.")
}

impl PoolOwner for Ownership {
    fn take(&self, pool: Uuid, above: u64) -> Work<'_, u64> {
        let taken = self.with(move |inner| async move { inner.take(Guid(pool.into_bytes()), above).await });
        Box::pin(async move { taken.await.map_err(|error| problem(&error)) })
    }

    fn made(&self, pool: Uuid, epoch: u64) -> Work<'_, ()> {
        let made = self.with(move |inner| async move { inner.made(Guid(pool.into_bytes()), epoch).await });
        Box::pin(async move { made.await.map_err(|error| problem(&error)) })
    }

    fn forget(&self, pool: Uuid) -> Work<'_, ()> {
        let gone = self.with(move |inner| async move { inner.forget(Guid(pool.into_bytes())).await });
        Box::pin(async move { gone.await.map_err(|error| problem(&error)) })
    }
}

#[cfg(test)]
mod tests {
    use cluster_store::LocalStore;

    use super::super::earlier_witness::line;
    use super::*;

    const POOL: Guid = Guid([7; 16]);

    fn ownership(data: &std::path::Path) -> Ownership {
        let store = LocalStore::open(&data.join("store")).expect("a store");
        let earlier = EarlierVotes::open(data.join("witness")).expect("files");
        Ownership::new(Arc::new(store), None, earlier, Handle::current()).expect("ownership")
    }

    #[tokio::test]
    async fn a_vote_counts_for_the_highest_epoch_only() {
        let dir = tempfile::tempdir().expect("temp dir");
        let ownership = ownership(dir.path());
        let pool = Uuid::from_bytes(POOL.0);
        assert_eq!(ownership.load(POOL).await.expect("readable"), None);
        let first = ownership.take(pool, 0).await.expect("taken");
        assert_eq!(first, 1);
        let vote = async |epoch, seq| ownership.store(POOL, Epoch(epoch), Seq(seq)).await.expect("answered");
        assert_eq!(vote(1, 10).await, Vote::Given);
        // Another life has it now, though it has not voted yet.
        let second = ownership.take(pool, 0).await.expect("taken");
        assert_eq!(second, 2);
        assert_eq!(vote(1, 11).await, Vote::Refused(Epoch(2)));
        assert_eq!(ownership.load(POOL).await.expect("readable"), Some((Epoch(1), Seq(10))));
        assert_eq!(vote(2, 11).await, Vote::Given);
        // Disks that were elsewhere know more than this node.
        assert_eq!(ownership.take(pool, 40).await.expect("taken"), 41);
        assert_eq!(ownership.take(pool, 40).await.expect("taken"), 42);
        PoolOwner::forget(&ownership, pool).await.expect("forgotten");
        assert_eq!(ownership.load(POOL).await.expect("readable"), None);
        assert_eq!(vote(2, 1).await, Vote::Given, "another pool of that name");
    }

    #[tokio::test]
    async fn epochs_survive_and_are_never_given_twice() {
        let dir = tempfile::tempdir().expect("temp dir");
        let pool = Uuid::from_bytes(POOL.0);
        for expected in 1..5 {
            let ownership = ownership(dir.path());
            assert_eq!(ownership.take(pool, 0).await.expect("taken"), expected);
        }
        let of = ownership(dir.path());
        assert!(of.take(pool, cluster_store::values::MAX_EPOCH).await.is_err(), "there is none above");
        assert_eq!(of.take(pool, 0).await.expect("taken"), 5);
    }

    /// The vote of a store that was restored may be older than a disk that missed the last changes, which must not be believed for it.
    #[tokio::test]
    async fn a_vote_from_before_the_store_went_back_counts_for_nothing() {
        let dir = tempfile::tempdir().expect("temp dir");
        let store = Arc::new(LocalStore::open(&dir.path().join("store")).expect("a store"));
        let earlier = EarlierVotes::open(dir.path().join("witness")).expect("files");
        let of = Ownership::new(store.clone(), None, earlier, Handle::current()).expect("ownership");
        let pool = Uuid::from_bytes(POOL.0);
        let epoch = of.take(pool, 0).await.expect("taken");
        assert_eq!(of.store(POOL, Epoch(epoch), Seq(10)).await.expect("answered"), Vote::Given);
        assert_eq!(of.load(POOL).await.expect("readable"), Some((Epoch(epoch), Seq(10))));
        let cluster = ClusterName::new(ALONE).expect("a name");
        let up_to = store.get(cluster_store::Range::Prefix(cluster.root())).await.expect("read").revision.0;
        let value = WentBack { up_to }.encode().expect("a value");
        let steps = vec![Step::Put(Key::WentBack.path(&cluster), value)];
        store.transact(Transaction { steps, ..Transaction::default() }).await.expect("done");
        assert_eq!(of.load(POOL).await.expect("readable"), None);
        // Epochs go on, and what is voted from now on counts.
        let epoch = of.take(pool, 0).await.expect("taken");
        assert_eq!(epoch, 2);
        assert_eq!(of.store(POOL, Epoch(epoch), Seq(11)).await.expect("answered"), Vote::Given);
        assert_eq!(of.load(POOL).await.expect("readable"), Some((Epoch(epoch), Seq(11))));
    }

    /// What a release wrote is read by all later ones: the store, and the votes from before there was one.
    #[tokio::test]
    async fn what_releases_kept_is_read() {
        let dir = tempfile::tempdir().expect("temp dir");
        let now = {
            let of = ownership(dir.path());
            for _ in 0..3 {
                of.take(Uuid::from_bytes(POOL.0), 0).await.expect("taken");
            }
            assert_eq!(of.store(POOL, Epoch(3), Seq(77)).await.expect("answered"), Vote::Given);
            std::fs::read(dir.path().join("store/state")).expect("there")
        };
        let earlier = line(9, 4321).into_bytes();
        let image = format_images::kept("cluster_store", 1, &[("state", now.clone()), ("vote", earlier)]);
        let image = image.expect("an image");
        let of = |name: &str| image.disks.iter().find(|(known, _)| known == name).expect("there").1.clone();
        assert!(of("state") == now, "a change of what is written is a new version");
        let dir = tempfile::tempdir().expect("temp dir");
        std::fs::create_dir_all(dir.path().join("store")).expect("made");
        std::fs::create_dir_all(dir.path().join("witness")).expect("made");
        std::fs::write(dir.path().join("store/state"), of("state")).expect("written");
        let other = Guid([8; 16]);
        std::fs::write(dir.path().join("witness").join(other.to_string()), of("vote")).expect("written");
        let read = ownership(dir.path());
        assert_eq!(read.load(POOL).await.expect("readable"), Some((Epoch(3), Seq(77))));
        assert_eq!(read.load(other).await.expect("readable"), Some((Epoch(9), Seq(4321))));
        assert_eq!(read.take(Uuid::from_bytes(other.0), 0).await.expect("taken"), 10);
    }

    #[tokio::test]
    async fn votes_of_earlier_releases_are_taken_over_once() {
        let dir = tempfile::tempdir().expect("temp dir");
        let start = || ownership(dir.path());
        let newest = Some((Epoch(5), Seq(1235)));
        let file = dir.path().join("witness").join(POOL.to_string());
        drop(start());
        std::fs::write(&file, line(5, 1235)).expect("written");
        let of = start();
        assert_eq!(of.load(POOL).await.expect("readable"), newest);
        assert!(!file.exists(), "an earlier release does not take it for the newest");
        assert_eq!(start().load(POOL).await.expect("readable"), newest);
        assert_eq!(of.take(Uuid::from_bytes(POOL.0), 0).await.expect("taken"), 6, "epochs go on");
        // An earlier release was here in between, and what it left is older.
        std::fs::write(&file, line(4, 9000)).expect("written");
        assert_eq!(start().load(POOL).await.expect("readable"), newest);
        assert!(!file.exists());
        // One that cannot be read is not taken for none, and keeps nobody else away.
        std::fs::write(&file, "holdfast-witness-1 9 9 9\n").expect("written");
        let of = start();
        assert!(of.load(POOL).await.is_err());
        assert_eq!(of.load(Guid([9; 16])).await.expect("readable"), None);
        assert!(file.exists());
    }
}
