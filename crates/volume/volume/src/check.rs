//! Verifying all structures of a volume, and repairing what can be repaired without guessing.
//!
//! ```text
//!   superblock copies ─► length records ─► pages of the database ─► names ─► clusters ─► (deep) free space, data
//!        blocks               blocks           redb's checksums      names.rs clusters.rs      deep.rs
//! ```
//! Three ways to run it: [`Volume::check`] on an open volume, [`verify`] on one that nobody has open, and `verify`
//! with a repair. Everything that looks at the database goes through one examination: where it repairs, it changes
//! what it finds at once, in one transaction, so that what comes later sees sound structures. A plan
//! ([`Repair::Plan`]) is a repair of a copy in memory: what it tells is exactly what a repair would do.
//!
//! What a repair does:
//! * Structures that follow from others are made anew: superblock copies, user counts of clusters, the flag that
//!   clusters are shared, records' names, counters.
//! * What has lost its name, or its record, goes to the directory `lost+found`, with all clusters it has.
//! * What leads nowhere is removed: entries without a file, extents beyond the volume.
//! * Where two users claim the same clusters, both keep them, as clones do: neither can harm the other any more.
//!
//! It never chooses between two contents, and never makes any up: a size that is not known becomes the end of the
//! space that is there.

mod clusters;
mod counters;
mod database;
mod deep;
mod names;
mod rescue;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{Device, Durability};
use file_store::StoreError;
use volume_format::{BLOCK, Inode, LengthRecord, Superblock};

use crate::database::Session;
use crate::free::Free;
use crate::tables::ROOT;
use crate::volume::{Environment, Volume, no_volume};

pub(crate) use database::examine_pages;

/// How bad a finding is; the order is worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Data is lost or could be overwritten.
    Critical,
    /// A structure is damaged; another copy of it serves, or nothing depends on it now.
    Error,
    /// Space is not accounted for.
    Warning,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// Which structure.
    pub structure: &'static str,
    /// Where: the file with its path, or the place on the device.
    pub place: String,
    /// What is wrong.
    pub detail: String,
    /// What a repair does about it; `None` when nothing can be done without guessing.
    pub repair: Option<String>,
}

/// What [`verify`] does with what it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Only tells.
    No,
    /// Tells what a repair would do, in the findings; nothing is changed.
    Plan,
    /// Repairs.
    Apply,
}

/// How thoroughly to look, and what to do.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions {
    /// Read free space, which must be zero, and all data, too.
    pub deep: bool,
    /// What to do with findings.
    pub repair: Repair,
}

impl Volume {
    /// Checks the open volume; findings are sorted by what hurts most. `deep` reads free space and data too.
    ///
    /// # Errors
    /// When the device or the database cannot be read at all.
    pub async fn check(&self, deep: bool) -> Result<Vec<Finding>, StoreError> {
        let core = &self.core;
        let (_, mut findings) = superblocks(&core.device).await?;
        findings.extend(lengths(&core.device, &core.superblock).await?);
        let (device, superblock) = (Arc::clone(&core.device), core.superblock.clone());
        let clusters = core.clusters.load(std::sync::atomic::Ordering::Acquire);
        // On the metadata thread, where nothing is half written.
        let examined = core.metadata.change(move |session| {
            let mut findings = examine_pages(device, superblock);
            let mut examination = Examination::new(session, clusters, false, 0);
            examination.free_in_memory = true;
            examination.everything()?;
            findings.append(&mut examination.findings);
            Ok(findings)
        });
        findings.extend(examined.await?);
        if deep {
            findings.extend(deep::open_volume(core).await?);
        }
        findings.sort_by_key(|finding| finding.severity);
        Ok(findings)
    }
}

/// Checks a volume that nobody has open, and repairs it when told; findings are sorted by what hurts most. Without
/// [`Repair::Apply`] nothing is written, not even what opening would recover. Call on a shard.
///
/// # Errors
/// When there is no volume, the device fails, or a repair could not be completed (nothing is half-repaired then,
/// but for the superblock).
pub async fn verify(
    device: Device,
    environment: Environment,
    options: CheckOptions,
) -> Result<Vec<Finding>, StoreError> {
    let (superblock, mut findings) = superblocks(&device).await?;
    let superblock = superblock.ok_or_else(|| no_volume(&findings))?;
    if options.repair == Repair::Apply {
        let block = IoBuf::copy_from(&superblock.encode()).freeze();
        for offset in damaged_copies(&device, &superblock).await? {
            device.write(offset, block.clone(), Durability::Durable).await?;
        }
    }
    findings.extend(lengths(&device, &superblock).await?);
    let clusters = superblock.clusters(device.size());
    let now = environment.clock.wall().0;
    let (found, layout) =
        database::examine(Arc::clone(&device), superblock.clone(), clusters, options.repair, now).await?;
    findings.extend(found);
    if options.deep
        && let Some(layout) = layout
    {
        findings.extend(deep::closed_volume(&device, &superblock, layout, options.repair).await?);
    }
    findings.sort_by_key(|finding| finding.severity);
    Ok(findings)
}

/// The superblock, from the first sound copy, and what is wrong with the others.
pub(crate) async fn superblocks(device: &Device) -> Result<(Option<Superblock>, Vec<Finding>), StoreError> {
    let mut sound = None;
    let mut copies = Vec::new();
    for (offset, which) in Superblock::OFFSETS.into_iter().zip(["first", "second"]) {
        let block = device.read(offset, IoBuf::new(BLOCK as usize)).await;
        let copy = match block.map(|block| Superblock::decode(&block)) {
            Ok(Ok(copy)) if copy.size > device.size() => Err("is of a larger device".to_owned()),
            Ok(Ok(copy)) => Ok(copy),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(format!("cannot be read: {error}")),
        };
        if let Ok(copy) = &copy {
            sound.get_or_insert_with(|| copy.clone());
        }
        copies.push((offset, which, copy));
    }
    let wrong = copies.into_iter().filter_map(|(offset, which, copy)| {
        let why = match copy {
            Ok(copy) if Some(&copy) == sound.as_ref() => return None,
            Ok(_) => "is that of another volume".to_owned(),
            Err(why) => why,
        };
        Some(Finding {
            severity: Severity::Error,
            structure: "superblock",
            place: format!("the {which} copy, at byte {offset}"),
            detail: why,
            repair: sound.is_some().then(|| "it is written anew from the other copy".to_owned()),
        })
    });
    let wrong = wrong.collect();
    Ok((sound, wrong))
}

/// The copies that are not `superblock`: where, and whether they can be read.
async fn damaged_copies(device: &Device, superblock: &Superblock) -> Result<Vec<u64>, StoreError> {
    let mut damaged = Vec::new();
    for offset in Superblock::OFFSETS {
        let same = match device.read(offset, IoBuf::new(BLOCK as usize)).await {
            Ok(block) => Superblock::decode(&block).is_ok_and(|copy| copy == *superblock),
            Err(_) => false,
        };
        if !same {
            damaged.push(offset);
        }
    }
    Ok(damaged)
}

/// Both records of the database's length. One that was never written is zero.
async fn lengths(device: &Device, superblock: &Superblock) -> Result<Vec<Finding>, StoreError> {
    let mut findings = Vec::new();
    for slot in 0..2 {
        let offset = superblock.length_start + slot * BLOCK;
        let block = device.read(offset, IoBuf::new(BLOCK as usize)).await;
        let detail = match block {
            Ok(block) if block.iter().all(|byte| *byte == 0) => continue,
            Ok(block) => match LengthRecord::decode(&block) {
                Ok(record) if record.length <= superblock.metadata_size => continue,
                Ok(record) => {
                    format!("says {} bytes, the area has {}", record.length, superblock.metadata_size)
                }
                Err(error) => error.to_string(),
            },
            Err(error) => format!("cannot be read: {error}"),
        };
        findings.push(Finding {
            severity: Severity::Error,
            structure: "database length",
            place: format!("record {slot}, at byte {offset}"),
            detail,
            repair: Some("it is written anew when the database next grows or shrinks twice".into()),
        });
    }
    Ok(findings)
}

/// A look at everything in the database, inside a transaction.
pub(crate) struct Examination<'a, 'b> {
    session: &'a mut Session<'b>,
    /// Clusters that the device has.
    clusters: u64,
    repair: bool,
    now: u64,
    /// Whether the session's free clusters are those of an open volume.
    pub(crate) free_in_memory: bool,
    pub(crate) findings: Vec<Finding>,
    inodes: BTreeMap<u64, Inode>,
    /// Files without a name, on their way out.
    orphans: BTreeSet<u64>,
    lost_and_found: Option<u64>,
}

impl<'a, 'b> Examination<'a, 'b> {
    pub(crate) fn new(session: &'a mut Session<'b>, clusters: u64, repair: bool, now: u64) -> Self {
        Self {
            session,
            clusters,
            repair,
            now,
            free_in_memory: false,
            findings: Vec::new(),
            inodes: BTreeMap::new(),
            orphans: BTreeSet::new(),
            lost_and_found: None,
        }
    }

    /// All of it, in an order in which each part can rely on those before it.
    pub(crate) fn everything(&mut self) -> Result<(), StoreError> {
        self.inodes()?;
        self.counters()?;
        self.streams()?;
        self.entries()?;
        self.reach()?;
        self.side_tables()?;
        self.extents()?;
        self.users()
    }

    fn note(
        &mut self,
        severity: Severity,
        structure: &'static str,
        place: impl Into<String>,
        detail: impl Into<String>,
        repair: Option<&str>,
    ) {
        self.findings.push(Finding {
            severity,
            structure,
            place: place.into(),
            detail: detail.into(),
            repair: repair.map(str::to_owned),
        });
    }

    /// A file with its path, as far as that is known.
    fn name_of(&self, file: u64) -> String {
        let mut names = Vec::new();
        let mut at = file;
        while at != ROOT
            && names.len() < 100
            && let Some(inode) = self.inodes.get(&at)
        {
            names.push(inode.name.as_str());
            at = inode.parent;
        }
        names.reverse();
        match (at, names.as_slice()) {
            (ROOT, names) => format!("file {file} (/{})", names.join("/")),
            (_, []) => format!("file {file}"),
            (_, names) => format!("file {file} (…/{})", names.join("/")),
        }
    }
}

/// Where the clusters of a closed volume lie, for the deep look.
pub(crate) struct Layout {
    pub(crate) free: Free,
    /// Clusters that the device has.
    pub(crate) clusters: u64,
    /// Extents, with whom they belong to.
    pub(crate) used: Vec<(crate::clusters::StreamKey, crate::extents::Extent)>,
    /// Names of the files among them.
    pub(crate) names: BTreeMap<u64, String>,
}
