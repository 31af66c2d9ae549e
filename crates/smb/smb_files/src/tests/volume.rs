//! What clients are told of the volume.

use file_store::{StoreFuture, StoreUsage};
use smb_protocol::fscc::VolumeClass;
use test_layers::{Layered, StoreLayer};

use super::*;

/// A store that says what it is told to of its space.
struct Of(Arc<MemoryStore>, StoreUsage);

impl StoreLayer for Of {
    fn below(&self) -> &dyn FileStore {
        &*self.0
    }

    fn usage(&self) -> StoreFuture<'_, StoreUsage> {
        Box::pin(async { Ok(self.1) })
    }
}

const UNIT: u64 = 65536;

/// Total, free for the user, free: in clusters of 64 KiB.
async fn sizes(fixture: &Fixture) -> [u64; 3] {
    let mut out = Vec::new();
    let root = fixture.open("", &Ask::open()).await;
    root.query_volume(VolumeClass::FULL_SIZE, 4096, &mut out).await.expect("answered");
    [0, 8, 16].map(|at| u64::from_le_bytes(out[at..at + 8].try_into().expect("8 bytes")))
}

#[test]
fn free_space_is_what_can_be_written() {
    let usage =
        StoreUsage { capacity: 1000 * UNIT, used: 100 * UNIT, metadata: 50 * UNIT, ..StoreUsage::default() };
    // What lies below may be thin and have less room than the volume, and less than the volume's own structures may come to need:
    // what counts is what it has behind those.
    for (below, free) in
        [(None, 900), (Some(750), 650), (Some(1000), 900), (Some(2000), 900), (Some(100), 0), (Some(10), 0)]
    {
        let seen = |store| Arc::new(Layered(Of(store, usage))) as Arc<dyn FileStore>;
        run_on(seen, |f| async move {
            if let Some(below) = below {
                f.fs.limit_space(move |from| {
                    assert_eq!(from, 50 * UNIT, "the volume's own structures");
                    below * UNIT
                });
            }
            assert_eq!(sizes(&f).await, [1000, free, free], "{below:?}");
        });
    }
}

#[test]
fn a_label_may_change() {
    run(|f| async move {
        let label = async || {
            let mut out = Vec::new();
            let root = f.open("", &Ask::open()).await;
            root.query_volume(VolumeClass::VOLUME, 4096, &mut out).await.expect("answered");
            out[18..].iter().copied().filter(|byte| *byte != 0).collect::<Vec<u8>>()
        };
        assert_eq!(label().await, b"vms");
        f.fs.set_label("w");
        assert_eq!(label().await, b"w");
    });
}
