//! Virtual disks in files of a volume: opened with their parents, found by what the images say of them. Runs on the shard of the
//! volume.
//!
//! ```text
//!   /desks/a.vhdx   read, write; shares nothing        the disk that is served
//!        │ ".\\golden.vhdx"
//!   /desks/golden.vhdx   read; shares reading only     as many children as like have it open, and nobody changes it
//! ```

pub(crate) mod parentage;
pub(crate) mod provision;

use std::sync::Arc;

use control_api::{Code, Problem};
use file_store::{Access, FileKind, FileStore, OpenFile, OpenOptions, Share, StoreError, StoreErrorKind};
use parking_lot::Mutex;
use shard_runtime::{Entropy, SystemEntropy, finish_anyway};
use tcp_service::Budget;
use vhdx::{Finder, Finding, Found, Image, ImageError, ImageErrorKind, Memory, Mode, open_chain};

use crate::files;

/// What is shared of the file of an image that is served. Who read it while it is written would see parts of it from before and
/// parts from after: a snapshot of the file has it as it was at one moment.
const OWNED: Share = Share { read: false, write: false, delete: false };
/// What is shared of a parent: its children rely on it.
const PARENT: Share = Share { read: true, write: false, delete: false };

/// An image of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImagePlace {
    /// Its path in the volume.
    pub(crate) path: String,
    /// Its parents are opened wherever in the volume it says.
    pub(crate) parents_anywhere: bool,
}

/// The node's memory for requests, of which images take some.
struct Shared(Budget);

impl Memory for Shared {
    fn take(&self, bytes: usize) -> bool {
        self.0.take(bytes)
    }

    fn give_back(&self, bytes: usize) {
        self.0.give_back(bytes);
    }

    fn is_tight(&self) -> bool {
        self.0.is_tight()
    }
}

/// Where images that are open take their memory from.
pub(crate) fn memory(budget: &Budget) -> Arc<dyn Memory> {
    Arc::new(Shared(budget.clone()))
}

/// What happened to an image.
pub(crate) fn problem(error: &ImageError) -> Problem {
    let code = match error.kind() {
        ImageErrorKind::NotAnImage | ImageErrorKind::InvalidArgument => Code::InvalidRequest,
        ImageErrorKind::Damaged => Code::Damaged,
        ImageErrorKind::Unsupported => Code::Unsupported,
        ImageErrorKind::NoSpace => Code::NoSpace,
        ImageErrorKind::Io => Code::Io,
        ImageErrorKind::NoMemory => Code::Unavailable,
        _ => Code::WrongState,
    };
    Problem::new(code, format!("{error}."))
}

/// Opens an image with its parents. Nobody else has it open then, and nobody may.
///
/// # Errors
/// When somebody has it open ([`Code::InUse`]), or it cannot be used.
pub(crate) async fn open(
    store: &Arc<dyn FileStore>,
    place: &ImagePlace,
    mode: Mode,
    memory: &Arc<dyn Memory>,
) -> Result<Image, Problem> {
    let file = open_file(store, place, mode).await?;
    Ok(open_over(store, place, file, mode, memory).await?.0)
}

/// Opens the file of an image, which is nobody else's then.
///
/// # Errors
/// When somebody has it open ([`Code::InUse`]), or it is not there.
pub(crate) async fn open_file(
    store: &Arc<dyn FileStore>,
    place: &ImagePlace,
    mode: Mode,
) -> Result<Arc<dyn OpenFile>, Problem> {
    let access = if mode == Mode::Write { Access::READ_WRITE } else { Access::READ };
    files::open_shared(&**store, &place.path, access, OWNED).await
}

/// Opens the image in a file that [`open_file`] has opened, which no other image is open over, with its parents. Their files come
/// with it. It comes to its end when nobody waits for it: what an opening puts in its place of the image's log must not come after
/// what the next one writes.
///
/// # Errors
/// When it cannot be used.
pub(crate) async fn open_over(
    store: &Arc<dyn FileStore>,
    place: &ImagePlace,
    file: Arc<dyn OpenFile>,
    mode: Mode,
    memory: &Arc<dyn Memory>,
) -> Result<(Image, Vec<Arc<dyn OpenFile>>), Problem> {
    let (store, place, memory) = (Arc::clone(store), place.clone(), Arc::clone(memory));
    let opening = async move {
        let names = files::split(&place.path)?;
        let finder = Parents { store, memory, anywhere: place.parents_anywhere, found: Mutex::default() };
        let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
        let first = Found { name: format!("/{}", names.join("/")), file };
        let image = open_chain(first, mode, &finder, &entropy).await.map_err(|error| problem(&error))?;
        let mut parents = finder.found.into_inner();
        // What was found and is none of the parents is nobody's here.
        parents.retain(|file| Arc::strong_count(file) > 1);
        Ok((image, parents))
    };
    finish_anyway(opening).await
}

/// Finds parents in the volume of their child: in its folder and those in it, or anywhere. Who may put an image on a share could
/// otherwise have any file of the volume read to him.
struct Parents {
    store: Arc<dyn FileStore>,
    memory: Arc<dyn Memory>,
    anywhere: bool,
    /// The files that were found.
    found: Mutex<Vec<Arc<dyn OpenFile>>>,
}

/// The names on the way from the root to what an image says its parent is at; `None` for a place on another system. Whether it lies
/// in the folder of the child or one in it comes with it.
fn names_of(child: &str, text: &str) -> Option<(Vec<String>, bool)> {
    let text = text.replace('\\', "/");
    let absolute = text.starts_with('/');
    let has_drive = text.split('/').next().is_some_and(|first| first.ends_with(':'));
    if text.starts_with("//") || has_drive {
        return None;
    }
    let mut names: Vec<String> = child.split('/').filter(|name| !name.is_empty()).map(Into::into).collect();
    names.pop();
    let (folder, mut inside) = (names.len(), !absolute);
    if absolute {
        names.clear();
    }
    for name in text.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop()?;
            }
            name => names.push(name.to_owned()),
        }
        inside &= names.len() >= folder;
    }
    Some((names, inside))
}

impl Finder for Parents {
    fn memory(&self) -> Arc<dyn Memory> {
        self.memory.clone()
    }

    fn find<'a>(&'a self, child: &'a str, text: &'a str) -> Finding<'a> {
        Box::pin(async move {
            let wrong = |told: String| ImageError::new(ImageErrorKind::Parent, told);
            let (names, inside) = names_of(child, text).ok_or_else(|| {
                wrong(format!("its parent {text} is missing: that is no path in its volume"))
            })?;
            if !self.anywhere && !inside {
                return Err(wrong(format!(
                    "its parent {text} lies outside of its folder, and is not opened for that: --parents-anywhere if you trust whoever made the image"
                )));
            }
            let place = format!("/{}", names.join("/"));
            let missing = |error: StoreError| match error.kind() {
                StoreErrorKind::SharingViolation => wrong(format!(
                    "its parent {place} is open by somebody who may change it: `holdfast open list` and `holdfast lun list` show who"
                )),
                StoreErrorKind::NotFound => wrong(format!("its parent {place} is missing")),
                _ => wrong(format!("its parent {place}: {error}")),
            };
            let mut here = self.store.root();
            let mut found = Vec::new();
            for (number, name) in names.iter().enumerate() {
                let entry = self.store.lookup(here, name).await.map_err(missing)?;
                if (number + 1 == names.len()) != (entry.kind == FileKind::File) {
                    return Err(wrong(format!("its parent {place} is no file")));
                }
                here = entry.file;
                found.push(entry.name);
            }
            let options = OpenOptions { share: PARENT, ..OpenOptions::shared(Access::READ) };
            let file = self.store.open(here, options).await.map_err(missing)?;
            self.found.lock().push(file.clone());
            Ok(Found { name: format!("/{}", found.join("/")), file })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locators_lead_to_places_in_the_volume() {
        let path = |text| names_of("/d/e/child.vhdx", text).map(|(names, inside)| (names.join("/"), inside));
        let inside = |path: &str| Some((path.to_owned(), true));
        let outside = |path: &str| Some((path.to_owned(), false));
        assert_eq!(path(".\\base.vhdx"), inside("d/e/base.vhdx"));
        assert_eq!(path("f\\base.vhdx"), inside("d/e/f/base.vhdx"));
        assert_eq!(path("f/../base.vhdx"), inside("d/e/base.vhdx"));
        assert_eq!(path("..\\base.vhdx"), outside("d/base.vhdx"));
        // Out and in again tells whoever made it whether there is such a folder.
        assert_eq!(path("..\\e\\base.vhdx"), outside("d/e/base.vhdx"));
        assert_eq!(path("/d/e/base.vhdx"), outside("d/e/base.vhdx"));
        assert_eq!(path("..\\..\\..\\base.vhdx"), None);
        assert_eq!(path("C:\\d\\base.vhdx"), None);
        assert_eq!(path("\\\\?\\Volume{1}\\base.vhdx"), None);
        assert_eq!(names_of("/child.vhdx", "base").map(|(names, _)| names.join("/")), Some("base".into()));
    }
}
