//! Virtual disks that several opens share, as the node serves them (`commands/shared_disk`, `commands/tunnel`; MS-RSVD).
//!
//! ```text
//!   CREATE ─► SharedDisks::open ─► SharedDisk, one for each open ─► close
//!                                     └─ execute: SCSI commands of the open's initiator, on a disk that all opens of the file share
//! ```

use std::pin::Pin;
use std::sync::Arc;

use aligned_buffer::SharedBuf;
use file_store::FileId;
use qos_gate::{Flow, Kind};
use smb_files::FileSystem;
use smb_protocol::{Guid, NtStatus};

/// The future of what is asked of a disk. It stays on the shard that started it.
pub type DiskFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The file that a disk is in, and whose open it is.
#[derive(Clone)]
pub struct DiskFile {
    /// The volume.
    pub files: FileSystem,
    /// The file.
    pub file: FileId,
    /// Its path in the volume, with `/` before each name.
    pub path: String,
    /// The initiator; opens without one send no commands.
    pub initiator: Option<Guid>,
}

/// What a disk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskFacts {
    /// Bytes of a logical sector.
    pub sector: u32,
    /// Bytes of a physical sector.
    pub physical_sector: u32,
    /// Size of the disk in bytes.
    pub size: u64,
    /// Bytes of a block of a dynamic disk; 0 for a fixed one.
    pub block_size: u32,
    /// Bytes of the file.
    pub file_size: u64,
    /// The disk's identity.
    pub disk: Guid,
    /// Whether it can be read and written now.
    pub is_mounted: bool,
}

/// How a SCSI command ended.
#[derive(Clone, Debug)]
pub struct DiskAnswer {
    /// The status byte.
    pub status: u8,
    /// Sense data; empty without any.
    pub sense: Vec<u8>,
    /// Data for the initiator.
    pub data: Option<SharedBuf>,
}

/// A shared disk, as one open has it. Dropped without having been closed, it is closed without anybody waiting for that.
pub trait SharedDisk: Send + Sync {
    /// What the disk is now.
    fn facts(&self) -> DiskFacts;

    /// What a command says that it moves on the medium, to be counted; `None` for one that only asks or reserves.
    fn moves(&self, cdb: &[u8]) -> Option<(Kind, u64)>;

    /// Carries a command out as one of the open's initiator. `data` are all that came with it, and `limit` is what there is room for. Each of
    /// its steps waits for its turn in `flow`. `None`: it was aborted and is not answered.
    ///
    /// # Errors
    /// INVALID_HANDLE without an initiator, INVALID_PARAMETER when the data are not as many as the command writes, or there is no room for
    /// what it reads: it was not carried out then. FILE_CLOSED when the open is closed meanwhile, and FILE_NOT_AVAILABLE when the disk is on its
    /// way to another node, or its volume away: it is to be asked for once more.
    fn execute<'a>(
        &'a self,
        cdb: &'a [u8],
        data: SharedBuf,
        limit: u32,
        flow: Option<Arc<Flow>>,
    ) -> DiskFuture<'a, Result<Option<DiskAnswer>, NtStatus>>;

    /// Gives the disk a larger size in bytes; initiators hear of it.
    ///
    /// # Errors
    /// INVALID_PARAMETER for a size that no disk has or that would make it smaller, and why else that cannot be; FILE_CLOSED and
    /// FILE_NOT_AVAILABLE as for a command.
    fn grow(&self, size: u64) -> DiskFuture<'_, Result<(), NtStatus>>;

    /// Ends the open's use of the disk: what it has under way has ended when this does. The last open of a file ends the disk, and the file is
    /// anybody's then.
    fn close(&self) -> DiskFuture<'_, ()>;

    /// The open goes with its volume, to another node: what it has under way is answered as it ends by itself, or when the disk goes, and after
    /// that its use of the disk ends.
    fn release(&self) -> DiskFuture<'_, ()>;
}

/// Who serves shared disks.
pub trait SharedDisks: Send + Sync + 'static {
    /// Whether there are any.
    fn are_served(&self) -> bool;

    /// Opens the disk in a file, which nobody else has open then; all opens of one file have the same disk.
    ///
    /// # Errors
    /// What CREATE ends with: SHARING_VIOLATION when somebody else has the file open, SVHDX_WRONG_FILE_TYPE or FILE_CORRUPT_ERROR for what is
    /// no disk that can be shared.
    fn open(&self, file: DiskFile) -> DiskFuture<'_, Result<Arc<dyn SharedDisk>, NtStatus>>;
}

/// No shared disks.
pub struct NoSharedDisks;

impl SharedDisks for NoSharedDisks {
    fn are_served(&self) -> bool {
        false
    }

    fn open(&self, _file: DiskFile) -> DiskFuture<'_, Result<Arc<dyn SharedDisk>, NtStatus>> {
        Box::pin(async { Err(NtStatus::INVALID_DEVICE_REQUEST) })
    }
}
