//! The configuration in memory and on disk.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cluster_store::keys::ClusterName;
use cluster_store::values::ConfigHead;
use cluster_store::{ClusterStore, Revision};
use control_api::{Code, Config, Problem, SharedConfig};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::cluster::config::{Fate, Written};
use crate::cluster::{ConfigSeal, Removal, config, removed};
use crate::data_dir::replace_file;

/// Largest configuration file that is read, in bytes: 65,536 LUNs take about 30 MB.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// A change is made anew on what others have changed so often, each time after a longer pause of chance.
const TRIES: u32 = 8;
/// The longest that the first of these pauses is, in milliseconds.
const PAUSE_MILLIS: u64 = 16;
/// What became of a change that had no answer is asked so often.
const ASKS: u32 = 3;

/// First lines of the file, for who opens it.
const HEADER: &str = "# Configuration of a Holdfast node. Written by the node: change it with `holdfast config apply FILE`\n\
                      # or the other commands, not here. It may hold secrets.\n\n";

/// The configuration of the node.
#[derive(Debug)]
pub struct ConfigStore {
    path: PathBuf,
    now: Mutex<Current>,
    /// Held by whoever makes a change, from looking at what is there to replacing it.
    changing: Mutex<()>,
    /// Where the part is that other nodes have in common with this one; nothing on a node of its own.
    shared: OnceLock<Shared>,
    /// Something of other nodes was taken up, and this node does not serve by it yet.
    news: AtomicBool,
}

/// Where the shared part is kept. The file has the one that was known last.
struct Shared {
    store: Arc<dyn ClusterStore>,
    cluster: ClusterName,
    seal: ConfigSeal,
    runtime: Handle,
    /// When the cluster has removed this node, what is shared is not this node's any more.
    removal: Removal,
    /// That of the configuration in memory.
    head: Mutex<Option<(Revision, ConfigHead)>>,
}

impl Shared {
    fn has_ended(&self) -> bool {
        self.removal.is_so()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Shared").field(&self.cluster).finish()
    }
}

/// The configuration at one moment.
#[derive(Clone, Debug)]
pub struct Current {
    /// Rises with each change in this process: of two, the one with the higher number is the newer one.
    pub revision: u64,
    /// What it says.
    pub config: Arc<Config>,
}

impl ConfigStore {
    /// Reads the configuration, or starts with an empty one.
    ///
    /// # Errors
    /// When the file is there and cannot be understood: a node that forgot its LUNs is worse than one that
    /// doesn't start.
    pub fn open(path: PathBuf) -> Result<Self, Problem> {
        let bad = |why: String| {
            Problem::new(Code::Damaged, format!("configuration {}: {why}", path.display()))
                .todo("Repair the file, or move it away to start with an empty configuration and put a saved one back with `holdfast config apply`.")
        };
        let config = match fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Config::default(),
            Err(error) => return Err(bad(error.to_string())),
            Ok(meta) if meta.len() > MAX_FILE_BYTES => {
                return Err(bad(format!("it has {} bytes", meta.len())));
            }
            Ok(_) => {
                let text = fs::read_to_string(&path).map_err(|error| bad(error.to_string()))?;
                let config: Config = toml::from_str(&text).map_err(|error| bad(error.to_string()))?;
                config.check().map_err(|problem| bad(problem.to_string()))?;
                config
            }
        };
        let now = Current { revision: 0, config: Arc::new(config) };
        Ok(Self {
            path,
            now: Mutex::new(now),
            changing: Mutex::default(),
            shared: OnceLock::new(),
            news: AtomicBool::new(false),
        })
    }

    /// The configuration now.
    #[must_use]
    pub fn get(&self) -> Config {
        (*self.current().config).clone()
    }

    /// The same with its number, not copied.
    #[must_use]
    pub fn current(&self) -> Current {
        self.now.lock().clone()
    }

    /// Looks at the configuration now, without copying it.
    pub fn with<T>(&self, look: impl FnOnce(&Config) -> T) -> T {
        look(&self.current().config)
    }

    /// Changes the configuration: checks it, makes it durable, then shows it. Blocks on the disk: not for
    /// shards. Changes come one after the other, each with what the one before has left. Whoever has decided by what it saw earlier
    /// holds the node's change lock, or looks again in `change`.
    ///
    /// # Errors
    /// Those of `change`, of the check, and of the disk; the configuration is then as it was.
    ///
    /// On a node of a cluster what all nodes have in common is changed in the shared store, for all of them, or not at all; blocks on that,
    /// too, on a thread of a runtime that has several. When another node was faster, `change` is called again with what is there then.
    pub fn change<T>(&self, change: impl FnMut(&mut Config) -> Result<T, Problem>) -> Result<T, Problem> {
        match self.shared.get() {
            None => self.change_alone(change),
            // The lock is waited for in there, too: who waits for it must not keep the store's tasks from running.
            Some(shared) => block_in_place(|| self.change_shared(shared, change)),
        }
    }

    /// From now on the shared part is in a store. To be called before the node begins. When the cluster has removed this node, nothing of what is
    /// shared is taken up or changed any more; what is this node's own is.
    pub(crate) fn share(
        &self,
        store: Arc<dyn ClusterStore>,
        cluster: ClusterName,
        seal: ConfigSeal,
        runtime: Handle,
        removal: Removal,
    ) {
        let _ = self.shared.set(Shared { store, cluster, seal, runtime, removal, head: Mutex::default() });
    }

    /// Takes up what other nodes have changed. The first node of a cluster gives what it has. Blocks as [`Self::change`] does.
    /// [`Self::take_news`] says whether that was something.
    ///
    /// # Errors
    /// When it cannot be read, or makes no sense here: what was known stays.
    pub(crate) fn catch_up(&self) -> Result<(), Problem> {
        let Some(shared) = self.shared.get().filter(|shared| !shared.has_ended()) else { return Ok(()) };
        block_in_place(|| {
            let _changing = self.changing.lock();
            self.adopt(shared)?;
            if shared.head.lock().is_none() {
                let (own, _) = self.get().split();
                // Another node may have given its own first: that is taken up the next time.
                self.publish(shared, &own, &own)?;
            }
            Ok(())
        })
    }

    /// Whether something was taken up of other nodes since this was asked the last time: whoever asks serves by all of it. What a node
    /// changes itself takes up what others have changed before, and puts into effect its own change alone.
    pub(crate) fn take_news(&self) -> bool {
        self.news.swap(false, Ordering::AcqRel)
    }

    /// Takes up what is in the store.
    fn adopt(&self, shared: &Shared) -> Result<(), Problem> {
        let known = shared.head.lock().as_ref().map(|(at, _)| *at);
        let reading = config::read(&*shared.store, &shared.cluster, &shared.seal, known);
        let Some(stored) = shared.runtime.block_on(reading)? else { return Ok(()) };
        if let Some(theirs) = stored.config {
            let Current { revision, config: before } = self.current();
            let joined = Config::join(theirs, (*before).clone().split().1);
            joined.check()?;
            if joined != *before {
                self.keep(&joined);
                *self.now.lock() = Current { revision: revision + 1, config: Arc::new(joined) };
                self.news.store(true, Ordering::Release);
            }
        }
        *shared.head.lock() = stored.head;
        Ok(())
    }

    /// Replaces what is in the store, `before`, by `config`. False: somebody else has replaced it first.
    ///
    /// # Errors
    /// When it was certainly not replaced; or when nobody knows, which the problem says.
    fn publish(
        &self,
        shared: &Shared,
        before: &SharedConfig,
        config: &SharedConfig,
    ) -> Result<bool, Problem> {
        let seen = shared.head.lock().clone();
        let write = |config: &SharedConfig| {
            let writing = config::write(&*shared.store, &shared.cluster, &shared.seal, seen.as_ref(), config);
            shared.runtime.block_on(writing)
        };
        let is_now = |head| *shared.head.lock() = Some(head);
        let (tried, problem) = match write(config)? {
            Written::Made(head) => {
                is_now(head);
                return Ok(true);
            }
            Written::Passed => return Ok(false),
            Written::Unknown(tried, problem) => (tried, problem),
        };
        // Whoever asked for the change undoes what belongs to it when it was not made: that has to be certain.
        for _ in 0..ASKS {
            let asking = config::became_of(&*shared.store, &shared.cluster, seen.as_ref(), &tried);
            match shared.runtime.block_on(asking) {
                Ok(Fate::Made(head)) => {
                    is_now(head);
                    return Ok(true);
                }
                Ok(Fate::Passed) => return Ok(false),
                Ok(Fate::Lost) => break,
                // It may still be on its way: writing the same once more makes its condition untrue for ever.
                Ok(Fate::Open) => {
                    if let Ok(Written::Made(head)) = write(before) {
                        is_now(head);
                        return Err(problem.todo("Nothing was changed. Try again."));
                    }
                }
                Err(_) => {}
            }
        }
        Err(problem)
    }

    /// Keeps a copy of what is in the store.
    fn keep(&self, config: &Config) {
        if let Err(problem) = self.save(config) {
            tracing::error!(%problem, "the node does not know the configuration of its cluster after a restart without etcd");
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "it is called where a change may wait for the store of the cluster"
    )]
    fn change_shared<T>(
        &self,
        shared: &Shared,
        mut change: impl FnMut(&mut Config) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        for tried in 0..TRIES {
            if tried > 0 {
                let chance = getrandom::u64().unwrap_or_default() % (PAUSE_MILLIS << tried);
                std::thread::sleep(Duration::from_millis(chance));
            }
            let _changing = self.changing.lock();
            // What others have changed comes first. Without the store only what is this node's own is changed.
            let known = if shared.has_ended() { Err(removed()) } else { self.adopt(shared) };
            let Current { revision, config: before } = self.current();
            let mut config = (*before).clone();
            let value = change(&mut config)?;
            config.check()?;
            config.check_changed(&before)?;
            if config == *before {
                return Ok(value);
            }
            let ((ours, own), (theirs, own_before)) = (config.clone().split(), (*before).clone().split());
            if ours != theirs {
                known?;
                if !self.publish(shared, &theirs, &ours)? {
                    continue;
                }
            }
            let kept = if own == own_before {
                self.keep(&config);
                Ok(())
            } else {
                self.save(&config)
            };
            if ours != theirs || kept.is_ok() {
                *self.now.lock() = Current { revision: revision + 1, config: Arc::new(config) };
            }
            return kept.map(|()| value);
        }
        Err(config::passed())
    }

    fn change_alone<T>(
        &self,
        mut change: impl FnMut(&mut Config) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let _changing = self.changing.lock();
        let Current { revision, config: before } = self.current();
        let mut config = (*before).clone();
        let value = change(&mut config)?;
        config.check()?;
        config.check_changed(&before)?;
        if config != *before {
            self.save(&config)?;
            *self.now.lock() = Current { revision: revision + 1, config: Arc::new(config) };
        }
        Ok(value)
    }

    fn save(&self, config: &Config) -> Result<(), Problem> {
        let text = toml::to_string_pretty(config).map_err(|error| {
            Problem::new(Code::Internal, format!("configuration can't be written: {error}"))
        })?;
        replace_file(&self.path, format!("{HEADER}{text}").as_bytes()).map_err(|error| {
            Problem::new(Code::Io, format!("configuration {}: {error}", self.path.display()))
                .todo("The change was not made. Make space or repair the file system of the data directory.")
        })
    }
}

#[cfg(test)]
mod tests {
    use control_api::GroupConfig;

    use super::*;

    #[test]
    fn changes_survive_and_wrong_ones_leave_no_trace() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("config.toml");
        let store = ConfigStore::open(path.clone()).expect("empty");
        let group = |name: &str| GroupConfig { name: name.into(), initiators: vec![], any: true };
        store
            .change(|config| {
                config.groups.push(group("all"));
                Ok(())
            })
            .expect("right");
        store
            .change(|config| {
                config.groups.push(group("all"));
                Ok(())
            })
            .expect_err("twice");
        let there = ConfigStore::open(path).expect("readable").get();
        assert_eq!(there, store.get());
        assert_eq!(there.groups.len(), 1);
    }

    /// A rule may be newer than what was made before it: that stays, and only new things are refused.
    #[test]
    fn what_was_valid_when_it_was_written_is_loaded() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("config.toml");
        let policy = |guid: u128, name: &str, max_iops| control_api::Policy {
            guid: uuid::Uuid::from_u128(guid),
            name: name.into(),
            kind: control_api::PolicyKind::Dedicated,
            min_iops: None,
            max_iops: Some(max_iops),
            max_bandwidth: None,
        };
        let like_a_guid = uuid::Uuid::from_u128(7).to_string();
        let old = Config {
            qos_policies: vec![policy(1, "slow", 5), policy(2, &like_a_guid, 100)],
            ..Config::default()
        };
        fs::write(&path, toml::to_string_pretty(&old).expect("TOML")).expect("written");
        let store = ConfigStore::open(path.clone()).expect("it was valid");
        let add = |wanted: control_api::Policy| {
            store.change(|config| {
                config.qos_policies.push(wanted.clone());
                Ok(())
            })
        };
        add(policy(3, "gold", 100)).expect("it has nothing to do with the others");
        assert_eq!(add(policy(4, "slower", 5)).expect_err("new").code, Code::InvalidRequest);
        assert_eq!(
            add(policy(5, &like_a_guid.to_uppercase(), 100)).expect_err("new").code,
            Code::InvalidRequest
        );
        let copy = store.get();
        let apply = |config: &mut Config| {
            *config = copy.clone();
            Ok(())
        };
        store.change(apply).expect("a saved copy is applied");
        assert_eq!(ConfigStore::open(path).expect("readable").get().qos_policies.len(), 3);
    }

    /// A change of this node that is refused, or that concerns one pool only, hides nothing of what another node has changed before.
    #[tokio::test(flavor = "multi_thread")]
    async fn what_a_change_takes_up_of_others_is_news_all_the_same() {
        let dir = tempfile::tempdir().expect("temp dir");
        let there = cluster_store::LocalStore::open(&dir.path().join("store")).expect("a new one");
        let there: Arc<dyn ClusterStore> = Arc::new(there);
        let name = ClusterName::new("c").expect("a name");
        let node = |file: &str| {
            let store = ConfigStore::open(dir.path().join(file)).expect("empty");
            let seal = ConfigSeal::new(b"secret", &name);
            store.share(there.clone(), name.clone(), seal, Handle::current(), Removal::default());
            store.catch_up().expect("readable");
            store
        };
        let add = |store: &ConfigStore, name: &str| {
            store.change(|config| {
                config.groups.push(GroupConfig { name: name.into(), initiators: vec![], any: true });
                Ok(())
            })
        };
        let (ours, theirs) = (node("ours.toml"), node("theirs.toml"));
        assert!(!ours.take_news());
        add(&theirs, "g").expect("made");
        add(&ours, "g").expect_err("it is there");
        ours.catch_up().expect("readable");
        assert!(ours.take_news(), "nothing serves by it yet");
        assert!(!ours.take_news());
        add(&ours, "h").expect("made");
        assert!(!ours.take_news(), "that was this node itself");
    }

    #[test]
    fn damaged_file_is_not_taken_for_an_empty_one() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("config.toml");
        fs::write(&path, "schema = 1\n[[lun").expect("written");
        assert_eq!(ConfigStore::open(path).expect_err("damaged").code, Code::Damaged);
    }
}
