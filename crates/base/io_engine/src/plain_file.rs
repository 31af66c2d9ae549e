//! Plain files of this machine by their names: opening what must be one, and making a name durable.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a plain file, and nothing else: opening a pipe would wait for whoever opens its other end, and opening a device may do
/// something.
///
/// # Errors
/// When it cannot be opened, or is something else (kind `InvalidInput`).
pub fn open(path: &Path, options: &OpenOptions) -> io::Result<File> {
    let other = || io::Error::new(io::ErrorKind::InvalidInput, "not a plain file");
    // Looked at before it is opened. What is not there is made or missed by the opening.
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(other());
    }
    // And after: the name may have been given to something else meanwhile, for which the opening must not wait.
    let file = options.clone().custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(other());
    }
    let fd = file.as_raw_fd();
    // SAFETY: no memory is passed to the kernel.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above. Reads and writes of the file wait again.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// The error of a file that another program uses.
#[must_use]
pub fn used() -> io::Error {
    io::Error::new(io::ErrorKind::WouldBlock, "another program uses the file")
}

/// Makes the name of a file durable, after it was made, linked or renamed.
///
/// # Errors
/// Those of the system.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent != Path::new("") => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_and_folders_are_refused_without_waiting() {
        let folder = std::env::temp_dir().join(format!("io_engine-{}-plain", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let (pipe, plain) = (folder.join("pipe"), folder.join("plain"));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
        assert!(made.success());
        for path in [&pipe, &folder] {
            let refused = open(path, OpenOptions::new().read(true)).expect_err("refused");
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
        let missed = open(&plain, OpenOptions::new().read(true)).expect_err("missed");
        assert_eq!(missed.kind(), io::ErrorKind::NotFound);
        let file = open(&plain, OpenOptions::new().write(true).create_new(true)).expect("made");
        // SAFETY: no memory is passed to the kernel.
        let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
        assert_eq!(flags & libc::O_NONBLOCK, 0);
        sync_parent(&plain).expect("durable");
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
