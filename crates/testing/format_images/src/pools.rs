//! A pool in the middle of its life: every resiliency, a copy that missed writes, stripes that are only in the journal, a disk
//! that has left and one that waits.

pub mod structures;

use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Device, Durability, MemoryDisk};
use pool::{
    Checksum, CreateOptions, DiskDescription, DiskId, DiskUse, Guid, MemoryWitness, NewDisk, Node,
    OpenOptions, Pool, Provisioning, Resiliency, Space, SpaceSpec, Surroundings, probe,
};
use shard_runtime::{SeededEntropy, sleep};
use sim::SimClock;

use crate::check::{BLOCK, buffer, content, same, same_bytes};
use crate::{Fallible, Image, ensure};

const DISK: usize = 12 << 20;
const SLAB: u64 = 512 << 10;
/// Time enough to settle, to calculate checksums, to copy what was missed, and to clean.
const LONG: Duration = Duration::from_secs(120);

/// A space of the image.
struct Planned {
    name: &'static str,
    resiliency: Resiliency,
    columns: u8,
    provisioning: Provisioning,
    integrity: bool,
    size: u64,
}

impl Planned {
    const fn new(name: &'static str, resiliency: Resiliency, columns: u8) -> Self {
        let size = SLAB + SLAB / 2;
        Self { name, resiliency, columns, provisioning: Provisioning::Thin, integrity: true, size }
    }

    fn spec(&self) -> SpaceSpec {
        let mut spec = SpaceSpec::thin(self.name, self.resiliency, self.size);
        (spec.columns, spec.interleave) = (self.columns, 8192);
        (spec.provisioning, spec.integrity) = (self.provisioning, self.integrity);
        spec
    }

    fn matches(&self, space: &Space, version: u32) -> Fallible {
        let checksum = match version {
            1 => None,
            2 | 3 => Some(Checksum::Crc32c),
            _ => Some(Checksum::Xxh3),
        };
        let record = space.record();
        let found = (record.resiliency, record.columns, record.provisioning, record.interleave);
        let expected = (self.resiliency, self.columns, self.provisioning, 8192);
        same(&format!("space {}", self.name), &found, &expected)?;
        same(
            &format!("size and checksums of space {}", self.name),
            &(record.size, record.checksum),
            &(self.size, checksum.filter(|_| self.integrity)),
        )
    }
}

/// The spaces of the image of a version.
fn planned(version: u32) -> Vec<Planned> {
    let mut spaces = vec![
        Planned::new("simple", Resiliency::Simple, 2),
        Planned::new("mirror2", Resiliency::Mirror(2), 1),
        Planned { provisioning: Provisioning::Fixed, ..Planned::new("mirror3", Resiliency::Mirror(3), 1) },
    ];
    if version >= 2 {
        spaces.push(Planned { integrity: false, ..Planned::new("plain", Resiliency::Mirror(2), 1) });
        spaces.push(Planned::new("parity1", Resiliency::Parity(1), 3));
        spaces.push(Planned::new("parity2", Resiliency::Parity(2), 5));
    }
    spaces
}

/// What is written to each space, in this order: where, how long, in which round. Whole stripes and parts of them.
const WRITES: &[(u64, u64, u32)] = &[
    (0, 12 * BLOCK, 1),
    (20 * BLOCK, 3 * BLOCK, 1),
    (SLAB, 2 * BLOCK, 1),
    // After a restart.
    (3 * BLOCK, 2 * BLOCK, 2),
    (22 * BLOCK, BLOCK, 2),
    // With a disk away.
    (4 * BLOCK, BLOCK, 3),
    (40 * BLOCK, 6 * BLOCK, 3),
];

fn expected(space: &Planned) -> Vec<u8> {
    let mut bytes = vec![0; space.size as usize];
    for (offset, len, round) in WRITES {
        bytes[*offset as usize..][..*len as usize]
            .copy_from_slice(&content(space.name, *round, *offset, *len));
    }
    bytes
}

async fn write(pool: &Pool, spaces: &[Planned], round: u32) -> Fallible {
    for planned in spaces {
        let space = pool.space(planned.name).ok_or("a space is missing")?;
        for (offset, len, _) in WRITES.iter().filter(|(_, _, of)| *of == round) {
            space.write(*offset, buffer(planned.name, round, *offset, *len), Durability::Durable).await?;
        }
    }
    Ok(())
}

fn surroundings(seed: u64) -> Surroundings {
    let clock = Arc::new(SimClock::default());
    clock.begin();
    Surroundings {
        clock,
        entropy: Arc::new(SeededEntropy::new(seed)),
        witness: Arc::new(MemoryWitness::of(Node { id: Guid([0xab; 16]), name: "golden node".into() })),
    }
}

fn description(number: usize) -> DiskDescription {
    DiskDescription {
        media: (number % 3) as u8,
        enclosure: format!("enclosure {}", number % 2),
        slot: format!("{number}"),
        node: if number == 4 { "beside".into() } else { String::new() },
        model: "model Ä".into(),
        serial: format!("serial{number}"),
    }
}

fn new_disk(number: usize, device: &Device) -> NewDisk {
    NewDisk { device: Arc::clone(device), name: format!("disk{number}"), description: description(number) }
}

/// The image: disks 0 to 5 make a pool, 5 leaves it, 6 joins as a spare, 0 misses the last writes.
///
/// # Errors
/// When a step fails.
pub async fn make() -> Fallible<Image> {
    let spaces = planned(crate::Format::Pool.current());
    let devices: Vec<Device> = (0..7).map(|_| Arc::new(MemoryDisk::new(DISK, 4096)) as Device).collect();
    let surroundings = surroundings(1);
    let disks = (0..6).map(|number| new_disk(number, &devices[number])).collect();
    let options = CreateOptions { name: "golden".into(), slab_size: SLAB, overwrite_foreign: false };
    let pool = Pool::create(disks, options, surroundings.clone()).await?;
    for space in &spaces {
        pool.create_space(space.spec()).await?;
    }
    let gone = pool.create_space(SpaceSpec::thin("gone", Resiliency::Mirror(2), SLAB)).await?;
    gone.write(0, buffer("gone", 1, 0, BLOCK), Durability::Durable).await?;
    write(&pool, &spaces, 1).await?;
    let gone_id = gone.id();
    drop(gone);
    pool.delete_space(gone_id).await?;
    pool.set_disk_use(DiskId(5), DiskUse::Draining).await?;
    sleep(LONG).await;
    pool.remove_disk(DiskId(5)).await?;
    pool.add_disk(new_disk(6, &devices[6]), true, false).await?;
    pool.start_scrub().await?;
    sleep(LONG).await;
    let guid = pool.guid();
    pool.close().await?;
    drop(pool);
    let pool = Pool::open(guid, devices.clone(), OpenOptions::default(), surroundings).await?;
    write(&pool, &spaces, 2).await?;
    pool.disk_lost(DiskId(0), "taken away").await?;
    // A space of one copy has nothing to write to without it.
    write(&pool, &spaces[1..], 3).await?;
    let named: Vec<(String, &Device)> = devices
        .iter()
        .enumerate()
        .filter(|(number, _)| *number != 5)
        .map(|(n, d)| (format!("disk{n}"), d))
        .collect();
    let named: Vec<(&str, &Device)> = named.iter().map(|(name, device)| (name.as_str(), *device)).collect();
    Image::take(&named).await
}

fn check_disks(pool: &Pool) -> Fallible {
    let status = pool.status();
    let mut numbers = Vec::new();
    for disk in &status.disks {
        let (record, number) = (&disk.record, disk.record.id.0 as usize);
        let place = if record.serial == "serial6" { 6 } else { number };
        numbers.push(place);
        let expected = description(place);
        let found = DiskDescription {
            media: record.media,
            enclosure: record.enclosure.clone(),
            slot: record.slot.clone(),
            node: record.node.clone(),
            model: record.model.clone(),
            serial: record.serial.clone(),
        };
        same(&format!("disk {number}"), &format!("{found:?}"), &format!("{expected:?}"))?;
        let usage = if place == 6 { DiskUse::Spare } else { DiskUse::Active };
        same(&format!("use and size of disk {number}"), &(record.usage, record.size), &(usage, DISK as u64))?;
        ensure(disk.online, || format!("disk {number} is not used: {}", disk.why_offline))?;
    }
    same("the pool's disks", &numbers, &vec![0, 1, 2, 3, 4, 6])
}

async fn check_content(pool: &Pool, version: u32, extra: Option<u32>) -> Fallible {
    for (index, planned) in planned(version).iter().enumerate() {
        let space = pool.space(planned.name).ok_or_else(|| format!("space {} is missing", planned.name))?;
        planned.matches(&space, version)?;
        let mut bytes = expected(planned);
        if index == 0 {
            undo_round_3(planned, &mut bytes);
        }
        if let Some(round) = extra {
            bytes[BLOCK as usize..][..4 * BLOCK as usize].copy_from_slice(&content(
                planned.name,
                round,
                BLOCK,
                4 * BLOCK,
            ));
        }
        let read = space.read(0, IoBuf::new(planned.size as usize)).await?;
        same_bytes(&format!("space {}", planned.name), &read, &bytes)?;
    }
    let count = pool.spaces().len();
    same("the number of spaces", &count, &planned(version).len())
}

/// The simple space was not written in the third round.
fn undo_round_3(planned: &Planned, bytes: &mut [u8]) {
    bytes.fill(0);
    for (offset, len, round) in WRITES.iter().filter(|(_, _, round)| *round < 3) {
        bytes[*offset as usize..][..*len as usize].copy_from_slice(&content(
            planned.name,
            *round,
            *offset,
            *len,
        ));
    }
}

async fn no_findings(pool: &Pool, when: &str) -> Fallible {
    let findings = pool.check(true).await;
    ensure(findings.is_empty(), || format!("the check finds {when}: {findings:?}"))
}

/// Opens the pool, compares disks, spaces and content, lets it catch up, has it checked, writes, and opens it again.
///
/// # Errors
/// What is not as it was.
pub async fn check(version: u32, image: &Image) -> Fallible {
    let devices = image.devices().await?;
    let guid = probe(&devices[0]).await?.ok_or("the first disk is not a pool's")?.superblock.pool;
    let surroundings = surroundings(2);
    let open = || Pool::open(guid, devices.clone(), OpenOptions::default(), surroundings.clone());
    let pool = open().await?;
    same("its name", &(pool.name(), pool.slab_size()), &("golden", SLAB))?;
    check_disks(&pool)?;
    let back: Vec<_> = pool.status().disks.into_iter().filter_map(|disk| disk.went_back).collect();
    ensure(back.is_empty(), || format!("a disk seems to have gone back in time: {back:?}"))?;
    let missed: u64 = pool.status().disks.iter().map(|disk| disk.stale_bytes).sum();
    ensure(missed > 0, || "no copy is known to have missed writes".into())?;
    ensure(version < 2 || pool.scrub_status().record.bytes > 0, || "the scrub is forgotten".into())?;
    check_content(&pool, version, None).await?;
    sleep(LONG).await;
    ensure(pool.status().is_fully_redundant(), || format!("copies are missing: {:?}", pool.status()))?;
    no_findings(&pool, "in what an earlier release left").await?;
    for planned in planned(version) {
        let space = pool.space(planned.name).ok_or("a space is missing")?;
        space.write(BLOCK, buffer(planned.name, 9, BLOCK, 4 * BLOCK), Durability::Durable).await?;
    }
    let mut spec = SpaceSpec::thin("more", Resiliency::Mirror(2), SLAB);
    if version < 2 {
        let refused = pool.create_space(spec.clone()).await.map(drop);
        let why = refused.err().map(|error| error.to_string()).unwrap_or_default();
        ensure(why.contains("without checksums"), || {
            format!("checksums on disks without room for them: {why}")
        })?;
        spec.integrity = false;
    }
    let more = pool.create_space(spec).await?;
    more.write(0, buffer("more", 1, 0, BLOCK), Durability::Durable).await?;
    let id = more.id();
    drop(more);
    pool.close().await?;
    drop(pool);
    let pool = open().await?;
    pool.delete_space(id).await?;
    check_content(&pool, version, Some(9)).await?;
    sleep(LONG).await;
    no_findings(&pool, "after it was written to").await?;
    pool.close().await?;
    Ok(())
}
