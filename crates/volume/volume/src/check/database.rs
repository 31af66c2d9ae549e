//! The pages of the database, and opening it without changing anything.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use aligned_buffer::IoBuf;
use block_device::Device;
use file_store::{StoreError, StoreErrorKind};
use parking_lot::Mutex;
use redb::{Database, StorageBackend};
use tokio::sync::oneshot;
use volume_format::{BLOCK, Superblock};

use super::{Examination, Finding, Layout, Repair, Severity};
use crate::backend::{DeviceBackend, parts};
use crate::database::{CACHE_BYTES, Session, database_error, make_tables};
use crate::load::Space;

/// Passes of a repair: each follows from what the one before has changed, and there is little that follows.
const PASSES: usize = 8;

/// Most bytes of changes held in memory: recovery and a repair's plan write far less.
const HELD_MAX: usize = 256 << 20;

/// The database's storage, with changes kept in memory: what is on the device stays as it is.
struct Shadow {
    below: DeviceBackend,
    state: Mutex<Changed>,
}

struct Changed {
    len: u64,
    /// By number of the block.
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl fmt::Debug for Shadow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shadow of {:?}", self.below)
    }
}

impl Shadow {
    fn new(below: DeviceBackend) -> io::Result<Self> {
        let len = below.len()?;
        Ok(Self { below, state: Mutex::new(Changed { len, blocks: BTreeMap::new() }) })
    }

    /// One block as it is now.
    fn block(&self, state: &Changed, number: u64) -> io::Result<Box<[u8]>> {
        if let Some(block) = state.blocks.get(&number) {
            return Ok(block.clone());
        }
        let mut block = vec![0; BLOCK as usize].into_boxed_slice();
        let below = self.below.len()?;
        let from = number * BLOCK;
        if from < below {
            let there = (below - from).min(BLOCK) as usize;
            self.below.read(from, &mut block[..there])?;
        }
        Ok(block)
    }
}

impl StorageBackend for Shadow {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > state.len) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "beyond the end of the database"));
        }
        // One request where nothing has changed: most reads.
        let last = (offset + out.len() as u64).div_ceil(BLOCK);
        if state.blocks.range(offset / BLOCK..last).next().is_none()
            && offset + out.len() as u64 <= self.below.len()?
        {
            return self.below.read(offset, out);
        }
        for (number, within, at, len) in parts(offset, out.len()) {
            let block = self.block(&state, number)?;
            out[at..at + len].copy_from_slice(&block[within..within + len]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.state.lock().len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        for (number, within, at, len) in parts(offset, data.len()) {
            let mut block = self.block(&state, number)?;
            block[within..within + len].copy_from_slice(&data[at..at + len]);
            state.blocks.insert(number, block);
        }
        if state.blocks.len() * BLOCK as usize > HELD_MAX {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "too much to hold in memory"));
        }
        Ok(())
    }
}

fn open_shadow(device: Device, superblock: &Superblock) -> Result<Database, String> {
    let backend = DeviceBackend::open(device, superblock).and_then(Shadow::new);
    let backend = backend.map_err(|error| error.to_string())?;
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder.create_with_backend(backend).map_err(|error| error.to_string())
}

fn pages_finding(superblock: &Superblock, detail: String) -> Finding {
    let (start, size) = (superblock.metadata_start, superblock.metadata_size);
    Finding {
        severity: Severity::Critical,
        structure: "database",
        place: format!("the metadata area, bytes {start}..{}", start + size),
        detail,
        repair: None,
    }
}

/// Runs `work` on a thread of its own, so that damage on which the database's code gives up ends that thread only.
fn apart<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    let thread = std::thread::Builder::new().name("volume-check".into()).spawn(work);
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err("its pages are damaged in a way that reading them gives up".into()),
        Err(error) => Err(format!("the check cannot be started: {error}")),
    }
}

/// Verifies the checksum of every page in use, without writing. On a thread that may block.
pub(crate) fn examine_pages(device: Device, superblock: Superblock) -> Vec<Finding> {
    let area = superblock.clone();
    let result = apart(move || {
        let mut database = open_shadow(device, &superblock)?;
        match database.check_integrity() {
            Ok(true) => Ok(()),
            Ok(false) => Err("what it says of its free pages does not fit the pages in use; \
                              it makes that anew when it is opened after a crash"
                .to_owned()),
            Err(error) => Err(error.to_string()),
        }
    });
    result.err().map(|detail| pages_finding(&area, detail)).into_iter().collect()
}

/// Examines the database of a closed volume, on a thread of its own. The second result says where the clusters
/// are, if that could be found out.
pub(super) async fn examine(
    device: Device,
    superblock: Superblock,
    clusters: u64,
    repair: Repair,
    now: u64,
) -> Result<(Vec<Finding>, Option<Layout>), StoreError> {
    let (sender, receiver) = oneshot::channel();
    let area = superblock.clone();
    let started = std::thread::Builder::new().name("volume-check".into()).spawn(move || {
        let _ = sender.send(examine_here(device, superblock, clusters, repair, now));
    });
    if let Err(error) = started {
        return Err(StoreError::new(StoreErrorKind::Io, "the check cannot be started").because(error));
    }
    match receiver.await {
        Ok(result) => result,
        // The thread gave up, on damage that the database's own code does not expect.
        Err(_) => {
            let detail = "its pages are damaged in a way that reading them gives up";
            Ok((vec![pages_finding(&area, detail.to_owned())], None))
        }
    }
}

fn examine_here(
    device: Device,
    superblock: Superblock,
    clusters: u64,
    repair: Repair,
    now: u64,
) -> Result<(Vec<Finding>, Option<Layout>), StoreError> {
    let mut findings = examine_pages(device.clone(), superblock.clone());
    let opened = match repair {
        Repair::Apply if findings.is_empty() => {
            let opened = crate::database::open_database(device, &superblock);
            opened.map(|(database, _)| database).map_err(|error| error.to_string())
        }
        // A database with damaged pages is not written to: it is not known what it would do to the sound ones.
        _ => open_shadow(device, &superblock),
    };
    let database = match opened {
        Ok(database) => database,
        Err(detail) => {
            if findings.is_empty() {
                findings.push(pages_finding(&superblock, detail));
            }
            return Ok((findings, None));
        }
    };
    let sound = findings.is_empty();
    let repairing = repair != Repair::No && sound;
    let mut txn = database.begin_write().map_err(database_error)?;
    txn.set_two_phase_commit(true);
    txn.set_quick_repair(true);
    make_tables(&txn)?;
    let mut space = Space::default();
    let mut session = Session { txn: &txn, space: &mut space, changed: false, failed: false };
    let has = clusters;
    let clusters = session.usable(has)?;
    let examined = (|| {
        let mut examination = Examination::new(&mut session, clusters, repairing, now);
        examination.everything()?;
        let mut found = std::mem::take(&mut examination.findings);
        if !repairing {
            return Ok(found);
        }
        // A repair can bring to light what was hidden by what it repaired.
        for _ in 1..PASSES {
            let mut again = Examination::new(&mut session, clusters, true, now);
            again.everything()?;
            let more = std::mem::take(&mut again.findings);
            let last = !more.iter().any(|finding| finding.repair.is_some());
            found.retain(|finding| finding.repair.is_some());
            found.extend(more);
            if last {
                return Ok(found);
            }
        }
        let detail = "repairs go on bringing new damage to light";
        Err(StoreError::new(StoreErrorKind::Corrupt, detail))
    })();
    let found = match examined {
        Ok(found) => found,
        // With damaged pages, anything may be met on the way; that they are damaged is told.
        Err(_) if !sound => return Ok((findings, None)),
        Err(error) => return Err(error),
    };
    findings.extend(found);
    let layout = session.layout(clusters).ok();
    if repairing {
        txn.commit().map_err(database_error)?;
    } else {
        txn.abort().map_err(database_error)?;
    }
    Ok((findings, layout))
}

/// Reads a range of the device on this thread.
pub(super) fn read_here(device: &Device, offset: u64, len: u64) -> io::Result<IoBuf> {
    crate::backend::run(device.read(offset, IoBuf::new(len as usize)))
}
