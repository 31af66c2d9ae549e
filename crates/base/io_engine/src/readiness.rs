//! Waiting for a socket without an event loop: for clients that own their thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Waits until `socket` has something to read, or, if `write`, takes something to write; for `timeout` at the most, to the
/// nanosecond. Returns whether it has: an end or an error of the connection counts as readable. A signal ends the wait.
///
/// # Errors
/// When the system cannot wait for it.
pub fn wait(socket: impl AsFd, write: bool, timeout: Duration) -> io::Result<bool> {
    let events = libc::POLLIN | if write { libc::POLLOUT } else { 0 };
    let mut entry = libc::pollfd { fd: socket.as_fd().as_raw_fd(), events, revents: 0 };
    let limit = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
    };
    // SAFETY: both outlive the call, one entry is announced and given, and no signal mask is changed.
    let result = unsafe { libc::ppoll(&raw mut entry, 1, &raw const limit, std::ptr::null()) };
    if result >= 0 {
        return Ok(entry.revents & !libc::POLLOUT != 0);
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
}
