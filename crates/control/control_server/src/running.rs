//! A node that runs: data directory, parts, API; started and stopped as one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cluster_join::Steward;
use control_api::{Code, Problem, SOCKET_NAME};
use shard_runtime::{Clock, SystemClock};
use tcp_service::Answers;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::backend::Backends;
use crate::cluster::listener::of_members;
use crate::cluster::part::Part;
use crate::cluster::{self, Carried, ChangeOver, Cluster, Membership};
use crate::config_store::ConfigStore;
use crate::data_dir::DataDir;
use crate::http::router;
use crate::network::Members;
use crate::node::Node;
use crate::socket::{ApiSocket, SocketPeer};
use crate::system::Ownership;

/// How long requests under way may take to end when the node stops.
const DRAIN: Duration = Duration::from_secs(5);

/// How to run a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Where it keeps what must survive it.
    pub data_dir: PathBuf,
    /// Where it listens; absent for a socket in the data directory.
    pub socket: Option<PathBuf>,
    /// Threads that serve; absent for what the configuration says, or one per core.
    pub shards: Option<usize>,
    /// Where the API is also served over the network, whatever the configuration says.
    pub http: Option<std::net::SocketAddr>,
}

/// A node that runs. Must be stopped: dropping it leaves pools as a crash would.
pub struct Running {
    node: Arc<Node>,
    socket: PathBuf,
    stop_api: oneshot::Sender<()>,
    api: JoinHandle<std::io::Result<()>>,
    opening: JoinHandle<()>,
    part: Option<Part>,
    /// Where other nodes are answered, of a node on given parts.
    members: Option<Members>,
    leaving: Option<JoinHandle<()>>,
    watching: JoinHandle<()>,
    keeping: JoinHandle<()>,
    expecting: JoinHandle<()>,
    sweeping: JoinHandle<()>,
    remembering: JoinHandle<()>,
    finding: JoinHandle<()>,
    looking: JoinHandle<()>,
    notifying: JoinHandle<()>,
}

impl Running {
    /// Starts a node on this machine's disks. Returns when the API answers; pools open meanwhile.
    ///
    /// # Errors
    /// When the data directory is another node's, or the configuration or socket can't be used.
    pub async fn start(options: NodeOptions) -> Result<Self, Problem> {
        Self::start_again(options, &mut None).await
    }

    /// Starts a node after a change of its place, with what that has carried along, which is taken when the data directory is this node's.
    ///
    /// # Errors
    /// As [`Running::start`].
    pub async fn start_again(options: NodeOptions, carried: &mut Option<Carried>) -> Result<Self, Problem> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let data = DataDir::open(&options.data_dir)?;
        // Its member of etcd runs before anything asks the store.
        let part = Part::begin(data.path(), clock.clone(), carried.take().unwrap_or_default())?;
        let (membership, store) = cluster::load(data.path())?.unzip();
        if let (Some(part), Some(store)) = (&part, store) {
            part.keep(store);
        }
        let bus = membership.as_ref().map(Membership::on_the_bus);
        let parts = |data: &Path, shards: Option<usize>, of: Option<(Ownership, Answers)>| {
            let (ownership, answers) =
                of.map_or_else(|| Ok((crate::system::alone(data)?, Answers::default())), Ok)?;
            crate::system::backends(data, shards, clock.clone(), ownership, answers, bus)
        };
        let mut running = Self::begin(options, data, clock.clone(), membership, parts).await?;
        if let Some(part) = &part {
            running.leaving = Some(tokio::spawn(watch_removal(part.steward().clone(), running.node.clone())));
            if let Some(place) = running.node.place() {
                part.answer_with(router(running.node.clone()), place);
            }
        }
        running.part = part;
        Ok(running)
    }

    /// Starts a node on given parts.
    ///
    /// # Errors
    /// As [`Running::start`], and those of `parts`.
    pub async fn start_with(
        options: NodeOptions,
        clock: Arc<dyn Clock>,
        parts: impl FnOnce(&Path, Option<usize>) -> Result<Backends, Problem>,
    ) -> Result<Self, Problem> {
        let data = DataDir::open(&options.data_dir)?;
        Self::begin(options, data, clock, None, |data, shards, _| parts(data, shards)).await
    }

    /// Starts a node of a cluster on given parts. Which pools are whose, the cluster says, whatever the parts do.
    ///
    /// # Errors
    /// As [`Running::start_with`], and when other nodes cannot reach it.
    pub async fn start_member(
        options: NodeOptions,
        clock: Arc<dyn Clock>,
        membership: Membership,
        parts: impl FnOnce(&Path, Option<usize>) -> Result<Backends, Problem>,
    ) -> Result<Self, Problem> {
        let data = DataDir::open(&options.data_dir)?;
        let parts = |data: &Path, shards: Option<usize>, of: Option<(Ownership, Answers)>| {
            let mut parts = parts(data, shards)?;
            if let Some((owner, _)) = of {
                parts.owner = Arc::new(owner);
            }
            Ok(parts)
        };
        let (at, tls) = (membership.api.parse().ok(), membership.tls.server_config());
        let mut running = Self::begin(options, data, clock, Some(membership), parts).await?;
        if let (Some(at), Some(place)) = (at, running.node.place()) {
            let api = Arc::new(OnceLock::from((router(running.node.clone()), place)));
            running.members = Some(Members::listen_at(at, Ok(tls), of_members(api))?);
        }
        Ok(running)
    }

    async fn begin(
        options: NodeOptions,
        data: DataDir,
        clock: Arc<dyn Clock>,
        membership: Option<Membership>,
        parts: impl FnOnce(&Path, Option<usize>, Option<(Ownership, Answers)>) -> Result<Backends, Problem>,
    ) -> Result<Self, Problem> {
        let place = membership.as_ref().map(Cluster::new);
        let owner = place.as_ref().map(|place| {
            let (store, name, life) = (place.store().clone(), place.name().clone(), place.life());
            let ownership = crate::system::shared(data.path(), store, name, life)?;
            place.is_known_as(ownership.id());
            Ok((ownership, place.answers()))
        });
        let config = ConfigStore::open(data.join("config.toml"))?;
        if let Some(place) = &place {
            let (store, name) = (place.store().clone(), place.name().clone());
            config.share(store, name, place.config_seal(), Handle::current(), place.removal());
            // What was known last is gone on with.
            if let Err(problem) = config.catch_up() {
                tracing::warn!(%problem, "the node begins with the configuration that it knew last");
            }
        }
        let path = options.socket.unwrap_or_else(|| data.join(SOCKET_NAME));
        let socket = ApiSocket::bind(&path).await?;
        let configured = config.with(|config| config.node.shards);
        let shards = options.shards.or_else(|| (configured > 0).then_some(usize::from(configured)));
        let backends = parts(data.path(), shards, owner.transpose()?)?;
        let node = Node::with(data, config, clock, backends);
        let driver = place.clone().map(|place| node.joins(place));
        let (stop_api, stop) = oneshot::channel::<()>();
        let app = router(node.clone());
        node.start_network(app.clone(), options.http)?;
        let api = tokio::spawn(async move {
            let stop = async {
                // Sent, or dropped with the node: both mean the end.
                let _ = stop.await;
            };
            let app = app.into_make_service_with_connect_info::<SocketPeer>();
            axum::serve(socket, app).with_graceful_shutdown(stop).await
        });
        let opening = tokio::spawn({
            let node = node.clone();
            async move {
                node.open().await;
                if let (Some(place), Some(membership), Some(driver)) = (place, membership, driver)
                    && let Err(problem) = place
                        .start(
                            membership,
                            Arc::new(driver),
                            node.clone(),
                            node.clone(),
                            (node.qos_exchange(), node.sight()),
                        )
                        .await
                {
                    tracing::error!(%problem, "the node does not take part in its cluster");
                    if node.place().is_some_and(|place| place.is_removed()) {
                        node.is_removed_now();
                    }
                }
            }
        });
        if kept_listeners::is_kept() {
            let node = node.clone();
            tokio::spawn(async move {
                node.wait_ready().await;
                // It blocks for as long as an answer of the supervisor takes.
                let _ = tokio::task::spawn_blocking(kept_listeners::settled).await;
            });
        }
        let watching = tokio::spawn(node.clone().watch());
        let keeping = tokio::spawn(node.clone().keep_addresses());
        let expecting = tokio::spawn(node.clone().keep_expected_shares());
        let sweeping = tokio::spawn(node.clone().sweep());
        let remembering = tokio::spawn(node.clone().remember());
        let finding = tokio::spawn(node.clone().watch_findings());
        let looking = tokio::spawn(node.clone().watch_disks());
        let notifying = tokio::spawn(node.clone().notify());
        tracing::info!(socket = %path.display(), "node is running");
        Ok(Self {
            node,
            socket: path,
            stop_api,
            api,
            opening,
            part: None,
            members: None,
            leaving: None,
            watching,
            keeping,
            expecting,
            sweeping,
            remembering,
            finding,
            looking,
            notifying,
        })
    }

    /// Where the API answers.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Where the API is served over the network, as it was asked for and as it is; `None` where it could not be had.
    #[must_use]
    pub fn http(&self) -> Vec<(String, Option<String>)> {
        let listeners = self.node.http_show().listeners.into_iter();
        listeners.map(|listener| (listener.address, listener.listening)).collect()
    }

    /// Ends when all that opens at start is open.
    pub async fn wait_ready(&self) {
        self.node.wait_ready().await;
    }

    /// Ends when the node is to become another one: it has to be stopped then, the change carried out, and the node started again. Whoever waits for
    /// this says that it will do so.
    pub async fn change_ordered(&self) -> ChangeOver {
        self.node.changing().ordered().await
    }

    /// Stops cleanly: API, targets, volumes, pools.
    ///
    /// # Errors
    /// What could not be closed cleanly.
    pub async fn stop(self) -> Result<(), Problem> {
        // Streams of events would never end by themselves.
        self.node.events().close();
        let _ = self.stop_api.send(());
        self.node.stop_network().await;
        let mut api = self.api;
        if tokio::time::timeout(DRAIN, &mut api).await.is_err() {
            tracing::info!("requests under way were cut off");
            api.abort();
        }
        if let Some(members) = self.members {
            members.stop().await;
        }
        // Opening holds the change lock; closing waits for it.
        let _ = self.opening.await;
        if let Some(leaving) = self.leaving {
            leaving.abort();
            let _ = leaving.await;
        }
        self.node.leave_service().await;
        let result = self.node.close().await;
        let _ = self.watching.await;
        let _ = self.keeping.await;
        let _ = self.expecting.await;
        let _ = self.sweeping.await;
        let _ = self.remembering.await;
        let _ = self.finding.await;
        let _ = self.looking.await;
        let _ = self.notifying.await;
        if let Some(part) = self.part {
            part.stop().await;
        }
        result
    }
}

/// Lets a node that the cluster has removed take part no more.
async fn watch_removal(steward: Arc<Steward>, node: Arc<Node>) {
    steward.removed().await;
    tracing::error!(problem = %cluster::removed(), "this node takes part in its cluster no more");
    node.is_removed_now();
    node.leave_service().await;
    if let Err(error) = steward.withdraw().await {
        tracing::warn!(%error, "this node is in the list of members still");
    }
}

/// SIGTERM and Ctrl-C, noticed from the moment this is made.
pub struct Signals(std::sync::Mutex<(Signal, Signal)>);

impl Signals {
    /// Starts to notice.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new() -> Result<Self, Problem> {
        let failed = |error| Problem::new(Code::Io, format!("signals can't be handled: {error}"));
        let terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        Ok(Self(std::sync::Mutex::new((terminate, interrupt))))
    }

    /// Ends at the next signal, with its name.
    pub async fn wait(&self) -> &'static str {
        std::future::poll_fn(|context| {
            let mut signals = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if signals.0.poll_recv(context).is_ready() {
                std::task::Poll::Ready("SIGTERM")
            } else if signals.1.poll_recv(context).is_ready() {
                std::task::Poll::Ready("SIGINT")
            } else {
                std::task::Poll::Pending
            }
        })
        .await
    }
}

/// Tells the service manager how the node is, where there is one (`NOTIFY_SOCKET`, sd_notify(3)).
pub fn notify_supervisor(state: &str) {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(%error, "the service manager can't be told");
    }
}
