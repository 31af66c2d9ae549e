//! The node's loop: one life after the other, each event into the state machine, each of its actions out.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster_store::keys::{ClusterName, Key, NodeId, PoolId};
use cluster_store::values::{Incarnation, Member, Value as _};
use cluster_store::{ClusterStore, Outcome, StoreError};
use pool_ownership::{Action, BootTime, Input, Message, Node, Phase, RequestId, Sight, Timings};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify, Semaphore, mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use crate::back::Seen;
use crate::clock::boot_time;
use crate::driver::PoolDriver;
use crate::entry::{self, Gate};
use crate::follow::{News, follow};
use crate::incarnation::{IncarnationError, Incarnations};
use crate::links::Links;
use crate::options::{NodeError, NodeOptions};
use crate::permit::Ending;
use crate::remembered::Remembered;
use crate::running::{Pools, Report};
use crate::status::{MemberState, Status};
use crate::tls::LinkTls;

/// Events that wait for the loop; whoever has one more waits.
const EVENTS: usize = 256;
/// Messages of other nodes that wait for the loop; their links wait.
const MESSAGES: usize = 64;
/// Requests of an administrator that wait.
const COMMANDS: usize = 16;
/// Transactions without an answer: with the store's patience of seconds and two beats a second there are never so many.
const TRANSACTIONS: usize = 32;
/// The loop turns so often when nothing happens: timers stand still while a machine sleeps, the clock does not.
const TURN: Duration = Duration::from_millis(200);
/// The store is looked at so often while somebody else lives under this node's number.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Between attempts to write the number of a life.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

enum Command {
    Move(PoolId, NodeId),
    Mode { paused: bool, draining: bool },
    Sight(Sight),
    Stop(oneshot::Sender<()>),
}

enum Event {
    News(News),
    Answer(RequestId, Result<Outcome, StoreError>),
    Report(Report),
}

/// A node at work. It ends, with all its permits, when this is dropped.
#[derive(Debug)]
pub struct ClusterNode {
    commands: mpsc::Sender<Command>,
    status: watch::Receiver<Status>,
    links: Arc<Links>,
    address: SocketAddr,
    tasks: [JoinHandle<()>; 2],
}

impl ClusterNode {
    /// Starts on this runtime, which has to have I/O and time. `store` may be away: the node takes part when it is there.
    ///
    /// # Errors
    /// When links cannot arrive.
    pub fn start(
        options: NodeOptions,
        store: Arc<dyn ClusterStore>,
        driver: Arc<dyn PoolDriver>,
        runtime: &Handle,
    ) -> Result<Self, NodeError> {
        let _guard = runtime.enter();
        options.listener.set_nonblocking(true).map_err(NodeError::Listen)?;
        let listener = TcpListener::from_std(options.listener).map_err(NodeError::Listen)?;
        let address = listener.local_addr().map_err(NodeError::Listen)?;
        let (heard, messages) = mpsc::channel(MESSAGES);
        let (commands, asked) = mpsc::channel(COMMANDS);
        let (told, status) = watch::channel(Status::default());
        let links = Links::new(options.node, options.cluster.clone(), options.tls, heard, options.aside);
        let record = Member {
            incarnation: Incarnation(0),
            addresses: options.addresses,
            paused: options.paused,
            draining: false,
            release: options.release,
            name: options.name,
            api: options.api,
            bus: options.bus,
        };
        let remembered = Remembered::new(options.incarnations.folder(), &options.cluster);
        let mut work = Work {
            seen: Seen::load(remembered, Key::Beat(options.node).path(&options.cluster)),
            me: options.node,
            cluster: options.cluster,
            record,
            sight: options.sight,
            timings: options.timings,
            incarnations: Arc::new(Mutex::new(options.incarnations)),
            store,
            driver,
            links: links.clone(),
            messages,
            asked,
            told,
            permit: Ending(options.permit),
        };
        let listening = runtime.spawn(links.clone().listen(listener));
        let working = runtime.spawn(async move { while work.live().await {} });
        Ok(Self { commands, status, links, address, tasks: [listening, working] })
    }

    /// Where links of others arrive.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How it stands with it, now and whenever that changes.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Moves a pool of this node to another one, if that can take it now: it takes part, is not paused, and its last beat shows that it
    /// knows all members, which one that came a moment ago does not. Otherwise nothing happens; whoever wants it asks again.
    ///
    /// # Errors
    /// When the node has ended.
    pub async fn move_pool(&self, pool: PoolId, to: NodeId) -> Result<(), NodeError> {
        self.commands.send(Command::Move(pool, to)).await.map_err(|_| NodeError::Ended)
    }

    /// Pauses the node, or drains it, or neither.
    ///
    /// # Errors
    /// When the node has ended.
    pub async fn set_mode(&self, paused: bool, draining: bool) -> Result<(), NodeError> {
        self.commands.send(Command::Mode { paused, draining }).await.map_err(|_| NodeError::Ended)
    }

    /// The node sees these disks of pools now. The next life of it begins with that, too.
    ///
    /// # Errors
    /// When the node has ended.
    pub async fn set_sight(&self, sight: Sight) -> Result<(), NodeError> {
        self.commands.send(Command::Sight(sight)).await.map_err(|_| NodeError::Ended)
    }

    /// Links that begin from now on show these certificates.
    pub fn set_tls(&self, tls: LinkTls) {
        self.links.set_tls(tls);
    }

    /// Stops all pools and ends. They stay this node's until its next life takes them back, or others do: whoever wants them to
    /// move first drains the node.
    pub async fn stop(self) {
        let (stopped, done) = oneshot::channel();
        if self.commands.send(Command::Stop(stopped)).await.is_ok() {
            let _ = done.await;
        }
    }
}

impl Drop for ClusterNode {
    fn drop(&mut self) {
        self.links.close();
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

struct Work {
    seen: Seen,
    me: NodeId,
    cluster: ClusterName,
    record: Member,
    sight: Option<Sight>,
    timings: Timings,
    incarnations: Arc<Mutex<Incarnations>>,
    store: Arc<dyn ClusterStore>,
    driver: Arc<dyn PoolDriver>,
    links: Arc<Links>,
    messages: mpsc::Receiver<(NodeId, Message)>,
    asked: mpsc::Receiver<Command>,
    told: watch::Sender<Status>,
    permit: Ending,
}

/// What belongs to one life.
struct Life {
    node: Node,
    pools: Pools<Event>,
    events: mpsc::Sender<Event>,
    /// Makes the follower read everything anew.
    again: Arc<Notify>,
    transactions: JoinSet<()>,
    places: Arc<Semaphore>,
    /// Where the members are found.
    members: BTreeMap<NodeId, Vec<String>>,
}

impl Work {
    /// One life; false when there is to be no other.
    async fn live(&mut self) -> bool {
        let (events, mut happened) = mpsc::channel(EVENTS);
        let again = Arc::new(Notify::new());
        let mut following = JoinSet::new();
        let root = self.cluster.root();
        following.spawn(follow(self.store.clone(), root, again.clone(), events.clone(), Event::News));
        let Some((snapshot, incarnation)) = self.enter(&mut happened, &again).await else { return false };
        tracing::info!("node {} begins its life {}", self.me, incarnation.0);
        self.permit.0.begin(incarnation.0);
        let record = Member { incarnation, ..self.record.clone() };
        // Half of the range at the most, so that counting on does not end.
        let Ok(beats_from) = getrandom::u64().map(|number| number >> 1) else {
            self.trouble("the system has no entropy".into(), false);
            sleep(WRITE_AGAIN).await;
            return true;
        };
        let mut node = Node::new(self.me, self.cluster.clone(), record, self.timings, boot_time())
            .with_beats_from(beats_from);
        // Before it claims anything. It has nothing to do yet.
        let _ = self.sight.clone().map(|sight| node.handle(boot_time(), Input::Sight(sight)));
        let pools = Pools::new(self.driver.clone(), events.clone(), Event::Report);
        let mut life = Life {
            node,
            pools,
            events,
            again,
            transactions: JoinSet::new(),
            places: Arc::new(Semaphore::new(TRANSACTIONS)),
            members: BTreeMap::new(),
        };
        let mut input = self.input(&mut life, Event::News(News::Snapshot(snapshot)));
        loop {
            if let Some(input) = input.take() {
                for action in life.node.handle(boot_time(), input) {
                    if matches!(action, Action::Ended) {
                        self.permit.0.end();
                        let why = self.seen.notice(life.node.store_went_back());
                        tracing::warn!("node {}: its life {} is over, {why}", self.me, incarnation.0);
                        self.tell(&life, None);
                        return true;
                    }
                    self.act(&mut life, action);
                }
                self.tell(&life, Some(life.node.phase()));
            }
            while life.transactions.try_join_next().is_some() {}
            let pause = life.node.next_wake().since(boot_time()).min(TURN);
            input = tokio::select! {
                biased;
                (pool, epoch, failure) = life.pools.failures.next() => Some(Input::Failed(pool, epoch, failure)),
                Some(event) = happened.recv() => self.input(&mut life, event),
                Some(command) = self.asked.recv() => match command {
                    Command::Move(pool, to) => Some(Input::Move(pool, to)),
                    Command::Mode { paused, draining } => {
                        (self.record.paused, self.record.draining) = (paused, draining);
                        Some(Input::Mode { paused, draining })
                    }
                    Command::Sight(sight) => {
                        self.sight = Some(sight.clone());
                        Some(Input::Sight(sight))
                    }
                    Command::Stop(stopped) => {
                        // Nobody takes note of anything any more.
                        happened.close();
                        self.permit.0.end();
                        life.pools.stop_all().await;
                        self.seen.keep_at_end().await;
                        self.tell(&life, None);
                        let _ = stopped.send(());
                        return false;
                    }
                },
                Some((from, message)) = self.messages.recv() => Some(Input::Message(from, message)),
                () = sleep(pause) => Some(Input::Tick),
            };
        }
    }

    /// Waits until this node may begin a life, and gives it its number.
    async fn enter(
        &mut self,
        happened: &mut mpsc::Receiver<Event>,
        again: &Notify,
    ) -> Option<(cluster_store::Snapshot, Incarnation)> {
        loop {
            let snapshot = tokio::select! {
                event = happened.recv() => match event {
                    Some(Event::News(News::Snapshot(snapshot))) => Some(snapshot),
                    Some(Event::News(News::Away(why))) => {
                        self.trouble(format!("the shared state cannot be read: {why}"), false);
                        None
                    }
                    _ => None,
                },
                command = self.asked.recv() => match command {
                    Some(Command::Stop(stopped)) => {
                        self.seen.keep_at_end().await;
                        let _ = stopped.send(());
                        return None;
                    }
                    Some(Command::Mode { paused, draining }) => {
                        (self.record.paused, self.record.draining) = (paused, draining);
                        None
                    }
                    Some(Command::Sight(sight)) => {
                        self.sight = Some(sight);
                        None
                    }
                    Some(Command::Move(..)) => None,
                    None => return None,
                },
                // There is nobody yet whom they could be for.
                Some(_) = self.messages.recv() => None,
                () = sleep(LOOK_AGAIN) => {
                    again.notify_one();
                    None
                }
            };
            let Some(snapshot) = snapshot else { continue };
            let mut incarnations = self.incarnations.clone().lock_owned().await;
            if incarnations.was_removed(&self.cluster, self.me) {
                self.trouble(entry::removed(self.me), true);
                continue;
            }
            let who = (self.me, self.record.name.as_str());
            match entry::look(who, &self.cluster, &snapshot, |life| incarnations.is_gone(life)) {
                Gate::Open { above } => {
                    if let Err(why) = self.seen.look((self.me, &self.cluster), &self.store, &snapshot).await {
                        self.trouble(why, false);
                        continue;
                    }
                    let written = tokio::task::spawn_blocking(move || incarnations.next(above)).await;
                    match written {
                        Ok(Ok(incarnation)) => return Some((snapshot, incarnation)),
                        Ok(Err(error)) => {
                            self.trouble(error.to_string(), false);
                            if matches!(error, IncarnationError::Exhausted(_)) {
                                return None;
                            }
                        }
                        Err(_) => return None,
                    }
                    sleep(WRITE_AGAIN).await;
                    again.notify_one();
                }
                Gate::Closed(why) => self.trouble(why, false),
                Gate::Removed(why) => {
                    incarnations.note_removed(&self.cluster, self.me);
                    self.trouble(why, true);
                }
            }
        }
    }

    /// Says why the node takes no part; `removed`: it never will. Links go on between lives: how they are is seen by them alone then.
    fn trouble(&self, why: String, removed: bool) {
        self.told.send_if_modified(|told| {
            let before = told.clone();
            (told.links, told.removed) = (self.links.status(), removed);
            if told.trouble.as_ref() != Some(&why) {
                tracing::warn!("node {} does not take part: {why}", self.me);
            }
            told.trouble = Some(why);
            *told != before
        });
    }

    /// What an event is to the state machine.
    fn input(&mut self, life: &mut Life, event: Event) -> Option<Input> {
        match event {
            Event::News(News::Snapshot(snapshot)) => {
                self.seen.note(snapshot.revision, &snapshot.found);
                let members = snapshot.found.iter().filter_map(|found| self.member(&found.key, &found.value));
                life.members = members.collect();
                self.links.update(&life.members);
                Some(Input::Snapshot(snapshot))
            }
            Event::News(News::Changed(changes)) => {
                self.seen.note_changes(&changes);
                let mut changed = false;
                for change in &changes {
                    let Some(Key::Member(node)) = Key::parse(&self.cluster, &change.key) else { continue };
                    changed = true;
                    match change.now.as_ref().and_then(|found| self.member(&found.key, &found.value)) {
                        Some((node, addresses)) => life.members.insert(node, addresses),
                        None => life.members.remove(&node),
                    };
                }
                if changed {
                    self.links.update(&life.members);
                }
                Some(Input::Changed(changes))
            }
            Event::News(News::Away(why)) => {
                tracing::debug!("the shared state cannot be read: {why}");
                None
            }
            Event::Answer(id, answer) => Some(Input::Answer(id, answer)),
            Event::Report(report) => {
                life.pools.reported(&report);
                let Report { pool, epoch, order, result } = report;
                Some(match result {
                    Ok(()) => Input::Done(pool, epoch, order),
                    Err(failure) => Input::Failed(pool, epoch, failure),
                })
            }
        }
    }

    fn member(&self, key: &str, value: &[u8]) -> Option<(NodeId, Vec<String>)> {
        let Some(Key::Member(node)) = Key::parse(&self.cluster, key) else { return None };
        Some((node, Member::decode(value).ok()?.addresses))
    }

    fn act(&self, life: &mut Life, action: Action) {
        match action {
            Action::Permit(until) => {
                self.permit.0.set(until);
                life.pools.permit(until);
            }
            Action::Transact(id, transaction) => {
                let (store, events) = (self.store.clone(), life.events.clone());
                let place = life.places.clone().try_acquire_owned();
                life.transactions.spawn(async move {
                    let answer = match place {
                        Ok(_place) => store.transact(transaction).await,
                        Err(_) => Err(StoreError::NotDone("too many transactions have no answer yet".into())),
                    };
                    let _ = events.send(Event::Answer(id, answer)).await;
                });
            }
            Action::Read => life.again.notify_one(),
            Action::Send(to, message) => self.links.send(to, message),
            Action::Pool(pool, epoch, order) => life.pools.order(pool, epoch, order),
            Action::Hung(pool) => self.driver.hung(pool),
            Action::Ended => {}
        }
    }

    fn tell(&self, life: &Life, phase: Option<Phase>) {
        let status = Status {
            phase,
            incarnation: life.node.incarnation().0,
            permit: phase.map_or(BootTime(0), |_| life.node.permit()),
            pools: life.pools.each().collect(),
            members: life.node.members().map(MemberState::seen).collect(),
            owners: life.node.owners().map(|(pool, owner)| (pool, owner.cloned())).collect(),
            sights: life.node.sights().collect(),
            links: self.links.status(),
            trouble: None,
            removed: false,
            went_back: self.seen.went_back(),
        };
        self.told.send_if_modified(|told| {
            let changed = *told != status;
            *told = status;
            changed
        });
    }
}
