//! The node: what is known, and one change at a time.

mod access;
mod accounts;
mod addresses;
mod all_sessions;
mod apply;
mod background;
mod balance;
mod cache;
mod cached_writes;
mod calendar;
mod chap;
mod claimants;
mod clustered;
mod counters;
mod disk_table;
mod disks;
pub(crate) mod elsewhere;
mod expected;
mod files;
mod findings;
mod findings_kept;
mod forecast;
mod fullness;
mod held_addresses;
mod history;
mod iscsi;
mod known;
mod lent_members;
mod log_homes;
mod log_places;
mod lun_images;
mod lun_paths;
mod lun_sizes;
mod luns;
mod mapping;
mod moves;
mod namesakes;
mod network_disks;
mod news;
mod node_disks;
mod node_mode;
mod notifiers;
mod path;
mod placing;
mod pool_disks;
mod pool_export;
mod pool_forget;
mod pool_list;
mod pool_load;
mod pool_move;
mod pool_summary;
mod pool_upkeep;
mod pools;
mod pools_away;
mod processors;
mod qos;
mod qos_subjects;
mod qos_totals;
mod qos_volumes;
mod quiet;
mod quotas;
mod record;
mod replacement;
mod restarts;
mod retirements;
mod schedules;
mod selection;
mod serve;
mod sessions_elsewhere;
mod share_permissions;
mod shares;
mod shares_remote;
mod sight;
mod silent_disks;
mod slots;
mod smb;
mod snapshots;
mod status;
mod status_kept;
mod stopped;
mod ties;
pub(crate) use status::report;
mod user_groups;
mod volume_check;
mod volume_names;
mod volume_rename;
mod volumes;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use control_api::{Code, Config, Job, Problem, with_article};
use parking_lot::Mutex;
use shard_runtime::{Clock, Monotonic};
use tokio::sync::watch as signal;
use uuid::Uuid;

use crate::access::Access;
use crate::audit::Audit;
use crate::backend::{Backends, OpenTold, on_shard};
use crate::cluster::Cluster;
use crate::cluster::order::Changing;
use crate::config_store::ConfigStore;
use crate::data_dir::DataDir;
use crate::events::Events;
use crate::forecast::Forecasts;
use crate::jobs::Jobs;
use crate::network::{Limits, Network};
use crate::notify::Notifications;
use crate::past::Past;
pub(crate) use chap::bound_to;
pub(crate) use counters::operations;
use disk_table::DiskTable;
pub(crate) use path::driver::NodeDriver;
use slots::{PoolSlot, VolumeSlot};

pub(crate) use crate::files::PutMode;

/// The node.
pub struct Node {
    data: DataDir,
    config: ConfigStore,
    clock: Arc<dyn Clock>,
    started: Monotonic,
    backends: Backends,
    disks: DiskTable,
    pools: Mutex<BTreeMap<Uuid, PoolSlot>>,
    volumes: Mutex<BTreeMap<String, VolumeSlot>>,
    /// The paths of pools, of all that this process has had.
    paths: Mutex<BTreeMap<Uuid, Arc<path::Path>>>,
    /// What stands for the path where it is not known in which pool something lies.
    nowhere: Arc<path::Path>,
    /// Held by whoever makes what is the node's own equal to the configuration.
    nowhere_but_node: tokio::sync::Mutex<()>,
    /// Pools are brought up and stopped by orders.
    driven: AtomicBool,
    /// What the next opening of a pool by order is told.
    told: Mutex<BTreeMap<Uuid, OpenTold>>,
    /// Disks that are to be lent to the cluster when their pool is opened the next time.
    to_lend: Mutex<BTreeMap<Uuid, Vec<lent_members::Renamed>>>,
    /// Held by whoever has a pool closed and opened again for that. Taken before any pool's turn and before `taking`.
    lending: tokio::sync::Mutex<()>,
    /// Pools whose disks know a higher epoch than that in which they were to be opened by order.
    surpassed: Mutex<BTreeMap<Uuid, u64>>,
    /// Of open pools, those of their volumes whose names volumes of other pools of the cluster have, with these pools.
    names_elsewhere: Mutex<BTreeMap<Uuid, BTreeMap<String, Uuid>>>,
    /// What it is in its cluster; nothing on a node of its own.
    cluster: OnceLock<Arc<Cluster>>,
    /// The process uses volumes itself, and clients do not.
    serves_nothing: AtomicBool,
    /// What iSCSI and SMB could not put into effect.
    unserved: Mutex<serve::Unserved>,
    /// Why returned disks of pools can't be used, by disk: said once.
    unusable: Mutex<BTreeMap<String, String>>,
    retirements: retirements::Retirements,
    restarts: restarts::Restarts,
    /// When volumes without space for their metadata were opened again, as there may be some.
    full_restarts: restarts::Restarts,
    logs: log_places::LogPlaces,
    jobs: Jobs,
    access: Access,
    audit: Audit,
    network: Network,
    events: Events,
    past: Past,
    qos_totals: Mutex<qos_totals::QosTotals>,
    /// What pools had done in the background a few seconds ago.
    background: Mutex<background::Watch>,
    forecasts: Forecasts,
    findings: findings_kept::Findings,
    /// Which nodes had pools of the cluster last that none serves now, and since when.
    unserved_pools: Mutex<health_rules::UnservedWatch>,
    /// Since when links to other nodes are broken.
    broken_links: Mutex<health_rules::LinkWatch>,
    /// What it said last of itself, for when it takes long to say it again.
    last_status: status_kept::Last,
    pub(crate) notifications: Notifications,
    changing: Changing,
    addresses: held_addresses::Addresses,
    sights: sight::Sights,
    pool_loads: pool_load::PoolLoads,
    quiet: quiet::Quiet,
    moved: quiet::Moved,
    /// Held by whoever moves pools that nobody has asked to.
    balancing: tokio::sync::Mutex<()>,
    /// Names of LUNs whose files are being made.
    making: Mutex<BTreeSet<String>>,
    /// Names of volumes that are being made or destroyed.
    changing_volumes: Mutex<BTreeSet<String>>,
    /// Held by whoever changes the configuration, from looking to writing; by the start of the node until it has begun.
    changes: tokio::sync::Mutex<()>,
    /// Held by whoever takes disks for pools: nobody else takes the same. It comes after turns.
    taking: tokio::sync::Mutex<()>,
    /// Held by whoever looks which disks there are.
    looking: tokio::sync::Mutex<()>,
    me: Weak<Self>,
    ready: signal::Sender<bool>,
    stopping: signal::Sender<bool>,
}

impl Node {
    /// A node over an owned data directory. Nothing is opened yet.
    ///
    /// # Errors
    /// When the configuration can't be read.
    pub fn new(data: DataDir, clock: Arc<dyn Clock>, backends: Backends) -> Result<Arc<Self>, Problem> {
        let config = ConfigStore::open(data.join("config.toml"))?;
        Ok(Self::with(data, config, clock, backends))
    }

    /// The same with a configuration that was read before (it says how many shards there are).
    #[must_use]
    pub fn with(data: DataDir, config: ConfigStore, clock: Arc<dyn Clock>, backends: Backends) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            retirements: retirements::Retirements::open(data.join("retirements.json")),
            restarts: restarts::Restarts::default(),
            full_restarts: restarts::Restarts::default(),
            logs: log_places::LogPlaces::open(data.join("logs.json")),
            access: Access::open(data.join("tokens.json"), clock.clone()),
            events: Events::default(),
            changing: Changing::default(),
            addresses: held_addresses::Addresses::default(),
            sights: sight::Sights::default(),
            pool_loads: pool_load::PoolLoads::default(),
            quiet: quiet::Quiet::default(),
            moved: quiet::Moved::default(),
            balancing: tokio::sync::Mutex::new(()),
            audit: Audit::new(data.join("audit.jsonl")),
            past: Past::open(&data),
            qos_totals: Mutex::default(),
            background: Mutex::default(),
            forecasts: Forecasts::default(),
            findings: findings_kept::Findings::open(data.join("findings.book")),
            unserved_pools: Mutex::default(),
            broken_links: Mutex::default(),
            last_status: status_kept::Last::default(),
            notifications: Notifications::open(data.join("notifiers.json")),
            network: Network::new(&data.join("tls"), Limits::default()),
            data,
            config,
            started: clock.now(),
            clock,
            backends,
            disks: DiskTable::default(),
            pools: Mutex::default(),
            volumes: Mutex::default(),
            paths: Mutex::default(),
            nowhere: Arc::default(),
            nowhere_but_node: tokio::sync::Mutex::new(()),
            driven: AtomicBool::new(false),
            told: Mutex::default(),
            to_lend: Mutex::default(),
            lending: tokio::sync::Mutex::new(()),
            surpassed: Mutex::default(),
            names_elsewhere: Mutex::default(),
            cluster: OnceLock::new(),
            serves_nothing: AtomicBool::new(false),
            unserved: Mutex::default(),
            unusable: Mutex::default(),
            jobs: Jobs::default(),
            making: Mutex::default(),
            changing_volumes: Mutex::default(),
            changes: tokio::sync::Mutex::new(()),
            taking: tokio::sync::Mutex::new(()),
            looking: tokio::sync::Mutex::new(()),
            ready: signal::Sender::new(false),
            stopping: signal::Sender::new(false),
        })
    }

    /// This node, for a task of its own; none when it is gone.
    fn arc(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    /// Opens everything: disks, pools and volumes in parallel, then targets.
    /// Ends when all that can be opened is, and what does not answer is not waited for any more; the API serves meanwhile.
    pub async fn open(self: &Arc<Self>) {
        let node: Weak<Self> = Arc::downgrade(self);
        self.backends.smb.administered_by(node);
        let _changing = self.changes.lock().await;
        self.open_disks().await;
        self.open_pools(None).await;
        // Portals last: an initiator that is refused tries again, one whose disk is offline fails its I/O.
        self.reconcile().await;
        self.ready.send_replace(true);
    }

    /// Opens disks, pools and volumes, and serves nothing: for a process that uses the volumes itself.
    pub(crate) async fn open_storage(&self) {
        let _changing = self.changes.lock().await;
        self.serves_nothing.store(true, Ordering::Release);
        self.open_disks().await;
        self.open_pools(None).await;
        self.apply_caches(&self.config.get());
        self.ready.send_replace(true);
    }

    /// A way to the shards.
    pub(crate) fn spawner(&self) -> &dyn crate::backend::ShardBackend {
        &*self.backends.shards
    }

    /// Orders to become another node, in a cluster or on its own.
    pub(crate) fn changing(&self) -> &Changing {
        &self.changing
    }

    /// Where it keeps what must survive it.
    pub(crate) fn data_dir(&self) -> &std::path::Path {
        self.data.path()
    }

    /// Whether it has users of its own.
    pub(crate) fn has_users(&self) -> bool {
        self.backends.users.as_ref().is_ok_and(|users| users.snapshot().users().next().is_some())
    }

    /// Whether there is a volume of this name, open or not.
    pub(crate) fn has_volume(&self, name: &str) -> bool {
        self.volumes.lock().contains_key(name)
    }

    /// Ends when [`Node::open`] has.
    pub async fn wait_ready(&self) {
        // The sender lives as long as the node.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Stops cleanly: no new commands, then volumes, then pools, so that each finds its lower part still there.
    ///
    /// # Errors
    /// What could not be closed cleanly; it recovers at the next start as after a crash.
    pub async fn close(&self) -> Result<(), Problem> {
        self.stopping.send_replace(true);
        let _changing = self.changes.lock().await;
        // What is begun comes to its end, if it does.
        let _taking = tokio::time::timeout(path::PATIENCE, self.taking.lock()).await;
        let mut failed = Vec::new();
        let mut note = |what: &str, result: Result<(), Problem>| {
            if let Err(problem) = result {
                failed.push(format!("{what}: {}", problem.detail));
            }
        };
        // Who serves lets go of files before their volumes close.
        note("iSCSI", self.backends.iscsi.stop().await);
        note("SMB", self.backends.smb.stop().await);
        for (what, result) in self.close_pools().await {
            note(&what, result);
        }
        self.disks.close_all();
        note("disks that are lent", self.backends.disks.stop_lending().await);
        note("shards", self.backends.shards.stop().await);
        if failed.is_empty() {
            Ok(())
        } else {
            Err(Problem::new(Code::Io, format!("not closed cleanly: {}", failed.join("; ")))
                .todo("The next start recovers it as after a crash."))
        }
    }

    /// Ends when the node is told to stop.
    pub(crate) async fn stopped(&self) {
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    /// Runs work on a shard and brings its result back.
    async fn on_shard<T, F, R>(&self, shard: usize, work: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
        R: Future<Output = Result<T, Problem>> + 'static,
    {
        on_shard(&*self.backends.shards, shard, work).await
    }

    /// Now, in milliseconds since the node started, and in seconds since 1970.
    fn times(&self) -> (u64, u64) {
        let now = self.clock.now().since(self.started);
        (now.as_millis() as u64, self.clock.wall().0 / 1_000_000_000)
    }

    /// The configuration, whole or without secrets. Permissions are by SIDs in it, as they are kept: a copy that is applied later gives nothing
    /// to another user of a name.
    pub fn config_show(&self, redact: bool) -> Config {
        let config = self.config.get();
        if redact { config.redacted() } else { config }
    }

    /// Jobs.
    pub async fn job_list(&self) -> Result<Vec<Job>, Problem> {
        Ok(self.jobs.list())
    }

    /// A job.
    pub fn job_show(&self, id: u64) -> Result<Job, Problem> {
        self.jobs.get(id).ok_or_else(|| missing("job", &id.to_string(), "holdfast job list"))
    }
}

/// There is no such thing.
fn missing(what: &str, name: &str, list: &str) -> Problem {
    Problem::new(Code::NotFound, format!("There is no {what} {name}."))
        .todo(format!("`{list}` shows what there is."))
}

/// The name is taken.
fn taken(what: &str, name: &str) -> Problem {
    Problem::new(Code::AlreadyExists, format!("There is {} {name} already.", with_article(what)))
        .todo("Choose another name.")
}

/// How long a list waits for a volume that is looked into.
const LOOKS_WITHIN: Duration = Duration::from_secs(5);
/// So many volumes and LUNs are looked into at once for a list.
const LOOKED_AT_ONCE: usize = 64;

/// What a volume says of itself, or that it does not answer.
async fn within_patience<T>(
    volume: &str,
    looking: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    let looked = tokio::time::timeout(LOOKS_WITHIN, looking).await;
    looked.unwrap_or_else(|_| {
        Err(Problem::new(Code::Unavailable, format!("volume {volume} does not answer"))
            .todo("`holdfast status` says which disks its pool waits for."))
    })
}

/// Runs a change that nobody may leave half done, though whoever asked for it goes away.
async fn to_its_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Result<T, Problem> {
    let ended = tokio::spawn(change).await;
    ended.unwrap_or_else(|error| Err(Problem::new(Code::Internal, format!("the change has failed: {error}"))))
}

/// Asks for confirmation unless `confirm` repeats `name`.
pub(crate) fn confirm(
    name: &str,
    confirm: Option<&str>,
    destroys: impl FnOnce() -> Vec<String>,
) -> Result<(), Problem> {
    match confirm {
        Some(given) if given == name => Ok(()),
        Some(given) => Err(Problem::new(
            Code::InvalidRequest,
            format!("The confirmation names {given:?}, but this is about {name:?}."),
        )
        .todo("Nothing was done.")),
        None => Err(Problem::confirmation(name, destroys())),
    }
}
