//! Clients in the world.

use crate::case::Sabotage;
use crate::fault::End;
use crate::life::{MILLISECOND, SECOND, Time};
use crate::node::Incoming;
use crate::pool::Request;
use crate::world::{Event, World};

/// A slow node carries a request out within this.
const SLOWEST: Time = 7 * SECOND;
/// A client goes to another node after this.
const PATIENCE: Time = 1500 * MILLISECOND;

impl World {
    pub(crate) fn next_operation(&mut self, client: usize) {
        let dice = self.dice.clone();
        let of = &mut self.clients[client];
        let any = dice.below(self.plans[of.pool].blocks as u64) as usize;
        let block = of.own.unwrap_or(any);
        let writes = of.own.is_some() && dice.percent(50);
        self.sequence += 1;
        let known = self.known.entry((of.pool, block)).or_default();
        of.operation = Some(known.begin(self.sequence, block, writes, self.now));
        self.send(client);
    }

    /// Sends the client's operation, for the first time or again.
    fn send(&mut self, client: usize) {
        let of = &self.clients[client];
        let Some(operation) = of.operation else { return };
        let request = Request {
            client,
            operation: operation.id,
            connection: of.connection,
            block: operation.block,
            write: operation.write,
        };
        let (node, pool) = (of.node, of.pool);
        if self.open(End::Clients, End::Node(node)) {
            let after = self.dice.between(MILLISECOND / 20, 2 * MILLISECOND);
            self.push(after, Event::ToNode(node, None, Incoming::Client(pool, request)));
        }
        self.push(PATIENCE, Event::GiveUp(client, operation.id));
    }

    /// A request arrives at a node.
    pub(crate) fn request(&mut self, node: usize, pool: usize, request: Request) {
        let of = &mut self.nodes[node];
        {
            let mut inner = of.life.inner.borrow_mut();
            let present = inner.connections.entry(request.client).or_default();
            if *present > request.connection {
                return;
            }
            *present = request.connection;
        }
        let published = of.life.inner.borrow().published.get(&pool).copied();
        let serving = of.pools.get(&pool).filter(|serving| published == Some(serving.epoch)).cloned();
        match serving {
            Some(serving) => {
                let waits = if self.slow == Some(node) { self.slow_dice.below(SLOWEST) } else { 0 };
                of.spawn((pool, serving.epoch), Box::pin(serving.serve(request, waits)));
            }
            None if self.open(End::Node(node), End::Clients) => {
                let after = self.way();
                self.push(after, Event::Answered(request.client, request.operation, None));
            }
            None => {}
        }
    }

    pub(crate) fn client_answered(&mut self, client: usize, operation: u64, value: Option<u64>) {
        let of = &mut self.clients[client];
        let Some(present) = of.operation.filter(|present| present.id == operation) else { return };
        let Some(value) = value else {
            // It asks elsewhere, after a moment.
            return self.push(50 * MILLISECOND, Event::GiveUp(client, operation));
        };
        of.operation = None;
        if self.healed.is_some_and(|healed| present.begun >= healed) {
            of.served.get_or_insert(self.now);
        }
        let known = self.known.entry((of.pool, present.block)).or_default();
        let checked = known.end(&present, value);
        self.stats.writes += u64::from(present.write.is_some());
        self.stats.reads += u64::from(present.write.is_none());
        if let Err(broken) = checked {
            let pool = self.clients[client].pool;
            return self.break_promise(format!("pool {pool}: {broken}"));
        }
        let after = self.dice.between(5 * MILLISECOND, 400 * MILLISECOND);
        self.push(after, Event::Next(client));
    }

    pub(crate) fn give_up(&mut self, client: usize, operation: u64) {
        let nodes = self.nodes.len();
        let dice = self.dice.clone();
        let of = &mut self.clients[client];
        if of.operation.is_none_or(|present| present.id != operation) {
            return;
        }
        // A new connection: what is still on its way over the old one is not carried out.
        of.connection += 1;
        if !dice.one_in(4) {
            of.node = (of.node + 1) % nodes;
        }
        self.sequence += 1;
        let id = self.sequence;
        if let Some(operation) = &mut of.operation {
            operation.id = id;
        }
        self.send(client);
    }

    /// What arrived while the node stood still.
    pub(crate) fn wake_up(&mut self, node: usize) {
        let of = &mut self.nodes[node];
        let Some(since) = of.paused_since.take() else { return };
        let stood_still = self.now - since;
        let inbox = std::mem::take(&mut of.inbox);
        let life = of.life_number;
        // Each connection, thread and timer goes on when its turn comes; what one of them brings stays in its order.
        let dice = self.dice.clone();
        for source in 0..of.catching_up.len() {
            let turn = match dice.below(3) {
                0 => 0,
                1 => dice.between(0, 20 * MILLISECOND),
                _ => dice.between(0, 800 * MILLISECOND),
            };
            of.catching_up[source] = self.now + turn;
        }
        for incoming in inbox {
            if matches!(incoming, Incoming::Client(..)) && stood_still > SECOND {
                // Whoever finds that it stood still closes its connections unread.
                if self.case.sabotage == Sabotage::ReadsOldRequests {
                    let late = dice.between(0, 10 * SECOND);
                    self.push(late, Event::ToNode(node, None, incoming));
                }
                continue;
            }
            self.push(0, Event::ToNode(node, Some(life), incoming));
        }
    }
}
