//! Opening files and devices.

use std::error::Error;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use io_engine::{IoTarget, device_info};

use crate::{LocalDisk, LocalGeometry, reach, reservations};

/// Blocks of files whose file system does not say what direct I/O asks for, in bytes.
const DEFAULT_BLOCK: u32 = 4096;

/// How to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// The disk is to be used: read and written, by this process alone.
    ReadWrite,
    /// To look at: other users are not disturbed.
    ReadOnly,
}

/// A file to make as a disk.
#[derive(Clone, Debug)]
pub struct CreateFile {
    /// Where. It must not exist.
    pub path: PathBuf,
    /// Size in bytes, rounded down to 4 KiB.
    pub size: u64,
    /// Reserve the space now rather than at the first write of each block.
    pub preallocate: bool,
}

/// Why a disk could not be opened.
#[derive(Debug)]
pub struct OpenError {
    path: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    /// With the process that has it locked, if that can be seen.
    Busy(Option<u32>),
    NotADisk,
    Empty,
    Io(&'static str, io::Error),
}

impl OpenError {
    /// Whether another process or a mounted file system has the disk.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self.why, Why::Busy(_))
    }

    /// Whether there is nothing at the path.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(&self.why, Why::Io(_, error) if matches!(error.kind(), io::ErrorKind::NotFound)
            || matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV | libc::ENOMEDIUM)))
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.why {
            Why::Busy(None) => write!(f, "{path} is in use by another process or a mounted file system"),
            Why::Busy(Some(process)) if *process == std::process::id() => {
                write!(f, "{path} is held by this process itself, which has it open already")
            }
            Why::Busy(Some(process)) => write!(f, "{path} is in use by process {process}{}", named(*process)),
            Why::NotADisk => write!(f, "{path} is neither a regular file nor a block device"),
            Why::Empty => write!(f, "{path} is smaller than one block"),
            Why::Io(doing, error) => write!(f, "cannot {doing} {path}: {error}"),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.why {
            Why::Io(_, error) => Some(error),
            _ => None,
        }
    }
}

/// The process that has a file locked, as the kernel lists it; one of another namespace is not seen.
fn holder(file: &File) -> Option<u32> {
    let meta = file.metadata().ok()?;
    let place = format!("{:02x}:{:02x}:{}", libc::major(meta.dev()), libc::minor(meta.dev()), meta.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        // `1: FLOCK  ADVISORY  WRITE 709 fe:00:10010804 0 EOF`
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, inode, ..] = fields.as_slice() else { return None };
        process.parse().ok().filter(|process| *inode == place && *process > 0)
    })
}

/// The name of a process in brackets, if it can be had.
fn named(process: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    if name.trim().is_empty() { String::new() } else { format!(" ({})", name.trim()) }
}

impl LocalDisk {
    /// Opens a file or block device. [`OpenMode::ReadWrite`] takes it for this process alone.
    ///
    /// # Errors
    /// When there is nothing, it is not a disk, it is in use, or the system refuses.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self, OpenError> {
        let fail = |why| OpenError { path: path.to_owned(), why };
        let io = |doing| move |error| fail(Why::Io(doing, error));
        let kind = std::fs::metadata(path).map_err(io("open"))?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(fail(Why::NotADisk));
        }
        let writable = mode == OpenMode::ReadWrite;
        // O_EXCL without O_CREAT on a block device: refused while it is mounted or held.
        let exclusive = if writable && kind.is_block_device() { libc::O_EXCL } else { 0 };
        let open = |flags| {
            OpenOptions::new().read(true).write(writable).custom_flags(flags | libc::O_CLOEXEC).open(path)
        };
        let file = match open(libc::O_DIRECT | exclusive) {
            // A file system without direct I/O: durability comes from RWF_DSYNC and fdatasync all the same.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open(exclusive),
            other => other,
        };
        let file = file.map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => fail(Why::Busy(None)),
            _ => fail(Why::Io("open", error)),
        })?;
        if writable {
            device_info::lock_exclusive(&file).map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => fail(Why::Busy(holder(&file))),
                _ => fail(Why::Io("lock", error)),
            })?;
        }
        let reserves = writable
            && kind.is_block_device()
            && reservations::are_kept(&file, file.metadata().map_err(io("ask for the number of"))?.rdev());
        let reached = match kind.is_block_device() {
            true => reach::device_may_be_shared(file.metadata().map_err(io("ask for the number of"))?.rdev()),
            false => reach::file_may_be_shared(&file),
        };
        let mut geometry = if kind.is_block_device() {
            let info = device_info::device_info(&file).map_err(io("ask for the size of"))?;
            LocalGeometry {
                size: info.size,
                block_size: info.logical_block.max(512),
                physical_block_size: info.physical_block,
                rotational: is_rotational(path),
                read_only: info.read_only,
            }
        } else {
            let size = file.metadata().map_err(io("ask for the size of"))?.len();
            let block_size = device_info::direct_io_alignment(&file).unwrap_or(DEFAULT_BLOCK).max(512);
            LocalGeometry { size, block_size, physical_block_size: 4096, rotational: false, read_only: false }
        };
        geometry.read_only |= !writable;
        geometry.size -= geometry.size % u64::from(geometry.block_size);
        if geometry.size == 0 {
            return Err(fail(Why::Empty));
        }
        let meta = file.metadata().map_err(io("ask for the number of"))?;
        let numbers = meta.is_file().then(|| (meta.dev(), meta.ino()));
        let disk = Self::over(&path.to_string_lossy(), IoTarget::of(file.into()), &geometry);
        Ok(disk.reserving(reserves).reached(reached).of_file(numbers))
    }

    /// Makes a file that can be opened as a disk.
    ///
    /// # Errors
    /// When the path exists, or there is no space.
    pub fn create_file(request: &CreateFile) -> Result<(), OpenError> {
        let fail = |doing| move |error| OpenError { path: request.path.clone(), why: Why::Io(doing, error) };
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&request.path);
        let file: File = file.map_err(fail("create"))?;
        let size = request.size - request.size % u64::from(DEFAULT_BLOCK);
        let made = file
            .set_len(size)
            .and_then(|()| if request.preallocate { device_info::preallocate(&file, size) } else { Ok(()) })
            .and_then(|()| file.sync_all());
        made.map_err(|error| {
            // Nothing half-done: the file is ours, made just now.
            let _ = std::fs::remove_file(&request.path);
            fail("set the size of")(error)
        })
    }
}

fn is_rotational(path: &Path) -> bool {
    let Ok(real) = path.canonicalize() else { return false };
    let Some(name) = real.file_name() else { return false };
    let queue = Path::new("/sys/class/block").join(name);
    ["queue/rotational", "../queue/rotational"]
        .iter()
        .filter_map(|place| std::fs::read_to_string(queue.join(place)).ok())
        .next()
        .is_some_and(|answer| answer.trim() == "1")
}
