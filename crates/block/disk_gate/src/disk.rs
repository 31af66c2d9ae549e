//! The disk as one initiator sees it behind the gate.

use std::collections::BTreeSet;
use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockError, BlockFuture, Durability, Geometry, Reservation, Reservations};
use shard_runtime::finish_anyway;

use crate::gate::{Gate, GateError};
use crate::port::Port;

/// A disk behind its gate. All that have one name are one initiator. What changes the disk and has begun comes to its end, whatever becomes
/// of whoever waits for it: threads that use it have to adopt detached work ([`shard_runtime::adopt_detached_work`]).
#[derive(Clone)]
pub struct GatedDisk {
    way: Arc<Way>,
}

/// An initiator's way to the disk: one count of references for both.
struct Way {
    gate: Arc<Gate>,
    port: Arc<Port>,
}

impl GatedDisk {
    /// The way of the initiator of this name.
    ///
    /// # Errors
    /// When too many initiators use the disk.
    pub fn new(gate: Arc<Gate>, initiator: &str) -> Result<Self, GateError> {
        let port = gate.port(initiator)?;
        Ok(Self { way: Arc::new(Way { gate, port }) })
    }

    /// Its gate.
    #[must_use]
    pub fn gate(&self) -> &Arc<Gate> {
        &self.way.gate
    }

    /// Ends when nothing is under way that this initiator has begun, also of what nobody waits for.
    pub async fn settled(&self) {
        self.way.port.idle().await;
    }

    /// Does something that changes the disk, if this initiator may.
    fn begin<F>(
        &self,
        doing: &'static str,
        work: impl FnOnce(Arc<Way>) -> F + 'static,
    ) -> BlockFuture<'static, ()>
    where
        F: Future<Output = Result<(), BlockError>> + 'static,
    {
        let way = self.way.clone();
        Box::pin(finish_anyway(async move {
            let Some(_pass) = way.port.enter() else { return Err(way.gate.refusal(doing)) };
            work(way.clone()).await
        }))
    }

    fn change(
        &self,
        doing: &'static str,
        change: impl FnOnce(&mut crate::table::Table, &str) -> Result<(), BlockError> + 'static,
    ) -> BlockFuture<'static, ()> {
        let way = self.way.clone();
        Box::pin(finish_anyway(
            async move { way.gate.change(doing, |table| change(table, &way.port.name)).await },
        ))
    }
}

impl BlockDevice for GatedDisk {
    fn geometry(&self) -> &Geometry {
        self.way.gate.device.geometry()
    }

    fn size(&self) -> u64 {
        self.way.gate.device.size()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        self.way.gate.device.read(offset, buf)
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        self.begin("write", move |way| async move { way.gate.device.write(offset, data, durability).await })
    }

    fn write_vectored(
        &self,
        offset: u64,
        parts: Vec<SharedBuf>,
        durability: Durability,
    ) -> BlockFuture<'_, ()> {
        self.begin("write", move |way| async move {
            way.gate.device.write_vectored(offset, parts, durability).await
        })
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        self.way.gate.device.flush()
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        self.begin("unmap", move |way| async move { way.gate.device.unmap(offset, len).await })
    }

    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        self.begin("write zeroes", move |way| async move {
            way.gate.device.write_zeroes(offset, len, durability).await
        })
    }

    fn has_room_for(&self, ranges: Vec<(u64, u64)>) -> BlockFuture<'_, bool> {
        self.way.gate.device.has_room_for(ranges)
    }

    fn allocate(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        self.begin("allocate", move |way| async move { way.gate.device.allocate(offset, len).await })
    }

    fn wait_resize(&self, known: u64) -> BlockFuture<'_, u64> {
        self.way.gate.device.wait_resize(known)
    }

    fn reservations(&self) -> Option<&dyn Reservations> {
        Some(self)
    }
}

impl Reservations for GatedDisk {
    fn register(&self, key: u64) -> BlockFuture<'_, ()> {
        self.change("register", move |table, port| table.register(port, key))
    }

    fn unregister(&self) -> BlockFuture<'_, ()> {
        self.change("unregister", |table, port| table.register(port, 0))
    }

    fn keys(&self) -> BlockFuture<'_, BTreeSet<u64>> {
        Box::pin(async { self.way.gate.look("read keys", |table| table.keys()) })
    }

    fn reservation(&self) -> BlockFuture<'_, Option<Reservation>> {
        Box::pin(async { self.way.gate.look("read the reservation", |table| table.reservation()) })
    }

    fn reserve(&self, key: u64) -> BlockFuture<'_, ()> {
        self.change("reserve", move |table, port| table.reserve(port, key))
    }

    fn preempt_and_abort(&self, key: u64, victim: u64) -> BlockFuture<'_, ()> {
        self.change("preempt and abort", move |table, port| table.preempt(port, key, victim))
    }
}
