//! Which pools this node begins with, stops and wants.

use cluster_store::keys::{Key, NodeId, PoolId};
use cluster_store::values::{Beat, Holder, Member, Owner, Value};
use cluster_store::{Condition, Revision, Step, Transaction};

use super::{Node, Phase};
use crate::chain::Purpose;
use crate::io::{Action, Failure, Order};
use crate::pool::Run;
use crate::sight::Reach;
use crate::time::BootTime;

/// So often in a row a pool whose disks know a higher epoch is taken above it without a pause.
const BEHIND_AT_ONCE: u32 = 3;

/// What is seen of the cluster, for people.
impl Node {
    /// The members as they were last seen, with when their last beats were received; this node among them.
    pub fn members(&self) -> impl Iterator<Item = (NodeId, Option<&Member>, Option<BootTime>)> {
        let beats = &self.view.beats;
        let of = |node: &NodeId| beats.get(node).map(|beat| beat.received);
        self.view.members.iter().map(move |(node, seen)| (*node, seen.member.as_ref(), of(node)))
    }

    /// The owners of all pools as they were last seen; none where what stands there is not understood.
    pub fn owners(&self) -> impl Iterator<Item = (PoolId, Option<&Owner>)> {
        self.view.owners.iter().map(|(pool, seen)| (*pool, seen.owner.as_ref()))
    }
}

impl Node {
    fn holder(&self) -> Holder {
        Holder { node: self.me, incarnation: self.incarnation }
    }

    /// The epoch in which the store says that this node owns the pool.
    fn owned(&self, pool: PoolId) -> Option<u64> {
        let owner = self.view.owners.get(&pool)?.owner.as_ref()?;
        (self.phase == Phase::Member && owner.holder == Some(self.holder())).then_some(owner.epoch)
    }

    pub(crate) fn done(&mut self, id: PoolId, epoch: u64, order: Order, actions: &mut Vec<Action>) {
        let Some(pool) = self.pools.get_mut(&id) else { return };
        if let Some(next) = pool.done(epoch, order) {
            actions.push(Action::Pool(id, epoch, next));
        }
    }

    pub(crate) fn failed(&mut self, now: BootTime, id: PoolId, epoch: u64, failure: Failure) {
        let (first, most) = (self.timings.back_off, self.timings.back_off_most);
        if let Some(pool) = self.pools.get_mut(&id)
            && matches!(pool.run, Run::Active { epoch: running, .. } if running == epoch)
        {
            pool.gave_up = pool.gave_up.max(epoch);
            if let Failure::Behind(known) = failure {
                pool.known = pool.known.max(known);
            }
            // Going above what disks know is tried at once; where that does not end, others have the disks, of another cluster perhaps.
            let again = matches!(failure, Failure::Behind(_)) && pool.failures < BEHIND_AT_ONCE;
            if again {
                pool.failures += 1;
            } else if failure != Failure::Fenced {
                pool.failures = (pool.failures + 1).min(16);
                pool.not_before = now.after((first * (1 << (pool.failures - 1).min(8))).min(most));
            }
        }
    }

    /// Says which pools take long to stop: disks that never answer keep a pool from everybody as long as the node that waits for them beats.
    pub(crate) fn notice_what_hangs(&mut self, now: BootTime, actions: &mut Vec<Action>) {
        let known: Vec<PoolId> = self.pools.keys().copied().collect();
        for id in known {
            let Some(pool) = self.pools.get_mut(&id) else { continue };
            match pool.stops_long(now, self.timings.stop_within) {
                Ok(()) => actions.push(Action::Hung(id)),
                Err(Some(at)) => self.wake_at(now, at),
                Err(None) => {}
            }
        }
    }

    /// Begins with pools that this node owns, and stops those that it does not own any more.
    pub(crate) fn reconcile(&mut self, now: BootTime, actions: &mut Vec<Action>) {
        let known: Vec<PoolId> = self.view.owners.keys().chain(self.pools.keys()).copied().collect();
        for id in known {
            let owned = self.owned(id);
            let target = self.move_target(now, id);
            let pool = self.pools.entry(id).or_default();
            match pool.run {
                Run::Active { epoch, .. } => {
                    let moves = pool.move_to.is_some();
                    if moves && target.is_none() {
                        // There is nobody there to take it: it stays.
                        pool.move_to = None;
                    }
                    if owned != Some(epoch) || target.is_some() || pool.gave_up >= epoch {
                        pool.run = Run::Stopping { epoch };
                        pool.gave_up = pool.gave_up.max(epoch);
                        actions.push(Action::Pool(id, epoch, Order::Stop));
                    }
                }
                Run::Idle => {
                    if let Some(epoch) = owned.filter(|epoch| *epoch > pool.gave_up) {
                        // It has come to where it was to go: the watch may tell so before the answer to the transaction does.
                        pool.move_to = None;
                        pool.run = Run::Active { epoch, step: Some(Order::Fence) };
                        actions.push(Action::Pool(id, epoch, Order::Fence));
                    }
                }
                Run::Stopping { .. } => {}
            }
        }
    }

    /// Where the pool goes now, if it is to go somewhere and that node can take it.
    fn move_target(&self, now: BootTime, pool: PoolId) -> Option<NodeId> {
        let asked = self.pools.get(&pool).and_then(|pool| pool.move_to);
        if self.record.draining && asked.is_none() {
            let candidates = self.candidates(now, pool, None).into_iter();
            return candidates.filter(|node| self.knows_all(*node)).find(|node| *node != self.me);
        }
        asked.filter(|node| self.can_be_given(now, pool, *node))
    }

    /// Whether a pool can be given to a node: who gets one has to see its disks, and to be someone from whom all others may claim it. This one, which
    /// opens it anew then, has to reach the store: the pool is stopped before the store says that it may be opened again.
    fn can_be_given(&self, now: BootTime, pool: PoolId, node: NodeId) -> bool {
        let committed = || self.permit.last_committed().map(|at| at.after(self.timings.claim_after));
        let is_heard = node != self.me || committed().is_some_and(|until| now < until);
        is_heard && self.is_up(now, node) && self.knows_all(node) && self.reach(node, pool) == Reach::Enough
    }

    /// Whether the last beat of a member shows that it knows all others.
    fn knows_all(&self, node: NodeId) -> bool {
        let Some(beat) = self.view.beats.get(&node).and_then(|seen| seen.beat.as_ref()) else { return false };
        self.view.members.iter().all(|(other, seen)| *other == node || beat.knows() >= seen.created)
    }

    /// Whether a member can take pools, as far as is known here.
    fn is_up(&self, now: BootTime, node: NodeId) -> bool {
        if node == self.me {
            return self.phase == Phase::Member && !self.record.paused && !self.record.draining;
        }
        let takes = self.view.members.get(&node).and_then(|seen| seen.member.as_ref());
        let heard = self.view.beats.get(&node).map(|seen| seen.received.after(self.timings.claim_after));
        takes.is_some_and(|member| !member.paused && !member.draining)
            && heard.is_some_and(|until| now < until)
    }

    /// Who can take the pool, in the order in which they should.
    fn candidates(&self, now: BootTime, pool: PoolId, without: Option<NodeId>) -> Vec<NodeId> {
        let home = self.view.homes.get(&pool).map(|home| home.nodes.as_slice()).unwrap_or_default();
        let mut nodes: Vec<NodeId> = Vec::new();
        for node in home.iter().chain(self.view.members.keys()) {
            let can = || self.is_up(now, *node) && self.reach(*node, pool) == Reach::Enough;
            if !nodes.contains(node) && Some(*node) != without && can() {
                nodes.push(*node);
            }
        }
        nodes
    }

    /// How long this node leaves a pool to those before it; `None` when it takes none.
    fn turn(&self, now: BootTime, pool: PoolId, without: Option<NodeId>) -> Option<std::time::Duration> {
        let candidates = self.candidates(now, pool, without);
        let after = |rank: usize| self.timings.candidate_step * u32::try_from(rank).unwrap_or(u32::MAX);
        if let Some(rank) = candidates.iter().position(|node| *node == self.me) {
            return Some(after(rank));
        }
        match self.reach(self.me, pool) {
            Reach::Enough if candidates.is_empty() && self.may_take_again(pool) => {
                Some(self.timings.restart_grace)
            }
            // One that has failed once may not fail again, and there is nobody else: after those that have not.
            Reach::Failed
                if !self.is_up(now, self.me) && candidates.is_empty() && self.may_take_again(pool) =>
            {
                Some(3 * self.timings.restart_grace)
            }
            _ if !self.is_up(now, self.me) => None,
            // A node that takes none, and can open it, goes first.
            Reach::Failed if self.others().any(|node| self.reach(node, pool) == Reach::Enough) => {
                Some(after(candidates.len()) + 2 * self.timings.restart_grace)
            }
            Reach::Enough | Reach::Failed => Some(after(candidates.len())),
            Reach::Part => Some(after(candidates.len()) + self.timings.blind_after),
            // What its owner has said of its disks may be old, and what this node says of them, too.
            Reach::Nothing => Some(after(candidates.len()) + 6 * self.timings.blind_after),
        }
    }

    /// Whether this node, which takes no pools, takes this one again: it is known to see the disks, nobody else does that takes pools, and it had the
    /// pool last or has given it up in vain.
    fn may_take_again(&self, pool: PoolId) -> bool {
        let was_last = |owner: &Owner| owner.holder.is_none_or(|holder| holder.node == self.me);
        let owner = self.view.owners.get(&pool).and_then(|seen| seen.owner.as_ref());
        let is_known = self.sight.is_some() && self.view.disks.contains_key(&pool);
        self.phase == Phase::Member && is_known && owner.is_some_and(was_last)
    }

    /// The transaction that is called for, besides beats.
    pub(crate) fn wanted(&mut self, now: BootTime) -> Option<Purpose> {
        let pools: Vec<PoolId> = self.view.owners.keys().copied().collect();
        for id in pools {
            let pool = self.pools.entry(id).or_default();
            if pool.run != Run::Idle {
                continue;
            }
            let (others_first, retry_at) = (pool.not_before, pool.retry_at);
            if retry_at > now {
                self.wake_at(now, retry_at);
                continue;
            }
            if let Some(epoch) = self.owned(id) {
                // It was stopped here: it goes to whom it was meant for, or to whoever comes.
                let moved = self
                    .pools
                    .get(&id)
                    .and_then(|pool| pool.move_to)
                    .filter(|to| self.can_be_given(now, id, *to));
                return Some(match moved.or_else(|| self.move_target(now, id)) {
                    Some(to) => {
                        self.pools.entry(id).or_default().move_to = Some(to);
                        Purpose::HandOver { pool: id, epoch: epoch + 1 }
                    }
                    None => Purpose::Release { pool: id, epoch },
                });
            }
            let Some((at, purpose)) = self.claim(now, id) else { continue };
            let at = at.max(others_first);
            if at <= now {
                return Some(purpose);
            }
            self.wake_at(now, at);
        }
        self.evictable(now)
    }

    /// When the pool may be claimed, and how; `None` while its owner lives as far as is known.
    fn claim(&self, now: BootTime, pool: PoolId) -> Option<(BootTime, Purpose)> {
        let seen = self.view.owners.get(&pool)?;
        let owner = seen.owner.as_ref()?;
        // Above what its disks know, too: a store that was restored from a backup is older than they are.
        let known = self.pools.get(&pool).map_or(0, |pool| pool.known);
        let epoch = owner.epoch.max(known).saturating_add(1);
        let free = Purpose::Claim { pool, epoch, evicts: None };
        let Some(holder) = owner.holder else {
            return Some((seen.received.after(self.turn(now, pool, None)?), free));
        };
        match self.view.lives(holder.node, holder.incarnation) {
            // An owner that was read may be newer than the members that the watch has told: it is no orphan, it is a new life.
            Some(false) if seen.modified > self.view.revision && !self.flaws.orphan_unchecked => None,
            // That life is over: who ended it has waited until its permit was, or knows that its process is.
            Some(false) => {
                let mut turn = self.turn(now, pool, None)?;
                if holder.node == self.me
                    && self.is_up(now, self.me)
                    && self.reach(self.me, pool) == Reach::Enough
                {
                    // Its own of the life before: the others wait for it, wherever they stand in line.
                    turn = std::time::Duration::ZERO;
                } else if self.is_up(now, holder.node) {
                    turn += self.timings.restart_grace;
                }
                Some((seen.received.max(self.view.changed).after(turn), free))
            }
            Some(true) if holder.node != self.me => {
                let turn = self.turn(now, pool, Some(holder.node))?;
                let at = self.silent_after(holder.node)?.after(turn);
                Some((at, Purpose::Claim { pool, epoch, evicts: Some(holder.node) }))
            }
            _ => None,
        }
    }

    /// From when on a member may be evicted if it does not beat any more.
    fn silent_after(&self, node: NodeId) -> Option<BootTime> {
        let seen = self.view.beats.get(&node)?;
        let mine = self.view.members.get(&self.me)?;
        let beat = seen.beat.as_ref()?;
        // It asks those that it knows for promises. Who it does not know has to wait for a beat.
        let known = beat.knows() >= mine.created || self.flaws.stranger_claims;
        let lives = self.view.lives(node, beat.incarnation) == Some(true);
        (known && lives).then(|| seen.received.after(self.timings.claim_after).max(self.bound_until(node)))
    }

    /// A member that is silent and owns nothing is evicted too: as long as it is one, its promise is asked for.
    fn evictable(&mut self, now: BootTime) -> Option<Purpose> {
        let others: Vec<NodeId> = self.others().collect();
        for (rank, node) in others.into_iter().enumerate() {
            let Some(at) = self.silent_after(node) else { continue };
            // Those who claim its pools do it along with that, sooner.
            let at = at.after(self.timings.candidate_step * u32::try_from(rank + 4).unwrap_or(u32::MAX));
            let at = at.max(self.no_eviction_before);
            if at <= now {
                return Some(Purpose::Evict(node));
            }
            self.wake_at(now, at);
        }
        None
    }

    /// The transaction for a purpose: conditional on the chain, and a beat by itself.
    pub(crate) fn transaction(&self, purpose: Purpose) -> Transaction {
        let (member, beat) = (self.own_path(Key::Member), self.own_path(Key::Beat));
        let mut transaction = Transaction {
            conditions: vec![
                Condition::Modified(member.clone(), self.chain.member),
                Condition::Modified(beat.clone(), self.chain.last),
            ],
            steps: Vec::new(),
            reads: vec![member.clone(), beat.clone()],
        };
        let mut put = |path: String, value: Option<Vec<u8>>| {
            transaction.steps.extend(value.map(|value| Step::Put(path, value)));
        };
        let counter = self.chain.next();
        let value = Beat { incarnation: self.incarnation, counter, membership: self.view.revision.0 };
        put(beat, value.encode().ok());
        match purpose {
            Purpose::Beat | Purpose::Evict(_) => {}
            Purpose::Sight => {
                let said = self.unsaid().and_then(|sees| sees.encode().ok());
                put(self.own_path(Key::NodeSees), said);
            }
            Purpose::Join => {
                put(member, self.record.encode().ok());
                // From the first moment on: a member that has not said it is taken for one that sees all disks.
                put(self.own_path(Key::NodeSees), self.unsaid().and_then(|sees| sees.encode().ok()));
                // Nobody has removed it meanwhile.
                let entry = Condition::Modified(self.own_path(Key::Node), self.view.entry_of(self.me));
                transaction.conditions.push(entry);
            }
            Purpose::Mode { paused, draining } => {
                let record = Member { paused, draining, ..self.record.clone() };
                put(member, record.encode().ok());
            }
            Purpose::Claim { pool, epoch, .. } => {
                let owner = Owner { epoch, holder: Some(self.holder()) };
                put(self.view.path(&Key::Owner(pool)), owner.encode().ok());
            }
            Purpose::HandOver { pool, epoch } => {
                let to = self.pools.get(&pool).and_then(|pool| pool.move_to);
                let holder = to.and_then(|node| {
                    let incarnation = self.view.members.get(&node)?.incarnation()?;
                    Some(Holder { node, incarnation })
                });
                put(self.view.path(&Key::Owner(pool)), Owner { epoch, holder }.encode().ok());
                if let Some(to) = to {
                    let seen = self.view.members.get(&to).map(|seen| seen.modified).unwrap_or_default();
                    transaction.conditions.push(Condition::Modified(self.view.path(&Key::Member(to)), seen));
                }
            }
            Purpose::Release { pool, epoch } => {
                put(self.view.path(&Key::Owner(pool)), Owner { epoch, holder: None }.encode().ok());
            }
        }
        if let Purpose::Claim { pool, .. } | Purpose::HandOver { pool, .. } | Purpose::Release { pool, .. } =
            purpose
        {
            let path = self.view.path(&Key::Owner(pool));
            let seen = self.view.owners.get(&pool).map(|seen| seen.modified).unwrap_or(Revision(0));
            transaction.conditions.push(Condition::Modified(path.clone(), seen));
            transaction.reads.push(path);
        }
        // An orphan is one still: its owner's node has the life, or none, that was seen.
        if let Purpose::Claim { pool, evicts: None, .. } = purpose
            && let Some(holder) = self.view.owners.get(&pool).and_then(|seen| seen.owner.as_ref()?.holder)
            && holder.node != self.me
            && !self.flaws.orphan_unchecked
        {
            let seen = self.view.members.get(&holder.node).map(|seen| seen.modified).unwrap_or_default();
            transaction.conditions.push(Condition::Modified(self.view.path(&Key::Member(holder.node)), seen));
        }
        if let Purpose::Claim { evicts: Some(node), .. } | Purpose::Evict(node) = purpose {
            let seen = self.view.beats.get(&node).map(|seen| seen.modified).unwrap_or(Revision(0));
            if !self.flaws.claim_without_beat {
                transaction.conditions.push(Condition::Modified(self.view.path(&Key::Beat(node)), seen));
            }
            transaction.steps.push(Step::Delete(self.view.path(&Key::Member(node))));
        }
        transaction
    }
}
