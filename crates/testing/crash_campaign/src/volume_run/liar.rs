//! A device that loses flushes between the volume and its space, for the proof that this would be noticed.

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockFuture, Device, Durability, Geometry};
use sim::Dice;

/// Passes everything on but one flush in three.
pub(super) struct Liar {
    pub(super) device: Device,
    pub(super) dice: Dice,
}

impl BlockDevice for Liar {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        self.device.read(offset, buf)
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        self.device.write(offset, data, durability)
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        if self.dice.one_in(3) {
            return Box::pin(async { Ok(()) });
        }
        self.device.flush()
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        self.device.unmap(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        self.device.write_zeroes(offset, len, durability)
    }

    fn wait_resize(&self, known: u64) -> BlockFuture<'_, u64> {
        self.device.wait_resize(known)
    }
}
