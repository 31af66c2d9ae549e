//! SMB that nobody can connect to: remembers what it is to serve.

use std::collections::BTreeSet;
use std::sync::Weak;

use control_api::{Config, Listener, Session, ShareTraffic, SmbOpen};
use parking_lot::Mutex;
use smb_protocol::security::Sid;

use super::now;
use crate::backend::{OpenVolume, ShareTotals, SmbAdministration, SmbBackend, SmbInfo, Work};

/// What is to be served.
#[derive(Default)]
pub struct MemorySmb {
    config: Mutex<Config>,
    volumes: Mutex<BTreeSet<String>>,
    ended: Mutex<Vec<Sid>>,
    /// Who is taken to be connected.
    pub connected: Mutex<Vec<Session>>,
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
    fn apply<'a>(
        &'a self,
        config: &'a Config,
        _node: &'a str,
        volumes: Vec<OpenVolume>,
    ) -> Work<'a, Vec<(String, String)>> {
        Box::pin(async move {
            let _pass = self.hold.read().await;
            *self.config.lock() = config.clone();
            let volumes: BTreeSet<String> = volumes.into_iter().map(|volume| volume.name).collect();
            let unserved = config.shares.iter().filter(|share| !volumes.contains(&share.volume));
            let mut trouble: Vec<(String, String)> = unserved
                .map(|share| {
                    (format!("share {}", share.name), format!("volume {} is not there", share.volume))
                })
                .collect();
            if config.smb.listen.iter().any(|address| address == TAKEN) {
                trouble.push((format!("SMB address {TAKEN}"), "address in use".into()));
            }
            *self.volumes.lock() = volumes;
            Ok(trouble)
        })
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
        let config = self.config.lock();
        let found = config.shares.iter().find(|there| there.name == share)?;
        self.volumes.lock().contains(&found.volume).then(ShareTraffic::default)
    }

    fn share_totals(&self, share: &str) -> Option<ShareTotals> {
        self.traffic(share).map(|_| ShareTotals::default())
    }

    fn sessions(&self) -> Vec<Session> {
        self.connected.lock().clone()
    }

    fn end_session(&self, _id: u64) -> bool {
        false
    }

    fn end_sessions_of(&self, user: Sid) -> usize {
        self.ended.lock().push(user);
        0
    }

    fn opens(&self) -> Vec<SmbOpen> {
        self.open.lock().clone()
    }

    fn close_open(&self, _id: u64) -> bool {
        false
    }

    fn administered_by(&self, _node: Weak<dyn SmbAdministration>) {}

    fn refresh(&self) {}

    fn stop(&self) -> Work<'_, ()> {
        now(Ok(()))
    }
}
