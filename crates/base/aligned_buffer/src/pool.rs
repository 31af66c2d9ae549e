//! The blocks behind the buffers: reference-counted, aligned memory with per-thread free lists.
//!
//! A block is one allocation: a header of one page, of which only the first bytes are used, would waste
//! memory for small buffers, so header and data are allocated apart and recycled together.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use crate::ALIGNMENT;

/// Bytes of a page; classes are a power of two of them, and one more: transfers are powers of two, and servers put
/// headers before them.
const PAGE: usize = ALIGNMENT;
/// Largest pooled buffer, in bytes; larger ones are allocated and freed each time. SMB's largest transfer with its page.
pub const MAX_POOLED: usize = (8 << 20) + PAGE;
/// Blocks from here on are mapped, not allocated: pages that nobody has written cost no memory, and the system has all of it back when
/// the block goes. An allocator would keep it, and clear it before use.
const MAPPED: usize = 1 << 20;
/// What one thread keeps, in bytes: four of the largest transfers, or a deep queue of smaller ones.
pub const MAX_CACHED_BYTES: usize = 33 << 20;

const CLASSES: usize = class_of_pages(MAX_POOLED / PAGE) + 1;

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

/// Blocks without a handle.
///
/// Invariant: `bytes` is the sum of the capacities of all blocks in `lists`, and each lies in the list of its class.
struct Free {
    lists: [Vec<NonNull<Header>>; CLASSES],
    bytes: usize,
}

thread_local! {
    static FREE: RefCell<Free> = const { RefCell::new(Free { lists: [const { Vec::new() }; CLASSES], bytes: 0 }) };
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
        let mut free = free.borrow_mut();
        free.bytes = 0;
        for header in free.lists.iter_mut().flat_map(|list| list.drain(..)) {
            // SAFETY: a header on a free list has no handle left and is on that list only.
            unsafe { free_block(header) };
        }
    });
}

/// Asks the allocator to give what it holds free back to the system, this thread's free lists among it. For when much was
/// freed, off the paths of I/O: it takes milliseconds, and locks the allocator.
pub fn give_back_free_memory() {
    release_thread_cache();
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes a number, touches only memory that nobody has, and may be called from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

const fn class_of_pages(pages: usize) -> usize {
    let pages = if pages < 2 { 2 } else { pages };
    (pages - 1).next_power_of_two().trailing_zeros() as usize
}

fn class_of(len: usize) -> Option<usize> {
    (len <= MAX_POOLED).then(|| class_of_pages(len.div_ceil(PAGE)))
}

/// Bytes of a block of a class.
fn capacity_of(class: usize) -> usize {
    (PAGE << class) + PAGE
}

/// Bytes that a buffer of `len` bytes takes.
pub(crate) fn footprint(len: usize) -> usize {
    class_of(len).map_or_else(|| len.next_multiple_of(ALIGNMENT), capacity_of)
}

/// Gives blocks of this thread's free lists back to the system, the largest first, until it keeps `keep` bytes at most. Costs next to
/// nothing where it keeps no more already.
pub fn trim_thread_cache(keep: usize) {
    let _ = FREE.try_with(|free| {
        let mut free = free.borrow_mut();
        let mut class = CLASSES;
        while free.bytes > keep && class > 0 {
            match free.pop(class - 1) {
                // SAFETY: a header on a free list has no handle left, and it is on none now.
                Some(spare) => unsafe { free_block(spare) },
                None => class -= 1,
            }
        }
    });
}

impl Free {
    fn pop(&mut self, class: usize) -> Option<NonNull<Header>> {
        let header = self.lists[class].pop()?;
        self.bytes -= capacity_of(class);
        Some(header)
    }

    /// Keeps a block; others make room where most lies about, so that what is in use now is what is kept. `false` when
    /// the block is of the class that has most: then it goes itself.
    fn push(&mut self, class: usize, header: NonNull<Header>) -> bool {
        while self.bytes + capacity_of(class) > MAX_CACHED_BYTES {
            let held = |class: usize| self.lists[class].len() * capacity_of(class);
            let most = (0..CLASSES).max_by_key(|each| held(*each)).unwrap_or(class);
            if most == class {
                return false;
            }
            let Some(spare) = self.pop(most) else { return false };
            // SAFETY: a header on a free list has no handle left, and it is on none now.
            unsafe { free_block(spare) };
        }
        self.lists[class].push(header);
        self.bytes += capacity_of(class);
        true
    }
}

impl Block {
    /// A block of at least `len` bytes, recycled or fresh.
    pub(crate) fn take(len: usize) -> Self {
        let class = class_of(len);
        if let Some(class) = class {
            let recycled = FREE.try_with(|free| free.borrow_mut().pop(class)).ok().flatten();
            if let Some(header) = recycled {
                // SAFETY: a header on a free list is live and has no other handle.
                unsafe { header.as_ref() }.handles.store(1, Ordering::Relaxed);
                return Self { header };
            }
        }
        let capacity = footprint(len);
        let data = new_data(capacity);
        let header = Box::new(Header { data, capacity, handles: AtomicUsize::new(1) });
        Self { header: NonNull::from(Box::leak(header)) }
    }

    /// Another handle on the same block.
    pub(crate) fn share(&self) -> Self {
        self.header().handles.fetch_add(1, Ordering::Relaxed);
        Self { header: self.header }
    }

    /// Bytes that the block takes.
    pub(crate) fn capacity(&self) -> usize {
        self.header().capacity
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
        let kept = class_of(capacity).is_some_and(|class| {
            FREE.try_with(|free| {
                let _ = RELEASER.try_with(|_| ());
                free.borrow_mut().push(class, self.header)
            })
            .unwrap_or(false)
        });
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

/// Zeroed memory for a block's data, a multiple of a page of at least one.
fn new_data(capacity: usize) -> NonNull<u8> {
    let layout = data_layout(capacity);
    let data = if capacity < MAPPED {
        // SAFETY: the layout's size is not zero: capacity is at least a page.
        unsafe { alloc_zeroed(layout) }
    } else {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, at an address that the kernel chooses, touches nothing that exists.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), capacity, protection, flags, -1, 0) };
        if mapped == libc::MAP_FAILED { std::ptr::null_mut() } else { mapped.cast() }
    };
    NonNull::new(data).unwrap_or_else(|| handle_alloc_error(layout))
}

/// # Safety
/// `data` came from [`new_data`] with this capacity, and nobody uses it any more.
unsafe fn free_data(data: NonNull<u8>, capacity: usize) {
    if capacity < MAPPED {
        // SAFETY: allocated with this layout, by the caller's promise.
        unsafe { dealloc(data.as_ptr(), data_layout(capacity)) };
        return;
    }
    // SAFETY: a mapping of this length, by the caller's promise, which nobody uses.
    let unmapped = unsafe { libc::munmap(data.as_ptr().cast(), capacity) };
    // It fails only where the kernel would have to split a mapping that it joined and has no room for another one: the memory stays.
    debug_assert_eq!(unmapped, 0);
}

/// # Safety
/// `header` came from [`Block::take`], no handle is left, and it is not used again.
unsafe fn free_block(header: NonNull<Header>) {
    // SAFETY: made by Box::leak in `take`, and by the caller's promise freed once.
    let header = unsafe { Box::from_raw(header.as_ptr()) };
    // SAFETY: made in `take` with this capacity; the last handle is gone.
    unsafe { free_data(header.data, header.capacity) };
}
