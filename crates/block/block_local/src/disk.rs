//! One open file or device as a block device.
//!
//! Cost per read or write: one request to the engine, one boxed future, no copy (one, of the whole buffer,
//! when its memory is not aligned as the device asks).

use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{
    BlockDevice, BlockError, BlockErrorKind, BlockFuture, Durability, Geometry, Reservations, UnmapBehavior,
    check_range, join,
};
use io_engine::{IoOp, IoRequest, IoTarget, Zeroing, submit};

/// Zeros are written in pieces of this many bytes where the file system cannot zero by itself.
const ZERO_CHUNK: usize = 1 << 20;

/// What a disk is, as far as [`LocalDisk::over`] must be told.
#[derive(Clone, Debug)]
pub struct LocalGeometry {
    /// Size in bytes, a multiple of `block_size`.
    pub size: u64,
    /// Unit of transfer in bytes: 512 or 4096.
    pub block_size: u32,
    /// Physical block size in bytes.
    pub physical_block_size: u32,
    /// Whether it spins.
    pub rotational: bool,
    /// Whether writes are refused.
    pub read_only: bool,
}

/// An open file or device.
pub struct LocalDisk {
    name: Box<str>,
    target: IoTarget,
    geometry: Geometry,
    size: AtomicU64,
    /// A write or flush that promised durability has failed: what the device still holds of earlier writes is
    /// unknown, so it promises nothing more (fail stop, W4).
    poisoned: AtomicBool,
    /// What the file system cannot do: zeros are written instead.
    zeroing: Zeroing,
    /// It keeps persistent reservations.
    reserves: bool,
    /// Other machines may reach it.
    reached: bool,
    /// Of a file: the numbers of its file system and of itself there.
    file: Option<(u64, u64)>,
}

impl LocalDisk {
    /// A disk over an open target. `name` is for messages.
    #[must_use]
    pub fn over(name: &str, target: IoTarget, local: &LocalGeometry) -> Self {
        let geometry = Geometry {
            block_size: local.block_size,
            physical_block_size: local.physical_block_size.max(local.block_size),
            optimal_io_size: 0,
            unmap: UnmapBehavior::Zeroes,
            rotational: local.rotational,
            read_only: local.read_only,
        };
        Self {
            name: name.into(),
            target,
            geometry,
            size: AtomicU64::new(local.size),
            poisoned: AtomicBool::new(false),
            zeroing: Zeroing::default(),
            reserves: false,
            reached: true,
            file: None,
        }
    }

    /// That it is this file, by the numbers of its file system and of itself there.
    pub(crate) fn of_file(self, file: Option<(u64, u64)>) -> Self {
        Self { file, ..self }
    }

    /// Whether another file is at the path of this one by now. `false` of devices, where nothing is at the path, and where it cannot be told.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        let there = std::fs::metadata(&*self.name).ok().filter(|there| there.is_file());
        self.file.zip(there).is_some_and(|(file, there)| file != (there.dev(), there.ino()))
    }

    /// One that keeps persistent reservations, or not.
    pub(crate) fn reserving(self, reserves: bool) -> Self {
        Self { reserves, ..self }
    }

    /// One that other machines may reach, or not.
    pub(crate) fn reached(self, reached: bool) -> Self {
        Self { reached, ..self }
    }

    /// Whether other machines may reach it, too: a block device that is not made of this machine's memory or files, a file in a file system
    /// of a network or cluster. `true` where it cannot be told.
    #[must_use]
    pub fn may_be_shared(&self) -> bool {
        self.reached
    }

    pub(crate) fn target(&self) -> &IoTarget {
        &self.target
    }

    /// The name given at the opening: a path.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        check_range(offset, len, self.geometry.block_size, self.size()).map_err(|error| error.on(&self.name))
    }

    fn check_write(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.check(offset, len)?;
        if self.geometry.read_only {
            return Err(BlockError::new(BlockErrorKind::ReadOnly, "write").on(&self.name).at(offset, len));
        }
        self.check_poison("write")
    }

    fn check_poison(&self, doing: &'static str) -> Result<(), BlockError> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(BlockError::new(BlockErrorKind::Poisoned, doing).on(&self.name));
        }
        Ok(())
    }

    fn error(&self, error: io::Error, doing: &'static str, offset: u64, len: u64) -> BlockError {
        BlockError::from_io(error, doing).on(&self.name).at(offset, len)
    }

    async fn request(&self, offset: u64, op: IoOp) -> (io::Result<usize>, IoOp) {
        let end = submit(IoRequest { target: self.target.clone(), offset, op }).await;
        (end.result, end.op)
    }

    async fn write_at(&self, offset: u64, data: SharedBuf, durability: Durability) -> Result<(), BlockError> {
        let len = data.len() as u64;
        let data = if data.is_aligned_to(self.geometry.block_size as usize) {
            data
        } else {
            IoBuf::copy_from(&data).freeze()
        };
        let durable = durability == Durability::Durable;
        self.write_op(offset, len, IoOp::Write { data, durable }, durable).await
    }

    async fn write_op(&self, offset: u64, len: u64, op: IoOp, durable: bool) -> Result<(), BlockError> {
        let (result, _) = self.request(offset, op).await;
        result.map(drop).map_err(|error| {
            let error = self.error(error, "write", offset, len);
            // A failed write leaves only its own blocks undecided, unless it promised durability: then what
            // the device did with its cache is unknown. A file system without space never got that far, nor one whose reservation is
            // another's.
            if durable && !matches!(error.kind(), BlockErrorKind::NoSpace | BlockErrorKind::Fenced) {
                self.poisoned.store(true, Ordering::Release);
            }
            error
        })
    }

    async fn zero(&self, offset: u64, len: u64, punch: bool) -> Result<(), BlockError> {
        if len == 0 {
            return Ok(());
        }
        let zeroed = self.zeroing.zero(&self.target, offset, len, punch).await;
        if zeroed.map_err(|error| self.error(error, "zero", offset, len))? {
            return Ok(());
        }
        let zeros = IoBuf::zeroed(ZERO_CHUNK.min(usize::try_from(len).unwrap_or(ZERO_CHUNK))).freeze();
        let mut done = 0;
        while done < len {
            let step = (len - done).min(zeros.len() as u64);
            self.write_at(offset + done, zeros.slice(0..step as usize), Durability::Volatile).await?;
            done += step;
        }
        Ok(())
    }

    async fn sync(&self) -> Result<(), BlockError> {
        self.check_poison("flush")?;
        let (result, _) = self.request(0, IoOp::Sync).await;
        if let Err(error) = result {
            let error = BlockError::from_io(error, "flush").on(&self.name);
            // What a reservation forbids was not begun: nothing is lost by it.
            if error.kind() != BlockErrorKind::Fenced {
                self.poisoned.store(true, Ordering::Release);
            }
            return Err(error);
        }
        // The system tells of a lost write once: a flush beside the one that was told must not succeed.
        self.check_poison("flush")
    }
}

impl BlockDevice for LocalDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(async move {
            let len = buf.len();
            self.check(offset, len as u64)?;
            if len == 0 {
                return Ok(buf);
            }
            let (own, lent) = if buf.is_aligned_to(self.geometry.block_size as usize) {
                (None, buf)
            } else {
                (Some(buf), IoBuf::new(len))
            };
            let (result, op) = self.request(offset, IoOp::Read(lent)).await;
            let got = result.map_err(|error| self.error(error, "read", offset, len as u64))?;
            // Inside the known size a short read means that the file was cut behind our back: never invent data.
            if got < len {
                return Err(BlockError::new(BlockErrorKind::Gone, "read past a cut end")
                    .on(&self.name)
                    .at(offset, len as u64));
            }
            let IoOp::Read(lent) = op else {
                return Err(BlockError::new(BlockErrorKind::Io, "get the buffer back").on(&self.name));
            };
            match own {
                Some(mut own) => {
                    own.copy_from_slice(&lent);
                    Ok(own)
                }
                None => Ok(lent),
            }
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.check_write(offset, data.len() as u64)?;
            if data.is_empty() {
                return Ok(());
            }
            self.write_at(offset, data, durability).await
        })
    }

    fn write_vectored(
        &self,
        offset: u64,
        parts: Vec<SharedBuf>,
        durability: Durability,
    ) -> BlockFuture<'_, ()> {
        let block = self.geometry.block_size as usize;
        // The kernel takes parts of any length, a disk past the page cache only whole blocks.
        let direct = |part: &SharedBuf| part.is_aligned_to(block) && part.len().is_multiple_of(block);
        if parts.len() < 2 || !parts.iter().all(direct) {
            return self.write(offset, join(&parts), durability);
        }
        Box::pin(async move {
            let len = parts.iter().map(|part| part.len() as u64).sum();
            self.check_write(offset, len)?;
            let durable = durability == Durability::Durable;
            self.write_op(offset, len, IoOp::WriteVectored { parts, durable }, durable).await
        })
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(self.sync())
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.check_write(offset, len)?;
            self.zero(offset, len, true).await
        })
    }

    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.check_write(offset, len)?;
            self.zero(offset, len, false).await?;
            if durability == Durability::Durable { self.sync().await } else { Ok(()) }
        })
    }

    fn reservations(&self) -> Option<&dyn Reservations> {
        self.reserves.then_some(self as &dyn Reservations)
    }
}
