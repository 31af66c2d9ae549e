//! What nodes tell each other of the demand for policies that volumes of several nodes share, so that each divides the same numbers.
//!
//! ```text
//!   node 1: demand of its volumes ──say──► round of messages ──link──► heard ──► node 2: the demand of every volume
//!           the demand of every volume ◄── heard ◄──link── round of messages ◄──say── demand of its volumes
//!                     └─ both divide the policy's numbers among all volumes, and each uses the parts of its own
//! ```
//! There is no node that divides for all, and so none that can be lost: with the same demands each comes to the same parts, and they add up to
//! the policy's numbers. Demands differ for as long as a message takes (a tenth of a second, a message's way), and by what that costs the sum may be exceeded.
//!
//! **Invariants.**
//! * What a node said last holds until it says something else, or [`Exchange::keep`] finds that it takes no part any more: a link that is broken
//!   leaves the last division in force.
//! * A round counts when all of it has arrived; what a broken link cut off is left out.
//! * Memory is bounded, whatever others say: [`MOST_DEMANDS`] for each of them.

pub mod fuzz;
mod message;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use uuid::Uuid;

pub use message::MOST_BYTES;
use message::Message;

/// Demands that are remembered of a node; with more than so many none of that round are.
pub const MOST_DEMANDS: usize = 4096;

/// A node is lost from that look on at which it has been silent for so many: see [`Exchange::look`].
const LOST_AFTER: u32 = 6;

/// Messages that are a round.
pub type Round = Arc<Vec<Vec<u8>>>;

/// What the flows of a policy on a volume ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The policy.
    pub policy: Uuid,
    /// The volume.
    pub volume: Uuid,
    /// Normalised I/Os per second that they could use; [`u64::MAX`] while something waits.
    pub units: u64,
    /// Bytes per second, likewise.
    pub bytes: u64,
    /// Normalised I/Os per second that they get, over the last seconds.
    pub got: u64,
}

/// What another node has said.
#[derive(Default)]
struct Heard {
    /// Its last whole round, by policy and volume.
    demands: BTreeMap<(Uuid, Uuid), Demand>,
    /// The round that arrives now, if its beginning was there.
    arriving: Option<Arriving>,
    /// Looks since it has said something.
    silent: u32,
}

struct Arriving {
    round: u32,
    /// The next message of it.
    next: u16,
    demands: Vec<Demand>,
}

/// What this node says, and what it has heard of others.
#[derive(Default)]
pub struct Exchange {
    says: watch::Sender<Round>,
    said: Mutex<Said>,
    heard: Mutex<BTreeMap<u16, Heard>>,
}

/// What was said last.
#[derive(Default)]
struct Said {
    round: u32,
    something: bool,
}

impl Exchange {
    /// Says what the volumes of this node ask for. That there is nothing is said once.
    pub fn say(&self, demands: &[Demand]) {
        let mut said = self.said.lock();
        let something = !demands.is_empty();
        if something || said.something {
            *said = Said { round: said.round.wrapping_add(1), something };
            self.says.send_replace(Arc::new(message::round(said.round, demands)));
        }
    }

    /// The newest round that is to be said to other nodes, of messages of at most [`MOST_BYTES`].
    pub fn says(&self) -> watch::Receiver<Round> {
        self.says.subscribe()
    }

    /// Takes a message of another node, in the order in which that sent them. Any bytes may come: what cannot be read is left out.
    pub fn hear(&self, node: u16, bytes: &[u8]) {
        let Ok(message) = Message::decode(bytes) else { return };
        let mut all = self.heard.lock();
        let heard = all.entry(node).or_default();
        heard.silent = 0;
        let mut arriving = match heard.arriving.take() {
            _ if message.number == 0 => Arriving { round: message.round, next: 0, demands: Vec::new() },
            Some(arriving) if (arriving.round, arriving.next) == (message.round, message.number) => arriving,
            // Its beginning, or a part of it, is missing.
            _ => return,
        };
        if arriving.demands.len() + message.demands.len() > MOST_DEMANDS {
            return;
        }
        arriving.demands.extend(message.demands);
        if message.is_last {
            heard.demands =
                arriving.demands.into_iter().map(|demand| ((demand.policy, demand.volume), demand)).collect();
        } else {
            arriving.next = arriving.next.wrapping_add(1);
            heard.arriving = Some(arriving);
        }
    }

    /// To be called twice a second: who asks for something says so more often, and is lost when it has said nothing for three seconds.
    pub fn look(&self) {
        for heard in self.heard.lock().values_mut() {
            heard.silent = heard.silent.saturating_add(1);
        }
    }

    /// Whether a policy is divided by what a node has said that is lost.
    #[must_use]
    pub fn is_lost(&self, policy: Uuid) -> bool {
        let heard = self.heard.lock();
        let mut lost = heard.values().filter(|heard| heard.silent >= LOST_AFTER);
        lost.any(|heard| heard.demands.range((policy, Uuid::nil())..=(policy, Uuid::max())).next().is_some())
    }

    /// Whether another node has said anything that is remembered.
    #[must_use]
    pub fn has_heard(&self) -> bool {
        !self.heard.lock().is_empty()
    }

    /// Forgets what nodes have said that take no part any more.
    pub fn keep(&self, takes_part: impl Fn(u16) -> bool) {
        self.heard.lock().retain(|node, _| takes_part(*node));
    }

    /// What other nodes' flows of a policy on a volume could use of normalised I/Os and of bytes per second: the most that one of them says. A
    /// volume is served by one at a time, and what another says of it is of before.
    #[must_use]
    pub fn wanted_elsewhere(&self, policy: Uuid, volume: Uuid) -> (u64, u64) {
        let heard = self.heard.lock();
        let said = heard.values().filter_map(|heard| heard.demands.get(&(policy, volume)));
        said.fold((0, 0), |(units, bytes), demand| (units.max(demand.units), bytes.max(demand.bytes)))
    }

    /// Normalised I/Os per second that other nodes' flows of a policy get.
    #[must_use]
    pub fn got_elsewhere(&self, policy: Uuid) -> u64 {
        let heard = self.heard.lock();
        let range = (policy, Uuid::nil())..=(policy, Uuid::max());
        let all = heard.values().flat_map(|heard| heard.demands.range(range.clone()));
        all.fold(0, |sum, (_, demand)| sum.saturating_add(demand.got))
    }
}

#[cfg(test)]
mod tests;
