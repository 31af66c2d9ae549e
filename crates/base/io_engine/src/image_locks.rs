//! Who uses a disk image, as QEMU says it: locks of open file descriptions (OFD) on single bytes of the file. Nothing is written there.
//!
//! ```text
//!   byte 100 + n   whoever holds it uses permission n
//!   byte 200 + n   whoever holds it lets nobody else use permission n
//! ```
//! All locks are shared ones; one opener asks whether another holds those that are against it. As QEMU does, an opener takes its
//! own locks first and asks then: of two that come at once one is refused at least.
//!
//! Source: QEMU, `block/file-posix.c` (`RAW_LOCK_PERM_BASE`, `raw_check_lock_bytes`) and `include/block/block-common.h` (`BLK_PERM_*`).

use std::fs::{File, TryLockError};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use crate::plain_file::used;

const USES: i64 = 100;
const UNSHARED: i64 = 200;
/// Where any use is seen.
const ALL: Range<i64> = USES..300;

// Permissions: what is read is what was written, ...
const CONSISTENT_READ: i64 = 0;
const WRITE: i64 = 1;
/// ... and the size of the file is changed.
const RESIZE: i64 = 3;

/// Takes an open file, until it is closed, to be written by its owner alone or to be read while nobody writes: by a lock of the
/// whole file (flock), which another Holdfast respects, and by QEMU's.
///
/// # Errors
/// Kind `WouldBlock` when somebody's use stands against that; others where the whole file cannot be locked.
pub fn take(file: &File, writes: bool) -> io::Result<()> {
    let is_remote = is_smb(file);
    // Over SMB the kernel asks for a lock by taking it on the server, where the file's own locks are in its way: so nobody can be
    // asked later, and a lock of the whole file also stands against those on bytes.
    if is_remote && writes {
        ask(file, writes)?;
    }
    let locked = if writes { file.try_lock() } else { file.try_lock_shared() };
    locked.map_err(|error| match error {
        TryLockError::WouldBlock => used(),
        TryLockError::Error(error) => error,
    })?;
    if is_remote { Ok(()) } else { take_bytes(file, writes) }
}

fn take_bytes(file: &File, writes: bool) -> io::Result<()> {
    let unshared = [UNSHARED + WRITE, UNSHARED + RESIZE];
    let uses: &[i64] = if writes { &[CONSISTENT_READ, WRITE, RESIZE] } else { &[CONSISTENT_READ] };
    for byte in uses.iter().map(|permission| USES + permission).chain(unshared) {
        if !shared_lock(file, byte)? {
            break;
        }
    }
    ask(file, writes)
}

/// Asks whether somebody's use stands against writing, which all uses do, or reading.
fn ask(file: &File, writes: bool) -> io::Result<()> {
    let against = [USES + WRITE, USES + RESIZE, UNSHARED + CONSISTENT_READ];
    let stands =
        if writes { held(file, ALL) } else { against.iter().any(|byte| held(file, *byte..byte + 1)) };
    if stands { Err(used()) } else { Ok(()) }
}

/// Whether a file is one of an SMB server.
fn is_smb(file: &File) -> bool {
    /// fs/smb/common and linux/magic.h: what the two generations of the kernel's client say.
    const MAGICS: [u32; 2] = [0xff53_4d42, 0xfe53_4d42];
    let mut answer = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `answer` is a statfs buffer that outlives the call.
    if unsafe { libc::fstatfs(file.as_raw_fd(), answer.as_mut_ptr()) } < 0 {
        return false;
    }
    // SAFETY: zeroed at first, which is valid for this plain structure, and then filled by the kernel.
    MAGICS.contains(&(unsafe { answer.assume_init() }.f_type as u32))
}

fn lock_of(kind: i32, range: Range<i64>) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: range.start,
        l_len: range.end - range.start,
        l_pid: 0,
    }
}

/// Locks one byte; `false` where there are no such locks: on some file systems, and of files opened to be written only.
fn shared_lock(file: &File, byte: i64) -> io::Result<bool> {
    let lock = lock_of(libc::F_RDLCK, byte..byte + 1);
    // SAFETY: the kernel reads `lock`, which outlives the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Err(used()),
        _ => Ok(false),
    }
}

/// Whether another open file has a lock in a range; not, where there are no such locks.
fn held(file: &File, range: Range<i64>) -> bool {
    let mut lock = lock_of(libc::F_WRLCK, range);
    // SAFETY: the kernel reads and writes `lock`, which outlives the call.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    asked == 0 && i32::from(lock.l_type) != libc::F_UNLCK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writes_or_many_read() {
        let path = std::env::temp_dir().join(format!("io_engine-{}-locks", std::process::id()));
        std::fs::write(&path, b"").expect("made");
        let open = || File::options().read(true).write(true).open(&path).expect("opened");
        let (first, second) = (open(), open());
        take_bytes(&first, true).expect("alone");
        take_bytes(&first, true).expect("its own locks are not against it");
        for writes in [false, true] {
            let refused = take_bytes(&second, writes).expect_err("written");
            assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        }
        drop((first, second));
        let (first, second, third) = (open(), open(), open());
        take_bytes(&first, false).expect("alone");
        take_bytes(&second, false).expect("both read");
        ask(&third, false).expect("all read");
        assert!(ask(&third, true).is_err());
        assert!(take_bytes(&third, true).is_err());
        drop((first, second, third));
        // Who only uses it with leave for all else stands against writing only; who lets nobody read it, against reading, too.
        for (byte, reads) in [(USES, true), (USES + WRITE, false), (USES + RESIZE, false), (UNSHARED, false)]
        {
            let (first, second) = (open(), open());
            assert!(shared_lock(&first, byte).expect("locked"));
            assert_eq!(ask(&second, false).is_ok(), reads, "{byte}");
            assert!(ask(&second, true).is_err(), "{byte}");
        }
        let unread = File::options().write(true).open(&path).expect("opened");
        take(&unread, true).expect("alone");
        std::fs::remove_file(&path).expect("removed");
    }
}
