//! What an open of a shared virtual disk has besides that of its file: its initiator, the disk, and the sense data that its reads and writes
//! have left (MS-RSVD 3.2.1.2).

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rsvd_protocol::scsi::Sensed;
use shard_runtime::finish_anyway;
use smb_protocol::{Guid, NtStatus};

use crate::disks::{DiskFile, SharedDisk, SharedDisks};

/// The disk of an open.
#[derive(Default)]
enum Held {
    /// It is not open: it was not yet, or could not be when the open came back after a restart.
    #[default]
    NotYet,
    Open(Arc<dyn SharedDisk>),
    /// The open is closed.
    Closed,
}

/// Sense data by the numbers that clients ask for it by: each new one takes the next number, and the place of what had it before.
#[derive(Default)]
struct Left {
    last: u8,
    all: BTreeMap<u8, Sensed>,
}

/// An open of a shared virtual disk.
pub(crate) struct DiskOpen {
    /// The initiator; one without sends no commands.
    pub(crate) initiator: Option<Guid>,
    /// Locked until whoever opens or closes the disk is done.
    held: Arc<tokio::sync::Mutex<Held>>,
    left: Mutex<Left>,
}

impl DiskOpen {
    /// An open whose disk is to be opened.
    pub(crate) fn new(initiator: Option<Guid>) -> Arc<Self> {
        Arc::new(Self { initiator, held: Arc::default(), left: Mutex::default() })
    }

    /// The disk, opened if it is not yet.
    ///
    /// # Errors
    /// FILE_CLOSED, and those of [`SharedDisks::open`].
    pub(crate) async fn disk(
        &self,
        disks: &dyn SharedDisks,
        file: impl FnOnce() -> DiskFile,
    ) -> Result<Arc<dyn SharedDisk>, NtStatus> {
        let mut held = self.held.lock().await;
        match &*held {
            Held::Open(disk) => return Ok(Arc::clone(disk)),
            Held::Closed => return Err(NtStatus::FILE_CLOSED),
            Held::NotYet => {}
        }
        let disk = disks.open(file()).await?;
        *held = Held::Open(Arc::clone(&disk));
        Ok(disk)
    }

    /// Lets go of the disk, and ends when nothing of the open is under way there, whoever has closed it. To be called before the open's file
    /// is closed: others find it free then, and nothing that they write is written over.
    pub(crate) async fn close(&self) {
        let held = Arc::clone(&self.held);
        // Also when whoever asks goes meanwhile: the next one waits for this.
        let closing = finish_anyway(async move {
            let mut held = held.lock_owned().await;
            if let Held::Open(disk) = std::mem::replace(&mut *held, Held::Closed) {
                disk.close().await;
            }
        });
        closing.await;
    }

    /// Lets go of the disk as it goes away with its volume: what is under way there is answered as it ends.
    pub(crate) async fn release(&self) {
        let held = Arc::clone(&self.held);
        let releasing = finish_anyway(async move {
            let mut held = held.lock_owned().await;
            if let Held::Open(disk) = std::mem::replace(&mut *held, Held::Closed) {
                disk.release().await;
            }
        });
        releasing.await;
    }

    /// Keeps sense data; the status with which a client is told where it is (3.2.5.3).
    pub(crate) fn keep(&self, sensed: Sensed) -> NtStatus {
        let mut left = self.left.lock();
        left.last = left.last.wrapping_add(1);
        let key = left.last;
        left.all.insert(key, sensed);
        NtStatus(NtStatus::SVHDX_ERROR_STORED.0 | u32::from(key))
    }

    /// Sense data that was kept under a number.
    pub(crate) fn kept(&self, key: u8) -> Option<Sensed> {
        self.left.lock().all.get(&key).copied()
    }
}

#[cfg(test)]
mod tests {
    use rsvd_protocol::scsi::SrbStatus;

    use super::*;

    #[test]
    fn numbers_of_sense_data_begin_again_after_255() {
        let open = DiskOpen::new(None);
        assert!(open.kept(1).is_none());
        for number in 1..=300_u32 {
            let status = open.keep(Sensed::of(SrbStatus::ERROR, 2, &number.to_be_bytes()));
            assert_eq!(status, NtStatus(0xc05c_0000 | (number & 0xff)));
        }
        assert_eq!(open.kept(44).unwrap().bytes(), 300_u32.to_be_bytes());
        assert_eq!(open.kept(45).unwrap().bytes(), 45_u32.to_be_bytes());
    }
}
