//! Opening a log: replay.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockError, BlockErrorKind, Device, Geometry};
use parking_lot::Mutex;
use shard_runtime::Entropy;
use write_log_format::{BLOCK, Batch, BatchHead, EntryKind, Label, RING_START, Side, State};

use crate::core::{Core, Inner, Placed, error, range};
use crate::labels::{begin, read_label, write_label};
use crate::options::Options;
use crate::pieces::{Content, Piece, Pieces};
use crate::status::{Counters, LogMode};

/// Bytes read at once in search of damage.
const SEARCH: u64 = 1 << 20;

/// What a log shows of its back.
pub(crate) fn geometry(front: Option<&Device>, back: &Device) -> Geometry {
    let mut geometry = back.geometry().clone();
    geometry.read_only |= front.is_some_and(|front| front.geometry().read_only);
    geometry
}

/// Opens a log. Without a front only a back that has everything can be opened, unless what is missing is given up.
pub(crate) async fn open(
    front: Option<Device>,
    back: Device,
    options: Options,
    entropy: &dyn Entropy,
    accept_loss: bool,
) -> Result<Core, BlockError> {
    let doing = "open a write log";
    let Some(mut back_label) = read_label(&back, Side::Back).await? else {
        return Err(error(BlockErrorKind::Unsupported, doing, "its back has no label of a write log"));
    };
    if back_label.shift >= back.size() {
        return Err(error(BlockErrorKind::Media, doing, "its back is shorter than its label says"));
    }
    let geometry = geometry(front.as_ref(), &back);
    let mut inner = empty(back_label);
    let counters = Counters::default();
    match (&front, back_label.state) {
        (Some(_), State::Void) if geometry.read_only => {}
        // Everything is on the back; whatever the front has is older. A new log begins.
        (Some(front), State::Void) => match begin(front, &back, entropy).await? {
            Ok((front_label, label)) => {
                (inner.front_label, inner.back_label, inner.mode) = (front_label, label, LogMode::Logging);
            }
            // The log fell back for a reason, and the back has all there is: it serves without one.
            Err(why) => inner.reason = Some(format!("the log cannot be used: {why}")),
        },
        (Some(front), State::Attached) => {
            let label = read_label(front, Side::Front).await?;
            let Some(label) = label.filter(|label| label.log == back_label.log) else {
                return Err(error(
                    BlockErrorKind::Gone,
                    doing,
                    "its front is another device: attach the one it was made with",
                ));
            };
            if RING_START + label.ring > front.size() {
                return Err(error(BlockErrorKind::Media, doing, "its front is shorter than its label says"));
            }
            inner.front_label = label;
            inner.mode = LogMode::Logging;
            let size = back.size() - back_label.shift;
            replay(front, &mut inner, size, back.geometry().block_size, options, &counters).await?;
            if !geometry.read_only {
                // The last batch of a process that was killed may be in the front's cache only: behind what a power cut takes
                // from there no later batch would be found.
                front.flush().await?;
            }
        }
        (None, State::Void) => inner.reason = Some("the log is not there".into()),
        (None, State::Attached) if accept_loss => {
            back_label = Label { generation: back_label.generation + 1, state: State::Void, ..back_label };
            write_label(&back, Side::Back, &back_label).await?;
            inner.back_label = back_label;
            inner.reason = Some("the log was given up, with what was only there".into());
        }
        (None, State::Attached) => {
            let why = "its front is missing, and may hold acknowledged data that the back has not: bring it back, or accept the loss";
            return Err(error(BlockErrorKind::Gone, doing, why));
        }
    }
    Ok(core(front, back, geometry, options, inner, counters))
}

/// Puts a log before a back that has everything and says so. What fails is told apart: the front (then nothing has
/// changed), or the back (then what its label says is not known).
pub(crate) async fn attach(
    front: Device,
    back: Device,
    options: Options,
    entropy: &dyn Entropy,
) -> Result<Result<Core, BlockError>, BlockError> {
    #[cfg(test)]
    if options.sabotage == crate::tests::Sabotage::LabelBeforeFront {
        let label = Label { state: State::Attached, log: [1; 16], ..crate::labels::first_inside() };
        crate::labels::attach_back(&back, label).await?;
    }
    let (front_label, back_label) = match begin(&front, &back, entropy).await? {
        Ok(labels) => labels,
        Err(why) => return Ok(Err(why)),
    };
    let geometry = geometry(Some(&front), &back);
    let inner = Inner { front_label, mode: LogMode::Logging, ..empty(back_label) };
    Ok(Ok(core(Some(front), back, geometry, options, inner, Counters::default())))
}

/// A log that does not log yet, with nothing in it.
fn empty(back_label: Label) -> Inner {
    Inner {
        mode: LogMode::Through,
        pieces: Pieces::default(),
        queue: VecDeque::new(),
        given: 0,
        done: 0,
        leading: false,
        head: 0,
        tail: 0,
        next_batch: 0,
        batches: VecDeque::new(),
        reserved: 0,
        front_label: back_label,
        back_label,
        back_error: None,
        rounds_begun: 0,
        round_failed: 0,
        reason: None,
    }
}

fn core(
    front: Option<Device>,
    back: Device,
    geometry: Geometry,
    options: Options,
    inner: Inner,
    counters: Counters,
) -> Core {
    let shift = inner.back_label.shift;
    let writable = !geometry.read_only;
    Core {
        front,
        back,
        geometry,
        options,
        shift,
        changes: Default::default(),
        writing_back: Default::default(),
        rounds: Default::default(),
        flushes: Default::default(),
        labels: Default::default(),
        inner: Mutex::new(inner),
        progress: Default::default(),
        room: Default::default(),
        work: Arc::default(),
        // What an earlier process wrote past the log may be in the back's cache still: the first flush must reach it.
        unflushed: AtomicU64::new(u64::from(writable)),
        flushed: AtomicU64::new(0),
        counters,
    }
}

/// Reads what is committed from the tail on; nothing is written.
async fn replay(
    front: &Device,
    inner: &mut Inner,
    size: u64,
    block_size: u32,
    _options: Options,
    counters: &Counters,
) -> Result<(), BlockError> {
    let Label { ring, log, tail, tail_batch, reached, .. } = inner.front_label;
    let (mut at, mut number) = (tail, tail_batch);
    #[cfg(test)]
    let mut batches = Vec::new();
    while let Some((start, batch, bytes)) = next_batch(front, &inner.front_label, at, number).await? {
        for ((entry, _), place) in batch.head.entries.iter().zip(&batch.places) {
            let fits = block_device::check_range(entry.offset, entry.len, block_size, size);
            fits.map_err(|why| BlockError::new(BlockErrorKind::Media, "replay a write log").because(why))?;
            #[cfg(test)]
            batches.push((*entry, number, bytes.slice(place.clone())));
            apply(inner, entry, number, bytes.slice(place.clone()));
        }
        counters.replayed_batches.add(1);
        inner.batches.push_back(Placed { number, start });
        at = start + batch.head.batch_len();
        number += 1;
    }
    #[cfg(test)]
    crate::tests::sabotage_replay(_options.sabotage, inner, batches);
    // Batches are committed one after another, so only the last can be torn: anything of the log behind it is a sign of damage.
    if number < reached || is_later(front, ring, log, number).await? {
        let why = format!("batch {number} of its log is damaged, and later ones were acknowledged");
        return Err(error(BlockErrorKind::Media, "replay a write log", &why));
    }
    inner.head = at;
    inner.tail = tail;
    inner.next_batch = number;
    inner.done = inner.given;
    Ok(())
}

pub(crate) fn apply(inner: &mut Inner, entry: &write_log_format::Entry, number: u64, data: SharedBuf) {
    inner.given += 1;
    let write_log_format::Entry { kind, offset, len } = *entry;
    let content = match kind {
        EntryKind::Data => Content::Data(data),
        EntryKind::Zeroes => Content::Zeroes,
        EntryKind::Forget => {
            inner.pieces.remove(&range(offset, len));
            return;
        }
    };
    inner.pieces.insert(Piece { offset, len, ticket: inner.given, batch: Some(number), content });
}

/// The batch of this number at a position, or at the ring's beginning after it.
async fn next_batch(
    front: &Device,
    label: &Label,
    at: u64,
    number: u64,
) -> Result<Option<(u64, Batch, SharedBuf)>, BlockError> {
    let Label { ring, log, tail, checksum, .. } = *label;
    let beginning = at.next_multiple_of(ring);
    for start in [Some(at), (beginning != at).then_some(beginning)].into_iter().flatten() {
        let place = start % ring;
        if start + BLOCK - tail > ring {
            continue;
        }
        let head = front.read(RING_START + place, IoBuf::new(BLOCK as usize)).await?;
        let Ok(head) = BatchHead::decode(&head) else { continue };
        let len = head.batch_len();
        if head.log != log || head.number != number || place + len > ring || start + len - tail > ring {
            continue;
        }
        let bytes = front.read(RING_START + place, IoBuf::new(len as usize)).await?;
        if let Ok(batch) = Batch::decode(checksum, &bytes)
            && batch.head == head
        {
            return Ok(Some((start, batch, bytes.freeze())));
        }
    }
    Ok(None)
}

/// Whether the ring has a head of a batch above `number`.
async fn is_later(front: &Device, ring: u64, log: [u8; 16], number: u64) -> Result<bool, BlockError> {
    let mut at = 0;
    while at < ring {
        let len = SEARCH.min(ring - at);
        let part = front.read(RING_START + at, IoBuf::new(len as usize)).await?;
        let later =
            |block: &[u8]| BatchHead::decode(block).is_ok_and(|head| head.log == log && head.number > number);
        if part.chunks_exact(BLOCK as usize).any(later) {
            return Ok(true);
        }
        at += len;
    }
    Ok(false)
}
