//! Operations in flight together.

use block_device::{Device, Durability};
use futures_util::future::join_all;

use crate::Rng;
use crate::check::{DEVICE, Outcome, data, done, fail, get, holds, put};
use crate::pattern::{self, Found, SECTOR};

/// Operations in flight together: above the depth of the engines' queues in tests.
const DEPTH: u64 = 96;

/// Many writes, reads, zeroes and flushes at once on disjoint ranges.
pub(crate) async fn disjoint(device: &Device) -> Outcome {
    let group = "concurrency";
    let block = u64::from(device.geometry().block_size);
    let span = 2 * block;
    put(group, device, 0, DEPTH * span, 1).await?;
    let work = (0..DEPTH).map(|n| async move {
        let offset = n * span;
        match n % 4 {
            0 => holds(group, device, offset, span, |_| 1).await,
            1 => {
                let zeroed = device.write_zeroes(offset, span, Durability::Volatile).await;
                done(group, "write_zeroes", zeroed)?;
                holds(group, device, offset, span, |_| 0).await
            }
            2 => {
                done(group, "flush", device.flush().await)?;
                put(group, device, offset, span, 2).await?;
                // An operation that starts after another completed sees its effect, whatever is in flight.
                holds(group, device, offset, span, |_| 2).await
            }
            _ => {
                let buf = data(offset, span as usize, 3);
                done(group, "write", device.write(offset, buf, Durability::Durable).await)?;
                holds(group, device, offset, span, |_| 3).await
            }
        }
    });
    for outcome in join_all(work).await {
        outcome?;
    }
    let expect = |place: u64| [1, 0, 2, 3][(place / span % 4) as usize];
    holds(group, device, 0, DEPTH * span, expect).await
}

/// Overlapping writes leave one winner in each block, and every later read shows the same one.
pub(crate) async fn overlapping(device: &Device, seed: u64) -> Outcome {
    let group = "overlapping writes";
    let block = u64::from(device.geometry().block_size);
    let area = 16;
    let mut rng = Rng::new(seed);
    for round in 0..12_u64 {
        let base = 1 + round * 100;
        put(group, device, 0, area * block, base).await?;
        let ranges: Vec<(u64, u64)> = (0..10)
            .map(|_| {
                let at = rng.below(area);
                (at, 1 + rng.below(area - at))
            })
            .collect();
        let writes = ranges.iter().zip(base + 1..).map(|((at, count), generation)| {
            let buf = data(at * block, (count * block) as usize, generation);
            device.write(at * block, buf, Durability::Durable)
        });
        for result in join_all(writes).await {
            done(group, "write", result)?;
        }
        let first = get(group, device, 0, area * block).await?;
        for (index, content) in first.chunks(block as usize).enumerate() {
            let mut sectors = content.chunks(SECTOR).map(pattern::identify);
            let winner = match sectors.next() {
                Some(Found::Written { device: DEVICE, offset, generation })
                    if offset == index as u64 * block =>
                {
                    generation
                }
                other => return fail(group, format!("block {index} holds {other:?}")),
            };
            let covers = |generation: u64| match generation.checked_sub(base + 1) {
                Some(n) => ranges
                    .get(n as usize)
                    .is_some_and(|(at, count)| (*at..at + count).contains(&(index as u64))),
                None => ranges.iter().all(|(at, count)| !(*at..at + count).contains(&(index as u64))),
            };
            if !covers(winner) {
                return fail(
                    group,
                    format!("block {index} holds write {winner}, which is not one of its own"),
                );
            }
            let same = |found| matches!(found, Found::Written { generation, .. } if generation == winner);
            if !sectors.all(same) {
                return fail(group, format!("block {index} mixes two writes"));
            }
        }
        for _ in 0..6 {
            let again = get(group, device, 0, area * block).await?;
            if again[..] != first[..] {
                return fail(group, format!("two reads differ after the writes of round {round} ended"));
            }
        }
    }
    Ok(())
}
