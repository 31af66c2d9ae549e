//! The database's storage: an area of the device, used with blocking calls from the metadata thread.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use aligned_buffer::IoBuf;
use block_device::{BlockError, Device, Durability};
use io_engine::{EngineGuard, block_on, detect, install};
use parking_lot::Mutex;
use redb::StorageBackend;
use volume_format::{BLOCK, LengthRecord, Superblock};

/// The area as redb sees it. All calls come from the thread that opened the database, except the last `close`.
pub(crate) struct DeviceBackend {
    device: Device,
    start: u64,
    room: u64,
    length_start: u64,
    record: Mutex<LengthRecord>,
    length: AtomicU64,
}

impl fmt::Debug for DeviceBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBackend({}+{})", self.start, self.room)
    }
}

thread_local! {
    static GUARD: EngineSlot = const { EngineSlot(std::cell::OnceCell::new()) };
}

struct EngineSlot(std::cell::OnceCell<EngineGuard>);

/// Runs device I/O to its end on this thread, which gets an engine of its own at its first use.
pub(crate) fn run<T>(future: impl Future<Output = Result<T, BlockError>>) -> io::Result<T> {
    if shard_runtime::takes_turns() {
        return shard_runtime::block_on(future).map_err(io::Error::other);
    }
    GUARD.with(|slot| {
        if slot.0.get().is_none() {
            let _ = slot.0.set(install(detect()?.engine));
        }
        let guard = slot.0.get().ok_or_else(|| io::Error::other("no I/O engine"))?;
        block_on(guard, future)?.map_err(io::Error::other)
    })
}

impl DeviceBackend {
    /// Reads the database's length; call on the metadata thread.
    pub(crate) fn open(device: Device, superblock: &Superblock) -> io::Result<Self> {
        let mut record = LengthRecord::default();
        for slot in 0..2 {
            let at = superblock.length_start + slot * BLOCK;
            let block = run(device.read(at, IoBuf::new(BLOCK as usize)))?;
            if let Ok(found) = LengthRecord::decode(&block)
                && found.number >= record.number
            {
                record = found;
            }
        }
        if record.length > superblock.metadata_size {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the database's length is beyond its area",
            ));
        }
        Ok(Self {
            device,
            start: superblock.metadata_start,
            room: superblock.metadata_size,
            length_start: superblock.length_start,
            length: AtomicU64::new(record.length),
            record: Mutex::new(record),
        })
    }

    fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.length.load(Ordering::Acquire) => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "beyond the end of the database")),
        }
    }

    /// Reads the whole blocks around a range; the range starts at the returned offset within.
    fn read_around(&self, offset: u64, len: usize) -> io::Result<(IoBuf, usize)> {
        let first = offset / BLOCK * BLOCK;
        let end = (offset + len as u64).next_multiple_of(BLOCK);
        let buf = run(self.device.read(self.start + first, IoBuf::new((end - first) as usize)))?;
        Ok((buf, (offset - first) as usize))
    }
}

impl StorageBackend for DeviceBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.length.load(Ordering::Acquire))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.check(offset, out.len())?;
        let (buf, at) = self.read_around(offset, out.len())?;
        out.copy_from_slice(&buf[at..at + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len > self.room {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the volume's metadata area is full"));
        }
        let mut record = self.record.lock();
        let old = record.length;
        if len > old {
            // What lies there may be from an earlier, longer database.
            let first = old.next_multiple_of(BLOCK);
            let end = len.next_multiple_of(BLOCK);
            if end > first {
                run(self.device.unmap(self.start + first, end - first))?;
            }
        }
        let next = LengthRecord { number: record.number + 1, length: len };
        let at = self.length_start + next.number % 2 * BLOCK;
        run(self.device.write(at, IoBuf::copy_from(&next.encode()).freeze(), Durability::Durable))?;
        *record = next;
        self.length.store(len, Ordering::Release);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        run(self.device.flush())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len())?;
        let whole = offset.is_multiple_of(BLOCK) && data.len().is_multiple_of(BLOCK as usize);
        let (first, buf) = if whole {
            (offset, IoBuf::copy_from(data))
        } else {
            let (mut buf, at) = self.read_around(offset, data.len())?;
            buf[at..at + data.len()].copy_from_slice(data);
            (offset - at as u64, buf)
        };
        run(self.device.write(self.start + first, buf.freeze(), Durability::Volatile))
    }
}
