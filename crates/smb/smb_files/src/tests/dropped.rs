//! Requests whose connection goes: at whichever point they are dropped, nothing stays open, and what was promised to
//! others is kept.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use file_store::StoreFuture;
use test_layers::{Layered, StoreLayer};

use super::*;

/// A store that lets others run before each answer, so that a request can be dropped there.
struct Late(Arc<MemoryStore>);

impl StoreLayer for Late {
    fn below(&self) -> &dyn FileStore {
        &*self.0
    }
    fn answered<'a, T: 'a>(&'a self, answer: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        Box::pin(async move {
            shard_runtime::yield_now().await;
            answer.await
        })
    }
}

fn late_store(store: Arc<MemoryStore>) -> Arc<dyn FileStore> {
    Arc::new(Layered(Late(store)))
}

/// Polls a request so many times; whether it has ended.
async fn poll_often<T>(polls: usize, mut request: Pin<&mut impl Future<Output = T>>) -> bool {
    for _ in 0..polls {
        if poll_fn(|cx| Poll::Ready(request.as_mut().poll(cx).is_ready())).await {
            return true;
        }
        shard_runtime::yield_now().await;
    }
    false
}

/// Lets what was left behind come to its end.
async fn settle() {
    shard_runtime::sleep(Duration::from_secs(1)).await;
}

#[test]
fn a_create_leaves_nothing_open_wherever_it_is_dropped() {
    let overwrite = Ask { disposition: CreateDisposition::OVERWRITE, ..Ask::default() };
    for (name, ask) in [("new", Ask::default()), ("there", Ask::open()), ("there", overwrite)] {
        let ended = Cell::new(false);
        let mut polls = 0;
        while !ended.get() {
            run_on(late_store, async |f| {
                f.file("there", b"x").await;
                ended.set(poll_often(polls, pin!(f.create(name, &ask))).await);
                settle().await;
                if ended.get() {
                    // It is the caller's, who has let it go.
                    f.close_all().await;
                }
                f.assert_clean();
            });
            polls += 1;
        }
        assert!(polls > 3, "{name}: it was never dropped half-way");
    }
}

#[test]
fn a_close_comes_to_its_end_wherever_it_is_dropped() {
    for polls in 1..12 {
        run_on(late_store, async |f| {
            let options = CreateOptions::DELETE_ON_CLOSE;
            let open = f.open("f", &Ask { options, ..Ask::default() }).await;
            open.write(0, buf(b"data"), WriteFlags::default()).await.unwrap();
            poll_often(polls, pin!(open.close(true))).await;
            settle().await;
            f.assert_clean();
            assert_eq!(f.status("f", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        });
    }
}

#[test]
fn a_rename_is_done_or_not_wherever_it_is_dropped() {
    let (mut polls, ended, seen) = (0, Cell::new(false), Cell::new((false, false)));
    while !ended.get() {
        run_on(late_store, async |f| {
            f.file("a", b"a").await;
            f.file("b", b"b").await;
            let open = f.open("a", &Ask::open()).await;
            ended.set(poll_often(polls, pin!(super::rename::rename(&open, "b", true))).await);
            settle().await;
            let done = open.path() == "b";
            assert!(done || open.path() == "a", "{}", open.path());
            seen.set(if done { (seen.get().0, true) } else { (true, seen.get().1) });
            // The name leads to the open, and the target of a rename that was not done is there and can be opened.
            let left = f.status("a", &Ask::open()).await;
            assert_eq!(
                left,
                if done { NtStatus::OBJECT_NAME_NOT_FOUND } else { NtStatus::SUCCESS },
                "{polls}"
            );
            let b = f.open("b", &Ask::open()).await;
            assert_eq!(read(&b, 0, 9).await.unwrap(), if done { b"a" } else { b"b" }, "{polls}");
            f.close_all().await;
            f.assert_clean();
        });
        polls += 1;
    }
    assert_eq!(seen.get(), (true, true), "it was dropped before and after");
}

#[test]
fn a_create_that_is_dropped_still_deletes_what_others_have_deleted() {
    let met = Cell::new(false);
    for polls in 1..12 {
        run_on(late_store, async |f| {
            f.file("f", b"x").await;
            // Without the data, so that the CREATE has to wait for the store once it is in.
            let other = f.open("f", &Ask::open().access(AccessMask::DELETE)).await;
            {
                let ask = Ask::open();
                let mut request = pin!(f.create("f", &ask));
                let ended = poll_often(polls, request.as_mut()).await;
                met.set(met.get() || (!ended && f.fs.open_count() == 2));
                // Somebody deletes the file while the CREATE is under way, and is gone before it.
                other.set_info(FileClass::DISPOSITION, &[1], &|| {}).await.unwrap();
                other.close(false).await.unwrap();
            }
            settle().await;
            f.close_all().await;
            f.assert_clean();
            assert_eq!(f.status("f", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        });
    }
    assert!(met.get(), "the CREATE never had its open already");
}
