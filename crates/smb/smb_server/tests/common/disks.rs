//! Shared disks in memory: what of a SCSI disk the server can be seen with, one for each file that is open so.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aligned_buffer::{IoBuf, SharedBuf};
use file_store::FileId;
use qos_gate::{Flow, Kind};
use smb_protocol::{Guid, NtStatus};
use smb_server::{DiskAnswer, DiskFacts, DiskFile, DiskFuture, SharedDisk, SharedDisks};

pub const SECTOR: usize = 512;
const BYTES: usize = 1 << 20;

#[derive(Default)]
struct Disk {
    content: Vec<u8>,
    /// Who alone may write.
    holder: Option<Guid>,
    opens: usize,
}

type Disks = Arc<Mutex<BTreeMap<FileId, Disk>>>;

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Opened,
    Closed,
    Released,
}

/// The disks that are open, and what has happened to them.
#[derive(Default)]
pub struct MemoryDisks {
    disks: Disks,
    /// None can be opened now.
    pub refuses: AtomicBool,
    /// What an open has under way takes its time to end.
    pub lingers: Arc<AtomicBool>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl MemoryDisks {
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn note(events: &Mutex<Vec<Event>>, event: Event) {
    events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
}

struct Opened {
    disks: Disks,
    file: FileId,
    initiator: Option<Guid>,
    lingers: Arc<AtomicBool>,
    events: Arc<Mutex<Vec<Event>>>,
}

fn lock(disks: &Disks) -> MutexGuard<'_, BTreeMap<FileId, Disk>> {
    disks.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedDisks for MemoryDisks {
    fn are_served(&self) -> bool {
        true
    }

    fn open(&self, file: DiskFile) -> DiskFuture<'_, Result<Arc<dyn SharedDisk>, NtStatus>> {
        Box::pin(async move {
            if self.refuses.load(Ordering::SeqCst) {
                return Err(NtStatus::UNEXPECTED_IO_ERROR);
            }
            let mut disks = lock(&self.disks);
            let disk = disks.entry(file.file).or_default();
            disk.opens += 1;
            disk.content.resize(BYTES, 0);
            note(&self.events, Event::Opened);
            let (disks, events, lingers) = (self.disks.clone(), self.events.clone(), self.lingers.clone());
            let opened = Opened { disks, file: file.file, initiator: file.initiator, lingers, events };
            Ok(Arc::new(opened) as Arc<dyn SharedDisk>)
        })
    }
}

impl SharedDisk for Opened {
    fn facts(&self) -> DiskFacts {
        DiskFacts { sector: SECTOR as u32, size: BYTES as u64, is_mounted: true, ..DiskFacts::default() }
    }

    fn moves(&self, _: &[u8]) -> Option<(Kind, u64)> {
        None
    }

    /// READ(16), WRITE(16), and PERSISTENT RESERVE OUT, by which the initiator is the only one to write.
    fn execute<'a>(
        &'a self,
        cdb: &'a [u8],
        data: SharedBuf,
        limit: u32,
        _: Option<Arc<Flow>>,
    ) -> DiskFuture<'a, Result<Option<DiskAnswer>, NtStatus>> {
        Box::pin(async move {
            let mut disks = lock(&self.disks);
            let disk = disks.get_mut(&self.file).ok_or(NtStatus::FILE_CLOSED)?;
            let answer =
                |status: u8, sense: &[u8], data| Ok(Some(DiskAnswer { status, sense: sense.to_vec(), data }));
            let at = usize::from(*cdb.get(9).unwrap_or(&0)) * SECTOR;
            match cdb.first() {
                Some(0x88) => {
                    let read = disk.content.get(at..at + limit as usize);
                    answer(0, &[], read.map(|bytes| IoBuf::copy_from(bytes).freeze()))
                }
                Some(0x8a) if disk.holder.is_some() && disk.holder != self.initiator => {
                    answer(0x18, &[], None)
                }
                Some(0x8a) => match disk.content.get_mut(at..at + data.len()) {
                    Some(place) => {
                        place.copy_from_slice(&data);
                        answer(0, &[], None)
                    }
                    None => answer(2, &[0x70, 0, 5], None),
                },
                Some(0x5f) => {
                    disk.holder = self.initiator;
                    answer(0, &[], None)
                }
                _ => answer(0, &[], None),
            }
        })
    }

    fn grow(&self, _: u64) -> DiskFuture<'_, Result<(), NtStatus>> {
        Box::pin(async { Err(NtStatus::NOT_SUPPORTED) })
    }

    fn release(&self) -> DiskFuture<'_, ()> {
        note(&self.events, Event::Released);
        Box::pin(async {})
    }

    fn close(&self) -> DiskFuture<'_, ()> {
        Box::pin(async move {
            if self.lingers.load(Ordering::SeqCst) {
                shard_runtime::sleep(std::time::Duration::from_millis(200)).await;
            }
            let mut disks = lock(&self.disks);
            if let Some(disk) = disks.get_mut(&self.file) {
                disk.opens -= 1;
                if disk.opens == 0 {
                    disks.remove(&self.file);
                }
            }
            note(&self.events, Event::Closed);
        })
    }
}
