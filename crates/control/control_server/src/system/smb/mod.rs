//! SMB as the node's configuration wants it: the server, its listeners, a file system for each open volume, shares.
//!
//! Putting a configuration into effect touches only what differs from the one before, so that a new share disturbs no
//! session of another.

mod directory;
mod interfaces;
mod listing;
mod pipes;
mod recorded;
mod serve;
mod share_changes;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use control_api::{Code, Config, Demand, Problem, Session, ShareTraffic, SmbConfig, SmbDialect, SmbOpen};
use parking_lot::Mutex;
use shard_runtime::{Clock, SystemEntropy};
use smb_files::FileSystem;
use smb_protocol::security::Sid;
use smb_protocol::{Dialect, Guid};
use smb_server::{ConfigError, Encryption, Parts, Queues, ServerConfig, Signing, SmbServer};
use smb_users::Users;
use tcp_service::Budget;
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::backend::{
    Current, ShardBackend, ShareTotals, SmbAdministration, SmbBackend, SmbInfo, VolumeHandle, WantedShares,
    Work,
};
use crate::data_dir::replace_file;
use crate::system::units::SharedVirtualDisks;
use directory::NodeUsers;
use interfaces::MachineInterfaces;
use pipes::Pipes;
use view::NodeView;

/// An address that is closing is free again within milliseconds; one second is for a busy machine.
const LISTEN_ATTEMPTS: u32 = 25;
const LISTEN_PAUSE: Duration = Duration::from_millis(40);
/// How long is waited, when the service stops, for what is under way at a pool.
const TURNS_WAIT: Duration = Duration::from_secs(10);
/// Longest NetBIOS name.
const NETBIOS_MAX: usize = 15;

/// A share that is served, and what it was made from.
struct Served {
    /// The pool that it lies in.
    pool: Option<Uuid>,
    config: control_api::ShareConfig,
    permissions: Vec<smb_server::SharePermission>,
}

/// A volume whose files clients may have open.
struct ServedVolume {
    /// The pool that it lies in.
    pool: Option<Uuid>,
    handle: Arc<dyn VolumeHandle>,
    files: FileSystem,
}

/// What is in effect.
#[derive(Default)]
struct InEffect {
    server: Option<(SmbConfig, String)>,
    /// The configuration that this is of.
    revision: u64,
    /// By the configured address: where it listens, or why it doesn't.
    listeners: BTreeMap<String, Result<SocketAddr, String>>,
    /// By name.
    volumes: BTreeMap<String, ServedVolume>,
    /// By the upper case of their names.
    shares: BTreeMap<String, Served>,
    /// Shares whose opens are brought back and that nobody is let in to yet, likewise.
    prepared: BTreeMap<String, Served>,
    /// Shares of these whose folder is gone: nobody can connect to one.
    astray: BTreeSet<String>,
}

/// The SMB service of this node.
pub struct Smb {
    server: SmbServer,
    shards: Arc<dyn ShardBackend>,
    clock: Arc<dyn Clock>,
    users: Option<Arc<Users>>,
    interfaces: Arc<MachineInterfaces>,
    guid: Uuid,
    view: Arc<NodeView>,
    in_effect: Arc<Mutex<InEffect>>,
    /// Virtual disks that clients share.
    disks: Arc<SharedVirtualDisks>,
    /// Nothing is served any more.
    stopped: AtomicBool,
    /// For each pool: who puts into effect what is wanted of it.
    turns: Mutex<BTreeMap<Option<Uuid>, Arc<tokio::sync::Mutex<()>>>>,
}

impl Smb {
    /// A service without listeners and shares. Nobody can log in when there are no `users`. Call on the control plane's
    /// runtime: remote procedure calls run on its threads.
    #[must_use]
    pub(super) fn new(
        shards: Arc<dyn ShardBackend>,
        clock: Arc<dyn Clock>,
        users: Option<Arc<Users>>,
        guid: Uuid,
        budget: Budget,
        queues: Arc<dyn Queues>,
        disks: Arc<SharedVirtualDisks>,
    ) -> Self {
        let interfaces = Arc::new(MachineInterfaces::default());
        interfaces.look();
        let in_effect: Arc<Mutex<InEffect>> = Arc::default();
        let runtime = Handle::current();
        let view = NodeView::new(in_effect.clone(), users.clone(), clock.clone(), runtime.clone());
        let view = Arc::new(view);
        let parts = Parts {
            spawner: shards.clone(),
            clock: clock.clone(),
            entropy: Arc::new(SystemEntropy),
            directory: Arc::new(NodeUsers(users.clone())),
            pipes: Arc::new(Pipes::new(view.clone(), runtime)),
            queues,
            disks: disks.clone(),
            interfaces: interfaces.clone(),
            guid: Guid(guid.to_bytes_le()),
            record: view.clone(),
            budget,
        };
        let server = SmbServer::new(ServerConfig::default(), parts);
        view.show(Some(server.clone()));
        Self {
            server,
            shards,
            clock,
            users,
            interfaces,
            guid,
            view,
            in_effect,
            disks,
            stopped: AtomicBool::new(false),
            turns: Mutex::default(),
        }
    }

    /// Puts listeners in effect. An address that was given up a moment ago may still be closing: then it is tried again
    /// for a while, so that who applies a configuration finds it served.
    async fn apply_listeners(&self, wanted: &[String]) {
        for _ in 0..LISTEN_ATTEMPTS {
            if self.try_listeners(wanted) {
                break;
            }
            tokio::time::sleep(LISTEN_PAUSE).await;
        }
        self.interfaces.listeners(self.server.listeners());
    }

    /// Whether all listen.
    fn try_listeners(&self, wanted: &[String]) -> bool {
        let mut now = self.in_effect.lock();
        now.listeners.retain(|address, listening| {
            let keep = wanted.contains(address);
            if !keep && let Ok(address) = listening {
                self.server.close_listener(*address);
            }
            keep
        });
        for address in wanted {
            if matches!(now.listeners.get(address), Some(Ok(_))) {
                continue;
            }
            let listening = match address.parse() {
                Ok(address) => self.server.listen(address).map_err(|error| match error {
                    ConfigError::Listen { source, .. } => format!("it can't be listened on: {source}"),
                    other => other.to_string(),
                }),
                Err(_) => Err("it is not an address".to_owned()),
            };
            now.listeners.insert(address.clone(), listening);
        }
        now.listeners.values().all(Result::is_ok)
    }
}

/// The configured name, or one made from the node's.
pub(super) fn netbios_name(configured: &str, node: &str) -> String {
    let from = if configured.is_empty() { node.split('.').next().unwrap_or_default() } else { configured };
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let name: String = from.chars().map(plain).take(NETBIOS_MAX).collect();
    if name.is_empty() { "HOLDFAST".into() } else { name.to_ascii_uppercase() }
}

fn dialect(dialect: SmbDialect) -> Dialect {
    match dialect {
        SmbDialect::V202 => Dialect::SMB_2_0_2,
        SmbDialect::V210 => Dialect::SMB_2_1,
        SmbDialect::V300 => Dialect::SMB_3_0,
        SmbDialect::V302 => Dialect::SMB_3_0_2,
        SmbDialect::V311 => Dialect::SMB_3_1_1,
    }
}

fn server_config(config: &SmbConfig, name: &str, node: &str) -> ServerConfig {
    ServerConfig {
        name: name.to_owned(),
        domain: config.domain.clone(),
        dns_name: if node.contains('.') { node.to_ascii_lowercase() } else { String::new() },
        signing: match config.signing {
            Demand::Required => Signing::Required,
            Demand::Offered => Signing::Offered,
        },
        encryption: match config.encryption {
            Demand::Required => Encryption::Required,
            Demand::Offered => Encryption::Offered,
        },
        min_dialect: dialect(config.min_dialect),
        max_dialect: dialect(config.max_dialect),
        multichannel: config.multichannel,
        ..ServerConfig::default()
    }
}

/// The server's identity, which clients know it by: made once, kept in the data directory.
///
/// # Errors
/// When it cannot be read or kept.
pub(super) fn identity(data: &Path) -> Result<Uuid, Problem> {
    let path = data.join("smb.guid");
    let wrong = |why: String| Problem::new(Code::Io, format!("{}: {why}", path.display()));
    match std::fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|_| {
            wrong("it holds no GUID".into())
                .todo("Remove it: a new one is made, and clients treat the node as another server.")
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let guid = uuid::Builder::from_random_bytes(crate::entropy()?).into_uuid();
            replace_file(&path, format!("{guid}\n").as_bytes()).map_err(|error| wrong(error.to_string()))?;
            Ok(guid)
        }
        Err(error) => Err(wrong(error.to_string())),
    }
}

impl SmbBackend for Smb {
    fn configure(&self, config: &Current, node: &str) {
        let wanted = (config.config.smb.clone(), netbios_name(&config.config.smb.name, node));
        let mut now = self.in_effect.lock();
        if now.revision > config.revision || now.server.as_ref() == Some(&wanted) {
            return;
        }
        self.server.reconfigure(server_config(&wanted.0, &wanted.1, node));
        self.interfaces.constrain(&wanted.0);
        (now.server, now.revision) = (Some(wanted), config.revision);
    }

    fn listen<'a>(&'a self, config: &'a Config) -> Work<'a, Vec<(String, String)>> {
        Box::pin(async move {
            self.apply_listeners(&config.smb.listen).await;
            let mut trouble = Vec::new();
            for (address, listening) in &self.in_effect.lock().listeners {
                if let Err(why) = listening {
                    trouble.push((format!("SMB address {address}"), why.clone()));
                }
            }
            Ok(trouble)
        })
    }

    fn apply_pool(&self, pool: Option<Uuid>, wanted: WantedShares) -> Work<'_, Vec<(String, String)>> {
        Box::pin(async move {
            let turn = self.turns.lock().entry(pool).or_default().clone();
            let turn = Arc::new(turn.lock_owned().await);
            if self.stopped.load(Ordering::Acquire) {
                return Ok(Vec::new());
            }
            self.close_shares(pool, &wanted);
            self.disks.keep(pool, &wanted.volumes).await;
            let unserved = self.open_volumes(pool, &wanted, &turn).await?;
            if !wanted.admit {
                return Ok(Vec::new());
            }
            self.publish_prepared(pool);
            let mut trouble = self.put_shares(pool, &wanted, &unserved);
            trouble.extend(self.missing_folders(&wanted.shares).await);
            Ok(trouble)
        })
    }

    fn info(&self) -> SmbInfo {
        self.describe()
    }

    fn traffic(&self, share: &str) -> Option<ShareTraffic> {
        if self.in_effect.lock().astray.contains(&serve::key(share)) {
            return None;
        }
        self.server.share_traffic(share).map(listing::traffic)
    }

    fn share_totals(&self, share: &str) -> Option<ShareTotals> {
        let traffic = self.server.share_traffic(share)?;
        Some(ShareTotals { io: traffic.io, metadata: traffic.metadata })
    }

    fn sessions(&self) -> Vec<Session> {
        self.server.sessions().into_iter().map(listing::session).collect()
    }

    fn session_users(&self) -> BTreeSet<Sid> {
        self.server.session_users()
    }

    fn end_session(&self, id: u64) -> bool {
        self.server.close_session(id)
    }

    fn end_sessions_of(&self, user: Sid) -> usize {
        self.server.close_sessions_of(user)
    }

    fn close_opens_of_gone_users(&self) -> usize {
        self.server.close_opens_of_gone_users()
    }

    fn opens(&self) -> Vec<SmbOpen> {
        self.server.opens().into_iter().map(listing::open).collect()
    }

    fn open_counts(&self) -> BTreeMap<String, u64> {
        self.server.open_counts()
    }

    fn close_open(&self, id: u64) -> bool {
        self.server.close_open(id)
    }

    fn administered_by(&self, node: Weak<dyn SmbAdministration>) {
        self.view.administered_by(node);
    }

    fn refresh(&self) {
        self.interfaces.look();
        self.view.note_activity();
    }

    fn connections_to(&self, address: IpAddr) -> Vec<(SocketAddr, SocketAddr)> {
        self.server.connections_to(address)
    }

    fn expect_shares(&self, names: &[String]) {
        self.server.expect_shares(names);
    }

    fn connected(&self) -> Work<'_, ()> {
        Box::pin(async move {
            self.server.connected().await;
            Ok(())
        })
    }

    fn connected_addresses(&self) -> BTreeSet<IpAddr> {
        self.server.connected_addresses()
    }

    fn abandon_connections_to(&self, addresses: &BTreeSet<IpAddr>) {
        self.server.abandon_connections_to(addresses);
    }

    fn stop(&self) -> Work<'_, ()> {
        Box::pin(async move {
            self.stopped.store(true, Ordering::Release);
            let turns: Vec<_> = self.turns.lock().values().cloned().collect();
            // A pool that does not answer is not waited for: what outlives the server is in its volume.
            let taken = turns.into_iter().map(|turn| tokio::time::timeout(TURNS_WAIT, turn.lock_owned()));
            let _turns = futures_util::future::join_all(taken).await;
            self.server.shutdown().await;
            self.disks.stop().await;
            self.view.show(None);
            *self.in_effect.lock() = InEffect::default();
            Ok(())
        })
    }
}
