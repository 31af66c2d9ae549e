//! All opens of the server: found by identifier, by the client's own name for them, by application; and how they wait for
//! their clients.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use shard_runtime::Entropy;
use smb_files::Holder;
use smb_protocol::Guid;
use smb_protocol::file::FileId;
use smb_protocol::security::sid::Sid;
use tcp_service::{ShardJob, Spawner};

use super::{Open, OpenOwner, Thing};
use crate::clients::{ClientName, Clients};
use crate::config::Directory;
use crate::places::Place;
use crate::tree::Tree;

/// The opens, and by what they are looked for.
///
/// Invariant: the other maps name only opens of `by_persistent`, and each open that has a name is in them.
#[derive(Default)]
struct Index {
    /// The opens by the part of the identifier that a reconnect names, each with its entry among its user's.
    by_persistent: BTreeMap<u64, (Arc<Open>, Place)>,
    by_guid: BTreeMap<CreateName, u64>,
    by_app: BTreeSet<(Guid, u64)>,
    /// CREATEs under way that have a name of the client's.
    creating: BTreeSet<CreateName>,
}

/// The name that a client has given an open (DH2Q). A client says itself who it is, and whoever listens can say the same; so the user,
/// who has been proven, is part of the name: nobody else's CREATE is in the way, or is answered as if it were the same.
pub(crate) type CreateName = (ClientName, Guid);

impl Index {
    fn get(&self, id: u64) -> Option<&Arc<Open>> {
        self.by_persistent.get(&id).map(|(open, _)| open)
    }

    fn insert(&mut self, open: &Arc<Open>, place: Place) {
        let id = open.id.persistent;
        self.remove(id);
        if let Some(name) = open.create_name() {
            self.by_guid.insert(name, id);
        }
        if !open.app.id.is_zero() {
            self.by_app.insert((open.app.id, id));
        }
        self.by_persistent.insert(id, (Arc::clone(open), place));
    }

    fn remove(&mut self, id: u64) -> Option<(Arc<Open>, Place)> {
        let (open, place) = self.by_persistent.remove(&id)?;
        if let Some(name) = open.create_name()
            && self.by_guid.get(&name) == Some(&id)
        {
            self.by_guid.remove(&name);
        }
        self.by_app.remove(&(open.app.id, id));
        Some((open, place))
    }
}

/// The opens, as also what they hold refers to them.
pub(crate) struct Table {
    index: Mutex<Index>,
    /// Who hears of leases.
    pub(crate) clients: Clients,
    spawner: Arc<dyn Spawner>,
    next_shard: AtomicUsize,
}

impl Table {
    /// Runs what nobody waits for on some shard.
    pub(crate) fn run(&self, job: ShardJob) {
        let shard = self.next_shard.fetch_add(1, Ordering::Relaxed) % self.spawner.shards().max(1);
        self.spawner.spawn(shard, job);
    }

    pub(crate) fn find(&self, persistent: u64) -> Option<Arc<Open>> {
        self.index.lock().get(persistent).cloned()
    }

    /// Takes an open out.
    pub(crate) fn take(&self, persistent: u64) -> Option<Arc<Open>> {
        self.index.lock().remove(persistent).map(|(open, _place)| open)
    }
}

/// The table, and who gives identifiers.
pub(crate) struct Opens {
    table: Arc<Table>,
    entropy: Arc<dyn Entropy>,
}

impl Opens {
    pub(crate) fn new(entropy: Arc<dyn Entropy>, spawner: Arc<dyn Spawner>) -> Self {
        let (index, next_shard) = (Mutex::default(), AtomicUsize::new(0));
        let clients = Clients::default();
        Self { table: Arc::new(Table { index, clients, spawner, next_shard }), entropy }
    }

    /// An identifier that no other open has, and nobody guesses.
    pub(crate) fn new_id(&self) -> FileId {
        let index = self.table.index.lock();
        loop {
            let id = FileId { persistent: self.entropy.next_u64(), volatile: self.entropy.next_u64() };
            let plain = |part: u64| part != 0 && part != u64::MAX;
            if plain(id.persistent) && plain(id.volatile) && !index.by_persistent.contains_key(&id.persistent)
            {
                return id;
            }
        }
    }

    /// The table, as what it holds refers to it.
    pub(crate) fn table(&self) -> Weak<Table> {
        Arc::downgrade(&self.table)
    }

    /// Who hears of leases.
    pub(crate) fn clients(&self) -> &Clients {
        &self.table.clients
    }

    /// Puts an open in.
    pub(crate) fn add(&self, open: &Arc<Open>, place: Place) {
        self.table.index.lock().insert(open, place);
    }

    pub(crate) fn remove(&self, open: &Open) {
        self.table.take(open.id.persistent);
    }

    /// Finds an open by the part of the identifier that outlives connections.
    pub(crate) fn find(&self, persistent: u64) -> Option<Arc<Open>> {
        self.table.find(persistent)
    }

    /// Finds an open by the client's own name for it.
    pub(crate) fn find_named(&self, name: CreateName) -> Option<Arc<Open>> {
        let index = self.table.index.lock();
        let id = index.by_guid.get(&name)?;
        index.get(*id).cloned()
    }

    /// Begins a CREATE with the client's name for it; `None` when one is under way already.
    pub(crate) fn begin_create(&self, name: CreateName) -> Option<Creating> {
        let fresh = self.table.index.lock().creating.insert(name);
        fresh.then(|| Creating { table: Arc::clone(&self.table), name })
    }

    /// Opens of an application that came over another client.
    pub(crate) fn of_app(&self, app: Guid, other_than: Guid) -> Vec<Arc<Open>> {
        let index = self.table.index.lock();
        let ids = index.by_app.range((app, 0)..=(app, u64::MAX)).map(|(_, id)| id);
        let opens = ids.filter_map(|id| index.get(*id));
        opens.filter(|open| open.client != other_than).cloned().collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Open>> {
        self.table.index.lock().by_persistent.values().map(|(open, _)| Arc::clone(open)).collect()
    }

    /// Opens that wait for clients of users who are gone or disabled.
    pub(crate) fn of_gone_users(&self, directory: &dyn Directory) -> Vec<Arc<Open>> {
        let mut all = self.all();
        // Who has said nothing of who it is has no account that could go.
        all.retain(|open| {
            open.owner().is_none() && open.user != Sid::ANONYMOUS && directory.has_left(open.user)
        });
        all
    }

    /// Whether no CREATE is under way, and no name leads to an open that is gone.
    #[cfg(test)]
    pub(crate) fn is_quiet(&self) -> bool {
        let index = self.table.index.lock();
        index.creating.is_empty()
            && (!index.by_persistent.is_empty() || index.by_guid.is_empty() && index.by_app.is_empty())
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

    /// Closes an open that nobody was told of.
    pub(crate) async fn close(&self, open: &Arc<Open>) {
        self.remove(open);
        open.close().await;
    }

    /// Lets go of an open without closing it: what is stored of it stays.
    pub(crate) fn release(&self, open: &Arc<Open>) {
        open.forget();
        self.remove(open);
        if let Thing::File(file) = &open.thing {
            file.release();
        }
        if let Some(disk) = open.disk.clone() {
            self.table.run(Box::new(move || Box::pin(async move { disk.release().await })));
        }
    }

    /// Lets it wait for its client; `false` when it must not.
    fn disconnect(&self, open: &Arc<Open>) -> bool {
        let Thing::File(file) = &open.thing else { return false };
        *open.link.owner.write() = None;
        // Another client, or the same from elsewhere, may have it next.
        let queued = open.state.lock().queued.take();
        drop(queued);
        file.detach();
        if file.is_closed() {
            return false;
        }
        self.wait_for_client(open);
        true
    }

    /// Puts in what came back after a restart; it waits for its client.
    pub(crate) fn restore(&self, open: Open, place: Place) {
        let open = Arc::new(open);
        *open.link.opens.write() = self.table();
        if let Thing::File(file) = &open.thing {
            file.recorded_by(Arc::clone(&open.link) as Arc<dyn Holder>);
        }
        self.table.index.lock().insert(&open, place);
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
                    let mut index = table.index.lock();
                    if open.state.lock().generation != generation {
                        return;
                    }
                    index.remove(open.id.persistent);
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
        session: &Arc<impl OpenOwner + 'static>,
        tree: &Arc<Tree>,
    ) -> Option<Arc<Open>> {
        let Thing::File(file) = &open.thing else { return None };
        let mut index = self.table.index.lock();
        if !file.is_detached() || file.is_closed() {
            return None;
        }
        let (_, place) = index.remove(open.id.persistent)?;
        open.state.lock().generation += 1;
        let owner: Arc<dyn OpenOwner> = Arc::clone(session) as _;
        *open.link.owner.write() = Some(Arc::downgrade(&owner));
        file.attach(Arc::clone(&open.link) as Arc<dyn Holder>, smb_files::OwnerId(session.id()));
        let open = Arc::new(Open {
            id: open.id,
            tree: Arc::clone(tree),
            thing: Thing::File(Arc::clone(file)),
            disk: open.disk.clone(),
            client: open.client,
            user: open.user,
            create_guid: open.create_guid,
            used: AtomicBool::new(true),
            app: open.app,
            link: Arc::clone(&open.link),
            state: Arc::clone(&open.state),
            row: Arc::clone(&open.row),
        });
        index.insert(&open, place);
        Some(open)
    }
}

/// A CREATE under way; dropping it says that it has ended.
pub(crate) struct Creating {
    table: Arc<Table>,
    name: CreateName,
}

impl Drop for Creating {
    fn drop(&mut self) {
        self.table.index.lock().creating.remove(&self.name);
    }
}
