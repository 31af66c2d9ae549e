//! The contract of reservations on a block device of the kernel that several initiators share. It is wiped.
//!
//! `HOLDFAST_SHARED_DEVICES` names three block devices that are one disk, each over a session of its own (three logins to one LUN, without
//! multipath), as root: `HOLDFAST_SHARED_DEVICES="/dev/sda /dev/sdb /dev/sdc" cargo test -p block_local --features shared-device`.
//! A machine without such devices does not build it.
#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use block_conformance::{SharedSubject, SubjectFuture};
use block_device::{BlockDevice, Device};
use block_local::{LocalDisk, OpenMode};
use io_engine::{BlockingEngine, block_on, install};

struct Sessions(Vec<PathBuf>);

impl SharedSubject for Sessions {
    fn create_shared(&self, initiators: usize) -> SubjectFuture<'_, Vec<Device>> {
        Box::pin(async move {
            let mut devices = Vec::new();
            for path in &self.0 {
                let disk = LocalDisk::open(path, OpenMode::ReadWrite).expect("opens");
                let reservations = disk.reservations().expect("a device that keeps reservations");
                reservations.unregister().await.expect("unregister");
                devices.push(Arc::new(disk) as Device);
            }
            devices.truncate(initiators);
            devices
        })
    }
}

#[test]
fn reservations_conform() {
    let named = std::env::var("HOLDFAST_SHARED_DEVICES").expect("HOLDFAST_SHARED_DEVICES");
    let sessions = Sessions(named.split_whitespace().map(PathBuf::from).collect());
    assert_eq!(sessions.0.len(), 3, "three devices are needed");
    let guard = install(Rc::new(BlockingEngine::new().expect("engine")));
    let suite = block_conformance::run_reservations(&sessions);
    block_on(&guard, suite).expect("engine").unwrap_or_else(|failure| panic!("{failure}"));
}
