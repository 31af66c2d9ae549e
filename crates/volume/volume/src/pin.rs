//! A user of a stream: keeps it in memory, and its file's content on the disk.

use std::sync::Arc;

use crate::core::Core;
use crate::stream::Stream;

/// Keeps a stream in memory, and its file's content on the disk.
pub(crate) struct Pin {
    core: Arc<Core>,
    stream: Arc<Stream>,
}

impl Pin {
    /// Takes over a user that the registry has counted.
    pub(crate) fn new(core: Arc<Core>, stream: Arc<Stream>) -> Self {
        Self { core, stream }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let left = self.core.registry.lock().unpin(&self.stream);
        if left.give_back {
            self.core.give_back_later(self.stream.key);
        }
        if left.save {
            self.core.attention.notify_one();
            // Whoever opens it again meanwhile has it saved with what is open.
            self.core.grown.notify_one();
        }
        if left.delete {
            self.core.delete_later(self.stream.key.0);
        }
    }
}
