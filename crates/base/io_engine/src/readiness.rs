//! Waiting for sockets and rings without an event loop: for clients that own their thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// A socket or ring that is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Awaited<'a> {
    /// It: until it has something to read, or, of a ring, until something has ended.
    pub file: BorrowedFd<'a>,
    /// Also until it takes something to write.
    pub write: bool,
}

/// Waits until `socket` has something to read, or, if `write`, takes something to write; for `timeout` at the most, to the
/// nanosecond. Returns whether there is something to read: an end or an error of the connection counts. A signal ends the
/// wait.
///
/// # Errors
/// When the system cannot wait for it.
pub fn wait(socket: impl AsFd, write: bool, timeout: Duration) -> io::Result<bool> {
    wait_any([Some(Awaited { file: socket.as_fd(), write })], timeout)
}

/// The same for several: until one of them has or takes something.
///
/// # Errors
/// When the system cannot wait for them.
pub fn wait_any<const N: usize>(awaited: [Option<Awaited<'_>>; N], timeout: Duration) -> io::Result<bool> {
    let mut entries = awaited.map(|awaited| match awaited {
        Some(Awaited { file, write }) => {
            let events = libc::POLLIN | if write { libc::POLLOUT } else { 0 };
            libc::pollfd { fd: file.as_raw_fd(), events, revents: 0 }
        }
        // The system passes over it.
        None => libc::pollfd { fd: -1, events: 0, revents: 0 },
    });
    let limit = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
    };
    // SAFETY: both outlive the call, N entries are announced and given, and no signal mask is changed.
    let result =
        unsafe { libc::ppoll(entries.as_mut_ptr(), N as libc::nfds_t, &raw const limit, std::ptr::null()) };
    if result >= 0 {
        return Ok(entries.iter().any(|entry| entry.revents & !libc::POLLOUT != 0));
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn readable_writable_and_neither() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let long = Duration::from_secs(3600);
        // Each of these would wait for an hour if it did not see what it waits for.
        assert!(!wait(&far, true, long).unwrap());
        near.write_all(b"x").unwrap();
        assert!(wait(&far, false, long).unwrap());
        assert!(!wait(&near, false, Duration::from_nanos(1)).unwrap());
        drop(far);
        assert!(wait(&near, false, long).unwrap());
    }

    #[test]
    fn any_of_several() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let (quiet, _other) = UnixStream::pair().unwrap();
        let of = |socket| Some(Awaited { file: AsFd::as_fd(socket), write: false });
        assert!(!wait_any([of(&quiet), None, of(&far)], Duration::from_nanos(1)).unwrap());
        near.write_all(b"x").unwrap();
        let long = Duration::from_secs(3600);
        assert!(wait_any([of(&quiet), None, of(&far)], long).unwrap());
        assert!(wait_any([of(&far), of(&quiet)], long).unwrap());
        // Only to be written to, which ends the wait and is nothing to read.
        let write = Some(Awaited { file: quiet.as_fd(), write: true });
        assert!(!wait_any([of(&quiet), write], long).unwrap());
        assert!(!wait_any([None], Duration::from_nanos(1)).unwrap());
    }
}
