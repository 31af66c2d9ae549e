//! The suite of file stores on a volume.

use std::cell::RefCell;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{Device, Durability, MemoryDisk};
use file_store::FileStore;
use file_store_conformance::{CHECKS, Check, Options, Store, Subject, SubjectFuture, run_one};
use volume_format::CLUSTER;

use super::devices::Turns;
use super::{SIZE, environment, on_shard};
use crate::{FormatOptions, Volume};

/// Volumes on disks in memory that shuffle what happens at once.
struct Volumes {
    seed: u64,
    /// All changes that the suite makes are volatile.
    relaxed: bool,
    /// What the last crash left.
    left: RefCell<Option<Arc<Volume>>>,
    open: RefCell<Option<(Device, Arc<Volume>)>>,
}

impl Volumes {
    fn store(&self, volume: &Arc<Volume>) -> Store {
        match volume.volatile().filter(|_| self.relaxed) {
            Some(store) => store,
            None => Arc::clone(volume) as Store,
        }
    }
}

impl Subject for Volumes {
    fn create(&self) -> SubjectFuture<'_, Store> {
        Box::pin(async {
            let device: Device = Arc::new(Turns::new(SIZE, self.seed));
            let options = FormatOptions { name: "v".into() };
            Volume::format(Arc::clone(&device), options, environment()).await.expect("format");
            let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
            *self.open.borrow_mut() = Some((device, Arc::clone(&volume)));
            self.store(&volume)
        })
    }

    fn unit(&self) -> u64 {
        CLUSTER
    }

    fn reopen(&self, store: Store) -> SubjectFuture<'_, Option<Store>> {
        drop(store);
        Box::pin(async {
            let (device, volume) = self.open.borrow_mut().take().expect("a volume is open");
            volume.close().await.expect("close");
            drop(volume);
            let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open again");
            *self.open.borrow_mut() = Some((device, Arc::clone(&volume)));
            Some(self.store(&volume))
        })
    }

    fn after_crash(&self) -> SubjectFuture<'_, Option<Store>> {
        Box::pin(async {
            let before = self.left.borrow_mut().take();
            if let Some(before) = before {
                before.close().await.expect("close");
            }
            let device = self.open.borrow().as_ref().map(|(device, _)| Arc::clone(device));
            let left = device.expect("a volume is open").read(0, IoBuf::new(SIZE)).await.expect("read");
            let copy: Device = Arc::new(MemoryDisk::new(SIZE, 4096));
            copy.write(0, left.freeze(), Durability::Durable).await.expect("write");
            let volume = Volume::open(copy, environment()).await.expect("open what a crash leaves");
            let findings = volume.check_deep().await.expect("check");
            assert_eq!(findings, Vec::new(), "what a crash leaves");
            *self.left.borrow_mut() = Some(Arc::clone(&volume));
            Some(volume as Store)
        })
    }

    fn pause(&self) -> SubjectFuture<'_, ()> {
        Box::pin(shard_runtime::sleep(std::time::Duration::from_millis(1)))
    }

    fn verify<'a>(&'a self, _store: &'a Store) -> SubjectFuture<'a, Result<(), String>> {
        Box::pin(async {
            let volume = self.open.borrow().as_ref().map(|(_, volume)| Arc::clone(volume));
            let volume = volume.expect("a volume is open");
            maps_agree(&volume).await?;
            match volume.check_deep().await {
                Ok(findings) if findings.is_empty() => Ok(()),
                found => Err(format!("{found:?}")),
            }
        })
    }
}

/// With nothing in flight, the maps in memory are those of the database.
async fn maps_agree(volume: &Volume) -> Result<(), String> {
    let streams = volume.core.registry.lock().streams();
    for stream in streams {
        let key = stream.key;
        let stored = volume.core.metadata.change(move |session| session.extents(key)).await;
        let (size, durable) = (stream.size(), stream.durable_size());
        let mut map = crate::extents::ExtentMap::default();
        stored.expect("extents").into_iter().for_each(|extent| map.insert(extent));
        let (known, stored): (Vec<_>, Vec<_>) = (stream.map.read().iter().collect(), map.iter().collect());
        if known != stored {
            return Err(format!("stream {key:?} ({size}, durable {durable}) has {known:?}, not {stored:?}"));
        }
    }
    Ok(())
}

/// Seeds of one run; a long search is `CONFORMANCE_SEEDS=1000 cargo test --release -p volume a_volume_is`.
fn seeds() -> u64 {
    std::env::var("CONFORMANCE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

#[test]
fn a_volume_is_a_file_store() {
    run(false);
}

#[test]
fn a_volume_of_volatile_changes_is_a_file_store() {
    run(true);
}

fn run(relaxed: bool) {
    let mut failures = Vec::new();
    // What is volatile is not there after a crash, and the check of that needs both kinds.
    let other = |check: &&Check| !relaxed || check.name != "volatile changes and crashes";
    for check in CHECKS.iter().filter(other) {
        for seed in 0..seeds() {
            let subject = Volumes { seed, relaxed, left: RefCell::default(), open: RefCell::default() };
            if let Err(failure) = on_shard(run_one(&subject, check, Options::seeded(seed))) {
                failures.push(format!("seed {seed}: {failure}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
