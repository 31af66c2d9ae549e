//! Commands that go on: dropped by the transport, or of their own like SANITIZE.

use aligned_buffer::SharedBuf;
use block_device::{BlockDevice, BlockError, BlockErrorKind, BlockFuture, Durability, MemoryDisk};
use test_layers::{DeviceLayer, Layered};
use tokio::sync::Notify;

use super::*;

/// A disk whose writes wait while it is closed, and fail while it is broken.
pub(super) struct Gate {
    disk: MemoryDisk,
    /// Whether what was read is handed over late.
    pub(super) late: Mutex<bool>,
    /// Whether flushes wait.
    pub(super) stalled: Mutex<bool>,
    /// What was unmapped.
    unmapped: Mutex<Vec<(u64, u64)>>,
    state: Mutex<(bool, bool)>,
    changed: Notify,
}

impl Gate {
    pub(super) fn new() -> Arc<Layered<Self>> {
        let disk = MemoryDisk::new((BLOCKS * 512) as usize, 512);
        Arc::new(Layered(Self {
            disk,
            late: Mutex::default(),
            stalled: Mutex::default(),
            unmapped: Mutex::default(),
            state: Mutex::default(),
            changed: Notify::new(),
        }))
    }

    pub(super) fn set(&self, closed: bool, broken: bool) {
        *self.state.lock() = (closed, broken);
        self.changed.notify_waiters();
    }

    async fn pass(&self) -> Result<(), BlockError> {
        loop {
            let changed = self.changed.notified();
            let (closed, broken) = *self.state.lock();
            if broken {
                return Err(BlockError::new(BlockErrorKind::Io, "broken"));
            }
            if !closed {
                return Ok(());
            }
            changed.await;
        }
    }
}

impl DeviceLayer for Gate {
    fn below(&self) -> &dyn BlockDevice {
        &self.disk
    }
    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(async move {
            let read = self.disk.read(offset, buf).await;
            while *self.late.lock() {
                tokio::task::yield_now().await;
            }
            read
        })
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.pass().await?;
            self.disk.write(offset, data, durability).await
        })
    }
    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            while *self.stalled.lock() {
                tokio::task::yield_now().await;
            }
            self.disk.flush().await
        })
    }
    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.unmapped.lock().push((offset, len));
            self.pass().await?;
            self.disk.unmap(offset, len).await
        })
    }
}

/// Whether the future is still pending after everything that can run has run.
pub(super) async fn pending<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
    for _ in 0..50 {
        if futures_util::poll!(&mut *future).is_ready() {
            return false;
        }
        tokio::task::yield_now().await;
    }
    true
}

pub(super) async fn gated() -> (Arc<Layered<Gate>>, Rig) {
    gated_for(INITIATORS).await
}

/// The same for initiators with these names.
pub(super) async fn gated_for(initiators: [&str; 2]) -> (Arc<Layered<Gate>>, Rig) {
    let (gate, rows) = (Gate::new(), Arc::new(Rows::default()));
    let unit = open_on(rows.clone(), gate.clone()).await;
    (gate, Rig::with(unit, rows, initiators).await)
}

#[test]
fn neighbours_in_an_unmap_are_one_request() {
    run(async {
        let (gate, rig) = gated().await;
        let mut list = vec![0, 86, 0, 80, 0, 0, 0, 0];
        for (lba, blocks) in [(0u64, 1u32), (1, 1), (2, 6), (16, 0), (32, 8)] {
            list.extend_from_slice(&lba.to_be_bytes());
            list.extend_from_slice(&blocks.to_be_bytes());
            list.extend_from_slice(&[0; 4]);
        }
        rig.good(0, &[0x42, 0, 0, 0, 0, 0, 0, 0, 88, 0], &list).await;
        assert_eq!(*gate.unmapped.lock(), [(0, 8 * 512), (32 * 512, 8 * 512)]);
    });
}

#[test]
fn a_dropped_write_is_waited_for() {
    run(async {
        let (gate, rig) = gated().await;
        assert_eq!(rig.prout(0, 0, 0, (0, 0xa), false).await, (0, 0));
        assert_eq!(rig.prout(1, 0, 0, (0, 0xb), false).await, (0, 0));
        gate.set(true, false);
        let cdb = rw(0x2a, 0, 0, 1);
        let mut write = Box::pin(rig.sense(0, &cdb, &[7; 512]));
        assert!(pending(&mut write).await);
        drop(write);
        // A retry and a read do not overtake it; what does not touch the medium does.
        let (retry, read) = (rw(0x2a, 0, 0, 1), rw(0x28, 0, 0, 1));
        let mut retry = Box::pin(rig.sense(0, &retry, &[8; 512]));
        let mut read = Box::pin(rig.sense(1, &read, &[]));
        assert!(pending(&mut retry).await && pending(&mut read).await);
        assert_eq!(rig.sense(0, &[0; 6], &[]).await, (0, 0));
        drop(retry);
        // Its session ends, and still the one who fences it off waits.
        rig.device.nexus_lost(&rig.nexuses[0]);
        let mut fence = Box::pin(rig.prout(1, 5, 3, (0xb, 0xa), false));
        assert!(pending(&mut fence).await);
        gate.set(false, false);
        assert_eq!(fence.await, (0, 0));
        assert_eq!(read.await, (0, 0));
        // The write ended as a whole before; the retry, which had not begun, never came.
        assert_eq!(rig.good(1, &rw(0x28, 0, 0, 1), &[]).await, [7; 512]);
    });
}

#[test]
fn what_has_not_begun_is_not_carried_out() {
    run(async {
        let (_gate, rig) = gated().await;
        let cdb = rw(0x2a, 0, 0, 1);
        drop(Box::pin(rig.sense(0, &cdb, &[7; 512])));
        tokio::task::yield_now().await;
        assert_eq!(rig.good(1, &rw(0x28, 0, 0, 1), &[]).await, [0; 512]);
    });
}

const ERASE: [u8; 10] = [0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn sanitize_replaces_everything() {
    run(async {
        let (_gate, rig) = gated_for(["iqn.2026-11.example:host"; 2]).await;
        let overwrite = [0x48, 1, 0, 0, 0, 0, 0, 0, 7, 0];
        rig.good(0, &overwrite, &[1, 0, 0, 3, 0xa, 0xb, 0xc]).await;
        let block = rig.good(1, &rw(0x28, 0, 2047, 1), &[]).await;
        assert_eq!((&block[..4], &block[510..]), (&[0xa, 0xb, 0xc, 0xa][..], &[0xa, 0xb][..]));
        // Two passes, the second inverted.
        rig.good(0, &overwrite, &[0x82, 0, 0, 3, 0xff, 0xff, 0x0f]).await;
        assert_eq!(rig.good(0, &rw(0x28, 0, 0, 1), &[]).await[..4], [0, 0, 0xf0, 0]);
        for wrong in
            [[0, 0, 0, 3, 1, 2, 3], [1, 0, 0, 2, 1, 2, 3], [1, 1, 0, 3, 1, 2, 3], [0x41, 0, 0, 3, 1, 2, 3]]
        {
            assert_eq!(rig.sense(0, &overwrite, &wrong).await, (5, 0x2400));
        }
        rig.good(0, &ERASE, &[]).await;
        assert_eq!(rig.good(0, &rw(0x28, 0, 5, 1), &[]).await, [0; 512]);
        let status = [0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0];
        let data = rig.good(0, &status, &[]).await;
        assert_eq!((data.len(), &data[16..21]), (24, &[0, 0, 8, 0, 1][..]));
        rig.good(0, &rw(0x2a, 0, 8, 8), &[1; 4096]).await;
        let data = rig.good(0, &status, &[]).await;
        assert_eq!((data[20], &data[32..37], data[52]), (1, &[0, 0, 0, 8, 0][..], 1));
        assert!(rig.rows.0.lock().is_empty());
        // Reserved by another: refused.
        rig.good(1, &[0x16, 0, 0, 0, 0, 0], &[]).await;
        assert_eq!(rig.sense(0, &ERASE, &[]).await, (0, 0x18));
    });
}

#[test]
fn sanitize_goes_on_and_its_failure_sticks() {
    run(async {
        let (gate, rig) = gated_for(["iqn.2026-11.example:host"; 2]).await;
        gate.set(true, false);
        let mut erase = Box::pin(rig.sense(0, &ERASE, &[]));
        assert!(pending(&mut erase).await);
        for cdb in [vec![0; 6], rw(0x28, 0, 0, 1), ERASE.to_vec()] {
            assert_eq!(rig.sense(1, &cdb, &[]).await, (2, 0x041b));
        }
        assert_eq!(rig.good(1, &[3, 0, 0, 0, 18, 0], &[]).await[2], 2);
        rig.good(1, &[0x12, 0, 0, 0, 96, 0], &[]).await;
        // A reset ends the command but not the work.
        let lun = WireLun::from_number(1);
        let mut reset = rig.device.task_management(&rig.nexuses[1], lun, TaskManagement::LogicalUnitReset);
        assert!(futures_util::poll!(&mut reset).is_pending());
        drop(erase);
        reset.await;
        assert_eq!(rig.sense(1, &[0; 6], &[]).await, (6, 0x2903));
        assert_eq!(rig.sense(1, &[0; 6], &[]).await, (2, 0x041b));
        // A node that starts now does not trust the medium.
        let unit = open(rig.rows.clone()).await;
        let early = Rig::untried(unit, rig.rows.clone(), ["iqn.2026-11.example:host"; 2]);
        assert_eq!(early.sense(0, &[0; 6], &[]).await, (6, 0x2900));
        assert_eq!(early.sense(0, &[0; 6], &[]).await, (3, 0x3103));
        assert_eq!(early.sense(0, &rw(0x28, 0, 0, 1), &[]).await, (3, 0x3103));
        // It fails: only another one helps, as AUSE was not set.
        gate.set(false, true);
        while rig.sense(1, &[0; 6], &[]).await != (3, 0x3103) {
            tokio::task::yield_now().await;
        }
        let exit = [0x48, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(rig.sense(1, &exit, &[]).await, (5, 0x2400));
        let mut with_exit = ERASE;
        with_exit[1] |= 0x20;
        assert_eq!(rig.sense(1, &with_exit, &[]).await, (3, 0x3103));
        assert_eq!(rig.sense(1, &exit, &[]).await, (0, 0));
        assert_eq!(rig.sense(1, &[0; 6], &[]).await, (0, 0));
        // At once, and then well.
        let mut immediate = ERASE;
        immediate[1] |= 0x80;
        gate.set(true, false);
        assert_eq!(rig.sense(1, &immediate, &[]).await, (0, 0));
        assert_eq!(rig.sense(1, &[0; 6], &[]).await, (2, 0x041b));
        gate.set(false, false);
        while rig.sense(1, &[0; 6], &[]).await != (0, 0) {
            tokio::task::yield_now().await;
        }
        assert!(rig.rows.0.lock().is_empty());
    });
}

/// An EXTENDED COPY list with one segment on the unit itself.
pub(super) fn copy_list(id: u8, naa: &[u8], target: u16, blocks: u16, lba: u64) -> Vec<u8> {
    let mut list = vec![id, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
    list.extend_from_slice(&[0xe4, 0, 0, 0, 1, 3, 0, naa.len() as u8]);
    list.extend_from_slice(naa);
    list.resize(48, 0);
    list.extend_from_slice(&[2, 0, 0, 0x18, 0, 0]);
    list.extend_from_slice(&target.to_be_bytes());
    list.extend_from_slice(&[0, 0]);
    list.extend_from_slice(&blocks.to_be_bytes());
    list.extend_from_slice(&[0; 8]);
    list.extend_from_slice(&lba.to_be_bytes());
    list
}

#[test]
fn copies_and_what_became_of_them() {
    run(async {
        let (_gate, rig) = gated().await;
        let naa = rig.unit.designator();
        let cdb = |list: &[u8]| {
            let [high, low] = (list.len() as u16).to_be_bytes();
            [0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low, 0, 0]
        };
        let status = |id: u8| [0x84, 0, id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0];
        assert_eq!(rig.sense(0, &status(1), &[]).await, (5, 0x2400));
        rig.good(0, &rw(0x2a, 0, 0, 1), &[9; 512]).await;
        let list = copy_list(1, &naa, 0, 1, 100);
        rig.good(0, &cdb(&list), &list).await;
        assert_eq!(rig.good(0, &rw(0x28, 0, 100, 1), &[]).await, [9; 512]);
        assert_eq!(rig.good(0, &status(1), &[]).await, [0, 0, 0, 8, 1, 0, 1, 0, 0, 0, 2, 0]);
        assert_eq!(rig.sense(1, &status(1), &[]).await, (5, 0x2400), "of another nexus");
        // A target that is not listed, and blocks beyond the end.
        let list = copy_list(2, &naa, 1, 1, 0);
        assert_eq!(rig.sense(0, &cdb(&list), &list).await, (0xa, 0x0804));
        let list = copy_list(3, &naa, 0, 2, BLOCKS - 1);
        assert_eq!(rig.sense(0, &cdb(&list), &list).await, (0xa, 0));
        assert_eq!(rig.good(0, &status(3), &[]).await[4..7], [2, 0, 0]);
        // Only so many are kept, the latest.
        for id in 10..40 {
            let list = copy_list(id, &naa, 0, 0, 0);
            rig.good(0, &cdb(&list), &list).await;
        }
        rig.good(0, &status(39), &[]).await;
        assert_eq!(rig.sense(0, &status(1), &[]).await, (5, 0x2400));
        // Too much of all.
        let mut list = vec![9, 0, 1, 0x20, 0, 0, 0, 0, 0, 0, 7, 0x1c, 0, 0, 0, 0];
        list.resize(2124, 0);
        assert_eq!(rig.sense(0, &cdb(&list), &list).await, (5, 0x1a00));
    });
}

#[test]
fn copies_with_long_identifiers() {
    run(async {
        let (_gate, rig) = gated().await;
        let naa = rig.unit.designator();
        // The descriptors are those of the other kind, after a head of 48 bytes.
        let long = |id: u32, destination: u16, lba: u64| {
            let short = copy_list(0, &naa, destination, 1, lba);
            let mut list = vec![1, 0, 0, 0x20];
            list.resize(16, 0);
            list.extend_from_slice(&[0xff, 0, 0, 0]);
            list.extend_from_slice(&id.to_be_bytes());
            list.resize(42, 0);
            list.extend_from_slice(&[short[2], short[3], short[10], short[11], 0, 0]);
            list.extend_from_slice(&short[16..]);
            list
        };
        let cdb = |list: &[u8]| {
            let [high, low] = (list.len() as u16).to_be_bytes();
            [0x83, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low, 0, 0]
        };
        let status = |id: u8| [0x84, 5, 0x80, 0, 0, id, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0];
        rig.good(0, &rw(0x2a, 0, 0, 1), &[9; 512]).await;
        let list = long(0x8000_0001, 0, 100);
        rig.good(0, &cdb(&list), &list).await;
        assert_eq!(rig.good(0, &rw(0x28, 0, 100, 1), &[]).await, [9; 512]);
        let told = rig.good(0, &status(1), &[]).await;
        assert_eq!((told.len(), &told[..6]), (32, &[0, 0, 0, 28, 1, 1][..]));
        assert_eq!((&told[16..24], &told[24..26]), (&512u64.to_be_bytes()[..], &[0, 1][..]));
        // The short identifier 1 is another copy's.
        let other = [0x84, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0];
        assert_eq!(rig.sense(0, &other, &[]).await, (5, 0x2400));
        let list = long(0x8000_0002, 1, 0);
        assert_eq!(rig.sense(0, &cdb(&list), &list).await, (0xa, 0x0804));
        assert_eq!(rig.sense(0, &status(2), &[]).await, (5, 0x2400), "it was refused before it began");
        let list = long(0x8000_0003, 0, BLOCKS);
        assert_eq!(rig.sense(0, &cdb(&list), &list).await, (0xa, 0));
        assert_eq!(rig.good(0, &status(3), &[]).await[5], 2);
        for (at, value) in [(0, 0), (3, 0x10), (16, 0xe4), (47, 1)] {
            let mut list = long(4, 0, 100);
            list[at] = value;
            assert_eq!(rig.sense(0, &cdb(&list), &list).await.0, 5, "byte {at}");
        }
    });
}
