//! What a gate knows, under its lock: the scheduler, the rules of disks, and which class each disk is in.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use qos_scheduler::{ClassId, Next, Scheduler, Settings};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::Disk;
use super::flow::{Asks, Flow, Permit, Waiter};
use crate::rules::{Asked, DiskName, Rule, Rules};

/// A disk that somebody holds.
pub(crate) struct KnownDisk {
    pub(crate) disk: Weak<Disk>,
    /// Its own class, in which its flows are unless its rule is shared.
    pub(crate) own: ClassId,
    /// What its client asks for.
    pub(crate) asked: Asked,
    /// The rule that is in effect.
    pub(crate) rule: Rule,
    /// Its flows by their clients.
    pub(crate) flows: BTreeMap<String, Weak<Flow>>,
}

/// What the flows of a disk have had that nobody holds any more: who comes again gets no second burst.
pub(crate) struct Debt {
    class: ClassId,
    /// When its limits will have been kept again, in nanoseconds.
    until: u64,
}

/// Debts that are kept; beyond, the one is forgotten that will have been paid first.
const MOST_DEBTS: usize = 4096;

pub(crate) struct State {
    pub(crate) scheduler: Scheduler<Waiter>,
    pub(crate) rules: Rules,
    pub(crate) disks: BTreeMap<DiskName, KnownDisk>,
    /// Classes of disks that have gone before their limits were kept.
    debts: BTreeMap<DiskName, Debt>,
    /// Classes of shared rules.
    pub(crate) shared: BTreeMap<Uuid, ClassId>,
    /// When the timer is to look again.
    pub(crate) wake_at: Option<u64>,
    /// When flows were last looked at for their rates.
    pub(crate) sampled: u64,
}

impl State {
    pub(crate) fn new(settings: Settings, now: u64) -> Self {
        Self {
            scheduler: Scheduler::new(settings),
            rules: Rules::default(),
            disks: BTreeMap::new(),
            debts: BTreeMap::new(),
            shared: BTreeMap::new(),
            wake_at: None,
            sampled: now,
        }
    }

    pub(crate) fn rule_of(&self, disk: &DiskName, asked: Asked) -> Rule {
        self.rules.of(disk, asked)
    }

    /// The class of the flows of a disk with this rule, which is in effect.
    pub(crate) fn class_of(&self, own: ClassId, rule: Rule) -> ClassId {
        match rule {
            Rule::Together(name, _) => self.shared.get(&name).copied().unwrap_or(own),
            Rule::Free | Rule::Alone(_) => own,
        }
    }

    /// The class of a disk with this rule, with the rule's terms from now on.
    pub(crate) fn class(&mut self, own: ClassId, rule: Rule, now: u64) -> ClassId {
        let Rule::Together(name, terms) = rule else {
            self.scheduler.set_terms(now, own, rule.terms());
            return own;
        };
        let scheduler = &mut self.scheduler;
        *self.shared.entry(name).or_insert_with(|| scheduler.add_class(now, terms))
    }

    /// Puts the rules in effect for all disks that there are. Flows that were looked at come back, to be let go of without the
    /// lock: they may be nobody's any more.
    #[must_use]
    pub(crate) fn put_in_effect(&mut self, now: u64) -> Vec<Arc<Flow>> {
        let wanted = self.rules.shared_terms(self.shared.keys());
        for (name, class) in &self.shared {
            if let Some(terms) = wanted.get(name) {
                self.scheduler.set_terms(now, *class, *terms);
            }
        }
        let mut seen = Vec::new();
        let names: Vec<DiskName> = self.disks.keys().cloned().collect();
        for name in names {
            seen.extend(self.put_in_effect_for(&name, now));
        }
        // A class that flows of a disk that is about to go are still in is removed the next time.
        let scheduler = &mut self.scheduler;
        let names = self.shared.keys().copied().collect::<Vec<_>>();
        let wanted = self.rules.shared_terms(names.iter());
        self.shared.retain(|name, class| wanted.contains_key(name) || !scheduler.remove_class(*class));
        seen
    }

    /// Puts the rules in effect for one disk; see [`State::put_in_effect`].
    #[must_use]
    pub(crate) fn put_in_effect_for(&mut self, name: &DiskName, now: u64) -> Vec<Arc<Flow>> {
        let Some(asked) = self.disks.get(name).map(|known| known.asked) else { return Vec::new() };
        let rule = self.rule_of(name, asked);
        let Some(known) = self.disks.get_mut(name) else { return Vec::new() };
        known.rule = rule;
        let mut former = None;
        // Without limits of its own it would forget what it owes, and its client may still ask for some.
        if matches!(rule, Rule::Alone(_))
            && let Some(debt) = self.debts.remove(name)
        {
            former = Some(std::mem::replace(&mut known.own, debt.class));
        }
        let own = known.own;
        let flows = known.flows.values().filter_map(Weak::upgrade).collect::<Vec<_>>();
        let class = self.class(own, rule, now);
        for flow in &flows {
            self.scheduler.move_flow(now, flow.id, class);
        }
        if let Some(former) = former {
            self.scheduler.remove_class(former);
        }
        flows
    }

    /// Nobody holds a disk any more. Its flows have gone.
    pub(crate) fn let_go(&mut self, name: &DiskName, now: u64) {
        let Some(known) = self.disks.remove(name) else { return };
        let until = self.scheduler.paid(known.own);
        // A flow of a file is never named again once it has gone, and its limits are those that its host has asked for.
        if until <= now || matches!(name, DiskName::Flow(..)) {
            self.scheduler.remove_class(known.own);
            return;
        }
        let former = self.debts.insert(name.clone(), Debt { class: known.own, until });
        let too_many = (self.debts.len() > MOST_DEBTS).then(|| self.first_paid()).flatten();
        for debt in former.into_iter().chain(too_many) {
            self.scheduler.remove_class(debt.class);
        }
    }

    /// Takes out the debt that will have been paid first.
    fn first_paid(&mut self) -> Option<Debt> {
        let name = self.debts.iter().min_by_key(|(_, debt)| debt.until).map(|(name, _)| name.clone())?;
        self.debts.remove(&name)
    }

    /// How many debts there are.
    #[cfg(test)]
    pub(crate) fn debts(&self) -> usize {
        self.debts.len()
    }

    /// Forgets debts that time has paid.
    pub(crate) fn settle(&mut self, now: u64) {
        let scheduler = &mut self.scheduler;
        self.debts.retain(|_, debt| debt.until > now || !scheduler.remove_class(debt.class));
    }

    /// Starts what may start; who is to be told of that, without the lock. Whether the timer must look sooner.
    pub(crate) fn start(&mut self, now: u64, started: &mut Vec<(oneshot::Sender<Permit>, Permit)>) -> bool {
        loop {
            match self.scheduler.next(now) {
                Next::Start(next) => {
                    let Waiter { turn, flow, kind, bytes } = next.payload;
                    started.push((turn, Permit::new(flow, now, Asks { kind, bytes, held: next.held })));
                }
                Next::Wait(until) => {
                    let sooner = self.wake_at.is_none_or(|wake_at| until < wake_at);
                    if sooner {
                        self.wake_at = Some(until);
                    }
                    return sooner;
                }
                Next::Full | Next::Idle => return false,
            }
        }
    }
}
