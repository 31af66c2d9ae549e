//! MODE SENSE and MODE SELECT, and what the administrator says of the write cache.

use file_store::StoreError;
use scsi_defs::{Cdb, Op, Sense, asc, be};

use crate::mode::{Mode, PAGES, WriteCache};
use crate::reply::{Failure, Outcome, Reply};
use crate::unit::LogicalUnit;
use crate::view::Caller;

impl LogicalUnit {
    /// Whether writes are cached now until SYNCHRONIZE CACHE.
    #[must_use]
    pub fn caches_writes(&self) -> bool {
        self.inner.lock().mode.write_cache
    }

    /// What the administrator said last of the write cache: whether it is on, and whether initiators may change that.
    #[must_use]
    pub fn write_cache_policy(&self) -> (bool, bool) {
        let WriteCache { on, by_initiators } = self.inner.lock().cache;
        (on, by_initiators)
    }

    /// Turns the write cache on or off, and says whether initiators may do so from now on. What was cached is flushed; if
    /// that fails, each nexus is told at its next flush. Initiators hear of the change.
    ///
    /// Where the storage is away, what initiators had saved is changed by the call that follows its return: see
    /// [`LogicalUnit::owes_its_mode`].
    ///
    /// # Errors
    /// The flush failed, or what initiators had saved could not be changed, which the next call tries again; the write cache
    /// is as asked for all the same.
    pub async fn set_write_cache(&self, on: bool, by_initiators: bool) -> Result<(), StoreError> {
        let _one_at_a_time = self.changes.lock().await;
        let wanted = WriteCache { on, by_initiators };
        let flush = {
            let mut inner = self.inner.lock();
            if inner.cache == wanted {
                false
            } else {
                inner.cache = wanted;
                let before = inner.mode.write_cache;
                (inner.mode.write_cache, inner.saved_mode.write_cache) = (on, on);
                inner.mode_unsaved = true;
                if before != on {
                    inner.attention_all(None, asc::MODE_PARAMETERS_CHANGED);
                }
                before && !on
            }
        };
        let flushed = if flush { self.flush_cached(None).await.1 } else { Ok(()) };
        if self.owes_its_mode() && !self.is_away() {
            // Only a row that initiators saved says anything; the administrator's word is in the configuration.
            let key = Self::row_key(&self.config.id, b'm');
            if self.store().load(&key).await?.is_some() {
                let saved = self.inner.lock().saved_mode;
                self.store().save(&key, Some(saved.encode())).await?;
            }
            self.inner.lock().mode_unsaved = false;
        }
        flushed
    }

    /// Whether what initiators had saved still says otherwise than the administrator did since:
    /// [`LogicalUnit::set_write_cache`] with the same words puts that right once the storage is there.
    #[must_use]
    pub fn owes_its_mode(&self) -> bool {
        self.inner.lock().mode_unsaved
    }

    pub(crate) fn mode_sense(&self, caller: &Caller<'_>, cdb: &Cdb) -> Outcome {
        let (long, control, code, subpage) =
            (cdb.op == Op::ModeSense10, cdb.byte(2) >> 6, cdb.byte(2) & 0x3f, cdb.byte(3));
        let inner = self.inner.lock();
        let (saved, current, cache) = (inner.saved_mode, inner.mode, inner.cache);
        let protected = u8::from(self.protected(&inner, caller)) << 7;
        drop(inner);
        if !(subpage == 0 || subpage == 0xff && code == 0x3f) {
            return Err(Sense::cdb_field(3).into());
        }
        let mode = match control {
            0 => current,
            2 => Mode { write_cache: cache.on, ..Mode::default() },
            3 => saved,
            _ => Mode { write_cache: cache.by_initiators, d_sense: true, tas: true, swp: true },
        };
        let mut pages = Vec::new();
        for known in PAGES {
            if (code == 0x3f || code == known)
                && let Some(mut page) = mode.page(known)
            {
                if control == 1 {
                    // Changeable: what differs between all set and all clear.
                    let clear = Mode::default().page(known).unwrap_or_default();
                    page.iter_mut().zip(clear).skip(2).for_each(|(byte, clear)| *byte ^= clear);
                }
                pages.extend_from_slice(&page);
            }
        }
        if pages.is_empty() {
            return Err(Sense::cdb_field(2).into());
        }
        let mut descriptor = Vec::new();
        if !cdb.bit(1, 3) {
            let blocks = self.blocks();
            if long && cdb.bit(1, 4) {
                descriptor.extend_from_slice(&blocks.to_be_bytes());
                descriptor.extend_from_slice(&[0; 4]);
            } else {
                descriptor.extend_from_slice(&u32::try_from(blocks).unwrap_or(u32::MAX).to_be_bytes());
            }
            descriptor.extend_from_slice(&self.config.block_size.to_be_bytes());
        }
        let specific = protected | 0x10; // DPOFUA
        let total = descriptor.len() + pages.len();
        let mut out = if long {
            let [high, low] = ((total + 6) as u16).to_be_bytes();
            vec![high, low, 0, specific, u8::from(descriptor.len() == 16), 0, 0, descriptor.len() as u8]
        } else {
            vec![(total + 3) as u8, 0, specific, descriptor.len() as u8]
        };
        out.extend_from_slice(&descriptor);
        out.extend_from_slice(&pages);
        Reply::parameters(&out, cdb.length())
    }

    pub(crate) async fn mode_select(&self, caller: &Caller<'_>, cdb: &Cdb, data: &[u8]) -> Outcome {
        let length = cdb.length() as usize;
        if !cdb.bit(1, 4) {
            return Err(Sense::cdb_field(1).into()); // PF=0: vendor-specific pages
        }
        if length == 0 {
            return Reply::good(0);
        }
        let short = || Failure::Sense(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR));
        let data = data.get(..length).ok_or_else(short)?;
        let (header, descriptor) = if cdb.op == Op::ModeSelect10 {
            (8, be(data, 6, 2) as usize)
        } else {
            (4, be(data, 3, 1) as usize)
        };
        let mut rest = data.get(header + descriptor..).ok_or_else(short)?;
        let _one_at_a_time = self.changes.lock().await;
        let (mut mode, by_initiators) = {
            let inner = self.inner.lock();
            (inner.mode, inner.cache.by_initiators)
        };
        while !rest.is_empty() {
            let at = (length - rest.len()) as u16;
            let current = mode.page(rest[0] & 0x3f).ok_or(Sense::parameter_field(at))?;
            if rest[0] & 0x40 != 0 || rest.get(1) != current.get(1) {
                return Err(Sense::parameter_field(at).into());
            }
            let page = rest.get(..current.len()).ok_or_else(short)?;
            match rest[0] & 0x3f {
                0x08 if by_initiators => mode.write_cache = page[2] & 4 != 0,
                0x0a => {
                    (mode.d_sense, mode.swp, mode.tas) =
                        (page[2] & 4 != 0, page[4] & 8 != 0, page[5] & 0x40 != 0)
                }
                _ => {}
            }
            // Bits that cannot be changed must be as they are.
            let now = mode.page(rest[0] & 0x3f).unwrap_or_default();
            if let Some(wrong) = (2..page.len()).find(|i| now[*i] != page[*i]) {
                return Err(Sense::parameter_field(at + wrong as u16).into());
            }
            rest = &rest[current.len()..];
        }
        let before = self.inner.lock().mode;
        if before.write_cache && !mode.write_cache {
            // What was cached must be safe before anyone relies on write-through.
            self.inner.lock().mode.write_cache = false;
            self.flush(caller.nexus.id).await?;
        }
        if cdb.bit(1, 0) {
            self.store().save(&Self::row_key(&self.config.id, b'm'), Some(mode.encode())).await?;
        }
        let mut inner = self.inner.lock();
        inner.mode = mode;
        if cdb.bit(1, 0) {
            inner.saved_mode = mode;
        }
        if before != mode {
            inner.attention_all(Some(caller.nexus.id), asc::MODE_PARAMETERS_CHANGED);
        }
        Reply::good(length as u64)
    }
}
