//! Zeroing ranges by the file system, where it can.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{IoOp, IoRequest, IoTarget, submit};

/// What a file or device cannot do, found out by asking it once.
#[derive(Debug, Default)]
pub struct Zeroing {
    cannot_punch: AtomicBool,
    cannot_zero: AtomicBool,
}

impl Zeroing {
    /// Makes a range read as zeros; with `punch`, its space goes. False when the file or device has no such operation: then zeros
    /// have to be written.
    ///
    /// # Errors
    /// When it fails.
    pub async fn zero(&self, target: &IoTarget, offset: u64, len: u64, punch: bool) -> io::Result<bool> {
        let (cannot, op) = if punch {
            (&self.cannot_punch, IoOp::PunchHole { len })
        } else {
            (&self.cannot_zero, IoOp::ZeroRange { len })
        };
        if cannot.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match submit(IoRequest { target: target.clone(), offset, op }).await.result {
            Ok(_) => Ok(true),
            Err(error) if has_none(&error) => {
                cannot.store(true, Ordering::Relaxed);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// ENOTSUP, EOPNOTSUPP, EINVAL, ENODEV: this file or device has no such operation (ENODEV is what fallocate answers for files it
/// cannot work on).
fn has_none(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENODEV | libc::ENOSYS))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::fd::OwnedFd;
    use std::rc::Rc;
    use std::task::{Poll, Waker};

    use super::*;
    use crate::{BlockingEngine, Engine, IoCompletion, SubmitToken, block_on, install};

    /// Files that cannot zero, and can punch.
    struct PunchesOnly(BlockingEngine, RefCell<Vec<&'static str>>);

    impl Engine for PunchesOnly {
        fn kind(&self) -> &'static str {
            self.0.kind()
        }

        fn event_fd(&self) -> io::Result<Option<OwnedFd>> {
            self.0.event_fd()
        }

        fn submit(&self, mut request: IoRequest) -> SubmitToken {
            let name = match &mut request.op {
                IoOp::PunchHole { .. } => "punch",
                IoOp::ZeroRange { len } => {
                    // The kernel answers EINVAL to this.
                    *len = 0;
                    "zero"
                }
                _ => "other",
            };
            self.1.borrow_mut().push(name);
            self.0.submit(request)
        }

        fn poll(&self, token: SubmitToken, waker: &Waker) -> Poll<IoCompletion> {
            self.0.poll(token, waker)
        }

        fn abandon(&self, token: SubmitToken) {
            self.0.abandon(token);
        }

        fn flush(&self) -> io::Result<()> {
            self.0.flush()
        }

        fn reap(&self) -> usize {
            self.0.reap()
        }

        fn wait(&self) -> io::Result<usize> {
            self.0.wait()
        }
    }

    #[test]
    fn who_cannot_zero_may_punch() {
        let path = std::env::temp_dir().join(format!("io_engine-{}-zeroing", std::process::id()));
        let file = std::fs::File::create_new(&path).expect("a file");
        let target = IoTarget::of(file.into());
        let engine = Rc::new(PunchesOnly(BlockingEngine::new().expect("threads"), RefCell::default()));
        let guard = install(Rc::clone(&engine) as Rc<dyn Engine>);
        let zeroing = Zeroing::default();
        for (punch, done) in [(false, false), (true, true), (false, false), (true, true)] {
            let zeroed = block_on(&guard, zeroing.zero(&target, 0, 4096, punch)).expect("engine works");
            assert_eq!(zeroed.expect("asked"), done, "{punch}");
        }
        assert_eq!(*engine.1.borrow(), ["zero", "punch", "punch"], "each is asked for until it is refused");
        std::fs::remove_file(&path).expect("removed");
    }
}
