//! What is lost when an image is closed is told by whoever serves it next.

use super::*;

/// Flushes, and says what the initiator is told.
pub(super) async fn flush(device: &Arc<dyn ScsiDevice>, nexus: &Arc<Nexus>) -> (ScsiStatus, Vec<u8>) {
    let cdb = vec![0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let command = ScsiCommand { cdb, data_out: IoBuf::new(0).freeze(), ..write() };
    let answer = device.execute(nexus, WireLun::from_number(0), command).await.expect("answered");
    (answer.status, answer.sense.to_vec())
}

#[tokio::test]
async fn a_failed_flush_at_the_closing_of_an_image_is_told_by_the_next_node() {
    run(async {
        let failing: Arc<[AtomicBool; 2]> = Arc::default();
        let layer = Fails(MemoryStore::new(1 << 30), failing.clone());
        let store: Arc<dyn FileStore> = Arc::new(test_layers::Layered(layer));
        let volume: Arc<dyn VolumeHandle> = Arc::new(TestVolume::new(store.clone()));
        image(&store, "l", None).await;
        let mut config = config();
        config.luns[0].write_cache = true;
        let first = units_on(SystemShards::start(Some(1)).expect("a shard"));
        assert_eq!(apply(&first, &config, served(&volume)).await, []);
        let (device, nexus) = initiator(&first, &config).await;
        assert_eq!(put(&device, &nexus, 5, 0x5a).await.0, ScsiStatus::Good);
        failing[0].store(true, Ordering::SeqCst);
        apply(&first, &Config::default(), Vec::new()).await;
        failing[0].store(false, Ordering::SeqCst);
        let next = units_on(SystemShards::start(Some(1)).expect("a shard"));
        assert_eq!(apply(&next, &config, served(&volume)).await, []);
        let (device, nexus) = initiator(&next, &config).await;
        let (status, sense) = flush(&device, &nexus).await;
        assert_eq!((status, sense[2] & 15, sense[12]), (ScsiStatus::CheckCondition, 4, 0x0c));
        assert_eq!(flush(&device, &nexus).await.0, ScsiStatus::Good, "once");
        apply(&next, &Config::default(), Vec::new()).await;
    })
    .await;
}
