//! Where a thread runs, how a file will be used, and marks on files: system calls that std does not offer, made safe.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Binds the calling thread to one processor.
///
/// # Errors
/// When the processor does not exist or is not open to this process.
pub fn bind_thread(cpu: usize) -> io::Result<()> {
    // SAFETY: a cpu_set_t is a plain array of bits, for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: `cpu` lies within the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: `set` outlives the call and has the length that is given; 0 is the calling thread.
    let result = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Processors that the calling thread may run on, in order.
///
/// # Errors
/// When the system does not say.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: as in `bind_thread`.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` outlives the call and has the length that is given; 0 is the calling thread.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: every number lies within the set.
    let is_set = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    Ok((0..libc::CPU_SETSIZE as usize).filter(is_set).collect())
}

/// How a file will be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// At random.
    Random,
    /// Decodes it from the beginning to the end.
    Sequential,
}

/// Tells the system how a file will be read.
///
/// # Errors
/// When it is a file for which this has no meaning.
pub fn advise(fd: impl AsFd, access: Access) -> io::Result<()> {
    let advice = match access {
        Access::Random => libc::POSIX_FADV_RANDOM,
        Access::Sequential => libc::POSIX_FADV_SEQUENTIAL,
    };
    // SAFETY: no memory is involved.
    match unsafe { libc::posix_fadvise(fd.as_fd().as_raw_fd(), 0, 0, advice) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Sets an extended attribute of an open file.
///
/// # Errors
/// When the file system has none, or refuses.
pub fn set_mark(fd: impl AsFd, name: &CStr, value: &[u8]) -> io::Result<()> {
    // SAFETY: name and value outlive the call; the value has the length that is given.
    let result = unsafe {
        libc::fsetxattr(fd.as_fd().as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether an open file has an extended attribute of this name.
pub fn has_mark(fd: impl AsFd, name: &CStr) -> bool {
    // SAFETY: with a length of 0 no memory is written; the name outlives the call.
    unsafe { libc::fgetxattr(fd.as_fd().as_raw_fd(), name.as_ptr(), std::ptr::null_mut(), 0) >= 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_where_it_is_bound() {
        let allowed = allowed_cpus().unwrap();
        let last = *allowed.last().unwrap();
        let bound = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    bind_thread(last).unwrap();
                    allowed_cpus().unwrap()
                })
                .join()
        });
        assert_eq!(bound.unwrap(), [last]);
        assert!(bind_thread(usize::MAX).is_err());
    }
}
