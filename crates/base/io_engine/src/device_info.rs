//! What the system knows of an open file or device: the few ioctls that std does not offer, made safe.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

// Request numbers of linux/fs.h; libc has no constants for them on every target.
const BLKROGET: libc::c_ulong = 0x125e;
const BLKSSZGET: libc::c_ulong = 0x1268;
const BLKPBSZGET: libc::c_ulong = 0x127b;
const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;

/// Sizes of an open block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Size in bytes.
    pub size: u64,
    /// Logical block size in bytes.
    pub logical_block: u32,
    /// Physical block size in bytes.
    pub physical_block: u32,
    /// Whether the device refuses writes.
    pub read_only: bool,
}

/// Asks a block device for its sizes.
///
/// # Errors
/// When `fd` is not a block device.
pub fn device_info(fd: impl AsFd) -> io::Result<DeviceInfo> {
    let fd = fd.as_fd().as_raw_fd();
    let (mut size, mut logical, mut physical, mut read_only) = (0u64, 0i32, 0u32, 0i32);
    let ask = |request, answer: *mut libc::c_void| {
        // SAFETY: each request writes one value of the type that `answer` points to, which outlives the call.
        if unsafe { libc::ioctl(fd, request, answer) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    ask(BLKGETSIZE64, (&raw mut size).cast())?;
    ask(BLKSSZGET, (&raw mut logical).cast())?;
    ask(BLKPBSZGET, (&raw mut physical).cast())?;
    ask(BLKROGET, (&raw mut read_only).cast())?;
    Ok(DeviceInfo {
        size,
        logical_block: logical.max(0) as u32,
        physical_block: physical,
        read_only: read_only != 0,
    })
}

/// What direct I/O on a file asks of offsets and lengths, in bytes (STATX_DIOALIGN); `None` when the file
/// system does not say or cannot do direct I/O.
pub fn direct_io_alignment(fd: impl AsFd) -> Option<u32> {
    let mut answer = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: an empty path with AT_EMPTY_PATH asks about the descriptor; `answer` is a statx buffer.
    let result = unsafe {
        libc::statx(
            fd.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            answer.as_mut_ptr(),
        )
    };
    if result < 0 {
        return None;
    }
    // SAFETY: zeroed at first, which is valid for this plain structure, and then filled by the kernel.
    let answer = unsafe { answer.assume_init() };
    (answer.stx_mask & libc::STATX_DIOALIGN != 0 && answer.stx_dio_offset_align > 0)
        .then_some(answer.stx_dio_offset_align)
}

/// Whether it is a plain file in a file system that keeps its data in memory. The names of devices lie in such a one, too (devtmpfs), and
/// their data does not.
pub fn is_in_memory(fd: impl AsFd) -> bool {
    /// linux/magic.h
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    const RAMFS_MAGIC: u64 = 0x8584_58f6;
    let fd = fd.as_fd();
    let Some(kind) = file_system(fd) else { return false };
    (kind == TMPFS_MAGIC || kind == RAMFS_MAGIC) && is_plain(fd)
}

/// Whether it is in a file system that other machines reach, too, by a network or on a disk that they share. `true` where the system does not say.
pub fn is_of_a_network(fd: impl AsFd) -> bool {
    /// linux/magic.h and the file systems' own headers: NFS, SMB 1, CIFS, SMB 2 and later, Ceph, FUSE (also virtiofs: what is behind it is
    /// not known), 9P, AFS, kAFS, CODA, GFS2, OCFS2, Lustre, BeeGFS, GPFS.
    const SHARED: [u64; 15] = [
        0x6969,
        0x517b,
        0xff53_4d42,
        0xfe53_4d42,
        0x00c3_6400,
        0x6573_5546,
        0x0102_1997,
        0x5346_414f,
        0x6b41_4653,
        0x7375_7245,
        0x0116_1970,
        0x7461_636f,
        0x0bd0_0bd0,
        0x1983_0326,
        0x4750_4653,
    ];
    file_system(fd.as_fd()).is_none_or(|kind| SHARED.contains(&kind))
}

/// The number of the kind of file system that it is in.
fn file_system(fd: BorrowedFd<'_>) -> Option<u64> {
    let mut answer = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `answer` is a statfs buffer that outlives the call.
    if unsafe { libc::fstatfs(fd.as_raw_fd(), answer.as_mut_ptr()) } < 0 {
        return None;
    }
    // SAFETY: zeroed at first, which is valid for this plain structure, and then filled by the kernel.
    let kind = unsafe { answer.assume_init() }.f_type;
    // The numbers have 32 bits; the field is signed, and wider on some machines.
    Some(kind as u64 & 0xffff_ffff)
}

fn is_plain(fd: impl AsFd) -> bool {
    let mut answer = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `answer` is a stat buffer that outlives the call.
    if unsafe { libc::fstat(fd.as_fd().as_raw_fd(), answer.as_mut_ptr()) } < 0 {
        return false;
    }
    // SAFETY: zeroed at first, which is valid for this plain structure, and then filled by the kernel.
    unsafe { answer.assume_init() }.st_mode & libc::S_IFMT == libc::S_IFREG
}

/// Takes the file for this process alone until it is closed.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] when another process has it.
pub fn lock_exclusive(fd: impl AsFd) -> io::Result<()> {
    // SAFETY: no memory is involved.
    let result = unsafe { libc::flock(fd.as_fd().as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reserves the blocks of a file without writing them, growing it to `len` bytes.
///
/// # Errors
/// When there is no space, or the file system cannot.
pub fn preallocate(fd: impl AsFd, len: u64) -> io::Result<()> {
    let len = libc::off_t::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    // SAFETY: no memory is involved.
    let result = unsafe { libc::fallocate(fd.as_fd().as_raw_fd(), 0, 0, len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reserves space for a range of a file, whose length stays.
///
/// # Errors
/// When there is no space, or the file system cannot.
pub fn reserve(fd: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    let (offset, len) = (as_offset(offset)?, as_offset(len)?);
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: no memory is passed to the kernel.
    let result = unsafe { libc::fallocate(fd, libc::FALLOC_FL_KEEP_SIZE, offset, len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The next range of a file, from `offset` on, that may hold something else than zeros; `None` when there is none before its end.
///
/// # Errors
/// When the file cannot be asked.
pub fn next_data(fd: impl AsFd, offset: u64) -> io::Result<Option<std::ops::Range<u64>>> {
    let fd = fd.as_fd().as_raw_fd();
    let seek = |offset: i64, whence: i32| {
        // SAFETY: no memory is passed to the kernel. The place that the descriptor reads at is of no meaning: it is read and
        // written at given places only.
        let found = unsafe { libc::lseek(fd, offset, whence) };
        if found < 0 { Err(io::Error::last_os_error()) } else { Ok(found) }
    };
    let start = match seek(as_offset(offset)?, libc::SEEK_DATA) {
        Ok(start) => start,
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Ok(None),
        Err(error) => return Err(error),
    };
    let end = seek(start, libc::SEEK_HOLE)?;
    Ok(Some(start as u64..end as u64))
}

fn as_offset(value: u64) -> io::Result<i64> {
    i64::try_from(value).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device was once taken for a file in memory, since its name lies in such a file system: each request held the shard up.
    #[test]
    fn devices_are_not_in_memory() {
        let device = std::fs::File::open("/dev/null").expect("there");
        assert!(!is_in_memory(&device));
        let shared = std::path::Path::new("/dev/shm");
        if shared.is_dir() {
            let name = shared.join(format!("io_engine-{}", std::process::id()));
            let file = std::fs::File::create_new(&name).expect("made");
            let found = is_in_memory(&file);
            std::fs::remove_file(&name).expect("removed");
            assert!(found);
        }
    }
}
