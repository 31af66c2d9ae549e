//! The blocks behind the buffers: reference-counted, aligned memory with per-thread free lists.
//!
//! A block is one allocation: a header of one page, of which only the first bytes are used, would waste
//! memory for small buffers, so header and data are allocated apart and recycled together.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use crate::ALIGNMENT;

/// Smallest class, in bytes.
pub const MIN_CLASS: usize = 4096;
/// Largest pooled class, in bytes; larger buffers are allocated and freed each time.
pub const MAX_CLASS: usize = 1 << 20;
/// What one thread keeps per class, in bytes: 64 transfers of 64 KiB, a deep queue of one connection.
pub const MAX_CACHED_PER_CLASS_BYTES: usize = 4 << 20;

const CLASSES: usize = (MAX_CLASS / MIN_CLASS).trailing_zeros() as usize + 1;

struct Header {
    data: NonNull<u8>,
    capacity: usize,
    handles: AtomicUsize,
}

/// One counted handle on a block of aligned memory.
///
/// Invariant: `header` points to a live `Header` whose `handles` counts the `Block`s that point to it, and
/// whose `data` points to `capacity` initialised bytes aligned to [`ALIGNMENT`].
pub(crate) struct Block {
    header: NonNull<Header>,
}

// SAFETY: the header is immutable but for the atomic count, and the bytes are only reached through IoBuf and
// SharedBuf, whose own invariants forbid a write beside any other access.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

thread_local! {
    static FREE: RefCell<[Vec<NonNull<Header>>; CLASSES]> = const { RefCell::new([const { Vec::new() }; CLASSES]) };
    static RELEASER: Releaser = const { Releaser };
}

struct Releaser;

impl Drop for Releaser {
    fn drop(&mut self) {
        release_thread_cache();
    }
}

/// Gives this thread's free lists back to the system (also done when the thread ends).
pub fn release_thread_cache() {
    let _ = FREE.try_with(|free| {
        for list in free.borrow_mut().iter_mut() {
            for header in list.drain(..) {
                // SAFETY: a header on a free list has no handle left and is on that list only.
                unsafe { free_block(header) };
            }
        }
    });
}

fn class_of(len: usize) -> Option<usize> {
    let capacity = len.max(MIN_CLASS).next_power_of_two();
    (capacity <= MAX_CLASS).then(|| (capacity / MIN_CLASS).trailing_zeros() as usize)
}

impl Block {
    /// A block of at least `len` bytes, recycled or fresh.
    pub(crate) fn take(len: usize) -> Self {
        let class = class_of(len);
        if let Some(class) = class {
            let recycled = FREE.try_with(|free| free.borrow_mut()[class].pop()).ok().flatten();
            if let Some(header) = recycled {
                // SAFETY: a header on a free list is live and has no other handle.
                unsafe { header.as_ref() }.handles.store(1, Ordering::Relaxed);
                return Self { header };
            }
        }
        let capacity = match class {
            Some(class) => MIN_CLASS << class,
            None => len.next_multiple_of(ALIGNMENT),
        };
        let layout = data_layout(capacity);
        // SAFETY: the layout's size is not zero: capacity is at least MIN_CLASS.
        let data = unsafe { alloc_zeroed(layout) };
        let Some(data) = NonNull::new(data) else { handle_alloc_error(layout) };
        let header = Box::new(Header { data, capacity, handles: AtomicUsize::new(1) });
        Self { header: NonNull::from(Box::leak(header)) }
    }

    /// Another handle on the same block.
    pub(crate) fn share(&self) -> Self {
        self.header().handles.fetch_add(1, Ordering::Relaxed);
        Self { header: self.header }
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        self.header == other.header
    }

    pub(crate) fn is_unique(&self) -> bool {
        // Acquire pairs with the release in `drop`: what other handles read happened before we may write.
        self.header().handles.load(Ordering::Acquire) == 1
    }

    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset <= self.header().capacity);
        // SAFETY: offset is at most capacity: IoBuf and SharedBuf keep their ranges inside the length asked for.
        unsafe { self.header().data.add(offset) }
    }

    fn header(&self) -> &Header {
        // SAFETY: the invariant of Block.
        unsafe { self.header.as_ref() }
    }
}

impl Clone for Block {
    fn clone(&self) -> Self {
        self.share()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.header().handles.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        let capacity = self.header().capacity;
        let kept = match class_of(capacity) {
            Some(class) if MIN_CLASS << class == capacity => FREE
                .try_with(|free| {
                    let list = &mut free.borrow_mut()[class];
                    if (list.len() + 1) * capacity > MAX_CACHED_PER_CLASS_BYTES {
                        return false;
                    }
                    let _ = RELEASER.try_with(|_| ());
                    list.push(self.header);
                    true
                })
                .unwrap_or(false),
            _ => false,
        };
        if !kept {
            // SAFETY: this was the last handle, and the header is on no free list.
            unsafe { free_block(self.header) };
        }
    }
}

fn data_layout(capacity: usize) -> Layout {
    match Layout::from_size_align(capacity, ALIGNMENT) {
        Ok(layout) => layout,
        // Only above isize::MAX, which no caller can mean: the same answer as for memory that isn't there.
        Err(_) => handle_alloc_error(Layout::new::<Header>()),
    }
}

/// # Safety
/// `header` came from [`Block::take`], no handle is left, and it is not used again.
unsafe fn free_block(header: NonNull<Header>) {
    // SAFETY: made by Box::leak in `take`, and by the caller's promise freed once.
    let header = unsafe { Box::from_raw(header.as_ptr()) };
    // SAFETY: allocated in `take` with this layout.
    unsafe { dealloc(header.data.as_ptr(), data_layout(header.capacity)) };
}
