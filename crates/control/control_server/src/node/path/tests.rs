//! Orders for a pool of a node, over parts in memory.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster_node::{Failure, Order};
use serde_json::{Value, json};
use shard_runtime::SystemClock;
use uuid::Uuid;

use super::driver::NodeDriver;
use crate::backend::{FoundDisk, Whose};
use crate::data_dir::DataDir;
use crate::memory::{Machine, MemoryIscsi, MemorySmb};
use crate::node::Node;

struct Bench {
    node: Arc<Node>,
    iscsi: Arc<MemoryIscsi>,
    smb: Arc<MemorySmb>,
}

fn bench(dir: &FilePath, machine: &Arc<Machine>) -> Bench {
    let data = DataDir::open(dir).expect("owned");
    let (iscsi, smb) = (Arc::new(MemoryIscsi::default()), Arc::new(MemorySmb::default()));
    let mut backends = machine.backends(dir);
    (backends.iscsi, backends.smb) = (iscsi.clone(), smb.clone());
    Bench { node: Node::new(data, Arc::new(SystemClock::new()), backends).expect("a node"), iscsi, smb }
}

fn of<T: serde::de::DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).expect("a request")
}

/// A pool with a volume, a LUN and a share that a node has made.
async fn made(dir: &FilePath, machine: &Arc<Machine>) -> Uuid {
    let Bench { node, iscsi, smb } = bench(dir, machine);
    node.open().await;
    node.target_create(of(json!({ "name": "iqn.2026-11.example:t" }))).await.expect("target");
    let pool = of(json!({ "name": "p", "disks": ["a", "b"], "confirm": "p" }));
    let pool = node.pool_create(pool).await.expect("pool").pool.guid;
    node.volume_create(of(json!({ "name": "v", "size_bytes": 1 << 30 }))).await.expect("volume");
    let lun = of(json!({ "name": "l", "size_bytes": 8192, "map": [{ "everyone": true }] }));
    node.lun_create(lun).await.expect("LUN");
    node.share_create(of(json!({ "name": "s" }))).await.expect("share");
    assert!(iscsi.served.lock().contains("l") && smb.served.lock().contains_key("s"));
    node.close().await.expect("closed");
    pool
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_bring_a_pool_up_step_by_step_and_down() {
    let dir = tempfile::tempdir().expect("temp dir");
    let machine = Arc::new(Machine::default());
    let disk = |id: &str| FoundDisk { id: id.into(), path: format!("/dev/{id}"), ..FoundDisk::default() };
    *machine.found.lock() = ["a", "b"].map(disk).to_vec();
    let pool = made(dir.path(), &machine).await;
    let Bench { node, iscsi, smb } = bench(dir.path(), &machine);
    let driver = NodeDriver::new(node.clone());
    node.open().await;
    assert!(!node.is_open(pool), "nobody has said that it is this node's");
    let order = async |epoch, order| driver.step(pool, epoch, order).await;
    let served = || (iscsi.served.lock().contains("l"), smb.served.lock().contains_key("s"));

    assert_eq!(order(50, Order::Open).await, Err(Failure::Trouble), "nothing is opened before it is fenced");
    assert_eq!(order(50, Order::Fence).await, Ok(()));
    assert_eq!(order(51, Order::Open).await, Err(Failure::Trouble), "fenced in another epoch");
    assert_eq!(order(50, Order::Stop).await, Ok(()));
    for (step, there) in
        [(Order::Fence, false), (Order::Open, false), (Order::Restore, false), (Order::Publish, true)]
    {
        assert_eq!(order(52, step).await, Ok(()), "{step:?}");
        assert_eq!(served(), (there, there), "{step:?}");
    }
    assert_eq!(node.pool_show("p").await.expect("open").pool.epoch, 52);
    assert_eq!(order(52, Order::Stop).await, Ok(()));
    assert_eq!(served(), (false, false));
    assert!(!node.is_open(pool) && node.volumes.lock().is_empty());
    // It was given up by itself neither then nor now.
    assert_eq!(node.open_pools(None).await, ());
    assert!(!node.is_open(pool));

    assert_eq!(order(51, Order::Fence).await, Ok(()));
    assert_eq!(order(51, Order::Open).await, Err(Failure::Behind(52)), "its disks know a higher epoch");
    assert_eq!(order(51, Order::Stop).await, Ok(()), "stopping twice is no error");
    for step in [Order::Fence, Order::Open, Order::Restore, Order::Publish] {
        assert_eq!(order(53, step).await, Ok(()), "{step:?}");
    }
    assert_eq!(served(), (true, true), "it is back");
    node.close().await.expect("closed");
}

/// Nobody waits for an order any more: what it has begun comes to its end, and is put right by the order to stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_is_dropped_leaves_nothing_open() {
    let dir = tempfile::tempdir().expect("temp dir");
    let machine = Arc::new(Machine::default());
    let disk = |id: &str| FoundDisk { id: id.into(), path: format!("/dev/{id}"), ..FoundDisk::default() };
    *machine.found.lock() = ["a", "b"].map(disk).to_vec();
    let pool = made(dir.path(), &machine).await;
    let Bench { node, iscsi, .. } = bench(dir.path(), &machine);
    let driver = NodeDriver::new(node.clone());
    node.open().await;
    let order = async |epoch, order| driver.step(pool, epoch, order).await;
    assert_eq!(order(50, Order::Fence).await, Ok(()));
    machine.hang(&["a"]);
    let waited = tokio::time::timeout(Duration::from_millis(50), order(50, Order::Open)).await;
    assert!(waited.is_err(), "its disk hangs");
    let stopping = {
        let driver = driver.clone();
        tokio::spawn(async move { driver.step(pool, 50, Order::Stop).await })
    };
    machine.hang(&[]);
    assert_eq!(stopping.await.expect("ended"), Ok(()));
    assert!(!node.is_open(pool), "what was opened meanwhile is closed");
    for step in [Order::Fence, Order::Open, Order::Restore, Order::Publish] {
        assert_eq!(order(51, step).await, Ok(()), "{step:?}");
    }
    assert!(iscsi.served.lock().contains("l"));
    node.close().await.expect("closed");
}

/// Nobody can be kept from such disks: what the next owner believes is that this one writes nothing any more, and owes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_on_disks_without_fences_is_let_go_of_only_when_all_of_it_was_closed_cleanly() {
    for (volume, whose) in [("v", Whose::Free), ("unclean", Whose::Own)] {
        let (dir, other) = (tempfile::tempdir().expect("temp dir"), tempfile::tempdir().expect("temp dir"));
        let machine = Arc::new(Machine::default());
        let disk = |id: &str| FoundDisk { id: id.into(), path: format!("/dev/{id}"), ..FoundDisk::default() };
        *machine.found.lock() = ["a", "b"].map(disk).to_vec();
        machine.unfenced.lock().insert("b".into());
        let Bench { node, .. } = bench(dir.path(), &machine);
        node.open().await;
        let pool = of(json!({ "name": "p", "disks": ["a", "b"], "confirm": "p" }));
        let pool = node.pool_create(pool).await.expect("pool").pool.guid;
        let space = of(json!({ "name": volume, "size_bytes": 1 << 30 }));
        node.volume_create(space).await.expect("volume");
        node.path(pool).unfenced.store(true, Ordering::Release);
        NodeDriver::new(node.clone()).step(pool, 50, Order::Stop).await.expect("stopped");
        let other = machine.backends(other.path());
        match (whose, other.pools.owner(pool, Vec::new()).await.expect("looked at")) {
            (Whose::Free, Whose::Free) | (Whose::Own, Whose::Another { .. }) => {}
            (_, found) => panic!("volume {volume}: to another node it is {found:?}"),
        }
        drop(node.close().await);
    }
}
