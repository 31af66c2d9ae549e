//! Shares as the server holds them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use observe::IoTally;
use parking_lot::RwLock;
use smb_files::SharedFolder;

use crate::config::{ConfigError, ShareConfig, check_share_name};

/// What has passed over a share.
#[derive(Default)]
pub(crate) struct ShareCounters {
    /// Reads and writes of files.
    pub(crate) io: IoTally,
    /// All other requests.
    pub(crate) metadata: AtomicU64,
    /// Opens that were refused.
    pub(crate) refused: AtomicU64,
}

impl ShareCounters {
    pub(crate) fn other(&self) {
        self.metadata.fetch_add(1, Ordering::Relaxed);
    }
}

/// A share; its configuration can change while it is used.
pub(crate) struct Share {
    /// With what keeps clients from deleting its folder.
    config: RwLock<(Arc<ShareConfig>, SharedFolder)>,
    pub(crate) counters: ShareCounters,
}

impl Share {
    pub(crate) fn config(&self) -> Arc<ShareConfig> {
        Arc::clone(&self.config.read().0)
    }
}

/// All shares, by their names in upper case.
#[derive(Default)]
pub(crate) struct Shares(RwLock<BTreeMap<String, Arc<Share>>>);

/// A configuration in use.
fn in_use(config: ShareConfig) -> (Arc<ShareConfig>, SharedFolder) {
    let folder = config.files.share_folder(&config.folder);
    (Arc::new(config), folder)
}

fn key(name: &str) -> String {
    upcase::upper(name)
}

impl Shares {
    pub(crate) fn add(&self, config: ShareConfig) -> Result<(), ConfigError> {
        check_share_name(&config.name)?;
        let mut shares = self.0.write();
        if shares.contains_key(&key(&config.name)) {
            return Err(ConfigError::Exists(config.name));
        }
        let name = key(&config.name);
        let share = Share { config: RwLock::new(in_use(config)), counters: ShareCounters::default() };
        shares.insert(name, Arc::new(share));
        Ok(())
    }

    pub(crate) fn update(&self, config: ShareConfig) -> Result<Arc<Share>, ConfigError> {
        let share = self.find(&config.name).ok_or_else(|| ConfigError::Missing(config.name.clone()))?;
        *share.config.write() = in_use(config);
        Ok(share)
    }

    pub(crate) fn remove(&self, name: &str) -> Option<Arc<Share>> {
        self.0.write().remove(&key(name))
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<Share>> {
        self.0.read().get(&key(name)).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Share>> {
        self.0.read().values().cloned().collect()
    }
}
