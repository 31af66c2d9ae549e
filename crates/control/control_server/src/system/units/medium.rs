//! What a unit keeps its data in: the bytes of a file of a volume, or the disk in the image that the file is.
//!
//! ```text
//!   open ──► Medium: backing for the unit, file ──► watch: tells of another size; opens an image that has stopped again
//!                              └ Disk: the image as it is now, for who resizes or closes it
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockFuture, Durability, Geometry};
use control_api::{Code, LunConfig, LunFormat, Problem};
use file_store::{FileId, FileStore, OpenFile};
use parking_lot::Mutex;
use scsi_disk::{Backing, DeviceBacking, FileBacking, LogicalUnit, VolumeReservations};
use vhdx::{Image, Mode};

use super::file::{Watched, open_file, watch_size};
use crate::images::{self, ImagePlace};

/// How long is waited before an image that has stopped is opened again, and again.
const OPEN_AGAIN: Duration = Duration::from_secs(1);

/// What the medium of a unit is.
pub(super) struct Source {
    pub(super) store: Arc<dyn FileStore>,
    pub(super) path: String,
    /// Absent for a file whose bytes are the disk's.
    pub(super) image: Option<ImagePlace>,
    block_size: u32,
    name: String,
}

/// The image of a unit, if it is made of one.
#[derive(Default)]
pub(super) struct Disk {
    image: Mutex<Option<Arc<Image>>>,
    problem: Mutex<Option<String>>,
}

/// A medium that is open.
pub(super) struct Medium {
    pub(super) backing: Arc<dyn Backing>,
    pub(super) file: FileId,
    /// The file, where others may have it open, too.
    pub(super) shared: Option<Arc<dyn OpenFile>>,
    image: Option<Arc<Image>>,
}

/// An image in which what was unmapped stays so, as in a file of a volume: a unit does not flush after it.
struct Durably(Arc<Image>);

impl BlockDevice for Durably {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        self.0.read(offset, buf)
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        self.0.write(offset, data, durability)
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        self.0.flush()
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.0.unmap(offset, len).await?;
            self.0.flush().await
        })
    }

    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        self.0.write_zeroes(offset, len, durability)
    }

    fn wait_resize(&self, known: u64) -> BlockFuture<'_, u64> {
        self.0.wait_resize(known)
    }
}

impl Source {
    pub(super) fn of(lun: &LunConfig, store: Arc<dyn FileStore>) -> Self {
        let (path, parents_anywhere) = (lun.path.clone(), lun.parents_anywhere);
        let image = (lun.format == LunFormat::Vhdx).then_some(ImagePlace { path, parents_anywhere });
        Self { store, path: lun.path.clone(), image, block_size: lun.block_size, name: lun.name.clone() }
    }

    /// Opens it; it is none of the files that are `served`.
    pub(super) async fn open(&self, served: &BTreeMap<FileId, String>) -> Result<Medium, Problem> {
        let Some(place) = &self.image else {
            let file = open_file(&self.store, &self.path, served).await?;
            let backing = Arc::new(FileBacking::new(self.store.clone(), file.clone(), false, false));
            return Ok(Medium { backing, file: file.file(), shared: Some(file), image: None });
        };
        let (image, file) = images::open(&self.store, place, Mode::Write).await?;
        let sector = image.geometry().block_size;
        if !self.block_size.is_multiple_of(sector) {
            let detail = format!(
                "the disk in {} has sectors of {sector} bytes, and the LUN blocks of {}",
                self.path, self.block_size
            );
            return Err(Problem::new(Code::InvalidRequest, detail));
        }
        let image = Arc::new(image);
        let backing = Arc::new(DeviceBacking::new(Arc::new(Durably(image.clone()))));
        Ok(Medium { backing, file: file.file(), shared: None, image: Some(image) })
    }
}

impl Disk {
    /// The image is this one from now on.
    pub(super) fn is_of(&self, medium: &Medium) {
        *self.image.lock() = medium.image.clone();
        *self.problem.lock() = None;
    }

    pub(super) fn image(&self) -> Option<Arc<Image>> {
        self.image.lock().clone()
    }

    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }

    /// Nobody uses it any more here.
    pub(super) fn let_go(&self) -> Option<Arc<Image>> {
        self.image.lock().take()
    }

    /// Puts everything of an image in its place that no unit uses any more.
    pub(super) async fn close(&self) {
        if let Some(image) = self.let_go()
            && let Err(error) = image.close().await
        {
            // What was acknowledged is durable; the next opening replays the log.
            tracing::warn!(%error, "the image of a LUN was not closed");
        }
    }
}

/// Tells initiators when the size of a unit's medium changes, and opens its image again when that has stopped, until told to stop.
pub(super) async fn watch_medium(unit: Arc<LogicalUnit>, source: Source, disk: Arc<Disk>, watched: Watched) {
    if source.image.is_none() {
        return watch_size(unit, watched).await;
    }
    let (stopped, ended) = watched;
    let again = async {
        loop {
            let Some(image) = disk.image() else { break std::future::pending::<()>().await };
            let sizes = async {
                while unit.watch_resize().await.is_ok() {}
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = sizes => {}
                () = image.wait_stopped() => {}
            }
            drop((image, disk.let_go()));
            open_again(&unit, &source, &disk).await;
        }
    };
    tokio::select! {
        () = again => {}
        _ = stopped => {}
    }
    drop((unit, source, disk));
    let _ = ended.send(());
}

/// The image has stopped, as for want of space: what was acknowledged is in the file, and commands wait until it is open again.
async fn open_again(unit: &Arc<LogicalUnit>, source: &Source, disk: &Disk) {
    tracing::error!(
        lun = source.name,
        path = source.path,
        "the image of a LUN has stopped after a failed write"
    );
    let told = |why: &str| {
        format!("its image has stopped after a failed write, and cannot be opened again yet: {why}")
    };
    *disk.problem.lock() = Some(told("commands under way end first"));
    unit.detach();
    loop {
        shard_runtime::sleep(OPEN_AGAIN).await;
        // Nobody else serves it: what this unit had of it is not shared.
        match source.open(&BTreeMap::new()).await {
            Ok(medium) => {
                disk.is_of(&medium);
                unit.attach(medium.backing, Arc::new(VolumeReservations(source.store.clone())));
                tracing::info!(lun = source.name, "the image of a LUN is open again");
                return;
            }
            Err(problem) => *disk.problem.lock() = Some(told(&problem.detail)),
        }
    }
}
