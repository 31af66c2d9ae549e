//! The snapshots of a store, by name.

use control_api::{Code, Problem};
use file_store::{FileStore, Snapshot, SnapshotStore, names};

use super::problem;

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
