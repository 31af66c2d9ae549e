//! Units over volumes in memory.

mod images;

use std::time::Duration;

use aligned_buffer::IoBuf;
use control_api::{
    Assignment, AuthConfig, Config, GroupConfig, LunFormat, MapConfig, Policy, PolicyKind, TargetConfig,
};
use file_store::{
    Access, Attributes, FileKind, FileStore, MemoryStore, NewFile, StateChange, StoreErrorKind,
};
use observe::IoTally;
use scsi_core::{Nexus, ScsiCommand, ScsiStatus, TaskAttribute, WireLun};
use shard_runtime::SystemClock;
use uuid::Uuid;

use super::*;
use crate::backend::ServedBy;
use crate::files;
use crate::system::test_volume::TestVolume;

pub(super) fn lun(guid: Uuid) -> LunConfig {
    LunConfig { guid: Some(guid), ..LunConfig::new("l", "v", "/l") }
}

/// Puts a configuration in effect, each time a newer one.
fn units_on(shards: Arc<SystemShards>) -> SystemUnits {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let gates = Arc::new(Gates::new(shards.clone(), clock.clone(), Arc::default()));
    SystemUnits::new(shards, clock, gates, vhdx::unlimited(), write_cache::Budget::new(1 << 30))
}

async fn apply(units: &SystemUnits, config: &Config, luns: Vec<ServedLun>) -> Vec<(String, String)> {
    static REVISION: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let revision = REVISION.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let current = Current { revision, config: Arc::new(config.clone()) };
    units.apply_pool(&current, Some(Uuid::from_u128(1)), luns).await.expect("applied")
}

#[tokio::test]
async fn the_file_of_a_lun_that_cannot_be_opened_is_kept() {
    let shards = SystemShards::start(Some(1)).expect("a shard");
    let units = units_on(shards);
    let store = Arc::new(MemoryStore::new(1 << 30));
    let volume: Arc<dyn VolumeHandle> = Arc::new(TestVolume::new(store.clone()));
    let new = NewFile { kind: FileKind::File, attributes: Attributes::default(), security: Vec::new() };
    store.create(store.root(), "l", new).await.expect("made");
    let guid = Uuid::from_u128(9);
    let key = [&guid.as_bytes()[..], b"r"].concat();
    let row = |value| StateChange { table: "scsi".into(), key: key.clone(), value };
    store.state_write(vec![row(Some(b"damaged".to_vec()))]).await.expect("written");
    let lun = lun(guid);
    let config = Config { luns: vec![lun], ..Config::default() };
    let served = |there: bool| {
        vec![ServedLun {
            name: "l".into(),
            volume: there.then(|| volume.clone()),
            comes: false,
            leaves: false,
            served_by: ServedBy::Here,
            groups: vec![PortGroup::optimized(1)],
        }]
    };
    let removed = async || store.remove(store.root(), "l").await.map_err(|error| error.kind());
    // Again and again, as long as its volume is there.
    for there in [true, true, false, true] {
        let trouble = apply(&units, &config, served(there)).await;
        assert_eq!(trouble.len(), 1, "{trouble:?}");
        if there {
            assert!(trouble[0].1.contains("reservations are damaged"), "{trouble:?}");
            assert_eq!(removed().await, Err(StoreErrorKind::SharingViolation));
        } else {
            assert_eq!(Arc::strong_count(&volume), 1, "nothing of the volume is held any more");
        }
    }
    store.state_write(vec![row(None)]).await.expect("written");
    assert_eq!(apply(&units, &config, served(true)).await, []);
    assert_eq!(removed().await, Err(StoreErrorKind::SharingViolation), "now it is served");
    apply(&units, &Config::default(), Vec::new()).await;
    assert_eq!(removed().await, Ok(()));
}

/// A LUN of 2 MiB that everybody sees, with a policy that lets a write of 1 MiB pass and nothing more for two minutes.
fn limited(guid: Uuid) -> Config {
    let (target, group) = ("iqn.2026-01.io.holdfast:t".to_owned(), "all".to_owned());
    let map = MapConfig { target: target.clone(), number: 0, group: group.clone(), read_only: false };
    let policy = Policy {
        guid,
        name: "slow".into(),
        kind: PolicyKind::Dedicated,
        min_iops: None,
        max_iops: Some(1),
        max_bandwidth: None,
    };
    Config {
        luns: vec![LunConfig { map: vec![map], ..lun(guid) }],
        targets: vec![target_named(target)],
        groups: vec![GroupConfig { name: group, initiators: Vec::new(), any: true }],
        qos_policies: vec![policy],
        qos_assignments: vec![Assignment { lun: "l".into(), policy: guid }],
        ..Config::default()
    }
}

fn target_named(name: String) -> TargetConfig {
    TargetConfig { name, alias: String::new(), portal_groups: Vec::new(), auth: AuthConfig::default() }
}

fn write() -> ScsiCommand {
    ScsiCommand {
        cdb: vec![0x2a, 0, 0, 0, 0, 0, 0, 8, 0, 0],
        data_out: IoBuf::new(1 << 20).freeze(),
        data_in_limit: 0,
        attribute: TaskAttribute::Simple,
    }
}

#[tokio::test]
async fn a_lun_that_goes_while_a_limit_holds_its_commands_leaves_nothing_behind() {
    const LONG: Duration = Duration::from_secs(60);
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            shard_runtime::adopt_detached_work();
            let shards = SystemShards::start(Some(1)).expect("a shard");
            let units = units_on(shards);
            let store = Arc::new(MemoryStore::new(1 << 30));
            let volume: Arc<dyn VolumeHandle> = Arc::new(TestVolume::new(store.clone()));
            let new =
                NewFile { kind: FileKind::File, attributes: Attributes::default(), security: Vec::new() };
            store.create(store.root(), "l", new).await.expect("made");
            let file = files::open_shared(&*store, "/l", Access::READ_WRITE, files::KEPT).await;
            file.expect("opened").set_size(2 << 20).await.expect("sized");
            let config = limited(Uuid::from_u128(9));
            let served = vec![ServedLun {
                name: "l".into(),
                volume: Some(volume.clone()),
                comes: false,
                leaves: false,
                served_by: ServedBy::Here,
                groups: vec![PortGroup::optimized(1)],
            }];
            assert_eq!(apply(&units, &config, served).await, []);
            let device = units.device(&config.targets[0].name);
            let nexus = Arc::new(Nexus {
                id: 1,
                initiator: "iqn.2026-01.io.holdfast:i".into(),
                initiator_port: [1; 6],
                target: config.targets[0].name.clone(),
                target_port: 1,
                io: IoTally::default(),
            });
            device.nexus_established(&nexus);
            let lun = WireLun::from_number(0);
            let ready = ScsiCommand { cdb: vec![0; 6], data_out: IoBuf::new(0).freeze(), ..write() };
            let attention = device.execute(&nexus, lun, ready).await.expect("answered");
            assert_eq!(attention.status, ScsiStatus::CheckCondition);
            let first = device.execute(&nexus, lun, write()).await.expect("answered");
            assert_eq!(first.status, ScsiStatus::Good, "{:x?}", first.sense);
            let mut waits = device.execute(&nexus, lun, write());
            assert!(futures_util::poll!(waits.as_mut()).is_pending());
            assert_eq!(units.flows()[0].report.waiting, 1);
            let nothing = Config::default();
            let gone = apply(&units, &nothing, Vec::new());
            let (told, applied) =
                tokio::join!(tokio::time::timeout(LONG, waits), tokio::time::timeout(LONG, gone));
            assert!(told.expect("it ends at once").is_some());
            assert_eq!(applied.expect("nothing is waited for"), []);
            assert_eq!(store.remove(store.root(), "l").await.map_err(|error| error.kind()), Ok(()));
            assert_eq!(Arc::strong_count(&volume), 1, "nothing of the volume is held any more");
        })
        .await;
}

/// What holds up the reading of a unit's state, and how often that was begun.
#[derive(Default)]
struct Hurdle {
    held: tokio::sync::Mutex<()>,
    begun: std::sync::atomic::AtomicUsize,
}

/// A store that does not answer while its state is asked for.
struct Hangs(Arc<MemoryStore>, Arc<Hurdle>);

impl test_layers::StoreLayer for Hangs {
    fn below(&self) -> &dyn FileStore {
        &*self.0
    }

    fn state_get<'a>(
        &'a self,
        table: &'a str,
        key: &'a [u8],
    ) -> file_store::StoreFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            self.1.begun.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let _answers = self.1.held.lock().await;
            self.0.state_get(table, key).await
        })
    }
}

/// Of two pools one does not answer: what lies in the other is served, changed and taken away, by configurations that are newer than
/// the one that the first is still busy with; and what that has to say of who sees what, counts no more.
#[tokio::test]
async fn a_volume_that_does_not_answer_holds_up_its_own_units_only() {
    let shards = SystemShards::start(Some(1)).expect("a shard");
    let units = Arc::new(units_on(shards));
    let made = async |name: &str| {
        let store = Arc::new(MemoryStore::new(1 << 30));
        let new = NewFile { kind: FileKind::File, attributes: Attributes::default(), security: Vec::new() };
        store.create(store.root(), name, new).await.expect("made");
        let file = files::open_shared(&*store, &format!("/{name}"), Access::READ_WRITE, files::KEPT).await;
        file.expect("opened").set_size(1 << 20).await.expect("sized");
        store
    };
    let (slow, quick) = (made("slow").await, made("l").await);
    let hurdle: Arc<Hurdle> = Arc::default();
    let hanging: Arc<dyn VolumeHandle> = Arc::new(TestVolume {
        guid: 8,
        ..TestVolume::new(Arc::new(test_layers::Layered(Hangs(slow, hurdle.clone()))))
    });
    let volume: Arc<dyn VolumeHandle> = Arc::new(TestVolume::new(quick.clone()));
    let target = "iqn.2026-01.io.holdfast:t".to_owned();
    let map = |number| MapConfig { target: target.clone(), number, group: "all".into(), read_only: false };
    let of = |name: &str, guid: u128, number| LunConfig {
        name: name.into(),
        path: format!("/{name}"),
        map: vec![map(number)],
        ..lun(Uuid::from_u128(guid))
    };
    let config = |luns: Vec<LunConfig>| Config {
        luns,
        targets: vec![target_named(target.clone())],
        groups: vec![GroupConfig { name: "all".into(), initiators: Vec::new(), any: true }],
        ..Config::default()
    };
    let current = |revision, luns| Current { revision, config: Arc::new(config(luns)) };
    let served = |name: &str, volume: &Arc<dyn VolumeHandle>| {
        vec![ServedLun {
            name: name.into(),
            volume: Some(volume.clone()),
            comes: false,
            leaves: false,
            served_by: ServedBy::Here,
            groups: vec![PortGroup::optimized(1)],
        }]
    };
    let (one, other) = (Some(Uuid::from_u128(1)), Some(Uuid::from_u128(2)));
    let held = hurdle.held.lock().await;
    let (units_of_one, first) = (units.clone(), current(10_000, vec![of("slow", 1, 0)]));
    let luns = served("slow", &hanging);
    let waits = tokio::spawn(async move { units_of_one.apply_pool(&first, one, luns).await });
    while hurdle.begun.load(std::sync::atomic::Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let both = current(10_001, vec![of("slow", 1, 0), of("l", 2, 1)]);
    assert_eq!(units.apply_pool(&both, other, served("l", &volume)).await.expect("applied"), []);
    let device = units.device(&target);
    let nexus = Arc::new(Nexus {
        id: 1,
        initiator: "iqn.2026-01.io.holdfast:i".into(),
        initiator_port: [1; 6],
        target: target.clone(),
        target_port: 1,
        io: IoTally::default(),
    });
    device.nexus_established(&nexus);
    let shown = async || {
        let cdb = vec![0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
        let report = ScsiCommand { cdb, data_out: IoBuf::new(0).freeze(), data_in_limit: 256, ..write() };
        let answer = device.execute(&nexus, WireLun::from_number(0), report).await.expect("answered");
        let data = answer.data_in.expect("a list");
        data[8..].chunks(8).map(|lun| lun[1]).collect::<Vec<_>>()
    };
    assert_eq!(shown().await, [1], "what is there is shown");
    let without = current(10_002, vec![of("slow", 1, 7)]);
    assert_eq!(units.apply_pool(&without, other, Vec::new()).await.expect("applied"), []);
    assert_eq!(
        quick.remove(quick.root(), "l").await.map_err(|error| error.kind()),
        Ok(()),
        "it is let go of"
    );
    assert!(!waits.is_finished(), "the other one does not answer");
    drop(held);
    assert_eq!(waits.await.expect("ended").expect("applied"), []);
    assert_eq!(shown().await, [7], "by the newest configuration, not by the one that it was begun with");
}

/// A pool goes to another node and comes back: its LUN is there all the time, and initiators are told to come again.
#[tokio::test]
async fn a_lun_whose_pool_moves_is_busy_and_never_gone() {
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            shard_runtime::adopt_detached_work();
            let shards = SystemShards::start(Some(1)).expect("a shard");
            let units = units_on(shards);
            let store = Arc::new(MemoryStore::new(1 << 30));
            let volume: Arc<dyn VolumeHandle> = Arc::new(TestVolume::new(store.clone()));
            let new =
                NewFile { kind: FileKind::File, attributes: Attributes::default(), security: Vec::new() };
            store.create(store.root(), "l", new).await.expect("made");
            let file = files::open_shared(&*store, "/l", Access::READ_WRITE, files::KEPT).await;
            file.expect("opened").set_size(2 << 20).await.expect("sized");
            let config =
                Config { qos_policies: vec![], qos_assignments: vec![], ..limited(Uuid::from_u128(9)) };
            let served = |volume: Option<&Arc<dyn VolumeHandle>>, served_by, leaves| {
                vec![ServedLun {
                    name: "l".into(),
                    volume: volume.cloned(),
                    comes: false,
                    leaves,
                    served_by,
                    groups: vec![PortGroup::optimized(1)],
                }]
            };
            assert_eq!(apply(&units, &config, served(Some(&volume), ServedBy::Here, false)).await, []);
            let device = units.device(&config.targets[0].name);
            let nexus = Arc::new(Nexus {
                id: 1,
                initiator: "iqn.2026-01.io.holdfast:i".into(),
                initiator_port: [1; 6],
                target: config.targets[0].name.clone(),
                target_port: 1,
                io: IoTally::default(),
            });
            device.nexus_established(&nexus);
            let lun = WireLun::from_number(0);
            let ready = || ScsiCommand { cdb: vec![0; 6], data_out: IoBuf::new(0).freeze(), ..write() };
            let told = async || {
                let answer = device.execute(&nexus, lun, ready()).await.expect("answered");
                (answer.status, answer.sense.get(12).copied().unwrap_or_default())
            };
            assert_eq!(told().await, (ScsiStatus::CheckCondition, 0x29));
            assert_eq!(told().await, (ScsiStatus::Good, 0));
            apply(&units, &config, served(None, ServedBy::Nobody, true)).await;
            assert_eq!(Arc::strong_count(&volume), 1, "nothing of the volume is held any more");
            assert_eq!(told().await, (ScsiStatus::Busy, 0));
            apply(&units, &config, Vec::new()).await;
            assert_eq!(
                told().await,
                (ScsiStatus::Busy, 0),
                "another pool is to serve it, which has not been seen to yet"
            );
            apply(&units, &config, served(None, ServedBy::Node(7), false)).await;
            assert_eq!(told().await, (ScsiStatus::Busy, 0), "nobody brings commands there in this test");
            assert_eq!(apply(&units, &config, served(Some(&volume), ServedBy::Here, false)).await, []);
            assert_eq!(told().await, (ScsiStatus::CheckCondition, 0x29), "it is served anew");
            assert_eq!(told().await, (ScsiStatus::Good, 0));
        })
        .await;
}
