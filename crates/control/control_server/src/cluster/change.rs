//! A node changes its place: it stops, what makes it another one is written, and it starts again in the same process.
//!
//! ```text
//!   request ─► prepared while the node serves ─► ordered ─► the node has stopped ─► carried out ─► started again
//!                 (etcd runs, a certificate is there)          (no pool is open)      last of all: identity.toml comes or goes
//! ```
//! Invariants:
//! * While a pool is open nothing that decides about it changes: epochs and votes are taken over after all pools are closed.
//! * The last step is one file that comes or goes. A crash before it leaves the place that was, and what was prepared counts for nothing.
//! * What fails before that is told afterwards ([`ClusterPlace::failed`](control_api::ClusterPlace)), and the node is what it was.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster_identity::{CLUSTER_DIR, ClusterIdentity};
use cluster_join::found;
use cluster_store::keys::ClusterName;
use cluster_store_etcd::EtcdStore;
use control_api::{Code, Config, Problem};
use managed_etcd::EtcdProcess;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::config;
use super::told::told;
use crate::config_store::ConfigStore;
use crate::data_dir::replace_file;
use crate::system;

/// Why the last change was not made; gone when the next one begins.
const FAILED: &str = "failed.txt";
/// The longest reason that is read back.
const MAX_REASON: u64 = 4096;

/// What a node is to become.
pub(crate) enum Place {
    /// The first node of a cluster, whose etcd answers already; the process of it that this node runs.
    First(Box<ClusterIdentity>, EtcdStore, Option<EtcdProcess>),
    /// A further one, which was let in.
    Further(Box<ClusterIdentity>),
    /// One on its own again; the cluster has let it go.
    Alone,
    /// What it was: it has stopped for a change that could not be made, for this reason.
    Same(Box<Problem>),
}

/// A change that is carried out when the node has stopped.
pub struct ChangeOver {
    data: PathBuf,
    to: Place,
    now: u64,
}

/// What the next start goes on with.
#[derive(Default)]
pub struct Carried(pub(crate) Option<EtcdProcess>);

/// Orders of one node to change.
#[derive(Default)]
pub(crate) struct Changing(Mutex<State>, Notify);

#[derive(Default)]
struct State {
    /// Somebody waits, who can stop and start the node.
    waited_for: bool,
    /// A change is being prepared, or ordered.
    busy: bool,
    order: Option<ChangeOver>,
}

/// The right to prepare a change; another one may when this is dropped without an order.
pub(crate) struct Preparing<'a>(&'a Changing, bool);

impl Changing {
    /// Begins to prepare a change.
    ///
    /// # Errors
    /// When there is one already, or nobody would carry it out.
    pub(crate) fn begin(&self) -> Result<Preparing<'_>, Problem> {
        let mut state = self.0.lock();
        if !state.waited_for {
            return Err(Problem::new(
                Code::Unsupported,
                "This node was not started by `holdfast serve`: it cannot join a cluster or leave one.",
            ));
        }
        if std::mem::replace(&mut state.busy, true) {
            return Err(Problem::new(Code::InUse, "This node changes its place in a cluster already.")
                .todo("Ask again in a moment."));
        }
        Ok(Preparing(self, false))
    }

    /// Whether a change is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.0.lock().busy
    }

    /// The next change that is ordered.
    pub(crate) async fn ordered(&self) -> ChangeOver {
        self.0.lock().waited_for = true;
        loop {
            if let Some(order) = self.0.lock().order.take() {
                return order;
            }
            self.1.notified().await;
        }
    }
}

impl Preparing<'_> {
    /// Orders the change. The node stops soon.
    pub(crate) fn order(mut self, data: &Path, to: Place, now: u64) {
        self.1 = true;
        let _ = fs::remove_file(data.join(CLUSTER_DIR).join(FAILED));
        self.0.0.lock().order = Some(ChangeOver { data: data.to_owned(), to, now });
        self.0.1.notify_one();
    }
}

impl Drop for Preparing<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.0.lock().busy = false;
        }
    }
}

impl ChangeOver {
    /// Carries it out. The node has stopped, and is to be started again, whatever comes of this; [`Carried`] goes along.
    ///
    /// # Errors
    /// Why the node is what it was before. It is also kept for who asks the node.
    pub async fn carry_out(self) -> Result<Carried, Problem> {
        let folder = self.data.join(CLUSTER_DIR);
        let result = match self.to {
            Place::First(identity, store, process) => {
                first(&self.data, *identity, &store, process, self.now).await
            }
            Place::Further(identity) => {
                let created = tokio::task::spawn_blocking(move || identity.create(&folder)).await;
                written(created).map(|()| Carried::default())
            }
            Place::Same(problem) => Err(*problem),
            Place::Alone => {
                let data = self.data.clone();
                written(tokio::task::spawn_blocking(move || alone(&data)).await).map(|()| Carried::default())
            }
        };
        if let Err(problem) = &result {
            tracing::error!(%problem, "the node does not change its place");
            let folder = self.data.join(CLUSTER_DIR);
            let text = problem.to_string();
            let kept = crate::data_dir::make_private_dir(&folder)
                .and_then(|()| replace_file(&folder.join(FAILED), text.as_bytes()));
            if let Err(error) = kept {
                tracing::error!(%error, "nobody who asks later is told why");
            }
        }
        result
    }
}

fn written<E: std::fmt::Display>(
    result: Result<Result<(), E>, tokio::task::JoinError>,
) -> Result<(), Problem> {
    let failed = |why: &dyn std::fmt::Display| {
        Problem::new(Code::Io, why.to_string())
            .todo("Make space or repair the file system of the data directory, and try again.")
    };
    result.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
}

/// The first node brings what it kept of its pools.
async fn first(
    data: &Path,
    identity: ClusterIdentity,
    store: &EtcdStore,
    process: Option<EtcdProcess>,
    now: u64,
) -> Result<Carried, Problem> {
    let own = system::own_store(data).await?;
    let alone = ClusterName::new(system::ALONE).ok_or_else(|| Problem::new(Code::Internal, "no name"))?;
    let release = env!("CARGO_PKG_VERSION");
    let cluster = &identity.record.cluster;
    found(store, &identity.record, release, &own, &alone, now).await.map_err(told)?;
    // The name is this node's now. Whoever joins finds a configuration, and never gives its own empty one.
    let (shared, _) = ConfigStore::open(data.join("config.toml"))?.get().split();
    let seen = config::read(store, cluster, None).await?.and_then(|stored| stored.head);
    config::write(store, cluster, seen.as_ref(), &shared).await?;
    let folder = data.join(CLUSTER_DIR);
    written(tokio::task::spawn_blocking(move || identity.create(&folder)).await)?;
    Ok(Carried(process))
}

/// The node keeps its own part of the configuration. The cluster's goes first, before anything says that the node is on its own: it must
/// not take for its own what is the cluster's.
fn alone(data: &Path) -> Result<(), Problem> {
    let io = |error: std::io::Error| Problem::new(Code::Io, format!("{}: {error}.", data.display()));
    let gone = |result: std::io::Result<()>| match result {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io(error)),
        _ => Ok(()),
    };
    let config = ConfigStore::open(data.join("config.toml"))?;
    config.change(|config| {
        let (shared, _) = Config::default().split();
        *config = Config::join(shared, config.clone().split().1);
        Ok(())
    })?;
    // Users are the cluster's; epochs and votes of before the cluster are older than what its disks have.
    for file in ["users.db", "users.key"] {
        gone(fs::remove_file(data.join(file)))?;
    }
    gone(fs::remove_dir_all(data.join(system::STORE)))?;
    let folder = data.join(CLUSTER_DIR);
    ClusterIdentity::remove(&folder).map_err(|error| Problem::new(Code::Io, error.to_string()))?;
    gone(fs::remove_dir_all(folder.join("etcd")))
}

/// Why the last change was not made.
pub(crate) fn failed(data: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let file = fs::File::open(data.join(CLUSTER_DIR).join(FAILED)).ok()?;
    file.take(MAX_REASON).read_to_string(&mut text).ok()?;
    Some(text)
}

/// How long a start waits for what the stop before has left: a request that is still being answered holds the data directory.
pub const START_AGAIN: Duration = Duration::from_secs(10);
