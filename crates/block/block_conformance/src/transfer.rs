//! What is written is read back: small, odd, large, whole.

use aligned_buffer::IoBuf;
use block_device::{BlockErrorKind, Device, Durability};

use crate::check::{DEVICE, Outcome, data, done, fail, get, holds, put, refused};
use crate::pattern;

/// Size of one large transfer: above every queue limit and stripe width of the devices below.
const LARGE: u64 = 8 << 20;

/// Single blocks and odd runs, neighbours untouched, both durabilities, first and last block.
pub(crate) async fn round_trips(device: &Device) -> Outcome {
    let group = "transfer";
    let block = u64::from(device.geometry().block_size);
    put(group, device, 0, 64 * block, 1).await?;
    for (index, (at, count)) in [(0, 1), (1, 1), (3, 2), (7, 9), (20, 31), (63, 1)].into_iter().enumerate() {
        let (offset, len) = (at * block, count * block);
        put(group, device, 0, 64 * block, 1).await?;
        let generation = 2 + index as u64;
        let durability = if index % 2 == 0 { Durability::Durable } else { Durability::Volatile };
        let buf = data(offset, len as usize, generation);
        done(group, "write", device.write(offset, buf, durability).await)?;
        let inside = |place| (offset..offset + len).contains(&place);
        holds(group, device, 0, 64 * block, |place| if inside(place) { generation } else { 1 }).await?;
        holds(group, device, offset, len, |_| generation).await?;
        done(group, "flush", device.flush().await)?;
        holds(group, device, offset, len, |_| generation).await?;
    }
    let last = device.size() - block;
    put(group, device, last, block, 50).await?;
    holds(group, device, last, block, |_| 50).await
}

/// One transfer of many megabytes, and one of the whole device where that is less.
pub(crate) async fn large(device: &Device) -> Outcome {
    let group = "large transfer";
    let block = u64::from(device.geometry().block_size);
    let len = (device.size() - 2 * block).min(LARGE + block);
    let buf = data(block, len as usize, 4);
    done(group, "write", device.write(block, buf, Durability::Durable).await)?;
    let buf = get(group, device, block, len).await?;
    for (index, sector) in buf.chunks(pattern::SECTOR).enumerate() {
        let offset = block + (index * pattern::SECTOR) as u64;
        let wanted = pattern::Found::Written { device: DEVICE, offset, generation: 4 };
        if pattern::identify(sector) != wanted {
            return fail(group, format!("sector at {offset} differs after one read of {len} bytes"));
        }
    }
    // The same bytes by another way of cutting them.
    holds(group, device, block, len, |_| 4).await
}

/// Several buffers in one write: few of them, many, one, none, one at an odd address, one that is beyond the end.
pub(crate) async fn several_buffers(device: &Device) -> Outcome {
    let group = "several buffers";
    let block = u64::from(device.geometry().block_size);
    for (generation, counts) in (2..).zip([vec![1, 3, 2], vec![1; 130], vec![5]]) {
        let len = counts.iter().sum::<u64>() * block;
        put(group, device, 0, len + 2 * block, 1).await?;
        let mut at = block;
        let parts = counts.iter().map(|count| {
            let part = data(at, (count * block) as usize, generation);
            at += count * block;
            part
        });
        let parts = parts.collect();
        done(group, "write", device.write_vectored(block, parts, Durability::Durable).await)?;
        let inside = |place| (block..block + len).contains(&place);
        holds(group, device, 0, len + 2 * block, |place| if inside(place) { generation } else { 1 }).await?;
    }
    // One of them begins at an odd address: that must work or be refused, never corrupt.
    let mut odd = IoBuf::zeroed(block as usize + 4);
    let _ = odd.split_to(4);
    pattern::fill(&mut odd, DEVICE, block, 7);
    let parts = vec![data(0, block as usize, 7), odd.freeze()];
    let generation = if device.write_vectored(0, parts, Durability::Volatile).await.is_ok() { 7 } else { 8 };
    if generation == 8 {
        put(group, device, 0, 2 * block, 8).await?;
    }
    holds(group, device, 0, 2 * block, |_| generation).await?;
    done(group, "write of nothing", device.write_vectored(0, Vec::new(), Durability::Volatile).await)?;
    let beyond = vec![data(0, block as usize, 9), data(0, block as usize, 9)];
    let last = device.size() - block;
    put(group, device, last, block, 50).await?;
    let end = device.write_vectored(last, beyond, Durability::Volatile).await;
    refused(group, "a write whose second part is beyond the end", end, &[BlockErrorKind::OutOfRange])?;
    holds(group, device, last, block, |_| 50).await
}

/// Parts of buffers: whole blocks in memory must work; odd memory must work or be refused, never corrupt.
pub(crate) async fn buffer_memory(device: &Device) -> Outcome {
    let group = "buffer memory";
    let block = device.geometry().block_size as usize;
    let whole = data(0, 8 * block, 5);
    let part = whole.slice(3 * block..5 * block);
    let offset = 3 * block as u64;
    put(group, device, 0, 8 * block as u64, 1).await?;
    done(group, "write of a slice", device.write(offset, part, Durability::Volatile).await)?;
    let mut buf = IoBuf::zeroed(4 * block);
    let head = buf.split_to(block);
    let mid = buf.split_to(2 * block);
    let mid = done(group, "read into a part", device.read(offset, mid).await)?;
    if mid[..] != whole[3 * block..5 * block] {
        return fail(group, "a read into a part of a buffer gave other bytes".into());
    }
    if head.iter().chain(buf.iter()).any(|byte| *byte != 0) {
        return fail(group, "a read into a part of a buffer touched its other parts".into());
    }
    // Memory that starts at an odd address.
    let mut odd = IoBuf::zeroed(block + 4);
    let _ = odd.split_to(4);
    pattern::fill(&mut odd, DEVICE, 0, 6);
    match device.write(0, odd.freeze(), Durability::Volatile).await {
        Ok(()) => holds(group, device, 0, block as u64, |_| 6).await?,
        Err(_) => put(group, device, 0, block as u64, 6).await?,
    }
    let mut odd = IoBuf::zeroed(block + 4);
    let _ = odd.split_to(4);
    if let Ok(odd) = device.read(0, odd).await
        && odd[..] != data(0, block, 6)[..]
    {
        return fail(group, "a read into odd memory gave other bytes".into());
    }
    Ok(())
}
