//! When the time of the last write shows.
//!
//! A server of Windows does not move it with each write: the time is up to date when the file is flushed, its size or its
//! attributes are set, or the handle that wrote is closed, and otherwise a while after the first write (MS-FSA 2.1.4.17 and
//! its note; smb2.timestamps.delayed-… measured it). Programs compare times around what they do to a file and find what
//! they are used to. The store moves its own time with the data; what is shown of it waits here. Nothing of this survives
//! the node, nor is there anything to lose.

use std::sync::atomic::Ordering;
use std::time::Duration;

use file_store::InfoChange;
use shard_runtime::Monotonic;

use crate::error::Result;
use crate::file_system::{LateTime, Open};

/// How long after its first write through an open the time shows.
const FIRST: Duration = Duration::from_secs(2);
/// How long after a later one: not before the handle is closed, mostly, but no watcher of a log waits for ever.
const LATER: Duration = Duration::from_secs(60);
/// Closing a handle is the file's last write where that is longer ago; as on NTFS, whose closing says when it noticed.
const RECENT: Duration = FIRST;

impl Open {
    /// This open is about to write: the time as it is goes on showing.
    pub(crate) async fn hold_write_time(&self) -> Result<()> {
        if self.node.late_writer.load(Ordering::Acquire) == self.id.0 {
            return Ok(());
        }
        let shown = self.core.info(&self.node).await?.times.written;
        let wait = {
            let mut state = self.state.lock();
            // A time that was set through this open, or is frozen, is kept in the store itself.
            if state.sticky.written.is_some() {
                return Ok(());
            }
            if std::mem::replace(&mut state.wrote_before, true) { LATER } else { FIRST }
        };
        let until = Monotonic(self.core.clock.now().0.saturating_add(wait.as_nanos() as u64));
        let mut state = self.node.state.lock();
        let until = state.late_time.map_or(until, |late| late.until.min(until));
        state.late_time = Some(LateTime { shown, until });
        self.node.late_writer.store(self.id.0, Ordering::Release);
        Ok(())
    }

    /// The open is being closed: if it was the one that wrote, the time shows, and is now if the write was long ago.
    pub(crate) async fn show_write_time_at_close(&self) {
        if self.node.late_writer.load(Ordering::Acquire) != self.id.0 {
            return;
        }
        self.node.show_write_time();
        let Ok(info) = self.core.info(&self.node).await else { return };
        let now = self.core.clock.wall().0;
        if Duration::from_nanos(now.saturating_sub(info.times.written)) <= RECENT {
            return;
        }
        let change = InfoChange { written: Some(now), ..InfoChange::default() };
        if let Err(error) = self.store().set_info(self.node.file, change).await {
            tracing::warn!("the time of closing a file was not kept: {error}");
        }
        self.node.touched();
    }
}
