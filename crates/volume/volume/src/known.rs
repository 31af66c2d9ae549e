//! What streams in memory know of a file better than its rows.

use std::sync::atomic::Ordering;

use file_store::FileInfo;
use volume_format::CLUSTER;

use crate::core::Core;
use crate::tables::StreamKey;

/// What the stream in memory, or what it left behind, knows better than the database.
pub(crate) struct Known {
    pub(crate) size: u64,
    pub(crate) written: u64,
    /// Clusters; `None` when the database knows.
    pub(crate) clusters: Option<u64>,
}

impl Known {
    /// Puts what a stream in memory knows in the place of what the database says.
    pub(crate) fn correct(&self, info: &mut FileInfo) {
        info.size = self.size;
        info.times.written = if self.written > 0 { self.written } else { info.times.written };
        info.times.changed = info.times.changed.max(self.written);
        info.allocated = self.clusters.map_or(info.allocated, |clusters| clusters * CLUSTER);
    }
}

impl Core {
    pub(crate) fn known(&self, key: StreamKey) -> Option<Known> {
        let registry = self.registry.lock();
        if let Some(stream) = registry.stream(key) {
            let clusters = Some(stream.map.read().clusters());
            let written = stream.written.load(Ordering::Acquire);
            return Some(Known { size: stream.size(), written, clusters });
        }
        let unsaved = registry.unsaved(key)?;
        Some(Known { size: unsaved.size, written: unsaved.written, clusters: None })
    }

    /// What is known of a file without a way to the metadata thread.
    pub(crate) fn recent_info(&self, file: u64) -> Option<FileInfo> {
        let recent = self.metadata.recent()?;
        let version = recent.version();
        // Streams first: what they have saved meanwhile is in the row, and says the same.
        let known = self.known((file, 0));
        let (mut info, measured) = recent.info(file)?;
        let complete = measured || known.as_ref().is_some_and(|known| known.clusters.is_some());
        if recent.version() != version || !complete {
            return None;
        }
        if let Some(known) = known {
            known.correct(&mut info);
        }
        Some(info)
    }

    /// A time of writing that is set counts; what streams remember of earlier writes does not.
    pub(crate) fn forget_written(&self, file: u64) {
        let mut registry = self.registry.lock();
        registry.forget_written(file);
    }
}
