//! The metadata's way to disk: group commit, checkpoints, votes.
//!
//! ```text
//!  submit(changes) ──► queue ──► committer task: one batch ──► log of every metadata disk (durable, parallel)
//!                                                              │ majority of votes?
//!                                          apply to the state ◄┘ yes          no ► poisoned: nothing more is
//!                                          wake whoever waits                      promised (fail stop)
//! ```
//! Changes are committed in the order of [`Meta::submit`]; callers that care hold a lock across the call,
//! which never waits. When the log is full, the whole state goes to each disk's older checkpoint slot and the log
//! starts again at its beginning. A disk that missed something gets no batches until a checkpoint has brought it
//! up: a batch behind a gap would never be replayed, so it must not count as a vote.
//!
//! The witness is told of a batch that a voter missed, or that voter could be believed alone later. Where the disks that have the batch
//! are no majority by themselves, its vote counts, and it is asked for each time: by then the pool may have another owner. Where they are one, it
//! is enough that it knows one batch that each of those missed which lag behind now.
//!
//! Whoever opens the pool after this one raises the epoch in the superblocks before it reads the log. A batch is promised only
//! when the superblock of a disk, another one each time, says that nobody has. What is written all the same until that is noticed does
//! not hit the successor's log, which lies in the other half of the area.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use aligned_buffer::IoBuf;
use block_device::{BlockErrorKind, Durability};
use futures_util::future::{join, join_all};
use parking_lot::{Mutex, RwLock};
use pool_format::{
    Change, Checkpoint, DiskId, DiskRecord, Epoch, LogBatch, MAX_BATCH_BYTES, PoolState, SUPERBLOCK_BYTES,
    Seq, Superblock,
};
use tokio::sync::{Notify, oneshot};

use crate::commit::{Commit, CommitFailed};
use crate::disk::PoolDisk;
use crate::ownership::Ownership;
use crate::witness::QuorumWitness;

/// The log is checkpointed at this many bytes at the latest, so that replay stays short.
const LOG_BYTES_MAX: u64 = 8 << 20;

/// The disks of a pool, by number.
pub(crate) type DiskMap = RwLock<BTreeMap<DiskId, Arc<PoolDisk>>>;

/// The pool's metadata and its committer.
pub(crate) struct Meta {
    state: RwLock<PoolState>,
    disks: Arc<DiskMap>,
    pub(crate) witness: Arc<dyn QuorumWitness>,
    ownership: Arc<Ownership>,
    epoch: Epoch,
    /// The last change that is committed.
    seq: AtomicU64,
    /// Bytes of the state as a checkpoint has it.
    state_bytes: AtomicU64,
    queue: Mutex<Queue>,
    work: Notify,
    poisoned: AtomicBool,
    /// Somebody else has opened the pool since.
    pub(crate) superseded: AtomicBool,
    /// Looks for such an opener so far.
    looks: AtomicUsize,
    commits: AtomicU64,
    /// Voters that lack a batch which the witness knows of, and have not been brought up since.
    pub(crate) told: Mutex<BTreeSet<DiskId>>,
}

struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

enum Job {
    Commit(Vec<Change>, oneshot::Sender<Result<(), CommitFailed>>),
    Checkpoint(oneshot::Sender<Result<(), CommitFailed>>),
    /// A disk's record that gives it a vote.
    Voter(Box<DiskRecord>, oneshot::Sender<Result<(), CommitFailed>>),
}

/// Where the log stands; the committer's own.
pub(crate) struct LogPosition {
    pub(crate) seq: Seq,
    pub(crate) used: u64,
}

impl Meta {
    pub(crate) fn new(
        state: PoolState,
        disks: Arc<DiskMap>,
        (witness, ownership): (Arc<dyn QuorumWitness>, Arc<Ownership>),
        (epoch, seq): (Epoch, Seq),
    ) -> Self {
        Self {
            state_bytes: AtomicU64::new(state.encode().len() as u64),
            state: RwLock::new(state),
            disks,
            witness,
            ownership,
            epoch,
            seq: AtomicU64::new(seq.0),
            queue: Mutex::new(Queue { jobs: VecDeque::new(), closed: false }),
            work: Notify::new(),
            poisoned: AtomicBool::new(false),
            superseded: AtomicBool::new(false),
            looks: AtomicUsize::new(0),
            commits: AtomicU64::new(0),
            told: Mutex::default(),
        }
    }

    /// Looks at the committed state.
    pub(crate) fn with_state<T>(&self, look: impl FnOnce(&PoolState) -> T) -> T {
        look(&self.state.read())
    }

    /// Bytes that the state takes of a checkpoint.
    pub(crate) fn state_bytes(&self) -> u64 {
        self.state_bytes.load(Ordering::Acquire)
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The last change that is committed.
    pub(crate) fn seq(&self) -> Seq {
        Seq(self.seq.load(Ordering::Acquire))
    }

    /// Changes the state before the committer runs: a checkpoint has to follow.
    pub(crate) fn amend(&self, changes: &[Change]) {
        let mut state = self.state.write();
        changes.iter().for_each(|change| state.apply(change));
        self.state_bytes.store(state.encode().len() as u64, Ordering::Release);
    }

    /// Whether the pool has stopped.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire) || self.ownership.is_lost()
    }

    /// Somebody else has opened the pool since, and it has stopped here.
    pub(crate) fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Acquire) || self.ownership.is_lost()
    }

    /// Whether the pool is still this node's, as far as its disks have said.
    pub(crate) fn ownership(&self) -> &Arc<Ownership> {
        &self.ownership
    }

    /// Why nothing can be committed.
    pub(crate) fn failed(&self) -> CommitFailed {
        CommitFailed::of(&self.ownership)
    }

    /// Whether a disk's superblock says that somebody has opened the pool since.
    async fn has_newer_owner(&self, disk: &PoolDisk) -> bool {
        let block = disk.peek(0, IoBuf::new(SUPERBLOCK_BYTES)).await;
        let pool = self.with_state(|state| state.guid);
        let newer = |found: Superblock| found.pool == pool && found.epoch > self.epoch;
        let newer = block.is_ok_and(|block| Superblock::decode(&block).is_ok_and(newer));
        self.superseded.fetch_or(newer, Ordering::AcqRel);
        newer
    }

    /// The disk that is looked at next.
    fn watched<'a>(&self, disks: &'a [Arc<PoolDisk>]) -> Option<&'a Arc<PoolDisk>> {
        disks.get(self.looks.fetch_add(1, Ordering::Relaxed) % disks.len().max(1))
    }

    /// Stops the pool when somebody has opened it since. One read of one disk.
    pub(crate) async fn look_for_newer_owner(&self) {
        let disks: Vec<_> = self.disks.read().values().filter(|disk| disk.is_online()).cloned().collect();
        if self.ownership.is_lost() {
            // The committer may not have tried to write since.
            self.poison();
            self.work.notify_one();
            return;
        }
        let Some(disk) = self.watched(&disks) else { return };
        if !self.is_poisoned() && self.has_newer_owner(disk).await {
            self.poison();
            self.work.notify_one();
        }
    }

    /// Batches written so far.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Puts changes in the queue, to be committed together; never waits.
    pub(crate) fn submit(&self, changes: Vec<Change>) -> Commit {
        let (sender, receiver) = oneshot::channel();
        self.push(Job::Commit(changes, sender));
        self.told_by(receiver)
    }

    /// Commits changes.
    pub(crate) async fn commit(&self, changes: Vec<Change>) -> Result<(), CommitFailed> {
        self.submit(changes).done().await
    }

    /// Writes a checkpoint to all metadata disks that are here, also ones that missed batches.
    pub(crate) async fn checkpoint(&self) -> Result<(), CommitFailed> {
        let (sender, receiver) = oneshot::channel();
        self.push(Job::Checkpoint(sender));
        self.told_by(receiver).done().await
    }

    /// Gives a disk a vote: it has the whole state, with its vote in it, before anyone counts it.
    pub(crate) async fn add_voter(&self, record: DiskRecord) -> Result<(), CommitFailed> {
        let (sender, receiver) = oneshot::channel();
        self.push(Job::Voter(Box::new(record), sender));
        self.told_by(receiver).done().await
    }

    fn told_by(&self, result: oneshot::Receiver<Result<(), CommitFailed>>) -> Commit {
        Commit::new(result, Arc::clone(&self.ownership))
    }

    fn push(&self, job: Job) {
        let mut queue = self.queue.lock();
        // Dropping the job's sender tells the caller.
        if !queue.closed {
            queue.jobs.push_back(job);
            self.work.notify_one();
        }
    }

    /// Refuses further work; the committer ends when the queue is empty.
    pub(crate) fn close(&self) {
        self.queue.lock().closed = true;
        self.work.notify_one();
    }

    /// The committer: runs until [`Meta::close`] or a failure.
    pub(crate) async fn run(self: Arc<Self>, mut position: LogPosition) {
        loop {
            let (jobs, closed) = {
                let mut queue = self.queue.lock();
                (std::mem::take(&mut queue.jobs), queue.closed)
            };
            if jobs.is_empty() {
                if closed {
                    return;
                }
                self.work.notified().await;
                continue;
            }
            for group in groups(jobs) {
                let result = match &group {
                    Group::Commit(changes, _) => self.write_batch(&mut position, changes).await,
                    Group::Checkpoint(_) => self.write_checkpoint(&mut position).await,
                    Group::Voter(record, _) => self.write_voter(&mut position, record).await,
                };
                if result.is_err() {
                    self.poison();
                }
                for sender in group.into_senders() {
                    let _ = sender.send(result);
                }
                if result.is_err() {
                    return;
                }
            }
        }
    }

    fn poison(&self) {
        if self.poisoned.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.is_superseded() {
            tracing::error!("the pool has been opened by somebody else since: it has stopped here");
        } else {
            tracing::error!(
                "the pool's metadata did not reach a majority of its disks: the pool has stopped"
            );
        }
        let mut queue = self.queue.lock();
        queue.closed = true;
        queue.jobs.clear();
    }

    async fn write_batch(&self, position: &mut LogPosition, changes: &[Change]) -> Result<(), CommitFailed> {
        let first = Seq(position.seq.0 + 1);
        let pool = self.with_state(|state| state.guid);
        let bytes = LogBatch { pool, epoch: self.epoch, first, changes: changes.to_vec() }.encode();
        let room = self.log_room();
        if position.used + bytes.len() as u64 > room {
            self.write_checkpoint(position).await?;
            if bytes.len() as u64 > room {
                return Err(self.failed());
            }
        }
        let last = Seq(position.seq.0 + changes.len() as u64);
        let data = IoBuf::copy_from(&bytes).freeze();
        let used = position.used;
        let disks = self.log_disks();
        let writes = disks.iter().map(|disk| {
            let data = data.clone();
            async move {
                let at = disk.layout.read().log_half(self.epoch).0 + used;
                put(disk, at, data).await
            }
        });
        let look = async {
            match self.watched(&disks) {
                Some(disk) => self.has_newer_owner(disk).await,
                None => false,
            }
        };
        // Side by side: a commit takes no longer for it.
        let (written, newer) = join(join_all(writes), look).await;
        if newer {
            return Err(self.failed());
        }
        let reached = disks.iter().zip(written).filter(|(_, ok)| *ok).map(|(disk, _)| disk.id).collect();
        self.count_votes(&reached, last).await?;
        position.used += bytes.len() as u64;
        position.seq = last;
        let mut state = self.state.write();
        let mut bytes = self.state_bytes.load(Ordering::Acquire);
        for change in changes {
            let before = state.bytes_touched(change) as u64;
            state.apply(change);
            bytes = bytes + state.bytes_touched(change) as u64 - before;
        }
        self.state_bytes.store(bytes, Ordering::Release);
        self.seq.store(last.0, Ordering::Release);
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Writes the state to the older slot of each disk. A crash half-way leaves the newer slot and the log after
    /// it.
    pub(crate) async fn write_checkpoint(&self, position: &mut LogPosition) -> Result<(), CommitFailed> {
        let state = self.state.read().clone();
        let reached = self.put_checkpoint(&state, position.seq, &self.metadata_disks()).await;
        self.count_votes(&reached, position.seq).await?;
        position.used = 0;
        Ok(())
    }

    /// A change of the voters is a checkpoint, the new voter's first: with only that one written, a majority of
    /// the new voters is still here, and without it nothing has changed.
    async fn write_voter(&self, position: &mut LogPosition, record: &DiskRecord) -> Result<(), CommitFailed> {
        let seq = Seq(position.seq.0 + 1);
        let mut state = self.state.read().clone();
        state.apply(&Change::PutDisk(record.clone()));
        let old = self.metadata_disks();
        let joining = self.disks.read().get(&record.id).cloned();
        if self.put_checkpoint(&state, seq, joining.as_slice()).await.is_empty() {
            // The disk is offline now, or full, and does not get its vote.
            return Ok(());
        }
        let mut reached = self.put_checkpoint(&state, seq, &old).await;
        // A majority of those that voted before, and of those that vote from now on.
        self.count_votes(&reached, seq).await?;
        self.state_bytes.store(state.encode().len() as u64, Ordering::Release);
        *self.state.write() = state;
        reached.insert(record.id);
        self.count_votes(&reached, seq).await?;
        position.seq = seq;
        position.used = 0;
        self.seq.store(seq.0, Ordering::Release);
        Ok(())
    }

    /// Writes a state to disks; which of them have it now.
    async fn put_checkpoint(&self, state: &PoolState, seq: Seq, disks: &[Arc<PoolDisk>]) -> BTreeSet<DiskId> {
        let checkpoint = Checkpoint { epoch: self.epoch, seq, state: state.clone() };
        let data = IoBuf::copy_from(&checkpoint.encode()).freeze();
        let writes = disks.iter().map(|disk| {
            let data = data.clone();
            async move {
                let layout = disk.layout.read().clone();
                if data.len() as u64 > layout.checkpoint_size {
                    // Its vote is missing; what else it holds is as good as before.
                    disk.log_whole.store(false, Ordering::Release);
                    tracing::warn!("the pool's metadata has outgrown its area on disk {}", disk.id);
                    return false;
                }
                // A successor's newest checkpoint may lie there.
                if self.has_newer_owner(disk).await {
                    return false;
                }
                let slot = 1 - disk.newest_slot.load(Ordering::Acquire).min(1);
                let at = layout.checkpoint_start + u64::from(slot) * layout.checkpoint_size;
                let written = put(disk, at, data).await;
                if written {
                    disk.newest_slot.store(slot, Ordering::Release);
                    disk.log_whole.store(true, Ordering::Release);
                }
                written
            }
        });
        let written = join_all(writes).await;
        disks.iter().zip(written).filter(|(_, ok)| *ok).map(|(disk, _)| disk.id).collect()
    }

    fn log_room(&self) -> u64 {
        let rooms = self.log_disks().into_iter().map(|disk| disk.layout.read().log_half(self.epoch).1);
        rooms.min().unwrap_or(0).min(LOG_BYTES_MAX)
    }

    fn metadata_disks(&self) -> Vec<Arc<PoolDisk>> {
        let ids: Vec<DiskId> = self.state.read().metadata_disks().map(|disk| disk.id).collect();
        let disks = self.disks.read();
        ids.iter().filter_map(|id| disks.get(id)).filter(|disk| disk.is_online()).cloned().collect()
    }

    /// Metadata disks whose log has no gap.
    fn log_disks(&self) -> Vec<Arc<PoolDisk>> {
        let mut disks = self.metadata_disks();
        disks.retain(|disk| disk.log_whole.load(Ordering::Acquire));
        disks
    }
}

/// Writes metadata to a disk. One that misses a batch has a gap in its log and may not vote until a checkpoint
/// has filled it. One whose file system is full goes on with what else it holds; for any other reason it goes offline.
async fn put(disk: &PoolDisk, at: u64, data: aligned_buffer::SharedBuf) -> bool {
    match disk.write_metadata(at, data, Durability::Durable).await {
        Ok(()) => true,
        Err(error) => {
            disk.log_whole.store(false, Ordering::Release);
            if !matches!(error.kind(), BlockErrorKind::NoSpace | BlockErrorKind::Fenced) {
                disk.take_offline(&error.to_string());
            }
            false
        }
    }
}

enum Group {
    Commit(Vec<Change>, Vec<oneshot::Sender<Result<(), CommitFailed>>>),
    Checkpoint(oneshot::Sender<Result<(), CommitFailed>>),
    Voter(Box<DiskRecord>, oneshot::Sender<Result<(), CommitFailed>>),
}

impl Group {
    fn into_senders(self) -> Vec<oneshot::Sender<Result<(), CommitFailed>>> {
        match self {
            Self::Commit(_, senders) => senders,
            Self::Checkpoint(sender) | Self::Voter(_, sender) => vec![sender],
        }
    }
}

/// Gathers commits, in order, into batches that fit.
fn groups(jobs: VecDeque<Job>) -> Vec<Group> {
    /// No change is longer than this: a disk's record with its five texts is the longest by far.
    const CHANGE_BYTES_GUESS: usize = 128;
    let room = MAX_BATCH_BYTES / CHANGE_BYTES_GUESS;
    let mut groups: Vec<Group> = Vec::new();
    for job in jobs {
        match (job, groups.last_mut()) {
            (Job::Commit(more, sender), Some(Group::Commit(changes, senders)))
                if changes.len() + more.len() <= room =>
            {
                changes.extend(more);
                senders.push(sender);
            }
            (Job::Commit(changes, sender), _) => groups.push(Group::Commit(changes, vec![sender])),
            (Job::Checkpoint(sender), _) => groups.push(Group::Checkpoint(sender)),
            (Job::Voter(record, sender), _) => groups.push(Group::Voter(record, sender)),
        }
    }
    groups
}
