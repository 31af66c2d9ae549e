//! Writes that never reach the file or image: it stays as it is, others may read it, and what was written is gone with the unit.

use control_api::{LunWriteCache, WriteCacheDiscard, WriteCachePlace};

use smb_protocol::access::AccessMask;
use smb_protocol::security::{SecurityDescriptor, Sid};
use smb_security::{Level, Permission, Token};

use super::losses::flush;
use super::*;

fn caching(place: WriteCachePlace, format: LunFormat) -> Config {
    let mut config = config();
    config.luns[0].format = format;
    config.luns[0].write_cache_in = Some(LunWriteCache {
        place,
        ram_bytes: None,
        overflow: (place != WriteCachePlace::Ram).then(|| "/cache/of".to_owned()),
        overflow_bytes: None,
        discard: WriteCacheDiscard::Restart,
    });
    config
}

async fn get(device: &Arc<dyn ScsiDevice>, nexus: &Arc<Nexus>, sector: u32) -> u8 {
    let mut cdb = vec![0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    cdb[2..6].copy_from_slice(&sector.to_be_bytes());
    let command = ScsiCommand { cdb, data_out: IoBuf::new(0).freeze(), data_in_limit: 512, ..write() };
    let answer = device.execute(nexus, WireLun::from_number(0), command).await.expect("answered");
    assert_eq!(answer.status, ScsiStatus::Good);
    answer.data_in.expect("data")[0]
}

/// Names in the folder of overflow files.
async fn overflow_files(store: &dyn FileStore) -> usize {
    files::list(store, "/cache/of").await.map_or(0, |found| found.len())
}

/// A raw file of 8 MiB, or an image; both with something in sector 5.
async fn base(store: &Arc<dyn FileStore>, format: LunFormat) {
    let data = IoBuf::copy_from(&[0x11; SECTOR as usize]).freeze();
    if format == LunFormat::Raw {
        let raw = file(&**store, "l").await;
        raw.set_size(8 * MIB).await.expect("sized");
        raw.write(5 * SECTOR, data, Durability::Durable).await.expect("written");
    } else {
        image(store, "l", None).await;
        let opened = open(store, "l", Mode::Write).await;
        opened.write(5 * SECTOR, data, Durability::Durable).await.expect("written");
        opened.close().await.expect("closed");
    }
}

async fn bytes(store: &dyn FileStore) -> Vec<u8> {
    let entry = store.lookup(store.root(), "l").await.expect("there");
    // Whoever only reads may, also while it is served.
    let file = store.open(entry.file, OpenOptions::shared(Access::READ)).await.expect("opened");
    file.read(0, IoBuf::new(file.size() as usize)).await.expect("read").to_vec()
}

#[tokio::test]
async fn what_is_written_never_reaches_the_file_and_is_gone_with_the_unit() {
    for place in [WriteCachePlace::Ram, WriteCachePlace::RamOverflow, WriteCachePlace::OwnDisk] {
        for format in [LunFormat::Raw, LunFormat::Vhdx] {
            run(async {
                let units = units_on(SystemShards::start(Some(1)).expect("a shard"));
                let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new(1 << 30));
                let volume: Arc<dyn VolumeHandle> = Arc::new(TestVolume::new(store.clone()));
                base(&store, format).await;
                let before = bytes(&*store).await;
                let config = caching(place, format);
                assert_eq!(apply(&units, &config, served(&volume)).await, []);
                let (device, nexus) = initiator(&units, &config).await;
                assert_eq!(get(&device, &nexus, 5).await, 0x11);
                for sector in [5, 6] {
                    assert_eq!(put(&device, &nexus, sector, 0x5a).await.0, ScsiStatus::Good);
                }
                assert_eq!(flush(&device, &nexus).await.0, ScsiStatus::Good);
                assert_eq!((get(&device, &nexus, 5).await, get(&device, &nexus, 7).await), (0x5a, 0));
                let (name, now) = units.caches().remove(0);
                assert_eq!(now.wrote, ["iqn.2026-01.io.holdfast:i"], "who loses it");
                assert_eq!((name.as_str(), now.absorbed_writes, now.overflow_written_bytes), ("l", 2, 0));
                let has_file = place != WriteCachePlace::Ram;
                assert_eq!(overflow_files(&*store).await, usize::from(has_file));
                if format == LunFormat::Raw {
                    assert!(bytes(&*store).await == before);
                    let refused = somebody(&*store, "l", Access::READ_WRITE).await;
                    assert_eq!(refused, Err(StoreErrorKind::SharingViolation));
                }
                // The node stops, and goes on: the host that has run on is told, and what it sees is the file.
                apply(&units, &Config::default(), Vec::new()).await;
                assert_eq!(Arc::strong_count(&volume), 1, "nothing of the volume is held any more");
                assert_eq!(overflow_files(&*store).await, 0);
                assert!(bytes(&*store).await == before, "{place:?} {format:?}");
                assert_eq!(apply(&units, &config, served(&volume)).await, []);
                let (device, nexus) = initiator(&units, &config).await;
                assert_eq!(get(&device, &nexus, 5).await, 0x11);
                let (status, sense) = flush(&device, &nexus).await;
                assert_eq!((status, sense[2] & 15, sense[12]), (ScsiStatus::CheckCondition, 4, 0x0c));
                assert_eq!(flush(&device, &nexus).await.0, ScsiStatus::Good, "once");
                apply(&units, &Config::default(), Vec::new()).await;
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_volume_that_goes_and_comes_back_has_nothing_of_what_was_written() {
    run(async {
        let units = units_on(SystemShards::start(Some(1)).expect("a shard"));
        let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new(1 << 30));
        let volume: Arc<dyn VolumeHandle> = Arc::new(TestVolume::new(store.clone()));
        base(&store, LunFormat::Raw).await;
        let config = caching(WriteCachePlace::RamOverflow, LunFormat::Raw);
        assert_eq!(apply(&units, &config, served(&volume)).await, []);
        let (device, nexus) = initiator(&units, &config).await;
        assert_eq!(put(&device, &nexus, 5, 0x5a).await.0, ScsiStatus::Good);
        assert_eq!(flush(&device, &nexus).await.0, ScsiStatus::Good);
        let gone = || vec![ServedLun { volume: None, ..served(&volume).remove(0) }];
        apply(&units, &config, gone()).await;
        assert_eq!(Arc::strong_count(&volume), 1, "nothing of the volume is held any more");
        assert_eq!(apply(&units, &config, served(&volume)).await, []);
        let (status, sense) = flush(&device, &nexus).await;
        let power_on = (ScsiStatus::CheckCondition, 6, 0x29);
        assert_eq!((status, sense[2] & 15, sense[12]), power_on, "what it has read is not what there is");
        assert_eq!(get(&device, &nexus, 5).await, 0x11);
        assert_eq!(flush(&device, &nexus).await.0, ScsiStatus::CheckCondition, "it is told");
        assert_eq!(put(&device, &nexus, 5, 0x5b).await.0, ScsiStatus::Good);
        assert_eq!(get(&device, &nexus, 5).await, 0x5b);
        apply(&units, &Config::default(), Vec::new()).await;
    })
    .await;
}

#[tokio::test]
async fn without_memory_that_is_promised_the_unit_is_not_served() {
    run(async {
        let units = units_on(SystemShards::start(Some(1)).expect("a shard"));
        let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new(1 << 30));
        let volume: Arc<dyn VolumeHandle> = Arc::new(TestVolume::new(store.clone()));
        base(&store, LunFormat::Raw).await;
        let mut config = caching(WriteCachePlace::Ram, LunFormat::Raw);
        if let Some(cache) = &mut config.luns[0].write_cache_in {
            cache.ram_bytes = Some(2 << 30);
        }
        let trouble = apply(&units, &config, served(&volume)).await;
        assert_eq!(trouble.len(), 1);
        assert!(trouble[0].1.contains("1.00 GiB for write caches are left"), "{trouble:?}");
        if let Some(cache) = &mut config.luns[0].write_cache_in {
            cache.ram_bytes = Some(1 << 29);
        }
        assert_eq!(apply(&units, &config, served(&volume)).await, []);
        apply(&units, &Config::default(), Vec::new()).await;
    })
    .await;
}

#[tokio::test]
async fn a_file_that_has_the_overflow_files_name_too_keeps_its_content() {
    run(async {
        let units = units_on(SystemShards::start(Some(1)).expect("a shard"));
        let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new(1 << 30));
        let volume: Arc<dyn VolumeHandle> = Arc::new(TestVolume::new(store.clone()));
        base(&store, LunFormat::Raw).await;
        let config = caching(WriteCachePlace::OwnDisk, LunFormat::Raw);
        let path = format!("/cache/of/{}.overflow", config.luns[0].guid.unwrap_or_default());
        let (folder, name) = files::parent(&*store, &path, true).await.expect("made");
        let document = file(&*store, "document").await;
        let data = IoBuf::copy_from(&[0x77; SECTOR as usize]).freeze();
        document.write(0, data, Durability::Durable).await.expect("written");
        let entry = store.lookup(store.root(), "document").await.expect("there");
        store.link(entry.file, (folder, name), false).await.expect("linked");
        assert_eq!(apply(&units, &config, served(&volume)).await, []);
        let (device, nexus) = initiator(&units, &config).await;
        assert_eq!(put(&device, &nexus, 5, 0x5a).await.0, ScsiStatus::Good);
        assert_ne!(store.lookup(folder, name).await.expect("there").file, entry.file);
        apply(&units, &Config::default(), Vec::new()).await;
        let read = document.read(0, IoBuf::new(SECTOR as usize)).await.expect("read");
        assert_eq!((document.size(), &read[..]), (SECTOR, &[0x77; SECTOR as usize][..]));
    })
    .await;
}

#[tokio::test]
async fn who_may_use_its_folder_may_not_read_what_hosts_have_written() {
    run(async {
        let units = units_on(SystemShards::start(Some(1)).expect("a shard"));
        let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new(1 << 30));
        let volume: Arc<dyn VolumeHandle> = Arc::new(TestVolume::new(store.clone()));
        base(&store, LunFormat::Raw).await;
        let everybody = [Permission { sid: Sid::EVERYONE, level: Level::Full }];
        let security = smb_security::folder(&everybody).encode();
        let new = NewFile { kind: FileKind::Directory, attributes: Attributes::default(), security };
        let folder = store.create(store.root(), "cache", new).await.expect("made");
        let user = Token::new(Sid::NETWORK, Sid::NETWORK, &[], false);
        let rights = async |file| {
            let bytes = store.security(file).await.expect("a descriptor");
            smb_security::maximal(&SecurityDescriptor::decode(&bytes).expect("sound"), &user)
        };
        assert_ne!(rights(folder).await, AccessMask::NONE);
        let mut config = caching(WriteCachePlace::OwnDisk, LunFormat::Raw);
        if let Some(cache) = &mut config.luns[0].write_cache_in {
            cache.overflow = Some("/cache".to_owned());
        }
        assert_eq!(apply(&units, &config, served(&volume)).await, []);
        let name = format!("{}.overflow", config.luns[0].guid.unwrap_or_default());
        let file = store.lookup(folder, &name).await.expect("there").file;
        assert_eq!(rights(file).await, AccessMask::NONE);
        apply(&units, &Config::default(), Vec::new()).await;
    })
    .await;
}

#[tokio::test]
async fn overflow_files_of_former_luns_go_when_the_volume_is_opened() {
    run(async {
        let units = units_on(SystemShards::start(Some(1)).expect("a shard"));
        let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new(1 << 30));
        let volume: Arc<dyn VolumeHandle> = Arc::new(TestVolume::new(store.clone()));
        base(&store, LunFormat::Raw).await;
        let mut config = caching(WriteCachePlace::OwnDisk, LunFormat::Raw);
        let others = Uuid::from_u128(0xb0b);
        config.luns.push(LunConfig { guid: Some(others), ..LunConfig::new("m", "w", "/m") });
        let (former, kept) =
            (Uuid::from_u128(7), [format!("{others}.overflow"), "notes.overflow".to_owned()]);
        let (folder, gone) = files::parent(&*store, &format!("/cache/of/{former}.overflow"), true)
            .await
            .map(|(folder, name)| (folder, name.to_owned()))
            .expect("made");
        for name in [&gone, &kept[0], &kept[1]] {
            let new =
                NewFile { kind: FileKind::File, attributes: Attributes::default(), security: Vec::new() };
            store.create(folder, name, new).await.expect("made");
        }
        apply(&units, &config, served(&volume)).await;
        assert!(store.lookup(folder, &gone).await.is_err(), "it is no LUN's");
        for name in &kept {
            assert!(store.lookup(folder, name).await.is_ok(), "{name}");
        }
        assert_eq!(overflow_files(&*store).await, 3, "and its own");
        apply(&units, &Config::default(), Vec::new()).await;
        assert_eq!(overflow_files(&*store).await, 2);
    })
    .await;
}
