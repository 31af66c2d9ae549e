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
    let (go_on, waits) = tokio::sync::oneshot::channel::<()>();
    let dropped = on_any_thread(shards.all()[0].run(move || async move {
        let work = finish_anyway(async move {
            let _ = waits.await;
            let _ = sender.send(());
        });
        timeout(Duration::from_millis(1), work).await.is_none()
    }));
    assert_eq!(dropped, Ok(true), "it has begun, and waits");
    assert!(receiver.try_recv().is_err());
    assert_eq!(go_on.send(()), Ok(()), "it is still there");
    assert_eq!(receiver.recv_timeout(Duration::from_secs(10)), Ok(()));
    shards.stop();
}

/// A thread that waits for the event loop and is waited for, many times: what runs when is the same each time.
#[test]
fn threads_take_turns_with_the_event_loop() {
    fn run() -> Vec<(&'static str, u64)> {
        let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            take_turns();
            let (sender, mut queue) =
                tokio::sync::mpsc::unbounded_channel::<(u64, tokio::sync::oneshot::Sender<()>)>();
            let noted = Arc::clone(&seen);
            let thread = spawn_thread("turns", move || {
                assert!(takes_turns());
                while let Some((number, answer)) = block_on(queue.recv()) {
                    noted.lock().push(("thread", number));
                    let _ = answer.send(());
                }
            })
            .expect("a thread");
            let noted = Arc::clone(&seen);
            let beside = spawn_local(async move {
                for number in 0..50 {
                    noted.lock().push(("beside", number));
                    yield_now().await;
                }
            });
            for number in 0..20 {
                let (answer, answered) = tokio::sync::oneshot::channel();
                assert!(sender.send((number, answer)).is_ok());
                assert!(answered.await.is_ok());
                seen.lock().push(("loop", number));
            }
            drop(sender);
            assert!(beside.await.is_ok());
            while threads_alive() > 0 {
                yield_now().await;
            }
            assert!(thread.is_finished());
            thread.join();
        });
        Arc::try_unwrap(seen).expect("everybody has ended").into_inner()
    }
    let first = run();
    assert_eq!(first.len(), 90);
    for _ in 0..20 {
        assert_eq!(run(), first);
    }
}

#[test]
fn a_thread_may_panic_and_outlive_its_event_loop() {
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    let local = tokio::task::LocalSet::new();
    let waits = local.block_on(&runtime, async {
        take_turns();
        let panics = spawn_thread("panics", || panic!("for the test")).expect("a thread");
        while !panics.is_finished() {
            yield_now().await;
        }
        spawn_thread("waits", || assert!(block_on(receiver).is_ok())).expect("a thread")
    });
    drop(local);
    assert!(!waits.is_finished());
    let _ = sender.send(());
    waits.join();
}
