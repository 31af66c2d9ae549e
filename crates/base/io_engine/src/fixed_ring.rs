//! A ring with registered files and buffers, for whoever measures: the least that io_uring costs per operation.
//!
//! ```text
//!   slot 0 ─ [read buffer] [write buffer]      queue(FixedOp{slot, ..}) ──► wait ──► FixedDone{slot, result}
//!   slot 1 ─ [read buffer] [write buffer]      a slot carries one operation at a time; its buffers are lent meanwhile
//!   source ─ [read-only, shared by all slots]
//! ```
//! Unlike [`crate::RingEngine`] it has no futures and allocates nothing after [`FixedRing::new`]; a short transfer is
//! reported as such and not resumed.
//!
//! # UNSAFETY
//! The kernel reads and writes the registered buffers. **Invariant:** from the moment a slot's entry is pushed until its
//! completion is reaped (`busy`), nobody else reaches the slot's buffers: [`FixedRing::read_buffer`] and
//! [`FixedRing::write_buffer`] refuse busy slots, and the source is never written. Buffers never move (they are heap
//! blocks) and are freed only after the ring is empty.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use io_uring::{IoUring, opcode, squeue, types};

/// Most slots of a ring: two buffers each and the source stay below what the kernel registers (16384).
const MAX_SLOTS: usize = 8000;

/// What an operation does, and with which memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixedData {
    /// Read into the slot's read buffer.
    Read,
    /// Write from the slot's write buffer.
    Write,
    /// Write from the source, beginning at this byte.
    WriteSource(usize),
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct FixedOp {
    /// The slot that carries it.
    pub slot: usize,
    /// Which of the files.
    pub file: usize,
    /// Its kind.
    pub data: FixedData,
    /// Byte offset in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// I/O priority (ioprio_set(2)); 0: that of the thread.
    pub priority: u16,
}

/// How one ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedDone {
    /// The slot, free again.
    pub slot: usize,
    /// Bytes, or the system's error number.
    pub result: Result<u32, i32>,
}

/// Buffers of one slot.
#[derive(Debug)]
pub struct SlotBuffers {
    /// The buffers for reads; empty when no reads are made.
    pub read: IoBuf,
    /// The buffers for writes; may be empty.
    pub write: IoBuf,
}

/// The ring.
pub struct FixedRing {
    ring: IoUring,
    files: Vec<Arc<OwnedFd>>,
    /// Freed by `drop`, once the kernel is done with them.
    slots: ManuallyDrop<Vec<SlotBuffers>>,
    source: ManuallyDrop<Option<SharedBuf>>,
    busy: Vec<bool>,
    in_kernel: usize,
    /// Whether buffers are registered; without the right to lock memory they are not.
    registered: bool,
}

impl FixedRing {
    /// Sets up a ring for this thread with these files and one slot for each pair of buffers.
    ///
    /// # Errors
    /// What the kernel says: not permitted, no memory, too many.
    pub fn new(
        files: Vec<Arc<OwnedFd>>,
        slots: Vec<SlotBuffers>,
        source: Option<SharedBuf>,
    ) -> io::Result<Self> {
        if slots.len() > MAX_SLOTS {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many slots"));
        }
        let entries = (slots.len().max(1).next_power_of_two() as u32).min(32_768);
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(entries)
            // Kernels before 6.1.
            .or_else(|_| IoUring::builder().setup_coop_taskrun().build(entries))
            .or_else(|_| IoUring::builder().build(entries))?;
        let raw: Vec<_> = files.iter().map(|file| file.as_raw_fd()).collect();
        ring.submitter().register_files(&raw)?;
        let busy = vec![false; slots.len()];
        let mut this = Self {
            ring,
            files,
            slots: ManuallyDrop::new(slots),
            source: ManuallyDrop::new(source),
            busy,
            in_kernel: 0,
            registered: false,
        };
        this.registered = this.register();
        Ok(this)
    }

    /// Registers all buffers: slot n has numbers 2n (read) and 2n + 1 (write), the source comes last.
    fn register(&mut self) -> bool {
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut list = Vec::with_capacity(self.slots.len() * 2 + 1);
        for slot in self.slots.iter_mut() {
            for buf in [&mut slot.read, &mut slot.write] {
                list.push(match buf.len() {
                    0 => empty,
                    len => libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: len },
                });
            }
        }
        list.push(match &*self.source {
            Some(source) => {
                libc::iovec { iov_base: source.as_ptr().cast_mut().cast(), iov_len: source.len() }
            }
            None => empty,
        });
        // SAFETY: the module's invariant: the buffers neither move nor are freed before the ring is empty. The source is
        // only ever named by write operations, which read memory.
        unsafe { self.ring.submitter().register_buffers(&list) }.is_ok()
    }

    /// Whether buffers are registered with the kernel.
    #[must_use]
    pub fn has_registered_buffers(&self) -> bool {
        self.registered
    }

    /// Operations that have not ended.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.in_kernel
    }

    /// The read buffer of a slot; `None` while it is lent to the kernel.
    pub fn read_buffer(&mut self, slot: usize) -> Option<&mut [u8]> {
        if *self.busy.get(slot)? { None } else { Some(&mut self.slots.get_mut(slot)?.read) }
    }

    /// The write buffer of a slot; `None` while it is lent to the kernel.
    pub fn write_buffer(&mut self, slot: usize) -> Option<&mut [u8]> {
        if *self.busy.get(slot)? { None } else { Some(&mut self.slots.get_mut(slot)?.write) }
    }

    /// Queues an operation; it enters the kernel with the next [`FixedRing::submit`] or [`FixedRing::wait`].
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when slot, file or length do not exist or the slot is busy.
    pub fn queue(&mut self, op: &FixedOp) -> io::Result<()> {
        let entry = self.entry(op).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "no such slot, file or length, or the slot is busy")
        })?;
        let entry = entry.user_data(op.slot as u64);
        // SAFETY: `entry` checked that the slot is not busy and that the memory lies in its buffers or in the source; it
        // is marked busy below, so the module's invariant holds until the completion.
        let mut pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() {
            self.ring.submit()?;
            // SAFETY: as above.
            pushed = unsafe { self.ring.submission().push(&entry) };
        }
        pushed.map_err(|_| io::Error::other("the submission queue stays full"))?;
        if let Some(busy) = self.busy.get_mut(op.slot) {
            *busy = true;
        }
        self.in_kernel += 1;
        Ok(())
    }

    /// Hands over what is queued, and waits for nothing.
    ///
    /// # Errors
    /// When the ring itself fails. What a busy kernel has not taken is handed over with the next call.
    pub fn submit(&mut self) -> io::Result<()> {
        match self.ring.submit() {
            Err(error) if !is_passing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    fn entry(&mut self, op: &FixedOp) -> Option<squeue::Entry> {
        if *self.busy.get(op.slot)? || op.file >= self.files.len() {
            return None;
        }
        let fd = types::Fixed(op.file as u32);
        let len = op.len as usize;
        let slot = self.slots.get_mut(op.slot)?;
        let number = op.slot as u16 * 2;
        Some(match op.data {
            FixedData::Read => {
                let start = slot.read.get_mut(..len)?.as_mut_ptr();
                if self.registered {
                    opcode::ReadFixed::new(fd, start, op.len, number)
                        .offset(op.offset)
                        .ioprio(op.priority)
                        .build()
                } else {
                    opcode::Read::new(fd, start, op.len).offset(op.offset).ioprio(op.priority).build()
                }
            }
            FixedData::Write | FixedData::WriteSource(_) => {
                let (start, number) = match op.data {
                    FixedData::WriteSource(from) => {
                        let source = self.source.as_ref()?;
                        let range = source.get(from..from.checked_add(len)?)?;
                        (range.as_ptr(), self.busy.len() as u16 * 2)
                    }
                    _ => (slot.write.get(..len)?.as_ptr(), number + 1),
                };
                if self.registered {
                    opcode::WriteFixed::new(fd, start, op.len, number)
                        .offset(op.offset)
                        .ioprio(op.priority)
                        .build()
                } else {
                    opcode::Write::new(fd, start, op.len).offset(op.offset).ioprio(op.priority).build()
                }
            }
        })
    }

    /// Hands over what is queued, waits until at least one operation has ended or `timeout` is over, and adds to `done`
    /// what has ended. An interrupting signal ends the wait early.
    ///
    /// # Errors
    /// When the ring itself fails.
    pub fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<FixedDone>) -> io::Result<()> {
        let entered = match timeout {
            None => self.ring.submit_and_wait(usize::from(self.in_kernel > 0)),
            Some(timeout) => {
                let time = types::Timespec::from(timeout);
                self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&time))
            }
        };
        if let Err(error) = entered
            && !is_passing(&error)
        {
            return Err(error);
        }
        for completion in self.ring.completion() {
            let slot = completion.user_data() as usize;
            if let Some(busy) = self.busy.get_mut(slot) {
                *busy = false;
                self.in_kernel = self.in_kernel.saturating_sub(1);
                let result = completion.result();
                let result = if result < 0 { Err(-result) } else { Ok(result as u32) };
                done.push(FixedDone { slot, result });
            }
        }
        Ok(())
    }
}

/// Whether the kernel only did not do now what it was asked for: the time is over, a signal came, or it is short of something.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN))
}

/// Readable when something has ended that [`FixedRing::wait`] has not given out: for who waits for other things, too.
impl AsFd for FixedRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the ring's, which lives for as long as the borrow of it.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl Drop for FixedRing {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_kernel > 0 {
            if self.wait(None, &mut done).is_err() {
                // The ring is broken and the kernel may still use the buffers: leaking them is the only safe way out.
                return;
            }
            done.clear();
        }
        // SAFETY: nothing is in the kernel any more, and neither field is used again.
        unsafe {
            ManuallyDrop::drop(&mut self.slots);
            ManuallyDrop::drop(&mut self.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn ring(content: &[u8], slots: usize, len: usize, source: Option<SharedBuf>) -> Option<FixedRing> {
        static FILES: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = FILES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("fixed-ring-{}-{number}", std::process::id()));
        let mut file =
            std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(content).unwrap();
        let slots = (0..slots).map(|_| SlotBuffers { read: IoBuf::zeroed(len), write: IoBuf::zeroed(len) });
        match FixedRing::new(vec![Arc::new(file.into())], slots.collect(), source) {
            Ok(ring) => Some(ring),
            Err(error) => {
                eprintln!("no io_uring here: {error}");
                None
            }
        }
    }

    fn op(slot: usize, data: FixedData, offset: u64, len: u32) -> FixedOp {
        FixedOp { slot, file: 0, data, offset, len, priority: 0 }
    }

    fn all(ring: &mut FixedRing) -> Vec<FixedDone> {
        let mut done = Vec::new();
        while ring.outstanding() > 0 {
            ring.wait(None, &mut done).unwrap();
        }
        done.sort_by_key(|done| done.slot);
        done
    }

    #[test]
    fn writes_are_read_back_through_slots_and_the_source() {
        let mut source = IoBuf::zeroed(8192);
        source[4096..].fill(9);
        let Some(mut ring) = ring(&[7; 8192], 4, 4096, Some(source.freeze())) else { return };
        ring.write_buffer(1).unwrap().fill(5);
        ring.queue(&op(0, FixedData::Read, 0, 4096)).unwrap();
        ring.queue(&op(1, FixedData::Write, 8192, 4096)).unwrap();
        ring.queue(&op(2, FixedData::WriteSource(4096), 12_288, 4096)).unwrap();
        assert_eq!(all(&mut ring).iter().map(|done| done.result).collect::<Vec<_>>(), [Ok(4096); 3]);
        assert!(ring.read_buffer(0).unwrap().iter().all(|byte| *byte == 7));
        for (slot, offset) in [(0, 8192), (3, 12_288)] {
            ring.queue(&op(slot, FixedData::Read, offset, 4096)).unwrap();
        }
        all(&mut ring);
        assert!(ring.read_buffer(0).unwrap().iter().all(|byte| *byte == 5));
        assert!(ring.read_buffer(3).unwrap().iter().all(|byte| *byte == 9));
    }

    #[test]
    fn what_is_queued_begins_with_submit_and_not_before() {
        let (mut there, here) = std::io::pipe().unwrap();
        let slot = SlotBuffers { read: IoBuf::zeroed(4096), write: IoBuf::zeroed(4096) };
        let Ok(mut ring) = FixedRing::new(vec![Arc::new(here.into())], vec![slot], None) else { return };
        ring.write_buffer(0).unwrap().fill(3);
        ring.queue(&op(0, FixedData::Write, 0, 4096)).unwrap();
        assert_eq!(waiting_in(&there), 0, "it has begun already");
        ring.submit().unwrap();
        assert_eq!(waiting_in(&there), 4096, "it has not begun");
        let mut data = [0; 4096];
        std::io::Read::read_exact(&mut there, &mut data).unwrap();
        assert_eq!((data, ring.outstanding()), ([3; 4096], 1));
        // That it ended is heard from `wait`.
        assert_eq!(all(&mut ring), [FixedDone { slot: 0, result: Ok(4096) }]);
    }

    /// How many bytes can be read from a pipe.
    fn waiting_in(pipe: &std::io::PipeReader) -> i32 {
        let mut bytes = 0;
        // SAFETY: FIONREAD writes an int to where its argument points.
        assert_eq!(unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut bytes) }, 0);
        bytes
    }

    #[test]
    fn a_busy_slot_lends_nothing_and_takes_nothing() {
        let Some(mut ring) = ring(&[1; 4096], 1, 4096, None) else { return };
        ring.queue(&op(0, FixedData::Read, 0, 4096)).unwrap();
        assert!(ring.read_buffer(0).is_none() && ring.write_buffer(0).is_none());
        assert!(ring.queue(&op(0, FixedData::Read, 0, 4096)).is_err());
        all(&mut ring);
        assert!(ring.read_buffer(0).is_some());
        for wrong in [
            op(1, FixedData::Read, 0, 4096),
            op(0, FixedData::Read, 0, 4097),
            op(0, FixedData::WriteSource(0), 0, 1),
            FixedOp { file: 1, ..op(0, FixedData::Read, 0, 1) },
        ] {
            assert!(ring.queue(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_wait_without_work_ends_and_errors_are_given_back() {
        let Some(mut ring) = ring(&[1; 4096], 1, 4096, None) else { return };
        let mut done = Vec::new();
        ring.wait(Some(Duration::from_millis(1)), &mut done).unwrap();
        assert!(done.is_empty());
        ring.queue(&op(0, FixedData::Read, u64::MAX - 8192, 4096)).unwrap();
        assert!(matches!(all(&mut ring).as_slice(), [FixedDone { slot: 0, result: Err(_) }]));
        // The end of the file: short, not an error.
        ring.queue(&op(0, FixedData::Read, 2048, 4096)).unwrap();
        assert_eq!(all(&mut ring), [FixedDone { slot: 0, result: Ok(2048) }]);
        // Dropped with an operation in flight.
        ring.queue(&op(0, FixedData::Read, 0, 4096)).unwrap();
    }
}
