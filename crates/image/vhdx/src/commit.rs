//! Headers and log of an image that is written: how changes of BAT and bitmaps become durable, each batch as a whole.
//!
//! ```text
//!   commit:  flush ──► entry n+1 to the log ──► flush ──► its sectors to their places
//!              │ what blocks hold is durable            │ acknowledged; a crash replays n+1
//!              └ what entry n changed is durable in its place, so n+1 is its own tail
//! ```
//! Of two entries that follow each other the later never overwrites the earlier: a torn write of n+1 leaves n, which says nothing
//! but what is in place already. The first entry of an opening is durable before the header says that the log counts.
//!
//! Where a write to the file finds no space, nothing of earlier writes is in doubt: the image goes on. What was to be committed is changed
//! and not committed again, as if nobody had asked; an entry that is durable and not in its place yet comes before the next one.

use aligned_buffer::IoBuf;
use block_device::Durability;
use vhdx_format::{Change, HEADER_OFFSETS, Header, LOG_SECTOR, LogEntry, MIB, Uuid, descriptors_in};

use crate::error::{ImageError, ImageErrorKind, Result};
use crate::image::Inner;
use crate::journal::{Journal, new_id};

impl Inner {
    /// Writes bytes to the file.
    pub(crate) async fn put(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let data = IoBuf::copy_from(bytes).freeze();
        Ok(self.source.file.write(offset, data, Durability::Volatile).await?)
    }

    pub(crate) async fn sync(&self) -> Result<()> {
        let flushed = self.source.file.flush().await.map_err(ImageError::from);
        // Whatever the reason is, what was written is in doubt.
        flushed.map_err(|error| match error.kind() {
            ImageErrorKind::NoSpace => ImageError::new(ImageErrorKind::Io, error.to_string()),
            _ => error,
        })
    }

    /// Puts a header in force, in both places, one after the other.
    async fn put_header(&self, journal: &mut Journal, header: Header) -> Result<()> {
        let mut header = header;
        journal.differs = true;
        for _ in 0..HEADER_OFFSETS.len() {
            header.sequence = journal.header.sequence.checked_add(1).ok_or_else(|| {
                ImageError::damaged("the header has the highest sequence number; no later one can be written")
            })?;
            let other = 1 - journal.current;
            self.put(HEADER_OFFSETS[other], &header.encode()).await?;
            self.sync().await?;
            (journal.current, journal.header) = (other, header);
        }
        journal.differs = false;
        Ok(())
    }

    /// Says in the file that it is being changed; `data`, that what users see is. Before the first such change.
    pub(crate) async fn begin_changes(&self, data: bool) -> Result<()> {
        self.begin_with(data.then(|| new_id(&*self.entropy))).await
    }

    /// As [`Inner::begin_changes`], with this id for the data, before anything of it was changed.
    pub(crate) async fn begin_changes_as(&self, data: Uuid) -> Result<()> {
        self.begin_with(Some(data)).await
    }

    async fn begin_with(&self, data: Option<Uuid>) -> Result<()> {
        let mut journal = self.journal.lock().await;
        self.check_stopped()?;
        if journal.file_changed && (journal.data_changed || data.is_none()) {
            return Ok(());
        }
        let mut header = Header { file_write_guid: new_id(&*self.entropy), ..journal.header };
        if let Some(id) = data {
            header.data_write_guid = id;
        }
        self.or_stop_unless_full(self.put_header(&mut journal, header).await)?;
        journal.file_changed = true;
        journal.data_changed |= data.is_some();
        Ok(())
    }

    /// Makes everything durable that has been done: content, and where it is.
    pub(crate) async fn commit(&self) -> Result<()> {
        let mut journal = self.journal.lock().await;
        self.check_stopped()?;
        let freed = self.space.take_freed();
        let batch = self.pages.take();
        if batch.is_empty() {
            self.space.committed(freed);
            return self.or_stop(self.sync().await);
        }
        // Bitmaps first, then the table from its end: so no entry is durable before what it needs, should they not fit one batch.
        // The entry of a bitmap block lies behind those of the payload blocks of its chunk.
        let bat = self.bat();
        let (table, mut ordered): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|(at, _)| (bat.offset..bat.end()).contains(at));
        ordered.extend(table.into_iter().rev());
        let committed = self.or_stop_unless_full(self.commit_batch(&mut journal, ordered).await);
        if committed.is_err() {
            self.pages.put_back();
            self.space.put_back(freed);
            return committed;
        }
        self.pages.applied();
        self.space.committed(freed);
        Ok(())
    }

    /// Makes these sectors durable through the log, as a whole where they fit into one entry.
    pub(crate) async fn commit_batch(
        &self,
        journal: &mut Journal,
        batch: Vec<(u64, Box<[u8]>)>,
    ) -> Result<()> {
        let log = journal.header.log_length as usize;
        // Two such entries lie beside each other wherever the first begins.
        let most = descriptors_in(log / 2 - LOG_SECTOR).max(1);
        self.apply(journal).await?;
        let mut rest = batch;
        while !rest.is_empty() {
            let later = rest.split_off(rest.len().min(most));
            // Somebody may make the file longer meanwhile: only of what was there before it is known that it is durable.
            let flushed = self.source.file.size();
            self.sync().await?;
            self.put_entry(journal, rest, flushed).await?;
            self.apply(journal).await?;
            rest = later;
        }
        Ok(())
    }

    /// Puts the sectors of the last entry into their places, if the log counts: the entry brings back what a crash leaves half done. If it
    /// does not count yet, nobody was told that they are durable.
    async fn apply(&self, journal: &mut Journal) -> Result<()> {
        if !journal.header.log_guid.is_nil() {
            for (at, bytes) in &journal.unapplied {
                self.put(*at, bytes).await?;
            }
        }
        journal.unapplied.clear();
        Ok(())
    }

    /// Makes an entry of the log durable; the file had `flushed` bytes when it was flushed.
    async fn put_entry(
        &self,
        journal: &mut Journal,
        sectors: Vec<(u64, Box<[u8]>)>,
        flushed: u64,
    ) -> Result<()> {
        let first = journal.header.log_guid.is_nil();
        let guid = if first { new_id(&*self.entropy) } else { journal.header.log_guid };
        let changes = sectors.iter().map(|(at, bytes)| Change::Data { offset: *at, bytes: bytes.clone() });
        let (log, head) = (journal.header.log_length as usize, journal.head);
        let sequence = journal.sequence + 1;
        let entry = LogEntry {
            sequence,
            tail: head as u32,
            log_guid: guid,
            // Whole MiB, as the format has them.
            flushed_file_offset: flushed / MIB * MIB,
            last_file_offset: self.source.file.size().next_multiple_of(MIB),
            changes: changes.collect(),
        };
        let bytes = entry.encode();
        let (one, two) = bytes.split_at(bytes.len().min(log - head));
        self.put(journal.header.log_offset + head as u64, one).await?;
        if !two.is_empty() {
            self.put(journal.header.log_offset, two).await?;
        }
        self.sync().await?;
        journal.head = (head + bytes.len()) % log;
        journal.sequence = sequence;
        journal.unapplied = sectors;
        if first || journal.differs {
            let header = Header { log_guid: guid, ..journal.header };
            self.put_header(journal, header).await?;
        }
        Ok(())
    }

    /// Everything is in its place, and the log counts no more: the file is as others like it.
    pub(crate) async fn end_log(&self) -> Result<()> {
        let mut journal = self.journal.lock().await;
        self.check_stopped()?;
        if journal.header.log_guid.is_nil() {
            return Ok(());
        }
        let ended = async {
            self.apply(&mut journal).await?;
            self.sync().await?;
            let header = Header { log_guid: Uuid::nil(), ..journal.header };
            self.put_header(&mut journal, header).await
        };
        let ended = ended.await;
        self.or_stop_unless_full(ended)
    }

    /// As [`Inner::or_stop`], but where a write has found no space, after which everything is known and can be done again.
    fn or_stop_unless_full<T>(&self, result: Result<T>) -> Result<T> {
        match result {
            Err(error) if error.kind() == ImageErrorKind::NoSpace => Err(error),
            result => self.or_stop(result),
        }
    }

    /// Stops the image when durability has failed: what the file holds of earlier writes is not known.
    pub(crate) fn or_stop<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.stopped.store(true, std::sync::atomic::Ordering::Release);
            self.stop_told.notify_waiters();
        }
        result
    }

    /// # Errors
    /// When the image has stopped.
    pub(crate) fn check_stopped(&self) -> Result<()> {
        if self.stopped.load(std::sync::atomic::Ordering::Acquire) {
            let told =
                "the image has stopped after a write to its file had failed; close it and open it again";
            return Err(ImageError::new(ImageErrorKind::Stopped, told));
        }
        Ok(())
    }
}
