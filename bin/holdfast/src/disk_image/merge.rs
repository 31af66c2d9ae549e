//! `holdfast disk-image merge` and `disk-image reparent`: a differencing image becomes part of its parent, or gets another one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use local_file::Purpose;
use shard_runtime::{Entropy, SystemEntropy};
use vhdx::{Mode, Opening, ParentLocator, open_parent};

use super::files::{self, Folders};
use super::{Parents, done};
use crate::error::{CliError, CliResult};
use crate::progress;
use crate::units::bytes;

/// Opens an image to be written, without its parents: nobody else has it open then.
async fn child(path: &Path) -> CliResult<Opening> {
    let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
    let file = files::file(path, Purpose::Write)?;
    Opening::read(file, Mode::Write, &entropy).await.map_err(|error| files::failed(path, error))
}

fn no_child(path: &Path) -> CliError {
    CliError::here(format!("{}: it is no differencing image, and has no parent", path.display()))
}

/// Brings all that a child has into its parent, and removes the child.
///
/// # Errors
/// When it is refused or fails; then the child shows what it showed, and can be merged again.
pub(super) async fn merge(
    image: &Path,
    into: Option<&Path>,
    keep: bool,
    parents: Parents,
    json: bool,
) -> CliResult {
    let opening = child(image).await?;
    let locator = opening.parent_locator().cloned().ok_or_else(|| no_child(image))?;
    let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
    let names = [files::canonical(image).display().to_string()];
    let found = open_parent(&names, &locator, &Folders::from(parents), &entropy).await;
    let (name, read) = found.map_err(|error| files::failed(image, error))?;
    // It is opened again, to be written, and compared again.
    drop(read);
    let parent_path = PathBuf::from(name);
    if let Some(asked) = into.filter(|asked| files::canonical(asked) != parent_path) {
        return Err(CliError::here(format!(
            "{}: its parent is {}, not {}: images are merged into their parents, one after the other",
            image.display(),
            parent_path.display(),
            asked.display()
        )));
    }
    let parent = files::open(&parent_path, Mode::Write, parents).await?;
    let size = opening.info().metadata.disk_size;
    let bar = progress::bar(size, &image.display().to_string(), json);
    let shown = bar.clone();
    let merged = opening.merge_into(parent, Box::new(move |done, _| shown.set_position(done))).await;
    bar.finish_and_clear();
    merged.map_err(|error| files::failed(image, error))?;
    let mut told =
        format!("{}: the disk of {} is in it ({})", parent_path.display(), image.display(), bytes(size));
    if keep {
        told.push_str("; the child is left, and needed no more");
    } else {
        std::fs::remove_file(image).map_err(|error| {
            CliError::here(format!("{}: merged, but could not be removed: {error}", image.display()))
        })?;
        told.push_str(", and the child is removed");
    }
    done(json, told)
}

/// Says which parent a child has, and where that is.
///
/// # Errors
/// When it is another one and nobody has said that it may be, or cannot be used.
pub(super) async fn reparent(
    image: &Path,
    parent: &Path,
    other_data: bool,
    parents: Parents,
    json: bool,
) -> CliResult {
    let opening = child(image).await?;
    let locator = opening.parent_locator().ok_or_else(|| no_child(image))?.clone();
    if files::canonical(image) == files::canonical(parent) {
        return Err(CliError::Usage("an image cannot be its own parent".into()));
    }
    // With all its parents: the image is none of them, for nobody else can open it now.
    let new = files::open(parent, Mode::Read, parents).await?;
    let info = new.info().await;
    let id = info.header.data_write_guid;
    if info.metadata.logical_sector != opening.info().metadata.logical_sector {
        return Err(CliError::here(format!(
            "{}: it has sectors of {} bytes, and its children have to have the same",
            parent.display(),
            info.metadata.logical_sector
        )));
    }
    let same = locator.is_parent(id);
    if !same && !other_data {
        return Err(CliError::here(format!(
            "{}: the data of {} is not that which this image was made from (it has the id {{{id}}}): its disk would become another one. --other-data if you know that it holds the same.",
            image.display(),
            parent.display()
        )));
    }
    let way = files::relative(image, parent)?;
    let locator = ParentLocator::new(id, &way, None);
    let elsewhere = !locator.paths().all(files::stays_in_folder);
    opening.reparent(locator, !same).await.map_err(|error| files::failed(image, error))?;
    let note = if elsewhere {
        "; that lies outside of its folder: all that uses it needs --parents-anywhere"
    } else {
        ""
    };
    done(json, format!("{}: its parent is {}{note}", image.display(), parent.display()))
}
