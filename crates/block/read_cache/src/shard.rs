//! One shard: which pages are held, in which frames, in which order they go, and who writes where. Behind one lock.

use std::ops::Range;
use std::sync::Arc;

use observe::FastMap;

use crate::PAGE;
use crate::fifo::{Fifo, Ghosts, Key, Linked, Links, NONE};
use crate::stats::DeviceStats;

/// Frames that are taken and given back together: 128 KiB.
pub(crate) const CHUNK_FRAMES: usize = 32;
/// Bytes of a chunk.
pub(crate) const CHUNK: u64 = CHUNK_FRAMES as u64 * PAGE;
/// Stripes of a shard: with 64 shards, two of 100 writes in flight rarely share one.
const STRIPES: usize = 64;
/// Uses that a page remembers: S3-FIFO has two bits for it.
const MAX_USES: u8 = 3;
/// Part of the frames that new pages pass through, as a divisor.
const SMALL_PART: usize = 10;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Free,
    Small,
    Main,
}

struct Slot {
    key: Key,
    links: Links,
    place: Place,
    uses: u8,
    /// Being written: not to be read.
    hidden: bool,
    /// Read ahead and not asked for yet.
    ahead: bool,
}

struct Slots(Vec<Slot>);

impl Linked for Slots {
    fn links(&mut self, slot: u32) -> &mut Links {
        &mut self.0[slot as usize].links
    }
}

/// Writers of some runs: how many began so far, and how many have not ended.
#[derive(Clone, Copy, Default)]
struct Writers {
    begun: u64,
    active: u32,
}

/// Where writers were when a fill began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    stripe: u64,
    wide: u64,
    /// There was no writer at that moment.
    quiet: bool,
}

/// What a write left, for the pages that are held.
pub(crate) enum Left<'a> {
    /// These bytes; the slice begins at the write's first byte in this run.
    Data(&'a [u8]),
    /// Zeros.
    Zeros,
    /// The writers of that moment are not known any more.
    Unknown,
}

/// Invariants: `index` has exactly the slots that are in a queue; the frames of slot `n` are in chunk `n / CHUNK_FRAMES`,
/// which is there for every slot that is in a queue or in `free`; `used` counts the queued slots of each chunk.
pub(crate) struct Shard {
    index: FastMap<Key, u32>,
    slots: Slots,
    chunks: Vec<Option<Box<[u8]>>>,
    used: Vec<u16>,
    free: Vec<u32>,
    small: Fifo,
    main: Fifo,
    ghosts: Ghosts,
    allowed: usize,
    held: usize,
    stripes: [Writers; STRIPES],
    /// Writers of ranges too long to name each run.
    wide: Writers,
    devices: Vec<Option<Arc<DeviceStats>>>,
}

impl Shard {
    pub(crate) fn new() -> Self {
        Self {
            index: FastMap::default(),
            slots: Slots(Vec::new()),
            chunks: Vec::new(),
            used: Vec::new(),
            free: Vec::new(),
            small: Fifo::default(),
            main: Fifo::default(),
            ghosts: Ghosts::default(),
            allowed: 0,
            held: 0,
            stripes: [Writers::default(); STRIPES],
            wide: Writers::default(),
            devices: Vec::new(),
        }
    }

    /// Makes the counters of a device known, or takes them away.
    pub(crate) fn set_device(&mut self, device: u32, stats: Option<Arc<DeviceStats>>) {
        let at = device as usize;
        if self.devices.len() <= at {
            self.devices.resize(at + 1, None);
        }
        self.devices[at] = stats;
    }

    /// How many chunks the shard may have. What is too much goes by [`Shard::shrink`].
    pub(crate) fn allow(&mut self, chunks: usize) {
        self.allowed = chunks;
    }

    /// Chunks held.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Copies the pages from `first` on that are held into `out`; says which by bits, the first page's lowest.
    pub(crate) fn read(&mut self, first: Key, out: &mut [u8]) -> u32 {
        let mut found = 0;
        for (at, piece) in out.chunks_exact_mut(PAGE as usize).enumerate() {
            let key = Key { page: first.page + at as u64, ..first };
            let Some(slot) = self.index.get(&key).copied() else { continue };
            let state = &mut self.slots.0[slot as usize];
            if state.hidden {
                continue;
            }
            if state.ahead {
                // What was read ahead has been asked for once, not twice.
                state.ahead = false;
                count(&self.devices, key.device, |stats| stats.ahead_used.add(1));
            } else {
                state.uses = (state.uses + 1).min(MAX_USES);
            }
            piece.copy_from_slice(frame(&self.chunks, slot));
            found |= 1 << at;
        }
        found
    }

    /// Whether all pages of a range are held, without using them.
    pub(crate) fn holds(&self, device: u32, pages: Range<u64>) -> bool {
        pages.into_iter().all(|page| self.index.contains_key(&Key { device, page }))
    }

    /// What a fill must know before the device is asked.
    pub(crate) fn moment(&self, stripe: usize) -> Moment {
        let writers = self.stripes[stripe % STRIPES];
        Moment {
            stripe: writers.begun,
            wide: self.wide.begun,
            quiet: writers.active == 0 && self.wide.active == 0,
        }
    }

    /// Puts pages in that were read since `before`, unless somebody wrote meanwhile (R1).
    pub(crate) fn fill(&mut self, stripe: usize, before: Moment, first: Key, data: &[u8], ahead: bool) {
        if !before.quiet || self.moment(stripe) != before {
            return;
        }
        for (at, page) in data.chunks_exact(PAGE as usize).enumerate() {
            let key = Key { page: first.page + at as u64, ..first };
            if self.index.contains_key(&key) {
                continue;
            }
            let again = self.ghosts.take(key);
            let Some(slot) = self.take_frame() else { return };
            frame_mut(&mut self.chunks, slot).copy_from_slice(page);
            let place = if again { Place::Main } else { Place::Small };
            self.slots.0[slot as usize] =
                Slot { key, links: Links { newer: NONE, older: NONE }, place, uses: 0, hidden: false, ahead };
            self.used[slot as usize / CHUNK_FRAMES] += 1;
            self.index.insert(key, slot);
            self.enqueue(slot);
            count(&self.devices, key.device, |stats| {
                stats.inserted.add(1);
                stats.ahead.add(u64::from(ahead));
            });
        }
    }

    /// A write of these pages is about to begin: hides them. Also says whether any of them is held.
    pub(crate) fn begin_write(&mut self, stripe: usize, device: u32, pages: Range<u64>) -> bool {
        let mut held = false;
        for page in pages {
            if let Some(slot) = self.index.get(&Key { device, page }).copied() {
                self.slots.0[slot as usize].hidden = true;
                held = true;
            }
        }
        let writers = &mut self.stripes[stripe % STRIPES];
        writers.begun += 1;
        writers.active += 1;
        held
    }

    /// A write has ended. It covered `bytes`, counted from the device's beginning, of this run.
    ///
    /// The last writer of a stripe to end may put its data in: pages that another one overlapped have been forgotten when
    /// that one ended, or began (if it is a wide one), and none can have come back since.
    pub(crate) fn end_write(&mut self, stripe: usize, device: u32, bytes: Range<u64>, left: &Left<'_>) {
        let last = self.stripes[stripe % STRIPES].active == 1;
        for page in bytes.start / PAGE..bytes.end.div_ceil(PAGE) {
            let Some(slot) = self.index.get(&Key { device, page }).copied() else { continue };
            let start = bytes.start.max(page * PAGE);
            let end = bytes.end.min((page + 1) * PAGE);
            let place = (start - page * PAGE) as usize..(end - page * PAGE) as usize;
            let target = &mut frame_mut(&mut self.chunks, slot)[place];
            let from = (start - bytes.start) as usize;
            let source = match left {
                Left::Data(data) => data.get(from..from + target.len()),
                _ => None,
            };
            match (left, source) {
                (Left::Data(_), Some(source)) if last => target.copy_from_slice(source),
                (Left::Zeros, _) if last => target.fill(0),
                _ => {
                    self.invalidate(slot);
                    continue;
                }
            }
            self.slots.0[slot as usize].hidden = false;
        }
        let writers = &mut self.stripes[stripe % STRIPES];
        writers.active = writers.active.saturating_sub(1);
    }

    /// A change of a long range of a device is about to begin: forgets its pages.
    pub(crate) fn begin_wide(&mut self, device: u32, pages: Range<u64>) {
        self.wide.begun += 1;
        self.wide.active += 1;
        for slot in 0..self.slots.0.len() as u32 {
            let state = &self.slots.0[slot as usize];
            if state.place != Place::Free && state.key.device == device && pages.contains(&state.key.page) {
                self.invalidate(slot);
            }
        }
    }

    /// It has ended.
    pub(crate) fn end_wide(&mut self) {
        self.wide.active = self.wide.active.saturating_sub(1);
    }

    /// Gives one chunk back if there are more than allowed; whether there are still.
    pub(crate) fn shrink(&mut self) -> bool {
        if self.held <= self.allowed {
            return false;
        }
        while self.free.len() < CHUNK_FRAMES && self.evict() {}
        let there = |chunk: &usize| self.chunks[*chunk].is_some();
        let Some(chosen) = (0..self.chunks.len()).filter(there).min_by_key(|chunk| self.used[*chunk]) else {
            return false;
        };
        let frames = (chosen * CHUNK_FRAMES) as u32..((chosen + 1) * CHUNK_FRAMES) as u32;
        // What is free elsewhere suffices for what this chunk holds: 32 are free, and here are 32 less those that are held.
        self.free.retain(|slot| !frames.contains(slot));
        for from in frames {
            if self.slots.0[from as usize].place == Place::Free {
                continue;
            }
            match self.free.pop() {
                Some(to) => self.relocate(from, to),
                None => {
                    self.evict_slot(from);
                    self.free.pop();
                }
            }
        }
        self.chunks[chosen] = None;
        self.held -= 1;
        if self.held == 0 {
            self.ghosts.clear();
        }
        self.held > self.allowed
    }

    fn relocate(&mut self, from: u32, to: u32) {
        let (source, target) = (from as usize / CHUNK_FRAMES, to as usize / CHUNK_FRAMES);
        if let Some(chunk) = self.chunks[source].take() {
            let at = from as usize % CHUNK_FRAMES * PAGE as usize;
            frame_mut(&mut self.chunks, to).copy_from_slice(&chunk[at..][..PAGE as usize]);
            self.chunks[source] = Some(chunk);
        }
        self.slots.0.swap(from as usize, to as usize);
        let state = &self.slots.0[to as usize];
        self.index.insert(state.key, to);
        match state.place {
            Place::Main => self.main.moved(&mut self.slots, to),
            _ => self.small.moved(&mut self.slots, to),
        }
        self.used[source] -= 1;
        self.used[target] += 1;
    }

    fn take_frame(&mut self) -> Option<u32> {
        if self.held > self.allowed {
            // A smaller limit is being put into force: no new pages before it is.
            return None;
        }
        if self.free.is_empty() && self.held < self.allowed {
            self.grow();
        }
        if self.free.is_empty() {
            self.evict();
        }
        self.free.pop()
    }

    fn grow(&mut self) {
        let chunk = match self.chunks.iter().position(Option::is_none) {
            Some(hole) => hole,
            None => {
                self.chunks.push(None);
                self.used.push(0);
                self.chunks.len() - 1
            }
        };
        self.chunks[chunk] = Some(vec![0; CHUNK as usize].into_boxed_slice());
        self.held += 1;
        let nobody = Key { device: u32::MAX, page: 0 };
        let links = Links { newer: NONE, older: NONE };
        while self.slots.0.len() < (chunk + 1) * CHUNK_FRAMES {
            let slot = Slot { key: nobody, links, place: Place::Free, uses: 0, hidden: false, ahead: false };
            self.slots.0.push(slot);
        }
        self.free.extend((chunk * CHUNK_FRAMES) as u32..((chunk + 1) * CHUNK_FRAMES) as u32);
    }

    fn enqueue(&mut self, slot: u32) {
        match self.slots.0[slot as usize].place {
            Place::Main => self.main.push(&mut self.slots, slot),
            _ => self.small.push(&mut self.slots, slot),
        }
    }

    /// Takes a slot out of its queue and the index; its frame is free.
    fn remove(&mut self, slot: u32) -> (Key, bool) {
        match self.slots.0[slot as usize].place {
            Place::Main => self.main.remove(&mut self.slots, slot),
            _ => self.small.remove(&mut self.slots, slot),
        }
        let state = &mut self.slots.0[slot as usize];
        state.place = Place::Free;
        let (key, ahead) = (state.key, state.ahead);
        self.index.remove(&key);
        self.used[slot as usize / CHUNK_FRAMES] -= 1;
        self.free.push(slot);
        (key, ahead)
    }

    fn invalidate(&mut self, slot: u32) {
        let (key, ahead) = self.remove(slot);
        count(&self.devices, key.device, |stats| {
            stats.invalidated.add(1);
            stats.ahead_wasted.add(u64::from(ahead));
        });
    }

    fn evict_slot(&mut self, slot: u32) {
        let (key, ahead) = self.remove(slot);
        count(&self.devices, key.device, |stats| {
            stats.evicted.add(1);
            stats.ahead_wasted.add(u64::from(ahead));
        });
    }

    /// Frees one frame as S3-FIFO says; false when no page is held.
    fn evict(&mut self) -> bool {
        let room = self.allowed.max(self.held) * CHUNK_FRAMES;
        if self.small.len() >= (room / SMALL_PART).max(1) || self.main.len() == 0 {
            while let Some(slot) = self.small.oldest() {
                if self.slots.0[slot as usize].uses > 1 {
                    self.small.remove(&mut self.slots, slot);
                    let state = &mut self.slots.0[slot as usize];
                    state.place = Place::Main;
                    state.uses = 0;
                    self.main.push(&mut self.slots, slot);
                    continue;
                }
                let key = self.slots.0[slot as usize].key;
                self.evict_slot(slot);
                self.ghosts.add(key, room);
                return true;
            }
        }
        while let Some(slot) = self.main.oldest() {
            // Ends: each round takes one use away from somebody.
            if self.slots.0[slot as usize].uses == 0 {
                self.evict_slot(slot);
                return true;
            }
            self.slots.0[slot as usize].uses -= 1;
            self.main.remove(&mut self.slots, slot);
            self.main.push(&mut self.slots, slot);
        }
        match self.small.oldest() {
            Some(slot) => self.evict_slot(slot),
            None => return false,
        }
        true
    }

    /// What the invariants say, for tests.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let queued = |place| self.slots.0.iter().filter(|slot| slot.place == place).count();
        assert_eq!(self.index.len(), self.small.len() + self.main.len());
        assert_eq!((queued(Place::Small), queued(Place::Main)), (self.small.len(), self.main.len()));
        assert_eq!(self.held * CHUNK_FRAMES, self.index.len() + self.free.len());
        assert_eq!(self.held, self.chunks.iter().flatten().count());
        for (key, slot) in &self.index {
            assert_eq!(self.slots.0[*slot as usize].key, *key);
            assert!(self.chunks[*slot as usize / CHUNK_FRAMES].is_some());
        }
        let used: usize = self.used.iter().map(|used| usize::from(*used)).sum();
        assert_eq!(used, self.index.len());
    }
}

fn frame(chunks: &[Option<Box<[u8]>>], slot: u32) -> &[u8] {
    let at = slot as usize % CHUNK_FRAMES * PAGE as usize;
    // The shard's invariant: a slot that is used has its chunk.
    chunks[slot as usize / CHUNK_FRAMES].as_deref().map_or(&[], |chunk| &chunk[at..][..PAGE as usize])
}

fn frame_mut(chunks: &mut [Option<Box<[u8]>>], slot: u32) -> &mut [u8] {
    let at = slot as usize % CHUNK_FRAMES * PAGE as usize;
    chunks[slot as usize / CHUNK_FRAMES]
        .as_deref_mut()
        .map_or(&mut [], |chunk| &mut chunk[at..][..PAGE as usize])
}

fn count(devices: &[Option<Arc<DeviceStats>>], device: u32, add: impl FnOnce(&DeviceStats)) {
    if let Some(Some(stats)) = devices.get(device as usize) {
        add(stats);
    }
}
