//! A differencing disk with its parent, its parent's parent, and so on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use file_store::OpenFile;
use shard_runtime::Entropy;
use vhdx_format::ParentLocator;

use crate::error::{ImageError, ImageErrorKind, Result};
use crate::image::Image;
use crate::memory::{Memory, unlimited};
use crate::open::{Mode, Opening, check_linkage};

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
    /// Opens what `path`, one of those that `child` says its parent may be at, leads to.
    fn find<'a>(&'a self, child: &'a str, path: &'a str) -> Finding<'a>;

    /// Where the images of the chain take their memory from.
    fn memory(&self) -> Arc<dyn Memory> {
        unlimited()
    }
}

/// Opens the parent of the last of `names`, which is the image of `locator`: the first that its paths lead to, can be used, and is
/// the one. Its name, which is not one of `names`.
///
/// # Errors
/// When there is none; what is wrong with each.
pub async fn open_parent(
    names: &[String],
    locator: &ParentLocator,
    finder: &dyn Finder,
    entropy: &Arc<dyn Entropy>,
) -> Result<(String, Opening)> {
    let child = names.last().map_or("", String::as_str);
    let mut wrong: Vec<ImageError> = Vec::new();
    for path in locator.paths() {
        let opened = async {
            let found = finder.find(child, path).await?;
            if names.contains(&found.name) {
                let told = format!("its parents lead back to {}", found.name);
                return Err(ImageError::new(ImageErrorKind::Parent, told));
            }
            let read = Opening::read_within(found.file, Mode::Read, entropy, finder.memory()).await;
            let opening = read.map_err(|error| error.of(&found.name))?;
            check_linkage(locator, opening.data_write_guid())?;
            Ok((found.name, opening))
        };
        match opened.await {
            Ok(opened) => return Ok(opened),
            Err(error) => wrong.push(error),
        }
    }
    let error = match wrong.len() {
        0 => ImageError::new(ImageErrorKind::Parent, "it does not say where its parent is"),
        1 => wrong.remove(0),
        _ => {
            let told: Vec<String> = wrong.iter().map(ImageError::to_string).collect();
            ImageError::new(ImageErrorKind::Parent, told.join("; "))
        }
    };
    Err(error.of(child))
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
    let read = Opening::read_within(first.file, mode, entropy, finder.memory()).await;
    let mut chain = vec![read.map_err(|error| error.of(&names[0]))?];
    while let Some(locator) = chain.last().and_then(Opening::parent_locator) {
        if names.len() >= CHAIN_MAX {
            let told = format!("it has more than {CHAIN_MAX} parents one over the other");
            return Err(ImageError::new(ImageErrorKind::Parent, told).of(&names[0]));
        }
        let (name, opening) = open_parent(&names, locator, finder, entropy).await?;
        chain.push(opening);
        names.push(name);
    }
    let mut image: Option<Image> = None;
    while let (Some(opening), Some(name)) = (chain.pop(), names.pop()) {
        let finished = opening.finish(image.take()).await;
        image = Some(finished.map_err(|error| error.of(&name))?);
    }
    image.ok_or_else(|| ImageError::damaged("the chain has no image"))
}
