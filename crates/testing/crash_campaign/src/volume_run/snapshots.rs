//! Snapshots of a worker's directory, or of one of its files: each holds what they held when it was asked for, and never
//! changes; and files that are cloned from one.
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
use super::model::{FileModel, Frozen, FrozenModel, INNER, Part};
use super::worker::{Stop, Worker};
use crate::history::Value;

/// Snapshots that a worker keeps at most: they hold space.
const KEPT: usize = 2;

impl Worker<'_> {
    /// Takes a snapshot, or deletes the oldest.
    pub(super) async fn snapshot(&self) -> Result<(), Stop> {
        let there = self.part.frozen.borrow().iter().filter(|frozen| frozen.may).count();
        if there >= KEPT || (there > 0 && self.dice.one_in(3)) {
            return self.thaw().await;
        }
        let since = self.run.mark();
        let changes = self.run.model.changes();
        let name = format!("s{}-{}", self.number, self.run.model.next_generation());
        let (mut files, mut moments) = (BTreeMap::new(), Vec::new());
        let names = self.part.names.borrow().clone();
        let all: Vec<_> = names.into_iter().collect();
        let alone = self.dice.pick(&all).cloned().filter(|_| self.dice.one_in(3));
        let source =
            alone.as_ref().map_or(self.part.directory.get(), |(_, file)| file.id.get().unwrap_or_default());
        let taken = match alone {
            Some((_, file)) => vec![(String::new(), file)],
            None => all,
        };
        for (name, file) in taken {
            let (frozen, began) = Frozen::of(&file);
            files.insert(name, frozen);
            moments.push((file, began));
        }
        self.run.rig.trace(|| format!("snapshot {name} of {} files", files.len()));
        self.part.frozen.borrow_mut().push(FrozenModel { name: name.clone(), files, must: false, may: true });
        let new = NewSnapshot {
            name: name.clone(),
            source: FileId(source),
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
                self.run.model.durable(changes);
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

impl Worker<'_> {
    /// Makes a file that is what a file of a snapshot was.
    pub(super) async fn clone_from_snapshot(&self) -> Result<(), Stop> {
        let to = self.name();
        let chosen = {
            let frozen = self.part.frozen.borrow();
            let usable: Vec<&FrozenModel> = frozen.iter().filter(|frozen| frozen.must).collect();
            let chosen = self.dice.pick(&usable).and_then(|frozen| {
                let files: Vec<_> = frozen.files.iter().collect();
                self.dice
                    .pick(&files)
                    .map(|(name, file)| (frozen.name.clone(), (*name).clone(), self.thawed(file)))
            });
            match chosen {
                Some((snapshot, name, Some(file))) => (snapshot, name, file),
                _ => return Ok(()),
            }
        };
        let (snapshot, name, file) = chosen;
        if self.part.names.borrow().contains_key(&to) {
            return Ok(());
        }
        let since = self.run.mark();
        let found = match find(self.volume, &snapshot).await {
            Ok(Some((_, root))) => within(self.volume, root, &name).await,
            Ok(None) => {
                self.run.rig.broken(format!("snapshot {snapshot} is not there"));
                return Err(Stop);
            }
            Err(error) => Err(error),
        };
        let source = match found {
            Ok(source) => source,
            Err(error) => return self.judge("looking into a snapshot", &error, &since).and(Err(Stop)),
        };
        self.run.rig.trace(|| format!("clone {to} (owner {}) of {name} in snapshot {snapshot}", file.owner));
        let since = self.ask(|names| drop(names.insert(to.clone(), Rc::clone(&file))));
        let (directory, name) = self.part.place(&to);
        let made = self.volume.clone_tree(source, directory, name).await;
        if let Ok(id) = &made {
            file.id.set(Some(id.0));
        }
        self.answered("a clone from a snapshot", made.map(drop), &since)
    }

    /// The file that a clone of a frozen one is; `None` when it is not known for certain what that holds.
    fn thawed(&self, frozen: &Frozen) -> Option<Rc<FileModel>> {
        let file = self.run.model.new_file(0, Vec::new());
        *file.attributes.borrow_mut() = frozen.attributes.clone();
        *file.security.borrow_mut() = frozen.security.clone();
        file.sizes.borrow_mut().settle(frozen.sectors);
        {
            let mut history = file.history.borrow_mut();
            history.grow(frozen.sectors as usize);
            for sector in 0..frozen.sectors as usize {
                history.settle(sector, frozen.history.known(sector)?, true);
            }
        }
        Some(file)
    }
}

/// A file of a snapshot, by its name below it; the snapshot itself without one.
async fn within(volume: &Volume, root: FileId, name: &str) -> Result<FileId, StoreError> {
    let (directory, name) = match name.split_once('/') {
        Some((_, name)) => (volume.lookup(root, INNER).await?.file, name),
        None if name.is_empty() => return Ok(root),
        None => (root, name),
    };
    Ok(volume.lookup(directory, name).await?.file)
}

pub(super) async fn find(volume: &Volume, name: &str) -> Result<Option<(SnapshotId, FileId)>, StoreError> {
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
        for (name, file) in &frozen.files {
            one_file(run, volume, root, name, file)
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
    frozen: &Frozen,
) -> Result<(), Option<String>> {
    let (failed, sectors) = (|error: StoreError| judged(run, &error), frozen.sectors);
    let file = within(volume, root, name).await.map_err(failed)?;
    let info = volume.info(file).await.map_err(failed)?;
    let security = volume.security(file).await.map_err(failed)?;
    if !frozen.attributes.admits(&info.attributes.0) || !frozen.security.admits(&security) {
        return Err(Some(format!(
            "has attributes {:?} and {} bytes of security",
            info.attributes,
            security.len()
        )));
    }
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
        frozen
            .history
            .admits(sector, Value::of(bytes))
            .map_err(|what| Some(format!("holds in sector {sector} {what}")))?;
    }
    Ok(())
}
