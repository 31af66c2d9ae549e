//! A differencing disk with its parent, its parent's parent, and so on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use file_store::OpenFile;
use shard_runtime::Entropy;
use vhdx_format::ParentLocator;

use crate::error::{ImageError, ImageErrorKind, Result};
use crate::image::Image;
use crate::open::{Mode, Opening};

/// Images of a chain at most: each costs memory, and each read may go through all of them.
pub const CHAIN_MAX: usize = 128;

/// What finding a parent gives.
pub type Finding<'a> = Pin<Box<dyn Future<Output = Result<Found>> + 'a>>;

/// A parent that was found.
pub struct Found {
    /// Its name, the same whichever way it was found.
    pub name: String,
    /// The file, opened to be read.
    pub file: Arc<dyn OpenFile>,
}

/// Whoever knows where files are.
pub trait Finder {
    /// Finds the parent of `child`.
    fn find<'a>(&'a self, child: &'a str, locator: &'a ParentLocator) -> Finding<'a>;
}

/// Opens an image with all its parents, which are opened to be read.
///
/// # Errors
/// When one of them cannot be used, is not the one, or was met before.
pub async fn open_chain(
    first: Found,
    mode: Mode,
    finder: &dyn Finder,
    entropy: &Arc<dyn Entropy>,
) -> Result<Image> {
    let mut names = vec![first.name];
    let read = Opening::read(first.file, mode).await;
    let mut chain = vec![read.map_err(|error| error.of(&names[0]))?];
    while let (Some(locator), Some(child)) = (chain.last().and_then(Opening::parent_locator), names.last()) {
        let parent = finder.find(child, locator).await.map_err(|error| error.of(child))?;
        if names.contains(&parent.name) {
            let told = format!("its parents lead back to {}", parent.name);
            return Err(ImageError::new(ImageErrorKind::Parent, told).of(child));
        }
        if names.len() >= CHAIN_MAX {
            let told = format!("it has more than {CHAIN_MAX} parents one over the other");
            return Err(ImageError::new(ImageErrorKind::Parent, told).of(&names[0]));
        }
        let read = Opening::read(parent.file, Mode::Read).await;
        chain.push(read.map_err(|error| error.of(&parent.name))?);
        names.push(parent.name);
    }
    let mut image: Option<Image> = None;
    while let (Some(opening), Some(name)) = (chain.pop(), names.pop()) {
        let finished = opening.finish(image.take(), Arc::clone(entropy)).await;
        image = Some(finished.map_err(|error| error.of(&name))?);
    }
    image.ok_or_else(|| ImageError::damaged("the chain has no image"))
}
