//! iSCSI that nobody can connect to: remembers what it is to serve.

use std::collections::{BTreeMap, BTreeSet};

use control_api::{Code, Config, LunReservations, LunWriteCacheNow, PortalInfo, Problem, Session};
use parking_lot::Mutex;
use qos_gate::VolumeReport;
use uuid::Uuid;

use super::now;
use crate::backend::{Current, ImageNow, IscsiBackend, QueueOf, ServedLun, Work};

/// What is to be served.
#[derive(Default)]
pub struct MemoryIscsi {
    /// The newest configuration that it was given, and its number.
    config: Mutex<(u64, Config)>,
    /// Names of LUNs that initiators can use.
    pub served: Mutex<BTreeSet<String>>,
    /// Who is taken to be connected.
    pub connected: Mutex<Vec<Session>>,
    /// What is taken to be reserved of LUNs.
    pub reserved: Mutex<BTreeMap<String, LunReservations>>,
    /// Hosts of LUNs that are taken to be told still of writes that may be lost.
    pub lost_writes: Mutex<BTreeMap<String, Vec<String>>>,
    /// What write caches of LUNs are taken to have.
    pub caches: Mutex<BTreeMap<String, LunWriteCacheNow>>,
    /// How often it was asked which LUNs have a write cache, and how often which are made of images: of many that costs.
    pub asked: Mutex<(u64, u64)>,
}

/// A port that is always taken here.
const TAKEN: &str = "127.0.0.1:1";

impl MemoryIscsi {
    /// Takes a configuration if none was given that is newer, as the real one does for its queues.
    fn notice(&self, given: &Current) {
        let mut known = self.config.lock();
        if known.0 <= given.revision {
            *known = (given.revision, (*given.config).clone());
        }
    }
}

impl IscsiBackend for MemoryIscsi {
    fn tighten(&self, _config: &Current) {}

    fn apply<'a>(&'a self, config: &'a Current) -> Work<'a, Vec<(String, String)>> {
        self.notice(config);
        now(Ok(Vec::new()))
    }

    fn apply_pool<'a>(
        &'a self,
        config: &'a Current,
        _pool: Option<Uuid>,
        luns: Vec<ServedLun>,
    ) -> Work<'a, Vec<(String, String)>> {
        self.notice(config);
        let of = |name: &str| config.config.luns.iter().find(|lun| lun.name == name);
        let unserved = luns.iter().filter(|lun| lun.volume.is_none()).filter_map(|lun| of(&lun.name));
        let trouble =
            unserved.map(|lun| (format!("lun {}", lun.name), format!("volume {} is not there", lun.volume)));
        let trouble = trouble.collect();
        let mut served = self.served.lock();
        for lun in luns {
            match lun.volume {
                Some(_) => served.insert(lun.name),
                None => served.remove(&lun.name),
            };
        }
        served.retain(|name| of(name).is_some());
        now(Ok(trouble))
    }

    fn portals(&self) -> Vec<PortalInfo> {
        let config = &self.config.lock().1;
        let info = |portal: &control_api::PortalConfig| {
            let taken = portal.address == TAKEN;
            PortalInfo {
                address: portal.address.clone(),
                listening: (!taken).then(|| portal.address.clone()),
                group: portal.group,
                problem: taken.then(|| "address in use".into()),
            }
        };
        config.portals.iter().map(info).collect()
    }

    fn queues(&self) -> Vec<QueueOf> {
        let config = &self.config.lock().1;
        let luns = config.luns.iter().map(|lun| (lun.volume_guid, lun.volume.clone()));
        let shares = config.shares.iter().map(|share| (share.volume_guid, share.volume.clone()));
        let volumes: BTreeSet<(Option<Uuid>, String)> = luns.chain(shares).collect();
        let queue = |(guid, volume)| QueueOf { volume, guid, report: VolumeReport::default() };
        volumes.into_iter().map(queue).collect()
    }

    fn write_caches(&self) -> Vec<(String, bool)> {
        self.asked.lock().0 += 1;
        self.served.lock().iter().map(|name| (name.clone(), false)).collect()
    }

    fn caches(&self) -> Vec<(String, LunWriteCacheNow)> {
        self.caches.lock().iter().map(|(name, now)| (name.clone(), now.clone())).collect()
    }

    fn reservations(&self) -> Vec<(String, LunReservations)> {
        self.reserved.lock().iter().map(|(name, held)| (name.clone(), held.clone())).collect()
    }

    fn lost_writes(&self) -> Vec<(String, Vec<String>)> {
        self.lost_writes.lock().iter().map(|(name, hosts)| (name.clone(), hosts.clone())).collect()
    }

    fn forget_lost_writes<'a>(&'a self, lun: &'a str, host: Option<String>) -> Work<'a, Vec<String>> {
        // Who is connected to which units nobody knows here: whoever asks has looked.
        let goes = |name: &&mut String| host.as_ref().is_none_or(|host| host == *name);
        let mut all = self.lost_writes.lock();
        let hosts = all.get_mut(lun);
        now(Ok(hosts.map(|hosts| hosts.extract_if(.., |name| goes(&name)).collect()).unwrap_or_default()))
    }

    fn clear_reservations<'a>(&'a self, lun: &'a str) -> Work<'a, LunReservations> {
        let none =
            || Problem::new(Code::WrongState, format!("No initiator has reserved anything of LUN {lun}."));
        now(self.reserved.lock().remove(lun).ok_or_else(none))
    }

    fn images(&self) -> Vec<(String, ImageNow)> {
        self.asked.lock().1 += 1;
        Vec::new()
    }

    fn sessions(&self) -> Vec<Session> {
        self.connected.lock().clone()
    }

    fn end_session(&self, _id: u64) -> Work<'_, bool> {
        now(Ok(false))
    }

    fn stop(&self) -> Work<'_, ()> {
        now(Ok(()))
    }

    fn inspect(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}
