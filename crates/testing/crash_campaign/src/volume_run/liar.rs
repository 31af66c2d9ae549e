//! What lies between a volume and its space when the volume is broken on purpose: it leaves out, or puts off, what
//! the volume asks for, as a volume would that had forgotten to ask or had asked too late.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockFuture, Device, Durability, Geometry};
use sim::Dice;
use volume_format::{BatchId, BatchWriter, Head, Superblock};

use crate::case::Sabotage;

/// Passes on what its kind of sabotage leaves alone.
pub(super) struct Liar {
    device: Device,
    sabotage: Sabotage,
    dice: Dice,
    /// Where clusters begin: before it lies the metadata.
    data: u64,
    /// Where the metadata log begins, which ends where clusters begin.
    log: u64,
    /// The volume is made and open: from here on things go wrong.
    armed: AtomicBool,
}

impl Liar {
    /// A device that does everything until it is armed.
    pub(super) fn new(device: Device, sabotage: Sabotage, dice: Dice, layout: &Superblock) -> Self {
        let (data, log) =
            (layout.data_start, layout.metadata_log().map_or(layout.data_start, |(start, _)| start));
        Self { device, sabotage, dice, data, log, armed: AtomicBool::new(false) }
    }

    pub(super) fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
    }

    fn does(&self, sabotage: Sabotage) -> bool {
        self.sabotage == sabotage && self.armed.load(Ordering::Relaxed)
    }

    /// Answers now what is done a while later, so that the metadata that rests on it is durable first.
    fn later(&self, work: impl Future<Output = ()> + 'static) -> BlockFuture<'_, ()> {
        let millis = self.dice.between(1, 400);
        Box::pin(async move {
            shard_runtime::detach(async move {
                shard_runtime::sleep(Duration::from_millis(millis)).await;
                work.await;
            });
            Ok(())
        })
    }
}

/// Gives the batches that a log begins with each other's numbers: the last becomes the first.
fn turn_around(log: &mut [u8]) {
    let mut batches = Vec::new();
    let mut end = 0;
    while let Ok(batch) = Head::decode(&log[end..]).and_then(|head| head.verify(&log[end..])) {
        let follows = |(id, _): &(BatchId, _)| BatchId { sequence: id.sequence + 1, ..*id } == batch.id;
        if !batches.last().is_none_or(follows) {
            break;
        }
        end += batch.size() as usize;
        batches.push((batch.id, BatchWriter::new(batch.size() as usize)));
        for change in batch.changes().flatten() {
            batches.iter_mut().next_back().into_iter().for_each(|(_, writer)| writer.copy(&change));
        }
    }
    let ids: Vec<BatchId> = batches.iter().map(|(id, _)| *id).collect();
    let mut at = 0;
    for (id, (_, mut writer)) in ids.iter().zip(batches.into_iter().rev()) {
        let size = writer.size();
        if let Some(sealed) = writer.seal(id) {
            log[at..at + sealed.len()].copy_from_slice(sealed);
            log[at + sealed.len()..at + size].fill(0);
        }
        at += size;
    }
}

/// A batch without the first half of its changes, as long as it was; `None` of what is no such batch.
fn later_half(batch: &[u8]) -> Option<Vec<u8>> {
    let verified = Head::decode(batch).and_then(|head| head.verify(batch)).ok()?;
    let changes: Vec<_> = verified.changes().collect::<Result<_, _>>().ok()?;
    let mut writer = BatchWriter::new(batch.len());
    changes.iter().skip(changes.len() / 2).for_each(|change| writer.copy(change));
    // A shorter one would end the log.
    let fits = writer.size() == batch.len();
    let sealed = writer.seal(&verified.id).filter(|_| fits)?;
    let mut half = vec![0; batch.len()];
    half.get_mut(..sealed.len())?.copy_from_slice(sealed);
    Some(half)
}

impl BlockDevice for Liar {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        if offset == self.log && self.sabotage == Sabotage::VolumeReplaysBackwards {
            return Box::pin(async move {
                let mut read = self.device.read(offset, buf).await?;
                turn_around(&mut read);
                Ok(read)
            });
        }
        self.device.read(offset, buf)
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        let forgets = match offset {
            _ if offset >= self.data => self.does(Sabotage::VolumeLosesForce),
            _ if offset >= self.log => self.does(Sabotage::VolumeLosesLogForce),
            // The commit that the log is cut by: it is there when the log begins anew, and not durable.
            _ => self.does(Sabotage::VolumeCutsLogEarly),
        };
        let durability = if forgets { Durability::Volatile } else { durability };
        let in_log = (self.log..self.data).contains(&offset);
        if let Some(half) = later_half(&data).filter(|_| in_log && self.does(Sabotage::VolumeLogsOutOfOrder))
        {
            let mut buf = IoBuf::new(half.len());
            buf.copy_from_slice(&half);
            return self.device.write(offset, buf.freeze(), durability);
        }
        self.device.write(offset, data, durability)
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        if self.does(Sabotage::VolumeLosesFlush) && self.dice.one_in(3) {
            return Box::pin(async { Ok(()) });
        }
        self.device.flush()
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        if offset >= self.data && self.does(Sabotage::VolumeSkipsZeroing) {
            return Box::pin(async { Ok(()) });
        }
        if offset >= self.data && self.does(Sabotage::VolumeCommitsFirst) {
            let device = Device::clone(&self.device);
            return self.later(async move { drop(device.unmap(offset, len).await) });
        }
        self.device.unmap(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        if offset >= self.data && self.does(Sabotage::VolumeSkipsZeroing) {
            return Box::pin(async { Ok(()) });
        }
        if offset >= self.data && self.does(Sabotage::VolumeCommitsFirst) {
            let device = Device::clone(&self.device);
            return self.later(async move { drop(device.write_zeroes(offset, len, durability).await) });
        }
        self.device.write_zeroes(offset, len, durability)
    }

    fn has_room_for(&self, ranges: Vec<(u64, u64)>) -> BlockFuture<'_, bool> {
        self.device.has_room_for(ranges)
    }

    fn allocate(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        self.device.allocate(offset, len)
    }

    fn wait_resize(&self, known: u64) -> BlockFuture<'_, u64> {
        self.device.wait_resize(known)
    }
}
