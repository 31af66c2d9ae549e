//! Three nodes of a cluster in one process: parts in memory, disks that all of them reach, a store that they share.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use cluster_node::{Incarnations, LinkTls, Settings, Timings, node_name};
use cluster_store::keys::{ClusterName, Key, NodeId};
use cluster_store::values::{Named, NodeEntry, Value as _};
use cluster_store::{
    Change, ClusterStore, LocalStore, Outcome, Range, Revision, Snapshot, Step, StoreError, StoreFuture,
    Transaction, Watch,
};
use control_server::cluster::{Membership, NodeMode};
use control_server::memory::{Machine, MemoryAddresses, MemoryIscsi, MemorySmb};
use control_server::{FoundDisk, NodeOptions, Running};
use serde_json::{Value, json};
use shard_runtime::SystemClock;
use test_etcd::{Authority, Proxy};
use tokio::runtime::{Builder, Runtime};

use crate::common;

/// Threads of a node's runtime.
const THREADS: usize = 2;
/// How long anything is waited for, far beyond what a busy machine needs.
const LIMIT: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(50);

/// Times that a machine which does much else does not break.
fn patient() -> Settings {
    let usual = Settings::default();
    Settings {
        permit: usual.permit * 2,
        claim_after: usual.claim_after * 2,
        promise_used: usual.promise_used * 2,
        promise_kept: usual.promise_kept * 2,
        stand_still: usual.stand_still * 2,
        ..usual
    }
}

/// An address that nobody uses.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").to_string()
}

/// A store that may not answer for some of its keys.
pub(crate) struct Silent {
    store: LocalStore,
    /// What is in the names of keys for which it does not answer.
    pub(crate) about: Mutex<Option<&'static str>>,
    /// How often it did not.
    pub(crate) silences: AtomicUsize,
    /// How many wait for it in vain to read something.
    pub(crate) reading: AtomicUsize,
    /// Counts how often all watches broke off, as when etcd loses its leader.
    broken: tokio::sync::watch::Sender<u64>,
    /// How often nodes began to watch what others ask of them.
    order_watches: AtomicUsize,
}

impl Silent {
    fn open(folder: &Path) -> Arc<Self> {
        Arc::new(Self {
            store: LocalStore::open(folder).expect("a store"),
            about: Mutex::new(None),
            silences: AtomicUsize::new(0),
            reading: AtomicUsize::new(0),
            broken: tokio::sync::watch::Sender::new(0),
            order_watches: AtomicUsize::new(0),
        })
    }

    /// Whether a request is one that it does not answer.
    fn is_about<'k>(&self, mut keys: impl Iterator<Item = &'k str>) -> bool {
        let about = *self.about.lock().expect("a lock");
        let silent = about.is_some_and(|about| keys.any(|key| key.contains(about)));
        self.silences.fetch_add(usize::from(silent), Ordering::Relaxed);
        silent
    }
}

impl Silent {
    /// All watches break off. Until both nodes watch again what others ask of them.
    pub(crate) fn break_watches(&self) {
        let before = self.order_watches.load(Ordering::Relaxed);
        self.broken.send_modify(|times| *times += 1);
        comes("they watch again", || self.order_watches.load(Ordering::Relaxed) >= before + 2);
    }

    /// Whether the value of a key with this in its name has this text in it.
    pub(crate) fn holds(&self, about: &str, text: &str) -> bool {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let all = runtime.block_on(self.store.get(Range::Prefix(String::new()))).expect("it answers");
        let of = all.found.iter().filter(|found| found.key.contains(about));
        of.map(|found| String::from_utf8_lossy(&found.value)).any(|value| value.contains(text))
    }
}

impl ClusterStore for Silent {
    fn get(&self, range: Range) -> StoreFuture<'_, Snapshot> {
        let silent = matches!(&range, Range::Key(key) if self.is_about(std::iter::once(key.as_str())));
        if !silent {
            return self.store.get(range);
        }
        Box::pin(async {
            let _reads = Reads::new(&self.reading);
            std::future::pending().await
        })
    }

    fn transact(&self, transaction: Transaction) -> StoreFuture<'_, Outcome> {
        let silent = self.is_about(transaction.steps.iter().map(cluster_store::Step::key));
        if silent { Box::pin(std::future::pending()) } else { self.store.transact(transaction) }
    }

    fn watch(&self, prefix: String, after: Revision) -> StoreFuture<'_, Box<dyn Watch>> {
        let broken = self.broken.subscribe();
        self.order_watches.fetch_add(usize::from(prefix.contains("/orders/")), Ordering::Relaxed);
        Box::pin(async move {
            let inner = self.store.watch(prefix, after).await?;
            Ok(Box::new(Breaks { inner, broken }) as Box<dyn Watch>)
        })
    }
}

/// A watch that breaks off with all others.
struct Breaks {
    inner: Box<dyn Watch>,
    broken: tokio::sync::watch::Receiver<u64>,
}

impl Watch for Breaks {
    fn next(&mut self) -> StoreFuture<'_, Vec<Change>> {
        Box::pin(async {
            tokio::select! {
                changes = self.inner.next() => changes,
                _ = self.broken.changed() => Err(StoreError::NotDone("no leader".into())),
            }
        })
    }
}

/// The ways of a node: its own to the store, and those of others to it.
pub(crate) struct Way {
    store: Arc<Reached>,
    links: Proxy,
}

impl Way {
    fn new(store: &Arc<Silent>, address: &str) -> Self {
        let to: std::net::SocketAddr = address.parse().expect("an address");
        let cut = tokio::sync::watch::Sender::new(false);
        let store = Arc::new(Reached { store: store.clone(), cut });
        Self { store, links: Proxy::start((to.ip(), to.port())) }
    }

    fn address(&self) -> String {
        let (ip, port) = self.links.address();
        format!("{ip}:{port}")
    }

    /// Others do not reach the node, or do again.
    pub(crate) fn cut_links(&self, cut: bool) {
        self.links.cut(cut);
    }

    /// The node does not reach the store, or does again.
    pub(crate) fn cut_store(&self, cut: bool) {
        self.store.cut.send_replace(cut);
    }
}

/// The store, as long as the way to it is not cut.
struct Reached {
    store: Arc<Silent>,
    cut: tokio::sync::watch::Sender<bool>,
}

impl Reached {
    /// # Errors
    /// When there is no way now.
    async fn go(&self) -> Result<(), StoreError> {
        if !*self.cut.borrow() {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
        Err(StoreError::NotDone("no route".into()))
    }
}

impl ClusterStore for Reached {
    fn get(&self, range: Range) -> StoreFuture<'_, Snapshot> {
        Box::pin(async {
            self.go().await?;
            self.store.get(range).await
        })
    }

    fn transact(&self, transaction: Transaction) -> StoreFuture<'_, Outcome> {
        Box::pin(async {
            self.go().await?;
            self.store.transact(transaction).await
        })
    }

    fn watch(&self, prefix: String, after: Revision) -> StoreFuture<'_, Box<dyn Watch>> {
        Box::pin(async move {
            self.go().await?;
            let inner = self.store.watch(prefix, after).await?;
            Ok(Box::new(UntilCut { inner, cut: self.cut.subscribe() }) as Box<dyn Watch>)
        })
    }
}

/// A watch that breaks off when the way is cut.
struct UntilCut {
    inner: Box<dyn Watch>,
    cut: tokio::sync::watch::Receiver<bool>,
}

impl Watch for UntilCut {
    fn next(&mut self) -> StoreFuture<'_, Vec<Change>> {
        Box::pin(async {
            tokio::select! {
                changes = self.inner.next() => changes,
                _ = self.cut.wait_for(|cut| *cut) => Err(StoreError::NotDone("no route".into())),
            }
        })
    }
}

/// One who waits to read something.
struct Reads<'a>(&'a AtomicUsize);

impl<'a> Reads<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Reads<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What all nodes have in common.
pub(crate) struct World {
    pub(crate) machine: Arc<Machine>,
    pub(crate) store: Arc<Silent>,
    /// The ways of each node to the store, and of others to it, where they can be cut.
    ways: Option<Mutex<BTreeMap<u16, Arc<Way>>>>,
    authority: Authority,
    dir: tempfile::TempDir,
}

/// A node, on a runtime of its own: it can be killed and frozen as a process can.
pub(crate) struct Member {
    pub(crate) iscsi: Arc<MemoryIscsi>,
    pub(crate) smb: Arc<MemorySmb>,
    pub(crate) addresses: Arc<MemoryAddresses>,
    runtime: Runtime,
    running: Option<Running>,
    ice: Arc<(Mutex<bool>, Condvar)>,
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let machine = Arc::new(Machine::default());
        let disk = |id: &str| FoundDisk { id: id.into(), path: format!("/dev/{id}"), ..FoundDisk::default() };
        *machine.found.lock() = ["a", "b", "c", "d"].map(disk).to_vec();
        let store = Silent::open(&dir.path().join("store"));
        Self { machine, store, ways: None, authority: Authority::new(), dir }
    }

    /// A world in which ways between nodes, and to the store, can be cut.
    pub(crate) fn with_ways() -> Self {
        Self { ways: Some(Mutex::default()), ..Self::new() }
    }

    /// The ways of this node.
    pub(crate) fn way(&self, number: u16) -> Arc<Way> {
        let ways = self.ways.as_ref().expect("a world with ways").lock().expect("a lock");
        ways.get(&number).expect("it was started").clone()
    }

    /// The cluster has these nodes, or has removed them.
    pub(crate) fn enter(&self, nodes: &[(u16, bool)]) {
        let cluster = ClusterName::new("test").expect("a name");
        let step = |(number, removed): &(u16, bool)| {
            let entry = NodeEntry {
                name: format!("n{number}"),
                api: String::new(),
                release: String::new(),
                joined: 0,
                removed: *removed,
                token: String::new(),
                key: String::new(),
            };
            let key = Key::Node(NodeId::new(*number).expect("a number")).path(&cluster);
            Step::Put(key, entry.encode().expect("a value"))
        };
        let steps = nodes.iter().map(step).collect();
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let put = self.store.store.transact(Transaction { steps, ..Transaction::default() });
        runtime.block_on(put).expect("it answers");
    }

    /// What the store is now, for [`World::restore`]. No node runs.
    pub(crate) fn back_up(&self) {
        std::fs::copy(self.dir.path().join("store/state"), self.dir.path().join("backup")).expect("copied");
    }

    /// The store is as it was when it was backed up. No node runs.
    pub(crate) fn restore(&mut self) {
        let restored = self.dir.path().join("restored");
        std::fs::create_dir_all(&restored).expect("made");
        std::fs::copy(self.dir.path().join("backup"), restored.join("state")).expect("copied");
        self.store = Silent::open(&restored);
    }

    /// The cluster knows a node by what it leaves in pools.
    pub(crate) fn know(&self, number: u16) {
        let cluster = ClusterName::new("test").expect("a name");
        let node = NodeId::new(number).expect("a number");
        let key = Key::Known(uuid::Uuid::from_u128(number.into())).path(&cluster);
        let steps = vec![Step::Put(key, Named { node }.encode().expect("a value"))];
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let put = self.store.store.transact(Transaction { steps, ..Transaction::default() });
        runtime.block_on(put).expect("it answers");
    }

    pub(crate) fn data(&self, number: u16) -> PathBuf {
        self.dir.path().join(number.to_string())
    }

    fn membership(&self, number: u16) -> Membership {
        let node = NodeId::new(number).expect("a number");
        let identity = self.authority.issue(&[&node_name(node)]);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let (ca, certificate, key) = (self.authority.pem(), &identity.certificate, &identity.key);
        let tls = LinkTls::new(ca.as_bytes(), certificate.as_bytes(), key.as_bytes()).expect("certificates");
        let cluster = ClusterName::new("test").expect("a name");
        let way = self.ways.as_ref().map(|ways| {
            let way = Arc::new(Way::new(&self.store, &address));
            ways.lock().expect("a lock").insert(number, way.clone());
            way
        });
        let address = way.as_ref().map_or(address, |way| way.address());
        let store: Arc<dyn ClusterStore> = match &way {
            Some(way) => way.store.clone(),
            None => self.store.clone(),
        };
        Membership {
            cluster: cluster.clone(),
            node,
            name: format!("n{number}"),
            listener,
            addresses: vec![address],
            api: free_address(),
            bus: String::new(),
            tls,
            timings: Timings::new(patient()).expect("times"),
            incarnations: Incarnations::open(&self.dir.path().join(format!("lives-{number}")))
                .expect("opened"),
            mode: NodeMode::new(&self.dir.path().join(format!("lives-{number}")), &cluster, node),
            secret: b"known to all nodes".to_vec(),
            runs_etcd: false,
            etcd: None,
            store,
            runtime: None,
        }
    }

    pub(crate) fn start(&self, number: u16) -> Member {
        let runtime =
            Builder::new_multi_thread().worker_threads(THREADS).enable_all().build().expect("a runtime");
        let (iscsi, smb) = (Arc::new(MemoryIscsi::default()), Arc::new(MemorySmb::default()));
        let addresses = Arc::new(MemoryAddresses::default());
        let options = NodeOptions { data_dir: self.data(number), socket: None, shards: None, http: None };
        let (machine, parts, membership) =
            (self.machine.clone(), (iscsi.clone(), smb.clone(), addresses.clone()), self.membership(number));
        let running = runtime.block_on(async move {
            let backends = move |data: &Path, _| {
                let mut backends = machine.backends(data);
                (backends.iscsi, backends.smb, backends.addresses) = parts;
                Ok(backends)
            };
            let clock = Arc::new(SystemClock::new());
            let node = Running::start_member(options, clock, membership, backends).await.expect("starts");
            node.wait_ready().await;
            node
        });
        Member { iscsi, smb, addresses, runtime, running: Some(running), ice: Arc::default() }
    }
}

impl Member {
    fn node(&self) -> &Running {
        self.running.as_ref().expect("it runs")
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        self.runtime.block_on(common::send(self.node(), method, path, body))
    }

    /// Whether a request is done, and the answer.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> (bool, Value) {
        self.runtime.block_on(common::ask(self.node(), method, path, &body.to_string()))
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        self.runtime.block_on(common::get(self.node(), path))
    }

    pub(crate) fn refused(&self, method: &str, path: &str, body: &Value, code: &str) -> String {
        self.runtime.block_on(common::refused(self.node(), method, path, body, code))
    }

    /// Whether it takes part.
    pub(crate) fn takes_part(&self) -> bool {
        self.get("/v1/cluster")["takes_part"] == true
    }

    /// The pool as this node sees it: owner and state.
    pub(crate) fn pool(&self, name: &str) -> (String, String) {
        let cluster = self.get("/v1/cluster");
        let pools = cluster["pools"].as_array().cloned().unwrap_or_default();
        let found = pools.into_iter().find(|pool| pool["name"] == name).unwrap_or_default();
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        (text("owner"), text("state"))
    }

    /// Whether it serves this LUN and this share, both or none.
    pub(crate) fn serves(&self, lun: &str, share: &str) -> bool {
        self.iscsi.served.lock().contains(lun) && self.smb.served.lock().contains_key(share)
    }

    pub(crate) fn stop(mut self) {
        let running = self.running.take().expect("it runs");
        self.runtime.block_on(running.stop()).expect("stops");
    }

    /// As `kill -9` does: nothing of it goes on, and nobody is told.
    pub(crate) fn kill(mut self) {
        std::mem::forget(self.running.take());
        self.runtime.shutdown_background();
    }

    /// As SIGSTOP does, until it is thawed.
    pub(crate) fn freeze(&self) {
        *self.ice.0.lock().expect("a lock") = true;
        for _ in 0..THREADS {
            let ice = self.ice.clone();
            self.runtime.spawn(async move {
                let frozen = ice.0.lock().expect("a lock");
                drop(ice.1.wait_while(frozen, |frozen| *frozen).expect("a lock"));
            });
        }
    }

    pub(crate) fn thaw(&self) {
        *self.ice.0.lock().expect("a lock") = false;
        self.ice.1.notify_all();
    }
}

/// Waits for something that has to come.
#[expect(clippy::disallowed_methods, reason = "a thread of a test")]
pub(crate) fn comes(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LIMIT.as_millis() / PAUSE.as_millis() {
        if is_so() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    panic!("{what} does not come");
}

/// A pool `p` with a volume, a LUN `l` and a share `s`.
pub(crate) fn make(node: &Member) {
    node.send("POST", "/v1/targets", &json!({ "name": "iqn.2026-11.example:t" }));
    node.send("POST", "/v1/pools", &json!({ "name": "p", "disks": ["a", "b"], "confirm": "p" }));
    node.send("POST", "/v1/volumes", &json!({ "name": "v", "pool": "p", "size_bytes": 1 << 30 }));
    let lun = json!({ "name": "l", "volume": "v", "size_bytes": 8192, "map": [{ "everyone": true }] });
    node.send("POST", "/v1/luns", &lun);
    let permissions = json!([{ "who": "Administrators", "right": "full" }]);
    node.send("POST", "/v1/shares", &json!({ "name": "s", "volume": "v", "permissions": permissions }));
}
