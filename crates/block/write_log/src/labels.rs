//! Labels on their devices, and making a log with them.

use aligned_buffer::IoBuf;
use block_device::{BlockError, BlockErrorKind, Device, Durability};
use byte_codec::{Checksum, DecodeError};
use shard_runtime::Entropy;
use write_log_format::{BLOCK, LABELS_INSIDE, Label, NO_LOG, RING_START, Side, State};

use crate::core::error;

/// The least that is kept from the back for its labels, in bytes; rounded up to whole stripes.
const SHIFT: u64 = 1 << 20;
/// The shortest ring, in bytes: a sixteenth is the longest batch.
const MIN_RING: u64 = 512 << 10;

/// Writes a label to its place, durably.
pub(crate) async fn write_label(device: &Device, side: Side, label: &Label) -> Result<(), BlockError> {
    let block = IoBuf::copy_from(&label.encode(side)).freeze();
    device.write(label.place(side), block, Durability::Durable).await
}

/// The newest label of a device. One of a later release is an error, not none: what it says is not known.
pub(crate) async fn read_label(device: &Device, side: Side) -> Result<Option<Label>, BlockError> {
    let mut found = None;
    let inside = LABELS_INSIDE..LABELS_INSIDE + 2 * BLOCK;
    let may_be_inside = side == Side::Back && device.size() >= inside.end;
    for first in [Some(0), may_be_inside.then_some(inside.start)].into_iter().flatten() {
        for place in [first, first + BLOCK] {
            let block = device.read(place, IoBuf::new(BLOCK as usize)).await?;
            let label = Label::decode(side, &block);
            if let Err(DecodeError::Unsupported(version)) = label {
                let why = format!("its label has version {version}, of a later release");
                return Err(error(BlockErrorKind::Unsupported, "read the label of a write log", &why));
            }
            // A label that lies elsewhere than it says is content that looks like one.
            found = Label::newer(found, label.ok().filter(|label| label.place(side) == place));
        }
        // Behind labels before the content lies what nobody uses.
        if found.is_some() {
            break;
        }
    }
    Ok(found)
}

pub(crate) fn shift_of(back: &Device) -> u64 {
    SHIFT.next_multiple_of(u64::from(back.geometry().optimal_io_size).max(BLOCK))
}

fn ring_of(front: &Device) -> Result<u64, BlockError> {
    let ring = front.size().saturating_sub(RING_START) / BLOCK * BLOCK;
    if ring < MIN_RING {
        let why = format!("it has {} bytes and needs at least {}", front.size(), MIN_RING + RING_START);
        return Err(error(BlockErrorKind::NoSpace, "use a device for a write log", &why));
    }
    Ok(ring)
}

/// Makes both labels of both devices, the back's last: whenever the power goes, the back either has its old label or a log
/// whose front is ready.
pub(crate) async fn format(front: &Device, back: &Device, entropy: &dyn Entropy) -> Result<(), BlockError> {
    // A back that has content keeps it where it is.
    let before = read_label(back, Side::Back).await?;
    let shift = before.map_or_else(|| shift_of(back), |label| label.shift);
    let label = format_front(front, back, shift, entropy).await?;
    attach_back(back, label).await
}

/// Begins a new log on a front. It counts when the back says so.
async fn format_front(
    front: &Device,
    back: &Device,
    shift: u64,
    entropy: &dyn Entropy,
) -> Result<Label, BlockError> {
    if back.size() <= shift {
        return Err(error(
            BlockErrorKind::NoSpace,
            "put a write log before a device",
            "the device is too small",
        ));
    }
    let before = read_label(front, Side::Front).await?.map_or(0, |label| label.generation);
    let label = Label {
        generation: before + 1,
        state: State::Attached,
        checksum: Checksum::default(),
        log: entropy.next_id(),
        shift,
        ring: ring_of(front)?,
        tail: 0,
        tail_batch: 0,
        reached: 0,
    };
    for generation in [before + 1, before + 2] {
        write_label(front, Side::Front, &Label { generation, ..label }).await?;
    }
    Ok(label)
}

/// Says on the back that the log on a front counts from now on.
pub(crate) async fn attach_back(back: &Device, label: Label) -> Result<(), BlockError> {
    let before = read_label(back, Side::Back).await?;
    let generation = before.map_or(0, |label| label.generation) + 1;
    write_label(back, Side::Back, &Label { generation, ..label }).await
}

/// Begins a new log before a back that has everything and a label: the labels of both. A front that fails is told apart
/// from a back that does.
pub(crate) async fn begin(
    front: &Device,
    back: &Device,
    entropy: &dyn Entropy,
) -> Result<Result<(Label, Label), BlockError>, BlockError> {
    let lost =
        || error(BlockErrorKind::Media, "open a write log", "a label that was just written cannot be read");
    let before = read_label(back, Side::Back).await?.ok_or_else(lost)?;
    let label = match format_front(front, back, before.shift, entropy).await {
        Ok(label) => label,
        Err(why) => return Ok(Err(why)),
    };
    let front_label = match read_label(front, Side::Front).await {
        Ok(found) => found.filter(|found| found.log == label.log),
        Err(why) => return Ok(Err(why)),
    };
    let Some(front_label) = front_label else { return Ok(Err(lost())) };
    attach_back(back, label).await?;
    let back_label = read_label(back, Side::Back).await?.ok_or_else(lost)?;
    Ok(Ok((front_label, back_label)))
}

/// The label with which a back that has content, and had no log so far, begins: it is to have none.
pub(crate) fn first_inside() -> Label {
    Label {
        generation: 1,
        state: State::Void,
        checksum: Checksum::default(),
        log: NO_LOG,
        shift: 0,
        ring: BLOCK,
        tail: 0,
        tail_batch: 0,
        reached: 0,
    }
}

/// Whether the back has a label that says that a log counts.
pub(crate) async fn is_attached(back: &Device) -> Result<bool, BlockError> {
    Ok(read_label(back, Side::Back).await?.is_some_and(|label| label.state == State::Attached))
}
