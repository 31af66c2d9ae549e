//! That a volume has stopped, and why; and that code of the database which gives up ends no more than the volume.

use std::panic::{AssertUnwindSafe, catch_unwind};
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

pub(crate) fn stopped() -> StoreError {
    StoreError::new(
        StoreErrorKind::Stopped,
        "the volume has stopped after a failure of its metadata or of a flush; it goes on from what is durable when it is opened again",
    )
}

/// Runs what may go by damaged pages, over which the database's code gives up: that is the end of the volume's work, and not of
/// the process.
pub(crate) fn contained<T>(
    stopped: &Stopped,
    work: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        stopped.give_up();
        Err(given_up())
    })
}
