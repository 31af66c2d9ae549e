//! Reading: each part of a range from where it is.

use std::sync::atomic::Ordering;

use aligned_buffer::IoBuf;
use block_device::BlockDevice;
use vhdx_format::{LOG_SECTOR, PayloadState};

use crate::bits::bit_runs;
use crate::error::{ImageError, ImageErrorKind, Result};
use crate::image::Inner;
use crate::write::is_present;

const PAGE: u64 = LOG_SECTOR as u64;

/// Where a part of the disk is.
enum Place {
    Zeros,
    Parent,
    File(u64),
}

impl Inner {
    /// Fills `buf` from `offset` of the disk; the range lay within it when that was asked for.
    pub(crate) async fn read(&self, offset: u64, buf: IoBuf) -> Result<IoBuf> {
        let _shape = self.shape.read().await;
        self.check_within(offset, buf.len() as u64)?;
        let mut buf = buf;
        let _operation = self.space.begin();
        let (mut at, end) = (offset, offset + buf.len() as u64);
        let mut done: Option<IoBuf> = None;
        while at < end {
            let block = at / self.block_size();
            let stop = end.min((block + 1) * self.block_size());
            let within = at % self.block_size();
            let (state, place) = self.payload(block).await?;
            let zeros_or_parent = if self.parent.is_some() { Place::Parent } else { Place::Zeros };
            let parts = match state {
                PayloadState::NotPresent => vec![(stop - at, zeros_or_parent)],
                PayloadState::Undefined | PayloadState::Zero | PayloadState::Unmapped => {
                    vec![(stop - at, Place::Zeros)]
                }
                PayloadState::FullyPresent => vec![(stop - at, Place::File(place + within))],
                PayloadState::PartiallyPresent => self.mixed(block, place, at..stop).await?,
            };
            for (len, place) in parts {
                let part = buf.split_to(len as usize);
                let part = self.read_part(at, part, place).await?;
                at += len;
                match &mut done {
                    None => done = Some(part),
                    Some(done) => done.join(part).map_err(|_| {
                        ImageError::new(ImageErrorKind::Io, "a buffer did not come back from the file")
                    })?,
                }
            }
        }
        Ok(done.unwrap_or(buf))
    }

    /// The first byte in a range of the disk that may be none of a zero.
    pub(crate) async fn next_data(&self, offset: u64, until: u64) -> Result<Option<u64>> {
        let until = until.min(self.disk_size.load(Ordering::Acquire));
        let mut at = offset;
        while at < until {
            let block = at / self.block_size();
            let end = until.min((block + 1) * self.block_size());
            let (state, _) = self.payload(block).await?;
            if is_present(state) {
                return Ok(Some(at));
            }
            if state == PayloadState::NotPresent
                && let Some(parent) = &self.parent
                && let Some(found) = Box::pin(parent.next_data(at, end)).await?
            {
                return Ok(Some(found));
            }
            at = end;
        }
        Ok(None)
    }

    async fn read_part(&self, at: u64, mut part: IoBuf, place: Place) -> Result<IoBuf> {
        match place {
            Place::File(offset) => self.source.read(offset, part).await,
            Place::Zeros => {
                part.fill(0);
                Ok(part)
            }
            Place::Parent => self.read_parent(at, part).await,
        }
    }

    /// What lies behind the parent's end is zeros.
    pub(crate) async fn read_parent(&self, at: u64, mut part: IoBuf) -> Result<IoBuf> {
        let Some(parent) = &self.parent else {
            part.fill(0);
            return Ok(part);
        };
        let there = parent.size().saturating_sub(at).min(part.len() as u64);
        if there == part.len() as u64 {
            return Ok(parent.read(at, part).await?);
        }
        part.fill(0);
        if there > 0 {
            let read = parent.read(at, IoBuf::new(there as usize)).await?;
            part[..there as usize].copy_from_slice(&read);
        }
        Ok(part)
    }

    /// The parts of a range of a partially present block.
    async fn mixed(&self, block: u64, place: u64, range: std::ops::Range<u64>) -> Result<Vec<(u64, Place)>> {
        let sector = self.sector();
        let first = range.start % self.block_size() / sector;
        let count = (range.end - range.start) / sector;
        let mut parts = Vec::new();
        let mut at = first;
        for (present, len) in self.bits(block, first, count).await? {
            let where_it_is = if present { Place::File(place + at * sector) } else { Place::Parent };
            parts.push((len * sector, where_it_is));
            at += len;
        }
        Ok(parts)
    }

    /// Which sectors of a partially present block are in this file: runs of equal bits, with their lengths.
    pub(crate) async fn bits(&self, block: u64, first: u64, count: u64) -> Result<Vec<(bool, u64)>> {
        let bitmap = self.bitmap(block).await?.ok_or_else(|| {
            ImageError::damaged(format!("block {block} is partially present and has no sector bitmap"))
        })?;
        let mut runs: Vec<(bool, u64)> = Vec::new();
        let (mut bit, end) =
            (self.layout().first_bit(block) + first, self.layout().first_bit(block) + first + count);
        while bit < end {
            let page = bitmap + bit / 8 / PAGE * PAGE;
            let stop = end.min((bit / 8 / PAGE + 1) * PAGE * 8);
            let more =
                self.pages.look(&self.source, page, |bytes| bit_runs(bytes, bit % (PAGE * 8), stop - bit));
            for (value, len) in more.await? {
                match runs.last_mut() {
                    Some((last, sum)) if *last == value => *sum += len,
                    _ => runs.push((value, len)),
                }
            }
            bit = stop;
        }
        Ok(runs)
    }
}
