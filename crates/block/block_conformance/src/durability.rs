//! What must survive the loss of power, for subjects that can lose it.

use block_device::Durability;

use crate::check::{DEVICE, Outcome, data, done, fail, get, holds, put};
use crate::pattern::{self, Found, SECTOR};
use crate::{Rng, Subject};

/// Durable writes survive alone; volatile ones once a flush completed after them; others may or may not.
pub(crate) async fn survives<S: Subject>(subject: &S, seed: u64) -> Outcome {
    let group = "durability";
    let mut device = subject.create().await;
    let block = u64::from(device.geometry().block_size);
    let mut rng = Rng::new(seed);
    for round in 0..6_u64 {
        let base = 1 + round * 10;
        put(group, &device, 0, 64 * block, base).await?;
        done(group, "flush", device.flush().await)?;
        // 0..16 durable · 16..32 volatile, flushed · 32..48 volatile, not flushed · 48..64 durable zeroes
        put(group, &device, 16 * block, 16 * block, base + 1).await?;
        done(group, "flush", device.flush().await)?;
        put(group, &device, 32 * block, 16 * block, base + 2).await?;
        for at in 0..16 {
            let buf = data(at * block, block as usize, base + 3);
            done(group, "write", device.write(at * block, buf, Durability::Durable).await)?;
        }
        let count = 1 + rng.below(16);
        let zeroed = device.write_zeroes(48 * block, count * block, Durability::Durable).await;
        done(group, "write_zeroes", zeroed)?;
        device = match subject.power_cut(device).await {
            Some(device) => device,
            None => return Ok(()),
        };
        holds(group, &device, 0, 16 * block, |_| base + 3).await?;
        holds(group, &device, 16 * block, 16 * block, |_| base + 1).await?;
        holds(group, &device, 48 * block, count * block, |_| 0).await?;
        holds(group, &device, (48 + count) * block, (16 - count) * block, |_| base).await?;
        let first = get(group, &device, 32 * block, 16 * block).await?;
        for (index, sector) in first.chunks(SECTOR).enumerate() {
            let place = 32 * block + (index * SECTOR) as u64;
            match pattern::identify(sector) {
                Found::Written { device: DEVICE, offset, generation }
                    if offset == place && (generation == base || generation == base + 2) => {}
                other => return fail(group, format!("unflushed sector at {place} holds {other:?}")),
            }
        }
        let again = get(group, &device, 32 * block, 16 * block).await?;
        if again[..] != first[..] {
            return fail(group, "two reads after a power cut differ".into());
        }
    }
    Ok(())
}
