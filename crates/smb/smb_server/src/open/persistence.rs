//! Persistent opens: what of them is on stable storage. How they come back after a restart: `restore`.
//!
//! A row of the volume's durable state for each (table [`TABLE`], key: the persistent part of the identifier, big-endian):
//! whoever owns the volume has them. The row is durable
//! * before a CREATE, LOCK or SET_INFO that changes it is answered, so that what a client was told is true after a crash;
//! * before anybody goes on with what a break of its caching made way for, so that no restart gives back what others rely on
//!   having been taken: who cannot have it durable does not go on. Soon after a break that nobody waits for, or of which those who
//!   waited are gone; who comes later waits for it first;
//! * gone before a CLOSE is answered.
//!
//! The volume batches rows that change at the same time into one commit.
//!
//! A change of a row goes on to its end when the request that wanted it is dropped, and the next one of the same row waits
//! for it: what is thought to be stored is what is stored, or is known to be unknown.

pub(crate) mod row;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use file_store::StateChange;
use smb_files::FileError;
use smb_protocol::NtStatus;
use tokio::sync::OwnedMutexGuard;

use row::Row;

use super::{Lasting, Open, Thing};
use crate::tree::{Disk, Target};

/// The table of the volume's durable state.
pub(crate) const TABLE: &str = file_store::OPENS_TABLE;

/// What is stored of an open.
#[derive(Debug, Default)]
pub(crate) enum Stored {
    /// No row.
    #[default]
    Nothing,
    /// This row.
    Row(Vec<u8>),
    /// Either what was there or what was to be: a change has begun, or has failed.
    Unknown,
}

fn key(open: &Open) -> Vec<u8> {
    open.id.persistent.to_be_bytes().to_vec()
}

/// Writes the row of an open as it is now; does nothing for an open that is not persistent.
///
/// # Errors
/// When it cannot be made durable.
pub(crate) async fn save(open: &Open) -> Result<(), NtStatus> {
    let (Thing::File(file), Target::Disk(disk)) = (&open.thing, &open.tree.target) else { return Ok(()) };
    // One after the other: an older state must not come after a newer one.
    let stored = Arc::clone(&open.row).lock_owned().await;
    let value = {
        let state = open.state.lock();
        if state.lasting != (Lasting::V2 { persistent: true }) || file.is_closed() {
            return Ok(());
        }
        Row::of(open, &state, file.record(), disk.share.config().name.clone()).encode()
    };
    if matches!(&*stored, Stored::Row(row) if *row == value) {
        return Ok(());
    }
    change(disk, stored, key(open), Some(value)).await.map_err(|error| {
        if may_tell(open, "row not written") {
            tracing::error!(path = file.path(), %error, "a persistent open cannot be made durable");
        }
        error.status
    })
}

/// Whether a row that could not be changed may have a line in the log: on a volume that is full every open of a client comes to that.
pub(crate) fn may_tell(open: &Open, kind: &'static str) -> bool {
    let Target::Disk(disk) = &open.tree.target else { return false };
    disk.share.throttle.admits(kind, IpAddr::V4(Ipv4Addr::UNSPECIFIED))
}

/// Removes the row of an open that is closed.
///
/// # Errors
/// When that cannot be made durable.
pub(crate) async fn forget(open: &Open) -> Result<(), NtStatus> {
    let Target::Disk(disk) = &open.tree.target else { return Ok(()) };
    let stored = Arc::clone(&open.row).lock_owned().await;
    if matches!(*stored, Stored::Nothing) {
        return Ok(());
    }
    change(disk, stored, key(open), None).await.map_err(|error| error.status)
}

/// Writes or removes a row, whether or not anybody waits for that to end.
async fn change(
    disk: &Disk,
    mut stored: OwnedMutexGuard<Stored>,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
) -> Result<(), FileError> {
    let (files, share) = (disk.files.clone(), Arc::clone(&disk.share));
    shard_runtime::finish_anyway(async move {
        *stored = Stored::Unknown;
        let change = StateChange { table: TABLE.to_owned(), key, value: value.clone() };
        files.store().state_write(vec![change]).await.inspect_err(|_| {
            share.counters.unsaved.fetch_add(1, Ordering::Relaxed);
        })?;
        *stored = value.map_or(Stored::Nothing, Stored::Row);
        Ok(())
    })
    .await
}
