//! One life of a node in its cluster: what it is told, and what it does about it.

mod asking;
mod pools;
mod sight;

use std::collections::BTreeMap;

use cluster_store::keys::{ClusterName, Key, NodeId, PoolId};
use cluster_store::values::{Incarnation, Member, NodeSees};
use cluster_store::{Found, Outcome, Revision, StoreError};

use crate::chain::{Chain, Pending, Purpose, RequestId};
use crate::io::{Action, Flaws, Input, Message, Order};
use crate::permit::{Permit, Promises};
use crate::pool::{Pool, Run};
use crate::settings::Timings;
use crate::sight::Sight;
use crate::time::BootTime;
use crate::view::View;

/// How far this life is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It does not take part yet.
    Joining,
    /// It beats, and may own pools.
    Member,
    /// Others have taken what it had; its pools are being stopped.
    Leaving,
    /// Nothing is left of it.
    Over,
}

/// One life of a node.
#[derive(Debug)]
pub struct Node {
    pub(crate) me: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) record: Member,
    pub(crate) timings: Timings,
    pub(crate) flaws: Flaws,
    pub(crate) phase: Phase,
    pub(crate) view: View,
    pub(crate) chain: Chain,
    pub(crate) permit: Permit,
    pub(crate) promises: Promises,
    pub(crate) pools: BTreeMap<PoolId, Pool>,
    started: BootTime,
    heard: BootTime,
    last_sent: Option<BootTime>,
    /// What the last transaction says that this node knows of the membership.
    shown: Revision,
    next_ask: BootTime,
    told_permit: BootTime,
    has_view: bool,
    /// Since when the watch is behind what this node itself has done.
    behind: Option<BootTime>,
    mode: Option<(bool, bool)>,
    /// What this node sees of the disks of pools; none while nobody has told.
    pub(crate) sight: Option<Sight>,
    /// What it has said of that, and what it is about to.
    pub(crate) said: Option<NodeSees>,
    saying: Option<NodeSees>,
    /// It is not said again before this.
    say_at: BootTime,
    /// The store is older than what it has said before.
    went_back: bool,
    /// No eviction for its own sake before this: the last one had no effect.
    pub(crate) no_eviction_before: BootTime,
    pub(crate) wake: BootTime,
}

impl Node {
    /// A new life; `record` is how the node shows itself to the others, `record.incarnation` a number that no life of this node had
    /// before. All pools of the life before are stopped, or its process has ended.
    #[must_use]
    pub fn new(me: NodeId, cluster: ClusterName, record: Member, timings: Timings, now: BootTime) -> Self {
        Self {
            me,
            incarnation: record.incarnation,
            record,
            timings,
            flaws: Flaws::default(),
            phase: Phase::Joining,
            view: View::new(cluster),
            chain: Chain::default(),
            permit: Permit::default(),
            promises: Promises::default(),
            pools: BTreeMap::new(),
            started: now,
            heard: now,
            last_sent: None,
            shown: Revision(0),
            next_ask: now,
            told_permit: BootTime(0),
            has_view: false,
            behind: None,
            mode: None,
            sight: None,
            said: None,
            saying: None,
            say_at: BootTime(0),
            went_back: false,
            no_eviction_before: BootTime(0),
            wake: now,
        }
    }

    /// Numbers its beats from here on. Who begins each life with a number by chance does not take the beat of another process for its
    /// own, should that ever live under the same number of a node and of a life: a copied data directory, a number given twice.
    #[must_use]
    pub fn with_beats_from(mut self, number: u64) -> Self {
        self.chain.count_from(number);
        self
    }

    /// Breaks this node on purpose.
    #[must_use]
    pub fn with_flaws(self, flaws: Flaws) -> Self {
        Self { flaws, ..self }
    }

    /// How far it is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Its number of this life.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Until when answers may be given.
    #[must_use]
    pub fn permit(&self) -> BootTime {
        if self.phase != Phase::Member {
            return BootTime(0);
        }
        if self.flaws.one_promise_is_enough {
            let others = self.others().map(|other| self.permit.until(&self.timings, std::iter::once(other)));
            return others.max().unwrap_or_else(|| self.permit.until(&self.timings, std::iter::empty()));
        }
        self.permit.until(&self.timings, self.others())
    }

    /// Whether an answer for the pool may be given: looked at after the data was read, and before the answer goes out.
    #[must_use]
    pub fn may_answer(&self, now: BootTime, pool: PoolId, epoch: u64) -> bool {
        now < self.permit() && self.publishes(pool) == Some(epoch)
    }

    /// Whether the store has gone back in time, as one does that is restored from a backup: this life is over then, as what it knows is of
    /// another history.
    #[must_use]
    pub fn store_went_back(&self) -> bool {
        self.went_back
    }

    /// The epoch in which this node lets clients of the pool in.
    #[must_use]
    pub fn publishes(&self, pool: PoolId) -> Option<u64> {
        match self.pools.get(&pool)?.run {
            Run::Active { epoch, step: None | Some(Order::Publish) } => Some(epoch),
            _ => None,
        }
    }

    /// When [`Input::Tick`] is due at the latest.
    #[must_use]
    pub fn next_wake(&self) -> BootTime {
        self.wake
    }

    /// Takes note of what has happened and says what is to be done, in this order. `now` never goes back.
    #[must_use]
    pub fn handle(&mut self, now: BootTime, input: Input) -> Vec<Action> {
        if self.phase == Phase::Over {
            return Vec::new();
        }
        let mut actions = Vec::new();
        if now.since(self.heard) > self.timings.stand_still {
            self.view.heard_nothing_before(now);
        }
        self.heard = self.heard.max(now);
        self.wake = BootTime::NEVER;
        self.chain.time_out(now, self.timings.beat_patience);
        self.note(now, input, &mut actions);
        self.notice_eviction();
        let mut orders = Vec::new();
        self.notice_what_hangs(now, &mut orders);
        self.reconcile(now, &mut orders);
        // Before anything else: an answer that may not be given any more is worse than one that is late.
        let permit = self.permit();
        if permit != self.told_permit {
            self.told_permit = permit;
            actions.insert(0, Action::Permit(permit));
        }
        actions.append(&mut orders);
        if self.phase == Phase::Joining && self.view.was_removed(self.me) {
            self.phase = Phase::Leaving;
        }
        match self.phase {
            Phase::Joining if self.has_view => self.transact(now, &mut actions),
            Phase::Member => {
                self.transact(now, &mut actions);
                self.ask(now, &mut actions);
                self.check_watch(now, &mut actions);
            }
            Phase::Leaving if self.pools.values().all(|pool| pool.run == Run::Idle) => {
                self.phase = Phase::Over;
                actions.push(Action::Ended);
            }
            _ => {}
        }
        actions
    }

    fn note(&mut self, now: BootTime, input: Input, actions: &mut Vec<Action>) {
        match input {
            Input::Tick => {}
            Input::Snapshot(snapshot) => {
                self.view.load(now, &snapshot);
                if !self.has_view {
                    self.has_view = true;
                    self.chain.last =
                        self.view.beats.get(&self.me).map(|seen| seen.modified).unwrap_or_default();
                    self.chain.member =
                        self.view.members.get(&self.me).map(|seen| seen.modified).unwrap_or_default();
                }
            }
            Input::Changed(changes) => {
                let before: Vec<_> =
                    self.view.beats.iter().map(|(node, seen)| (*node, seen.received)).collect();
                self.view.change(now, &changes);
                if self.flaws.claim_from_asking {
                    for (node, asked) in before {
                        if let Some(seen) = self.view.beats.get_mut(&node) {
                            seen.received =
                                if seen.received == now { asked.max(self.started) } else { seen.received };
                        }
                    }
                }
            }
            Input::Answer(id, answer) => self.answered(now, id, answer, actions),
            Input::Message(from, Message::Ask { incarnation, round }) => {
                if self.promise(now, from, incarnation) {
                    actions.push(Action::Send(from, Message::Promise { incarnation, round }));
                }
            }
            Input::Message(from, Message::Promise { incarnation, round }) => {
                if incarnation == self.incarnation && from != self.me {
                    self.permit.promised(from, round, &self.timings);
                }
            }
            Input::Done(pool, epoch, order) => self.done(pool, epoch, order, actions),
            Input::Failed(pool, epoch, failure) => self.failed(now, pool, epoch, failure),
            Input::Move(pool, to) => {
                if let Some(pool) = self.pools.get_mut(&pool) {
                    pool.move_to = Some(to);
                }
            }
            Input::Mode { paused, draining } => self.mode = Some((paused, draining)),
            Input::Sight(sight) => self.sight = Some(sight),
        }
    }

    /// Whether the promise may be given; it is then.
    fn promise(&mut self, now: BootTime, to: NodeId, incarnation: Incarnation) -> bool {
        let mine_to_give = self.phase == Phase::Member && to != self.me;
        // A claim that was sent may be committed at any time until another transaction takes its place.
        let on_its_way = self.chain.may_evict(to) && !self.flaws.promise_beside_claim;
        // What the store may have taken from it already is not promised to it.
        if !mine_to_give || on_its_way || self.view.lives(to, incarnation) != Some(true) {
            return false;
        }
        self.promises.give(to, now.after(self.timings.promise_kept));
        true
    }

    /// From when on this node may evict another, as far as promises are concerned.
    pub(crate) fn bound_until(&self, to: NodeId) -> BootTime {
        if self.flaws.promise_ignored { BootTime(0) } else { self.promises.until(to) }
    }

    pub(crate) fn others(&self) -> impl Iterator<Item = NodeId> {
        self.view.members.keys().copied().filter(|node| *node != self.me)
    }

    pub(crate) fn wake_at(&mut self, now: BootTime, at: BootTime) {
        self.wake = self.wake.min(at.max(BootTime(now.0 + 1)));
    }

    /// The store has another life of this node, or none, and this is not because the view is old.
    fn notice_eviction(&mut self) {
        if self.phase != Phase::Member || self.view.revision < self.chain.member {
            return;
        }
        if self.view.lives(self.me, self.incarnation) == Some(false) {
            self.phase = Phase::Leaving;
        }
    }

    fn answered(
        &mut self,
        now: BootTime,
        id: RequestId,
        answer: Result<Outcome, StoreError>,
        actions: &mut Vec<Action>,
    ) {
        // What is not pending any more was settled by a later one.
        let Some(pending) = self.chain.find(id) else { return };
        if answer.as_ref().is_ok_and(|outcome| self.chain.is_of_the_past(outcome)) {
            // Its revisions come a second time and mean something else: nothing that is known can be made a condition any more.
            self.went_back = true;
            self.phase = self.phase.max(Phase::Leaving);
            return;
        }
        match answer {
            Ok(outcome) if outcome.done => {
                for found in outcome.reads.iter().flatten() {
                    self.view.put(now, found);
                }
                self.committed(now, pending, &outcome);
            }
            Ok(outcome) => self.condition_failed(now, pending, &outcome, actions),
            Err(error) if error.is_certainly_not_done() => self.undone(now, pending),
            Err(_) => self.chain.unknown(id),
        }
    }

    fn committed(&mut self, now: BootTime, pending: Pending, outcome: &Outcome) {
        let beat = outcome.reads.get(1).and_then(Option::as_ref);
        self.chain.reached(beat.map_or(outcome.revision, |found| found.modified));
        let from = if self.flaws.permit_from_answer { now } else { pending.sent };
        self.permit.committed(from);
        if let Purpose::Claim { evicts: Some(node), .. } | Purpose::Evict(node) = pending.purpose {
            // The watch will tell it too; until then it is not done again.
            self.view.members.remove(&node);
            self.view.changed = now;
        }
        match pending.purpose {
            Purpose::Join => {
                self.phase = self.phase.max(Phase::Member);
                self.chain.member = self.chain.last;
                self.said = self.saying.take();
            }
            Purpose::Mode { paused, draining } => {
                (self.record.paused, self.record.draining) = (paused, draining);
                self.chain.member = self.chain.last;
                self.mode = self.mode.filter(|mode| *mode != (paused, draining));
            }
            Purpose::Sight => self.said = self.saying.take(),
            Purpose::Beat | Purpose::Evict(_) | Purpose::Claim { .. } => {}
            Purpose::HandOver { pool, .. } | Purpose::Release { pool, .. } => {
                self.pools.entry(pool).or_default().move_to = None;
            }
        }
    }

    fn condition_failed(
        &mut self,
        now: BootTime,
        pending: Pending,
        outcome: &Outcome,
        actions: &mut Vec<Action>,
    ) {
        let [member, beat, ..] = outcome.reads.as_slice() else { return self.chain.unknown(pending.id) };
        let present = member.as_ref().map(|found| (found.modified, self.is_mine(found)));
        let last = beat.as_ref().map(|found| found.modified).unwrap_or_default();
        for found in outcome.reads.iter().flatten() {
            self.view.put(now, found);
        }
        if last != self.chain.last
            && let Some(earlier) = beat
                .as_ref()
                .and_then(|found| self.counter_of(found))
                .and_then(|counter| self.chain.with_counter(counter))
        {
            // An earlier one was done whose answer is missing.
            return self.committed(now, earlier, &Outcome { done: true, ..outcome.clone() });
        }
        match (self.phase, present) {
            // Somebody else has begun a life under this node's number: whether that may be replaced is not known in here.
            (Phase::Joining, Some((modified, _))) if modified != self.chain.member => {
                self.phase = self.phase.max(Phase::Leaving);
            }
            (Phase::Joining, present) => {
                self.chain.reached(last);
                self.chain.member = present.map(|(modified, _)| modified).unwrap_or_default();
            }
            (_, Some((modified, true))) => {
                // The transaction's own conditions did not hold: the view is behind.
                if last != self.chain.last || modified != self.chain.member {
                    self.chain.reached(last);
                    self.chain.member = modified;
                } else {
                    self.undone(now, pending);
                }
                actions.push(Action::Read);
            }
            _ => self.phase = self.phase.max(Phase::Leaving),
        }
    }

    /// A transaction has certainly no effect: what it was for is tried again after a while.
    fn undone(&mut self, now: BootTime, pending: Pending) {
        self.chain.undone(pending.id);
        let again = now.after(self.timings.beat_every);
        match pending.purpose {
            Purpose::Evict(_) => self.no_eviction_before = again,
            Purpose::Sight => self.say_at = again,
            _ => {}
        }
        if let Purpose::Claim { pool, .. } | Purpose::HandOver { pool, .. } | Purpose::Release { pool, .. } =
            pending.purpose
        {
            let pool = self.pools.entry(pool).or_default();
            pool.retry_at = pool.retry_at.max(again);
            if matches!(pending.purpose, Purpose::HandOver { .. }) {
                pool.move_to = None;
            }
        }
    }

    fn is_mine(&self, member: &Found) -> bool {
        use cluster_store::values::Value as _;
        Member::decode(&member.value).is_ok_and(|member| member.incarnation == self.incarnation)
    }

    fn counter_of(&self, beat: &Found) -> Option<u64> {
        use cluster_store::values::{Beat, Value as _};
        let beat = Beat::decode(&beat.value).ok()?;
        (beat.incarnation == self.incarnation).then_some(beat.counter)
    }

    /// Sends the next transaction if it is time for one.
    fn transact(&mut self, now: BootTime, actions: &mut Vec<Action>) {
        if let Some(awaited) = self.chain.awaited() {
            return self.wake_at(now, awaited.sent.after(self.timings.beat_patience));
        }
        let beat_due = match self.last_sent {
            // A member may not claim from this node, nor evict it, before it is shown that it is known.
            Some(sent) if !self.has_unshown_members() => sent.after(self.timings.beat_every),
            _ => now,
        };
        let purpose = match self.phase {
            Phase::Joining => (beat_due <= now).then_some(Purpose::Join),
            // Until it is known what became of the last one there are beats only.
            _ if self.chain.settled() => {
                let mode = self.mode.filter(|mode| *mode != (self.record.paused, self.record.draining));
                let mode = mode.map(|(paused, draining)| Purpose::Mode { paused, draining });
                let sight = || self.unsaid().filter(|_| self.say_at <= now).map(|_| Purpose::Sight);
                let mode = mode.or_else(sight);
                mode.or_else(|| self.wanted(now)).or((beat_due <= now).then_some(Purpose::Beat))
            }
            _ => (beat_due <= now).then_some(Purpose::Beat),
        };
        let Some(purpose) = purpose else { return self.wake_at(now, beat_due) };
        if matches!(purpose, Purpose::Sight | Purpose::Join) {
            self.saying = self.unsaid();
        }
        let transaction = self.transaction(purpose);
        let id = self.chain.sent(now, purpose);
        self.last_sent = Some(now);
        self.shown = self.view.revision;
        self.wake_at(now, now.after(self.timings.beat_patience));
        actions.push(Action::Transact(id, transaction));
    }

    fn has_unshown_members(&self) -> bool {
        self.phase == Phase::Member
            && self.view.members.iter().any(|(node, seen)| *node != self.me && seen.created > self.shown)
    }

    /// A watch that does not tell what this node itself has done is deaf.
    fn check_watch(&mut self, now: BootTime, actions: &mut Vec<Action>) {
        if self.view.revision >= self.chain.last {
            self.behind = None;
            return;
        }
        let since = *self.behind.get_or_insert(now);
        if now.since(since) >= self.timings.permit {
            self.behind = Some(now);
            actions.push(Action::Read);
        }
    }

    pub(crate) fn own_path(&self, key: fn(NodeId) -> Key) -> String {
        self.view.path(&key(self.me))
    }
}
