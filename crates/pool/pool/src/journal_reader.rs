//! Reading the journal of a parity space: the chain of its records, from whichever copies have them whole.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{BlockError, BlockErrorKind};
use pool_format::{BLOCK, JOURNAL_ANCHORS, JournalAnchor, JournalKind, JournalRecord};

use crate::core::{Core, Space};
use crate::journal::{Stripes, Told};
use crate::journal_slab;
use crate::row::Row;

const BYTES: usize = BLOCK as usize;

/// Reads the journal: every structure from whichever copy has it whole.
pub(crate) struct Reader<'a> {
    pub(crate) core: &'a Arc<Core>,
    pub(crate) space: &'a Space,
    pub(crate) row: &'a Arc<Row>,
}

impl Reader<'_> {
    /// Asks the good copies for `blocks` blocks, one after the other, until what they answer satisfies `look`.
    async fn read<T>(&self, block: u64, blocks: u64, look: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        if block.checked_add(blocks)?.checked_mul(BLOCK)? > self.core.slab_size {
            return None;
        }
        let offset = block * BLOCK;
        let mask = self.space.striping.regions(offset, blocks * BLOCK);
        for copy in self.row.column(0).copies().iter().filter(|copy| copy.is_good(mask)) {
            let read = copy.disk.read(copy.start + offset, IoBuf::new((blocks * BLOCK) as usize)).await;
            if let Some(found) = read.ok().and_then(|data| look(&data)) {
                return Some(found);
            }
        }
        None
    }

    pub(crate) async fn anchor(&self) -> Option<JournalAnchor> {
        let mut newest: Option<JournalAnchor> = None;
        for block in 0..JOURNAL_ANCHORS {
            let ours = |bytes: &[u8]| {
                let anchor = JournalAnchor::decode(bytes).ok()?;
                (anchor.space == self.space.guid() && anchor.number % JOURNAL_ANCHORS == block)
                    .then_some(anchor)
            };
            // Copies may differ when the power went while it was written: the newest counts.
            for copy in self.row.column(0).copies().iter().filter(|copy| copy.is_good(1)) {
                let read = copy.disk.read(copy.start + block * BLOCK, IoBuf::new(BYTES)).await;
                if let Some(anchor) = read.ok().and_then(|data| ours(&data))
                    && newest.as_ref().is_none_or(|newest| anchor.number > newest.number)
                {
                    newest = Some(anchor);
                }
            }
        }
        newest
    }

    /// Follows the chain of records from the anchor on. Also the last of them and where it lies.
    pub(crate) async fn walk(&self, anchor: &JournalAnchor) -> (Stripes, Option<(u64, JournalRecord)>) {
        let (mut stripes, mut last) = (Stripes::new(), None);
        let (mut block, mut seq) = (anchor.tail.max(JOURNAL_ANCHORS), anchor.seq);
        loop {
            let mut found = self.record(anchor, block, seq).await;
            if found.is_none() && block != JOURNAL_ANCHORS {
                block = JOURNAL_ANCHORS;
                found = self.record(anchor, block, seq).await;
            }
            let Some(record) = found else { return (stripes, last) };
            last = Some((block, record.clone()));
            let mut payload = block + record.head_blocks();
            block = payload + record.payload_blocks();
            seq += 1;
            for entry in record.entries {
                if entry.kind == JournalKind::Void {
                    stripes.retain(|(row, _), _| *row != entry.row);
                    continue;
                }
                let stripe = self.space.striping.stripe_at(u64::from(entry.first) * BLOCK);
                let blocks = if entry.kind == JournalKind::Payload { entry.sums.len() as u64 } else { 0 };
                stripes.entry((entry.row, stripe)).or_default().push(Told { entry, payload });
                payload += blocks;
            }
        }
    }

    async fn record(&self, anchor: &JournalAnchor, block: u64, seq: u64) -> Option<JournalRecord> {
        // Not proven yet: a copy that is damaged there may announce anything.
        let announced = RefCell::new(BTreeSet::new());
        let ask = |bytes: &[u8]| -> Option<()> {
            announced.borrow_mut().extend(JournalRecord::announced(bytes).ok());
            None
        };
        self.read(block, 1, ask).await;
        let sound = |bytes: &[u8]| {
            let record = JournalRecord::decode(bytes).ok()?;
            (record.secret == anchor.secret && record.seq == seq).then_some(record)
        };
        let mut record = None;
        for heads in announced.into_inner() {
            if record.is_none() {
                record = self.read(block, heads, sound).await;
            }
        }
        let record = record?;
        let heads = record.head_blocks();
        // A record whose payload is not all there was never acknowledged.
        let mut at = block + heads;
        for entry in record.entries.iter().filter(|entry| entry.kind == JournalKind::Payload) {
            for sum in &entry.sums {
                self.payload(at, *sum).await?;
                at += 1;
            }
        }
        Some(record)
    }

    /// Writes a record that was found to all copies of the journal.
    pub(crate) async fn spread(&self, block: u64, record: &JournalRecord) -> Result<(), BlockError> {
        let mut bytes = record.encode();
        let mut at = block + record.head_blocks();
        for entry in record.entries.iter().filter(|entry| entry.kind == JournalKind::Payload) {
            for sum in &entry.sums {
                let gone = || BlockError::new(BlockErrorKind::Gone, "read the journal of a space");
                bytes.extend_from_slice(&self.payload(at, *sum).await.ok_or_else(gone)?);
                at += 1;
            }
        }
        journal_slab::put(self.core, self.space, block * BLOCK, IoBuf::copy_from(&bytes).freeze()).await
    }

    pub(crate) async fn payload(&self, block: u64, sum: u32) -> Option<Vec<u8>> {
        self.read(block, 1, |bytes| (self.space.checksum.of(bytes) == sum).then(|| bytes.to_vec())).await
    }
}
