//! That a volume has stopped, and why.

use std::sync::atomic::{AtomicBool, Ordering};

use file_store::{StoreError, StoreErrorKind};
use parking_lot::Mutex;

/// Whether the metadata thread has ended, and why if it says so.
#[derive(Default)]
pub(crate) struct Stopped {
    pub(crate) flag: AtomicBool,
    pub(crate) why: Mutex<Option<String>>,
    /// The database's code has ended in the middle of something.
    gave_up: AtomicBool,
}

/// Says that the volume has stopped when the thread ends, however it ends.
pub(crate) struct Stopping<'a>(pub(crate) &'a Stopped);

impl Stopped {
    /// Before anybody learns of a failure, so that whoever has can see that the volume has stopped.
    pub(crate) fn tell(&self, error: &StoreError) {
        self.why.lock().get_or_insert_with(|| error.to_string());
        self.flag.store(true, Ordering::Release);
    }

    /// The database's code has ended in the middle of something, and so its locks may say so to whoever takes them.
    pub(crate) fn give_up(&self) {
        self.gave_up.store(true, Ordering::Release);
    }

    pub(crate) fn has_given_up(&self) -> bool {
        self.gave_up.load(Ordering::Acquire)
    }
}

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.tell(&given_up());
        }
        self.0.flag.store(true, Ordering::Release);
    }
}

/// The database's own code has given up on what it read.
pub(crate) fn given_up() -> StoreError {
    StoreError::new(
        StoreErrorKind::Corrupt,
        "the metadata database is damaged in a way that reading it gives up; `volume check` says more",
    )
}
