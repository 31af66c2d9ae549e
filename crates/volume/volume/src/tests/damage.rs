//! Damage below the tables: it is found and named, or what it hits is not in use. Nothing panics, nothing is made worse.

use block_device::Device;
use volume_format::{BLOCK, Superblock};

use super::*;
use crate::integrity::{DATABASE, LENGTH, SUPERBLOCK};
use crate::{CheckOptions, Finding, Repair, Severity, verify};

/// A closed volume with some files, and what their listing says.
async fn used() -> (Device, Vec<String>) {
    let (device, volume) = fresh().await;
    for i in 0..60 {
        let id = volume.create(volume.root(), &format!("file-{i:02}"), file()).await.expect("create");
        write(&open(&volume, id).await, 0, &[i; 100], Durability::Durable).await;
    }
    for i in 0..20 {
        volume.remove(volume.root(), &format!("file-{i:02}")).await.expect("remove");
    }
    let names = listing(&volume).await;
    volume.close().await.expect("close");
    (device, names)
}

async fn listing(volume: &Volume) -> Vec<String> {
    let page = volume.read_directory(volume.root(), DirectoryCursor::default(), 1000).await.expect("list");
    let mut all = Vec::new();
    for entry in page.entries {
        let bytes = read(&open(volume, entry.file).await, 0, 200).await;
        all.push(format!("{} {bytes:?}", entry.name));
    }
    all
}

async fn block(device: &Device, at: u64) -> Vec<u8> {
    device.read(at, IoBuf::new(BLOCK as usize)).await.expect("read").to_vec()
}

async fn put(device: &Device, at: u64, bytes: &[u8]) {
    device.write(at, IoBuf::copy_from(bytes).freeze(), Durability::Durable).await.expect("write");
}

/// A copy that may be opened, which writes.
async fn copy(device: &Device) -> Device {
    let copy: Device = Arc::new(MemoryDisk::new(SIZE, 4096));
    put(&copy, 0, &device.read(0, IoBuf::new(SIZE)).await.expect("read")).await;
    copy
}

async fn look(device: &Device, repair: Repair) -> Vec<Finding> {
    let options = CheckOptions { deep: false, repair };
    verify(Arc::clone(device), environment(), options).await.expect("verify")
}

async fn superblock(device: &Device) -> Superblock {
    Superblock::decode(&block(device, 0).await).expect("superblock")
}

#[test]
fn damage_in_any_block_is_found_or_hits_nothing_in_use() {
    on_shard(async {
        let (device, names) = used().await;
        let layout = superblock(&device).await;
        assert_eq!(look(&device, Repair::No).await, Vec::new());
        let ends = [0, layout.length_start + 2 * BLOCK, layout.metadata_start, layout.data_start];
        // How often the database has grown goes by how its changes came together: the second record may not have been written yet.
        let mut young = false;
        for slot in 0..2 {
            young |= block(&device, layout.length_start + slot * BLOCK).await.iter().all(|byte| *byte == 0);
        }
        let mends = |structure| structure != DATABASE && !(young && structure == LENGTH);
        let (mut found, mut idle) = (BTreeMap::<&str, usize>::new(), 0);
        for at in (ends[0]..ends[3]).step_by(BLOCK as usize) {
            let sound = block(&device, at).await;
            if sound.iter().all(|byte| *byte == 0) {
                continue;
            }
            // Of the database's pages each is damaged in one way.
            let (one, ways) =
                ((at / BLOCK) as usize % 3, if at < layout.metadata_start { 0..3 } else { 0..1 });
            for damage in ways.map(|way| (way + one) % 3) {
                let mut bytes = sound.clone();
                match damage {
                    0 => bytes.iter_mut().for_each(|byte| *byte ^= 0x5a),
                    1 => bytes[at as usize / 4096 % 80] ^= 4,
                    _ => bytes.fill(0),
                }
                put(&device, at, &bytes).await;
                let findings = look(&device, Repair::No).await;
                for finding in &findings {
                    *found.entry(finding.structure).or_default() += 1;
                }
                for finding in &findings {
                    assert_eq!(finding.repair.is_some(), mends(finding.structure), "{finding:?}");
                }
                if findings.iter().all(|finding| mends(finding.structure)) {
                    let other = copy(&device).await;
                    assert_eq!(look(&other, Repair::Apply).await, findings, "block at {at}, damage {damage}");
                    assert_eq!(look(&other, Repair::No).await, Vec::new(), "block at {at}, damage {damage}");
                    let volume = Volume::open(Arc::clone(&other), environment()).await.expect("open");
                    assert_eq!(listing(&volume).await, names, "block at {at}, damage {damage}");
                    assert_eq!(volume.check().await.expect("check"), Vec::new(), "block at {at}");
                    volume.close().await.expect("close");
                    idle += usize::from(findings.is_empty());
                }
                put(&device, at, &sound).await;
            }
        }
        assert_eq!(found.get(SUPERBLOCK), Some(&6), "{found:?}");
        assert!(found.get(LENGTH).is_some_and(|n| (3..=6).contains(n)), "{found:?}");
        assert!(found.get(DATABASE).is_some_and(|n| *n > 8), "{found:?}, {idle} without effect");
        assert_eq!(look(&device, Repair::No).await, Vec::new());
    });
}

#[test]
fn a_database_of_unknown_length_is_not_made_anew() {
    on_shard(async {
        let (device, names) = used().await;
        let at = superblock(&device).await.length_start;
        let sound = [block(&device, at).await, block(&device, at + BLOCK).await];
        for bytes in [[0; BLOCK as usize], [0x99; BLOCK as usize]] {
            put(&device, at, &bytes).await;
            put(&device, at + BLOCK, &bytes).await;
            let findings = look(&device, Repair::No).await;
            assert_eq!(findings.len(), 2, "{findings:?}");
            assert!(
                findings
                    .iter()
                    .all(|f| f.structure == LENGTH && f.severity == Severity::Critical && f.repair.is_none())
            );
            let refused = Volume::open(Arc::clone(&device), environment()).await.map(drop);
            assert_eq!(refused.map_err(|e| e.kind()), Err(StoreErrorKind::Corrupt));
        }
        put(&device, at, &sound[0]).await;
        put(&device, at + BLOCK, &sound[1]).await;
        let volume = Volume::open(device, environment()).await.expect("nothing was written");
        assert_eq!(listing(&volume).await, names);
    });
}

#[test]
fn an_open_volume_finds_damage_below_it() {
    on_shard(async {
        let (device, _) = used().await;
        let layout = superblock(&device).await;
        let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
        // What the background has to do is done: a commit of its own would be undone by what is put back below.
        shard_runtime::sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(volume.check().await.expect("check"), Vec::new());
        let mut named = 0;
        for at in (layout.metadata_start + BLOCK..layout.metadata_start + (1 << 20)).step_by(BLOCK as usize) {
            let sound = block(&device, at).await;
            if sound[0] == 1 {
                put(&device, at, &sound.iter().map(|byte| byte ^ 0xff).collect::<Vec<u8>>()).await;
                named +=
                    volume.check().await.expect("check").iter().filter(|f| f.structure == DATABASE).count();
                put(&device, at, &sound).await;
            }
        }
        assert!(named > 5, "{named}");
        assert_eq!(volume.check().await.expect("check"), Vec::new());
    });
}
