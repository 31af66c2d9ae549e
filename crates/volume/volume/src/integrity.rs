//! What lies below the tables: superblocks, length records, and whether each page of the database is as it was written.
//!
//! The database takes its pages for granted while it is in use: a page that is damaged is followed wherever it leads, or
//! ends the thread that reads it. Its checksums are looked at only when it repairs itself after a crash. So here it is
//! told that it must, on a [`Shadow`] of the disk that keeps to itself what is written to it, and is stopped as soon as it
//! has said whether all pages that the last commit reaches are sound.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aligned_buffer::IoBuf;
use block_device::{BlockError, Device, Durability};
use file_store::{StoreError, StoreErrorKind};
use redb::{Database, DatabaseError};
use tokio::sync::oneshot;
use volume_format::{BLOCK, DecodeError, FEATURE_LOG, FEATURE_METADATA_LOG, LengthRecord, Superblock};

use crate::backend::{DeviceBackend, length_in};
use crate::finding::{Finding, Severity};
use crate::room;
use crate::shadow::Shadow;

/// Page cache of the verification, in bytes: each page is read once.
const CACHE_BYTES: usize = 4 << 20;
/// Repairs tell how far they are. Below this they have found damage and want to go back to the commit before, above it
/// all pages are verified and their space is counted.
const VERIFIED: f64 = 0.5;

/// The structures that findings name.
pub(crate) const SUPERBLOCK: &str = "superblock";
pub(crate) const LENGTH: &str = "length record";
pub(crate) const DATABASE: &str = "metadata database";

/// Superblocks and length records of a device.
pub(crate) struct Frame {
    /// The superblock that counts.
    pub(crate) superblock: Option<Superblock>,
    /// The length that counts.
    length: Option<LengthRecord>,
    /// Where copies of the superblock are damaged.
    superblocks: Vec<u64>,
    /// Whether the other length record is damaged.
    one_length: bool,
    /// A copy of the superblock does not have the features that the other has.
    outdated: bool,
    /// A copy of the superblock is damaged, as when the power went while it was written.
    torn: bool,
    /// A newer release wrote a copy of the superblock: what it says.
    newer: Option<String>,
    /// The device could not read something.
    unreadable: Option<BlockError>,
    pub(crate) findings: Vec<Finding>,
}

/// Superblocks and length records, and what is wrong with them. `open` is the superblock that is in use, if any.
pub(crate) async fn frame(device: &Device, open: Option<&Superblock>) -> Frame {
    let mut frame = Frame {
        superblock: open.cloned(),
        length: None,
        superblocks: Vec::new(),
        one_length: false,
        outdated: false,
        torn: false,
        newer: None,
        unreadable: None,
        findings: Vec::new(),
    };
    frame.read_superblocks(device).await;
    if let Some(superblock) = frame.superblock.clone() {
        frame.read_lengths(device, &superblock).await;
    }
    frame
}

impl Frame {
    async fn read_superblocks(&mut self, device: &Device) {
        // What a newer release wrote is not damage.
        let (mut copies, mut newer) = (Vec::new(), Vec::new());
        for (offset, which) in Superblock::OFFSETS.into_iter().zip(["first", "second"]) {
            let block = device.read(offset, IoBuf::new(BLOCK as usize)).await;
            let copy = match block.map(|block| Superblock::decode(&block)) {
                Ok(Ok(copy)) if copy.size > device.size() => Err("is from a larger device".to_owned()),
                Ok(Ok(copy)) => Ok(copy),
                Ok(Err(error)) => {
                    if matches!(error, DecodeError::Unsupported(_)) {
                        newer.push(offset);
                        self.newer.get_or_insert_with(|| error.to_string());
                    } else {
                        self.torn = true;
                    }
                    Err(error.to_string())
                }
                Err(error) => Err(self.cannot_be_read(error)),
            };
            if let Ok(copy) = &copy {
                // The one that asks more of its readers was written later.
                let known = self.superblock.get_or_insert_with(|| copy.clone());
                if same_volume(known, copy) {
                    // The end of the metadata area is the log's as soon as one copy says so.
                    known.metadata_size = known.metadata_size.min(copy.metadata_size);
                    known.features |= copy.features;
                }
            }
            copies.push((offset, which, copy));
        }
        let known = self.superblock.is_some();
        for (offset, which, copy) in copies {
            let detail = match copy {
                Ok(copy) if Some(&copy) == self.superblock.as_ref() => continue,
                Ok(copy) if self.superblock.as_ref().is_some_and(|known| same_volume(known, &copy)) => {
                    self.outdated = true;
                    "is from before an upgrade, or a change of the log, that did not come to its end"
                        .to_owned()
                }
                Ok(_) => "belongs to another volume".to_owned(),
                Err(why) => why,
            };
            let repair = known && !newer.contains(&offset);
            if repair {
                self.superblocks.push(offset);
            }
            self.findings.push(Finding {
                severity: if known { Severity::Error } else { Severity::Critical },
                structure: SUPERBLOCK,
                place: format!("the {which} copy at byte {offset}"),
                detail,
                repair: repair.then(|| "it is written anew from the other copy; nothing is lost".to_owned()),
            });
        }
    }

    fn cannot_be_read(&mut self, error: BlockError) -> String {
        let detail = format!("cannot be read: {error}");
        self.unreadable.get_or_insert(error);
        detail
    }

    async fn read_lengths(&mut self, device: &Device, superblock: &Superblock) {
        let mut wrong = Vec::new();
        // A record may be from before the end of the area became the log's.
        let before = superblock.data_start.saturating_sub(superblock.metadata_start);
        let larger = Superblock { metadata_size: before.max(superblock.metadata_size), ..superblock.clone() };
        let mut older = None;
        for slot in 0..2 {
            let at = superblock.length_start + slot * BLOCK;
            match device.read(at, IoBuf::new(BLOCK as usize)).await {
                Ok(block) => match length_in(&block, slot, superblock) {
                    Ok(record) if self.length.is_none_or(|known| known.number < record.number) => {
                        self.length = Some(record);
                    }
                    Ok(_) => {}
                    Err(why) => {
                        older = length_in(&block, slot, &larger).ok().map(|record| (at, record.number));
                        wrong.push((at, why, block.iter().all(|byte| *byte == 0)));
                    }
                },
                Err(error) => wrong.push((at, self.cannot_be_read(error), false)),
            }
        }
        // It does not count where the other one is newer.
        if let (Some((of, number)), Some(known)) = (older, self.length) {
            wrong.retain(|(at, ..)| *at != of || number > known.number);
        }
        // The first record of a volume has the number 1; until the second is written, its block is empty.
        let young = self.length.is_some_and(|record| record.number == 1);
        wrong.retain(|(_, _, empty)| !(young && *empty));
        self.one_length = !wrong.is_empty() && self.length.is_some();
        let severity = if self.one_length { Severity::Error } else { Severity::Critical };
        let repair = "it is written anew: with the length that the other one says, the database is whole";
        self.findings.extend(wrong.into_iter().map(|(at, detail, _)| Finding {
            severity,
            structure: LENGTH,
            place: format!("the copy at byte {at}"),
            detail,
            repair: self.one_length.then(|| repair.to_owned()),
        }));
    }

    /// The superblock with which the database can be read: its length is known, too. Without that it would be taken
    /// for one that is still to be made.
    ///
    /// # Errors
    /// [`StoreErrorKind::Corrupt`]; the device's error when that is why nothing is known.
    pub(crate) fn openable(self) -> Result<Superblock, StoreError> {
        let damaged = |detail: String| match self.unreadable {
            Some(error) => Err(error.into()),
            None => Err(StoreError::new(StoreErrorKind::Corrupt, detail)),
        };
        // Also when the other copy is of this release: an upgrade has begun, and what it made would be overlooked.
        if let Some(why) = self.newer {
            return Err(StoreError::new(StoreErrorKind::Corrupt, format!("the volume's superblock {why}")));
        }
        match (self.superblock, self.length) {
            (Some(superblock), Some(_)) => Ok(superblock),
            (Some(_), None) => {
                damaged("both records of the length of the metadata database are damaged".into())
            }
            (None, _) => {
                let why = self.findings.last().map(|found| found.detail.as_str()).unwrap_or_default();
                damaged(format!("there is no volume here: the superblock {why}"))
            }
        }
    }

    /// Whether a copy of the superblock is from before an upgrade.
    pub(crate) fn has_outdated(&self) -> bool {
        self.outdated
    }

    /// Whether a copy of the superblock is damaged.
    pub(crate) fn has_torn(&self) -> bool {
        self.torn
    }

    /// What the superblock becomes with a metadata log, where there is none yet and the database leaves room for one.
    pub(crate) fn with_log(&self) -> Option<Superblock> {
        room::with_log(self.readable()?, self.length?.length)
    }

    /// Whether a log may stand before the device: one copy that says so is enough.
    ///
    /// # Errors
    /// The device's, when it is why nothing is known.
    pub(crate) fn expects_log(self) -> Result<bool, StoreError> {
        match (self.superblock, self.unreadable) {
            (Some(superblock), _) if superblock.features & FEATURE_LOG != 0 => Ok(true),
            (_, Some(error)) => Err(error.into()),
            _ => Ok(false),
        }
    }

    /// The superblock, if the database can be read.
    pub(crate) fn readable(&self) -> Option<&Superblock> {
        self.superblock.as_ref().filter(|_| self.length.is_some())
    }

    /// Writes damaged copies anew from the sound ones. Only after the pages were found sound with these: that is what
    /// says that they are the right ones.
    ///
    /// # Errors
    /// When the device fails; what was sound is so still.
    pub(crate) async fn mend(&self, device: &Device) -> Result<(), StoreError> {
        let Some(superblock) = &self.superblock else { return Ok(()) };
        let block = IoBuf::copy_from(&superblock.encode()).freeze();
        for offset in &self.superblocks {
            device.write(*offset, block.clone(), Durability::Durable).await?;
        }
        if let Some(known) = self.length.filter(|_| self.one_length) {
            // Number and place are those of the next change, so the sound record stays where it is.
            let next = LengthRecord { number: known.number.saturating_add(1), ..known };
            let at = superblock.length_start + next.number % 2 * BLOCK;
            device.write(at, IoBuf::copy_from(&next.encode()).freeze(), Durability::Durable).await?;
        }
        Ok(())
    }

    /// Nothing of this is repaired: what the database says would have to vouch for it.
    pub(crate) fn give_up_repairs(&mut self) {
        self.findings.iter_mut().for_each(|finding| finding.repair = None);
    }
}

/// Whether two superblocks are those of one volume, before and after an upgrade.
fn same_volume(one: &Superblock, other: &Superblock) -> bool {
    let logged = |of: &Superblock| of.features & FEATURE_METADATA_LOG != 0;
    // Only the one with the log has a smaller area for the rest.
    let areas = match (logged(one), logged(other)) {
        (true, false) => one.metadata_size < other.metadata_size,
        (false, true) => other.metadata_size < one.metadata_size,
        _ => one.metadata_size == other.metadata_size,
    };
    let rest = |of: &Superblock| Superblock { features: 0, metadata_size: 0, ..of.clone() };
    areas && rest(one) == rest(other)
}

pub(crate) fn pages_finding(superblock: &Superblock, detail: String) -> Finding {
    let start = superblock.metadata_start;
    Finding {
        severity: Severity::Critical,
        structure: DATABASE,
        place: format!("bytes {start}..{}", start.saturating_add(superblock.metadata_size)),
        detail,
        repair: None,
    }
}

/// Verifies the pages of the database on a thread of its own. For a volume that nobody has open.
pub(crate) async fn pages_alone(
    device: Device,
    superblock: Superblock,
) -> Result<Option<Finding>, StoreError> {
    let (sender, receiver) = oneshot::channel();
    let area = superblock.clone();
    let verify = move || drop(sender.send(pages(device, &superblock)));
    let started = shard_runtime::spawn_thread("volume-verify", verify);
    let thread = started.map_err(|error| {
        StoreError::new(StoreErrorKind::Io, "the metadata database cannot be verified").because(error)
    })?;
    // It gave up, on damage that the database's own code does not expect.
    let gave_up = |_| Some(pages_finding(&area, "its pages are damaged: reading them gives up".into()));
    let verdict = receiver.await.unwrap_or_else(gave_up);
    // It has answered or given up, so it is at its end.
    thread.join();
    Ok(verdict)
}

/// Verifies the pages of the database as the last commit left them. Call where blocking is allowed, and between
/// transactions.
pub(crate) fn pages(device: Device, superblock: &Superblock) -> Option<Finding> {
    let verified = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&verified);
    let opened =
        DeviceBackend::open(device, superblock).and_then(Shadow::unclean).map_err(DatabaseError::from);
    let ended = opened.and_then(|shadow| {
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
        builder.create_with_backend(shadow)
    });
    let what = match ended {
        Err(DatabaseError::RepairAborted) if verified.load(Ordering::Relaxed) => return None,
        Err(DatabaseError::RepairAborted) => "a page of it does not have its checksum".to_owned(),
        Err(error) => error.to_string(),
        Ok(_) => "its header says that nothing was ever written".to_owned(),
    };
    Some(pages_finding(superblock, what))
}
