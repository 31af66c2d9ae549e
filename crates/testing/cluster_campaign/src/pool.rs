//! A pool of a few mirrored blocks, as its owner runs it: metadata by majority, dirty and stale marks, repair of what was away.
//!
//! It follows the real pool's rules (`crates/pool`) in the small: a block is marked dirty by a committed change of the metadata
//! before it is written, a copy that lacks something is marked stale by one before the write is answered, and a commit is a majority of
//! the votes: the disks, and the witness in the store where the disks are even in number.

mod upkeep;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use cluster_store::values::{Value as _, Vote};
use cluster_store::{Condition, Revision, Step, Transaction};
use pool_ownership::{Failure, Order};

use crate::case::Sabotage;
use crate::disk::{Block, Command, DiskIndex, DiskReply, Metadata, NodeIndex};
use crate::fence::{Trouble, fence};
use crate::life::{Life, Lock, MILLISECOND, Out, all};

/// How long the broken build that opens before it fences takes to open.
const OPENS_FOR: u64 = 3000 * MILLISECOND;

/// How a pool is made.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Its number.
    pub(crate) pool: usize,
    /// Its disks among those of the world.
    pub(crate) disks: Vec<usize>,
    pub(crate) blocks: usize,
    pub(crate) owner_key: String,
    pub(crate) witness_key: String,
}

impl Plan {
    /// Where the copies of a block are.
    pub(crate) fn copies(&self, block: Block) -> [DiskIndex; 2] {
        [block % self.disks.len(), (block + 1) % self.disks.len()]
    }

    fn has_witness(&self) -> bool {
        self.disks.len().is_multiple_of(2)
    }

    fn majority(&self) -> usize {
        let votes = self.disks.len() + usize::from(self.has_witness());
        votes / 2 + 1
    }
}

/// One epoch of a pool on its owner.
pub(crate) struct Pool {
    pub(crate) plan: Plan,
    node: NodeIndex,
    pub(crate) epoch: u64,
    life: Rc<Life>,
    /// The session with each disk that is fenced and believed to be there.
    sessions: RefCell<Vec<Option<u64>>>,
    metadata: RefCell<Metadata>,
    /// Of [`Self::metadata`], what a majority has.
    durable: RefCell<Metadata>,
    /// What was found before anything was fenced.
    early: RefCell<Option<Metadata>>,
    /// The owner's key as it was when the pool was opened: votes depend on it.
    owner: Cell<Revision>,
    /// The witness's key as the last vote left it: the next one depends on that too.
    witness: Cell<Revision>,
    commits: Lock,
    blocks: Vec<Lock>,
    turn: Cell<usize>,
}

impl Pool {
    pub(crate) fn new(plan: Plan, node: NodeIndex, epoch: u64, life: Rc<Life>) -> Rc<Self> {
        Rc::new(Self {
            sessions: RefCell::new(vec![None; plan.disks.len()]),
            blocks: (0..plan.blocks).map(|_| Lock::default()).collect(),
            plan,
            node,
            epoch,
            life,
            metadata: RefCell::default(),
            durable: RefCell::default(),
            early: RefCell::default(),
            owner: Cell::default(),
            witness: Cell::default(),
            commits: Lock::default(),
            turn: Cell::new(0),
        })
    }

    /// Carries out an order and reports.
    pub(crate) async fn order(self: Rc<Self>, order: Order) {
        let result = match order {
            Order::Fence => self.fence().await,
            Order::Open => self.open().await,
            Order::Restore => {
                self.life.sleep(50 * MILLISECOND).await;
                Ok(())
            }
            Order::Publish | Order::Stop => Ok(()),
        };
        self.report(result.map(|()| order));
    }

    fn report(&self, result: Result<Order, Trouble>) {
        let result = result.map_err(|trouble| match trouble {
            Trouble::Fenced => Failure::Fenced,
            Trouble::Away => Failure::Trouble,
        });
        self.life.send(Out::Report { pool: self.plan.pool, epoch: self.epoch, result });
    }

    fn sabotaged(&self, with: Sabotage) -> bool {
        self.life.sabotage == with
    }

    fn session(&self, disk: DiskIndex) -> Option<u64> {
        self.sessions.borrow()[disk]
    }

    fn present(&self) -> Vec<DiskIndex> {
        let sessions = self.sessions.borrow();
        (0..sessions.len()).filter(|disk| sessions[*disk].is_some()).collect()
    }

    async fn command(&self, disk: DiskIndex, command: Command) -> Result<DiskReply, Trouble> {
        let session = self.session(disk).ok_or(Trouble::Away)?;
        match self.life.disk(self.plan.disks[disk], session, self.epoch, command).await {
            Some(DiskReply::Conflict) => Err(Trouble::Fenced),
            Some(reply) => Ok(reply),
            None => Err(Trouble::Away),
        }
    }

    async fn fence(&self) -> Result<(), Trouble> {
        if self.sabotaged(Sabotage::OpenBeforeFence) {
            let session = if self.session(0).is_none() { self.life.new_session() } else { 0 };
            for disk in 0..self.plan.disks.len() {
                self.life.disk(self.plan.disks[disk], session, self.epoch, Command::Login).await;
                self.sessions.borrow_mut()[disk] = Some(session);
            }
            *self.early.borrow_mut() = Some(self.newest().await?);
            // An opening takes as long as there is metadata to read, and the former owner, which has lost the store and not the disks, carries
            // out meanwhile what clients ask of it.
            self.life.sleep(OPENS_FOR).await;
        }
        let disks = 0..self.plan.disks.len();
        let fenced = all(disks.map(|disk| self.fence_one(disk)).collect()).await;
        if fenced.contains(&Err(Trouble::Fenced)) {
            return Err(Trouble::Fenced);
        }
        let votes =
            fenced.iter().filter(|result| result.is_ok()).count() + usize::from(self.plan.has_witness());
        if votes >= self.plan.majority() { Ok(()) } else { Err(Trouble::Away) }
    }

    /// Lets go of all disks and does not wait for it. For a broken build: whoever hands a pool over keeps its registrations.
    pub(crate) fn let_go(&self) {
        for disk in self.present() {
            let (session, epoch, command) =
                (self.session(disk).unwrap_or_default(), self.epoch, Command::Unregister);
            // Nobody waits under this number.
            self.life.send(Out::Disk { wait: 0, disk: self.plan.disks[disk], session, epoch, command });
        }
    }

    async fn fence_one(&self, disk: DiskIndex) -> Result<(), Trouble> {
        let fenced =
            fence(&self.life, self.node, self.plan.disks[disk], self.epoch, self.life.new_session()).await;
        self.sessions.borrow_mut()[disk] = fenced.ok();
        fenced.map(|_| ())
    }

    /// The newest state that a majority of the votes allows.
    async fn newest(&self) -> Result<Metadata, Trouble> {
        let read = |disk| self.command(disk, Command::ReadMetadata);
        let found = all(self.present().into_iter().map(read).collect()).await;
        let found = found.into_iter().filter_map(|reply| match reply {
            Ok(DiskReply::Metadata(metadata)) => Some(metadata),
            _ => None,
        });
        let found: Vec<Metadata> = found.collect();
        let mut votes = found.len();
        let newest = found.into_iter().max_by_key(Metadata::age).ok_or(Trouble::Away)?;
        let keys = vec![self.plan.owner_key.clone(), self.plan.witness_key.clone()];
        let read = Transaction { reads: keys, ..Transaction::default() };
        if let Some(Ok(outcome)) = self.life.store(read).await
            && let [owner, witness] = outcome.reads.as_slice()
        {
            use cluster_store::values::Owner;
            let owner = owner.as_ref().ok_or(Trouble::Fenced)?;
            if Owner::decode(&owner.value).is_ok_and(|of| of.epoch != self.epoch) {
                return Err(Trouble::Fenced);
            }
            self.owner.set(owner.modified);
            self.witness.set(witness.as_ref().map(|found| found.modified).unwrap_or_default());
            let vote = witness.as_ref().and_then(|found| Vote::decode(&found.value).ok());
            if vote.is_some_and(|vote| (vote.epoch, vote.sequence) > newest.age()) && self.plan.has_witness()
            {
                // All disks that are here have missed something.
                return Err(Trouble::Away);
            }
            votes += usize::from(self.plan.has_witness());
        }
        if votes >= self.plan.majority() { Ok(newest) } else { Err(Trouble::Away) }
    }

    async fn open(&self) -> Result<(), Trouble> {
        let early = self.early.borrow_mut().take();
        let newest = match early {
            Some(early) => early,
            None => self.newest().await?,
        };
        *self.metadata.borrow_mut() = newest;
        let away: BTreeSet<DiskIndex> =
            (0..self.plan.disks.len()).filter(|disk| self.session(*disk).is_none()).collect();
        let guard = self.commits.take(&self.life).await;
        {
            let mut metadata = self.metadata.borrow_mut();
            (metadata.epoch, metadata.sequence) = (self.epoch, 0);
        }
        self.commit(|metadata| self.miss(metadata, &away)).await?;
        drop(guard);
        for block in 0..self.plan.blocks {
            let source = self.sound(block).into_iter().next().ok_or(Trouble::Away)?;
            if !self.metadata.borrow().dirty.contains(&block) {
                continue;
            }
            let DiskReply::Value(value) = self.command(source, Command::Read(block)).await? else {
                return Err(Trouble::Away);
            };
            for copy in self.sound(block).into_iter().filter(|copy| *copy != source) {
                self.command(copy, Command::Write(block, value)).await?;
            }
        }
        Ok(())
    }

    /// Copies of a block that are here and lack nothing.
    pub(crate) fn sound(&self, block: Block) -> Vec<DiskIndex> {
        let metadata = self.metadata.borrow();
        let sound =
            |disk: &DiskIndex| self.session(*disk).is_some() && !metadata.stale.contains(&(*disk, block));
        self.plan.copies(block).into_iter().filter(sound).collect()
    }

    /// What disks that are away may lack: whatever is dirty.
    fn miss(&self, metadata: &mut Metadata, away: &BTreeSet<DiskIndex>) {
        for block in metadata.dirty.clone() {
            for copy in self.plan.copies(block).into_iter().filter(|copy| away.contains(copy)) {
                self.mark_stale(metadata, copy, block);
            }
        }
    }

    /// Never the last copy that is sound: without it nothing of the block is served, and with it everything that was answered comes back.
    fn mark_stale(&self, metadata: &mut Metadata, copy: DiskIndex, block: Block) {
        let sound = |other: DiskIndex| other != copy && !metadata.stale.contains(&(other, block));
        if self.plan.copies(block).into_iter().any(sound) {
            metadata.stale.insert((copy, block));
        }
    }

    /// Makes a change of the metadata durable on a majority; whoever calls holds `commits`.
    async fn commit(&self, change: impl Fn(&mut Metadata)) -> Result<(), Trouble> {
        loop {
            let next = {
                let mut metadata = self.metadata.borrow_mut();
                change(&mut metadata);
                metadata.sequence += 1;
                metadata.clone()
            };
            let present = self.present();
            let write = |disk: DiskIndex| self.command(disk, Command::WriteMetadata(next.clone()));
            let written = all(present.iter().map(|disk| write(*disk)).collect()).await;
            if written.iter().any(|result| result.as_ref().err() == Some(&Trouble::Fenced)) {
                return Err(Trouble::Fenced);
            }
            let mut votes = written.iter().filter(|result| result.is_ok()).count();
            let lost: BTreeSet<DiskIndex> = present
                .iter()
                .zip(&written)
                .filter(|(_, result)| result.is_err())
                .map(|(disk, _)| *disk)
                .collect();
            if !lost.is_empty() {
                for disk in &lost {
                    self.sessions.borrow_mut()[*disk] = None;
                }
                let mut metadata = self.metadata.borrow_mut();
                self.miss(&mut metadata, &lost);
                // Once more, with what the lost ones lack.
                continue;
            }
            // A vote that makes no majority is never given: the witness would know a change that no disk has.
            let decides = votes + 1 >= self.plan.majority();
            if self.plan.has_witness() && decides && (votes < self.plan.disks.len() || next.sequence == 1) {
                votes += usize::from(self.vote(&next).await?);
            }
            if votes < self.plan.majority() {
                return Err(Trouble::Away);
            }
            *self.durable.borrow_mut() = next;
            return Ok(());
        }
    }

    /// The witness's vote. It depends on the owner being the one of this epoch, and on the vote before: one that comes late would
    /// otherwise take the place of a newer one, and a disk that has missed something would be believed.
    async fn vote(&self, metadata: &Metadata) -> Result<bool, Trouble> {
        let vote = Vote { epoch: metadata.epoch, sequence: metadata.sequence };
        let value = vote.encode().unwrap_or_default();
        let keys = [self.plan.owner_key.clone(), self.plan.witness_key.clone()];
        for _ in 0..2 {
            let conditions = match self.life.sabotage {
                Sabotage::UnconditionalWitness => Vec::new(),
                Sabotage::UnchainedWitness => vec![Condition::Modified(keys[0].clone(), self.owner.get())],
                _ => vec![
                    Condition::Modified(keys[0].clone(), self.owner.get()),
                    Condition::Modified(keys[1].clone(), self.witness.get()),
                ],
            };
            let steps = vec![Step::Put(keys[1].clone(), value.clone())];
            let Some(Ok(outcome)) =
                self.life.store(Transaction { conditions, steps, reads: keys.to_vec() }).await
            else {
                return Ok(false);
            };
            let modified =
                |at: usize| outcome.reads[at].as_ref().map(|found| found.modified).unwrap_or_default();
            if !outcome.done && modified(0) != self.owner.get() {
                return Err(Trouble::Fenced);
            }
            // Under an owner that is unchanged, nobody else votes: an earlier vote has arrived whose answer has not.
            self.witness.set(modified(1));
            if outcome.done {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A disk does not answer: it is marked as lacking what it may lack, before anything is answered.
    async fn lose(&self, disk: DiskIndex) -> Result<(), Trouble> {
        let _guard = self.commits.take(&self.life).await;
        if self.sessions.borrow_mut()[disk].take().is_some() {
            self.commit(|metadata| self.miss(metadata, &BTreeSet::from([disk]))).await?;
        }
        Ok(())
    }

    /// Whether a client's request is of a connection that it has given up.
    fn given_up(&self, client: usize, connection: u64) -> bool {
        self.life.inner.borrow().connections.get(&client).is_some_and(|present| *present > connection)
    }

    /// Carries out a request of a client when it has waited for so long, and answers it.
    pub(crate) async fn serve(self: Rc<Self>, request: Request, waits: u64) {
        if waits > 0 {
            self.life.sleep(waits).await;
        }
        let Request { client, operation, connection, block, write } = request;
        let pool = self.plan.pool;
        let admitted = self.life.may_answer(pool, self.epoch);
        loop {
            let guard = self.blocks[block].take(&self.life).await;
            if self.given_up(client, connection) {
                return;
            }
            let result = match write {
                Some(value) => self.write(block, value).await.map(|()| value),
                None => self.read(block).await,
            };
            drop(guard);
            let value = match result {
                Ok(value) => value,
                Err(trouble) => return self.report(Err(trouble)),
            };
            // Only now: what was read while there was a permit is what the owner's clients have written.
            let early = self.sabotaged(Sabotage::PermitBeforeRead) && admitted;
            if early || self.life.may_answer(pool, self.epoch) {
                return self.life.send(Out::Answer { client, operation, pool, epoch: self.epoch, value });
            }
            self.life.sleep(100 * MILLISECOND).await;
        }
    }

    async fn read(&self, block: Block) -> Result<u64, Trouble> {
        loop {
            let sound = self.sound(block);
            // Each copy in turn: two that differ show.
            self.turn.set(self.turn.get() + 1);
            let disk = *sound.get(self.turn.get() % sound.len().max(1)).ok_or(Trouble::Away)?;
            match self.command(disk, Command::Read(block)).await {
                Ok(DiskReply::Value(value)) => return Ok(value),
                Err(Trouble::Fenced) => return Err(Trouble::Fenced),
                _ => self.lose(disk).await?,
            }
        }
    }

    async fn write(&self, block: Block, value: u64) -> Result<(), Trouble> {
        if !self.metadata.borrow().dirty.contains(&block) {
            let _guard = self.commits.take(&self.life).await;
            let mark = |metadata: &mut Metadata| {
                metadata.dirty.insert(block);
                for copy in self.plan.copies(block).into_iter().filter(|copy| self.session(*copy).is_none()) {
                    self.mark_stale(metadata, copy, block);
                }
            };
            self.commit(mark).await?;
        }
        let copies = self.sound(block);
        let write = |disk: DiskIndex| self.command(disk, Command::Write(block, value));
        let written = all(copies.iter().map(|disk| write(*disk)).collect()).await;
        if written.iter().any(|result| result.as_ref().err() == Some(&Trouble::Fenced)) {
            return Err(Trouble::Fenced);
        }
        for (disk, _) in copies.iter().zip(&written).filter(|(_, result)| result.is_err()) {
            self.lose(*disk).await?;
        }
        if written.iter().all(Result::is_err) {
            return Err(Trouble::Away);
        }
        let done =
            |copy: &DiskIndex| copies.iter().zip(&written).any(|(of, result)| of == copy && result.is_ok());
        let lacking: BTreeSet<DiskIndex> =
            self.plan.copies(block).into_iter().filter(|copy| !done(copy)).collect();
        let marked = |copy: &DiskIndex| self.durable.borrow().stale.contains(&(*copy, block));
        if !lacking.iter().all(marked) {
            // Somebody else has lost the disk, and its mark may not be durable yet.
            let _guard = self.commits.take(&self.life).await;
            self.commit(|metadata| self.miss(metadata, &lacking)).await?;
        }
        // Whoever has it may have been marked stale meanwhile, and then the one that lacks it is the last that counts as sound.
        if !lacking.iter().all(marked) {
            return Err(Trouble::Away);
        }
        Ok(())
    }
}

/// What a client asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) client: usize,
    pub(crate) operation: u64,
    pub(crate) connection: u64,
    pub(crate) block: Block,
    /// The value to write; `None`: it reads.
    pub(crate) write: Option<u64>,
}
