//! Orders to a node to change its place, prepared while it serves and carried out when it has stopped.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster_identity::{CLUSTER_DIR, ClusterIdentity};
use cluster_store_etcd::EtcdStore;
use control_api::{Code, Problem};
use managed_etcd::EtcdProcess;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Why the last change was not made; gone when the next one begins.
const FAILED: &str = "failed.txt";
/// The longest reason that is read back.
const MAX_REASON: u64 = 4096;

/// How long a start waits for what the stop before has left: a request that is still being answered holds the data directory.
pub const START_AGAIN: Duration = Duration::from_secs(10);

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
    pub(super) data: PathBuf,
    pub(super) to: Place,
    pub(super) now: u64,
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

/// Why the last change was not made.
pub(crate) fn failed(data: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let file = fs::File::open(data.join(CLUSTER_DIR).join(FAILED)).ok()?;
    file.take(MAX_REASON).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Keeps why a change was not made, for who asks the node later.
pub(super) fn keep_failed(data: &Path, problem: &Problem) {
    let folder = data.join(CLUSTER_DIR);
    let kept = crate::data_dir::make_private_dir(&folder)
        .and_then(|()| crate::data_dir::replace_file(&folder.join(FAILED), problem.to_string().as_bytes()));
    if let Err(error) = kept {
        tracing::error!(%error, "nobody who asks later is told why");
    }
}
