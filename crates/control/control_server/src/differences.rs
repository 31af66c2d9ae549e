//! Streams of differences, made of two trees of a store and applied to a copy of one. On the store's shard.
//!
//! What differs is told by the store from its maps, without reading; only data that differs is read. A stream is applied
//! to a clone, which gets its name when all of it is there.

mod apply;
mod tell;
#[cfg(test)]
mod tests;

use control_api::{Code, Problem};
use file_store::{FileStore, Snapshot, SnapshotStore, StoreError, names};

pub(crate) use apply::{Applying, remove_tree};
pub(crate) use tell::{Sink, Telling};

use crate::files::problem;

/// Deepest tree.
const DEPTH_MAX: usize = 256;

fn failed(path: &str) -> impl Fn(StoreError) -> Problem + '_ {
    move |error| {
        let mut problem = problem(&error);
        problem.detail = format!("/{path}: {}", problem.detail);
        problem
    }
}

fn deep() -> Problem {
    Problem::new(Code::Unsupported, format!("the tree is deeper than {DEPTH_MAX} directories."))
}

/// What a store without snapshots says.
pub(crate) fn with_snapshots(store: &dyn FileStore) -> Result<&dyn SnapshotStore, Problem> {
    store
        .snapshot_store()
        .ok_or_else(|| Problem::new(Code::Unsupported, "This kind of volume has no snapshots."))
}

/// The snapshot of this name, in any case.
pub(crate) async fn find_snapshot(store: &dyn FileStore, name: &str) -> Result<Snapshot, Problem> {
    let all = with_snapshots(store)?.snapshots().await.map_err(|error| problem(&error))?;
    let wanted = names::fold(name);
    let found = all.into_iter().find(|snapshot| names::fold(&snapshot.name) == wanted);
    found.ok_or_else(|| {
        Problem::new(Code::NotFound, format!("There is no snapshot {name}."))
            .todo("`holdfast snapshot list` shows what there is.")
    })
}
