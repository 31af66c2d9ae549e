//! LUNs that are the disks in images: which images can be, and who is in the way.

use std::sync::Arc;

use block_device::BlockDevice as _;
use control_api::{Code, FileProvision, LunConfig, LunCreate, LunFormat, Problem, Provisioned};
use vhdx::{Held, Mode};

use super::files::is_at_or_below;
use super::lun_sizes::enough_memory;
use super::{Node, to_its_end};
use crate::backend::ImageNow;
use crate::images::{self, ImagePlace};

/// What is known of the disk in an image.
pub(super) struct DiskInImage {
    size: u64,
    sector: u32,
}

/// What an image that is dynamic does with reserved space is its own affair.
pub(super) fn cannot_reserve() -> Problem {
    Problem::new(Code::InvalidRequest, "The space of an image cannot be reserved for a LUN.")
        .todo("A fixed image has all its space: `holdfast disk-image convert --type fixed`.")
}

/// The size of the disk in an image that is open. Of one that is not, nobody can say whether a size is a smaller one.
pub(super) fn size_of_image(lun: &str, now: Option<ImageNow>) -> Result<u64, Problem> {
    let size = now.map(|image| image.size_bytes).filter(|size| *size > 0);
    size.ok_or_else(|| {
        Problem::new(
            Code::WrongState,
            format!("The image of LUN {lun} is not open here, and its size is not known."),
        )
        .todo("`holdfast status` says why. Nothing was changed.")
    })
}

impl Node {
    /// The image of a LUN that is served here.
    pub(super) fn image_now(&self, lun: &str) -> Option<ImageNow> {
        let images = self.backends.iscsi.images();
        images.into_iter().find(|(name, _)| name == lun).map(|(_, image)| image)
    }

    /// Holds the images of LUNs at or below a path of a volume, whole and with no log to be replayed, until what this gives is dropped: a
    /// snapshot that is taken meanwhile has them so.
    pub(super) async fn hold_images(&self, volume: &str, path: &str) -> Result<Vec<Held>, Problem> {
        let luns = self.config.with(|config| {
            let images = config.luns.iter().filter(|lun| lun.format == LunFormat::Vhdx);
            let there = images.filter(|lun| self.is_on(*lun, volume) && is_at_or_below(&lun.path, path));
            there.map(|lun| lun.name.clone()).collect()
        });
        self.backends.iscsi.hold_images(luns).await
    }

    /// A request for a LUN of an image, with the blocks that its disk has; others as they are.
    pub(super) async fn of_image(&self, mut request: LunCreate) -> Result<LunCreate, Problem> {
        if let Some(path) = &request.path {
            self.refuse_parent(&self.volume_or_only(request.volume.as_deref())?, path).await?;
        }
        if request.format == LunFormat::Raw {
            return Ok(request);
        }
        let wrong = |told: &str| Problem::new(Code::InvalidRequest, told);
        let path = request.path.clone().ok_or_else(|| wrong("Say which file the image is."))?;
        if request.size_bytes.is_some() {
            return Err(wrong("A LUN of an image has the size of the disk in it.")
                .todo("`holdfast lun resize` changes it afterwards."));
        }
        if request.reserve {
            return Err(cannot_reserve());
        }
        let volume = self.volume_or_only(request.volume.as_deref())?;
        let file = self.file_stat(&volume, &path).await?;
        self.refuse_second_lun(&volume, &file, None).await?;
        let place = ImagePlace { path, parents_anywhere: request.parents_anywhere };
        let disk = self.look_into(&volume, place).await?;
        let block = request.block_size.unwrap_or(disk.sector);
        disk.fits(block)?;
        enough_memory(request.write_cache_in.as_ref(), disk.size)?;
        request.block_size = Some(block);
        Ok(request)
    }

    /// Refuses to write to a file, or to take it or a folder above it away, that is the parent of images: they need it as it is.
    pub(super) async fn refuse_parent(&self, volume: &str, path: &str) -> Result<(), Problem> {
        let handle = self.volume(volume)?;
        let Some(parentage) = handle.parentage() else { return Ok(()) };
        let path = path.to_owned();
        self.on_shard(handle.shard(), move || async move { parentage.refuse(&path).await }).await
    }

    /// Makes many images from one, each a disk of its own; all of them or none.
    pub async fn file_provision(
        self: &Arc<Self>,
        volume: &str,
        request: FileProvision,
    ) -> Result<Provisioned, Problem> {
        let (node, volume) = (Arc::clone(self), volume.to_owned());
        to_its_end(async move {
            let parentage = node.volume(&volume)?.parentage();
            let memory = images::memory(&node.backends.budget);
            node.with_store(&volume, async move |store| {
                images::provision::provision(store, parentage.as_deref(), &memory, &request).await
            })
            .await
        })
        .await
    }

    /// Refuses an image that a LUN cannot be made of.
    pub(super) async fn refuse_image(
        &self,
        volume: &str,
        path: &str,
        lun: &LunConfig,
    ) -> Result<u64, Problem> {
        let place = ImagePlace { path: path.to_owned(), parents_anywhere: lun.parents_anywhere };
        let disk = self.look_into(volume, place).await?;
        disk.fits(lun.block_size)?;
        Ok(disk.size)
    }

    /// Opens an image that nobody has open, and closes it again; nothing is changed.
    async fn look_into(&self, volume: &str, place: ImagePlace) -> Result<DiskInImage, Problem> {
        let path = place.path.clone();
        let memory = images::memory(&self.backends.budget);
        let looked = self.with_store(volume, async move |store| {
            let image = images::open(&store, &place, Mode::Read, &memory).await?;
            Ok(DiskInImage { size: image.size(), sector: image.geometry().block_size })
        });
        looked.await.map_err(|problem| match problem.code {
            Code::InUse => self.in_the_way(volume, &path),
            _ => problem,
        })
    }

    /// Who has the file of an image open.
    fn in_the_way(&self, volume: &str, path: &str) -> Problem {
        let names = |path: &str| -> Vec<String> {
            path.split(['/', '\\']).filter(|name| !name.is_empty()).map(upcase::upper).collect()
        };
        let shares = self.config.with(|config| config.shares.clone());
        let wanted = names(path);
        let open = self.open_list().into_iter().filter(|open| {
            let share = shares.iter().find(|share| upcase::same(&share.name, &open.share));
            share.is_some_and(|share| {
                let path = open.path.split(':').next().unwrap_or_default();
                let at = [names(&share.folder), names(path)].concat();
                self.is_on(share, volume) && at == wanted
            })
        });
        let who: Vec<String> = open
            .map(|open| {
                let user = super::smb::by_whom(&open);
                format!("{user} on share {} (open {}: {})", open.share, open.id, open.rights)
            })
            .collect();
        let told = if who.is_empty() { "somebody".to_owned() } else { who.join(", ") };
        let detail =
            format!("{path} of volume {volume} is open by {told}; an image that is a LUN is nobody else's.");
        Problem::new(Code::InUse, detail)
            .todo("Have it closed there, or close it (`holdfast open close`); a parent of images that are in use stays as it is.")
    }
}

impl DiskInImage {
    /// Refuses blocks that the disk does not consist of.
    fn fits(&self, block: u32) -> Result<(), Problem> {
        if block.is_multiple_of(self.sector) && self.size.is_multiple_of(u64::from(block)) {
            return Ok(());
        }
        let detail = format!(
            "The disk in the image has {} bytes in sectors of {}; a LUN with blocks of {block} bytes cannot be made of it.",
            self.size, self.sector
        );
        Err(Problem::new(Code::InvalidRequest, detail).todo("Leave --block-size out to use what it has."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_image_that_is_not_open_no_size_is_known() {
        let now = |size_bytes| Some(ImageNow { size_bytes, problem: None });
        assert_eq!(size_of_image("l", now(512)).map_err(|problem| problem.code), Ok(512));
        for unknown in [now(0), None] {
            assert_eq!(size_of_image("l", unknown).map_err(|problem| problem.code), Err(Code::WrongState));
        }
    }
}
