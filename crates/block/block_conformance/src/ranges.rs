//! Ranges: what is refused, and that a refusal has no effect.

use aligned_buffer::IoBuf;
use block_device::{BlockErrorKind, Device, Durability};

use crate::check::{Outcome, data, done, holds, put, refused};

const UNALIGNED: &[BlockErrorKind] = &[BlockErrorKind::Unaligned];
const BEYOND: &[BlockErrorKind] = &[BlockErrorKind::OutOfRange];
const EITHER: &[BlockErrorKind] = &[BlockErrorKind::Unaligned, BlockErrorKind::OutOfRange];

/// Unaligned ranges, ranges beyond the end, and values whose sums overflow.
pub(crate) async fn bad_ranges(device: &Device) -> Outcome {
    let group = "ranges";
    let block = u64::from(device.geometry().block_size);
    let size = device.size();
    let end = size - 4 * block;
    put(group, device, 0, 4 * block, 1).await?;
    put(group, device, end, 4 * block, 1).await?;

    for (offset, len) in [(1, block), (block / 2, block), (block + 1, 2 * block), (size - block + 1, block)] {
        let kinds = if offset + len > size { EITHER } else { UNALIGNED };
        every_operation(group, device, offset, len, kinds).await?;
    }
    for (offset, len) in [(0, 1), (0, block - 1), (0, block + 1), (block, block / 2)] {
        every_operation(group, device, offset, len, UNALIGNED).await?;
    }
    let top = u64::MAX - (block - 1);
    for (offset, len) in [
        (size, block),
        (size - block, 2 * block),
        (size + block, block),
        (top, block),
        (top, 4 * block),
        (i64::MAX as u64 - (block - 1), block),
    ] {
        every_operation(group, device, offset, len, BEYOND).await?;
    }
    // Lengths that no buffer has.
    for (offset, len) in [(0, top), (block, top), (size, top), (top, top), (0, size + block)] {
        refused(group, "unmap", device.unmap(offset, len).await, BEYOND)?;
        for durability in [Durability::Volatile, Durability::Durable] {
            refused(group, "write_zeroes", device.write_zeroes(offset, len, durability).await, BEYOND)?;
        }
    }
    for (offset, len) in [(0, u64::MAX), (u64::MAX, 1), (u64::MAX, u64::MAX), (1, u64::MAX)] {
        refused(group, "unmap", device.unmap(offset, len).await, EITHER)?;
        refused(group, "write_zeroes", device.write_zeroes(offset, len, Durability::Volatile).await, EITHER)?;
    }
    // No refused operation had an effect, not even on the part of its range that exists.
    holds(group, device, 0, 4 * block, |_| 1).await?;
    holds(group, device, end, 4 * block, |_| 1).await
}

async fn every_operation(
    group: &'static str,
    device: &Device,
    offset: u64,
    len: u64,
    kinds: &[BlockErrorKind],
) -> Outcome {
    let at = |name: &str| format!("{name} at {offset}+{len}");
    refused(group, &at("read"), device.read(offset, IoBuf::zeroed(len as usize)).await, kinds)?;
    for durability in [Durability::Volatile, Durability::Durable] {
        let buf = data(0, len as usize, 9);
        refused(group, &at("write"), device.write(offset, buf, durability).await, kinds)?;
        refused(group, &at("write_zeroes"), device.write_zeroes(offset, len, durability).await, kinds)?;
    }
    refused(group, &at("unmap"), device.unmap(offset, len).await, kinds)
}

/// A length of zero succeeds and does nothing, at both ends of the device.
pub(crate) async fn zero_length(device: &Device) -> Outcome {
    let group = "zero length";
    let block = u64::from(device.geometry().block_size);
    put(group, device, 0, 2 * block, 2).await?;
    for offset in [0, block, device.size()] {
        let buf = done(group, "read", device.read(offset, IoBuf::new(0)).await)?;
        debug_assert!(buf.is_empty());
        for durability in [Durability::Volatile, Durability::Durable] {
            let empty = IoBuf::new(0).freeze();
            done(group, "write", device.write(offset, empty, durability).await)?;
            done(group, "write_zeroes", device.write_zeroes(offset, 0, durability).await)?;
        }
        done(group, "unmap", device.unmap(offset, 0).await)?;
    }
    done(group, "flush", device.flush().await)?;
    holds(group, device, 0, 2 * block, |_| 2).await
}

/// A read-only device refuses whatever changes it.
pub(crate) async fn read_only(device: &Device) -> Outcome {
    let group = "read-only";
    let block = u64::from(device.geometry().block_size);
    let kinds = &[BlockErrorKind::ReadOnly];
    let buf = data(0, block as usize, 3);
    refused(group, "write", device.write(0, buf, Durability::Volatile).await, kinds)?;
    refused(group, "write_zeroes", device.write_zeroes(0, block, Durability::Volatile).await, kinds)?;
    refused(group, "unmap", device.unmap(0, block).await, kinds)?;
    done(group, "read", device.read(0, IoBuf::new(block as usize)).await).map(drop)
}
