//! Before a run: files are made, and nothing is overwritten that nobody gave up.
//!
//! A file that this tool made carries the extended attribute `user.holdfast.spd`; any other file, and every device, is
//! somebody's until its loss was agreed to.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _};

use io_engine::{device_info, placement};
use spd_profile::{Target, display_size};

use crate::error::EngineError;
use crate::random::Random;

/// The name of the mark on files that are ours.
const MARK: &std::ffi::CStr = c"user.holdfast.spd";
/// Bytes that are written at once when a file is made.
const CHUNK: u64 = 1 << 20;

/// How files are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preparation {
    /// The file is made without content: reads of it then measure no disk.
    pub sparse: bool,
    /// The run writes to all targets, whatever their mix says.
    pub verify: bool,
}

/// What a preparation asks and tells.
pub trait Confirm {
    /// Whether what `what` describes may be lost.
    fn may_destroy(&self, what: &str) -> bool;
    /// Tells how many bytes of `total` of a file are written; `false` ends the work.
    fn made(&self, path: &str, bytes: u64, total: u64) -> bool;
}

/// Makes the files of `targets`, which are at `paths`, and asks before anything foreign is lost.
///
/// # Errors
/// When a file cannot be made, a target does not exist, or its loss was not agreed to.
pub fn prepare(
    targets: &[Target],
    paths: &[String],
    how: Preparation,
    confirm: &dyn Confirm,
) -> Result<(), EngineError> {
    let mut seen = Vec::new();
    for (target, path) in targets.iter().zip(paths) {
        let writes = target.write_percent > 0 || how.verify;
        if seen.contains(&(path, target.create, writes)) {
            continue;
        }
        if target.create.is_some() || writes {
            check_loss(target, path, confirm)?;
        }
        if let Some(size) = target.create
            && !seen.iter().any(|(other, create, _)| *other == path && create.is_some())
        {
            make(path, size, how.sparse, confirm)?;
        }
        seen.push((path, target.create, writes));
    }
    Ok(())
}

fn check_loss(target: &Target, path: &str, confirm: &dyn Confirm) -> Result<(), EngineError> {
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if target.create.is_some() {
                return Ok(());
            }
            return Err(EngineError::new(format!(
                "target '{}' does not exist: make it with -c<size>",
                target.path
            )));
        }
        Err(error) => return Err(EngineError::new(format!("target '{}': {error}", target.path))),
    };
    let what = if meta.file_type().is_block_device() {
        if target.create.is_some() {
            return Err(EngineError::new(format!(
                "-c makes files, and '{}' is a block device: leave out -c",
                target.path
            )));
        }
        format!("all data of device {path}")
    } else if meta.is_file() {
        let ours = File::open(path).is_ok_and(|file| placement::has_mark(&file, MARK));
        if ours || meta.len() == 0 {
            return Ok(());
        }
        format!("file {path} ({}), which was not made by this tool", display_size(meta.len()))
    } else {
        return Err(EngineError::new(format!("'{path}' is neither a file nor a block device")));
    };
    may_lose(confirm, &what)
}

/// Asks whether what `what` describes may be lost.
///
/// # Errors
/// When it may not.
pub fn may_lose(confirm: &dyn Confirm, what: &str) -> Result<(), EngineError> {
    if confirm.may_destroy(what) {
        return Ok(());
    }
    Err(EngineError::new(format!(
        "this would destroy {what}: say --yes (or HOLDFAST_SPD_YES=1) if it may be lost"
    )))
}

/// Makes a file anew, as `-c` asks: what was there is deleted.
fn make(path: &str, size: u64, sparse: bool, confirm: &dyn Confirm) -> Result<(), EngineError> {
    let failed = |error: io::Error| {
        let what = match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => "the disk is full: lower -c or make room".to_owned(),
            _ => error.to_string(),
        };
        EngineError::new(format!("cannot make '{path}' with {} (-c): {what}", display_size(size)))
    };
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(failed)?;
    // A file system without extended attributes: the next run asks before it writes over the file.
    let _ = placement::set_mark(&file, MARK, b"1");
    let made = fill(&file, path, size, sparse, confirm);
    if made.is_err() {
        // Half a file would be taken for a whole one by the next run.
        let _ = fs::remove_file(path);
    }
    match made.map_err(failed)? {
        true => Ok(()),
        false => {
            let _ = fs::remove_file(path);
            Err(EngineError::new(format!("making '{path}' was interrupted; it is deleted")))
        }
    }
}

/// Gives a new file its size and content; `false` when that was ended.
fn fill(file: &File, path: &str, size: u64, sparse: bool, confirm: &dyn Confirm) -> io::Result<bool> {
    if sparse || size == 0 {
        file.set_len(size)?;
        return Ok(true);
    }
    // A full disk shows now, not after an hour; file systems that cannot reserve show it when it happens.
    match device_info::preallocate(file, size) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => {
            file.set_len(size)?;
        }
        other => other?,
    }
    // Random, so that neither compression nor deduplication makes the target faster than it is.
    let mut chunk = vec![0; CHUNK.min(size) as usize];
    let mut random = Random::new(0x5bd, 0);
    random.fill(&mut chunk);
    let mut at = 0;
    while at < size {
        if at % (64 * CHUNK) == 0 && !confirm.made(path, at, size) {
            return Ok(false);
        }
        let len = (size - at).min(CHUNK) as usize;
        for sector in chunk.chunks_mut(4096) {
            if let Some(head) = sector.first_chunk_mut::<8>() {
                *head = random.next().to_le_bytes();
            }
        }
        file.write_all_at(chunk.get(..len).unwrap_or_default(), at)?;
        at += len as u64;
    }
    file.sync_all()?;
    Ok(confirm.made(path, size, size))
}
