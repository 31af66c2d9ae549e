//! Memory that images may take, for whoever has many of them: a little is each image's own, more is asked for.

use std::sync::Arc;

use crate::error::{ImageError, ImageErrorKind, Result};

/// What all images of a node share with others.
pub trait Memory: Send + Sync {
    /// Takes so many bytes; false when they are not there, and then none are taken.
    fn take(&self, bytes: usize) -> bool;
    /// Gives back what was taken.
    fn give_back(&self, bytes: usize);
    /// Whether others need it: images give back what they can do without.
    fn is_tight(&self) -> bool;
}

/// As much as the machine has: for programs that have one image open.
struct Unlimited;

impl Memory for Unlimited {
    fn take(&self, _bytes: usize) -> bool {
        true
    }

    fn give_back(&self, _bytes: usize) {}

    fn is_tight(&self) -> bool {
        false
    }
}

/// Memory that is not counted.
#[must_use]
pub fn unlimited() -> Arc<dyn Memory> {
    Arc::new(Unlimited)
}

/// What somebody has taken, until it is dropped.
pub(crate) struct Taken {
    memory: Arc<dyn Memory>,
    bytes: usize,
}

impl Taken {
    pub(crate) fn nothing(memory: Arc<dyn Memory>) -> Self {
        Self { memory, bytes: 0 }
    }

    /// Takes more, if it is there.
    #[must_use]
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let is_there = self.memory.take(bytes);
        self.bytes += if is_there { bytes } else { 0 };
        is_there
    }

    /// # Errors
    /// When it is not there.
    pub(crate) fn need(&mut self, bytes: usize) -> Result<()> {
        if self.grow(bytes) {
            return Ok(());
        }
        let told = format!("there is no memory for its log now ({} MiB)", bytes.div_ceil(1 << 20));
        Err(ImageError::new(ImageErrorKind::NoMemory, told))
    }

    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        if less > 0 {
            self.memory.give_back(less);
        }
    }

    pub(crate) fn is_tight(&self) -> bool {
        self.memory.is_tight()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}
