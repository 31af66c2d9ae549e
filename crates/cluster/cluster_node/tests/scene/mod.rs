//! Three nodes with a real etcd: what they are made of, and the recorder that sees every permit in one clock.
#![allow(dead_code, reason = "each file of tests uses a part of it")]
#![allow(clippy::expect_used, reason = "the scene of a test")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use cluster_node::{
    ClusterNode, DriverFuture, Incarnations, LinkTls, NodeOptions, Order, Ownership, PoolDriver, Settings,
    Status, Timings, boot_time, node_name,
};
use cluster_store::keys::{ClusterName, Key, NodeId, PoolId};
use cluster_store::values::{Owner, Value as _};
use cluster_store::{ClusterStore, Condition, Range, Step, Transaction};
use cluster_store_etcd::{EtcdStore, Options, Patience, Tls};
use test_etcd::{Etcd, own_address, own_port, wait_for};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

pub(crate) const POOL: PoolId = PoolId(uuid::Uuid::from_u128(0x18));

pub(crate) fn cluster() -> ClusterName {
    ClusterName::new("test").expect("a name")
}

pub(crate) fn id(number: u16) -> NodeId {
    NodeId::new(number).expect("a number")
}

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Times that a machine which does much else does not break: for tests in which a permit has to last.
pub(crate) fn patient() -> Settings {
    let usual = Settings::default();
    Settings {
        permit: usual.permit * 3,
        claim_after: usual.claim_after * 3,
        promise_used: usual.promise_used * 3,
        promise_kept: usual.promise_kept * 3,
        stand_still: usual.stand_still * 3,
        ..usual
    }
}

/// Everything that a node needs, as it stands in files too.
#[derive(Clone)]
pub(crate) struct Papers {
    pub(crate) number: u16,
    pub(crate) endpoints: Vec<String>,
    pub(crate) authority: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) port: u16,
    pub(crate) folder: PathBuf,
}

impl Papers {
    pub(crate) fn new(etcd: &Etcd, number: u16, folder: &Path) -> Self {
        let identity = etcd.authority().issue(&[&node_name(id(number))]);
        Self {
            number,
            endpoints: etcd.endpoints(),
            authority: etcd.authority().pem().clone(),
            certificate: identity.certificate,
            key: identity.key,
            port: own_port(),
            folder: folder.join(number.to_string()),
        }
    }

    pub(crate) fn store(&self, runtime: &Runtime) -> EtcdStore {
        let tls = Tls {
            ca: self.authority.clone().into(),
            certificate: self.certificate.clone().into(),
            key: self.key.clone().into(),
        };
        let options = Options {
            endpoints: self.endpoints.clone(),
            tls: Some(tls),
            patience: Patience::default(),
            cluster_id: None,
        };
        EtcdStore::new(options, runtime.handle().clone()).expect("options")
    }

    pub(crate) fn options(&self, address: std::net::IpAddr, settings: Settings) -> NodeOptions {
        let tls = LinkTls::new(self.authority.as_bytes(), self.certificate.as_bytes(), self.key.as_bytes());
        let mut listener = None;
        // Whoever had the port may take a moment to end.
        wait_for("the port is free", || {
            listener = std::net::TcpListener::bind((address, self.port)).ok();
            listener.is_some()
        });
        let mut incarnations = None;
        wait_for("the data directory is free", || {
            incarnations = Incarnations::open(&self.folder).ok();
            incarnations.is_some()
        });
        NodeOptions {
            node: id(self.number),
            cluster: cluster(),
            addresses: vec![format!("{address}:{}", self.port)],
            release: "test".into(),
            name: self.number.to_string(),
            api: String::new(),
            bus: String::new(),
            paused: false,
            sight: None,
            listener: listener.expect("bound"),
            tls: tls.expect("certificates"),
            timings: Timings::new(settings).expect("times"),
            incarnations: incarnations.expect("opened"),
            permit: cluster_node::NodePermit::default(),
            aside: cluster_node::Aside::none(),
        }
    }
}

/// Makes a pool that nobody owns yet.
pub(crate) fn make_pool(papers: &Papers) {
    let runtime = runtime();
    let store = papers.store(&runtime);
    let path = Key::Owner(POOL).path(&cluster());
    let free = Owner { epoch: 0, holder: None }.encode().expect("a value");
    let made = Transaction {
        conditions: vec![Condition::Absent(path.clone())],
        steps: vec![Step::Put(path, free)],
        reads: Vec::new(),
    };
    assert!(runtime.block_on(store.transact(made)).expect("etcd answers").done);
}

pub(crate) fn owner(papers: &Papers) -> Owner {
    let runtime = runtime();
    let store = papers.store(&runtime);
    let found =
        runtime.block_on(store.get(Range::Key(Key::Owner(POOL).path(&cluster())))).expect("etcd answers");
    Owner::decode(&found.found[0].value).expect("a value")
}

/// Sees all pools of all nodes of this process, and that there are never two permits for one.
#[derive(Default)]
pub(crate) struct Recorder {
    published: Mutex<Vec<(u16, Ownership)>>,
    orders: Mutex<Vec<(u16, u64, Order)>>,
    broken: Mutex<Option<String>>,
    ended: AtomicBool,
}

impl Recorder {
    /// Two that hold at one moment: the first is looked at before and after the second.
    fn check(&self) {
        let published = self.published.lock().expect("sound").clone();
        for (at, (one_node, one)) in published.iter().enumerate() {
            for (other_node, other) in &published[at + 1..] {
                let now = boot_time();
                if one.permit.allows(now) && other.permit.allows(now) && one.permit.allows(boot_time()) {
                    let what = format!(
                        "nodes {one_node} and {other_node} may both answer, in epochs {} and {}, at {}",
                        one.epoch, other.epoch, now.0
                    );
                    self.broken.lock().expect("sound").get_or_insert(what);
                }
            }
        }
    }

    /// Looks all the time, from a thread of its own.
    #[expect(clippy::disallowed_methods, reason = "a thread of a test")]
    fn watch(self: &Arc<Self>) -> JoinHandle<()> {
        let this = self.clone();
        std::thread::spawn(move || {
            while !this.ended.load(Ordering::SeqCst) {
                this.check();
                std::thread::sleep(Duration::from_millis(1));
            }
        })
    }

    /// The permit of the pool's newest owner.
    pub(crate) fn newest(&self) -> Option<(u16, Ownership)> {
        let published = self.published.lock().expect("sound");
        published.iter().max_by_key(|(_, ownership)| ownership.epoch).cloned()
    }

    pub(crate) fn published_by(&self, node: u16, epoch: u64) -> Ownership {
        let published = self.published.lock().expect("sound");
        let found = published.iter().find(|(of, ownership)| (*of, ownership.epoch) == (node, epoch));
        found.expect("published").1.clone()
    }

    pub(crate) fn orders_of(&self, node: u16, epoch: u64) -> Vec<Order> {
        let orders = self.orders.lock().expect("sound");
        orders
            .iter()
            .filter(|(of, in_epoch, _)| (*of, *in_epoch) == (node, epoch))
            .map(|(.., order)| *order)
            .collect()
    }

    pub(crate) fn is_whole(&self) {
        let broken = self.broken.lock().expect("sound");
        assert!(broken.is_none(), "{broken:?}");
    }
}

/// A pool that takes a moment for each order.
struct Driver {
    node: u16,
    recorder: Arc<Recorder>,
}

impl PoolDriver for Driver {
    fn carry_out<'a>(&'a self, of: &'a Ownership, order: Order) -> DriverFuture<'a> {
        Box::pin(async move {
            self.recorder.orders.lock().expect("sound").push((self.node, of.epoch, order));
            if order == Order::Publish {
                self.recorder.published.lock().expect("sound").push((self.node, of.clone()));
                self.recorder.check();
            }
            if order == Order::Stop {
                // A driver that panics is asked again, so this would be seen by nobody.
                if of.permit.may_answer() {
                    let what = format!("node {} stops epoch {} with a permit", self.node, of.epoch);
                    self.recorder.broken.lock().expect("sound").get_or_insert(what);
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok(())
        })
    }

    fn hung(&self, pool: PoolId) {
        let what = format!("pool {pool} does not stop on node {}", self.node);
        self.recorder.broken.lock().expect("sound").get_or_insert(what);
    }
}

enum Say {
    Freeze(mpsc::Receiver<()>),
    Move(PoolId, NodeId),
    Stop,
}

/// A node with a thread of its own.
pub(crate) struct Running {
    pub(crate) status: watch::Receiver<Status>,
    say: tokio::sync::mpsc::UnboundedSender<Say>,
    thaw: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(papers: Papers, recorder: Arc<Recorder>, settings: Settings) -> Self {
        let (say, mut said) = tokio::sync::mpsc::unbounded_channel();
        let (told, status) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = runtime();
            let store = Arc::new(papers.store(&runtime));
            let driver = Arc::new(Driver { node: papers.number, recorder });
            let options = papers.options(own_address(), settings);
            let node = ClusterNode::start(options, store, driver, runtime.handle()).expect("starts");
            told.send(node.status()).expect("waited for");
            runtime.block_on(async move {
                while let Some(what) = said.recv().await {
                    match what {
                        // All of its tasks stand still with the thread.
                        Say::Freeze(until) => drop(until.recv()),
                        Say::Move(pool, to) => node.move_pool(pool, to).await.expect("taken"),
                        Say::Stop => return node.stop().await,
                    }
                }
            });
        });
        let status = status.recv().expect("it starts");
        Self { status, say, thaw: None, thread: Some(thread) }
    }

    pub(crate) fn freeze(&mut self) {
        let (thaw, until) = mpsc::channel();
        self.thaw = Some(thaw);
        let _ = self.say.send(Say::Freeze(until));
    }

    pub(crate) fn thaw(&mut self) {
        self.thaw = None;
    }

    pub(crate) fn move_pool(&self, to: u16) {
        let _ = self.say.send(Say::Move(POOL, id(to)));
    }

    /// Ends as an orderly process does.
    pub(crate) fn stop(mut self) {
        let _ = self.say.send(Say::Stop);
        self.thread.take().map(JoinHandle::join);
    }

    pub(crate) fn status(&self) -> Status {
        self.status.borrow().clone()
    }
}

impl Drop for Running {
    /// Ends as a process does that is killed: nothing is carried to its end.
    fn drop(&mut self) {
        self.thaw = None;
        self.say = tokio::sync::mpsc::unbounded_channel().0;
        self.thread.take().map(JoinHandle::join);
    }
}

/// Three nodes, an etcd, and who looks at all of it.
pub(crate) struct Site {
    pub(crate) etcd: Etcd,
    pub(crate) papers: Vec<Papers>,
    pub(crate) nodes: Vec<Option<Running>>,
    pub(crate) recorder: Arc<Recorder>,
    settings: Settings,
    looking: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Site {
    pub(crate) fn start(etcds: usize, settings: Settings) -> Self {
        let etcd = Etcd::start(etcds, &[]);
        let folder = tempfile::tempdir().expect("temp dir");
        let papers: Vec<Papers> = (1..=3).map(|number| Papers::new(&etcd, number, folder.path())).collect();
        let recorder = Arc::new(Recorder::default());
        let looking = Some(recorder.watch());
        let nodes =
            papers.iter().map(|papers| Some(Running::start(papers.clone(), recorder.clone(), settings)));
        let nodes = nodes.collect();
        let site = Self { etcd, papers, nodes, recorder, settings, looking, _folder: folder };
        // All know each other before there is anything to own.
        for number in 1..=3 {
            let what = format!("node {number} is a member and reaches the others");
            site.wait(&what, |site| {
                let status = site.node(number).status();
                status.phase == Some(cluster_node::Phase::Member)
                    && status.links.len() == 2
                    && status.links.iter().all(|link| link.trouble.is_none())
            });
        }
        make_pool(&site.papers[0]);
        site.served("the pool is served", |_, _| true);
        site
    }

    /// Waits, and looks whether the promises still hold.
    pub(crate) fn wait(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        wait_for(what, || {
            self.recorder.is_whole();
            is_so(self)
        });
    }

    /// Waits until such a node serves the pool in such an epoch, and says which.
    pub(crate) fn served(&self, what: &str, by: impl Fn(u16, u64) -> bool) -> (u16, u64) {
        let found = std::cell::Cell::new(None);
        self.wait(what, |site| {
            found.set(site.serving().filter(|(node, epoch)| by(*node, *epoch)));
            found.get().is_some()
        });
        found.get().expect("found")
    }

    pub(crate) fn node(&self, number: u16) -> &Running {
        self.nodes[usize::from(number) - 1].as_ref().expect("it runs")
    }

    pub(crate) fn node_mut(&mut self, number: u16) -> &mut Running {
        self.nodes[usize::from(number) - 1].as_mut().expect("it runs")
    }

    pub(crate) fn kill(&mut self, number: u16) {
        self.nodes[usize::from(number) - 1] = None;
    }

    pub(crate) fn restart(&mut self, number: u16) {
        let papers = self.papers[usize::from(number) - 1].clone();
        let running = Running::start(papers, self.recorder.clone(), self.settings);
        self.nodes[usize::from(number) - 1] = Some(running);
    }

    /// Who may answer for the pool now, and its epoch.
    pub(crate) fn serving(&self) -> Option<(u16, u64)> {
        let (node, ownership) = self.recorder.newest()?;
        ownership.permit.may_answer().then_some((node, ownership.epoch))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.nodes.clear();
        self.recorder.ended.store(true, Ordering::SeqCst);
        self.looking.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            self.recorder.is_whole();
        }
    }
}
