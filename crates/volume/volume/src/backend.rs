//! The database's storage: an area of the device, used with blocking calls from the metadata thread.
//!
//! ```text
//!   redb: write, write, write … ──► held in memory ──► sync: all at once, neighbours joined ──► flush
//!         write (the header)    ──► held           ──► sync: one durable write, no flush
//! ```
//! redb writes page by page and promises nothing before it syncs, so what it writes is held until then: a commit
//! costs two waits for the disk (its pages, and its header), not one for each page. Reads see what is held.
//!
//! The first failure of anything is the last of what is done: redb keeps some failures to itself, and what it would read after
//! them may be old. Whoever promises something looks at [`Connection::check`] first.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use aligned_buffer::IoBuf;
use block_device::{BlockError, BlockErrorKind, Device, Durability};
use file_store::{StoreError, StoreErrorKind};
use futures_util::future::join_all;
use io_engine::{EngineGuard, block_on, detect, install};
use parking_lot::Mutex;
use redb::StorageBackend;
use volume_format::{BLOCK, LengthRecord, Superblock};

use crate::clear::clear;
use crate::meter::Meter;

/// Most bytes held; then they are written before the sync. A large transaction, not a commit on the way of a write.
const HELD_MAX: usize = 8 << 20;
/// What is read at once while much of the database is read, and how many such pieces are kept: 32 MiB.
const PIECE: u64 = 256 << 10;
const PIECES_MAX: usize = 128;
/// Reads of one group of changes after which the next ones are taken for a look at much of the database: the map of a file
/// in millions of pieces.
const MANY_READS: u32 = 256;
/// Pieces after which is looked whether they are worth it, and how many reads each must serve for that. A map that was
/// written in no order lies in none.
const PIECES_TRIED: u32 = 32;
const READS_A_PIECE: u32 = 4;
/// Longest request made of neighbouring blocks.
const REQUEST_MAX: usize = 1 << 20;

/// The area as redb sees it. All calls come from the thread that opened the database, except the last `close`.
pub(crate) struct DeviceBackend {
    way: Arc<Way>,
    start: u64,
    length_start: u64,
    record: Mutex<LengthRecord>,
    meter: Arc<Meter>,
    held: Mutex<Held>,
    ahead: Arc<Mutex<Pieces>>,
}

/// The way of a database to its device.
struct Way {
    /// `None` once it is cut off.
    device: Mutex<Option<Device>>,
    /// What the first failure said.
    failure: OnceLock<String>,
}

impl Way {
    /// The device, as long as nothing has failed.
    fn device(&self) -> io::Result<Device> {
        if self.failure.get().is_some() {
            return Err(io::Error::other("the metadata database has failed before"));
        }
        self.device.lock().clone().ok_or_else(|| io::Error::other("the database was given up"))
    }
}

/// The way of a database to its device, which ends with a failure and can be cut off.
pub(crate) struct Connection(Arc<Way>);

impl Connection {
    /// From now on the device is neither read nor written, and the database is told so.
    pub(crate) fn cut(&self) {
        drop(self.0.device.lock().take());
    }

    /// Whether all that the database has asked of its device was done.
    ///
    /// # Errors
    /// [`StoreErrorKind::Stopped`] with the first failure: what the database says since then may be wrong.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.0.failure.get() {
            Some(why) => Err(StoreError::new(StoreErrorKind::Stopped, format!("metadata database: {why}"))),
            None => Ok(()),
        }
    }
}

/// Large pieces that were read, by number, while much of the database is read; empty and unused otherwise.
#[derive(Default)]
struct Pieces {
    on: bool,
    /// Reads of single blocks before, pieces read since, and reads that were served from one.
    alone: u32,
    loads: u32,
    hits: u32,
    by_number: BTreeMap<u64, IoBuf>,
    /// In the order in which they were read.
    order: VecDeque<u64>,
}

impl Pieces {
    /// Whether the next read is one of many.
    fn are_used(&mut self) -> bool {
        if !self.on {
            self.alone = self.alone.saturating_add(1);
            self.on = self.alone == MANY_READS;
        } else if self.loads == PIECES_TRIED && self.hits < PIECES_TRIED * READS_A_PIECE {
            // They hold too little of what is asked for; until the next group.
            *self = Self { alone: MANY_READS, ..Self::default() };
        }
        self.on
    }
}

/// How a database is read: in large pieces from the beginning on, until it is told that a look at all of it has ended.
pub(crate) struct Ahead(Arc<Mutex<Pieces>>);

impl Ahead {
    /// Every read is for itself again until there are many, and the pieces are forgotten.
    pub(crate) fn rest(&self) {
        *self.0.lock() = Pieces::default();
    }
}

/// Blocks that were written since the last sync, by number.
#[derive(Default)]
struct Held {
    blocks: BTreeMap<u64, Box<[u8]>>,
    /// Some blocks have gone to the device without being durable.
    sent: bool,
}

impl fmt::Debug for DeviceBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBackend({}+{})", self.start, self.meter.area)
    }
}

thread_local! {
    static GUARD: EngineSlot = const { EngineSlot(std::cell::OnceCell::new()) };
}

struct EngineSlot(std::cell::OnceCell<EngineGuard>);

/// A device's error as one of the database's storage. That there is no space is no failure of what is there.
fn storage_error(error: BlockError) -> io::Error {
    match error.kind() {
        BlockErrorKind::NoSpace => io::Error::new(io::ErrorKind::StorageFull, error),
        _ => io::Error::other(error),
    }
}

/// Runs device I/O to its end on this thread, which gets an engine of its own at its first use.
pub(crate) fn run<T>(future: impl Future<Output = Result<T, BlockError>>) -> io::Result<T> {
    if shard_runtime::takes_turns() {
        return shard_runtime::block_on(future).map_err(storage_error);
    }
    GUARD.with(|slot| {
        if slot.0.get().is_none() {
            let _ = slot.0.set(install(detect()?.engine));
        }
        let guard = slot.0.get().ok_or_else(|| io::Error::other("no I/O engine"))?;
        block_on(guard, future)?.map_err(storage_error)
    })
}

/// The parts of a range in each block: number, offset within, offset in the range, length.
pub(crate) fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % BLOCK) as usize;
        let step = (BLOCK as usize - within).min(len - done);
        let part = (at / BLOCK, within, done, step);
        done += step;
        (step > 0).then_some(part)
    })
}

/// The length record in the block of its slot, or what is wrong with it.
pub(crate) fn length_in(block: &[u8], slot: u64, superblock: &Superblock) -> Result<LengthRecord, String> {
    let record = LengthRecord::decode(block).map_err(|error| error.to_string())?;
    if record.length > superblock.metadata_size {
        return Err(format!("says {} bytes, the area has {}", record.length, superblock.metadata_size));
    }
    if record.number % 2 != slot {
        return Err("belongs in the place of the other one".into());
    }
    Ok(record)
}

impl DeviceBackend {
    /// Reads the database's length; call on the metadata thread.
    pub(crate) fn open(device: Device, superblock: &Superblock) -> io::Result<Self> {
        let (mut record, mut unreadable) = (LengthRecord::default(), None);
        for slot in 0..2 {
            let at = superblock.length_start + slot * BLOCK;
            match run(device.read(at, IoBuf::new(BLOCK as usize))) {
                Ok(block) => match length_in(&block, slot, superblock) {
                    Ok(found) if found.number >= record.number => record = found,
                    _ => {}
                },
                // As good as damaged: the other one serves, and the database knows when it is too short.
                Err(error) => unreadable = Some(error),
            }
        }
        if let Some(error) = unreadable.filter(|_| record.number == 0) {
            return Err(error);
        }
        Ok(Self {
            way: Arc::new(Way { device: Mutex::new(Some(device)), failure: OnceLock::new() }),
            start: superblock.metadata_start,
            length_start: superblock.length_start,
            meter: Arc::new(Meter {
                length: AtomicU64::new(record.length),
                written: AtomicU64::new(0),
                area: superblock.metadata_size,
            }),
            record: Mutex::new(record),
            held: Mutex::default(),
            ahead: Arc::default(),
        })
    }

    /// By which it can be cut off from the device, and asked whether it has failed.
    pub(crate) fn connection(&self) -> Connection {
        Connection(Arc::clone(&self.way))
    }

    /// Does something for the database, if all before it was done.
    fn attempt<T>(&self, work: impl FnOnce(&Device) -> io::Result<T>) -> io::Result<T> {
        let device = self.way.device()?;
        work(&device).inspect_err(|error| drop(self.way.failure.set(error.to_string())))
    }

    /// What tells of its length and of what is written.
    pub(crate) fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }

    fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.meter.length.load(Ordering::Acquire) => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "beyond the end of the database")),
        }
    }

    /// Begins to read in large pieces: for a look at all of the database.
    pub(crate) fn read_ahead(&self) -> Ahead {
        self.ahead.lock().on = true;
        Ahead(Arc::clone(&self.ahead))
    }

    /// Reads whole blocks, from a piece if they lie in one, else from the device.
    fn read_blocks(&self, device: &Device, number: u64, count: u64) -> io::Result<IoBuf> {
        let len = (count * BLOCK) as usize;
        let piece = number * BLOCK / PIECE;
        let mut ahead = self.ahead.lock();
        if ((number + count) * BLOCK).div_ceil(PIECE) == piece + 1 && ahead.are_used() {
            let Pieces { by_number, order, loads, hits, .. } = &mut *ahead;
            match by_number.entry(piece) {
                Entry::Occupied(_) => *hits = hits.saturating_add(1),
                Entry::Vacant(place) => {
                    *loads = loads.saturating_add(1);
                    let end = ((piece + 1) * PIECE).min(self.meter.area);
                    let all = IoBuf::new((end - piece * PIECE) as usize);
                    // Else another block of the piece may be the one that cannot be read.
                    if let Ok(all) = run(device.read(self.start + piece * PIECE, all)) {
                        order.push_back(piece);
                        place.insert(all);
                    }
                }
            }
            if order.len() > PIECES_MAX
                && let Some(oldest) = order.pop_front()
            {
                by_number.remove(&oldest);
            }
            if let Some(all) = by_number.get(&piece) {
                let from = (number * BLOCK - piece * PIECE) as usize;
                return Ok(IoBuf::copy_from(&all[from..from + len]));
            }
        }
        drop(ahead);
        run(device.read(self.start + number * BLOCK, IoBuf::new(len)))
    }

    /// Writes everything held, all at once; each block durably, or none.
    fn send(&self, device: &Device, held: &mut Held, durability: Durability) -> io::Result<()> {
        {
            // What was read ahead is older.
            let mut ahead = self.ahead.lock();
            for number in held.blocks.keys() {
                ahead.by_number.remove(&(number * BLOCK / PIECE));
            }
        }
        self.meter.written.fetch_add(held.blocks.len() as u64 * BLOCK, Ordering::Relaxed);
        let mut requests: Vec<(u64, Vec<u8>)> = Vec::new();
        for (number, block) in std::mem::take(&mut held.blocks) {
            match requests.last_mut() {
                Some((first, data))
                    if *first + data.len() as u64 / BLOCK == number && data.len() < REQUEST_MAX =>
                {
                    data.extend_from_slice(&block);
                }
                _ => requests.push((number, block.into_vec())),
            }
        }
        let writes = requests.into_iter().map(|(number, data)| {
            let data = IoBuf::copy_from(&data).freeze();
            device.write(self.start + number * BLOCK, data, durability)
        });
        // All end before the first error is told.
        held.sent |= durability == Durability::Volatile;
        run(async { join_all(writes).await.into_iter().collect() })
    }

    fn read_at(&self, device: &Device, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.check(offset, out.len())?;
        if out.is_empty() {
            return Ok(());
        }
        let (first, end) = (offset / BLOCK, (offset + out.len() as u64).div_ceil(BLOCK));
        let held = self.held.lock();
        // Written and read again before a sync: rare, since redb keeps what it writes in its own cache.
        if (first..end).all(|number| held.blocks.contains_key(&number)) {
            for (number, within, at, len) in parts(offset, out.len()) {
                if let Some(block) = held.blocks.get(&number) {
                    out[at..at + len].copy_from_slice(&block[within..within + len]);
                }
            }
            return Ok(());
        }
        let read = self.read_blocks(device, first, end - first)?;
        for (number, within, at, len) in parts(offset, out.len()) {
            let from = ((number - first) * BLOCK) as usize;
            let block = match held.blocks.get(&number) {
                Some(block) => &block[..],
                None => &read[from..from + BLOCK as usize],
            };
            out[at..at + len].copy_from_slice(&block[within..within + len]);
        }
        Ok(())
    }

    fn set_length(&self, device: &Device, len: u64) -> io::Result<()> {
        if len > self.meter.area {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the volume's metadata area is full"));
        }
        let mut record = self.record.lock();
        let old = record.length;
        if len > old {
            // What lies there may be from an earlier, longer database.
            let first = old.next_multiple_of(BLOCK);
            let end = len.next_multiple_of(BLOCK);
            if end > first {
                run(clear(device, self.start + first, end - first))?;
            }
        }
        let number =
            record.number.checked_add(1).ok_or_else(|| io::Error::other("too many changes of length"))?;
        let next = LengthRecord { number, length: len };
        let at = self.length_start + next.number % 2 * BLOCK;
        run(device.write(at, IoBuf::copy_from(&next.encode()).freeze(), Durability::Durable))?;
        *record = next;
        self.meter.length.store(len, Ordering::Release);
        // What was read ahead there is older than the zeros.
        self.ahead.lock().by_number.clear();
        // What was cut off is not written any more: the next, longer database begins with zeros there.
        self.held.lock().blocks.split_off(&len.div_ceil(BLOCK));
        Ok(())
    }

    fn sync(&self, device: &Device) -> io::Result<()> {
        let mut held = self.held.lock();
        if held.blocks.len() == 1 && !held.sent {
            // The header, after a flush of all else.
            return self.send(device, &mut held, Durability::Durable);
        }
        self.send(device, &mut held, Durability::Volatile)?;
        held.sent = false;
        run(device.flush())
    }

    fn write_at(&self, device: &Device, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len())?;
        let mut held = self.held.lock();
        for (number, within, at, len) in parts(offset, data.len()) {
            if len < BLOCK as usize && !held.blocks.contains_key(&number) {
                let there = self.read_blocks(device, number, 1)?;
                held.blocks.insert(number, there.to_vec().into_boxed_slice());
            }
            let block =
                held.blocks.entry(number).or_insert_with(|| vec![0; BLOCK as usize].into_boxed_slice());
            block[within..within + len].copy_from_slice(&data[at..at + len]);
        }
        if held.blocks.len() * BLOCK as usize > HELD_MAX {
            self.send(device, &mut held, Durability::Volatile)?;
        }
        Ok(())
    }
}

impl StorageBackend for DeviceBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.meter.length.load(Ordering::Acquire))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.attempt(|device| self.read_at(device, offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.attempt(|device| self.set_length(device, len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.attempt(|device| self.sync(device))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.attempt(|device| self.write_at(device, offset, data))
    }
}
