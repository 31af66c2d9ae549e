//! Requests and answers on their way, and the store between them.

use std::collections::BTreeMap;

use cluster_store::{Change, Outcome, Range, Revision, Snapshot, StoreError, Transaction, Tree};
use sim::Dice;

/// Virtual nanoseconds.
pub type Time = u64;

const MILLISECOND: Time = 1_000_000;

/// Who sends requests: one connection of one life of a node.
pub type ClientId = u64;

/// Which request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(u64);

/// What is asked.
#[derive(Clone, Debug)]
pub enum Request {
    /// What is there.
    Get(Range),
    /// A transaction.
    Transact(Transaction),
    /// Changes under a prefix after a revision, until the client is gone.
    Watch(String, Revision),
}

/// What comes back.
#[derive(Clone, Debug)]
pub enum Reply {
    /// To [`Request::Get`].
    Got(Result<Snapshot, StoreError>),
    /// To [`Request::Transact`].
    Done(Result<Outcome, StoreError>),
    /// To [`Request::Watch`], again and again.
    Changed(Result<Vec<Change>, StoreError>),
}

/// An answer that arrives.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Where.
    pub client: ClientId,
    /// To which request.
    pub request: RequestId,
    /// The answer.
    pub reply: Reply,
}

/// How requests and answers fare.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// The shortest and the longest way in one direction.
    pub way: (Time, Time),
    /// Of 100 requests or answers, so many take longer: up to `late`.
    pub late_percent: u64,
    /// The longest way of those.
    pub late: Time,
    /// Of 100 requests, so many get lost before they arrive.
    pub lost_percent: u64,
    /// Of 100 answers, so many get lost; what was asked is done.
    pub unanswered_percent: u64,
    /// Of 100 requests, so many are refused: there is no leader.
    pub refused_percent: u64,
}

impl Default for Weather {
    fn default() -> Self {
        Self {
            way: (MILLISECOND / 5, 3 * MILLISECOND),
            late_percent: 0,
            late: 0,
            lost_percent: 0,
            unanswered_percent: 0,
            refused_percent: 0,
        }
    }
}

enum Event {
    Arrive(ClientId, RequestId, Request),
    Answer(Delivery),
    /// A watch tells its changes up to this revision.
    Tell(RequestId, Revision),
}

struct Watching {
    client: ClientId,
    prefix: String,
    /// Changes up to here are told.
    told: Revision,
    /// Changes up to here are on their way, until this time at the latest.
    sent: Revision,
    sent_by: Time,
}

/// Which ways are open for a client.
#[derive(Clone, Copy)]
struct Link {
    to: bool,
    from: bool,
}

/// The store and the ways to it.
pub struct SimStore {
    tree: Tree,
    dice: Dice,
    weather: Weather,
    stalled_until: Time,
    now: Time,
    queue: BTreeMap<(Time, u64), Event>,
    sequence: u64,
    links: BTreeMap<ClientId, Link>,
    watches: BTreeMap<RequestId, Watching>,
}

impl SimStore {
    /// An empty store.
    #[must_use]
    pub fn new(dice: Dice) -> Self {
        Self {
            tree: Tree::default(),
            dice,
            weather: Weather::default(),
            stalled_until: 0,
            now: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            links: BTreeMap::new(),
            watches: BTreeMap::new(),
        }
    }

    /// From now on requests and answers fare so.
    pub fn set_weather(&mut self, weather: Weather) {
        self.weather = weather;
    }

    /// Nothing is done before this time; what arrives waits.
    pub fn stall(&mut self, until: Time) {
        self.stalled_until = self.stalled_until.max(until);
    }

    /// The stall, if there is one, ends now.
    pub fn resume(&mut self) {
        self.stalled_until = 0;
    }

    /// Which ways between a client and the store are open: to it, from it.
    pub fn set_link(&mut self, client: ClientId, to: bool, from: bool) {
        self.links.insert(client, Link { to, from });
    }

    /// The client is gone: nothing is told to it any more. What it has sent may still arrive.
    pub fn forget(&mut self, client: ClientId) {
        self.watches.retain(|_, watching| watching.client != client);
        self.set_link(client, true, false);
    }

    /// What is there now, for whoever checks the simulation.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Forgets changes up to a revision.
    pub fn compact(&mut self, through: Revision) {
        self.tree.compact(through);
    }

    /// Changes keys at once, for whoever sets the scene.
    ///
    /// # Errors
    /// When it is no transaction.
    pub fn apply(&mut self, now: Time, transaction: &Transaction) -> Result<Outcome, StoreError> {
        self.now = self.now.max(now);
        let outcome = self.tree.apply(transaction);
        self.tell();
        outcome
    }

    /// Sends a request.
    pub fn send(&mut self, now: Time, client: ClientId, request: Request) -> RequestId {
        self.now = self.now.max(now);
        self.sequence += 1;
        let id = RequestId(self.sequence);
        if !self.dice.percent(self.weather.lost_percent) {
            let at = self.now + self.way();
            self.push(at, Event::Arrive(client, id, request));
        }
        id
    }

    /// When something happens next.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        self.queue.keys().next().map(|(at, _)| *at)
    }

    /// Lets everything happen up to this time, and returns what arrives at clients, in order.
    pub fn advance(&mut self, now: Time) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        while let Some(entry) = self.queue.first_entry()
            && entry.key().0 <= now
        {
            self.now = self.now.max(entry.key().0);
            match entry.remove() {
                Event::Arrive(client, id, request) => self.arrive(client, id, request),
                Event::Answer(delivery) => {
                    if self.link(delivery.client).from {
                        deliveries.push(delivery);
                    }
                }
                Event::Tell(id, through) => deliveries.extend(self.deliver(id, through)),
            }
        }
        self.now = self.now.max(now);
        deliveries
    }

    fn link(&self, client: ClientId) -> Link {
        self.links.get(&client).copied().unwrap_or(Link { to: true, from: true })
    }

    fn push(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), event);
    }

    fn way(&mut self) -> Time {
        let Weather { way: (least, most), late_percent, late, .. } = self.weather;
        if self.dice.percent(late_percent) {
            self.dice.between(least, late.max(least))
        } else {
            self.dice.between(least, most)
        }
    }

    fn arrive(&mut self, client: ClientId, id: RequestId, request: Request) {
        if !self.link(client).to {
            return;
        }
        if self.now < self.stalled_until {
            let at = self.stalled_until;
            return self.push(at, Event::Arrive(client, id, request));
        }
        let refused = || StoreError::NotDone("there is no leader".into());
        let refuse = self.dice.percent(self.weather.refused_percent);
        let reply = match request {
            Request::Get(_) if refuse => Reply::Got(Err(refused())),
            Request::Transact(_) if refuse => Reply::Done(Err(refused())),
            Request::Get(range) => Reply::Got(Ok(self.tree.get(&range))),
            Request::Transact(transaction) => {
                let reply = Reply::Done(self.tree.apply(&transaction));
                self.tell();
                reply
            }
            Request::Watch(prefix, after) => {
                let now = self.now;
                let watching = Watching { client, prefix, told: after, sent: after, sent_by: now };
                self.watches.insert(id, watching);
                return self.tell();
            }
        };
        if !self.dice.percent(self.weather.unanswered_percent) {
            let at = self.now + self.way();
            self.push(at, Event::Answer(Delivery { client, request: id, reply }));
        }
    }

    /// Sends what watches have not been sent.
    fn tell(&mut self) {
        let revision = self.tree.revision();
        let behind: Vec<RequestId> =
            self.watches.iter().filter(|(_, watching)| watching.sent < revision).map(|(id, _)| *id).collect();
        for id in behind {
            let at = self.now + self.way();
            let Some(watching) = self.watches.get_mut(&id) else { continue };
            // One connection: what is sent later does not arrive earlier.
            watching.sent_by = watching.sent_by.max(at);
            watching.sent = revision;
            let at = watching.sent_by;
            self.push(at, Event::Tell(id, revision));
        }
    }

    fn deliver(&mut self, id: RequestId, through: Revision) -> Option<Delivery> {
        let watching = self.watches.get(&id)?;
        if !self.link(watching.client).from {
            let at = self.now + 100 * MILLISECOND;
            self.push(at, Event::Tell(id, through));
            return None;
        }
        let client = watching.client;
        let watching = self.watches.get_mut(&id)?;
        if through <= watching.told {
            return None;
        }
        let changes = self.tree.changes(&watching.prefix, watching.told);
        watching.told = through;
        match changes {
            Ok(mut changes) => {
                changes.retain(|change| change.revision <= through);
                let reply = Reply::Changed(Ok(changes));
                Some(Delivery { client, request: id, reply }).filter(
                    |delivery| matches!(&delivery.reply, Reply::Changed(Ok(changes)) if !changes.is_empty()),
                )
            }
            Err(error) => {
                self.watches.remove(&id);
                Some(Delivery { client, request: id, reply: Reply::Changed(Err(error)) })
            }
        }
    }
}
