//! Which engine this machine permits.

use std::io;
use std::rc::Rc;

use crate::{BlockingEngine, Engine, RingEngine};

/// The engine for this thread, and why it is not the ring if it isn't.
pub struct Detected {
    /// The engine.
    pub engine: Rc<dyn Engine>,
    /// Why io_uring is not used, for the log and the status page.
    pub fallback_reason: Option<String>,
}

/// Sets the best engine up that the kernel permits: the ring, else blocking threads.
///
/// # Errors
/// When not even threads can be started.
pub fn detect() -> io::Result<Detected> {
    match RingEngine::new() {
        Ok(ring) => Ok(Detected { engine: Rc::new(ring), fallback_reason: None }),
        Err(error) => {
            let reason = match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => {
                    format!("io_uring is not permitted ({error}): see kernel.io_uring_disabled and seccomp")
                }
                Some(libc::ENOSYS) => "this kernel has no io_uring".to_owned(),
                _ => format!("io_uring cannot be set up: {error}"),
            };
            Ok(Detected { engine: Rc::new(BlockingEngine::new()?), fallback_reason: Some(reason) })
        }
    }
}
