//! Golden images: what each version of a format looked like on disk, made once by the release of the time, opened by every
//! later one.
//!
//! ```text
//!   images/pool-1.txt     pool-2.txt     volume-1.txt … ──► Image ──► disks in memory ──► open, compare, check, write
//!         ▲ never changed    ▲ once, by `format_images NAME`, for a version that has none
//! ```
//! An [`Image`] is text: the disks, and of each the lines of 32 bytes that are not zero. It is taken while everything is open,
//! as a power cut would leave it, so that opening it goes through recovery, too. What is in it, and what has to be there when
//! a later release opens it, stands side by side in the module of the format.
//!
//! What a crate keeps for itself (rows of a state table, files) has its images here too; that crate's tests read them ([`kept`]).
//!
//! `docs/formats/README.md` has the rule of versions. A change of a format that its tests here notice is a new version: it
//! gets a number there, an image here, and the old images stay and must still open.

mod check;
pub mod diff;
mod image;
mod kept;
pub mod later_log;
pub mod log;
pub mod pools;
pub mod volumes;

pub use check::{Fallible, ensure};
pub use image::Image;
pub use kept::kept;

use std::path::PathBuf;

/// A format that has images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Disks of a pool.
    Pool,
    /// A volume on its device.
    Volume,
    /// A write log: front and back.
    WriteLog,
    /// A stream of differences.
    Diff,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pool, Self::Volume, Self::WriteLog, Self::Diff];

    /// Its name, of which its images' files are named.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Volume => "volume",
            Self::WriteLog => "write_log",
            Self::Diff => "diff",
        }
    }

    /// The version that this release writes. A new one needs a line in `docs/formats/README.md`, and an image.
    #[must_use]
    pub fn current(self) -> u32 {
        match self {
            Self::Pool => 4,
            Self::Volume => 4,
            Self::WriteLog => 3,
            Self::Diff => 1,
        }
    }

    /// The format of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Where the image of a version is, if it is there.
    #[must_use]
    pub fn path(self, version: u32) -> PathBuf {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/images");
        PathBuf::from(folder).join(format!("{}-{version}.txt", self.name()))
    }

    /// The image of a version.
    ///
    /// # Errors
    /// When it is not there, or not an image.
    pub fn load(self, version: u32) -> Fallible<Image> {
        let path = self.path(version);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Image::parse(&text).map_err(|why| format!("{}: {why}", path.display()).into())
    }

    /// An image of the version that this release writes.
    ///
    /// # Errors
    /// When what is to be in it cannot be made.
    pub fn make(self) -> Fallible<Image> {
        sim::on_shard(async {
            match self {
                Self::Pool => pools::make().await,
                Self::Volume => volumes::make().await,
                Self::WriteLog => later_log::make().await,
                Self::Diff => diff::make(),
            }
        })?
    }

    /// Opens a copy of an image, compares everything, has it checked, writes to it, and opens it again.
    ///
    /// # Errors
    /// What is not as it should be.
    pub fn check(self, version: u32, image: &Image) -> Fallible {
        sim::on_shard(async {
            match self {
                Self::Pool => pools::check(version, image).await,
                Self::Volume => volumes::check(version, image).await,
                Self::WriteLog if version == 1 => log::check(image).await,
                Self::WriteLog => later_log::check(image).await,
                Self::Diff => diff::check(image),
            }
        })?
    }

    /// Reads each structure of an image of the current version by itself and writes it anew: the same bytes must come out.
    ///
    /// # Errors
    /// Where they differ.
    pub fn rewrite(self, image: &Image) -> Fallible<usize> {
        match self {
            Self::Pool => pools::structures::rewrite(image),
            Self::Volume => volumes::rewrite(image),
            Self::WriteLog => Ok(log::rewrite(image)? + later_log::rewrite(image)?),
            Self::Diff => diff::check(image).map(|()| 1),
        }
    }
}
