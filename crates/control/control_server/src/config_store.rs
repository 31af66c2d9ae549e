//! The configuration in memory and on disk.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use control_api::{Code, Config, Problem};
use parking_lot::Mutex;

use crate::data_dir::replace_file;

/// Largest configuration file that is read, in bytes: 65,536 LUNs take about 30 MB.
const MAX_FILE_BYTES: u64 = 64 << 20;

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
        Ok(Self { path, now: Mutex::new(now), changing: Mutex::default() })
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
    pub fn change<T>(&self, change: impl FnOnce(&mut Config) -> Result<T, Problem>) -> Result<T, Problem> {
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
                config.qos_policies.push(wanted);
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
            *config = copy;
            Ok(())
        };
        store.change(apply).expect("a saved copy is applied");
        assert_eq!(ConfigStore::open(path).expect("readable").get().qos_policies.len(), 3);
    }

    #[test]
    fn damaged_file_is_not_taken_for_an_empty_one() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("config.toml");
        fs::write(&path, "schema = 1\n[[lun").expect("written");
        assert_eq!(ConfigStore::open(path).expect_err("damaged").code, Code::Damaged);
    }
}
