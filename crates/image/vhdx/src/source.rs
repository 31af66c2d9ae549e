//! The file as it is once its log is replayed, whether or not the file itself has been changed.
//!
//! An image that is opened to be read changes nothing: what its log says lies over the file, in memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use file_store::OpenFile;
use vhdx_format::{Change, LOG_SECTOR};

use crate::error::{ImageError, Result};

const SECTOR: u64 = LOG_SECTOR as u64;

/// The file, and what lies over it.
pub(crate) struct Source {
    pub(crate) file: Arc<dyn OpenFile>,
    over: Option<Overlay>,
}

/// What a log says that has not been written to its file.
struct Overlay {
    /// Sectors by their offsets. They are newer than `zeros`, or not there.
    sectors: BTreeMap<u64, Box<[u8]>>,
    zeros: Vec<Range<u64>>,
    /// What the file would be long.
    size: u64,
}

impl Source {
    pub(crate) fn new(file: Arc<dyn OpenFile>) -> Self {
        Self { file, over: None }
    }

    /// Lays the changes of a log over the file, which is then at least `size` bytes long.
    pub(crate) fn lay_over(&mut self, changes: Vec<Change>, size: u64) {
        let mut over = Overlay { sectors: BTreeMap::new(), zeros: Vec::new(), size };
        for change in changes {
            match change {
                Change::Data { offset, bytes } => {
                    over.size = over.size.max(offset.saturating_add(SECTOR));
                    over.sectors.insert(offset, bytes);
                }
                Change::Zero { offset, len } => {
                    let range = offset..offset.saturating_add(len);
                    over.size = over.size.max(range.end);
                    over.sectors.retain(|at, _| !range.contains(at));
                    over.zeros.push(range);
                }
            }
        }
        self.over = Some(over);
    }

    /// Size in bytes now.
    pub(crate) fn size(&self) -> u64 {
        let size = self.file.size();
        self.over.as_ref().map_or(size, |over| over.size.max(size))
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// When the file ends before, or fails.
    pub(crate) async fn read(&self, offset: u64, buf: IoBuf) -> Result<IoBuf> {
        let len = buf.len();
        let Some(over) = &self.over else {
            let got = self.file.read(offset, buf).await?;
            if got.len() < len {
                return Err(cut(offset, len));
            }
            return Ok(got);
        };
        let end = offset.saturating_add(len as u64);
        if end > self.size() {
            return Err(cut(offset, len));
        }
        let mut buf = buf;
        let got = self.file.read(offset, IoBuf::new(len)).await?;
        let (head, tail) = buf.split_at_mut(got.len());
        head.copy_from_slice(&got);
        tail.fill(0);
        let mut put = |range: Range<u64>, bytes: Option<&[u8]>| {
            let (from, to) = (range.start.max(offset), range.end.min(end));
            if from < to {
                let target = &mut buf[(from - offset) as usize..(to - offset) as usize];
                match bytes {
                    Some(bytes) => {
                        target.copy_from_slice(&bytes[(from - range.start) as usize..][..target.len()])
                    }
                    None => target.fill(0),
                }
            }
        };
        over.zeros.iter().for_each(|range| put(range.clone(), None));
        let first = offset / SECTOR * SECTOR;
        for (at, bytes) in over.sectors.range(first..end) {
            put(*at..*at + SECTOR, Some(bytes));
        }
        Ok(buf)
    }

    /// `len` bytes from `offset`.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub(crate) async fn bytes(&self, offset: u64, len: usize) -> Result<IoBuf> {
        // Asked first, so that nobody gets memory for what is not there.
        if offset.saturating_add(len as u64) > self.size() {
            return Err(cut(offset, len));
        }
        self.read(offset, IoBuf::new(len)).await
    }
}

fn cut(offset: u64, len: usize) -> ImageError {
    ImageError::damaged(format!(
        "the file ends before {offset:#x}+{len:#x}, where its structures lead: it was cut"
    ))
}
