//! The parents of images that are LUNs are kept from others also while no child is open.

use super::*;
use crate::images::parentage::Parentage;

#[tokio::test]
async fn a_parent_is_kept_while_its_children_are_no_luns_any_more() {
    run(async {
        let units = units_on(SystemShards::start(Some(1)).expect("a shard"));
        let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new(1 << 30));
        let parentage = Parentage::new(store.clone());
        let volume: Arc<dyn VolumeHandle> =
            Arc::new(TestVolume { parentage: Some(parentage.clone()), ..TestVolume::new(store.clone()) });
        image(&store, "grandparent", None).await;
        image(&store, "parent", Some("grandparent")).await;
        image(&store, "l", Some("parent")).await;
        let mut config = config();
        assert_eq!(apply(&units, &config, served(&volume)).await, []);
        apply(&units, &Config::default(), Vec::new()).await;
        for name in ["parent", "grandparent"] {
            let removed = store.remove(store.root(), name).await.map_err(|error| error.kind());
            assert_eq!(removed, Err(StoreErrorKind::SharingViolation), "{name}");
        }
        // As an image or as bytes, it does not become a disk that somebody writes to.
        config.luns[0].path = "/parent".into();
        for format in [LunFormat::Vhdx, LunFormat::Raw] {
            config.luns[0].format = format;
            let trouble = apply(&units, &config, served(&volume)).await;
            assert!(trouble[0].1.contains("/parent is the parent of /l"), "{trouble:?}");
        }
        store.remove(store.root(), "l").await.expect("removed");
        parentage.look().await.expect("looked");
        assert_eq!(apply(&units, &config, served(&volume)).await, [], "it has no children");
        apply(&units, &Config::default(), Vec::new()).await;
    })
    .await;
}
