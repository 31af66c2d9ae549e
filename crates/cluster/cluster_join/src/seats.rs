//! Who runs a member of the cluster's etcd, and how a node comes to do so.
//!
//! The first three nodes have a seat. Each node looks at the seats and at etcd's members from time to time, and does its own next step: takes a
//! seat, adds its member as one that learns, starts it, lets it vote. Every step may be the last before the power goes: the next look goes on
//! from what is there.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cluster_identity::{ClusterIdentity, ManagedEtcd, NodeRecord};
use cluster_store::keys::Key;
use cluster_store::values::{MAX_SEATS, Seats, Value as _};
use cluster_store::{ClusterStore, Condition, Revision, Step, Transaction};
use cluster_store_etcd::{EtcdMember, EtcdStore};
use managed_etcd::{Certificates, EtcdMemberConfig, EtcdProcess, First, has_data};
use tokio::sync::{Mutex, watch};

use crate::error::{JoinError, Kind};
use crate::leaving::seats;
use crate::roll::{Standing, standing};

/// Between looks while something is to be done, and otherwise.
const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(10);

/// The member of etcd that a node with this address runs, when it runs one: on the two ports after that of the API between members.
#[must_use]
pub fn etcd_of(node: cluster_store::keys::NodeId, api: SocketAddr) -> ManagedEtcd {
    let url = |more: u16| format!("https://{}", SocketAddr::new(api.ip(), api.port().saturating_add(more)));
    ManagedEtcd { name: format!("node-{node}"), client_url: url(1), peer_url: url(2) }
}

/// How this node's member is run; `folder` is that of the identity.
#[must_use]
pub fn member_config(folder: &Path, own: &ManagedEtcd) -> EtcdMemberConfig {
    EtcdMemberConfig {
        name: own.name.clone(),
        client_url: own.client_url.clone(),
        peer_url: own.peer_url.clone(),
        data: folder.join("etcd"),
        certificates: Certificates {
            authority: folder.join("ca.pem"),
            certificate: folder.join("node.pem"),
            key: folder.join("node.key"),
        },
    }
}

struct State {
    identity: ClusterIdentity,
    process: Option<EtcdProcess>,
}

/// Looks after this node's part in etcd, and keeps where etcd is up to date.
pub struct Steward {
    store: EtcdStore,
    /// Another one of this node.
    kept: OnceLock<EtcdStore>,
    folder: PathBuf,
    state: Mutex<State>,
    removed: watch::Sender<bool>,
}

impl Steward {
    /// Starts this node's member, if it has one with data and `running` is none already; the store may need it. Blocks on the disk.
    ///
    /// # Errors
    /// When a program is missing.
    pub fn start(
        folder: &Path,
        identity: ClusterIdentity,
        store: EtcdStore,
        running: Option<EtcdProcess>,
    ) -> Result<Arc<Self>, JoinError> {
        let own = identity.record.etcd.managed.as_ref();
        let config = own.map(|own| member_config(folder, own)).filter(|config| has_data(&config.data));
        let process = match (running, config) {
            (None, Some(config)) => Some(EtcdProcess::start(config, None).map_err(not_started)?),
            (running, _) => running,
        };
        let state = Mutex::new(State { identity, process });
        Ok(Arc::new(Self {
            store,
            kept: OnceLock::new(),
            folder: folder.to_owned(),
            state,
            removed: watch::Sender::new(false),
        }))
    }

    /// This store, too, is told where etcd is; one at most.
    pub fn keep(&self, store: EtcdStore) {
        let _ = self.kept.set(store);
    }

    /// Looks, and does what is to be done, for ever.
    pub async fn work(self: Arc<Self>) {
        loop {
            let busy = match self.step().await {
                Ok(busy) => busy,
                Err(error) => {
                    tracing::debug!("etcd's members: {error}");
                    true
                }
            };
            tokio::time::sleep(if busy { SOON } else { LATER }).await;
        }
    }

    /// Ends when the cluster has removed this node.
    pub async fn removed(&self) {
        // The sender lives as long as this.
        let _ = self.removed.subscribe().wait_for(|removed| *removed).await;
    }

    /// Takes back what this node has written of itself after it was removed: it did not know. Its number is nobody else's.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn withdraw(&self) -> Result<(), JoinError> {
        let record = self.state.lock().await.identity.record.clone();
        let keys = [Key::Member(record.node), Key::Beat(record.node)];
        let steps = keys.iter().map(|key| Step::Delete(key.path(&record.cluster))).collect();
        self.store.transact(Transaction { steps, ..Transaction::default() }).await?;
        Ok(())
    }

    /// Ends this node's member.
    pub async fn stop(&self) {
        let process = self.state.lock().await.process.take();
        if let Some(process) = process {
            process.stop().await;
        }
    }

    /// This node's identity, as it is now.
    pub async fn identity(&self) -> ClusterIdentity {
        self.state.lock().await.identity.clone()
    }

    /// One look; whether there is more to do soon.
    ///
    /// # Errors
    /// When etcd does not answer, or refuses what is to be done for now.
    pub async fn step(&self) -> Result<bool, JoinError> {
        let mut state = self.state.lock().await;
        let record = &state.identity.record;
        let (cluster, me) = (record.cluster.clone(), record.node);
        if standing(&self.store, &cluster, me).await? == Standing::Removed {
            self.removed.send_replace(true);
            return Ok(false);
        }
        let (revision, taken) = seats(&self.store, &cluster).await?;
        // Somebody else's etcd: nothing to do.
        if revision == Revision(0) {
            return Ok(false);
        }
        let members = self.store.members().await?;
        self.know(&mut state, &members)?;
        let own = etcd_of(me, state.identity.record.api_address);
        let own = state.identity.record.etcd.managed.clone().unwrap_or(own);
        if !taken.seats.iter().any(|(node, _)| *node == me) {
            if taken.seats.len() >= MAX_SEATS {
                return Ok(false);
            }
            return self.take_seat(revision, taken, &state.identity.record, &own).await;
        }
        if state.identity.record.etcd.managed.is_none() {
            state.identity.record.etcd.managed = Some(own.clone());
            state.identity.save_record(&self.folder).map_err(JoinError::damaged)?;
        }
        let config = member_config(&self.folder, &own);
        let me_there = members.iter().find(|member| member.peer_urls.contains(&own.peer_url));
        if state.process.is_none() {
            let first = match (has_data(&config.data), me_there) {
                (true, _) => None,
                // It has begun once, and its data are gone: it cannot go on as the same member.
                (false, Some(member)) if !member.name.is_empty() => {
                    self.store.remove_member(member.id).await?;
                    return Ok(true);
                }
                (false, Some(_)) => Some(everybody(&members, &own)),
                (false, None) => Some(everybody(&self.store.add_learner(&own.peer_url).await?, &own)),
            };
            state.process = Some(EtcdProcess::start(config, first).map_err(not_started)?);
            return Ok(true);
        }
        match me_there {
            // It votes when there are seats for three: of two votes neither may fail.
            Some(member) if member.learner && taken.seats.len() >= MAX_SEATS => {
                self.store.promote(member.id).await?;
                Ok(true)
            }
            Some(member) => Ok(member.name.is_empty()),
            None => Ok(true),
        }
    }

    async fn take_seat(
        &self,
        revision: Revision,
        mut taken: Seats,
        record: &NodeRecord,
        own: &ManagedEtcd,
    ) -> Result<bool, JoinError> {
        let key = Key::EtcdSeats.path(&record.cluster);
        taken.seats.push((record.node, own.peer_url.clone()));
        let steps = vec![Step::Put(key.clone(), taken.encode().map_err(JoinError::damaged)?)];
        // Not after it was removed.
        let conditions = vec![
            Condition::Modified(key, revision),
            Condition::Present(Key::NodeName(record.name.to_string()).path(&record.cluster)),
        ];
        self.store.transact(Transaction { conditions, steps, reads: Vec::new() }).await?;
        Ok(true)
    }

    /// Keeps where etcd is: its members that have a vote, this node's own first.
    fn know(&self, state: &mut State, members: &[EtcdMember]) -> Result<(), JoinError> {
        let record = &mut state.identity.record;
        let own = record.etcd.managed.as_ref().map(|own| own.client_url.clone());
        let mut urls: Vec<String> = members
            .iter()
            .filter(|member| !member.learner)
            .flat_map(|member| member.client_urls.clone())
            .collect();
        urls.retain(|url| url.starts_with("https://"));
        urls.sort_by_key(|url| (Some(url) != own.as_ref(), url.clone()));
        urls.dedup();
        if urls.is_empty() || urls == record.etcd.endpoints {
            return Ok(());
        }
        let before = std::mem::replace(&mut record.etcd.endpoints, urls.clone());
        if let Err(error) = state.identity.save_record(&self.folder) {
            state.identity.record.etcd.endpoints = before;
            return Err(JoinError::damaged(error));
        }
        tracing::info!("etcd is at {} now", urls.join(" "));
        if let Some(kept) = self.kept.get() {
            kept.set_endpoints(&urls).map_err(JoinError::damaged)?;
        }
        self.store.set_endpoints(&urls).map_err(JoinError::damaged)
    }
}

impl std::fmt::Debug for Steward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steward").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// What a member that has no data yet is told: everybody by name; those that have not begun have none, but for this one.
fn everybody(members: &[EtcdMember], own: &ManagedEtcd) -> First {
    let mut all = Vec::new();
    for member in members {
        for url in &member.peer_urls {
            let name = if *url == own.peer_url { own.name.clone() } else { member.name.clone() };
            if !name.is_empty() {
                all.push((name, url.clone()));
            }
        }
    }
    First::Existing(all)
}

fn not_started(error: managed_etcd::ProcessError) -> JoinError {
    JoinError::new(Kind::State, error.to_string(), "Then start the node again.")
}
