//! Many images from one.
//!
//! ```text
//!   for each name:  listed as unfinished ─► made aside: clone and other ids │ child ─► gets its name ─► off the list
//!   one fails: those that nobody uses yet go             the node ends: what was aside goes at the next opening of the volume
//! ```
//! So whatever has one of the names is whole, and a disk of its own. The image that they begin as is held open meanwhile: nobody
//! changes it.

use std::sync::Arc;

use block_device::BlockDevice as _;
use control_api::{Code, FileProvision, Problem, Provisioned};
use file_store::{Access, FileId, FileKind, FileStore, NewFile, OpenOptions, Share, StoreErrorKind};
use parking_lot::Mutex;
use shard_runtime::{Entropy, SystemEntropy};
use vhdx::{CreateOptions, Found, Kind, Memory, Mode, Opening, ParentLocator, open_chain};

use super::parentage::{Link, Parentage};
use super::{PARENT, Parents, problem};
use crate::files;
use crate::files::unfinished;

/// What all of them are made of.
struct Pattern<'a> {
    parentage: Option<&'a Parentage>,
    /// What all of them have for their parent, if they have one.
    parent: Option<FileId>,
    store: Arc<dyn FileStore>,
    from: FileId,
    directory: FileId,
    folder: String,
    made: Made,
    entropy: Arc<dyn Entropy>,
}

enum Made {
    Clones,
    Children { options: CreateOptions, file: NewFile },
}

/// The directories of a path and its last name, as they are called in the store.
async fn names_in(store: &dyn FileStore, path: &str) -> Result<Vec<String>, Problem> {
    let mut here = store.root();
    let mut names = Vec::new();
    for name in files::split(path)? {
        let entry = store.lookup(here, name).await.map_err(files::at(path))?;
        here = entry.file;
        names.push(entry.name);
    }
    Ok(names)
}

/// The way from a folder to a file, as images have it, and whether it leads out of the folder.
fn way(folder: &[String], file: &[String]) -> Option<(String, bool)> {
    if file.iter().any(|name| name.contains('\\')) {
        return None;
    }
    let same = folder.iter().zip(file).take_while(|(a, b)| a == b).count();
    let up = folder.len() - same;
    let steps = if up == 0 { vec!["."] } else { vec![".."; up] };
    let steps: Vec<&str> = steps.into_iter().chain(file[same..].iter().map(String::as_str)).collect();
    Some((steps.join("\\"), up > 0))
}

/// Makes images, all of them or none, but for those that somebody uses already.
///
/// # Errors
/// When one of them cannot be made, or a name is taken. Then there is none of them, or the error names those that somebody has
/// written to, replaced or opened since they got their names.
pub(crate) async fn provision(
    store: Arc<dyn FileStore>,
    parentage: Option<&Parentage>,
    memory: &Arc<dyn Memory>,
    request: &FileProvision,
) -> Result<Provisioned, Problem> {
    let names = request.names()?;
    if request.from.starts_with('@') {
        let detail =
            format!("{} is in a snapshot, and images are made from one of the volume itself.", request.from);
        return Err(Problem::new(Code::InvalidRequest, detail)
            .todo("Clone it out of the snapshot first (`holdfast snapshot clone`)."));
    }
    let golden = names_in(&*store, &request.from).await?;
    let Some((_, own)) = golden.split_last() else {
        return Err(Problem::new(Code::InvalidRequest, "The root directory is no image."));
    };
    let folder = match &request.into {
        Some(path) => names_in(&*store, path).await?,
        None => own.to_vec(),
    };
    let path = format!("/{}", folder.join("/"));
    let (directory, kind) = files::resolve(&*store, &path).await?;
    if kind != FileKind::Directory {
        return Err(Problem::new(Code::InvalidRequest, format!("{path} is no folder.")));
    }
    let place = |name: &str| format!("{}/{name}", path.trim_end_matches('/'));
    for name in &names {
        match store.lookup(directory, name).await {
            Ok(_) => {
                let detail = format!("{} is there already.", place(name));
                return Err(Problem::new(Code::AlreadyExists, detail)
                    .todo("Nothing was made. Choose other names, or remove what is there."));
            }
            Err(error) if error.kind() == StoreErrorKind::NotFound => {}
            Err(error) => return Err(files::at(&place(name))(error)),
        }
    }
    let (from, _) = files::resolve(&*store, &request.from).await?;
    let options = OpenOptions { share: PARENT, ..OpenOptions::shared(Access::READ) };
    let held = store.open(from, options).await.map_err(|error| match error.kind() {
        StoreErrorKind::SharingViolation => Problem::new(
            Code::InUse,
            format!("{} is open by somebody who may change it, or is a LUN.", request.from),
        )
        .todo("`holdfast open list` and `holdfast lun list` show who. Nothing was made."),
        _ => files::at(&request.from)(error),
    })?;
    let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
    let opening = Opening::read_within(held.clone(), Mode::Read, &entropy, memory.clone()).await;
    let info = opening.map_err(|error| problem(&error.of(&request.from)))?.info();
    let disk_bytes = info.metadata.disk_size;
    let told = way(&folder, &golden).ok_or_else(|| {
        let detail = format!("An image cannot name {} for its parent: it has a backslash.", request.from);
        Problem::new(Code::InvalidRequest, detail)
    });
    let (made, parent, parents_elsewhere) = if request.differencing {
        // A parent that cannot be read, as for want of its own, has no use for children.
        let finder =
            Parents { store: store.clone(), memory: memory.clone(), anywhere: true, found: Mutex::default() };
        let found = Found { name: format!("/{}", golden.join("/")), file: held.clone() };
        let chain =
            open_chain(found, Mode::Read, &finder, &entropy).await.map_err(|error| problem(&error))?;
        let (way, leads_out) = told?;
        let locator = ParentLocator::new(chain.data_write_guid().await, &way, None);
        let options = CreateOptions {
            logical_sector: chain.geometry().block_size,
            physical_sector: info.metadata.physical_sector,
            ..CreateOptions::new(disk_bytes, Kind::Differencing(locator))
        };
        let file = files::new(&*store, directory, FileKind::File).await.map_err(files::at(&path))?;
        (Made::Children { options, file }, Some(from), leads_out)
    } else {
        if info.metadata.parent.is_some() && folder != own {
            let detail =
                format!("{} has a parent, which its clones in another folder would not find.", request.from);
            return Err(Problem::new(Code::InvalidRequest, detail)
                .todo("Make them in its own folder, or make children of it (--differencing)."));
        }
        let parent = match info.metadata.parent {
            Some(_) => {
                // Clones have the parent that their golden image has. Whether it can be read shows when they are opened.
                let finder = Parents {
                    store: store.clone(),
                    memory: memory.clone(),
                    anywhere: true,
                    found: Mutex::default(),
                };
                let found = Found { name: format!("/{}", golden.join("/")), file: held.clone() };
                let chain = open_chain(found, Mode::Read, &finder, &entropy).await;
                let found = finder.found.into_inner().into_iter();
                found
                    .filter(|_| chain.is_ok())
                    .find(|file| Arc::strong_count(file) > 1)
                    .map(|file| file.file())
            }
            None => None,
        };
        (Made::Clones, parent, false)
    };
    let pattern = Pattern { parentage, parent, store, from, directory, folder: path.clone(), made, entropy };
    let mut finished = Vec::new();
    for name in &names {
        match pattern.make(name).await {
            Ok(image) => finished.push(image),
            Err(mut failed) => {
                let left = pattern.remove(&finished).await;
                let told = match left.as_slice() {
                    [] => "Nothing was made.".to_owned(),
                    left => format!(
                        "These were made before, and are in use already or could not be removed: {}.",
                        left.join(", ")
                    ),
                };
                failed.detail = format!("{}: {} {told}", place(name), failed.detail);
                return Err(failed);
            }
        }
    }
    let paths = names.iter().map(|name| place(name)).collect();
    drop(held);
    Ok(Provisioned { paths, disk_bytes, parents_elsewhere })
}

impl Pattern<'_> {
    /// Makes one, under its name when it is whole.
    async fn make(&self, name: &str) -> Result<Finished, Problem> {
        let (store, directory) = (&*self.store, self.directory);
        // Two that make one of the same name at once have nothing to do with each other until one of them gets it.
        let chance: String = self.entropy.next_id()[..6].iter().map(|byte| format!("{byte:02x}")).collect();
        let aside = unfinished::aside(directory, &format!("{chance}-{name}"));
        let path = format!("{}/{name}", self.folder.trim_end_matches('/'));
        unfinished::begin(store, directory, &aside).await.map_err(files::at(&path))?;
        let done = async {
            self.fill(&aside).await?;
            let file = store.lookup(directory, &aside).await.map_err(files::at(&path))?.file;
            if let (Some(parentage), Some(parent)) = (self.parentage, self.parent) {
                // Before anybody can rely on it: a row of a child that is not made after all goes when it is looked again.
                let recorded = parentage.record(&[Link { parent, child: file }]).await;
                recorded.map_err(files::at(&path))?;
            }
            let written = store.info(file).await.map_err(files::at(&path))?.times.written;
            store.rename((directory, &aside), (directory, name), false).await.map_err(files::at(&path))?;
            Ok(Finished { name: name.to_owned(), file, written })
        };
        let done = done.await;
        let mut gone = true;
        if done.is_err()
            && let Err(error) = store.remove(directory, &aside).await
            && error.kind() != StoreErrorKind::NotFound
        {
            tracing::warn!(name = aside, %error, "what was made aside stays until the volume is opened again");
            gone = false;
        }
        if gone {
            unfinished::end(store, directory, &aside).await;
        }
        done
    }

    async fn fill(&self, name: &str) -> Result<(), Problem> {
        let (store, at) = (&*self.store, files::at(&self.folder));
        let open = async |file: FileId| {
            let share = Share { read: true, write: false, delete: true };
            let options = OpenOptions { share, ..OpenOptions::shared(Access::READ_WRITE) };
            store.open(file, options).await
        };
        match &self.made {
            Made::Clones => {
                let file = match store.snapshot_store() {
                    Some(snapshots) => {
                        snapshots.clone_tree(self.from, self.directory, name).await.map_err(&at)?
                    }
                    None => {
                        let detail = "This kind of volume has no clones.";
                        return Err(Problem::new(Code::Unsupported, detail));
                    }
                };
                let opened = open(file).await.map_err(&at)?;
                let another = async {
                    let read = Opening::read(opened, Mode::Write, &self.entropy).await?;
                    read.become_another().await
                };
                another.await.map_err(|error| problem(&error))
            }
            Made::Children { options, file } => {
                let file = store.create(self.directory, name, file.clone()).await.map_err(&at)?;
                let opened = open(file).await.map_err(&at)?;
                vhdx::create(&opened, options, &*self.entropy).await.map_err(|error| problem(&error))
            }
        }
    }

    /// Removes those that were made; which could not be. They have had their names for a while, and anybody may use them: what was
    /// written to since, or put in the place of one, stays.
    async fn remove(&self, images: &[Finished]) -> Vec<String> {
        let (store, directory) = (&*self.store, self.directory);
        let mut left = Vec::new();
        for Finished { name, file, written } in images {
            let removed = async {
                let entry = store.lookup(directory, name).await?;
                let untouched = entry.file == *file && store.info(*file).await?.times.written == *written;
                if untouched { store.remove(directory, name).await.map(|()| true) } else { Ok(false) }
            };
            match removed.await {
                Ok(true) => {}
                Ok(false) => left.push(name.clone()),
                Err(error) if error.kind() == StoreErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(name, %error, "an image that was made for nothing stays");
                    left.push(name.clone());
                }
            }
        }
        left
    }
}

/// An image that has its name.
struct Finished {
    name: String,
    file: FileId,
    /// When it was last written to before it got its name.
    written: u64,
}

#[cfg(test)]
mod tests;
