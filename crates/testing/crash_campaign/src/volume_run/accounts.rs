//! Space adds up: of each file, of the trees they are in, and of the volume; and all of it comes back in the end.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use file_store::{
    DirectoryCursor, FileId, FileKind, FileStore, SnapshotStore, SpaceUse, StoreError, StoreUsage,
};
use volume::Volume;

use super::{Opened, Run};

/// Seconds, virtual ones, in which the space of what was deleted has come back.
const PATIENCE: usize = 600;

/// What the files of a tree say, added up; and what does not fit in itself, if anything.
async fn tree(volume: &Volume, root: FileId) -> Result<(SpaceUse, Option<String>), StoreError> {
    let mut sum = SpaceUse::default();
    let (mut left, mut seen) = (vec![root], BTreeSet::new());
    while let Some(file) = left.pop() {
        // A file with several names is there once.
        if !seen.insert(file) {
            continue;
        }
        let info = volume.info(file).await?;
        if info.kind == FileKind::Directory {
            sum.files += 1;
            let mut cursor = DirectoryCursor::default();
            loop {
                let page = volume.read_directory(file, cursor, 50).await?;
                left.extend(page.entries.iter().map(|entry| entry.file));
                match page.next {
                    Some(next) => cursor = next,
                    None => break,
                }
            }
            continue;
        }
        let one = volume.space(file).await?;
        // Files of the campaign have no other streams.
        let fits = one.files == 1 && one.logical == info.size && one.allocated == info.allocated;
        if !fits || one.allocated != one.shared + one.unique {
            return Ok((sum, Some(format!("file {} has {one:?}, and is {info:?}", file.0))));
        }
        sum.files += one.files;
        sum.logical += one.logical;
        sum.allocated += one.allocated;
        sum.shared += one.shared;
        sum.unique += one.unique;
    }
    Ok((sum, None))
}

/// What does not add up, also when the background has had time to give back what was removed. Nobody else may change
/// anything meanwhile.
pub(super) async fn add_up(run: &Rc<Run>, volume: &Volume) -> Result<Option<String>, StoreError> {
    let since = run.mark();
    let mut wrong = adds_up_now(volume).await?;
    for _ in 0..PATIENCE {
        if wrong.is_none() || run.rig.is_over() || run.rig.excuses_since(&since) {
            return Ok(None);
        }
        shard_runtime::sleep(Duration::from_secs(1)).await;
        wrong = adds_up_now(volume).await?;
    }
    Ok(wrong)
}

async fn adds_up_now(volume: &Volume) -> Result<Option<String>, StoreError> {
    let before = volume.usage().await?;
    let mut roots = vec![volume.root()];
    roots.extend(volume.snapshots().await?.iter().map(|snapshot| snapshot.root));
    let all: BTreeSet<FileId> = roots.iter().copied().collect();
    if all.len() != roots.len() {
        return Ok(Some(format!("two snapshots are one: {roots:?}")));
    }
    let mut sum = SpaceUse::default();
    for root in roots {
        let told = volume.space(root).await?;
        let (added, wrong) = tree(volume, root).await?;
        if wrong.is_some() {
            return Ok(wrong);
        }
        // What files of a tree share with each other alone is shared for each of them, and for the tree.
        if told != added {
            return Ok(Some(format!("tree {} has {told:?}, and its files have {added:?}", root.0)));
        }
        sum.allocated += told.allocated;
        sum.unique += told.unique;
    }
    let after = volume.usage().await?;
    // What was removed has its space for a while still, and what it gave up is used until it is zero.
    let fits = |usage: &StoreUsage| usage.used <= usage.referenced && usage.used <= usage.capacity;
    if !fits(&before) || !fits(&after) || before.referenced < sum.allocated || before.used < sum.unique {
        return Ok(Some(format!("all trees have {sum:?}, and the volume had {before:?} and has {after:?}")));
    }
    let steady = before.used == after.used && before.referenced == after.referenced;
    let shared = sum.allocated - sum.unique;
    // Each shared cluster has at least two users.
    if steady && before.referenced == sum.allocated && (before.used - sum.unique) * 2 > shared {
        return Ok(Some(format!("all trees have {sum:?}, and the volume has {after:?}")));
    }
    Ok(None)
}

/// Removes all that there is, and waits until the volume has as much space as when it was made.
pub(super) async fn all_goes(run: &Rc<Run>, opened: &Opened) {
    let since = run.mark();
    let volume = &opened.volume;
    match removed(run, volume).await {
        Ok(None) => {}
        Ok(Some(what)) => run.rig.broken(format!("when all is removed, {what}")),
        Err(error) if run.excuses(&error, &since) => run.rig.trace(|| format!("removing all: {error}")),
        Err(error) => run.rig.broken(format!("removing all fails: {error}")),
    }
}

async fn removed(run: &Rc<Run>, volume: &Volume) -> Result<Option<String>, StoreError> {
    run.rig.trace(|| "all is removed".into());
    let start_of_it = run.mark();
    for part in &run.model.parts {
        for directory in [part.inner.get(), part.directory.get()] {
            let page = volume.read_directory(FileId(directory), DirectoryCursor::default(), 50).await?;
            for entry in page.entries.iter().filter(|entry| entry.kind == FileKind::File) {
                volume.remove(FileId(directory), &entry.name).await?;
            }
        }
    }
    for snapshot in volume.snapshots().await? {
        volume.delete_snapshot(snapshot.id).await?;
    }
    let start = run.start.get();
    let same = |now: &StoreUsage| {
        (now.used, now.referenced, now.reserved) == (start.used, start.referenced, start.reserved)
    };
    let mut now = volume.usage().await?;
    for _ in 0..PATIENCE {
        if same(&now) || run.rig.is_over() {
            break;
        }
        shard_runtime::sleep(Duration::from_secs(1)).await;
        now = volume.usage().await?;
    }
    // What lies on a disk that is away, and nowhere else, cannot be zeroed, and is not free before it is.
    if run.rig.is_over() || run.rig.excuses_since(&start_of_it) && !same(&now) {
        return Ok(None);
    }
    if !same(&now) {
        return Ok(Some(format!("space has not come back: it was {start:?}, and is {now:?}")));
    }
    run.rig.stats.borrow_mut().emptied += 1;
    let since = run.mark();
    let findings = volume.check_deep().await?;
    // What a disk that is away had cannot be read.
    if run.rig.excuses_since(&since) {
        return Ok(None);
    }
    Ok(findings.first().map(|finding| format!("the check finds: {finding:?}")))
}
