//! Files whose space is reserved, in the volume and in its pool.
//!
//! That takes as long as disks need to clear what they give, so a new file is made aside, as one that is put: it has its name when all
//! of it is there, and what a node that stops leaves of it is removed when the volume is opened again.

use control_api::{Code, FileCreate, Problem};
use file_store::{Access, FileId, FileStore, NewFile, OpenOptions, StoreError, StoreErrorKind};

use super::{KEPT, at, unfinished};

/// Makes a file of the size that is asked for, and reserves all of it.
pub(super) async fn make(
    store: &dyn FileStore,
    (directory, name): (FileId, &str),
    new: NewFile,
    request: &FileCreate,
) -> Result<FileId, Problem> {
    let path = request.path.as_str();
    match store.lookup(directory, name).await {
        Err(error) if error.kind() == StoreErrorKind::NotFound => {}
        Err(error) => return Err(at(path)(error)),
        Ok(_) => {
            let there = StoreError::new(StoreErrorKind::AlreadyExists, format!("there is a {name} already"));
            return Err(at(path)(there));
        }
    }
    let aside = unfinished::aside(directory, name);
    match store.remove(directory, &aside).await {
        // What an earlier one that broke off may have left.
        Ok(()) => {}
        Err(error) if error.kind() == StoreErrorKind::NotFound => {}
        Err(error) if error.kind() == StoreErrorKind::SharingViolation => {
            return Err(Problem::new(Code::InUse, format!("{path} is being made.")).todo("Wait for that."));
        }
        Err(error) => return Err(at(path)(error)),
    }
    unfinished::begin(store, directory, &aside).await.map_err(at(path))?;
    let made = async {
        let file = store.create(directory, &aside, new).await?;
        {
            // Nobody else takes it for something that broke off.
            let options = OpenOptions { share: KEPT, ..OpenOptions::shared(Access::READ_WRITE) };
            let open = store.open(file, options).await?;
            open.set_size(request.size_bytes).await?;
            open.reserve(0, request.size_bytes).await?;
        }
        store.rename((directory, &aside), (directory, name), false).await?;
        Ok::<_, StoreError>(file)
    };
    let made = made.await;
    if made.is_err() {
        // The first error is the one to tell. Where the volume is closed, its next opening removes it.
        let _ = store.remove(directory, &aside).await;
    }
    // One that is still there, as in a volume that has closed, stays on the list.
    if made.is_ok()
        || store.lookup(directory, &aside).await.is_err_and(|e| e.kind() == StoreErrorKind::NotFound)
    {
        unfinished::end(store, directory, &aside).await;
    }
    made.map_err(at(path))
}

/// Reserves what of a file is not yet.
pub(crate) async fn reserve(store: &dyn FileStore, path: &str) -> Result<(), Problem> {
    let file = super::open(store, path, Access::READ_WRITE).await?;
    file.reserve(0, file.size()).await.map_err(at(path))
}
