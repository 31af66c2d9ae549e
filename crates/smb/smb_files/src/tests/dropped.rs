//! Requests whose connection goes: at whichever point they are dropped, nothing stays open, and what was promised to
//! others is kept.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use file_store::{FileId, OpenFile, OpenOptions, StoreFuture};
use test_layers::{FileLayer, Layered, StoreLayer};

use smb_protocol::fsctl::FsctlCode;
use smb_protocol::fsctl::copy::ResumeKey;
use smb_protocol::fsctl::ranges::{TrimRange, ZeroData, trim_request};
use smb_protocol::wire::Wire;

use super::*;
use crate::OpenLookup;

/// A session with no other opens.
struct Nothing;

impl OpenLookup for Nothing {
    fn by_file_id(&self, _: smb_protocol::file::FileId) -> Option<Arc<Open>> {
        None
    }
    fn by_resume_key(&self, _: ResumeKey) -> Option<Arc<Open>> {
        None
    }
}

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
    fn open<'a>(&'a self, file: FileId, options: OpenOptions) -> StoreFuture<'a, Arc<dyn OpenFile>> {
        Box::pin(async move {
            let file = self.0.open(file, options).await?;
            Ok(Arc::new(Layered(LateFile(file))) as Arc<dyn OpenFile>)
        })
    }
}

/// A file of it.
struct LateFile(Arc<dyn OpenFile>);

impl FileLayer for LateFile {
    fn below(&self) -> &dyn OpenFile {
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
                other.set_info(FileClass::DISPOSITION, &[1], &|_| {}).await.unwrap();
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

/// Whoever changes the file next waits for what is under way, and that must have an end soon, however large the range is.
#[test]
fn a_huge_range_is_zeroed_in_pieces_and_no_more_of_them_once_nobody_asks() {
    const GIB: u64 = 1 << 30;
    let end = 3 * GIB;
    let zero = ZeroData { file_offset: 0, beyond_final_zero: end as i64 }.to_bytes();
    let trim = trim_request(&[TrimRange { offset: 0, length: end }]);
    for (code, input) in [(FsctlCode::SET_ZERO_DATA, zero), (FsctlCode::FILE_LEVEL_TRIM, trim)] {
        let (ended, halves) = (Cell::new(false), Cell::new(0));
        let mut polls = 1;
        while !ended.get() {
            run_on(late_store, async |f| {
                let open = f.open("f", &Ask::default()).await;
                open.fsctl(FsctlCode::SET_SPARSE, &[], 0, &Nothing).await.unwrap();
                let marks = [0, GIB + 5, end - 5];
                for mark in marks {
                    open.write(mark, buf(b"mark"), WriteFlags::default()).await.unwrap();
                }
                open.write(end - 1, buf(b"."), WriteFlags::default()).await.unwrap();
                ended.set(poll_often(polls, pin!(open.fsctl(code, &input, 16, &Nothing))).await);
                settle().await;
                let mut kept = Vec::new();
                for mark in marks {
                    kept.push(read(&open, mark, 4).await.unwrap() == b"mark");
                }
                if ended.get() {
                    assert_eq!(kept, [false; 3], "{code:?}");
                }
                // From the beginning on.
                assert!(kept.is_sorted(), "{code:?}: {kept:?}");
                if !kept[0] && kept[2] {
                    halves.set(halves.get() + 1);
                }
                open.close(false).await.unwrap();
                f.assert_clean();
            });
            polls += 1;
        }
        assert!(halves.get() > 0, "{code:?}: all of it in one piece");
    }
}

#[test]
fn an_overwrite_waits_for_what_is_left_of_others_no_longer_than_somebody_asks_for_it() {
    run_on(late_store, async |f| {
        f.file("f", b"x").await;
        let open = f.open("f", &Ask::open()).await;
        let left = open.node.orphans.begin();
        let ask = Ask { disposition: CreateDisposition::OVERWRITE, ..Ask::default() };
        assert!(!poll_often(50, pin!(f.create("f", &ask))).await, "it does not wait");
        settle().await;
        assert_eq!(f.fs.open_count(), 1, "the CREATE waits on, for nobody");
        drop(left);
        assert_eq!(read(&open, 0, 9).await.unwrap(), b"x");
        open.close(false).await.unwrap();
        f.assert_clean();
    });
}
