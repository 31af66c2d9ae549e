//! Shares as the server holds them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use observe::IoTally;
use parking_lot::RwLock;
use smb_files::{FileSystem, SharedFolder};
use tcp_service::Throttle;
use tokio::sync::watch;

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
    /// Changes of rows of persistent opens that could not be made durable.
    pub(crate) unsaved: AtomicU64,
}

impl ShareCounters {
    pub(crate) fn other(&self) {
        self.metadata.fetch_add(1, Ordering::Relaxed);
    }
}

/// How far a share has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// What clients had open over it may still have to come back: nobody is connected yet.
    Prepared,
    /// Clients connect to it.
    Published,
    /// It has been taken away.
    Gone,
}

/// A share; its configuration can change while it is used.
pub(crate) struct Share {
    /// With what keeps clients from deleting its folder.
    config: RwLock<(Arc<ShareConfig>, SharedFolder)>,
    stage: watch::Sender<Stage>,
    pub(crate) counters: ShareCounters,
    /// For lines in the log about its volume that clients can cause at will.
    pub(crate) throttle: Throttle,
}

impl Share {
    pub(crate) fn config(&self) -> Arc<ShareConfig> {
        Arc::clone(&self.config.read().0)
    }

    fn is_published(&self) -> bool {
        *self.stage.borrow() == Stage::Published
    }

    /// Waits until clients may connect to it; `false` when it is taken away instead.
    async fn published(&self) -> bool {
        let mut stage = self.stage.subscribe();
        stage.wait_for(|stage| *stage != Stage::Prepared).await.is_ok_and(|stage| *stage == Stage::Published)
    }
}

/// All shares, by their names in upper case.
#[derive(Default)]
pub(crate) struct Shares {
    all: RwLock<BTreeMap<String, Arc<Share>>>,
    /// Names of those that are on their way, in upper case. Whoever waits for one of them is also told when a share is put in.
    expected: watch::Sender<BTreeSet<String>>,
}

/// A configuration in use.
fn in_use(config: ShareConfig) -> (Arc<ShareConfig>, SharedFolder) {
    let folder = config.files.share_folder(&config.folder);
    (Arc::new(config), folder)
}

fn key(name: &str) -> String {
    upcase::upper(name)
}

impl Shares {
    /// These are on their way, and no others: who connects to one of them waits until it is there.
    pub(crate) fn expect(&self, names: &[String]) {
        let names: BTreeSet<String> = names.iter().map(|name| key(name)).collect();
        self.expected.send_if_modified(|expected| {
            let changed = *expected != names;
            *expected = names;
            changed
        });
    }

    /// The share of that name when clients may connect to it, which is waited for while it is on its way; `None` when there is none or when
    /// it turns out to stay away. `waits` is called when it is not there at once.
    pub(crate) async fn arrived(&self, name: &str, mut waits: impl FnMut()) -> Option<Arc<Share>> {
        let key = key(name);
        let mut expected = self.expected.subscribe();
        loop {
            // Looked at first: what changes after this wakes us.
            let comes = expected.borrow_and_update().contains(&key);
            match self.find(name) {
                Some(share) if share.is_published() => return Some(share),
                Some(share) => {
                    waits();
                    // What clients had open comes back first.
                    if share.published().await {
                        return Some(share);
                    }
                }
                None if comes => {
                    waits();
                    expected.changed().await.ok()?;
                }
                None => return None,
            }
        }
    }

    /// Puts a share in that clients have to wait for until it is [published](Self::publish).
    pub(crate) fn prepare(&self, config: ShareConfig) -> Result<(), ConfigError> {
        check_share_name(&config.name)?;
        let mut shares = self.all.write();
        if shares.contains_key(&key(&config.name)) {
            return Err(ConfigError::Exists(config.name));
        }
        let name = key(&config.name);
        let share = Share {
            config: RwLock::new(in_use(config)),
            stage: watch::Sender::new(Stage::Prepared),
            counters: ShareCounters::default(),
            throttle: Throttle::default(),
        };
        shares.insert(name, Arc::new(share));
        drop(shares);
        self.expected.send_modify(|_| {});
        Ok(())
    }

    /// Lets clients connect to a share that was prepared; `false` when there is none of the name.
    pub(crate) fn publish(&self, name: &str) -> bool {
        let share = self.find(name);
        share.is_some_and(|share| share.stage.send_replace(Stage::Published) != Stage::Gone)
    }

    pub(crate) fn update(&self, config: ShareConfig) -> Result<Arc<Share>, ConfigError> {
        let share = self.find(&config.name).ok_or_else(|| ConfigError::Missing(config.name.clone()))?;
        *share.config.write() = in_use(config);
        Ok(share)
    }

    pub(crate) fn remove(&self, name: &str) -> Option<Arc<Share>> {
        let share = self.all.write().remove(&key(name))?;
        share.stage.send_replace(Stage::Gone);
        Some(share)
    }

    /// A share of any stage.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Share>> {
        self.all.read().get(&key(name)).cloned()
    }

    /// A share of a volume, of any stage.
    pub(crate) fn find_of(&self, name: &str, files: &FileSystem) -> Option<Arc<Share>> {
        self.find(name).filter(|share| share.config().files.is(files))
    }

    /// A share that clients may connect to.
    pub(crate) fn find_published(&self, name: &str) -> Option<Arc<Share>> {
        self.find(name).filter(|share| share.is_published())
    }

    /// All shares that clients may connect to.
    pub(crate) fn published(&self) -> Vec<Arc<Share>> {
        self.all.read().values().filter(|share| share.is_published()).cloned().collect()
    }
}
