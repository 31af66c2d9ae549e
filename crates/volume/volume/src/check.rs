//! Verifying all structures of a volume, and repairing what can be repaired without guessing.
//!
//! ```text
//!   superblock copies ─► length records ─► pages of the database ─► names ─► maps ─► extents ─► clusters ─► (deep) free space, data
//!   └──────────────────── integrity.rs ───────────────────────┘    names.rs maps.rs extents.rs clusters.rs    deep.rs
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
//! Damaged pages of the database are not repaired: what they held is not known, and nothing is written to a database
//! of which it is not known what it would do to the sound ones.
//!
//! It never chooses between two contents, and never makes any up: a size that is not known becomes the end of the
//! space that is there.

mod clusters;
mod counters;
mod database;
mod deep;
mod extents;
mod log;
mod maps;
mod names;
mod rescue;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use block_device::Device;
use file_store::StoreError;
use file_store::names::fold;
use volume_format::Inode;

use crate::database_error::database_error;
use crate::finding::{Finding, Severity};
use crate::folding;
use crate::free::Free;
use crate::integrity;
use crate::session::Session;
use crate::tables::{COUNTERS, ROOT, SNAPSHOT_TABLES, TABLES, make_tables, tables_of};
use crate::volume::{Environment, Volume, nonce};

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
    /// Checks the open volume; findings are sorted by what hurts most.
    ///
    /// # Errors
    /// When the database cannot be read at all.
    pub async fn check(&self) -> Result<Vec<Finding>, StoreError> {
        self.look(false).await
    }

    /// As [`Volume::check`], and reads free space, which must be zero, and all data.
    ///
    /// # Errors
    /// When the database cannot be read at all.
    pub async fn check_deep(&self) -> Result<Vec<Finding>, StoreError> {
        self.look(true).await
    }

    async fn look(&self, deep: bool) -> Result<Vec<Finding>, StoreError> {
        let core = &self.core;
        let (device, superblock) = (Arc::clone(&core.device), core.superblock.clone());
        let mut findings = {
            let features = core.features.lock().await;
            integrity::frame(&device, Some(&core.superblock_with(*features))).await.findings
        };
        let clusters = superblock.clusters(device.size());
        // On the metadata thread, where nothing is half written.
        let examined = core.metadata.change_committed(move |session| {
            if let Some(damage) = integrity::pages(device, &superblock) {
                // What the tables say is worth nothing then, and reading them may lead anywhere.
                return Ok((false, vec![damage]));
            }
            let mut examination = Examination::new(session, clusters, false, 0);
            examination.free_in_memory = true;
            examination.everything()?;
            Ok((true, examination.findings))
        });
        let (sound, found) = examined.await?;
        findings.extend(found);
        if deep && sound {
            findings.extend(deep::open_volume(core).await?);
        }
        findings.sort_by_key(|finding| finding.severity);
        Ok(findings)
    }
}

/// Checks a volume that nobody has open, and repairs it when told; findings are sorted by what hurts most. Without
/// [`Repair::Apply`] nothing is written, not even what opening would recover. Call on a shard.
///
/// Power may go at any point of a repair: each damaged copy is written anew beside a sound one, and all tables change in
/// one transaction. What was not done then is found again.
///
/// # Errors
/// When the device fails, or a repair could not be completed.
pub async fn verify(
    device: Device,
    environment: Environment,
    options: CheckOptions,
) -> Result<Vec<Finding>, StoreError> {
    let mut frame = integrity::frame(&device, None).await;
    let damage = match frame.readable() {
        Some(superblock) => integrity::pages_alone(Arc::clone(&device), superblock.clone()).await?,
        None => None,
    };
    let superblock = frame.readable().filter(|_| damage.is_none()).cloned();
    if superblock.is_none() {
        frame.give_up_repairs();
    } else if options.repair == Repair::Apply {
        frame.mend(&device).await?;
    }
    let mut findings = frame.findings;
    findings.extend(damage);
    if let Some(superblock) = superblock {
        let when = (environment.clock.wall().0, nonce(&environment));
        let (found, layout) =
            database::examine(Arc::clone(&device), superblock.clone(), options.repair, when).await?;
        findings.extend(found);
        if options.deep
            && let Some(layout) = layout
        {
            findings.extend(deep::closed_volume(&device, &superblock, layout, options.repair).await?);
        }
    }
    findings.sort_by_key(|finding| finding.severity);
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
    /// A newer release has written here: what this one does not know is no damage, and nothing is repaired.
    newer: bool,
    /// Files without a name, on their way out.
    orphans: BTreeSet<u64>,
    /// Files and directories that snapshots lead to.
    roots: BTreeSet<u64>,
    maps: maps::Maps,
    /// The tables that were there before the metadata log was replayed, which may have made some.
    tables_before: Option<BTreeSet<String>>,
    /// A volume that no release with snapshots has opened has no tables for them.
    pub(crate) has_snapshots: bool,
    /// Names may still be filed as older releases did it.
    folded_before: bool,
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
            newer: false,
            orphans: BTreeSet::new(),
            roots: BTreeSet::new(),
            maps: maps::Maps::default(),
            tables_before: None,
            has_snapshots: true,
            folded_before: false,
            lost_and_found: None,
        }
    }

    /// All of it, in an order in which each part can rely on those before it.
    pub(crate) fn everything(&mut self) -> Result<(), StoreError> {
        self.tables()?;
        self.inodes()?;
        if self.newer {
            self.findings.iter_mut().for_each(|finding| finding.repair = None);
            return Ok(());
        }
        self.counters()?;
        self.streams()?;
        self.entries()?;
        self.reach()?;
        self.side_tables()?;
        self.maps()?;
        self.links()?;
        self.extents()?;
        self.users()
    }

    /// All tables are there; opening one makes it, so this is looked at first.
    fn tables(&mut self) -> Result<(), StoreError> {
        let there = match self.tables_before.take() {
            Some(there) => there,
            None => tables_of(self.session.txn.raw())?,
        };
        let newer = SNAPSHOT_TABLES.into_iter().filter(|_| self.has_snapshots);
        let all: Vec<&str> = TABLES.into_iter().chain(newer).collect();
        for name in all.into_iter().filter(|name| !there.contains(*name)) {
            let how = Some("it is made anew, and empty: what only it said is lost");
            self.note(Severity::Critical, "table", name, "is missing", how);
        }
        make_tables(self.session.txn.raw())?;
        let counters = self.session.txn.open_table(COUNTERS).map_err(database_error)?;
        self.folded_before = !folding::is_done(&*counters)?;
        Ok(())
    }

    /// What an entry of this name is filed under.
    fn key_of(&self, name: &str) -> String {
        if self.folded_before { folding::before(name) } else { fold(name) }
    }

    /// Whether an entry of this name may be filed under `key`: where names are on their way to their new keys, under either.
    fn is_key(&self, name: &str, key: &str) -> bool {
        fold(name) == key || self.folded_before && folding::before(name) == key
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
            if inode.parent == at {
                names.reverse();
                return format!("file {file} (of a snapshot, {})", names.join("/"));
            }
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
    pub(crate) used: Vec<(crate::tables::StreamKey, crate::extents::Extent)>,
    /// Names of the files among them.
    pub(crate) names: BTreeMap<u64, String>,
}
