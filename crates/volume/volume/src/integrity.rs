//! What lies below the tables: superblocks, length records, and whether each page of the database is as it was written.
//!
//! The database takes its pages for granted while it is in use: a page that is damaged is followed wherever it leads, or
//! ends the thread that reads it. Its checksums are looked at only when it repairs itself after a crash. So here it is
//! told that it must, on a [`View`] of the disk that keeps to itself what is written to it, and is stopped as soon as it
//! has said whether all pages that the last commit reaches are sound.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aligned_buffer::IoBuf;
use block_device::Device;
use file_store::{StoreError, StoreErrorKind};
use parking_lot::Mutex;
use redb::{Database, DatabaseError, StorageBackend};
use volume_format::{BLOCK, LengthRecord, Superblock};

use crate::backend::DeviceBackend;
use crate::check::{Finding, Severity};
use crate::volume::read_superblock;

/// Page cache of the verification, in bytes: each page is read once.
const CACHE_BYTES: usize = 4 << 20;
/// The database's header: which byte says how it was left, and what that says.
const STATE_AT: usize = 9;
const SECOND_SLOT: u8 = 1;
const MUST_REPAIR: u8 = 2;
const TWO_PHASE: u8 = 4;
/// Where the checksums of its two commit slots lie.
const SLOT_CHECKSUMS: [std::ops::Range<usize>; 2] = [176..192, 304..320];
/// Repairs tell how far they are. Below this they have found damage and want to go back to the commit before, above it
/// all pages are verified and their space is counted.
const VERIFIED: f64 = 0.5;

/// The structure that a finding about pages names.
pub(crate) const DATABASE: &str = "metadata database";

fn finding(severity: Severity, structure: &'static str, detail: String) -> Finding {
    Finding { severity, structure, detail }
}

/// Superblocks and length records: the superblock when the database can be read with it, and what is wrong. `open`
/// is the one that is in use, if any.
pub(crate) async fn frame(
    device: &Device,
    open: Option<&Superblock>,
) -> Result<(Option<Superblock>, Vec<Finding>), StoreError> {
    let (superblock, mut findings) = superblocks(device, open).await?;
    let Some(superblock) = superblock else { return Ok((None, findings)) };
    let (known, wrong) = lengths(device, &superblock).await?;
    findings.extend(wrong);
    Ok((known.then_some(superblock), findings))
}

/// Both superblocks; the one that counts, when there is one.
async fn superblocks(
    device: &Device,
    open: Option<&Superblock>,
) -> Result<(Option<Superblock>, Vec<Finding>), StoreError> {
    let (mut known, mut findings) = (open.cloned(), Vec::new());
    for (offset, which) in Superblock::OFFSETS.into_iter().zip(["first", "second"]) {
        let block = device.read(offset, IoBuf::new(BLOCK as usize)).await?;
        let wrong = match (Superblock::decode(&block), &known) {
            (Ok(superblock), _) if superblock.size > device.size() => "is from a larger device".to_owned(),
            (Ok(superblock), Some(other)) if superblock != *other => "belongs to another volume".to_owned(),
            (Ok(superblock), _) => {
                known = Some(superblock);
                continue;
            }
            (Err(error), _) => error.to_string(),
        };
        let detail = format!("the {which} copy at byte {offset} {wrong}");
        findings.push(finding(Severity::Error, "superblock", detail));
    }
    if known.is_none() {
        findings.iter_mut().for_each(|found| found.severity = Severity::Critical);
    }
    Ok((known, findings))
}

/// Both records of the database's length; whether it is known.
async fn lengths(device: &Device, superblock: &Superblock) -> Result<(bool, Vec<Finding>), StoreError> {
    let (mut sound, mut wrong) = (Vec::new(), Vec::new());
    for slot in 0..2 {
        let at = superblock.length_start + slot * BLOCK;
        let block = device.read(at, IoBuf::new(BLOCK as usize)).await?;
        match LengthRecord::decode(&block) {
            Ok(record) => sound.push(record),
            Err(error) => wrong.push((at, error.to_string(), block.iter().all(|byte| *byte == 0))),
        }
    }
    // The first record of a volume has the number 1; until the second is written, its block is empty.
    let young = sound.first().is_some_and(|record| record.number == 1);
    let severity = if sound.is_empty() { Severity::Critical } else { Severity::Error };
    let findings = wrong
        .into_iter()
        .filter(|(_, _, empty)| !(young && *empty))
        .map(|(at, error, _)| finding(severity, "length record", format!("the copy at byte {at} {error}")));
    Ok((!sound.is_empty(), findings.collect()))
}

/// The superblock of a volume whose database's length is known: without it, the database would be taken for one that
/// is still to be made.
pub(crate) async fn openable(device: &Device) -> Result<Superblock, StoreError> {
    let superblock = read_superblock(device).await?;
    match lengths(device, &superblock).await? {
        (true, _) => Ok(superblock),
        (false, _) => {
            let detail = "both records of the length of the metadata database are damaged";
            Err(StoreError::new(StoreErrorKind::Corrupt, detail))
        }
    }
}

/// Verifies the pages of the database on a thread of its own. For a volume that nobody has open.
pub(crate) async fn pages_alone(
    device: Device,
    superblock: Superblock,
) -> Result<Option<Finding>, StoreError> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let failed = |error: io::Error| {
        StoreError::new(StoreErrorKind::Io, "the metadata database cannot be verified").because(error)
    };
    let verify = move || drop(sender.send(pages(device, &superblock)));
    let thread = shard_runtime::spawn_thread("volume-verify", verify).map_err(failed)?;
    let verdict = receiver.await.map_err(|_| failed(io::Error::other("the thread has ended")));
    // It has answered, so it is at its end.
    thread.join();
    verdict
}

/// Verifies the pages of the database as the last commit left them. Call where blocking is allowed, and between
/// transactions.
pub(crate) fn pages(device: Device, superblock: &Superblock) -> Option<Finding> {
    let verified = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&verified);
    let opened = DeviceBackend::open(device, superblock).map(View::new).map_err(DatabaseError::from);
    let ended = opened.and_then(|view| {
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        builder.set_repair_callback(move |session| {
            if session.progress() > VERIFIED {
                flag.store(true, Ordering::Relaxed);
            }
            if session.progress() > 0.0 {
                session.abort();
            }
        });
        builder.create_with_backend(view)
    });
    let what = match ended {
        Err(DatabaseError::RepairAborted) if verified.load(Ordering::Relaxed) => return None,
        Err(DatabaseError::RepairAborted) => "a page of it does not have its checksum".to_owned(),
        Err(error) => error.to_string(),
        Ok(_) => "its header says that nothing was ever written".to_owned(),
    };
    Some(finding(Severity::Critical, DATABASE, what))
}

/// The database's area for reading, with writes kept in memory, and a header that asks for a repair.
#[derive(Debug)]
struct View {
    disk: DeviceBackend,
    length: AtomicU64,
    /// Whole blocks that were written.
    written: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl View {
    fn new(disk: DeviceBackend) -> Self {
        let length = AtomicU64::new(disk.len().unwrap_or(0));
        Self { disk, length, written: Mutex::default() }
    }

    /// A block as the database is to see it.
    fn block(&self, number: u64) -> io::Result<Vec<u8>> {
        if let Some(block) = self.written.lock().get(&number) {
            return Ok(block.clone());
        }
        let mut block = vec![0; BLOCK as usize];
        let (at, end) = (number * BLOCK, self.disk.len()?);
        // What was added to the length is only here, and zero.
        let have = end.saturating_sub(at).min(BLOCK) as usize;
        if have > 0 {
            self.disk.read(at, &mut block[..have])?;
        }
        if number == 0 {
            let state = block[STATE_AT];
            if state & TWO_PHASE != 0 {
                // The header says which commit counts. The other slot may hold one that a crash cut off: without
                // this it would be preferred for being newer, and its missing pages taken for damage.
                let other = usize::from(state & SECOND_SLOT == 0);
                block[SLOT_CHECKSUMS[other].clone()].iter_mut().for_each(|byte| *byte = !*byte);
            }
            block[STATE_AT] = (state | MUST_REPAIR) & !TWO_PHASE;
        }
        Ok(block)
    }

    /// Visits the parts of blocks that a range covers: number, first byte within, place in the range.
    fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
        let end = offset + len as u64;
        (offset / BLOCK..end.div_ceil(BLOCK)).map(move |number| {
            let (from, to) = (offset.max(number * BLOCK), end.min((number + 1) * BLOCK));
            (number, (from % BLOCK) as usize, (from - offset) as usize..(to - offset) as usize)
        })
    }
}

impl StorageBackend for View {
    fn len(&self) -> io::Result<u64> {
        Ok(self.length.load(Ordering::Relaxed))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > self.length.load(Ordering::Relaxed)) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "beyond the end of the database"));
        }
        for (number, at, range) in Self::parts(offset, out.len()) {
            let (block, len) = (self.block(number)?, range.len());
            out[range].copy_from_slice(&block[at..at + len]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.length.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        for (number, at, range) in Self::parts(offset, data.len()) {
            let (mut block, len) = (self.block(number)?, range.len());
            block[at..at + len].copy_from_slice(&data[range]);
            self.written.lock().insert(number, block);
        }
        Ok(())
    }
}
