//! SMB that nobody can connect to: remembers what it is to serve.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Weak;

use control_api::{Config, Listener, Session, ShareConfig, ShareTraffic, SmbOpen};
use parking_lot::Mutex;
use smb_protocol::security::Sid;
use uuid::Uuid;

use super::now;
use crate::backend::{Current, ShareTotals, SmbAdministration, SmbBackend, SmbInfo, WantedShares, Work};

/// What is to be served.
#[derive(Default)]
pub struct MemorySmb {
    config: Mutex<Config>,
    /// Shares that clients can connect to, with their pools.
    pub served: Mutex<BTreeMap<String, (Option<Uuid>, ShareConfig)>>,
    ended: Mutex<Vec<Sid>>,
    /// Users that are taken to have sessions.
    pub users: Mutex<BTreeSet<Sid>>,
    /// How often all sessions, and how often all opens were listed: of many that costs.
    pub listed: Mutex<(u64, u64)>,
    /// Who is taken to be connected.
    pub connected: Mutex<Vec<Session>>,
    /// Shares that are on their way.
    pub expected: Mutex<Vec<String>>,
    /// All that ever were.
    pub was_expected: Mutex<BTreeSet<String>>,
    /// Connections that there are taken to be: the node's end and the client's.
    pub connections: Mutex<Vec<(SocketAddr, SocketAddr)>>,
    /// What they are taken to have open.
    pub open: Mutex<Vec<SmbOpen>>,
    /// Held for writing by who lets a change wait before it is served.
    pub hold: tokio::sync::RwLock<()>,
}

impl MemorySmb {
    /// Whose sessions were to end since the last time.
    pub fn take_ended(&self) -> Vec<Sid> {
        std::mem::take(&mut *self.ended.lock())
    }
}

/// A port that is always taken here.
const TAKEN: &str = "127.0.0.1:1";

impl SmbBackend for MemorySmb {
    fn configure(&self, _config: &Current, _node: &str) {}

    fn listen<'a>(&'a self, config: &'a Config) -> Work<'a, Vec<(String, String)>> {
        Box::pin(async move {
            let _pass = self.hold.read().await;
            *self.config.lock() = config.clone();
            let taken = config.smb.listen.iter().any(|address| address == TAKEN);
            let trouble = taken.then(|| (format!("SMB address {TAKEN}"), "address in use".to_owned()));
            Ok(trouble.into_iter().collect())
        })
    }

    fn apply_pool(&self, pool: Option<Uuid>, wanted: WantedShares) -> Work<'_, Vec<(String, String)>> {
        Box::pin(async move {
            let _pass = self.hold.read().await;
            let there: BTreeSet<&String> = wanted.volumes.iter().map(|volume| &volume.name).collect();
            let (on, off): (Vec<_>, Vec<_>) =
                wanted.shares.iter().partition(|share| there.contains(&share.volume));
            let mut served = self.served.lock();
            served.retain(|_, (of, _)| *of != pool);
            if wanted.admit {
                served.extend(on.into_iter().map(|share| (share.name.clone(), (pool, share.clone()))));
            }
            let trouble = off.into_iter().map(|share| {
                (format!("share {}", share.name), format!("volume {} is not there", share.volume))
            });
            Ok(trouble.collect())
        })
    }

    fn expect_shares(&self, names: &[String]) {
        let mut expected = self.expected.lock();
        self.was_expected.lock().extend(names.iter().cloned());
        *expected = names.to_vec();
    }

    fn info(&self) -> SmbInfo {
        let config = self.config.lock();
        let listener = |address: &String| {
            let taken = address == TAKEN;
            Listener {
                address: address.clone(),
                listening: (!taken).then(|| address.clone()),
                problem: taken.then(|| "address in use".into()),
            }
        };
        SmbInfo {
            netbios_name: "MEMORY".into(),
            listeners: config.smb.listen.iter().map(listener).collect(),
            ..SmbInfo::default()
        }
    }

    fn traffic(&self, share: &str) -> Option<ShareTraffic> {
        self.served.lock().contains_key(share).then(ShareTraffic::default)
    }

    fn share_totals(&self, share: &str) -> Option<ShareTotals> {
        self.traffic(share).map(|_| ShareTotals::default())
    }

    fn sessions(&self) -> Vec<Session> {
        self.listed.lock().0 += 1;
        self.connected.lock().clone()
    }

    fn session_users(&self) -> BTreeSet<Sid> {
        self.users.lock().clone()
    }

    fn end_session(&self, id: u64) -> bool {
        let mut connected = self.connected.lock();
        let before = connected.len();
        connected.retain(|session| session.id != id);
        connected.len() < before
    }

    fn end_sessions_of(&self, user: Sid) -> usize {
        self.ended.lock().push(user);
        0
    }

    fn close_opens_of_gone_users(&self) -> usize {
        0
    }

    fn opens(&self) -> Vec<SmbOpen> {
        self.listed.lock().1 += 1;
        self.open.lock().clone()
    }

    fn open_counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for open in &*self.open.lock() {
            *counts.entry(open.share.clone()).or_default() += 1;
        }
        counts
    }

    fn close_open(&self, _id: u64) -> bool {
        false
    }

    fn administered_by(&self, _node: Weak<dyn SmbAdministration>) {}

    fn refresh(&self) {}

    fn connections_to(&self, address: IpAddr) -> Vec<(SocketAddr, SocketAddr)> {
        let all = self.connections.lock();
        all.iter().filter(|(local, _)| local.ip() == address).copied().collect()
    }

    fn connected(&self) -> Work<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn connected_addresses(&self) -> BTreeSet<IpAddr> {
        self.connections.lock().iter().map(|(local, _)| local.ip()).collect()
    }

    fn abandon_connections_to(&self, addresses: &BTreeSet<IpAddr>) {
        self.connections.lock().retain(|(local, _)| !addresses.contains(&local.ip()));
    }

    fn stop(&self) -> Work<'_, ()> {
        now(Ok(()))
    }
}
