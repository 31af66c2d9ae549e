//! Where the logs of volumes lie. A volume whose log is away knows which log it is, and not in which pool: what the node has
//! seen while both were there is kept for then.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use control_api::{LogPlace, Problem, RedundancyState};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Node;
use super::path::PATIENCE;
use super::pools::join_all;
use crate::backend::{SpaceInfo, SpaceName, log_name, log_of};
use crate::data_dir::replace_file;

/// Bytes that are read of the file at most; a log takes some 200.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Where a log was when it was last seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    pool: Uuid,
    pool_name: String,
    size_bytes: u64,
    /// The name of its space.
    space: String,
}

/// What is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Kept {
    /// By the names of their volumes.
    places: BTreeMap<String, Seen>,
    /// Those whose volumes were deleted while their pools were away: they go when the pools are back.
    doomed: Vec<Seen>,
    /// The spaces that each pool held when it was last open: what is away with it, at a start without it. Earlier releases kept their
    /// names only.
    #[serde(alias = "held")]
    spaces: BTreeMap<Uuid, Vec<SpaceName>>,
}

/// Where logs were when they were last seen.
pub(super) struct LogPlaces {
    path: PathBuf,
    kept: Mutex<Kept>,
}

impl LogPlaces {
    /// What is known so far. A file that cannot be read costs explanations, not a start.
    pub(super) fn open(path: PathBuf) -> Self {
        let kept = read(&path).unwrap_or_else(|error| {
            tracing::warn!(
                "in which pools the logs of volumes lie is not known until they are seen: {}: {error}",
                path.display()
            );
            Kept::default()
        });
        Self { path, kept: Mutex::new(kept) }
    }

    /// The spaces that a pool held when it was last open; none if it never was.
    pub(super) fn held(&self, pool: Uuid) -> Option<Vec<SpaceName>> {
        self.kept.lock().spaces.get(&pool).cloned()
    }

    /// Forgets what a pool held, which is not this node's any more.
    pub(super) fn forget_pool(&self, pool: Uuid) {
        self.change(|kept| {
            kept.spaces.remove(&pool);
        });
    }

    fn of(&self, volume: &str) -> Option<Seen> {
        self.kept.lock().places.get(volume).cloned()
    }

    /// Takes down where logs are, and that volumes have none.
    fn note(&self, seen: Vec<(String, Option<Seen>)>) {
        self.change(|kept| {
            for (volume, place) in seen {
                match place {
                    Some(place) => kept.places.insert(volume, place),
                    None => kept.places.remove(&volume),
                };
            }
        });
    }

    /// Changes what is kept. Blocks on the data directory's disk when that differs then.
    fn change(&self, change: impl FnOnce(&mut Kept)) {
        let mut kept = self.kept.lock();
        let before = kept.clone();
        change(&mut kept);
        if *kept == before {
            return;
        }
        let text = serde_json::to_vec_pretty(&*kept).map_err(io::Error::other);
        if let Err(error) = text.and_then(|text| replace_file(&self.path, &text)) {
            tracing::warn!(
                "in which pools the logs of volumes lie will not be known after a restart: {}: {error}",
                self.path.display()
            );
        }
    }
}

fn read(path: &PathBuf) -> io::Result<Kept> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Kept::default()),
        Err(error) => Err(error),
        Ok(meta) if meta.len() > MAX_FILE_BYTES => {
            Err(io::Error::other(format!("it has {} bytes", meta.len())))
        }
        Ok(_) => serde_json::from_slice(&fs::read(path)?).map_err(io::Error::other),
    }
}

impl Node {
    /// Takes down what open pools hold, so that it can be told of when they are away.
    fn note_held(&self) {
        let open: Vec<(Uuid, Vec<SpaceName>)> = self
            .open_handles()
            .into_iter()
            .map(|(pool, handle)| {
                let mut names = handle.space_names();
                names.sort();
                (pool, names)
            })
            .collect();
        self.logs.change(|kept| kept.spaces.extend(open));
    }

    /// Takes down where the logs of open volumes lie, and what pools hold.
    pub(super) fn note_logs(&self) {
        self.note_held();
        let handles: Vec<_> = {
            let volumes = self.volumes.lock();
            volumes.iter().filter_map(|(name, slot)| Some((name.clone(), slot.handle.clone()?))).collect()
        };
        let mut seen = Vec::new();
        for (volume, handle) in handles {
            match handle.log() {
                None => seen.push((volume, None)),
                // One whose pool is away stays where it was.
                Some(_) => {
                    let found = self.log_name(&volume).and_then(|log| self.find_log(&log));
                    seen.extend(found.map(|(place, _)| (volume, Some(place))));
                }
            }
        }
        self.logs.note(seen);
    }

    /// Forgets the log of a volume that was deleted, whose space has this name. Where its pool is away, or has stopped, it goes when
    /// the pool is back.
    pub(super) fn forget_log(&self, volume: &str, log: &str) {
        let open = self.open_handles();
        let is_gone = |seen: &Seen| {
            let pool = open.iter().find(|(pool, _)| *pool == seen.pool);
            pool.is_some_and(|(_, pool)| pool.space_names().iter().all(|space| space.name != seen.space))
        };
        self.logs.change(|kept| {
            // What is known under this name may be of another volume, in a pool that is away.
            if kept.places.get(volume).is_some_and(|seen| seen.space == log) {
                let left = kept.places.remove(volume).filter(|seen| !is_gone(seen));
                kept.doomed.extend(left);
            }
        });
        self.note_held();
    }

    /// Deletes the spaces of logs whose volumes were deleted before; never one whose volume is known.
    async fn delete_doomed(&self) {
        let doomed = self.logs.kept.lock().doomed.clone();
        for seen in doomed {
            let open = self.open_handles().into_iter().find(|(pool, _)| *pool == seen.pool);
            let Some((_, handle)) = open.filter(|(_, handle)| !handle.has_stopped()) else { continue };
            let is_needed = self.holders().iter().any(|holder| holder.is_home_of(&seen.space));
            if !is_needed && handle.space_names().iter().any(|space| space.name == seen.space) {
                if let Err(problem) = handle.delete_space(&seen.space).await {
                    tracing::warn!(pool = seen.pool_name, %problem, "the space of a log whose volume was deleted stays");
                    continue;
                }
                tracing::info!(
                    pool = seen.pool_name,
                    "the space of a log whose volume was deleted is deleted"
                );
            }
            self.logs.change(|kept| kept.doomed.retain(|there| *there != seen));
        }
    }

    /// The name that the space of a volume's log has, if the volume is in an open pool.
    fn log_name(&self, volume: &str) -> Option<String> {
        let pool = self.volumes.lock().get(volume)?.pool;
        let (_, handle) = self.open_handles().into_iter().find(|(guid, _)| *guid == pool)?;
        let space = handle.space_names().into_iter().find(|space| space.name == volume)?;
        Some(log_name(volume, &space.guid?.to_string()))
    }

    /// The space of this name, of a log, in an open pool.
    fn find_log(&self, log: &str) -> Option<(Seen, SpaceInfo)> {
        self.open_handles().into_iter().find_map(|(pool, handle)| {
            handle.space_names().iter().find(|space| space.name == log)?;
            let info = handle.info();
            let space = info.spaces.into_iter().find(|space| space.state.name == log)?;
            let (size_bytes, name) = (space.size_bytes, space.state.name.clone());
            Some((Seen { pool, pool_name: info.name, size_bytes, space: name }, space))
        })
    }

    /// Where the log of the volume in this space lies; none if it has none. `is_missing` says that the volume is closed for want of
    /// it, `has_log` that it is open and has one.
    pub(super) fn log_place(
        &self,
        volume: &SpaceInfo,
        is_open: bool,
        has_log: bool,
        is_missing: bool,
    ) -> Option<LogPlace> {
        if is_open && !has_log {
            return None;
        }
        let log = volume.log_name();
        if let Some((seen, space)) = self.find_log(&log) {
            return Some(LogPlace {
                pool: Some(seen.pool_name),
                size_bytes: Some(seen.size_bytes),
                there: space.state.redundancy != RedundancyState::Unavailable,
            });
        }
        let seen = self.logs.of(&volume.state.name).filter(|seen| seen.space == log);
        if seen.is_none() && !has_log && !is_missing {
            return None;
        }
        let pool =
            seen.as_ref().map(|seen| self.pool_name(seen.pool).unwrap_or_else(|| seen.pool_name.clone()));
        Some(LogPlace { pool, size_bytes: seen.map(|seen| seen.size_bytes), there: false })
    }

    /// The name of a pool of the configuration, open or not.
    pub(super) fn pool_name(&self, guid: Uuid) -> Option<String> {
        self.pools.lock().get(&guid).map(|slot| slot.name.clone())
    }

    /// Says of a volume that cannot be opened without its log where the log is, and what can be done.
    pub(super) fn explain_missing_log(&self, volume: &str, log: &str, problem: Problem) -> Problem {
        let may_hold = "the log may hold acknowledged data";
        let give_up =
            format!("`holdfast volume give-up-log {volume}` opens it without what is only in its log.");
        let (detail, todo) = match self.logs.of(volume).filter(|seen| seen.space == log) {
            Some(seen) => {
                let slots = self.pools.lock();
                let slot = slots.get(&seen.pool);
                let name = slot.map_or(&seen.pool_name, |slot| &slot.name);
                let (state, todo) = match slot {
                    Some(slot) if slot.handle.is_none() => (
                        format!("is not open: {}", slot.reason.as_deref().unwrap_or("it is being opened")),
                        format!("Bring the disks of pool {name} back; the volume is opened with it."),
                    ),
                    Some(_) => (
                        "does not have it any more".to_owned(),
                        format!("Bring back the disks of pool {name} that had it."),
                    ),
                    None => (
                        "is not this node's any more".to_owned(),
                        format!(
                            "`holdfast pool import {name}` takes the pool over, and the volume is opened with it."
                        ),
                    ),
                };
                (
                    format!("its log lies in pool {name}, which {state}; {may_hold}"),
                    format!("{todo} If the log is lost for good: {give_up}"),
                )
            }
            None => {
                let slots = self.pools.lock();
                let closed: Vec<&str> = slots
                    .values()
                    .filter(|slot| slot.handle.is_none())
                    .map(|slot| slot.name.as_str())
                    .collect();
                let closed = match closed.as_slice() {
                    [] => String::new(),
                    names => format!(" (not open: {})", names.join(", ")),
                };
                (
                    format!("its log is in no pool that is open{closed}; {may_hold}"),
                    format!(
                        "Bring back the pool that its log lies in; the volume is opened with it. If the log is lost for good: {give_up}"
                    ),
                )
            }
        };
        Problem::new(problem.code, detail).todo(todo)
    }

    /// Deletes spaces of logs that no volume asks for any more: their pool was away when the log was removed. A pool that does not
    /// answer is not waited for: they go when it does.
    pub(super) async fn delete_leftovers(&self) {
        // What is under way goes on by itself.
        let _ = tokio::time::timeout(PATIENCE, self.delete_doomed()).await;
        let handles = self.open_handles();
        let deleting = handles.iter().map(|(_, handle)| async move {
            let _ = tokio::time::timeout(PATIENCE, handle.delete_leftovers()).await;
        });
        join_all(deleting.collect()).await;
        self.note_held();
    }

    /// Whether the volume whose log has this name is open and works.
    pub(super) fn serves_without(&self, log: &str) -> bool {
        log_of(log).is_some_and(|volume| {
            self.volume(volume).is_ok_and(|handle| handle.why_stopped().is_none())
                && self.log_name(volume).is_some_and(|own| own == log)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(name: &str) -> Seen {
        let space = "v.01234567.write-log".into();
        Seen { pool: Uuid::from_u128(1), pool_name: name.into(), size_bytes: 1 << 30, space }
    }

    #[test]
    fn places_outlive_the_node_until_there_is_no_log() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("logs.json");
        let places = LogPlaces::open(path.clone());
        places.note(vec![("v".into(), Some(seen("fast"))), ("w".into(), Some(seen("fast")))]);
        let again = LogPlaces::open(path.clone());
        assert_eq!(again.of("v"), Some(seen("fast")));
        again.note(vec![("v".into(), None)]);
        let last = LogPlaces::open(path);
        assert_eq!((last.of("v"), last.of("w")), (None, Some(seen("fast"))));
    }

    #[test]
    fn a_damaged_file_costs_explanations_only() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("logs.json");
        fs::write(&path, "[1").expect("written");
        let places = LogPlaces::open(path.clone());
        places.note(vec![("v".into(), Some(seen("fast")))]);
        assert_eq!(read(&path).expect("whole again").places.len(), 1);
    }
}
