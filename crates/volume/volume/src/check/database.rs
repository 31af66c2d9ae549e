//! Examining the tables of a closed volume: in a transaction that a plan or a mere look keeps in memory.

use std::collections::BTreeSet;
use std::io;

use aligned_buffer::IoBuf;
use block_device::Device;
use file_store::{StoreError, StoreErrorKind};
use redb::Database;
use tokio::sync::oneshot;
use volume_format::{FEATURE_SNAPSHOTS, Superblock};

use super::log::Replayed;
use super::{Examination, Layout, Repair};
use crate::backend::{DeviceBackend, run};
use crate::database::{CACHE_BYTES, open_database};
use crate::database_error::database_error;
use crate::finding::Finding;
use crate::integrity::pages_finding;
use crate::metadata_log::{self, Mark};
use crate::recent::Recent;
use crate::replay;
use crate::room::Allowance;
use crate::rows::Transaction;
use crate::session::Session;
use crate::shadow::Shadow;
use crate::space::Space;
use crate::tables::tables_of;

/// Passes of a repair: each follows from what the one before has changed, and there is little that follows.
const PASSES: usize = 8;

fn open_shadow(device: Device, superblock: &Superblock) -> Result<Database, String> {
    let backend = DeviceBackend::open(device, superblock).and_then(Shadow::new);
    let backend = backend.map_err(|error| error.to_string())?;
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder.create_with_backend(backend).map_err(|error| error.to_string())
}

/// Examines the tables of a closed volume, whose pages are sound, on a thread of its own. The second result says where
/// the clusters are.
pub(super) async fn examine(
    device: Device,
    superblock: Superblock,
    repair: Repair,
    (now, nonce): (u64, u64),
) -> Result<(Vec<Finding>, Option<Layout>), StoreError> {
    let (sender, receiver) = oneshot::channel();
    let area = superblock.clone();
    let started = shard_runtime::spawn_thread("volume-check", move || {
        let _ = sender.send(examine_here(device, &superblock, repair, (now, nonce)));
    });
    let thread = started
        .map_err(|error| StoreError::new(StoreErrorKind::Io, "the check cannot be started").because(error))?;
    let examined = receiver.await.unwrap_or_else(|_| {
        // It gave up, on damage that the database's own code does not expect.
        let detail = "its pages are damaged: reading them gives up";
        Ok((vec![pages_finding(&area, detail.to_owned())], None))
    });
    // It has answered or given up, so it is at its end, and nothing is written any more.
    thread.join();
    examined
}

fn examine_here(
    device: Device,
    superblock: &Superblock,
    repair: Repair,
    (now, nonce): (u64, u64),
) -> Result<(Vec<Finding>, Option<Layout>), StoreError> {
    let clusters = superblock.clusters(device.size());
    let opened = match repair {
        Repair::Apply => {
            let opened = open_database(Device::clone(&device), superblock);
            opened.map(|opened| opened.database).map_err(|error| error.to_string())
        }
        Repair::No | Repair::Plan => open_shadow(Device::clone(&device), superblock),
    };
    let database = match opened {
        Ok(database) => database,
        Err(detail) => return Ok((vec![pages_finding(superblock, detail)], None)),
    };
    let mut txn = database.begin_write().map_err(database_error)?;
    txn.set_two_phase_commit(true);
    txn.set_quick_repair(true);
    let has_snapshots = superblock.features & FEATURE_SNAPSHOTS != 0;
    let mut there = Some(tables_of(&txn)?);
    let log = Replayed::of(&txn, &device, superblock)?;
    if log.is_unusable() {
        // What the tables say without it may be long gone.
        txn.abort().map_err(database_error)?;
        return Ok((log.findings, None));
    }
    let mut space = Space::default();
    let recent = Recent::default();
    let txn = Transaction::new(txn, 0);
    let mut session = Session::new(&txn, &mut space, &recent, Allowance::ANY);
    let mut found = log.findings;
    let newer = if repair == Repair::No {
        let mut examination = Examination::new(&mut session, clusters, false, now);
        examination.has_snapshots = has_snapshots;
        examination.tables_before = there.take();
        examination.everything()?;
        found.append(&mut examination.findings);
        examination.newer
    } else {
        let (repaired, newer) = repaired(&mut session, clusters, now, (has_snapshots, there))?;
        found.extend(repaired);
        newer
    };
    if newer {
        found.iter_mut().for_each(|finding| finding.repair = None);
    }
    if repair != Repair::No && log.damaged && !newer {
        // Data may be in clusters whose mapping is lost.
        for run in session.layout(clusters)?.free.runs() {
            session.put_freed(run)?;
        }
    }
    // What is free is not known where a newer release has written.
    let layout = if newer { None } else { Some(session.layout(clusters)?) };
    // A volume of which nothing is repaired is not touched.
    if repair != Repair::No && found.iter().any(|finding| finding.repair.is_some()) {
        if let Some(mark) = log.mark {
            let mark = replay::next(mark, log.sequence, nonce);
            replay::write_mark(txn.raw(), Mark { closed: true, ..mark })?;
        }
        txn.into_raw().commit().map_err(database_error)?;
        if log.damaged && repair == Repair::Apply {
            // Blocks that cannot be read can be written.
            run(metadata_log::prepare(&device, superblock)).map_err(|error| {
                StoreError::new(StoreErrorKind::Io, "the metadata log cannot be written").because(error)
            })?;
        }
    } else {
        txn.into_raw().abort().map_err(database_error)?;
    }
    Ok((found, layout))
}

/// Repairs until nothing is left that can be: a repair can bring to light what was hidden by what it repaired.
fn repaired(
    session: &mut Session<'_>,
    clusters: u64,
    now: u64,
    (has_snapshots, mut there): (bool, Option<BTreeSet<String>>),
) -> Result<(Vec<Finding>, bool), StoreError> {
    let mut found: Vec<Finding> = Vec::new();
    for _ in 0..PASSES {
        let mut examination = Examination::new(session, clusters, true, now);
        examination.has_snapshots = has_snapshots;
        examination.tables_before = there.take();
        examination.everything()?;
        let last = !examination.findings.iter().any(|finding| finding.repair.is_some());
        // What cannot be repaired is found in each pass.
        found.retain(|finding| finding.repair.is_some());
        found.append(&mut examination.findings);
        if last {
            return Ok((found, examination.newer));
        }
    }
    let last = found.last().map(|found| format!("{} {} {}", found.structure, found.place, found.detail));
    let detail = format!("repairs go on bringing new damage to light: {}", last.unwrap_or_default());
    Err(StoreError::new(StoreErrorKind::Corrupt, detail))
}

/// Reads a range of the device on this thread.
pub(super) fn read_here(device: &Device, offset: u64, len: u64) -> io::Result<IoBuf> {
    crate::backend::run(device.read(offset, IoBuf::new(len as usize)))
}
