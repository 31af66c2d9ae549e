//! The file of a unit: opened, watched, and kept where the unit could not be made.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use control_api::{Code, Problem};
use file_store::{Access, FileId, FileStore, OpenFile, Share};
use scsi_disk::LogicalUnit;
use tokio::sync::oneshot;

use crate::backend::VolumeHandle;
use crate::files;

/// How often it is looked whether a unit rests.
const RESTS_AFTER: Duration = Duration::from_secs(10);

/// The file of a LUN that could not be opened as a unit: nobody removes it, changes its size or moves it meanwhile. Dropped on the
/// shard of its volume.
pub(super) struct Kept {
    pub(super) volume: Arc<dyn VolumeHandle>,
    pub(super) file: Arc<dyn OpenFile>,
}

/// Why a unit could not be opened, and its file, if that could be.
pub(super) struct Refused {
    pub(super) problem: Problem,
    pub(super) kept: Option<Kept>,
}

/// Why a medium could not be opened, and its file, if that could be.
pub(super) struct Failed {
    pub(super) problem: Problem,
    pub(super) file: Option<Arc<dyn OpenFile>>,
}

impl Failed {
    /// The same for whoever keeps files by their volumes.
    pub(super) fn of(self, volume: Arc<dyn VolumeHandle>) -> Refused {
        Refused { problem: self.problem, kept: self.file.map(|file| Kept { volume, file }) }
    }
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Self {
        Self { problem, file: None }
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self { problem, kept: None }
    }
}

/// A watch over the size of a unit's file: dropping the first part ends it, and the second then says so.
pub(super) type Watch = (oneshot::Sender<()>, oneshot::Receiver<()>);
/// The same for the task that watches.
pub(super) type Watched = (oneshot::Receiver<()>, oneshot::Sender<()>);

pub(super) fn watch() -> (Watch, Watched) {
    let (stop, stopped) = oneshot::channel();
    let (ended, end) = oneshot::channel();
    ((stop, end), (stopped, ended))
}

pub(super) async fn end_watch(watch: Option<Watch>) {
    let Some((stop, end)) = watch else { return };
    drop(stop);
    // An error means that the watch is over, which is what is waited for.
    let _ = end.await;
}

/// The file of a unit, which is none of those that are `served`: a file may have several names, and initiators of two units
/// know nothing of each other. On the shard of its volume.
pub(super) async fn open_file(
    store: &Arc<dyn FileStore>,
    path: &str,
    (access, share): (Access, Share),
    served: &BTreeMap<FileId, String>,
) -> Result<Arc<dyn OpenFile>, Problem> {
    let open = files::open_shared(&**store, path, access, share).await?;
    if let Some(other) = served.get(&open.file()) {
        return Err(Problem::new(Code::InUse, format!("its file {path} is served as LUN {other} already")));
    }
    Ok(open)
}

/// Looks now and then whether a unit rests: should the node end then, nobody is told of lost writes.
pub(super) async fn rests(unit: &LogicalUnit) {
    loop {
        shard_runtime::sleep(RESTS_AFTER).await;
        unit.rest().await;
    }
}

/// Tells initiators when the size of a unit's file changes, until told to stop.
pub(super) async fn watch_size(unit: Arc<LogicalUnit>, (stopped, ended): Watched) {
    let watch = async {
        while let Ok(size) = unit.watch_resize().await {
            tracing::info!(size, "a LUN has a new size");
        }
        // The file can no longer say; the unit serves on, or says itself what is wrong.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = watch => {}
        () = rests(&unit) => {}
        _ = stopped => {}
    }
    drop(unit);
    let _ = ended.send(());
}
