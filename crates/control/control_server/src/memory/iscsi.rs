//! iSCSI that nobody can connect to: remembers what it is to serve.

use control_api::{Config, PortalInfo, Session};
use parking_lot::Mutex;

use super::now;
use crate::backend::{IscsiBackend, ServedLun, Work};

/// What is to be served.
#[derive(Default)]
pub struct MemoryIscsi {
    config: Mutex<Config>,
    /// Who is taken to be connected.
    pub connected: Mutex<Vec<Session>>,
}

/// A port that is always taken here.
const TAKEN: &str = "127.0.0.1:1";

impl IscsiBackend for MemoryIscsi {
    fn apply<'a>(&'a self, config: &'a Config, luns: Vec<ServedLun>) -> Work<'a, Vec<(String, String)>> {
        *self.config.lock() = config.clone();
        let there = |name: &str| luns.iter().any(|lun| lun.name == name);
        let unserved = config.luns.iter().filter(|lun| !there(&lun.name));
        let trouble =
            unserved.map(|lun| (format!("lun {}", lun.name), format!("volume {} is not there", lun.volume)));
        now(Ok(trouble.collect()))
    }

    fn portals(&self) -> Vec<PortalInfo> {
        let config = self.config.lock();
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
