//! A file of a volume as the base of a cache: read, never written.

use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{
    BlockDevice, BlockError, BlockErrorKind, BlockFuture, Durability, Geometry, UnmapBehavior, check_range,
};
use file_store::{OpenFile, StoreError, StoreErrorKind};

/// The bytes of a file as a disk that refuses writes. Its size is the one that the file had when this was made: whoever opens the file keeps others
/// from changing it.
pub struct FileBase {
    file: Arc<dyn OpenFile>,
    geometry: Geometry,
    size: u64,
}

impl FileBase {
    /// Uses `file` in blocks of `block_size` bytes; what lies behind the last whole one is not part of the disk.
    #[must_use]
    pub fn new(file: Arc<dyn OpenFile>, block_size: u32) -> Self {
        let geometry = Geometry {
            block_size,
            physical_block_size: block_size.max(4096),
            optimal_io_size: 0,
            unmap: UnmapBehavior::Ignored,
            rotational: false,
            read_only: true,
        };
        let size = file.size();
        Self { file, geometry, size: size - size % u64::from(block_size.max(1)) }
    }
}

fn refused<'a>(doing: &'static str, offset: u64, len: u64) -> BlockFuture<'a, ()> {
    Box::pin(std::future::ready(Err(BlockError::new(BlockErrorKind::ReadOnly, doing).at(offset, len))))
}

/// What an error of a file is for a disk.
pub(crate) fn block_error(error: StoreError, doing: &'static str) -> BlockError {
    let kind = match error.kind() {
        StoreErrorKind::NoSpace | StoreErrorKind::QuotaExceeded => BlockErrorKind::NoSpace,
        StoreErrorKind::Corrupt => BlockErrorKind::Media,
        StoreErrorKind::ReadOnly | StoreErrorKind::AccessDenied => BlockErrorKind::ReadOnly,
        StoreErrorKind::Stopped | StoreErrorKind::NotFound => BlockErrorKind::Gone,
        _ => BlockErrorKind::Io,
    };
    BlockError::new(kind, doing).because(error)
}

impl BlockDevice for FileBase {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(async move {
            let len = buf.len();
            check_range(offset, len as u64, self.geometry.block_size, self.size)?;
            let read = self.file.read(offset, buf).await;
            let read = read.map_err(|error| block_error(error, "read base").at(offset, len as u64))?;
            if read.len() != len {
                return Err(
                    BlockError::new(BlockErrorKind::Io, "read base that was cut").at(offset, len as u64)
                );
            }
            Ok(read)
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, _durability: Durability) -> BlockFuture<'_, ()> {
        refused("write base", offset, data.len() as u64)
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        refused("unmap base", offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, _durability: Durability) -> BlockFuture<'_, ()> {
        refused("write zeroes to base", offset, len)
    }
}
