//! The disk over a real Ceph: `HOLDFAST_CEPH_CONF` names its configuration, with the administrator's keyring and a Ceph pool `rbd`;
//! `tests/tools/ceph/ceph-up.sh` makes one. Then `cargo test -p block_rbd --features ceph`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

use std::cell::Cell;
use std::future::Future;
use std::process::Command;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_conformance::{SharedSubject, Subject, SubjectFuture};
use block_device::{BlockDevice, BlockErrorKind, Device, Durability};
use block_rbd::{Access, Address, OpenError, RbdDisk, Times};

fn on_shard<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        shard_runtime::adopt_detached_work();
        future.await
    })
}

fn conf() -> String {
    std::env::var("HOLDFAST_CEPH_CONF").expect("HOLDFAST_CEPH_CONF names a ceph.conf")
}

fn rbd(arguments: &[&str]) {
    let status = Command::new("rbd").args(["-c", &conf()]).args(arguments).status().unwrap();
    assert!(status.success(), "rbd {arguments:?}");
}

fn create(name: &str, more: &[&str]) -> Address {
    let name = format!("{name}-{}", std::process::id());
    rbd(&[&["create", &format!("rbd/{name}"), "--size", "16M"], more].concat());
    Address::parse(&format!("rbd:rbd/{name}?conf={}", conf())).unwrap()
}

async fn open(address: &Address) -> RbdDisk {
    RbdDisk::open(address.clone(), Access::ReadWrite, Times::default()).await.unwrap()
}

fn block(byte: u8) -> aligned_buffer::SharedBuf {
    IoBuf::copy_from(&[byte; 4096]).freeze()
}

#[derive(Default)]
struct Images(Cell<u32>);

impl Images {
    async fn disks(&self, clients: usize) -> Vec<Device> {
        self.0.set(self.0.get() + 1);
        let address = create(&format!("c{clients}-{}", self.0.get()), &[]);
        let mut disks = Vec::new();
        for _ in 0..clients {
            disks.push(Arc::new(open(&address).await) as Device);
        }
        disks
    }
}

impl Subject for Images {
    fn create(&self) -> SubjectFuture<'_, Device> {
        Box::pin(async { self.disks(1).await.remove(0) })
    }
}

impl SharedSubject for Images {
    fn create_shared(&self, initiators: usize) -> SubjectFuture<'_, Vec<Device>> {
        Box::pin(self.disks(initiators))
    }

    fn holder_alone_writes(&self) -> bool {
        true
    }
}

#[test]
fn conforms() {
    on_shard(async {
        let options =
            block_conformance::Options { random_ops: 200, ..block_conformance::Options::seeded(18) };
        block_conformance::run(&Images::default(), options)
            .await
            .unwrap_or_else(|failure| panic!("{failure}"));
    });
}

#[test]
fn reservations_conform() {
    on_shard(async {
        block_conformance::run_reservations(&Images::default())
            .await
            .unwrap_or_else(|failure| panic!("{failure}"));
    });
}

/// An owner that was fenced off writes nothing, is told so, and its epoch is no good any more.
#[test]
fn a_former_owner_is_shut_out() {
    on_shard(async {
        let address = create("fenced", &[]);
        let (old, new) = (open(&address).await, open(&address).await);
        let key = |epoch, node| pool_fence::FenceKey::new(epoch, node).unwrap();
        pool_fence::fence(&old, key(1, 1)).await.unwrap();
        old.write(0, block(1), Durability::Durable).await.unwrap();
        pool_fence::fence(&new, key(2, 2)).await.unwrap();
        new.write(4096, block(2), Durability::Durable).await.unwrap();
        for at in [0, 4096] {
            let error = old.write(at, block(3), Durability::Durable).await.expect_err("fenced");
            assert_eq!(error.kind(), BlockErrorKind::Fenced, "{error}");
        }
        for at in [0, 4096] {
            let error = old.write_zeroes(at, 4096, Durability::Durable).await.expect_err("fenced");
            assert_eq!(error.kind(), BlockErrorKind::Fenced, "{error}");
        }
        assert!(pool_fence::fence(&old, key(1, 1)).await.expect_err("late").is_over());
        let read = new.read(0, IoBuf::new(8192)).await.unwrap();
        assert!(read[..4096] == [1; 4096] && read[4096..] == [2; 4096]);
        // The node that has it opens it anew in its next epoch, while its earlier opening still is there.
        let again = open(&address).await;
        pool_fence::fence(&again, key(3, 2)).await.unwrap();
        again.write(0, block(4), Durability::Durable).await.unwrap();
        new.write(0, block(5), Durability::Durable).await.expect_err("an earlier opening");
        // And once more in the same epoch, as when Ceph was away for a while.
        let third = open(&address).await;
        pool_fence::fence(&third, key(3, 2)).await.unwrap();
        again.write(0, block(6), Durability::Durable).await.expect_err("an earlier opening");
        third.write(0, block(7), Durability::Durable).await.unwrap();
        assert!(third.read(0, IoBuf::new(4096)).await.unwrap()[..] == [7; 4096]);
    });
}

#[test]
fn what_is_wrong_is_said() {
    on_shard(async {
        let look = |text: String| async move {
            let address = Address::parse(&text).unwrap();
            RbdDisk::open(address, Access::ReadWrite, Times::default()).await.map(drop).expect_err("refused")
        };
        let conf = conf();
        assert!(matches!(look(format!("rbd:rbd/nothing?conf={conf}")).await, OpenError::Image(_)));
        assert!(matches!(look(format!("rbd:nothing/a?conf={conf}")).await, OpenError::Pool(_)));
        assert!(matches!(look(format!("rbd:rbd/a?id=nobody&conf={conf}")).await, OpenError::Cluster(_)));
        assert!(matches!(look("rbd:rbd/a?conf=/nonexistent".into()).await, OpenError::Cluster(_)));
        let plain = create("plain", &["--image-feature", "layering"]);
        assert!(matches!(look(plain.to_string()).await, OpenError::NoLock));
        let cached = create("cached", &[]);
        rbd(&["config", "image", "set", &format!("rbd/{}", cached.image), "rbd_cache", "true"]);
        assert!(matches!(look(cached.to_string()).await, OpenError::Cached));
    });
}
