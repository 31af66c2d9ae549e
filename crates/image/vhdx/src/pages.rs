//! Sectors of BAT and sector bitmaps in memory: those that were used last, and all that are changed and not yet committed.
//!
//! ```text
//!   absent ──load──► clean ──change──► dirty ──take──► committing ──applied──► clean ──too many──► absent
//!                                        ▲                  │ change: dirty as well
//!                                        └──────────────────┘ put_back: no space
//! ```
//! Invariant: a sector that is dirty or committing is never given up, so what is read from the file is never older than what
//! was given up. Only one load at a time makes sure that none is older than a change that came and went meanwhile.

use std::collections::{BTreeMap, BTreeSet};
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

pub(crate) struct Pages {
    inner: Mutex<Inner>,
    loading: tokio::sync::Mutex<()>,
}

struct Inner {
    /// How many may be kept now; the memory of those that are not its own is taken.
    most: usize,
    taken: Taken,
    pages: BTreeMap<u64, Box<[u8]>>,
    dirty: BTreeSet<u64>,
    committing: BTreeSet<u64>,
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
                let goes = surplus > 0 && every_other && !dirty.contains(at) && !committing.contains(at);
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
            committing: BTreeSet::new(),
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
                if let Some(page) = inner.pages.get_mut(&at) {
                    let changed = change(page);
                    inner.dirty.insert(at);
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

    /// Takes what is to be committed, by offset.
    pub(crate) fn take(&self) -> BTreeMap<u64, Box<[u8]>> {
        let mut inner = self.inner.lock();
        let Inner { pages, dirty, committing, .. } = &mut *inner;
        committing.extend(dirty.iter());
        let taken = std::mem::take(dirty);
        taken.into_iter().filter_map(|at| Some((at, pages.get(&at)?.clone()))).collect()
    }

    /// What was taken could not be committed: it is changed and not committed, as before.
    pub(crate) fn put_back(&self) {
        let mut inner = self.inner.lock();
        let back = std::mem::take(&mut inner.committing);
        inner.dirty.extend(back);
    }

    /// What was taken is in its place in the file.
    pub(crate) fn applied(&self) {
        self.inner.lock().committing.clear();
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
