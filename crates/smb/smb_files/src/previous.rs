//! Previous versions: what lies in the store's snapshots, as Windows' clients ask for it.
//!
//! ```text
//!   FSCTL_SRV_ENUMERATE_SNAPSHOTS  which moments there are of a file: snapshots of it, or of a directory above it
//!   TWrp, or @GMT-… in a path      the file at one of them: the path is walked in the snapshot from where it was taken
//! ```
//! A moment is a second: clients know it as text. Where several snapshots were taken in one second, the last
//! counts. Everything in a snapshot is read-only: opens get no right to change, and the store refuses changes anyway.

use std::sync::Arc;

use file_store::{FileKind, Snapshot};
use smb_protocol::access::AccessMask;
use smb_protocol::fsctl::snapshots::put_snapshots;
use smb_protocol::{FileTime, NtStatus};

use crate::error::{Result, refuse};
use crate::file_system::{Core, Pin};

/// Rights that something changes by.
pub(crate) const CHANGES: AccessMask = AccessMask(
    AccessMask::WRITE_DATA.0
        | AccessMask::APPEND_DATA.0
        | AccessMask::WRITE_EA.0
        | AccessMask::WRITE_ATTRIBUTES.0
        | AccessMask::DELETE.0
        | AccessMask::DELETE_CHILD.0
        | AccessMask::WRITE_DAC.0
        | AccessMask::WRITE_OWNER.0,
);
/// Bytes of an empty list of snapshots, and the least room for one (MS-SMB2 2.2.32.2).
const LIST_MIN: usize = 16;
/// Steps of a FILETIME in a second.
const STEPS: u64 = 10_000_000;

/// The second that a snapshot was taken in.
fn moment(snapshot: &Snapshot) -> FileTime {
    FileTime(FileTime::from_unix_nanos(i64::try_from(snapshot.created).unwrap_or(i64::MAX)).0 / STEPS * STEPS)
}

impl Core {
    /// Snapshots, the latest first.
    async fn snapshots(&self) -> Result<Vec<Snapshot>> {
        let Some(store) = self.store.snapshot_store() else { return Ok(Vec::new()) };
        let mut all = store.snapshots().await?;
        all.sort_by_key(|snapshot| std::cmp::Reverse((snapshot.created, snapshot.id)));
        Ok(all)
    }

    /// FSCTL_SRV_ENUMERATE_SNAPSHOTS (MS-SMB2 3.3.5.15.1).
    ///
    /// # Errors
    /// INVALID_PARAMETER without room for an empty list; when the store fails.
    pub(crate) async fn list_previous(&self, node: &Pin, limit: usize) -> Result<Vec<u8>> {
        if limit < LIST_MIN {
            return refuse(NtStatus::INVALID_PARAMETER, "no room for a list of snapshots");
        }
        let above = node.above();
        let covers = |snapshot: &Snapshot| {
            snapshot.source == node.file || above.iter().any(|directory| directory.file == snapshot.source)
        };
        let all = self.snapshots().await?;
        let mut times: Vec<FileTime> = all.iter().filter(|snapshot| covers(snapshot)).map(moment).collect();
        times.dedup();
        let mut out = Vec::new();
        put_snapshots(&times, limit, &mut out);
        out.resize(out.len().max(LIST_MIN), 0);
        Ok(out)
    }

    /// Where a path below `root` begins as it was at a time: a place in a snapshot, and how many names of the path lead
    /// there.
    ///
    /// # Errors
    /// OBJECT_NAME_NOT_FOUND without such a snapshot; when the store fails.
    pub(crate) async fn previous(
        self: &Arc<Self>,
        root: &Pin,
        path: &[String],
        time: FileTime,
    ) -> Result<(Pin, usize)> {
        let second = time.0 / STEPS;
        let all = self.snapshots().await?;
        for snapshot in all.iter().filter(|snapshot| moment(snapshot).0 / STEPS == second) {
            if let Some(found) = self.previous_in(snapshot, root, path).await? {
                return Ok(found);
            }
        }
        refuse(NtStatus::OBJECT_NAME_NOT_FOUND, "there is no snapshot of that time")
    }

    async fn previous_in(
        self: &Arc<Self>,
        snapshot: &Snapshot,
        root: &Pin,
        path: &[String],
    ) -> Result<Option<(Pin, usize)>> {
        // Taken of the share's folder, or of one above it: down again by the names that lead here now.
        let (mut names, mut at) = (Vec::new(), Some(root.clone()));
        while let Some(node) = at {
            if node.file == snapshot.source {
                let start = self.pin_snapshot(snapshot);
                return Ok(self.walk(start, names.iter().rev()).await?.map(|found| (found, 0)));
            }
            at = node.place().map(|(parent, name)| {
                names.push(name);
                parent
            });
        }
        // Taken of something on the way.
        let mut live = root.clone();
        for (depth, name) in path.iter().enumerate() {
            if !live.is_directory() {
                return Ok(None);
            }
            let Some(next) = self.child(&live, name).await? else { return Ok(None) };
            if next.file == snapshot.source {
                return Ok(Some((self.pin_snapshot(snapshot), depth + 1)));
            }
            live = next;
        }
        Ok(None)
    }

    async fn walk<'n>(
        self: &Arc<Self>,
        mut at: Pin,
        names: impl Iterator<Item = &'n String>,
    ) -> Result<Option<Pin>> {
        for name in names {
            if at.kind != FileKind::Directory {
                return Ok(None);
            }
            let Some(next) = self.child(&at, name).await? else { return Ok(None) };
            at = next;
        }
        Ok(Some(at))
    }
}
