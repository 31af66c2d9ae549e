//! What failures of the metadata database are, as a store's errors.

use block_device::{BlockError, BlockErrorKind};
use file_store::{StoreError, StoreErrorKind};

/// A failure of the database, as a store's error.
pub(crate) fn database_error(error: impl Into<redb::Error>) -> StoreError {
    let error = error.into();
    let below = match &error {
        redb::Error::Io(io) => io.get_ref().and_then(|below| below.downcast_ref::<BlockError>()),
        _ => None,
    };
    let kind = match (&error, below.map(BlockError::kind)) {
        (redb::Error::Corrupted(_), _) => StoreErrorKind::Corrupt,
        (redb::Error::Io(io), _) if io.kind() == std::io::ErrorKind::StorageFull => StoreErrorKind::NoSpace,
        (_, Some(BlockErrorKind::NoSpace)) => StoreErrorKind::NoSpace,
        _ => StoreErrorKind::Stopped,
    };
    let detail = match below {
        // The database's words for it are "I/O error".
        Some(below) => format!("metadata database: {below}"),
        None => format!("metadata database: {error}"),
    };
    StoreError::new(kind, detail).because(error)
}

/// There is no space for what the database would write.
pub(crate) fn no_space(what: &str) -> StoreError {
    let todo = "give its pool more space, and open the volume again (`holdfast volume reopen`)";
    StoreError::new(StoreErrorKind::NoSpace, format!("{what}; {todo}"))
}

/// A size could not become durable, with a flush or at the end.
pub(crate) fn no_room_to_grow() -> StoreError {
    no_space("there was no space for its metadata when the volume was opened, so no file grows")
}
