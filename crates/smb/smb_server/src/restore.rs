//! Persistent opens come back after a restart, or on the node that the volume has moved to, and wait for their clients.
//!
//! Nothing of a row is the node's that wrote it: identifiers and lease keys are the client's or random, users are known by their
//! SIDs. So a row that names an open which this server already has is a second one of the same, and is never put in its place.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use byte_codec::DecodeError;
use file_store::{StateChange, StoreErrorKind};
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use smb_files::FileSystem;
use smb_protocol::NtStatus;

use crate::commands::shared_disk::disk_of;
use crate::open::disk::DiskOpen;
use crate::open::link::Link;
use crate::open::persistence::row::Row;
use crate::open::persistence::{Stored, TABLE};
use crate::open::{Lasting, Open, State, Thing};
use crate::replay::Sequence;
use crate::share::Share;
use crate::shared::Shared;
use crate::tree::{Disk, Target, Tree};

/// So many disks are opened at a time.
const AT_A_TIME: usize = 16;

/// What came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Opens that wait for their clients now.
    pub opens: usize,
    /// Rows that could not be: their file, share or user is gone, they are damaged, or another open has their identifier.
    pub given_up: usize,
}

/// Brings the persistent opens of a volume back. To be called when the volume has been opened and its shares have been
/// prepared, and before they are published.
///
/// # Errors
/// When the rows cannot be read, or those that are given up cannot be removed.
pub(crate) async fn restore(shared: &Arc<Shared>, files: &FileSystem) -> Result<Restored, NtStatus> {
    let store = files.store();
    if let Err(error) = files.forget_disks_that_are_gone().await {
        // They go the next time; nobody looks at them meanwhile.
        tracing::warn!(%error, "rows of shared virtual disks whose files are gone stay");
    }
    let rows =
        store.state_scan(TABLE, &[]).await.map_err(|error| smb_files::FileError::from(error).status)?;
    let mut result = Restored::default();
    let (mut good, mut gone) = (Vec::new(), Vec::new());
    for stored in rows {
        match Row::decode(&stored.value) {
            Ok(row) if stored.key == row.id.persistent.to_be_bytes() => {
                match (shared.shares.find_of(&row.share, files), shared.opens.find(row.id.persistent)) {
                    (None, _) => gone.push((stored.key, "its share is gone")),
                    (Some(share), None) => good.push((row, share, stored.value)),
                    // It is back already: its row is in use.
                    (_, Some(known)) if known.is_of(files) => {}
                    // Of another volume: two clients would reach each other's file under it.
                    (_, Some(_)) => gone.push((stored.key, "another open has its identifier")),
                }
            }
            Err(DecodeError::Unsupported(version)) => {
                // What it says is left to a node that knows it.
                tracing::warn!(key = ?stored.key, version, "a persistent open of a newer release is kept: its client comes back where that runs");
            }
            _ => gone.push((stored.key, "its row is damaged")),
        }
    }
    let records = good.iter().map(|(row, ..)| row.record.clone()).collect();
    let restored = files.restore(records).await;
    let mut disks = Vec::new();
    for ((row, share, value), file) in good.into_iter().zip(restored) {
        match file {
            Ok(file) => {
                let open = open_of(row, &share, files, file, value);
                disks.extend(open.disk.is_some().then_some(open.id.persistent));
                let place = shared.tables.opens.take_anyway(open.user);
                shared.opens.restore(open, place);
                result.opens += 1;
            }
            Err(error) => {
                tracing::warn!(share = row.share, name = row.record.name, reason = %error, "a persistent open cannot come back");
                gone.push((row.id.persistent.to_be_bytes().to_vec(), "its file is gone"));
            }
        }
    }
    open_disks(shared, disks);
    // They had to come back first: closing is what removes a file that was to go with its last open.
    for open in shared.opens.of_gone_users(&*shared.parts.directory).iter().filter(|open| open.is_of(files)) {
        tracing::warn!(persistent = open.id.persistent, user = %open.user, "a persistent open is closed: its user is gone or disabled");
        shared.opens.close(open).await;
        result.opens = result.opens.saturating_sub(1);
        result.given_up += 1;
    }
    result.given_up += gone.len();
    for (key, reason) in &gone {
        tracing::warn!(?key, reason, "a persistent open is given up");
    }
    let remove = |(key, _): (Vec<u8>, _)| StateChange { table: TABLE.to_owned(), key, value: None };
    if !gone.is_empty() {
        let changes = gone.into_iter().map(remove).collect();
        match store.state_write(changes).await {
            // They go the next time; what the volume has is served meanwhile.
            Err(error) if error.kind() == StoreErrorKind::NoSpace => {
                tracing::warn!(%error, "rows of persistent opens that are given up stay");
            }
            written => written.map_err(|error| smb_files::FileError::from(error).status)?,
        }
    }
    Ok(result)
}

/// Opens the disks of opens that have come back, while their clients may come: a request that is quicker opens its own, and one whose disk
/// could not be opened tries again. Other opens of the file are kept away by that of the disk.
fn open_disks(shared: &Arc<Shared>, opens: Vec<u64>) {
    if opens.is_empty() {
        return;
    }
    let Some(table) = shared.opens.table().upgrade() else { return };
    let shared = Arc::clone(shared);
    table.run(Box::new(move || {
        Box::pin(async move {
            let opening = opens.into_iter().map(async |id| {
                let Some(open) = shared.opens.find(id) else { return };
                match disk_of(&shared, &open).await {
                    Ok(_) | Err(NtStatus::FILE_CLOSED) => {}
                    Err(status) => {
                        tracing::warn!(persistent = id, %status, "a shared virtual disk cannot be opened again yet");
                    }
                }
            });
            futures_util::stream::iter(opening).buffer_unordered(AT_A_TIME).collect::<Vec<()>>().await;
        })
    }));
}

fn open_of(
    row: Row,
    share: &Arc<Share>,
    files: &FileSystem,
    file: Arc<smb_files::Open>,
    value: Vec<u8>,
) -> Open {
    let caller = file.caller();
    let target = Target::Disk(Disk {
        share: Arc::clone(share),
        files: files.clone(),
        root: Arc::clone(&caller.share),
    });
    // A tree connect that nobody has: the client's new one takes its place.
    let tree = Tree {
        id: 0,
        target,
        maximal_access: caller.share.maximal_access,
        encrypt: share.config().encrypt,
        since: 0,
    };
    into_open(row, Arc::new(tree), file, value)
}

/// The open, waiting for its client.
fn into_open(row: Row, tree: Arc<Tree>, file: Arc<smb_files::Open>, value: Vec<u8>) -> Open {
    let state = State {
        lasting: Lasting::V2 { persistent: true },
        timeout: row.timeout,
        sequence: Sequence::with_locks(row.lock_sequences),
        ..State::default()
    };
    let initiator = |disk: smb_protocol::Guid| (!disk.is_zero()).then_some(disk);
    Open {
        id: row.id,
        tree,
        thing: Thing::File(file),
        disk: row.disk.map(|disk| DiskOpen::new(initiator(disk))),
        client: row.record.client,
        user: row.record.token.user,
        create_guid: row.create_guid,
        used: AtomicBool::new(true),
        app: row.app,
        link: Link::detached(row.id),
        state: Arc::new(Mutex::new(state)),
        row: Arc::new(tokio::sync::Mutex::new(Stored::Row(value))),
    }
}
