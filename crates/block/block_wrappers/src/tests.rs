//! Faults that are switched on do what they say; without them the wrapper is not felt.

use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_conformance::{Options, SharedSubject, Subject, SubjectFuture};
use block_device::{BlockDevice, BlockErrorKind, Device, Durability, MemoryDisk};
use shard_runtime::SystemClock;

use crate::{Fault, FaultKind, FaultOperation, WatchedDisk};

fn disk() -> WatchedDisk {
    WatchedDisk::new(Arc::new(MemoryDisk::new(1 << 20, 4096)), Arc::new(SystemClock::new()))
}

fn block(byte: u8) -> SharedBuf {
    IoBuf::copy_from(&[byte; 4096]).freeze()
}

#[tokio::test]
async fn vanishes_and_returns_with_its_data() {
    let disk = disk();
    disk.write(4096, block(7), Durability::Durable).await.expect("written");
    disk.set_faults(vec![Fault::always(FaultKind::Vanish)]);
    let gone = disk.read(4096, IoBuf::new(4096)).await.expect_err("gone");
    assert_eq!(gone.kind(), BlockErrorKind::Gone);
    assert_eq!(disk.flush().await.expect_err("gone").kind(), BlockErrorKind::Gone);
    disk.set_faults(Vec::new());
    assert_eq!(disk.read(4096, IoBuf::new(4096)).await.expect("back")[0], 7);
    let totals = disk.totals();
    assert_eq!((totals.read.operations, totals.write.operations), (1, 1));
    assert_eq!((totals.read.errors, totals.write.errors, totals.other.errors), (1, 0, 1));
    assert_eq!((totals.read.bytes, totals.write.bytes), (4096, 4096));
    assert_eq!(totals.in_flight, 0);
}

#[tokio::test]
async fn rules_meet_their_range_operation_and_count() {
    let disk = disk();
    let error = Fault {
        operation: FaultOperation::Write,
        offset: 8192,
        len: Some(4096),
        count: Some(1),
        ..Fault::always(FaultKind::Error)
    };
    disk.set_faults(vec![error]);
    disk.write(4096, block(1), Durability::Volatile).await.expect("before the range");
    disk.write(12288, block(1), Durability::Volatile).await.expect("after the range");
    disk.read(8192, IoBuf::new(4096)).await.expect("a read");
    disk.flush().await.expect("a flush has no range");
    assert!(disk.write(8192, block(1), Durability::Volatile).await.is_err());
    disk.write(8192, block(1), Durability::Volatile).await.expect("once only");
}

/// As the metadata thread of a volume does: its futures are driven without a runtime and its timers.
#[test]
fn a_delay_needs_no_timer() {
    let disk = disk();
    disk.set_faults(vec![Fault::always(FaultKind::Delay(Duration::from_millis(1)))]);
    let write = disk.write(0, block(4), Durability::Durable);
    futures_util::FutureExt::now_or_never(write).expect("done when the call is").expect("written");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let read = runtime.expect("runtime").block_on(disk.read(0, IoBuf::new(4096)));
    assert_eq!(read.expect("read")[0], 4);
}

/// Eight at once take as long as eight one after another.
#[tokio::test(start_paused = true)]
async fn a_serial_disk_has_one_arm() {
    let disk = disk();
    disk.set_faults(vec![Fault::always(FaultKind::Serial(Duration::from_millis(500)))]);
    let began = tokio::time::Instant::now();
    let reads = (0..8).map(|_| disk.read(0, IoBuf::new(4096)));
    futures_util::future::try_join_all(reads).await.expect("read");
    // The disk's own clock is not the paused one, and has gone on by less than it would take.
    let took = began.elapsed();
    assert!(took > Duration::from_millis(3500) && took < Duration::from_millis(4100), "{took:?}");
}

#[tokio::test]
async fn silent_faults_lie() {
    let disk = disk();
    disk.write(0, block(1), Durability::Volatile).await.expect("written");
    disk.set_faults(vec![Fault::always(FaultKind::Lost)]);
    disk.write(0, block(2), Durability::Volatile).await.expect("said to be written");
    disk.set_faults(vec![Fault::always(FaultKind::BitRot)]);
    assert_eq!(disk.read(0, IoBuf::new(4096)).await.expect("read")[0], 0);
    disk.set_faults(vec![Fault::always(FaultKind::Misdirected)]);
    disk.write(0, block(3), Durability::Volatile).await.expect("said to be written");
    disk.set_faults(vec![Fault::always(FaultKind::Torn)]);
    let two = IoBuf::copy_from(&[9; 8192]).freeze();
    assert!(disk.write(16384, two, Durability::Volatile).await.is_err());
    disk.set_faults(vec![]);
    let at = async |offset| disk.read(offset, IoBuf::new(4096)).await.expect("read")[0];
    assert_eq!((at(0).await, at(4096).await, at(16384).await, at(20480).await), (1, 3, 9, 0));
}

struct Watched;

impl Subject for Watched {
    fn create(&self) -> SubjectFuture<'_, Device> {
        Box::pin(async {
            // A fault that meets nothing: the way with faults is the one that is tested.
            let disk = disk();
            disk.set_faults(vec![Fault { count: Some(0), ..Fault::always(FaultKind::Lost) }]);
            let device: Device = Arc::new(disk);
            device
        })
    }
}

#[tokio::test]
async fn a_watched_disk_conforms() {
    block_conformance::run(&Watched, Options::seeded(3)).await.unwrap_or_else(|failure| panic!("{failure}"));
}

struct Shared;

impl SharedSubject for Shared {
    fn create_shared(&self, initiators: usize) -> SubjectFuture<'_, Vec<Device>> {
        let disk = MemoryDisk::new(2 << 20, 4096);
        let watched = |disk| WatchedDisk::new(Arc::new(disk), Arc::new(SystemClock::new()));
        let devices = (0..initiators).map(|_| Arc::new(watched(disk.another_initiator())) as Device);
        let devices = devices.collect();
        Box::pin(async { devices })
    }
}

#[tokio::test]
async fn reservations_pass_through() {
    block_conformance::run_reservations(&Shared).await.unwrap_or_else(|failure| panic!("{failure}"));
}
