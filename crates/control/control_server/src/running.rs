//! A node that runs: data directory, parts, API; started and stopped as one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use control_api::{Code, Problem, SOCKET_NAME};
use shard_runtime::{Clock, SystemClock};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::backend::Backends;
use crate::cluster::part::Part;
use crate::cluster::{Carried, ChangeOver};
use crate::config_store::ConfigStore;
use crate::data_dir::DataDir;
use crate::http::router;
use crate::node::Node;
use crate::socket::{ApiSocket, SocketPeer};

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
    watching: JoinHandle<()>,
    sweeping: JoinHandle<()>,
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
        let parts = |data: &Path, shards: Option<usize>| crate::system::backends(data, shards, clock.clone());
        Self::begin(options, clock.clone(), carried, parts).await
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
        Self::begin(options, clock, &mut None, parts).await
    }

    async fn begin(
        options: NodeOptions,
        clock: Arc<dyn Clock>,
        carried: &mut Option<Carried>,
        parts: impl FnOnce(&Path, Option<usize>) -> Result<Backends, Problem>,
    ) -> Result<Self, Problem> {
        let data = DataDir::open(&options.data_dir)?;
        let part = Part::begin(data.path(), clock.clone(), carried.take().unwrap_or_default())?
            .map(|(part, _)| part);
        let config = ConfigStore::open(data.join("config.toml"))?;
        let path = options.socket.unwrap_or_else(|| data.join(SOCKET_NAME));
        let socket = ApiSocket::bind(&path).await?;
        let configured = config.with(|config| config.node.shards);
        let shards = options.shards.or_else(|| (configured > 0).then_some(usize::from(configured)));
        let backends = parts(data.path(), shards)?;
        let node = Node::with(data, config, clock, backends);
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
            async move { node.open().await }
        });
        let watching = tokio::spawn(node.clone().watch());
        let sweeping = tokio::spawn(node.clone().sweep());
        tracing::info!(socket = %path.display(), "node is running");
        Ok(Self { node, socket: path, stop_api, api, opening, part, watching, sweeping })
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
        // Opening holds the change lock; closing waits for it.
        let _ = self.opening.await;
        let result = self.node.close().await;
        let _ = self.watching.await;
        let _ = self.sweeping.await;
        if let Some(part) = self.part {
            part.stop().await;
        }
        result
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

/// Bytes from the operating system's entropy.
///
/// # Errors
/// When there is none, which on Linux does not happen after boot.
pub fn entropy<const N: usize>() -> Result<[u8; N], Problem> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Problem::new(Code::Io, format!("the system gives no random bytes: {error}")))?;
    Ok(bytes)
}

/// A secret for CHAP: 32 characters, 128 bits.
///
/// # Errors
/// As [`entropy`].
pub fn random_secret() -> Result<String, Problem> {
    Ok(entropy::<16>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}
