//! Units over volumes in memory.

use control_api::CheckFinding;
use file_store::{Attributes, FileKind, FileStore, MemoryStore, NewFile, StateChange, StoreErrorKind};
use shard_runtime::SystemClock;
use uuid::Uuid;

use super::*;
use crate::backend::Work;
use crate::memory::now;

struct Volume(Arc<MemoryStore>);

impl VolumeHandle for Volume {
    fn store(&self) -> Arc<dyn FileStore> {
        self.0.clone()
    }

    fn shard(&self) -> usize {
        0
    }

    fn guid(&self) -> Uuid {
        Uuid::from_u128(7)
    }

    fn cluster(&self) -> u32 {
        4096
    }

    fn check(&self, _: bool) -> Work<'_, Vec<CheckFinding>> {
        now(Ok(Vec::new()))
    }

    fn close(&self) -> Work<'_, ()> {
        now(Ok(()))
    }
}

#[tokio::test]
async fn the_file_of_a_lun_that_cannot_be_opened_is_kept() {
    let shards = SystemShards::start(Some(1)).expect("a shard");
    let units = SystemUnits::new(shards, Arc::new(SystemClock::new()));
    let store = Arc::new(MemoryStore::new(1 << 30));
    let volume: Arc<dyn VolumeHandle> = Arc::new(Volume(store.clone()));
    let new = NewFile { kind: FileKind::File, attributes: Attributes::default(), security: Vec::new() };
    store.create(store.root(), "l", new).await.expect("made");
    let guid = Uuid::from_u128(9);
    let key = [&guid.as_bytes()[..], b"r"].concat();
    let row = |value| StateChange { table: "scsi".into(), key: key.clone(), value };
    store.state_write(vec![row(Some(b"damaged".to_vec()))]).await.expect("written");
    let lun = LunConfig {
        name: "l".into(),
        guid: Some(guid),
        volume: "v".into(),
        volume_guid: None,
        path: "/l".into(),
        block_size: 512,
        state: LunState::Online,
        reason: String::new(),
        write_cache: false,
        initiator_write_cache: false,
        map: Vec::new(),
    };
    let config = Config { luns: vec![lun], ..Config::default() };
    let served = |there: bool| {
        let one = || ServedLun { name: "l".into(), volume: volume.clone() };
        there.then(one).into_iter().collect::<Vec<_>>()
    };
    let removed = async || store.remove(store.root(), "l").await.map_err(|error| error.kind());
    // Again and again, as long as its volume is there.
    for there in [true, true, false, true] {
        let trouble = units.apply(&config, served(there)).await.expect("applied");
        assert_eq!(trouble.len(), 1, "{trouble:?}");
        if there {
            assert!(trouble[0].1.contains("reservations are damaged"), "{trouble:?}");
            assert_eq!(removed().await, Err(StoreErrorKind::SharingViolation));
        } else {
            assert_eq!(Arc::strong_count(&volume), 1, "nothing of the volume is held any more");
        }
    }
    store.state_write(vec![row(None)]).await.expect("written");
    assert_eq!(units.apply(&config, served(true)).await.expect("applied"), []);
    assert_eq!(removed().await, Err(StoreErrorKind::SharingViolation), "now it is served");
    units.apply(&Config::default(), Vec::new()).await.expect("applied");
    assert_eq!(removed().await, Ok(()));
}
