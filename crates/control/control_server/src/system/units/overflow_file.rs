//! The overflow files of write caches: made, removed, and swept where they belong to nobody.
//!
//! ```text
//!   begin: the name is listed (`files::unfinished`) ──► what had it before loses it ──► a new file, of nobody but the system
//!   remove: the file goes ──► its name is not listed any more
//!   the volume is opened: whatever is listed goes, as nobody knows how to find what it held
//! ```
//! Such a file holds what hosts have written to their disks: whoever may use the folder that it lies in is not to read that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::Durability;
use control_api::{Code, Problem};
use file_store::{
    Access, Attributes, DirectoryCursor, FileKind, FileStore, NewFile, OpenFile, OpenOptions, Share,
    StoreErrorKind,
};
use smb_protocol::security::AceFlags;
use uuid::Uuid;

use crate::files::{self, unfinished};

/// What is shared of an overflow file.
const OWNED: Share = Share { read: false, write: false, delete: false };
/// How often, and how many times, it is tried to remove one that somebody has opened in the moment in which its cache let go of it.
const REMOVE_EVERY: Duration = Duration::from_millis(20);
const REMOVE_TRIES: u32 = 250;
const SUFFIX: &str = ".overflow";

/// The path of a LUN's file.
pub(super) fn path_of(folder: &str, lun: Uuid) -> String {
    format!("{}/{lun}{SUFFIX}", folder.trim_end_matches('/'))
}

/// The LUN that a file of this name is of: only of names as [`path_of`] makes them.
fn lun_of(name: &str) -> Option<Uuid> {
    let lun: Uuid = name.strip_suffix(SUFFIX)?.parse().ok()?;
    (format!("{lun}{SUFFIX}") == name).then_some(lun)
}

/// The descriptor of an overflow file: the system and administrators may use it, and nothing comes from its folder.
fn own_descriptor() -> Vec<u8> {
    let mut own = smb_security::folder(&[]);
    for ace in own.dacl.iter_mut().flat_map(|dacl| &mut dacl.aces) {
        ace.flags = AceFlags::NONE;
    }
    own.encode()
}

/// A new overflow file. What a former one held nobody knows how to find. Whatever has the name loses only that: it may be a hard link
/// that a user of the folder has made, to a file whose content is to stay.
pub(super) async fn begin(store: &dyn FileStore, path: &str) -> Result<Arc<dyn OpenFile>, Problem> {
    let (directory, name) = files::parent(store, path, true).await?;
    unfinished::begin(store, directory, name).await.map_err(files::at(path))?;
    match store.remove(directory, name).await {
        Ok(()) => {}
        Err(error) if error.kind() == StoreErrorKind::NotFound => {}
        Err(error) => return Err(files::at(path)(error)),
    }
    let (attributes, security) = (Attributes::default(), own_descriptor());
    let new = NewFile { kind: FileKind::File, attributes, security };
    let file = store.create(directory, name, new).await.map_err(files::at(path))?;
    let options = OpenOptions { share: OWNED, ..OpenOptions::shared(Access::READ_WRITE) };
    let file = store.open(file, options).await.map_err(files::at(path))?;
    // Whether there is room is known now, and not when the first writes wait for it.
    let tried = file.write(0, IoBuf::zeroed(write_cache::SLAB as usize).freeze(), Durability::Volatile).await;
    tried.map_err(files::at(path))?;
    Ok(file)
}

/// Removes one that its cache has let go of. Where that fails it is told of, and removed when the volume is opened next.
pub(super) async fn remove(store: &dyn FileStore, path: &str) {
    let mut tries = 0;
    let problem = loop {
        tries += 1;
        match files::remove(store, path).await {
            Err(problem) if problem.code == Code::InUse && tries < REMOVE_TRIES => {
                shard_runtime::sleep(REMOVE_EVERY).await;
            }
            Err(problem) if problem.code != Code::NotFound => break problem,
            _ => {
                if let Ok((directory, name)) = files::parent(store, path, false).await {
                    unfinished::end(store, directory, name).await;
                }
                return;
            }
        }
    };
    tracing::warn!(path, problem = problem.detail, "the overflow file of a LUN was not removed");
}

/// Removes overflow files from a folder whose LUNs are not among those that are `known`: of those that are listed none is left, and earlier
/// releases have not listed any. One that is in use stays.
pub(super) async fn sweep(store: &dyn FileStore, folder: &str, known: &BTreeSet<Uuid>) {
    if let Err(problem) = try_sweep(store, folder, known).await
        && problem.code != Code::NotFound
    {
        tracing::warn!(folder, problem = problem.detail, "overflow files of former LUNs may be left");
    }
}

async fn try_sweep(store: &dyn FileStore, folder: &str, known: &BTreeSet<Uuid>) -> Result<(), Problem> {
    let (directory, kind) = files::resolve(store, folder).await?;
    if kind != FileKind::Directory {
        return Ok(());
    }
    let mut nobodys = Vec::new();
    let mut cursor = Some(DirectoryCursor::default());
    while let Some(from) = cursor {
        let page = store.read_directory(directory, from, files::PAGE).await.map_err(files::at(folder))?;
        let names = page.entries.into_iter().filter(|entry| entry.kind == FileKind::File);
        let names = names.map(|entry| entry.name);
        nobodys.extend(names.filter(|name| lun_of(name).is_some_and(|lun| !known.contains(&lun))));
        cursor = page.next;
    }
    for name in nobodys {
        match store.remove(directory, &name).await {
            Ok(()) => tracing::info!(folder, name, "the overflow file of a former LUN is removed"),
            Err(error) if error.kind() == StoreErrorKind::NotFound => {}
            Err(error) => return Err(files::at(folder)(error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_node_leaves_goes_when_the_volume_is_opened() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let store = file_store::MemoryStore::new(1 << 30);
            let path = path_of("/", Uuid::from_u128(7));
            let there = async || files::stat(&store, &path).await.is_ok();
            let file = begin(&store, &path).await.expect("made");
            assert!(there().await);
            // The node ends, and nobody has it open any more; its LUN may be gone by then.
            drop(file);
            unfinished::remove_all(&store).await.expect("removed");
            assert!(!there().await);
            // One that was removed is not listed: what has its name later is somebody else's.
            drop(begin(&store, &path).await.expect("made"));
            remove(&store, &path).await;
            assert!(!there().await);
            let new =
                NewFile { kind: FileKind::File, attributes: Attributes::default(), security: Vec::new() };
            store.create(store.root(), path.trim_start_matches('/'), new).await.expect("made");
            unfinished::remove_all(&store).await.expect("nothing is listed");
            assert!(there().await);
        });
    }

    #[test]
    fn only_names_of_exactly_their_form_are_overflow_files() {
        let lun = Uuid::from_u128(0x1234_5678_9abc_def0_0fed_cba9_8765_4321);
        let name = path_of("/", lun).trim_start_matches('/').to_owned();
        assert_eq!((path_of("/a/", lun), lun_of(&name)), (format!("/a/{name}"), Some(lun)));
        let bare = lun.simple().to_string();
        for other in [
            name.to_uppercase(),
            format!("{bare}.overflow"),
            format!("{{{lun}}}.overflow"),
            format!("{lun}.overflow.bak"),
            format!("{lun}"),
            "notes.overflow".to_owned(),
            ".overflow".to_owned(),
        ] {
            assert_eq!(lun_of(&other), None, "{other}");
        }
    }
}
