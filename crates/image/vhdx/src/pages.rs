//! Sectors of BAT and sector bitmaps in memory: those that were used last, and all that are changed and not yet committed.
//!
//! ```text
//!   absent ──load──► clean ──change──► dirty ──take──► committing ──applied──► clean ──too many──► absent
//!                                        ▲                  │ change: dirty as well
//!                                        └──────────────────┘ put_back: no space
//! ```
//! Invariant: a sector that is dirty or committing is never given up, so what is read from the file is never older than what
//! was given up. Only one load at a time makes sure that none is older than a change that came and went meanwhile.
//!
//! Of each changed sector it is also known what is durable. So an operation whose places were durable long before needs no commit, and
//! no space, while others wait for some (`is_settled`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use vhdx_format::LOG_SECTOR;

use crate::error::{ImageError, Result};
use crate::memory::{Memory, Taken};
use crate::source::Source;

/// Sectors that are kept: 16 MiB of memory, which speak of 64 TiB of disk with blocks of 32 MiB.
const KEPT: usize = 4096;
/// Sectors that are an image's own: with all that can be dirty or committing it goes on, however little memory there is.
const OWN: usize = 4 * DIRTY_MAX;
/// Sectors that memory is asked for at a time.
const STEP: usize = 256;

/// What is changed and not committed, at most, before somebody commits it: a batch of so many fits the smallest log.
pub(crate) const DIRTY_MAX: usize = 64;

/// Bytes of a sector that are looked at together: an entry of the BAT, or bits of 64 sectors of the disk.
const SLOT: usize = 8;
const SLOTS: usize = LOG_SECTOR / SLOT;

pub(crate) struct Pages {
    inner: Mutex<Inner>,
    loading: tokio::sync::Mutex<()>,
}

/// What is durable of a sector that is changed.
struct Settled {
    bytes: Box<[u8]>,
    /// A bit for each slot of which a commit that failed may have made something else durable.
    doubtful: [u64; SLOTS / 64],
}

impl Settled {
    fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.into(), doubtful: [0; SLOTS / 64] }
    }

    /// A commit of this has failed.
    fn doubt(&mut self, tried: &[u8]) {
        let slots = self.bytes.chunks(SLOT).zip(tried.chunks(SLOT));
        for (slot, _) in slots.enumerate().filter(|(_, (durable, tried))| durable != tried) {
            self.doubtful[slot / 64] |= 1 << (slot % 64);
        }
    }

    /// Whether these bytes are durably what they are in memory.
    fn has(&self, page: &[u8], range: Range<usize>) -> bool {
        let mut slots = range.start / SLOT..range.end.div_ceil(SLOT);
        slots.all(|slot| self.doubtful[slot / 64] >> (slot % 64) & 1 == 0)
            && self.bytes.get(range.clone()) == page.get(range)
    }
}

struct Inner {
    /// How many may be kept now; the memory of those that are not its own is taken.
    most: usize,
    taken: Taken,
    pages: BTreeMap<u64, Box<[u8]>>,
    dirty: BTreeSet<u64>,
    /// With what of them is being committed.
    committing: BTreeMap<u64, Box<[u8]>>,
    /// Of those that are dirty or committing.
    settled: BTreeMap<u64, Settled>,
}

impl Inner {
    /// Makes room for one more: by more memory, or in place of others.
    fn make_room(&mut self) {
        if self.pages.len() < self.most {
            return;
        }
        if self.taken.is_tight() {
            return self.trim();
        }
        if self.most < KEPT && self.taken.grow(STEP * LOG_SECTOR) {
            self.most += STEP;
            return;
        }
        self.forget_down_to(self.most / 2);
    }

    /// Keeps what is its own.
    fn trim(&mut self) {
        self.forget_down_to(OWN / 2);
        self.most = OWN;
        self.taken.shrink_to(0);
    }

    /// Forgets sectors until there are no more than so many, or all others are needed. Which ones go is of no importance to a disk
    /// that needs more than are kept.
    fn forget_down_to(&mut self, count: usize) {
        let Self { pages, dirty, committing, .. } = self;
        let mut surplus = pages.len().saturating_sub(count);
        let mut every_other = false;
        for _ in 0..2 {
            pages.retain(|at, _| {
                every_other = !every_other;
                let goes = surplus > 0 && every_other && !dirty.contains(at) && !committing.contains_key(at);
                surplus -= usize::from(goes);
                !goes
            });
        }
    }
}

impl Pages {
    /// No sectors yet; the memory of most is taken here.
    pub(crate) fn new(memory: Arc<dyn Memory>) -> Self {
        let inner = Inner {
            most: OWN,
            taken: Taken::nothing(memory),
            pages: BTreeMap::new(),
            dirty: BTreeSet::new(),
            committing: BTreeMap::new(),
            settled: BTreeMap::new(),
        };
        Self { inner: Mutex::new(inner), loading: tokio::sync::Mutex::default() }
    }

    /// Gives back what others need more.
    pub(crate) fn trim_if_tight(&self) {
        let mut inner = self.inner.lock();
        if inner.most > OWN && inner.taken.is_tight() {
            inner.trim();
        }
    }

    /// Looks at the sector at `at` in the file.
    pub(crate) async fn look<T>(&self, source: &Source, at: u64, look: impl Fn(&[u8]) -> T) -> Result<T> {
        loop {
            if let Some(page) = self.inner.lock().pages.get(&at) {
                return Ok(look(page));
            }
            self.load(source, at).await?;
        }
    }

    /// Changes the sector at `at` in the file, until it is committed in memory only.
    pub(crate) async fn change<T>(
        &self,
        source: &Source,
        at: u64,
        change: impl Fn(&mut [u8]) -> T,
    ) -> Result<T> {
        loop {
            {
                let mut inner = self.inner.lock();
                let Inner { pages, dirty, settled, .. } = &mut *inner;
                if let Some(page) = pages.get_mut(&at) {
                    let before = page.clone();
                    let changed = change(page);
                    if *page != before {
                        settled.entry(at).or_insert_with(|| Settled::of(&before));
                        dirty.insert(at);
                    }
                    return Ok(changed);
                }
            }
            self.load(source, at).await?;
        }
    }

    async fn load(&self, source: &Source, at: u64) -> Result<()> {
        let _one = self.loading.lock().await;
        if self.inner.lock().pages.contains_key(&at) {
            return Ok(());
        }
        let bytes = source.bytes(at, LOG_SECTOR).await?;
        let mut inner = self.inner.lock();
        inner.make_room();
        inner.pages.insert(at, bytes.to_vec().into_boxed_slice());
        Ok(())
    }

    /// Whether there is anything to commit, or being committed.
    pub(crate) fn is_dirty(&self) -> bool {
        let inner = self.inner.lock();
        !inner.dirty.is_empty() || !inner.committing.is_empty()
    }

    /// Whether it is time to commit.
    pub(crate) fn is_full(&self) -> bool {
        self.inner.lock().dirty.len() >= DIRTY_MAX
    }

    /// Whether these bytes of the sector at `at` are durably what they are in memory: of what is not in memory, they are.
    pub(crate) fn is_settled(&self, at: u64, range: Range<usize>) -> bool {
        let inner = self.inner.lock();
        match (inner.pages.get(&at), inner.settled.get(&at)) {
            (Some(page), Some(settled)) => settled.has(page, range),
            _ => true,
        }
    }

    /// Takes what is to be committed, by offset. One at a time.
    pub(crate) fn take(&self) -> BTreeMap<u64, Box<[u8]>> {
        let mut inner = self.inner.lock();
        let Inner { pages, dirty, committing, .. } = &mut *inner;
        let taken = std::mem::take(dirty);
        let taken: BTreeMap<_, _> =
            taken.into_iter().filter_map(|at| Some((at, pages.get(&at)?.clone()))).collect();
        committing.clone_from(&taken);
        taken
    }

    /// What was taken could not be committed: it is changed and not committed, as before. Some of it may be durable all the same.
    pub(crate) fn put_back(&self) {
        let mut inner = self.inner.lock();
        let Inner { dirty, committing, settled, .. } = &mut *inner;
        for (at, tried) in std::mem::take(committing) {
            dirty.insert(at);
            if let Some(settled) = settled.get_mut(&at) {
                settled.doubt(&tried);
            }
        }
    }

    /// What was taken is durable.
    pub(crate) fn applied(&self) {
        let mut inner = self.inner.lock();
        let Inner { dirty, committing, settled, .. } = &mut *inner;
        for (at, bytes) in std::mem::take(committing) {
            if dirty.contains(&at) {
                settled.insert(at, Settled::of(&bytes));
            } else {
                settled.remove(&at);
            }
        }
    }

    /// Gives all sectors up: their places mean something else from now on. Nothing may be dirty.
    ///
    /// # Errors
    /// When something is.
    pub(crate) fn forget(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        if !inner.dirty.is_empty() || !inner.committing.is_empty() {
            return Err(ImageError::damaged("changes of the block table are not committed"));
        }
        inner.pages.clear();
        Ok(())
    }
}
