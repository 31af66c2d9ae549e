//! Opens as the protocol knows them: identifiers, who holds them, how they outlive a connection.
//!
//! ```text
//!   Session ─ volatile id ─► Open ─► smb_files::Open (share modes, caching, locks)   or a pipe
//!   Opens ── persistent id ──┘ └─ Link: breaks find their way to the session's connections
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use shard_runtime::Entropy;
use smb_files::{Durability, Holder, LeaseBreak, OpenId};
use smb_protocol::access::OplockLevel;
use smb_protocol::file::FileId;
use smb_protocol::oplock::{BreakNotification, LeaseBreakFlags, LeaseBreakNotification, OplockBreak};
use smb_protocol::security::sid::Sid;
use smb_protocol::{Guid, NtStatus};

use crate::limits::MAX_OPENS;
use crate::peer::Mail;
use crate::persistence;
use crate::pipe::Pipe;
use crate::replay::Sequence;
use crate::server::{ShardJob, Spawner};
use crate::session::Session;
use crate::tree::Tree;

/// What is open.
pub(crate) enum Thing {
    File(Arc<smb_files::Open>),
    Pipe(Arc<dyn Pipe>),
}

/// How an open outlives its connection (MS-SMB2 3.3.1.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// Not at all.
    #[default]
    No,
    /// DHnQ.
    V1,
    /// DH2Q.
    V2 { persistent: bool },
    /// FSCTL_LMR_REQUEST_RESILIENCY.
    Resilient,
}

/// What of an open changes.
#[derive(Clone, Default)]
pub(crate) struct State {
    pub(crate) lasting: Lasting,
    /// How long it waits for its client.
    pub(crate) timeout: Duration,
    /// Rises with each disconnection and reconnection: a timer of an earlier one finds another number.
    pub(crate) generation: u64,
    /// Requests on other channels that must not be done twice.
    pub(crate) sequence: Sequence,
}

/// An open.
pub(crate) struct Open {
    pub(crate) id: FileId,
    pub(crate) tree: Arc<Tree>,
    pub(crate) thing: Thing,
    pub(crate) client: Guid,
    pub(crate) user: Sid,
    /// DH2Q's name for it; zero without one.
    pub(crate) create_guid: Guid,
    /// The virtual machine (or other application) that it belongs to; zero for none.
    pub(crate) app_instance: Guid,
    pub(crate) link: Arc<Link>,
    pub(crate) state: Mutex<State>,
    /// What is on stable storage of it (`persistence`).
    pub(crate) row: tokio::sync::Mutex<Option<Vec<u8>>>,
}

impl Open {
    /// The file, or why there is none: pipes know no more than reading and writing.
    pub(crate) fn file(&self) -> Result<&Arc<smb_files::Open>, NtStatus> {
        match &self.thing {
            Thing::File(file) => Ok(file),
            Thing::Pipe(_) => Err(NtStatus::INVALID_DEVICE_REQUEST),
        }
    }

    /// Whether it would stay if its connection were lost now.
    pub(crate) fn lasts(&self) -> bool {
        self.state.lock().lasting != Lasting::No
    }

    /// Takes it out of its session.
    pub(crate) fn forget(&self) {
        if let Some(session) = self.link.session.read().upgrade() {
            session.remove_open(self.id.volatile);
        }
    }

    /// The session that it belongs to; `None` while it waits for its client.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.link.session.read().upgrade()
    }

    /// Closes what is open.
    async fn close(&self) {
        if let Thing::File(file) = &self.thing {
            // Closed before means closed.
            let _ = file.close(false).await;
            if let Err(status) = persistence::forget(self).await {
                tracing::error!(path = file.path(), %status, "a persistent open is closed, but not forgotten: it comes back after a restart");
            }
        }
    }
}

/// The way from a file to its client.
pub(crate) struct Link {
    pub(crate) id: FileId,
    session: RwLock<Weak<Session>>,
    opens: RwLock<Weak<Table>>,
}

impl Link {
    /// Of an open that came back after a restart: it leads nowhere yet.
    pub(crate) fn detached(id: FileId) -> Arc<Self> {
        Arc::new(Self { id, session: RwLock::default(), opens: RwLock::default() })
    }

    fn tell(&self, notification: BreakNotification) {
        let Some(session) = self.session.read().upgrade() else { return };
        if !session.tell_one(Mail::Break { session: session.id, notification }) {
            tracing::debug!(session = session.id, "a break reaches nobody: its client is gone");
        }
    }
}

impl Holder for Link {
    fn break_oplock(&self, _: OpenId, to: OplockLevel) {
        self.tell(BreakNotification::Oplock(OplockBreak { level: to, file_id: self.id }));
    }

    fn break_lease(&self, _: OpenId, change: LeaseBreak) {
        let flags = if change.ack_required { LeaseBreakFlags::ACK_REQUIRED } else { LeaseBreakFlags::NONE };
        self.tell(BreakNotification::Lease(LeaseBreakNotification {
            new_epoch: change.epoch,
            flags,
            key: change.key,
            current: change.current,
            new: change.new,
        }));
    }

    fn closed(&self, _: OpenId) {
        if let Some(session) = self.session.read().upgrade() {
            session.remove_open(self.id.volatile);
        }
        let Some(opens) = self.opens.read().upgrade() else { return };
        let Some(open) = opens.by_persistent.lock().remove(&self.id.persistent) else { return };
        opens.run(Box::new(move || {
            Box::pin(async move {
                let _ = persistence::forget(&open).await;
            })
        }));
    }

    fn record_changed(&self, _: OpenId) {
        let Some(opens) = self.opens.read().upgrade() else { return };
        let found = opens.by_persistent.lock().get(&self.id.persistent).cloned();
        if let Some(open) = found.filter(|open| open.lasts()) {
            opens.run(Box::new(move || {
                Box::pin(async move {
                    // Logged where it failed; what is stored promises more caching, which a reconnection corrects.
                    let _ = persistence::save(&open).await;
                })
            }));
        }
    }
}

/// All opens, by the part of their identifiers that a reconnect names.
pub(crate) struct Table {
    by_persistent: Mutex<BTreeMap<u64, Arc<Open>>>,
    /// CREATEs under way that have a name of the client's.
    creating: Mutex<BTreeSet<(Guid, Guid)>>,
    spawner: Arc<dyn Spawner>,
    next_shard: AtomicUsize,
}

impl Table {
    /// Runs what nobody waits for on some shard.
    fn run(&self, job: ShardJob) {
        let shard = self.next_shard.fetch_add(1, Ordering::Relaxed) % self.spawner.shards().max(1);
        self.spawner.spawn(shard, job);
    }
}

/// The table, and who gives identifiers.
pub(crate) struct Opens {
    table: Arc<Table>,
    entropy: Arc<dyn Entropy>,
}

impl Opens {
    pub(crate) fn new(entropy: Arc<dyn Entropy>, spawner: Arc<dyn Spawner>) -> Self {
        let (by_persistent, next_shard) = (Mutex::default(), AtomicUsize::new(0));
        let creating = Mutex::default();
        Self { table: Arc::new(Table { by_persistent, creating, spawner, next_shard }), entropy }
    }

    /// An identifier that no other open has, and nobody guesses.
    pub(crate) fn new_id(&self) -> FileId {
        let table = self.table.by_persistent.lock();
        loop {
            let id = FileId { persistent: self.entropy.next_u64(), volatile: self.entropy.next_u64() };
            let plain = |part: u64| part != 0 && part != u64::MAX;
            if plain(id.persistent) && plain(id.volatile) && !table.contains_key(&id.persistent) {
                return id;
            }
        }
    }

    /// The way from a file, yet to be opened, to a session.
    pub(crate) fn link(&self, id: FileId, session: &Arc<Session>) -> Arc<Link> {
        let session = RwLock::new(Arc::downgrade(session));
        Arc::new(Link { id, session, opens: RwLock::new(Arc::downgrade(&self.table)) })
    }

    /// Puts an open in.
    pub(crate) fn add(&self, open: &Arc<Open>) -> Result<(), NtStatus> {
        let mut table = self.table.by_persistent.lock();
        if table.len() >= MAX_OPENS {
            return Err(NtStatus::TOO_MANY_OPENED_FILES);
        }
        table.insert(open.id.persistent, Arc::clone(open));
        Ok(())
    }

    pub(crate) fn remove(&self, open: &Open) {
        self.table.by_persistent.lock().remove(&open.id.persistent);
    }

    /// By the part of the identifier that outlives connections.
    pub(crate) fn find(&self, persistent: u64) -> Option<Arc<Open>> {
        self.table.by_persistent.lock().get(&persistent).cloned()
    }

    /// By the client's own name for it.
    pub(crate) fn find_guid(&self, client: Guid, create_guid: Guid) -> Option<Arc<Open>> {
        let table = self.table.by_persistent.lock();
        table.values().find(|open| open.create_guid == create_guid && open.client == client).cloned()
    }

    /// Begins a CREATE with the client's name for it; `None` when one is under way already.
    pub(crate) fn begin_create(&self, client: Guid, create_guid: Guid) -> Option<Creating> {
        let name = (client, create_guid);
        let fresh = self.table.creating.lock().insert(name);
        fresh.then(|| Creating { table: Arc::clone(&self.table), name })
    }

    /// Opens of an application that came over another client.
    pub(crate) fn of_app(&self, app: Guid, other_than: Guid) -> Vec<Arc<Open>> {
        let table = self.table.by_persistent.lock();
        let same = |open: &&Arc<Open>| open.app_instance == app && open.client != other_than;
        table.values().filter(same).cloned().collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Open>> {
        self.table.by_persistent.lock().values().cloned().collect()
    }

    /// An open that is no session's any more: with `keep` it waits for its client if it lasts, else it is closed.
    pub(crate) fn leave(&self, open: &Arc<Open>, keep: bool) {
        if keep && open.lasts() && self.disconnect(open) {
            return;
        }
        self.remove(open);
        let open = Arc::clone(open);
        self.table.run(Box::new(move || Box::pin(async move { open.close().await })));
    }

    /// Lets it wait for its client; `false` when it must not.
    fn disconnect(&self, open: &Arc<Open>) -> bool {
        let Thing::File(file) = &open.thing else { return false };
        *open.link.session.write() = Weak::new();
        file.detach();
        if file.is_closed() {
            return false;
        }
        self.wait_for_client(open);
        true
    }

    /// Puts in what came back after a restart; it waits for its client.
    pub(crate) fn restore(&self, open: Open) {
        let open = Arc::new(open);
        *open.link.opens.write() = Arc::downgrade(&self.table);
        self.table.by_persistent.lock().insert(open.id.persistent, Arc::clone(&open));
        self.wait_for_client(&open);
    }

    /// Gives it up when its client does not come in time.
    fn wait_for_client(&self, open: &Arc<Open>) {
        let (generation, timeout) = {
            let mut state = open.state.lock();
            state.generation += 1;
            (state.generation, state.timeout)
        };
        let (table, open) = (Arc::clone(&self.table), Arc::clone(open));
        self.table.run(Box::new(move || {
            Box::pin(async move {
                shard_runtime::sleep(timeout).await;
                {
                    // Under the lock of the table, as a reconnection takes it there.
                    let mut table = table.by_persistent.lock();
                    if open.state.lock().generation != generation {
                        return;
                    }
                    table.remove(&open.id.persistent);
                }
                tracing::debug!(persistent = open.id.persistent, "an open without a client is given up");
                open.close().await;
            })
        }));
    }

    /// Gives a waiting open to a session, over a tree connect of it; `None` when it waits no more.
    pub(crate) fn reconnect(
        &self,
        open: &Arc<Open>,
        session: &Arc<Session>,
        tree: &Arc<Tree>,
    ) -> Option<Arc<Open>> {
        let Thing::File(file) = &open.thing else { return None };
        // Nobody writes the row of an open that waits, but for a break that has just taken effect.
        let saved = open.row.try_lock().ok()?.clone();
        let mut table = self.table.by_persistent.lock();
        if !table.contains_key(&open.id.persistent) || !file.is_detached() || file.is_closed() {
            return None;
        }
        let state = {
            let mut state = open.state.lock();
            state.generation += 1;
            state.clone()
        };
        *open.link.session.write() = Arc::downgrade(session);
        file.attach(Arc::clone(&open.link) as Arc<dyn Holder>, smb_files::OwnerId(session.id));
        let open = Arc::new(Open {
            id: open.id,
            tree: Arc::clone(tree),
            thing: Thing::File(Arc::clone(file)),
            client: open.client,
            user: open.user,
            create_guid: open.create_guid,
            app_instance: open.app_instance,
            link: Arc::clone(&open.link),
            state: Mutex::new(state),
            row: tokio::sync::Mutex::new(saved),
        });
        table.insert(open.id.persistent, Arc::clone(&open));
        Some(open)
    }
}

/// A CREATE under way; dropping it says that it has ended.
pub(crate) struct Creating {
    table: Arc<Table>,
    name: (Guid, Guid),
}

impl Drop for Creating {
    fn drop(&mut self) {
        self.table.creating.lock().remove(&self.name);
    }
}

impl From<Lasting> for Durability {
    fn from(lasting: Lasting) -> Self {
        match lasting {
            Lasting::No => Self::None,
            Lasting::V1 | Lasting::V2 { persistent: false } | Lasting::Resilient => Self::Durable,
            Lasting::V2 { persistent: true } => Self::Persistent,
        }
    }
}
