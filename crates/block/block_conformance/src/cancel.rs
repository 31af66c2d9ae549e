//! Dropped futures: the effect is undecided, the device intact.

use aligned_buffer::IoBuf;
use block_device::{Device, Durability};
use futures_util::future::join_all;
use futures_util::poll;

use crate::check::{DEVICE, Outcome, data, done, fail, get, holds, put};
use crate::pattern::{self, Found, SECTOR};

/// Drops every kind of operation before its first and after its first poll, then uses the same ranges.
pub(crate) async fn dropped_futures(device: &Device) -> Outcome {
    let group = "dropped futures";
    let block = u64::from(device.geometry().block_size);
    let span = 32 * block;
    put(group, device, 0, 2 * span, 1).await?;
    for polls in 0..3 {
        let mut writes: Vec<_> = (0..16)
            .map(|n| {
                let offset = 2 * n * block;
                let durability = if n % 2 == 0 { Durability::Durable } else { Durability::Volatile };
                device.write(offset, data(offset, block as usize, 2), durability)
            })
            .collect();
        let mut flush = device.flush();
        let mut read = device.read(0, IoBuf::new(span as usize));
        for _ in 0..polls {
            // A future that ended must not be polled again: the ones that end at once leave the list.
            let mut left = Vec::new();
            for mut write in writes {
                if poll!(write.as_mut()).is_pending() {
                    left.push(write);
                }
            }
            writes = left;
        }
        if polls == 1 {
            let _ = poll!(flush.as_mut());
            let _ = poll!(read.as_mut());
        }
        drop((writes, flush, read));
        // No lock stays taken: the same ranges still work, alone and together.
        done(group, "flush after a dropped flush", device.flush().await)?;
        let buf = get(group, device, 0, span).await?;
        for (index, sector) in buf.chunks(SECTOR).enumerate() {
            let place = (index * SECTOR) as u64;
            let odd = place / block % 2 == 1;
            match pattern::identify(sector) {
                Found::Written { device: DEVICE, offset, generation: 1 } if offset == place => {}
                Found::Written { device: DEVICE, offset, generation: 2 } if offset == place && !odd => {}
                other => return fail(group, format!("sector at {place} holds {other:?}")),
            }
        }
        let writes = (0..16).map(|n| put(group, device, (2 * n + 1) * block, block, 1));
        for outcome in join_all(writes).await {
            outcome?;
        }
        holds(group, device, span, span, |_| 1).await?;
    }
    Ok(())
}
