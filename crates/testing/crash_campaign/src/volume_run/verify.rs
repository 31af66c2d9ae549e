//! After an opening: structures, names, sizes, attributes and every sector.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use file_store::{Access, DirectoryCursor, FileId, FileStore, OpenOptions, StoreErrorKind};
use pool::{DiskStatus, DiskUse, Pool};
use sim::SECTOR;
use volume::Volume;

use super::checked::{Checked, Ended, broken, ended, matches};
use super::model::{FileModel, INNER, Part, TABLE};
use super::{Opened, Run, accounts, away};
use crate::Layout;
use crate::history::Value;
use crate::rig::{Standing, least_disks};
use crate::rot;

/// Checks everything; whether the boot can go on.
pub(super) async fn after_opening(run: &Rc<Run>, opened: &Opened) -> bool {
    everything(run, opened).await.is_ok() && !run.rig.is_over()
}

async fn everything(run: &Rc<Run>, opened: &Opened) -> Checked {
    let durable = !run.model.take_killed();
    check(run, &opened.volume).await;
    compare(run, &opened.volume).await?;
    // What has been read stays, whichever copy it came from and whichever is lost next.
    all_files(run, &opened.volume, |file, seen| settle_file(file, seen, durable)).await?;
    let alone = run.rig.case.layout == Layout::Simple;
    let Some(pool) = opened.pool.as_ref().filter(|_| !alone) else { return Ok(()) };
    if run.dice.one_in(2) && settle(run, pool).await {
        all_files(run, &opened.volume, |file, seen| settle_file(file, seen, durable)).await?;
        if pool.status().is_fully_redundant() {
            rot::scrub_and_check(&run.rig, pool).await;
        }
    }
    Ok(())
}

/// Waits until no region's copies may differ any more.
pub(super) async fn settle(run: &Rc<Run>, pool: &Pool) -> bool {
    for _ in 0..200 {
        if run.rig.is_over() {
            return false;
        }
        let status = pool.status();
        let usable = status.disks.iter().filter(|disk| disk.online && disk.record.usage == DiskUse::Active);
        let least = least_disks(run.rig.case.layout);
        let cramped = run.rig.troubles.kinds.sizes && run.rig.disks_with_room(pool, 1) < least;
        // The power may have gone before a disk that is replaced was retired: the pool waits for it, and it does not come back.
        let awaited = |slot: &usize| {
            let id = run.rig.id(pool, *slot);
            let active = |disk: &&DiskStatus| disk.record.usage == DiskUse::Active;
            status.disks.iter().filter(active).any(|disk| Some(disk.record.id) == id)
        };
        let abandoned = run.rig.with_standing(Standing::Replaced).iter().any(awaited);
        let hopeless = away(&run.rig) > 0 || abandoned || usable.count() < least || cramped;
        if status.unsettled_bytes == 0 && (hopeless || status.is_fully_redundant()) {
            return true;
        }
        shard_runtime::sleep(Duration::from_secs(1)).await;
    }
    run.rig.broken(format!("copies are not made equal: {}", crate::rig::summary(pool)));
    false
}

/// The volume's own check must find nothing.
pub(super) async fn check(run: &Rc<Run>, volume: &Volume) {
    let since = run.mark();
    match volume.check().await {
        Ok(findings) => {
            // The check goes on where something cannot be read, and tells; there may be a good reason for that.
            let excused = run.rig.excuses_since(&since);
            let told = |detail: &str| {
                ["cannot be read", "no good copy", "stopped pool"].iter().any(|why| detail.contains(why))
            };
            if let Some(finding) = findings.iter().find(|finding| !(excused && told(&finding.detail))) {
                run.rig.broken(format!("the check finds: {finding:?}"));
            }
            match accounts::add_up(run, volume).await {
                Ok(None) => {}
                Ok(Some(what)) => run.rig.broken(format!("space does not add up: {what}")),
                Err(error) if run.excuses(&error, &since) => run.rig.trace(|| format!("accounts: {error}")),
                Err(error) => run.rig.broken(format!("the accounts fail: {error}")),
            }
        }
        Err(error) if run.excuses(&error, &since) => run.rig.trace(|| format!("check: {error}")),
        Err(error) => run.rig.broken(format!("the check fails: {error}")),
    }
}

/// Names, attributes and sizes; what is undecided in the model becomes what is there.
async fn compare(run: &Rc<Run>, volume: &Volume) -> Checked {
    let root = list(run, volume, volume.root()).await?;
    if root.len() != run.model.parts.len() {
        return broken(run, format!("the root has the names {root:?}"));
    }
    let mut all = Vec::new();
    for (number, part) in run.model.parts.iter().enumerate() {
        if root.get(&format!("w{number}")) != Some(&part.directory.get()) {
            return broken(run, format!("directory w{number} is not there: {root:?}"));
        }
        let mut there = list(run, volume, FileId(part.directory.get())).await?;
        if there.remove(INNER) != Some(part.inner.get()) {
            return broken(run, format!("directory w{number}/{INNER} is not there: {there:?}"));
        }
        let inner = list(run, volume, FileId(part.inner.get())).await?;
        there.extend(inner.into_iter().map(|(name, file)| (format!("{INNER}/{name}"), file)));
        all.push(there);
    }
    super::steps::roll_back(run, volume, &all).await?;
    for ((number, part), there) in run.model.parts.iter().enumerate().zip(&all) {
        choose_names(run, part, number, there)?;
        let key = [number as u8];
        let row = ended(run, "a row of state", volume.state_get(TABLE, &key).await)?;
        let row = row.and_then(|row| row.try_into().ok()).map_or(0, u64::from_le_bytes);
        {
            let mut state = part.state.borrow_mut();
            if !state.admits(&row) {
                return broken(run, format!("the state of worker {number} is {row}, not {state:?}"));
            }
            state.settle(row);
        }
        match super::snapshots::compare(run, volume, part).await {
            Ok(()) => {}
            Err(Some(what)) => return broken(run, what),
            Err(None) => return Err(Ended),
        }
    }
    all_files(run, volume, |_, _| {}).await
}

async fn list(run: &Rc<Run>, volume: &Volume, directory: FileId) -> Checked<BTreeMap<String, u64>> {
    let mut names = BTreeMap::new();
    let mut cursor = DirectoryCursor::default();
    loop {
        let page = ended(run, "a directory", volume.read_directory(directory, cursor, 3).await)?;
        names.extend(page.entries.into_iter().map(|entry| (entry.name, entry.file.0)));
        match page.next {
            Some(next) => cursor = next,
            None => return Ok(names),
        }
    }
}

/// The names are those before or after the change that was under way.
fn choose_names(run: &Run, part: &Part, number: usize, there: &BTreeMap<String, u64>) -> Checked {
    let pending = part.pending.borrow_mut().take();
    let before = part.names.borrow().clone();
    let names = if matches(&before, there) {
        before
    } else if let Some(after) = pending.filter(|after| matches(after, there)) {
        after
    } else {
        let known: BTreeMap<_, _> = before.iter().map(|(name, file)| (name, file.id.get())).collect();
        return broken(run, format!("worker {number} has the names {there:?}, not {known:?}"));
    };
    for (name, file) in &names {
        file.id.set(there.get(name).copied());
    }
    *part.names.borrow_mut() = names;
    Ok(())
}

/// Reads every file and compares it; then tells `then` what was seen.
async fn all_files(run: &Rc<Run>, volume: &Volume, then: impl Fn(&FileModel, &[Option<Value>])) -> Checked {
    for part in &run.model.parts {
        let names = part.names.borrow().clone();
        for (name, file) in &names {
            let seen = one_file(run, volume, name, file).await?;
            let wanted = names.values().filter(|other| Rc::ptr_eq(other, file)).count();
            let id = FileId(file.id.get().unwrap_or_default());
            let found = ended(run, "looking at a file", volume.info(id).await)?.names as usize;
            if found != wanted {
                return broken(run, format!("{name} says that it has {found} names, not {wanted}"));
            }
            then(file, &seen);
        }
    }
    Ok(())
}

async fn one_file(
    run: &Rc<Run>,
    volume: &Volume,
    name: &str,
    file: &Rc<FileModel>,
) -> Checked<Vec<Option<Value>>> {
    let (id, owner) = (FileId(file.id.get().unwrap_or_default()), file.owner);
    let info = ended(run, "looking at a file", volume.info(id).await)?;
    let sectors = info.size / SECTOR as u64;
    if info.size % SECTOR as u64 != 0 || !file.sizes.borrow().admits(sectors) {
        let known = file.sizes.borrow().candidates();
        return broken(
            run,
            format!("{name} (owner {owner}) has {} bytes, not sectors of {known}", info.size),
        );
    }
    if !file.attributes.borrow().admits(&info.attributes.0) {
        let known = file.attributes.borrow().clone();
        return broken(run, format!("{name} has attributes {}, not {known:?}", info.attributes.0));
    }
    let security = ended(run, "a security descriptor", volume.security(id).await)?;
    if !file.security.borrow().admits(&security) {
        return broken(
            run,
            format!("{name} has a security descriptor of {} bytes that nobody set", security.len()),
        );
    }
    file.attributes.borrow_mut().settle(info.attributes.0);
    file.security.borrow_mut().settle(security);
    // What lay beyond the end that survived is not there any more.
    file.cut(sectors);
    let open = volume.open(id, OpenOptions::shared(Access::READ)).await;
    let open: Arc<dyn file_store::OpenFile> = ended(run, "an open", open)?;
    let bytes = open.read(0, IoBuf::new(info.size as usize)).await;
    let bytes = match bytes {
        Err(error) if error.kind() == StoreErrorKind::Io && run.rig.excuses_failure() => {
            return Ok(vec![None; sectors as usize]);
        }
        bytes => ended(run, "a read", bytes)?,
    };
    if bytes.len() as u64 != info.size {
        return broken(run, format!("{name}: a read gave {} bytes of {}", bytes.len(), info.size));
    }
    run.rig.stats.borrow_mut().sectors += sectors;
    let seen: Vec<_> = bytes.chunks(SECTOR).map(Value::of).collect();
    for (sector, found) in seen.iter().enumerate() {
        let judged = file.history.borrow().admits(sector, *found);
        if let Err(what) = judged {
            return broken(
                run,
                format!("{name} (owner {owner}): after the opening sector {sector} holds {what}"),
            );
        }
    }
    Ok(seen)
}

fn settle_file(file: &FileModel, seen: &[Option<Value>], durable: bool) {
    let mut history = file.history.borrow_mut();
    for (sector, value) in seen.iter().enumerate() {
        if let Some(value) = value {
            history.settle(sector, *value, durable);
        }
    }
}
