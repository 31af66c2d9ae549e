//! A unit whose file gets another size.

use file_store::{Access, Attributes, FileKind, FileStore, MemoryStore, NewFile, OpenOptions};

use super::going_on::pending;
use super::*;

#[test]
fn a_size_that_is_no_whole_number_of_blocks_is_told_of_once() {
    run(async {
        let store = Arc::new(MemoryStore::new(1 << 26));
        let new = NewFile { kind: FileKind::File, attributes: Attributes(0), security: Vec::new() };
        let id = store.create(store.root(), "disk", new).await.unwrap();
        let options = || OpenOptions::shared(Access::READ_WRITE);
        let file = store.open(id, options()).await.unwrap();
        file.set_size(BLOCKS * 512).await.unwrap();
        let open = store.open(id, options()).await.unwrap();
        let backing = Arc::new(FileBacking::new(store.clone(), open, false, false));
        let rows = Arc::new(Rows::default());
        let unit = LogicalUnit::open(unit_config(), backing, rows.clone()).await.unwrap();
        let rig = Rig::with(unit, rows, INITIATORS).await;
        let watch = || Box::pin(rig.unit.watch_resize());

        let mut watching = watch();
        assert!(pending(&mut watching).await);
        file.set_size(3 * 512 + 1).await.unwrap();
        assert_eq!(watching.await.unwrap(), 3 * 512 + 1);
        assert_eq!(rig.sense(0, &[0; 6], &[]).await, (6, 0x2a09));
        // The rest of a block is nothing that an initiator sees: neither when the watch begins anew, nor when it changes.
        let mut watching = watch();
        assert!(pending(&mut watching).await);
        file.set_size(3 * 512 + 5).await.unwrap();
        assert!(pending(&mut watching).await);
        rig.good(0, &[0; 6], &[]).await;
        file.set_size(4 * 512).await.unwrap();
        assert_eq!(watching.await.unwrap(), 4 * 512);
        assert_eq!(rig.sense(0, &[0; 6], &[]).await, (6, 0x2a09));
    });
}
