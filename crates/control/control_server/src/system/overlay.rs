//! A device that keeps in memory what is written to it, over one that is only read: a check may let a volume
//! recover without changing a disk.

use std::collections::BTreeMap;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{
    BlockDevice, BlockError, BlockErrorKind, BlockFuture, Device, Durability, Geometry, check_range,
};
use parking_lot::Mutex;

/// Most bytes held: recovery of a volume's metadata writes far less.
const MAX_HELD: usize = 256 << 20;

/// Changes in memory over a device.
pub(super) struct Overlay {
    below: Device,
    geometry: Geometry,
    /// By number of the block.
    changed: Mutex<BTreeMap<u64, Box<[u8]>>>,
}

impl Overlay {
    pub(super) fn new(below: Device) -> Self {
        let geometry = Geometry { read_only: false, ..below.geometry().clone() };
        Self { below, geometry, changed: Mutex::default() }
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        check_range(offset, len, self.geometry.block_size, self.size())
    }

    fn put(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.check(offset, data.len() as u64)?;
        let block = self.geometry.block_size as usize;
        let mut changed = self.changed.lock();
        for (number, content) in (offset / block as u64..).zip(data.chunks_exact(block)) {
            changed.insert(number, content.into());
            if changed.len() * block > MAX_HELD {
                return Err(BlockError::new(BlockErrorKind::NoSpace, "hold a change in memory"));
            }
        }
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.check(offset, len)?;
        if len > MAX_HELD as u64 {
            return Err(BlockError::new(BlockErrorKind::NoSpace, "hold zeros in memory"));
        }
        self.put(offset, &vec![0; len as usize])
    }
}

impl BlockDevice for Overlay {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn size(&self) -> u64 {
        self.below.size()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(async move {
            let mut buf = self.below.read(offset, buf).await?;
            let block = self.geometry.block_size as usize;
            let first = offset / block as u64;
            let end = first + (buf.len() / block) as u64;
            for (number, content) in self.changed.lock().range(first..end) {
                buf[(number - first) as usize * block..][..block].copy_from_slice(content);
            }
            Ok(buf)
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, _durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move { self.put(offset, &data) })
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move { self.zero(offset, len) })
    }

    fn write_zeroes(&self, offset: u64, len: u64, _durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move { self.zero(offset, len) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use block_device::MemoryDisk;

    use super::*;

    #[tokio::test]
    async fn changes_are_seen_and_stay_above() {
        let below = Arc::new(MemoryDisk::new(64 << 10, 4096));
        below.write(0, IoBuf::copy_from(&[1; 16384]).freeze(), Durability::Durable).await.expect("written");
        let overlay = Overlay::new(below.clone());
        overlay.write(4096, IoBuf::copy_from(&[2; 4096]).freeze(), Durability::Durable).await.expect("kept");
        overlay.unmap(8192, 4096).await.expect("kept");
        let read = overlay.read(0, IoBuf::new(16384)).await.expect("read");
        assert_eq!([read[0], read[4096], read[8191], read[8192], read[12288]], [1, 2, 2, 0, 1]);
        let read = below.read(4096, IoBuf::new(8192)).await.expect("read");
        assert!(read.iter().all(|byte| *byte == 1), "the disk is as it was");
        assert!(overlay.write(64 << 10, IoBuf::zeroed(4096).freeze(), Durability::Durable).await.is_err());
    }
}
