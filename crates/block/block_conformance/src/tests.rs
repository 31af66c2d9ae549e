//! The suite passes on the disk in memory and fails on disks that break one sentence of the contract.

use std::collections::BTreeSet;
use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{
    BlockDevice, BlockFuture, Device, Durability, Geometry, MemoryDisk, Reservation, Reservations,
    UnmapBehavior,
};
use test_layers::{DeviceLayer, Layered};

use crate::{Options, SharedSubject, Subject, SubjectFuture, pattern, run, run_reservations};

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    IgnoresDurableWriteOfOneBlock,
    ZeroesOneBlockShort,
    AcceptsBeyondEnd,
    ClaimsUnmapKeeps,
    ReadsStaleTail,
}

struct Broken {
    flaw: Flaw,
    geometry: Geometry,
    inner: MemoryDisk,
}

struct Made(Flaw, u32);

impl Subject for Made {
    fn create(&self) -> SubjectFuture<'_, Device> {
        let inner = MemoryDisk::new(12 << 20, self.1);
        let mut geometry = inner.geometry().clone();
        if self.0 == Flaw::ClaimsUnmapKeeps {
            geometry.unmap = UnmapBehavior::Ignored;
        }
        let device: Device = Arc::new(Layered(Broken { flaw: self.0, geometry, inner }));
        Box::pin(async { device })
    }
}

impl DeviceLayer for Broken {
    fn below(&self) -> &dyn BlockDevice {
        &self.inner
    }
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(async move {
            let mut buf = self.inner.read(offset, buf).await?;
            if self.flaw == Flaw::ReadsStaleTail && buf.len() > 8 << 20 {
                let last = buf.len() - 1;
                buf[last] ^= 1;
            }
            Ok(buf)
        })
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        let block = u64::from(self.geometry.block_size);
        let one = data.len() as u64 == block && offset.is_multiple_of(block) && offset < self.inner.size();
        match self.flaw {
            Flaw::IgnoresDurableWriteOfOneBlock if one && durability == Durability::Durable => {
                Box::pin(async { Ok(()) })
            }
            Flaw::AcceptsBeyondEnd if offset == self.inner.size() => Box::pin(async { Ok(()) }),
            _ => self.inner.write(offset, data, durability),
        }
    }
    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        let block = u64::from(self.geometry.block_size);
        let short = if self.flaw == Flaw::ZeroesOneBlockShort && len > 8 * block { block } else { 0 };
        self.inner.write_zeroes(offset, len - short.min(len), durability)
    }
}

fn outcome(flaw: Flaw, block_size: u32) -> crate::Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    runtime.block_on(run(&Made(flaw, block_size), Options::seeded(11)))
}

#[test]
fn memory_disk_conforms() {
    for block_size in [512, 4096] {
        outcome(Flaw::None, block_size).expect("the disk in memory conforms");
    }
}

#[test]
fn every_flaw_is_found() {
    for (flaw, group) in [
        (Flaw::IgnoresDurableWriteOfOneBlock, "transfer"),
        (Flaw::ZeroesOneBlockShort, "write_zeroes"),
        (Flaw::AcceptsBeyondEnd, "ranges"),
        (Flaw::ClaimsUnmapKeeps, "unmap"),
        (Flaw::ReadsStaleTail, "large transfer"),
    ] {
        let failure = outcome(flaw, 4096).expect_err("the suite finds the flaw").to_string();
        assert!(failure.contains(group), "found elsewhere: {failure}");
    }
}

/// Initiators of a disk in memory that get one thing about reservations wrong.
#[derive(Clone, Copy, PartialEq)]
enum Leak {
    None,
    /// Preempting a key that nobody has is called done.
    PreemptsNobody,
    /// Whoever preempts is registered by that.
    TakesStrangers,
    /// A write that has begun comes through, however long it takes.
    LetsGhostsIn,
    /// A registration without a key stands for all.
    ForgetsToUnregister,
}

struct Leaking {
    leak: Leak,
    inner: MemoryDisk,
    /// Another way to the same medium, that is always permitted to write.
    back_door: Arc<MemoryDisk>,
}

struct Shared(Leak);

impl SharedSubject for Shared {
    fn create_shared(&self, initiators: usize) -> SubjectFuture<'_, Vec<Device>> {
        let disk = MemoryDisk::new(2 << 20, 512);
        let devices = (0..initiators).map(|_| {
            let (inner, back_door) = (disk.another_initiator(), Arc::new(disk.another_initiator()));
            Arc::new(Layered(Leaking { leak: self.0, inner, back_door })) as Device
        });
        let devices = devices.collect();
        Box::pin(async { devices })
    }
}

impl DeviceLayer for Leaking {
    fn below(&self) -> &dyn BlockDevice {
        &self.inner
    }
    fn reservations(&self) -> Option<&dyn Reservations> {
        Some(self)
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        if self.leak != Leak::LetsGhostsIn || data.len() != 512 {
            return self.inner.write(offset, data, durability);
        }
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.back_door.register(0xffff).await?;
            let written = self.back_door.write(offset, data, durability).await;
            self.back_door.unregister().await?;
            written
        })
    }
}

impl Reservations for Leaking {
    fn register(&self, key: u64) -> BlockFuture<'_, ()> {
        self.inner.register(key)
    }
    fn unregister(&self) -> BlockFuture<'_, ()> {
        match self.leak {
            Leak::ForgetsToUnregister => Box::pin(async { Ok(()) }),
            _ => self.inner.unregister(),
        }
    }
    fn keys(&self) -> BlockFuture<'_, BTreeSet<u64>> {
        self.inner.keys()
    }
    fn reservation(&self) -> BlockFuture<'_, Option<Reservation>> {
        self.inner.reservation()
    }
    fn reserve(&self, key: u64) -> BlockFuture<'_, ()> {
        self.inner.reserve(key)
    }
    fn preempt_and_abort(&self, key: u64, victim: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            if self.leak == Leak::TakesStrangers {
                self.inner.register(key).await?;
            }
            match self.inner.preempt_and_abort(key, victim).await {
                Err(_) if self.leak == Leak::PreemptsNobody && self.inner.keys().await?.contains(&key) => {
                    Ok(())
                }
                other => other,
            }
        })
    }
}

#[test]
fn reservations_conform_and_every_leak_is_found() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    let outcome = |leak| runtime.block_on(run_reservations(&Shared(leak)));
    outcome(Leak::None).expect("the disk in memory conforms");
    for (leak, what) in [
        (Leak::PreemptsNobody, "a key that nobody has"),
        (Leak::TakesStrangers, "a stranger's preempt"),
        (Leak::LetsGhostsIn, "a preempted write has landed"),
        (Leak::ForgetsToUnregister, "the keys are"),
    ] {
        let failure = outcome(leak).expect_err("the suite finds the leak").to_string();
        assert!(failure.contains(what), "found elsewhere: {failure}");
    }
}

#[test]
fn patterns_identify_themselves() {
    let mut buf = vec![0; 1024];
    assert_eq!(pattern::identify(&buf[..512]), pattern::Found::Zero);
    pattern::fill(&mut buf, 3, 8192, 77);
    let second = pattern::Found::Written { device: 3, offset: 8704, generation: 77 };
    assert_eq!(pattern::identify(&buf[512..]), second);
    for bit in [0, 70, 130, 200, 4095] {
        buf[512 + bit / 8] ^= 1 << (bit % 8);
        assert_ne!(pattern::identify(&buf[512..]), second, "bit {bit}");
        buf[512 + bit / 8] ^= 1 << (bit % 8);
    }
    assert_eq!(pattern::identify(&buf[..100]), pattern::Found::Garbage);
}
