//! A request as ordinary system calls.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use crate::{IoCompletion, IoOp, IoRequest, IoTarget};

/// Carries a request out now, on this thread; may block for as long as the target does.
pub(crate) fn carry_out(request: IoRequest) -> IoCompletion {
    let IoRequest { target, offset, mut op } = request;
    let result = match &target {
        IoTarget::File(fd) | IoTarget::InMemory(fd) => system_call(fd.as_raw_fd(), offset, &mut op),
        IoTarget::Simulated(_) => {
            Err(io::Error::new(io::ErrorKind::Unsupported, "a thread cannot reach a simulated file"))
        }
    };
    IoCompletion { result, op }
}

fn system_call(fd: RawFd, offset: u64, op: &mut IoOp) -> io::Result<usize> {
    let at = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    let (mut done, mut list) = (0, Vec::new());
    loop {
        let here = at.saturating_add(done as libc::off_t);
        let result = match op {
            IoOp::Read(buf) => {
                let rest = &mut buf[done..];
                // SAFETY: `rest` is writable memory of the given length, owned for the whole call.
                unsafe { libc::pread(fd, rest.as_mut_ptr().cast(), rest.len(), here) }
            }
            IoOp::Write { data, durable } => {
                let rest = &data[done..];
                let part = libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
                let flags = if *durable { libc::RWF_DSYNC } else { 0 };
                // SAFETY: one iovec over readable memory of the given length, owned for the whole call.
                unsafe { libc::pwritev2(fd, &raw const part, 1, here, flags) }
            }
            IoOp::WriteVectored { parts, durable } => {
                crate::request::list_parts(parts, done, &mut list);
                let flags = if *durable { libc::RWF_DSYNC } else { 0 };
                // SAFETY: iovecs over readable memory of the given lengths, owned for the whole call.
                unsafe { libc::pwritev2(fd, list.as_ptr(), list.len() as libc::c_int, here, flags) }
            }
            // SAFETY: no memory is involved.
            IoOp::Sync => unsafe { libc::fdatasync(fd) as isize },
            IoOp::PunchHole { len } => fallocate(fd, crate::request::PUNCH_HOLE, here, *len),
            IoOp::ZeroRange { len } => fallocate(fd, crate::request::ZERO_RANGE, here, *len),
        };
        if result < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        done += result as usize;
        match (result, &op) {
            _ if done >= op.len() => return Ok(done),
            (0, IoOp::Write { .. } | IoOp::WriteVectored { .. }) => {
                return Err(io::ErrorKind::WriteZero.into());
            }
            (0, _) => return Ok(done),
            _ => {}
        }
    }
}

fn fallocate(fd: RawFd, mode: i32, at: libc::off_t, len: u64) -> isize {
    let len = libc::off_t::try_from(len).unwrap_or(libc::off_t::MAX);
    // SAFETY: no memory is involved.
    unsafe { libc::fallocate(fd, mode, at, len) as isize }
}
