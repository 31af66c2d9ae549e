//! What a unit keeps its data in: the bytes of a file of a volume, or the disk in the image that the file is.
//!
//! ```text
//!   open ──► Medium: backing for the unit, file ──► watch: tells of another size; opens an image that has stopped again
//!                              └ Disk: the image as it is now, for who resizes or closes it
//! ```
//! The file of an image is held from the first opening until the unit is let go of, also while the image has stopped and is opened
//! again over it: what was acknowledged is in the file, which is nobody else's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockErrorKind, BlockFuture, Device, Durability, Geometry};
use control_api::{Code, LunConfig, LunFormat, LunWriteCacheNow, Problem};
use file_store::{Access, FileId, FileStore, OpenFile, StoreFuture};
use parking_lot::Mutex;
use scsi_disk::{Backing, DeviceBacking, FileBacking, LogicalUnit, ReservationStore, VolumeReservations};
use vhdx::{Image, Memory, Mode};
use write_cache::{Budget, FileBase};

use super::cached::{self, Cached, Caching};
use super::file::{Failed, Watched, open_file, rests, watch_size};
use crate::backend::VolumeHandle;
use crate::files;
use crate::images::parentage::{Link, Parentage};
use crate::images::{self, ImagePlace};

/// How long is waited before an image that has stopped is opened again, and again.
const OPEN_AGAIN: Duration = Duration::from_secs(1);
/// How long what initiators write into a write cache is in this process only, where it is the first of its block: what a node that is
/// killed takes with it, while its disks have all of a unit that is a file.
const SETTLE_AFTER: Duration = Duration::from_secs(1);

/// Bytes of a block of a file that writes are kept from, whatever those of its unit.
const SECTOR: u32 = 512;

/// What a unit writes to, and what keeps that from its file.
type Laid = (Arc<dyn Backing>, (Cached, Arc<dyn FileStore>));

/// What the medium of a unit is.
pub(super) struct Source {
    pub(super) store: Arc<dyn FileStore>,
    /// The parents of images of its volume.
    parentage: Option<Arc<Parentage>>,
    memory: Arc<dyn Memory>,
    pub(super) path: String,
    /// Absent for a file whose bytes are the disk's.
    pub(super) image: Option<ImagePlace>,
    block_size: u32,
    name: String,
    /// How writes are kept from it, if they are.
    caching: Option<Caching>,
    /// Of a disk that is no LUN: the file that its rows are found by.
    rows_of: Option<FileId>,
}

/// The image of a unit, if it is made of one.
#[derive(Default)]
pub(super) struct Disk {
    image: Mutex<Option<Arc<Image>>>,
    /// Its file, then those of its parents. Dropped on the shard of their volume.
    files: Mutex<Vec<Arc<dyn OpenFile>>>,
    /// What keeps writes from it, and where its overflow file is.
    cached: Mutex<Option<(Cached, Arc<dyn FileStore>)>>,
    problem: Mutex<Option<String>>,
}

/// A medium that is open.
pub(super) struct Medium {
    pub(super) backing: Arc<dyn Backing>,
    pub(super) file: Arc<dyn OpenFile>,
    image: Option<Arc<Image>>,
    parents: Vec<Arc<dyn OpenFile>>,
    cached: Option<(Cached, Arc<dyn FileStore>)>,
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

/// Rows of a unit by its file.
struct RowsOfFile {
    rows: VolumeReservations,
    file: FileId,
}

impl RowsOfFile {
    fn key(&self, key: &[u8]) -> Vec<u8> {
        [&smb_files::disk_rows(self.file)[..], key].concat()
    }
}

impl ReservationStore for RowsOfFile {
    fn load<'a>(&'a self, key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>> {
        let key = self.key(key);
        Box::pin(async move { self.rows.load(&key).await })
    }

    fn save<'a>(&'a self, key: &'a [u8], value: Option<Vec<u8>>) -> StoreFuture<'a, ()> {
        let key = self.key(key);
        Box::pin(async move { self.rows.save(&key, value).await })
    }
}

impl Source {
    pub(super) fn of(
        lun: &LunConfig,
        volume: &Arc<dyn VolumeHandle>,
        memory: Arc<dyn Memory>,
        caches: &Budget,
    ) -> Self {
        let (store, parentage) = (volume.store(), volume.parentage());
        let (path, parents_anywhere) = (lun.path.clone(), lun.parents_anywhere);
        let image = (lun.format == LunFormat::Vhdx).then_some(ImagePlace { path, parents_anywhere });
        Self {
            store,
            parentage,
            memory,
            path: lun.path.clone(),
            image,
            block_size: lun.block_size,
            name: lun.name.clone(),
            caching: Caching::of(lun, caches),
            rows_of: None,
        }
    }

    /// The medium of a shared virtual disk, which is no LUN.
    pub(super) fn shared(
        volume: &Arc<dyn VolumeHandle>,
        memory: Arc<dyn Memory>,
        place: ImagePlace,
        block_size: u32,
        file: FileId,
    ) -> Self {
        Self {
            store: volume.store(),
            parentage: volume.parentage(),
            memory,
            path: place.path.clone(),
            name: place.path.clone(),
            image: Some(place),
            block_size,
            caching: None,
            rows_of: Some(file),
        }
    }

    /// Where the unit's rows are: a LUN's by its identity alone, which no other has. Copies of an image have one identity, and each has
    /// reservations of its own.
    pub(super) fn rows(&self) -> Arc<dyn ReservationStore> {
        let rows = VolumeReservations(self.store.clone());
        match self.rows_of {
            None => Arc::new(rows),
            Some(file) => Arc::new(RowsOfFile { rows, file }),
        }
    }

    /// Opens it; it is none of the files that are `served`. The file of an image may have been `kept` from before, with nothing open
    /// over it any more.
    pub(super) async fn open(
        &self,
        served: &BTreeMap<FileId, String>,
        kept: Option<Arc<dyn OpenFile>>,
    ) -> Result<Medium, Failed> {
        let Some(place) = &self.image else {
            let (access, share) = match self.caching {
                Some(_) => (Access::READ, cached::READ),
                None => (Access::READ_WRITE, files::KEPT),
            };
            let opened = open_file(&self.store, &self.path, (access, share), served).await;
            let file = match opened {
                Ok(file) => file,
                Err(problem) => return Err(self.why(problem).await.into()),
            };
            if self.caching.is_some() {
                let base: Device = Arc::new(FileBase::new(file.clone(), SECTOR));
                return match self.cached(base).await {
                    Ok((backing, cached)) => {
                        Ok(Medium { backing, file, image: None, parents: Vec::new(), cached: Some(cached) })
                    }
                    Err(problem) => Err(Failed { problem, file: Some(file) }),
                };
            }
            let backing = Arc::new(FileBacking::new(self.store.clone(), file.clone(), false, false));
            return Ok(Medium { backing, file, image: None, parents: Vec::new(), cached: None });
        };
        let file = match kept {
            Some(file) => file,
            None => match images::open_file(&self.store, place, self.mode()).await {
                Ok(file) => file,
                Err(problem) => return Err(self.why(problem).await.into()),
            },
        };
        match self.open_image(place, file.clone()).await {
            Ok((image, parents)) if self.caching.is_some() => match self.cached(image.clone()).await {
                Ok((backing, cached)) => {
                    Ok(Medium { backing, file, image: Some(image), parents, cached: Some(cached) })
                }
                Err(problem) => Err(Failed { problem, file: Some(file) }),
            },
            Ok((image, parents)) => {
                let backing = Arc::new(DeviceBacking::new(Arc::new(Durably(image.clone()))));
                Ok(Medium { backing, file, image: Some(image), parents, cached: None })
            }
            Err(problem) => Err(Failed { problem, file: Some(file) }),
        }
    }

    /// How its image is opened.
    fn mode(&self) -> Mode {
        if self.caching.is_some() { Mode::Read } else { Mode::Write }
    }

    /// Keeps writes from what the unit is made of.
    async fn cached(&self, base: Device) -> Result<Laid, Problem> {
        let Some(caching) = &self.caching else {
            return Err(Problem::new(Code::Internal, "nothing keeps writes from it"));
        };
        let cached = caching.begin(&self.store, base).await?;
        let backing: Arc<dyn Backing> = Arc::new(DeviceBacking::new(cached.cache.clone()));
        Ok((backing, (cached, self.store.clone())))
    }

    /// Who is in the way of what somebody has open: children of it, if there are any.
    async fn why(&self, problem: Problem) -> Problem {
        match (&self.parentage, problem.code) {
            (Some(parentage), Code::InUse) => parentage.refuse(&self.path).await.err().unwrap_or(problem),
            _ => problem,
        }
    }

    /// Says durably that its parents are parents: nobody is to change them while the image is not open either.
    async fn record(&self, image: FileId, parents: &[Arc<dyn OpenFile>]) {
        let Some(parentage) = &self.parentage else { return };
        let chain: Vec<FileId> =
            [image].into_iter().chain(parents.iter().map(|parent| parent.file())).collect();
        let links = chain.windows(2).map(|pair| Link { parent: pair[1], child: pair[0] });
        if let Err(error) = parentage.record(&links.collect::<Vec<_>>()).await {
            // It is served all the same, and has them open; said again with the next opening.
            tracing::warn!(path = self.path, %error, "that an image of a LUN has parents is not recorded");
        }
    }

    async fn open_image(
        &self,
        place: &ImagePlace,
        file: Arc<dyn OpenFile>,
    ) -> Result<(Arc<Image>, Vec<Arc<dyn OpenFile>>), Problem> {
        let id = file.file();
        let (image, parents) = images::open_over(&self.store, place, file, self.mode(), &self.memory).await?;
        let sector = image.geometry().block_size;
        if !self.block_size.is_multiple_of(sector) {
            let detail = format!(
                "the disk in {} has sectors of {sector} bytes, and the LUN blocks of {}",
                self.path, self.block_size
            );
            return Err(Problem::new(Code::InvalidRequest, detail));
        }
        self.record(id, &parents).await;
        Ok((Arc::new(image), parents))
    }
}

impl Disk {
    /// The image is this one from now on.
    pub(super) fn is_of(&self, medium: &mut Medium) {
        *self.cached.lock() = medium.cached.take();
        if medium.image.is_some() {
            let files = [&medium.file].into_iter().chain(&medium.parents).cloned().collect();
            // Those of the former image go when these are there.
            let before = std::mem::replace(&mut *self.files.lock(), files);
            drop(before);
        }
        *self.image.lock() = medium.image.clone();
        *self.problem.lock() = None;
    }

    /// The file of its image, once nothing is open over it any more.
    fn idle_file(&self) -> Option<Arc<dyn OpenFile>> {
        let files = self.files.lock();
        files.first().filter(|file| Arc::strong_count(file) == 1).cloned()
    }

    pub(super) fn image(&self) -> Option<Arc<Image>> {
        self.image.lock().clone()
    }

    /// Bytes of the file of the image; 0 while it is not open.
    pub(super) fn file_size(&self) -> u64 {
        self.files.lock().first().map_or(0, |file| file.size())
    }

    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }

    /// What keeps writes from it.
    pub(super) fn cache_now(&self) -> Option<LunWriteCacheNow> {
        self.cached.lock().as_ref().map(|(cached, _)| cached.now())
    }

    /// What keeps writes from it is given up from now on: nobody waits for room in it, and nothing is found there any more.
    pub(super) fn cached_goes(&self) {
        if let Some((cached, _)) = &*self.cached.lock() {
            cached.cache.stop();
        }
    }

    /// Nobody uses it any more here; its files are held until [`Disk::let_go`].
    fn stops(&self) {
        self.cached_goes();
        let cached = self.cached.lock().take();
        drop(cached);
        let stopped = self.image.lock().take();
        drop(stopped);
    }

    /// Nobody uses it any more here, and its files are anybody's.
    pub(super) fn let_go(&self) {
        self.stops();
        let files = std::mem::take(&mut *self.files.lock());
        drop(files);
    }

    /// Puts everything of an image in its place that no unit uses any more, and lets go of its files.
    pub(super) async fn close(&self) {
        let cached = self.cached.lock().take();
        if let Some((cached, store)) = cached {
            cached.end(&*store).await;
        }
        if let Some(image) = self.image()
            && let Err(error) = image.close().await
        {
            // What was acknowledged is durable; the next opening replays the log.
            tracing::warn!(%error, "the image of a LUN was not closed");
        }
        self.let_go();
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
                () = settle(&image) => {}
                () = image.wait_stopped() => {}
            }
            drop(image);
            disk.stops();
            open_again(&unit, &source, &disk).await;
        }
    };
    tokio::select! {
        () = again => {}
        () = rests(&unit) => {}
        _ = stopped => {}
    }
    drop((unit, source, disk));
    let _ = ended.send(());
}

/// Puts what nobody asks to be durable into the file now and then, and gives back memory that requests need. A flush that fails stops the image, which says so;
/// one that finds no space is tried again.
async fn settle(image: &Image) {
    loop {
        shard_runtime::sleep(SETTLE_AFTER).await;
        image.trim_memory();
        if image.is_unsettled()
            && let Err(error) = image.flush().await
            && error.kind() != BlockErrorKind::NoSpace
        {
            return std::future::pending().await;
        }
    }
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
        // What the former image has under way must not come after what the next one writes.
        let Some(file) = disk.idle_file() else { continue };
        // Nobody else serves it: what this unit has of it is not shared.
        match source.open(&BTreeMap::new(), Some(file)).await {
            Ok(mut medium) => {
                disk.is_of(&mut medium);
                unit.attach(medium.backing, source.rows());
                tracing::info!(lun = source.name, "the image of a LUN is open again");
                return;
            }
            Err(failed) => *disk.problem.lock() = Some(told(&failed.problem.detail)),
        }
    }
}
