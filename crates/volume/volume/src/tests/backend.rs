//! The database's storage after a failure: nothing of it can be relied on any more.

use std::io;

use redb::StorageBackend;
use std::sync::atomic::Ordering;
use volume_format::{BLOCK, Superblock};

use super::stopped::{Away, disk};
use super::*;
use crate::backend::DeviceBackend;
use test_layers::Layered;

/// What `fail` makes of a backend with a block of ones on the device and one of twos in it.
fn after(fail: impl FnOnce(&Layered<Away>, &DeviceBackend) -> io::Result<()> + Send) {
    let disk = disk();
    let device: Device = disk.clone();
    let formatted = Arc::clone(&device);
    on_shard(async move {
        let options = FormatOptions { name: "v".into() };
        Volume::format(formatted, options, environment()).await.expect("format");
    });
    std::thread::scope(|scope| {
        let used = scope.spawn(|| {
            let block = crate::backend::run(device.read(0, IoBuf::new(BLOCK as usize))).expect("read");
            let superblock = Superblock::decode(&block).expect("superblock");
            let backend = DeviceBackend::open(Arc::clone(&device), &superblock).expect("backend");
            let len = backend.len().expect("length");
            backend.write(BLOCK, &[1; BLOCK as usize]).expect("write");
            backend.sync_data().expect("sync");
            backend.write(BLOCK, &[2; BLOCK as usize]).expect("write");
            fail(&disk, &backend).expect_err("it fails");
            disk.away.store(false, Ordering::SeqCst);
            disk.unread.store(false, Ordering::SeqCst);
            let mut out = [0; BLOCK as usize];
            let read = backend.read(BLOCK, &mut out);
            assert!(read.is_err(), "{} is read", out[0]);
            assert!(backend.write(2 * BLOCK, &out).is_err());
            assert!(backend.sync_data().is_err());
            assert!(backend.set_len(len).is_err());
        });
        used.join().expect("used");
    });
}

#[test]
fn after_a_failed_write_nothing_is_read_or_written() {
    after(|disk, backend| {
        disk.away.store(true, Ordering::SeqCst);
        backend.sync_data()
    });
    // Several blocks: a flush.
    after(|disk, backend| {
        backend.write(5 * BLOCK, &[2; BLOCK as usize])?;
        disk.away.store(true, Ordering::SeqCst);
        backend.sync_data()
    });
    after(|disk, backend| {
        disk.away.store(true, Ordering::SeqCst);
        backend.set_len(backend.len()?)
    });
}

#[test]
fn after_a_failed_read_nothing_is_read_or_written() {
    after(|disk, backend| {
        disk.unread.store(true, Ordering::SeqCst);
        backend.read(2 * BLOCK, &mut [0; 100])
    });
    // A part of a block needs the rest of it.
    after(|disk, backend| {
        disk.unread.store(true, Ordering::SeqCst);
        backend.write(2 * BLOCK, &[3; 100])
    });
    after(|_, backend| backend.read(u64::MAX - 5, &mut [0; 100]));
}
