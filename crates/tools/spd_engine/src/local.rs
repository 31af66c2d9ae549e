//! Files and block devices of this machine, through a ring per thread.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use io_engine::placement::{self, Access};
use io_engine::readiness::Awaited;
use io_engine::{FixedData, FixedDone, FixedOp, FixedRing, SlotBuffers, device_info};
use spd_profile::{CacheMode, IoPriority, Target};

use crate::backend::{Backend, Data, Done, Lane, LaneFailure, LanePlan, Op, aligned, fits};
use crate::error::EngineError;

/// Targets of a time span, opened.
pub struct LocalBackend {
    targets: Vec<Opened>,
}

struct Opened {
    path: String,
    file: Arc<OwnedFd>,
    size: u64,
    is_device: bool,
    is_direct: bool,
    priority: u16,
}

impl LocalBackend {
    /// Opens `targets`, which are at `paths`, as they ask to be cached; `verify` reads and writes all of them.
    ///
    /// # Errors
    /// When one cannot be opened, is too small, or its pattern does not suit direct I/O.
    pub fn open(targets: &[Target], paths: &[String], verify: bool) -> Result<Self, EngineError> {
        let opened = targets.iter().zip(paths).map(|(target, path)| open(target, path, verify));
        Ok(Self { targets: opened.collect::<Result<_, _>>()? })
    }
}

fn open(target: &Target, path: &str, verify: bool) -> Result<Opened, EngineError> {
    let writes = target.write_percent > 0 || verify;
    let direct = target.cache == CacheMode::DisableOsCache;
    let mut flags = libc::O_CLOEXEC;
    if direct {
        flags |= libc::O_DIRECT;
    }
    if target.write_through {
        flags |= libc::O_DSYNC;
    }
    let file = OpenOptions::new()
        .read(true)
        .write(writes)
        .custom_flags(flags)
        .open(path)
        .map_err(|error| cannot_open(target, path, direct, &error))?;
    let size = size_of(&file, path)?;
    let is_device = file.metadata().is_ok_and(|meta| meta.file_type().is_block_device());
    fits(target, size)?;
    if direct {
        check_alignment(target, path, &file)?;
    }
    for (hint, access) in
        [(target.hints.random, Access::Random), (target.hints.sequential, Access::Sequential)]
    {
        if hint {
            // A hint: where it means nothing, nothing is lost.
            let _ = placement::advise(&file, access);
        }
    }
    let priority = match target.priority {
        IoPriority::Normal => 0,
        // ioprio_set(2): class best-effort (2), lowest level (7); class idle (3).
        IoPriority::Low => 2 << 13 | 7,
        IoPriority::VeryLow => 3 << 13,
    };
    let (path, file) = (target.path.clone(), Arc::new(file.into()));
    Ok(Opened { path, file, size, is_device, is_direct: direct, priority })
}

fn cannot_open(target: &Target, path: &str, direct: bool, error: &io::Error) -> EngineError {
    let what = match error.raw_os_error() {
        Some(libc::EINVAL) if direct => {
            "its file system cannot do unbuffered I/O (O_DIRECT): leave out -Su, -Sh, -S or -h".to_owned()
        }
        Some(libc::ENOENT) => "it does not exist: make it with -c<size>".to_owned(),
        Some(libc::EACCES | libc::EPERM) => format!("{error}: run as a user who may use it"),
        _ => error.to_string(),
    };
    EngineError::new(format!("cannot open '{}'{}: {what}", target.path, elsewhere(target, path)))
}

/// Where a target really is, when its path is that of a mapped drive.
fn elsewhere(target: &Target, path: &str) -> String {
    if target.path == path { String::new() } else { format!(" ({path})") }
}

/// The size of a file or block device.
pub(crate) fn size_of(file: &File, path: &str) -> Result<u64, EngineError> {
    let meta = file.metadata().map_err(|error| EngineError::new(format!("{path}: {error}")))?;
    if meta.file_type().is_block_device() {
        return device_info::device_info(file)
            .map(|info| info.size)
            .map_err(|error| EngineError::new(format!("the size of device {path}: {error}")));
    }
    if meta.is_file() {
        return Ok(meta.len());
    }
    Err(EngineError::new(format!("'{path}' is neither a file nor a block device")))
}

/// Direct I/O works in whole logical blocks: what does not fit is refused here rather than by each operation.
fn check_alignment(target: &Target, path: &str, file: &File) -> Result<(), EngineError> {
    let unit = match device_info::device_info(file) {
        Ok(info) => u64::from(info.logical_block),
        Err(_) => u64::from(device_info::direct_io_alignment(file).unwrap_or(512)),
    };
    let why = format!(
        "in which unbuffered I/O on '{}'{} works: change it, or leave out -Su, -Sh, -S or -h",
        target.path,
        elsewhere(target, path)
    );
    aligned(target, unit, &why)
}

impl Backend for LocalBackend {
    fn sizes(&self) -> Vec<u64> {
        self.targets.iter().map(|target| target.size).collect()
    }

    fn gone(&self) -> Option<String> {
        self.targets.iter().find_map(Opened::gone)
    }

    fn lane(&self, plan: &LanePlan<'_>) -> Result<Box<dyn Lane>, EngineError> {
        let chosen: Vec<&Opened> = plan.targets.iter().filter_map(|index| self.targets.get(*index)).collect();
        let slots = plan
            .slots
            .iter()
            .map(|slot| SlotBuffers { read: IoBuf::zeroed(slot.read), write: IoBuf::zeroed(slot.write) })
            .collect::<Vec<_>>();
        let source = (!plan.source.is_empty()).then(|| IoBuf::copy_from(plan.source).freeze());
        let files = chosen.iter().map(|target| Arc::clone(&target.file)).collect();
        let number = slots.len();
        let ring = FixedRing::new(files, slots, source).map_err(|error| {
            EngineError::new(format!(
                "thread {}: io_uring is not available ({error}): see kernel.io_uring_disabled, seccomp, and RLIMIT_MEMLOCK",
                plan.thread
            ))
        })?;
        Ok(Box::new(LocalLane {
            ring,
            priorities: chosen.iter().map(|target| target.priority).collect(),
            lengths: vec![0; number],
            fixed: Vec::with_capacity(number),
            at_once: chosen.iter().any(|target| target.is_direct),
        }))
    }
}

impl Opened {
    /// A deleted file can be read and written for as long as it is open; whoever deleted it meant something else. A device
    /// that was taken away has no capacity. (A loop device that was detached stays whole for as long as it is open.)
    fn gone(&self) -> Option<String> {
        let path = &self.path;
        if self.is_device {
            let now = match device_info::device_info(&self.file) {
                Ok(info) => info.size,
                Err(error) => return Some(format!("device '{path}' no longer answers: {error}")),
            };
            return lost(self.size, now).map(|what| format!("device '{path}' {what}"));
        }
        let meta = self.file.try_clone().and_then(|file| File::from(file).metadata());
        meta.is_ok_and(|meta| meta.nlink() == 0).then(|| format!("target '{path}' was deleted"))
    }
}

/// What has become of a device that had `before` bytes and has `now`, if that is too few.
fn lost(before: u64, now: u64) -> Option<String> {
    match now {
        0 if before > 0 => Some("has gone: it has no capacity any more".into()),
        now if now < before => Some(format!("has shrunk from {before} bytes to {now}")),
        _ => None,
    }
}

struct LocalLane {
    ring: FixedRing,
    priorities: Vec<u16>,
    lengths: Vec<u32>,
    fixed: Vec<FixedDone>,
    /// Each operation enters the kernel by itself. A disk does nothing while a batch is put together (a tenth of its operations at depth
    /// 16); where the page cache answers, what a batch saves is what counts.
    at_once: bool,
}

impl Lane for LocalLane {
    fn read_buffer(&mut self, slot: usize) -> &mut [u8] {
        self.ring.read_buffer(slot).unwrap_or_default()
    }

    fn write_buffer(&mut self, slot: usize) -> &mut [u8] {
        self.ring.write_buffer(slot).unwrap_or_default()
    }

    fn queue(&mut self, op: &Op) -> io::Result<()> {
        let data = match op.data {
            Data::Read => FixedData::Read,
            Data::Write => FixedData::Write,
            Data::WriteSource(at) => FixedData::WriteSource(at),
        };
        if let Some(length) = self.lengths.get_mut(op.slot) {
            *length = op.len;
        }
        let priority = self.priorities.get(op.target).copied().unwrap_or(0);
        self.ring.queue(&FixedOp {
            slot: op.slot,
            file: op.target,
            data,
            offset: op.offset,
            len: op.len,
            priority,
        })?;
        if self.at_once { self.ring.submit() } else { Ok(()) }
    }

    fn begins_at_once(&self) -> bool {
        self.at_once
    }

    fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        self.fixed.clear();
        self.ring.wait(timeout, &mut self.fixed)?;
        for each in &self.fixed {
            let asked = self.lengths.get(each.slot).copied().unwrap_or(0);
            let result = match each.result {
                Ok(bytes) if bytes == asked => Ok(()),
                Ok(bytes) => Err(LaneFailure::Short(bytes)),
                Err(code) => Err(LaneFailure::System(code)),
            };
            done.push(Done { slot: each.slot, result });
        }
        Ok(())
    }

    fn awaited(&self) -> Option<Awaited<'_>> {
        Some(Awaited { file: self.ring.as_fd(), write: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_device_that_got_smaller_is_lost() {
        assert_eq!(lost(4096, 0).unwrap(), "has gone: it has no capacity any more");
        assert_eq!(lost(4096, 512).unwrap(), "has shrunk from 4096 bytes to 512");
        assert_eq!([lost(4096, 4096), lost(4096, 8192), lost(0, 0)], [None, None, None]);
    }
}
