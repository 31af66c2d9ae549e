//! Snapshots of a worker's directory: each holds what the worker's files held when it was asked for, and never changes.
//!
//! A worker that takes one does nothing else meanwhile; the others and the background go on. So what is in it is known
//! as well as the files are: their histories at that moment, after a flush.

use std::collections::BTreeMap;
use std::rc::Rc;

use aligned_buffer::IoBuf;
use file_store::{
    Access, FileId, FileStore, NewSnapshot, OpenOptions, SnapshotId, SnapshotStore, StoreError,
    StoreErrorKind,
};
use sim::SECTOR;
use volume::Volume;

use super::Run;
use super::model::{INNER, Part};
use super::worker::{Stop, Worker};
use crate::history::{History, Value};

/// Snapshots that a worker keeps at most: they hold space.
const KEPT: usize = 2;

/// A snapshot that was asked for.
pub(crate) struct FrozenModel {
    name: String,
    /// By name: what the file held, and how many sectors it had.
    files: BTreeMap<String, (History, u64)>,
    /// Whether it must be there, and whether it may be.
    must: bool,
    may: bool,
}

impl Worker<'_> {
    /// Takes a snapshot, or deletes the oldest.
    pub(super) async fn snapshot(&self) -> Result<(), Stop> {
        let there = self.part.frozen.borrow().iter().filter(|frozen| frozen.may).count();
        if there >= KEPT || (there > 0 && self.dice.one_in(3)) {
            return self.thaw().await;
        }
        let since = self.run.mark();
        let name = format!("s{}-{}", self.number, self.run.model.next_generation());
        let (mut files, mut moments) = (BTreeMap::new(), Vec::new());
        for (name, file) in self.part.names.borrow().iter() {
            let began = file.history.borrow_mut().moment();
            let mut history = file.history.borrow().clone();
            history.flushed(began);
            files.insert(name.clone(), (history, file.sizes.borrow().live));
            moments.push((Rc::clone(file), began));
        }
        self.run.rig.trace(|| format!("snapshot {name} of {} files", files.len()));
        self.part.frozen.borrow_mut().push(FrozenModel { name: name.clone(), files, must: false, may: true });
        let new = NewSnapshot {
            name: name.clone(),
            source: FileId(self.part.directory.get()),
            quiesce: self.dice.one_in(2),
            maker: String::new(),
            path: String::new(),
        };
        let taken = self.volume.take_snapshot(new).await;
        let mut frozen = self.part.frozen.borrow_mut();
        match taken {
            Ok(_) => {
                self.run.rig.answered();
                self.run.flushed(&since);
                frozen.last_mut().into_iter().for_each(|frozen| frozen.must = true);
                drop(frozen);
                moments.into_iter().for_each(|(file, began)| file.history.borrow_mut().flushed(began));
                Ok(())
            }
            Err(error) => {
                if error.kind() == StoreErrorKind::NoSpace {
                    frozen.pop();
                }
                drop(frozen);
                self.judge("a snapshot", &error, &since)
            }
        }
    }

    async fn thaw(&self) -> Result<(), Stop> {
        let since = self.run.mark();
        let name =
            self.part.frozen.borrow().iter().find(|frozen| frozen.may).map(|frozen| frozen.name.clone());
        let Some(name) = name else { return Ok(()) };
        let id = match find(self.volume, &name).await {
            Ok(Some(id)) => id,
            Ok(None) => {
                self.run.rig.broken(format!("snapshot {name} is not there"));
                return Err(Stop);
            }
            Err(error) => return self.judge("a list of snapshots", &error, &since).and(Err(Stop)),
        };
        let set = |must: bool, may: bool| {
            let mut frozen = self.part.frozen.borrow_mut();
            frozen.iter_mut().filter(|frozen| frozen.name == name).for_each(|frozen| {
                frozen.must = must;
                frozen.may = may;
            });
        };
        set(false, true);
        self.run.rig.trace(|| format!("snapshot {name} goes"));
        match self.volume.delete_snapshot(id.0).await {
            Ok(()) => {
                self.run.rig.answered();
                set(false, false);
                Ok(())
            }
            Err(error) => self.judge("a deletion of a snapshot", &error, &since),
        }
    }
}

async fn find(volume: &Volume, name: &str) -> Result<Option<(SnapshotId, FileId)>, StoreError> {
    let all = volume.snapshots().await?;
    Ok(all.into_iter().find(|snapshot| snapshot.name == name).map(|snapshot| (snapshot.id, snapshot.root)))
}

/// After an opening: the snapshots of a part are those that must be and may be there, and hold what they held. `Err`
/// says what is wrong, if that is not excused.
pub(super) async fn compare(run: &Rc<Run>, volume: &Volume, part: &Part) -> Result<(), Option<String>> {
    let known: Vec<FrozenModel> = std::mem::take(&mut *part.frozen.borrow_mut());
    let mut kept = Vec::new();
    for mut frozen in known {
        let found = find(volume, &frozen.name).await.map_err(|error| judged(run, &error))?;
        let Some((_, root)) = found else {
            if frozen.must {
                return Err(Some(format!("snapshot {} is gone", frozen.name)));
            }
            continue;
        };
        if !frozen.may {
            return Err(Some(format!("snapshot {} was deleted, and is there", frozen.name)));
        }
        frozen.must = true;
        for (name, (history, sectors)) in &frozen.files {
            one_file(run, volume, root, name, history, *sectors)
                .await
                .map_err(|what| what.map(|what| format!("snapshot {}: {name} {what}", frozen.name)))?;
        }
        kept.push(frozen);
    }
    *part.frozen.borrow_mut() = kept;
    Ok(())
}

/// What a failure says, if nothing excuses it.
fn judged(run: &Run, error: &StoreError) -> Option<String> {
    (!run.excuses(error, &run.mark()))
        .then(|| format!("after the opening a snapshot cannot be read: {error}"))
}

async fn one_file(
    run: &Rc<Run>,
    volume: &Volume,
    root: FileId,
    name: &str,
    history: &History,
    sectors: u64,
) -> Result<(), Option<String>> {
    let failed = |error: StoreError| judged(run, &error);
    let (directory, name) = match name.split_once('/') {
        Some((_, name)) => (volume.lookup(root, INNER).await.map_err(failed)?.file, name),
        None => (root, name),
    };
    let file = volume.lookup(directory, name).await.map_err(failed)?.file;
    let open = volume.open(file, OpenOptions::shared(Access::READ)).await.map_err(failed)?;
    if open.size() != sectors * SECTOR as u64 {
        return Err(Some(format!("has {} bytes, not {sectors} sectors", open.size())));
    }
    let bytes = match open.read(0, IoBuf::new(open.size() as usize)).await {
        Err(error) if error.kind() == StoreErrorKind::Io && run.rig.excuses_failure() => return Ok(()),
        bytes => bytes.map_err(failed)?,
    };
    run.rig.stats.borrow_mut().sectors += sectors;
    for (sector, bytes) in bytes.chunks(SECTOR).enumerate() {
        history
            .admits(sector, Value::of(bytes))
            .map_err(|what| Some(format!("holds in sector {sector} {what}")))?;
    }
    Ok(())
}
