//! What is on its way to an owner over one connection, whether that is there or not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::SharedBuf;
use parking_lot::Mutex;
use scsi_core::{ScsiCommand, ScsiResponse, TaskManagement, TaskManagementOutcome};
use scsi_disk::Place;
use tokio::sync::{Notify, oneshot};

use super::still::StandStill;
use super::{Own, Shared};
use crate::wire::{Aim, Call, Reply};

/// What the owner has said of its time counts for so long.
const FRESH: Duration = Duration::from_millis(400);
/// A command waits so long to be sent, since it came from its initiator.
const HELD: Duration = Duration::from_secs(1);
/// Commands that may wait to be sent.
const MAX_HELD: usize = 4096;

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What is to be done there.
pub(super) enum Work {
    Command(ScsiCommand),
    Manage(TaskManagement),
}

/// What became of it.
pub(super) enum Ending {
    Answered(ScsiResponse),
    Unanswered,
    Managed(TaskManagementOutcome),
    NotBegun,
    /// Not begun, and not to be tried again: it came when the shard had stood still, or in a life that is over.
    Stale,
    /// The connection broke when it had been sent.
    Unknown,
}

/// Waits to be sent.
struct Held {
    tag: u64,
    own: Arc<Own>,
    to: Place,
    work: Work,
    arrived: u64,
}

/// Was sent.
struct Sent {
    /// None when nobody waits for it any more.
    waiter: Option<oneshot::Sender<Ending>>,
    /// The most data that may come back.
    limit: usize,
    nexus: u64,
}

#[derive(Default)]
struct State {
    up: bool,
    next_tag: u64,
    held: VecDeque<Held>,
    /// Who waits for what is held.
    waiters: BTreeMap<u64, oneshot::Sender<Ending>>,
    sent: BTreeMap<u64, Sent>,
    /// Nexuses that the owner knows over this connection.
    introduced: BTreeSet<u64>,
    /// Those of them that it is told of again before their next command.
    again: BTreeSet<u64>,
    /// What is sent before anything that is held.
    out: VecDeque<Call>,
    /// The owner's time, and when it was heard.
    tick: Option<(u64, u64)>,
    /// It was asked for.
    asked: bool,
}

/// What is on its way to an owner.
pub(super) struct Channel {
    pub(super) shared: Arc<Shared>,
    pub(super) owner: u16,
    pub(super) number: u32,
    state: Mutex<State>,
    /// There is something to send.
    pub(super) woken: Notify,
    still: StandStill,
}

/// Takes a command back that nobody waits for any more.
struct Waiting<'a> {
    channel: &'a Channel,
    tag: u64,
    ended: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.channel.abandon(self.tag);
        }
    }
}

impl Channel {
    pub(super) fn new(shared: Arc<Shared>, owner: u16, number: u32) -> Arc<Self> {
        let still = StandStill::new(shared.dial.now());
        Arc::new(Self { shared, owner, number, state: Mutex::default(), woken: Notify::new(), still })
    }

    /// The shard turns; whether what has come from initiators may be sent.
    pub(super) fn turn(&self) -> bool {
        self.still.turn(self.shared.dial.now())
    }

    /// Sends something that came at this time, and waits for its end.
    pub(super) async fn send(&self, own: Arc<Own>, to: Place, work: Work, arrived: u64) -> Ending {
        if !self.turn() {
            return Ending::Stale;
        }
        let (waiter, wait) = oneshot::channel();
        let tag = {
            let mut state = self.state.lock();
            if state.held.len() >= MAX_HELD {
                return Ending::NotBegun;
            }
            let tag = state.next_tag;
            state.next_tag += 1;
            state.held.push_back(Held { tag, own, to, work, arrived });
            state.waiters.insert(tag, waiter);
            tag
        };
        self.woken.notify_one();
        let mut waiting = Waiting { channel: self, tag, ended: false };
        let ending = wait.await;
        waiting.ended = true;
        // The channel has ended with its shard.
        ending.unwrap_or(Ending::Unknown)
    }

    fn abandon(&self, tag: u64) {
        let mut state = self.state.lock();
        if state.waiters.remove(&tag).is_some() {
            state.held.retain(|held| held.tag != tag);
            return;
        }
        if let Some(sent) = state.sent.get_mut(&tag) {
            sent.waiter = None;
            state.out.push_back(Call::Abort(tag));
            self.shared.unsettled.fetch_add(1, Ordering::SeqCst);
            drop(state);
            self.woken.notify_one();
        }
    }

    /// A nexus is gone.
    pub(super) fn lose(&self, nexus: u64) {
        let mut state = self.state.lock();
        state.again.remove(&nexus);
        if state.introduced.remove(&nexus) {
            state.out.push_back(Call::Lost(nexus));
            drop(state);
            self.woken.notify_one();
        }
    }

    /// Whether there is something to send, or to hear.
    pub(super) fn is_wanted(&self) -> bool {
        let state = self.state.lock();
        !state.held.is_empty()
    }

    /// Whether something is to be heard of the owner.
    pub(super) fn expects(&self) -> bool {
        let state = self.state.lock();
        state.asked || !state.sent.is_empty()
    }

    /// Asks the owner whether it is there.
    pub(super) fn ask(&self) {
        let mut state = self.state.lock();
        if !state.asked {
            state.asked = true;
            state.out.push_back(Call::Ask);
            drop(state);
            self.woken.notify_one();
        }
    }

    /// A connection begins.
    pub(super) fn up(&self, tick: u64) {
        let mut state = self.state.lock();
        state.up = true;
        state.tick = Some((tick, self.shared.dial.now()));
    }

    /// The connection has ended: what was sent may have been done or not.
    pub(super) fn down(&self) {
        let sent = {
            let mut state = self.state.lock();
            (state.up, state.asked, state.tick) = (false, false, None);
            state.introduced.clear();
            state.again.clear();
            state.out.clear();
            std::mem::take(&mut state.sent)
        };
        let mut unsettled = 0;
        for sent in sent.into_values() {
            match sent.waiter {
                Some(waiter) => drop(waiter.send(Ending::Unknown)),
                None => unsettled += 1,
            }
        }
        self.shared.settle_later(unsettled);
    }

    /// Gives up what has waited too long to be sent.
    pub(super) fn expire(&self) {
        let now = self.shared.dial.now();
        let mut state = self.state.lock();
        let State { held, waiters, .. } = &mut *state;
        // Not in the order of their ages: some have been tried before.
        held.retain(|held| {
            let waits = now.saturating_sub(held.arrived) <= nanos(HELD);
            if !waits && let Some(waiter) = waiters.remove(&held.tag) {
                let _ = waiter.send(Ending::NotBegun);
            }
            waits
        });
    }

    /// The next thing to send over the connection that is up.
    pub(super) fn next(&self) -> Option<(Call, Option<SharedBuf>)> {
        let mut state = self.state.lock();
        if !state.up {
            return None;
        }
        loop {
            if let Some(call) = state.out.pop_front() {
                return Some((call, None));
            }
            let held = state.held.front()?;
            let nexus = held.own.port.nexus;
            let (tick, heard) = state.tick?;
            let now = self.shared.dial.now();
            if now.saturating_sub(heard) > nanos(FRESH) && heard <= held.arrived || heard > now {
                if state.asked {
                    return None;
                }
                state.asked = true;
                return Some((Call::Ask, None));
            }
            // Not begun in a life that is over, nor without a permit: others may have it by now.
            let may = held.own.life.is_some() && self.shared.permit.life() == held.own.life;
            if may && (!state.introduced.contains(&nexus) || state.again.contains(&nexus)) {
                let port = held.own.port.clone();
                state.introduced.insert(nexus);
                state.again.remove(&nexus);
                return Some((Call::Nexus(port), None));
            }
            let Held { tag, to, work, arrived, .. } = state.held.pop_front()?;
            let Some(waiter) = state.waiters.remove(&tag) else { continue };
            if !may {
                let _ = waiter.send(Ending::Stale);
                continue;
            }
            let waited = heard.saturating_sub(arrived);
            let aim = Aim { nexus, lun: to.lun, unit: to.unit, tick, waited };
            let (call, data, limit) = match work {
                Work::Command(ScsiCommand { cdb, data_out, data_in_limit, attribute }) => {
                    let call = Call::Command { tag, aim, attribute, limit: data_in_limit, cdb };
                    (call, Some(data_out), data_in_limit as usize)
                }
                Work::Manage(function) => (Call::Manage { tag, aim, function }, None, 0),
            };
            state.sent.insert(tag, Sent { waiter: Some(waiter), limit, nexus });
            return Some((call, data));
        }
    }

    /// How much data may come with this reply; none where none may.
    pub(super) fn data_allowed(&self, reply: &Reply) -> usize {
        match reply {
            Reply::Answer { tag, .. } => self.state.lock().sent.get(tag).map_or(0, |sent| sent.limit),
            _ => 0,
        }
    }

    /// The owner has said something. False: what it may not say.
    pub(super) fn heard(&self, reply: Reply, data: SharedBuf) -> bool {
        let (tag, ending) = match reply {
            Reply::Welcome { .. } | Reply::Refused(_) => return false,
            Reply::Tick(tick) => {
                let mut state = self.state.lock();
                (state.tick, state.asked) = (Some((tick, self.shared.dial.now())), false);
                drop(state);
                self.woken.notify_one();
                return true;
            }
            Reply::Answer { tag, tick, status, transfer, sense } => {
                self.state.lock().tick = Some((tick, self.shared.dial.now()));
                let data_in = (!data.is_empty()).then_some(data);
                (tag, Ending::Answered(ScsiResponse { status, sense, data_in, transfer_length: transfer }))
            }
            Reply::Unanswered(tag) => (tag, Ending::Unanswered),
            Reply::NotDone(tag) => (tag, Ending::NotBegun),
            Reply::Managed { tag, outcome } => (tag, Ending::Managed(outcome)),
        };
        let sent = {
            let mut state = self.state.lock();
            let Some(sent) = state.sent.remove(&tag) else { return false };
            if matches!(ending, Ending::NotBegun) {
                // The owner may not have known the target yet when it was told of the nexus: it is told again.
                state.again.insert(sent.nexus);
            }
            sent
        };
        match sent.waiter {
            Some(waiter) => {
                if waiter.send(ending).is_err() {
                    // Dropped in this moment: it has ended there all the same.
                }
            }
            None => self.shared.settle(1),
        }
        true
    }
}
