//! Shards with real files and tasks.

use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use io_engine::{IoOp, IoRequest, IoTarget, submit};

use super::*;

fn on_any_thread<F: std::future::Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().expect("runtime").block_on(future)
}

#[test]
fn io_runs_on_every_shard() {
    let path = std::env::temp_dir().join(format!("shards-{}", std::process::id()));
    let file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path);
    let target = IoTarget::File(Arc::new(file.expect("temporary file").into()));
    let shards = Shards::start(2).expect("shards");
    for shard in shards.all() {
        let target = target.clone();
        let offset = shard.index() as u64 * 4096;
        let sum = on_any_thread(shard.run(move || async move {
            let data = IoBuf::copy_from(&[3; 4096]).freeze();
            let op = IoOp::Write { data, durable: true };
            let written = submit(IoRequest { target: target.clone(), offset, op }).await;
            assert_eq!(written.result.expect("write"), 4096);
            sleep(Duration::from_millis(1)).await;
            let read = submit(IoRequest { target, offset, op: IoOp::Read(IoBuf::new(4096)) }).await;
            let IoOp::Read(buf) = read.op else { panic!("the read gives its buffer back") };
            buf.iter().map(|b| u64::from(*b)).sum::<u64>()
        }));
        assert_eq!(sum, Ok(3 * 4096));
    }
    shards.stop();
    let _ = std::fs::remove_file(path);
}

#[test]
fn a_panic_stays_with_its_task() {
    let shards = Shards::start(1).expect("shards");
    let shard = &shards.all()[0];
    let lost: Result<(), _> = on_any_thread(shard.run(|| async { panic!("for the test") }));
    assert_eq!(lost, Err(ShardGone));
    assert_eq!(on_any_thread(shard.run(|| async { 7 })), Ok(7));
    shards.stop();
}

#[test]
fn shards_stop_although_somebody_has_a_handle() {
    let shards = Shards::start(2).expect("shards");
    let handle = shards.all()[1].clone();
    assert_eq!(on_any_thread(handle.run(|| async { 7 })), Ok(7));
    shards.stop();
    assert_eq!(on_any_thread(handle.run(|| async { 7 })), Err(ShardGone));
}

#[test]
fn seeded_entropy_repeats() {
    let (a, b) = (SeededEntropy::new(5), SeededEntropy::new(5));
    assert_eq!(a.next_id(), b.next_id());
    assert_ne!(a.next_u64(), SeededEntropy::new(6).next_u64());
}

#[test]
fn dropped_work_comes_to_its_end() {
    let shards = Shards::start(1).expect("shards");
    let (sender, receiver) = std::sync::mpsc::channel();
    let dropped = on_any_thread(shards.all()[0].run(move || async move {
        let work = finish_anyway(async move {
            sleep(Duration::from_millis(5)).await;
            let _ = sender.send(());
        });
        timeout(Duration::from_millis(1), work).await.is_none()
    }));
    assert_eq!(dropped, Ok(true));
    assert_eq!(receiver.recv_timeout(Duration::from_secs(10)), Ok(()));
    shards.stop();
}
