//! A file on a simulated disk: what is not flushed of its content is lost sector by sector, and its size may be any that it has had
//! since it was flushed.

use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, Durability};
use file_store::{FileId, OpenFile, Range, StoreError, StoreErrorKind, StoreFuture};
use parking_lot::Mutex;
use sim::{Dice, Power, SECTOR, SimDevice, SimDisk};

const UNIT: u64 = SECTOR as u64;

/// What stays when the power goes.
pub(super) struct SimStorage {
    pub(super) power: Arc<Power>,
    pub(super) disk: Arc<SimDisk>,
    /// Sizes since the last flush, the durable one first and the present one last.
    sizes: Arc<Mutex<Vec<u64>>>,
}

impl SimStorage {
    pub(super) fn new(power: Arc<Power>, disk: Arc<SimDisk>) -> Self {
        Self { power, disk, sizes: Arc::new(Mutex::new(vec![0])) }
    }

    /// The file, good until the power goes.
    pub(super) fn file(&self) -> Arc<dyn OpenFile> {
        let (power, sizes) = (Arc::clone(&self.power), Arc::clone(&self.sizes));
        Arc::new(SimFile { device: self.disk.attach(), power, sizes })
    }

    /// Power is back: the file has one of its sizes, and behind it nothing.
    pub(super) fn recover(&self, dice: &Dice) {
        self.power.restore();
        let mut sizes = self.sizes.lock();
        let size = *dice.pick(&sizes).expect("a size");
        let longest = sizes.iter().copied().max().unwrap_or(0).next_multiple_of(UNIT);
        let from = size.next_multiple_of(UNIT);
        if longest > from {
            self.disk.overwrite(from, &vec![0; (longest - from) as usize]);
        }
        *sizes = vec![size];
    }
}

struct SimFile {
    device: Arc<SimDevice>,
    power: Arc<Power>,
    sizes: Arc<Mutex<Vec<u64>>>,
}

fn failed(told: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Io, told)
}

impl SimFile {
    fn grow(&self, end: u64) -> Result<(), StoreError> {
        if !self.power.is_on() {
            return Err(failed("no power"));
        }
        if end > self.device.size() {
            return Err(StoreError::new(StoreErrorKind::NoSpace, "the simulated disk is full"));
        }
        if end > self.size() {
            self.sizes.lock().push(end);
        }
        Ok(())
    }

    /// Writes what may begin and end within sectors; `None` for zeros.
    async fn put(
        &self,
        offset: u64,
        len: u64,
        data: Option<SharedBuf>,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let (first, end) = (offset / UNIT * UNIT, (offset + len).next_multiple_of(UNIT));
        let aligned = first == offset && end == offset + len;
        match data {
            Some(data) if aligned => Ok(self.device.write(offset, data, durability).await?),
            None if aligned => Ok(self.device.write_zeroes(offset, len, durability).await?),
            data => {
                let mut buf = self.device.read(first, IoBuf::new((end - first) as usize)).await?;
                let part = &mut buf[(offset - first) as usize..][..len as usize];
                match data {
                    Some(data) => part.copy_from_slice(&data),
                    None => part.fill(0),
                }
                Ok(self.device.write(first, buf.freeze(), durability).await?)
            }
        }
    }
}

impl OpenFile for SimFile {
    fn file(&self) -> FileId {
        FileId(1)
    }

    fn size(&self) -> u64 {
        self.sizes.lock().last().copied().unwrap_or(0)
    }

    fn read(&self, offset: u64, mut buf: IoBuf) -> StoreFuture<'_, IoBuf> {
        Box::pin(async move {
            let len = (buf.len() as u64).min(self.size().saturating_sub(offset));
            let (first, end) = (offset / UNIT * UNIT, (offset + len).next_multiple_of(UNIT));
            let read = self.device.read(first, IoBuf::new((end - first) as usize)).await?;
            buf.truncate(len as usize);
            buf.copy_from_slice(&read[(offset - first) as usize..][..len as usize]);
            Ok(buf)
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.grow(offset + data.len() as u64)?;
            self.put(offset, data.len() as u64, Some(data), durability).await
        })
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let size = self.size();
            self.device.flush().await?;
            let mut sizes = self.sizes.lock();
            let at = sizes.iter().rposition(|known| *known == size).unwrap_or(0);
            sizes.drain(..at);
            Ok(())
        })
    }

    fn compare_and_write(&self, _: u64, _: SharedBuf, _: SharedBuf) -> StoreFuture<'_, Option<u64>> {
        Box::pin(async { Err(failed("not simulated")) })
    }

    fn allocate(&self, _: u64, _: u64, _: bool) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn punch_hole(&self, offset: u64, len: u64) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let len = len.min(self.size().saturating_sub(offset));
            self.put(offset, len, None, Durability::Volatile).await
        })
    }

    fn zero_range(&self, offset: u64, len: u64, durability: Durability) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.grow(offset + len)?;
            self.put(offset, len, None, durability).await
        })
    }

    fn set_size(&self, size: u64) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let before = self.size();
            if size < before {
                self.put(size, before - size, None, Durability::Volatile).await?;
                self.sizes.lock().push(size);
                return Ok(());
            }
            self.grow(size)
        })
    }

    fn allocated_ranges(&self, offset: u64, len: u64, _: usize) -> StoreFuture<'_, Vec<Range>> {
        Box::pin(async move { Ok(vec![Range { offset, len }]) })
    }

    fn wait_resize(&self, _: u64) -> StoreFuture<'_, u64> {
        Box::pin(std::future::pending())
    }
}
