//! Service addresses of pools: each is where its pool is served, and nowhere else.
//!
//! ```text
//!   published ─┐                        ┌─ hold: the kernel has it for a few seconds, renewed before they are over
//!   given up ──┼─► keep (one at a time) ┼─ end the connections of clients of the owner before, and announce
//!   every look ┘                        └─ release
//! ```
//! Invariants:
//! * An address is here while its pool is served here and the node may answer for it, at most [`service_address::LIFETIME`] longer:
//!   also when the process dies, or stands still.
//! * It comes when all shares of the pool are published, and goes before the first of them is withdrawn: who connects to it finds them.
//! * An address that the machine has otherwise is never touched.
//! * A pool is served whether or not it gets its address.
//!
//! A planned move ends the connections to the address here without a word: the next owner tells the clients when it is ready for them.
//! A client that hears of it earlier connects to nobody, and then waits for a second before it tries again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use cluster_store::keys::PoolId;
use control_api::{Code, PoolDetail, PoolUpdate, PortalConfig, Problem, ServiceAddress};
use futures_util::future::join_all;
use uuid::Uuid;

use super::held_addresses::{Former, Held};
use super::path::Step;
use super::{Node, missing};

/// How often is looked at which addresses are to be here.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often an address is renewed: well before it is over.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// For so long the network is told of a new address again and again, and clients of the owner before once it is known who they are: a machine
/// that stands still may answer for it meanwhile.
const ANNOUNCED_FOR: Duration = Duration::from_secs(10);
/// So long the network waits for clients of the owner before to be known.
const CLIENTS_FIRST: Duration = Duration::from_millis(50);

impl Node {
    /// Has the addresses of pools that are served here, and no others, until the node stops.
    pub async fn keep_addresses(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.addresses.look.notified() => {}
                // Whoever is connected is to be known before the node can die.
                _ = self.backends.smb.connected(), if !self.addresses.here().is_empty() => {}
                () = self.stopped() => break,
            }
            self.settle_addresses().await;
        }
        self.settle_addresses().await;
    }

    /// Something may have changed: a pool is published.
    pub(super) fn look_at_addresses(&self) {
        self.addresses.look.notify_one();
    }

    fn may_have_addresses_of(&self, pool: Uuid) -> bool {
        // One that is here stays while volumes of its pool that are not open yet are tried again.
        let here = || self.addresses.held.lock().get(&pool).is_some_and(|held| held.here);
        let serves = match self.path(pool).step() {
            Step::Serving => true,
            Step::Restore | Step::Publish => here(),
            _ => false,
        };
        serves
            && self.is_open(pool)
            && !*self.stopping.borrow()
            && self.cluster.get().is_none_or(|cluster| cluster.may_answer())
    }

    /// Makes the machine have the addresses of pools that are served here, and no others. When it ends, an address of a pool that is not
    /// served here is not here.
    pub(super) async fn settle_addresses(&self) {
        let _keeping = self.addresses.keeping.lock().await;
        let wanted: BTreeMap<Uuid, ServiceAddress> = self.config.with(|config| {
            let with = config.pools.iter().filter_map(|pool| Some((pool.guid, ServiceAddress::of(pool)?)));
            with.filter(|(pool, _)| self.may_have_addresses_of(*pool)).collect()
        });
        let before = self.listens_besides();
        let unwanted: Vec<(Uuid, Held)> = {
            let held = self.addresses.held.lock();
            let unwanted = held.iter().filter(|(pool, held)| wanted.get(*pool) != Some(&held.at));
            unwanted.map(|(pool, held)| (*pool, held.clone())).collect()
        };
        // Together: when the shared state is slow the others are to be renewed in time.
        join_all(unwanted.iter().map(|(pool, held)| self.let_address_go(*pool, held))).await;
        self.abandon_strays().await;
        if !wanted.is_empty() {
            let mut new = Vec::new();
            for (pool, at) in wanted {
                if self.have_address(pool, &at).await {
                    new.push((pool, at));
                }
            }
            // Only now that all of them are renewed: the shared state may be slow, and is waited for once.
            join_all(new.iter().map(|(pool, at)| self.tell(*pool, at))).await;
            self.note_clients();
        }
        if self.listens_besides() != before {
            self.serve_node().await;
        }
    }

    /// Ends connections to addresses of pools that another node has. The machine may still have an address of this node's process before,
    /// and clients that connect then: they are to connect to the owner, who does not know of them.
    async fn abandon_strays(&self) {
        let Some(cluster) = self.cluster.get() else { return };
        let connected = self.backends.smb.connected_addresses();
        let all: Vec<(Uuid, IpAddr)> = self.config.with(|config| {
            let with = config.pools.iter().filter_map(|pool| Some((pool.guid, ServiceAddress::of(pool)?.ip)));
            with.filter(|(_, ip)| connected.contains(ip)).collect()
        });
        let is_elsewhere = |pool: Uuid| {
            !self.addresses.held.lock().contains_key(&pool) && cluster.other_owner(pool).is_some()
        };
        let elsewhere = all.into_iter().filter(|(pool, _)| is_elsewhere(*pool));
        let mut strays: BTreeSet<IpAddr> = elsewhere.map(|(_, ip)| ip).collect();
        if strays.is_empty() {
            return;
        }
        // Who is connected to the machine's own address is none, even if a pool has been given the same.
        for known in self.backends.addresses.all().await.unwrap_or_default() {
            if !known.is_service {
                strays.remove(&known.at.ip);
            }
        }
        self.backends.smb.abandon_connections_to(&strays);
    }

    /// Where is listened because of addresses that are here.
    fn listens_besides(&self) -> (Vec<String>, Vec<PortalConfig>) {
        self.config.with(|config| {
            (self.addresses.listeners(&config.smb.listen), self.addresses.portals(&config.portals))
        })
    }

    async fn let_address_go(&self, pool: Uuid, held: &Held) {
        if held.here {
            let clients = self.clients_to_say(held);
            match self.backends.addresses.release(&held.at).await {
                Ok(()) => tracing::info!(address = %held.at, "a service address is not here any more"),
                // It is gone in a few seconds: nobody renews it.
                Err(problem) => {
                    tracing::error!(address = %held.at, %problem, "a service address cannot be taken away");
                }
            }
            // Before the next owner reads it; who may not answer any more has no say.
            if let Some(cluster) = self.cluster.get().filter(|cluster| cluster.may_answer())
                && let Some(clients) = clients
            {
                cluster.say_last_clients(PoolId(pool), clients).await;
            }
            self.backends.smb.abandon_connections_to(&BTreeSet::from([held.at.ip]));
        }
        let mut all = self.addresses.held.lock();
        all.remove(&pool);
        // Where it was the first of its network on an interface, the others of that network have gone with it.
        all.values_mut().for_each(|other| other.renewed = None);
    }

    /// Gets or renews an address. True: it is new enough for the network, and clients of the owner before, to be told.
    async fn have_address(&self, pool: Uuid, at: &ServiceAddress) -> bool {
        let now = self.clock.now();
        let known = self.addresses.held.lock().get(&pool).cloned();
        if known.as_ref().is_some_and(|held| held.renewed.is_some_and(|last| now.since(last) < RENEW_EVERY)) {
            return false;
        }
        let new = !known.as_ref().is_some_and(|held| held.here);
        let allowed = self.refuse_own(at, new).await;
        // Others were waited for since it was looked at what is wanted. It goes, or is over, when it is looked again.
        if !self.may_have_addresses_of(pool) {
            return false;
        }
        let had = match allowed {
            Ok(()) => self.backends.addresses.hold(at).await,
            Err(problem) => Err(problem),
        };
        let since = known.as_ref().filter(|held| held.here).map_or(now, |held| held.since);
        let told = known.as_ref().and_then(|held| held.problem.as_ref());
        if let Err(problem) = &had
            && told != Some(problem)
        {
            tracing::error!(address = %at, %problem, "a pool does not get its address");
        }
        let here = had.is_ok();
        let (clients, former) = known.map(|held| (held.clients, held.former)).unwrap_or_default();
        let held = Held {
            at: at.clone(),
            here,
            since,
            renewed: Some(now),
            problem: had.err(),
            clients,
            former: if new { Former::Unknown } else { former.clone() },
        };
        self.addresses.held.lock().insert(pool, held);
        if !here {
            return false;
        }
        if new {
            tracing::info!(address = %at, "a service address is here");
        }
        now.since(since) < ANNOUNCED_FOR || !matches!(former, Former::Over)
    }

    /// Tells clients of the owner before, and the network, that an address is here. The clients come first: what they send arrives here when the
    /// network knows, and the kernel resets connections that nobody ends. Where it takes long to learn of them, the network is not kept waiting:
    /// what clients send goes to a machine that is gone meanwhile.
    async fn tell(&self, pool: Uuid, at: &ServiceAddress) {
        let clients = self.tell_former(pool, at);
        tokio::pin!(clients);
        if tokio::time::timeout(CLIENTS_FIRST, &mut clients).await.is_err() {
            self.tell_network(pool, at).await;
            clients.await;
        }
        self.tell_network(pool, at).await;
    }

    async fn tell_network(&self, pool: Uuid, at: &ServiceAddress) {
        // What would be announced of another node's address would take its clients away from it.
        if self.may_have_addresses_of(pool)
            && let Err(problem) = self.backends.addresses.announce(at).await
        {
            self.addresses.change(pool, |held| held.problem = Some(problem));
        }
    }

    /// Ends the connections of those who were connected to an address elsewhere.
    async fn tell_former(&self, pool: Uuid, at: &ServiceAddress) {
        let now = self.clock.now();
        let former = self.addresses.held.lock().get(&pool).map(|held| held.former.clone());
        let former = former.unwrap_or_default();
        let first = matches!(former, Former::Unknown);
        let former = match former {
            Former::Unknown => {
                let known = match self.cluster.get() {
                    Some(cluster) => cluster.clients_of(PoolId(pool)).await,
                    None => Some(Vec::new()),
                };
                // It is asked again when the address is renewed: those who wait in silence learn of it from nobody else.
                let Some(known) = known else { return };
                if !known.is_empty() {
                    tracing::info!(address = %at, clients = known.len(), "clients of the owner before are told to connect again");
                }
                Former::Told(now, known)
            }
            Former::Told(since, _) if now.since(since) >= ANNOUNCED_FOR => Former::Over,
            same => same,
        };
        self.addresses.change(pool, |held| held.former = former.clone());
        if former.connections().is_empty() || !self.may_have_addresses_of(pool) {
            return;
        }
        // Each time: what a client answers may still have gone to a machine that stands still.
        if let Err(problem) = self.backends.addresses.tell_clients(at.ip, former.connections()).await
            && first
        {
            tracing::warn!(address = %at, %problem, "clients find out by themselves that their connections are gone");
        }
    }

    /// Whom the next owner has to tell: who is connected to an address, and who is still being told that the owner before is gone, since this
    /// node may be gone, too, before they have heard of it. `None`: nothing is put in the place of what the owner before has said until it is read.
    fn clients_to_say(&self, held: &Held) -> Option<Vec<(SocketAddr, SocketAddr)>> {
        if matches!(held.former, Former::Unknown) {
            return None;
        }
        // Those who are connected come first: there is room for so many only.
        let mut all = self.backends.smb.connections_to(held.at.ip);
        let here: BTreeSet<_> = all.iter().copied().collect();
        all.extend(held.former.connections().iter().filter(|known| !here.contains(known)));
        Some(all)
    }

    /// Says in the shared state who is connected to the addresses that are here, for the next owner.
    fn note_clients(&self) {
        let Some(cluster) = self.cluster.get() else { return };
        let here: Vec<(Uuid, Held)> = {
            let held = self.addresses.held.lock();
            held.iter().filter(|(_, held)| held.here).map(|(pool, held)| (*pool, held.clone())).collect()
        };
        for (pool, held) in here {
            let Some(said) = self.clients_to_say(&held) else { continue };
            let now: BTreeSet<_> = said.iter().copied().collect();
            if now == held.clients {
                continue;
            }
            self.addresses.change(pool, |held| held.clients = now);
            cluster.say_clients(PoolId(pool), said);
        }
    }

    /// An address that the machine has otherwise is its own, and stays so.
    async fn refuse_own(&self, at: &ServiceAddress, new: bool) -> Result<(), Problem> {
        if !new {
            return Ok(());
        }
        let all = self.backends.addresses.all().await?;
        let own = all.iter().find(|known| known.at.ip == at.ip && !known.is_service);
        own.map_or(Ok(()), |own| {
            let detail = format!(
                "{} is an address of node {} itself, on {}",
                at.ip,
                self.name(),
                own.at.interface.as_deref().unwrap_or("an interface")
            );
            Err(Problem::new(Code::InUse, detail)
                .todo("Give the pool an address that no machine has: it moves to other nodes."))
        })
    }

    /// Changes a pool's service address and home. The node that has the pool is asked: it looks whether the address is free.
    ///
    /// # Errors
    /// When there is no such pool here, the address cannot be its own, or the cluster has no such nodes.
    pub async fn pool_update(&self, name: &str, update: PoolUpdate) -> Result<PoolDetail, Problem> {
        let (guid, _) = self.pool(name)?;
        let mut before = None;
        let wanted = self.config.with(|config| {
            let found = config.pools.iter().find(|pool| pool.guid == guid)?;
            before = ServiceAddress::of(found);
            let mut wanted = found.clone();
            let or_none = |text: &String| (!text.is_empty()).then(|| text.clone());
            if let Some(address) = &update.address {
                wanted.address = or_none(address);
                if wanted.address.is_none() {
                    wanted.interface = None;
                }
            }
            if let Some(interface) = &update.interface {
                wanted.interface = or_none(interface);
            }
            if let Some(home) = &update.home {
                wanted.home.clone_from(home);
            }
            Some(wanted)
        });
        let wanted = wanted.ok_or_else(|| missing("pool", name, "holdfast pool list"))?;
        if let Some(home) = &update.home {
            self.refuse_no_home(&wanted, home)?;
        }
        if wanted.address.is_none() && wanted.interface.is_some() {
            let detail = format!("Pool {} has no address that could be on an interface.", wanted.name);
            return Err(Problem::new(Code::InvalidRequest, detail)
                .todo("Give both: --address 192.0.2.50/24 --interface eth1."));
        }
        if let Some(text) = &wanted.address {
            let at = ServiceAddress::parse(text, wanted.interface.as_deref())?;
            if before.as_ref().is_none_or(|before| before.ip != at.ip) {
                self.refuse_taken(guid, &at).await?;
            }
            self.backends.addresses.interface_for(&at).await?;
        }
        self.config.change(|config| {
            let found = config.pools.iter_mut().find(|pool| pool.guid == guid);
            let found = found.ok_or_else(|| missing("pool", name, "holdfast pool list"))?;
            (found.address, found.interface, found.home) =
                (wanted.address.clone(), wanted.interface.clone(), wanted.home.clone());
            Ok(())
        })?;
        if let Some(home) = &update.home
            && let Some(cluster) = self.cluster.get()
        {
            cluster.set_home(PoolId(guid), home).await?;
        }
        self.settle_addresses().await;
        self.pool_show(name).await
    }

    /// An address that somebody else has can't be a pool's.
    async fn refuse_taken(&self, pool: Uuid, at: &ServiceAddress) -> Result<(), Problem> {
        let other = self.config.with(|config| {
            let others = config.pools.iter().filter(|other| other.guid != pool);
            let mut with = others.filter_map(|other| Some((other, ServiceAddress::of(other)?)));
            with.find(|(_, known)| known.ip == at.ip).map(|(other, _)| other.name.clone())
        });
        if let Some(other) = other {
            return Err(Problem::new(
                Code::InUse,
                format!("Pool {other} has the address {} already.", at.ip),
            )
            .todo("Each pool moves by itself: give each an address of its own."));
        }
        self.refuse_own(at, true).await?;
        if let Some(mac) = self.backends.addresses.claimant(at).await? {
            let detail =
                format!("Another machine answers for {}: the one with the MAC address {mac}.", at.ip);
            return Err(Problem::new(Code::InUse, detail).todo("Choose an address that no machine has."));
        }
        Ok(())
    }
}
