//! A few nodes around one store that answers at once, on one clock.

use std::collections::{BTreeMap, BTreeSet};

use cluster_store::keys::{ClusterName, Key, NodeId, PoolId};
use cluster_store::values::{Beat, Incarnation, Member, NodeEntry, Owner, PoolDisks, PoolVoter, Value as _};
use cluster_store::{Range, Revision, Snapshot, Step, StoreError, Transaction, Tree};

use crate::{Action, BootTime, Input, Message, Node, Order, Settings, Sight, Timings};

pub(super) const POOL: PoolId = PoolId(uuid::Uuid::from_u128(1));

pub(super) fn id(node: usize) -> NodeId {
    NodeId::new(node as u16 + 1).expect("a number")
}

pub(super) struct Cluster {
    pub(super) tree: Tree,
    pub(super) nodes: Vec<Node>,
    pub(super) now: BootTime,
    name: ClusterName,
    told: Vec<Revision>,
    /// Nodes whose requests do not arrive, and those whose answers do not.
    pub(super) cut: BTreeSet<usize>,
    pub(super) unanswered: BTreeSet<usize>,
    /// What nodes see, from before they join.
    pub(super) sights: BTreeMap<usize, Sight>,
    /// Nodes that do not run.
    pub(super) asleep: BTreeSet<usize>,
    /// Nodes that are told of no changes.
    pub(super) deaf: BTreeSet<usize>,
    /// Pairs that do not hear each other.
    pub(super) apart: BTreeSet<(usize, usize)>,
    /// Orders as they were given.
    pub(super) orders: Vec<(usize, u64, Order)>,
    /// Orders of this kind are not carried out.
    pub(super) stuck: Option<Order>,
    /// Nodes that were told that their process has to end, and when.
    pub(super) hung: Vec<(usize, BootTime)>,
}

impl Cluster {
    pub(super) fn new(count: usize) -> Self {
        let name = ClusterName::new("t").expect("a name");
        let mut tree = Tree::default();
        let value = Owner { epoch: 0, holder: None }.encode().expect("a value");
        let steps = vec![Step::Put(Key::Owner(POOL).path(&name), value)];
        tree.apply(&Transaction { steps, ..Transaction::default() }).expect("made");
        let mut cluster = Self {
            tree,
            nodes: Vec::new(),
            now: BootTime(1_000_000_000),
            name,
            told: Vec::new(),
            cut: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            sights: BTreeMap::new(),
            asleep: BTreeSet::new(),
            deaf: BTreeSet::new(),
            apart: BTreeSet::new(),
            orders: Vec::new(),
            stuck: None,
            hung: Vec::new(),
        };
        for _ in 0..count {
            cluster.add();
        }
        cluster
    }

    /// One node more.
    pub(super) fn add(&mut self) {
        let number = self.nodes.len();
        self.nodes.push(self.life(number, 1));
        self.told.push(Revision(0));
        self.join(number);
    }

    /// Whether the last beat of a node shows that it knows another one.
    pub(super) fn shows_that_it_knows(&self, node: usize, other: usize) -> bool {
        let beat = self.tree.find(&Key::Beat(id(node)).path(&self.name)).expect("it beats");
        let member = self.tree.find(&Key::Member(id(other)).path(&self.name)).expect("a member");
        Beat::decode(&beat.value).expect("a beat").knows() >= member.created
    }

    fn life(&self, node: usize, incarnation: u64) -> Node {
        let record = Member {
            incarnation: Incarnation(incarnation),
            addresses: Vec::new(),
            paused: false,
            draining: false,
            release: String::new(),
            name: String::new(),
            api: String::new(),
            bus: String::new(),
        };
        let timings = Timings::new(Settings::default()).expect("safe");
        let id = NodeId::new(node as u16 + 1).expect("a number");
        Node::new(id, self.name.clone(), record, timings, self.now)
    }

    pub(super) fn restart(&mut self, node: usize, incarnation: u64) {
        self.nodes[node] = self.life(node, incarnation);
        self.join(node);
    }

    /// The store is as it was when this copy of it was made; what comes after has revisions that were used before.
    pub(super) fn restore(&mut self, backup: Tree) {
        self.tree = backup;
        // A watch that is begun anew begins where the store is now.
        self.told.iter_mut().for_each(|told| *told = self.tree.revision());
    }

    /// The owner has said that so many of these disks are needed.
    pub(super) fn needs(&mut self, disks: &[uuid::Uuid], needed: u32) {
        let voters = disks.iter().map(|disk| PoolVoter { disk: *disk, name: String::new() }).collect();
        let value = PoolDisks { voters, needed }.encode().expect("a value");
        let steps = vec![Step::Put(Key::PoolDisks(POOL).path(&self.name), value)];
        self.tree.apply(&Transaction { steps, ..Transaction::default() }).expect("made");
    }

    /// The entry of a node among those that belong to the cluster.
    pub(super) fn enter(&mut self, node: usize, removed: bool) {
        let entry = NodeEntry {
            name: format!("n{node}"),
            api: String::new(),
            release: String::new(),
            joined: 0,
            removed,
            token: String::new(),
            key: String::new(),
        };
        let key = Key::Node(NodeId::new(node as u16 + 1).expect("a number")).path(&self.name);
        let steps = vec![Step::Put(key, entry.encode().expect("a value"))];
        self.tree.apply(&Transaction { steps, ..Transaction::default() }).expect("made");
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.tree.get(&Range::Prefix(self.name.root()))
    }

    /// A life that has read the state some time ago.
    pub(super) fn late(&mut self, node: usize, incarnation: u64, read: Snapshot) {
        self.nodes[node] = self.life(node, incarnation);
        self.told[node] = read.revision;
        self.feed(node, Input::Snapshot(read));
    }

    /// Another process under the number of a node and of its life, which has read the state some time ago. Its place.
    pub(super) fn twin(&mut self, of: usize, beats_from: u64, read: Snapshot) -> usize {
        let place = self.nodes.len();
        self.nodes.push(self.life(of, 1).with_beats_from(beats_from));
        self.told.push(read.revision);
        self.feed(place, Input::Snapshot(read));
        place
    }

    fn join(&mut self, node: usize) {
        let snapshot = self.snapshot();
        self.told[node] = snapshot.revision;
        if let Some(sight) = self.sights.get(&node).cloned() {
            self.feed(node, Input::Sight(sight));
        }
        self.feed(node, Input::Snapshot(snapshot));
    }

    pub(super) fn owner(&self) -> Owner {
        let found = self.tree.find(&Key::Owner(POOL).path(&self.name)).expect("there");
        Owner::decode(&found.value).expect("an owner")
    }

    /// The node that owns the pool, by its place.
    pub(super) fn holder(&self) -> Option<usize> {
        self.owner().holder.map(|holder| usize::from(holder.node.number()) - 1)
    }

    pub(super) fn answers(&self, node: usize) -> bool {
        let epoch = self.nodes[node].publishes(POOL);
        epoch.is_some_and(|epoch| self.nodes[node].may_answer(self.now, POOL, epoch))
    }

    pub(super) fn feed(&mut self, node: usize, input: Input) {
        for action in self.nodes[node].handle(self.now, input) {
            match action {
                Action::Transact(id, transaction) => {
                    if self.cut.contains(&node) {
                        continue;
                    }
                    let answer = self.tree.apply(&transaction);
                    let answer = if self.unanswered.contains(&node) {
                        Err(StoreError::Unknown("lost".into()))
                    } else {
                        answer
                    };
                    self.feed(node, Input::Answer(id, answer));
                }
                Action::Send(to, message) => self.send(node, usize::from(to.number()) - 1, message),
                Action::Pool(_, epoch, order) => {
                    self.orders.push((node, epoch, order));
                    if self.stuck != Some(order) {
                        self.feed(node, Input::Done(POOL, epoch, order));
                    }
                }
                Action::Read if !self.cut.contains(&node) => self.join(node),
                Action::Read | Action::Permit(_) | Action::Ended => {}
                Action::Hung(_) => self.hung.push((node, self.now)),
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        let pair = (from.min(to), from.max(to));
        if !self.apart.contains(&pair) && !self.asleep.contains(&to) {
            let id = NodeId::new(from as u16 + 1).expect("a number");
            self.feed(to, Input::Message(id, message));
        }
    }

    /// Lets time go by, in steps of 10 ms; after each of them at most one node answers.
    pub(super) fn run(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / 10 {
            self.now = BootTime(self.now.0 + 10_000_000);
            for node in 0..self.nodes.len() {
                if self.asleep.contains(&node) {
                    continue;
                }
                let changes = self.tree.changes(&self.name.root(), self.told[node]).expect("kept");
                if !changes.is_empty() && !self.cut.contains(&node) && !self.deaf.contains(&node) {
                    self.told[node] = self.tree.revision();
                    self.feed(node, Input::Changed(changes));
                }
                if self.nodes[node].next_wake() <= self.now {
                    self.feed(node, Input::Tick);
                }
            }
            let answering: Vec<usize> = (0..self.nodes.len()).filter(|node| self.answers(*node)).collect();
            assert!(answering.len() <= 1, "{answering:?} answer");
            assert!(
                answering.first().is_none_or(|node| self.holder() == Some(*node)),
                "{answering:?} is not the owner"
            );
        }
    }
}
