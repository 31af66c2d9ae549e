//! Requests whose connection goes: at whichever point they are dropped, nothing stays open, and what was promised to
//! others is kept.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use file_store::{
    DirectoryCursor, DirectoryEntry, DirectoryPage, FileInfo, InfoChange, NewFile, OpenFile, OpenOptions,
    StateChange, StateRow, StoreFuture, StoreUsage, StreamInfo,
};

use super::*;

/// A store that lets others run before each answer, so that a request can be dropped there.
struct Late(Arc<MemoryStore>);

fn late<'a, T: 'a>(answer: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
    Box::pin(async move {
        shard_runtime::yield_now().await;
        answer.await
    })
}

impl FileStore for Late {
    fn root(&self) -> FileId {
        self.0.root()
    }
    fn lookup<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, DirectoryEntry> {
        late(self.0.lookup(directory, name))
    }
    fn create<'a>(&'a self, directory: FileId, name: &'a str, new: NewFile) -> StoreFuture<'a, FileId> {
        late(self.0.create(directory, name, new))
    }
    fn remove<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, ()> {
        late(self.0.remove(directory, name))
    }
    fn rename<'a>(
        &'a self,
        from: (FileId, &'a str),
        to: (FileId, &'a str),
        replace: bool,
    ) -> StoreFuture<'a, ()> {
        late(self.0.rename(from, to, replace))
    }
    fn read_directory(
        &self,
        directory: FileId,
        cursor: DirectoryCursor,
        limit: usize,
    ) -> StoreFuture<'_, DirectoryPage> {
        late(self.0.read_directory(directory, cursor, limit))
    }
    fn info(&self, file: FileId) -> StoreFuture<'_, FileInfo> {
        late(self.0.info(file))
    }
    fn set_info(&self, file: FileId, change: InfoChange) -> StoreFuture<'_, ()> {
        late(self.0.set_info(file, change))
    }
    fn security(&self, file: FileId) -> StoreFuture<'_, Vec<u8>> {
        late(self.0.security(file))
    }
    fn set_security(&self, file: FileId, descriptor: Vec<u8>) -> StoreFuture<'_, ()> {
        late(self.0.set_security(file, descriptor))
    }
    fn streams(&self, file: FileId) -> StoreFuture<'_, Vec<StreamInfo>> {
        late(self.0.streams(file))
    }
    fn remove_stream<'a>(&'a self, file: FileId, stream: &'a str) -> StoreFuture<'a, ()> {
        late(self.0.remove_stream(file, stream))
    }
    fn open(&self, file: FileId, options: OpenOptions) -> StoreFuture<'_, Arc<dyn OpenFile>> {
        late(self.0.open(file, options))
    }
    fn clone_range(&self, source: (FileId, u64), target: (FileId, u64), len: u64) -> StoreFuture<'_, ()> {
        late(self.0.clone_range(source, target, len))
    }
    fn usage(&self) -> StoreFuture<'_, StoreUsage> {
        late(self.0.usage())
    }
    fn state_get<'a>(&'a self, table: &'a str, key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>> {
        late(self.0.state_get(table, key))
    }
    fn state_scan<'a>(&'a self, table: &'a str, prefix: &'a [u8]) -> StoreFuture<'a, Vec<StateRow>> {
        late(self.0.state_scan(table, prefix))
    }
    fn state_write(&self, changes: Vec<StateChange>) -> StoreFuture<'_, ()> {
        late(self.0.state_write(changes))
    }
}

fn late_store(store: Arc<MemoryStore>) -> Arc<dyn FileStore> {
    Arc::new(Late(store))
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
