//! Zeroing and unmapping.

use block_device::{Device, Durability, UnmapBehavior};

use crate::check::{Outcome, done, get, holds, put};

/// Ranges in blocks that touch small, odd and wide runs.
const RUNS: [(u64, u64); 5] = [(0, 1), (5, 3), (8, 8), (17, 40), (127, 1)];

/// Zeroed ranges read as zeros, their neighbours as before; zeroed blocks can be written again.
pub(crate) async fn write_zeroes(device: &Device) -> Outcome {
    let group = "write_zeroes";
    let block = u64::from(device.geometry().block_size);
    for durability in [Durability::Volatile, Durability::Durable] {
        put(group, device, 0, 128 * block, 1).await?;
        for (at, count) in RUNS {
            let result = device.write_zeroes(at * block, count * block, durability).await;
            done(group, "write_zeroes", result)?;
        }
        let zeroed = |place: u64| RUNS.iter().any(|(at, n)| (*at..at + n).contains(&(place / block)));
        holds(group, device, 0, 128 * block, |place| u64::from(!zeroed(place))).await?;
        put(group, device, 8 * block, block, 7).await?;
        holds(group, device, 8 * block, block, |_| 7).await?;
    }
    let len = device.size();
    put(group, device, len - 3 * block, 3 * block, 2).await?;
    let whole = device.write_zeroes(0, len, Durability::Volatile).await;
    done(group, "write_zeroes of the whole device", whole)?;
    holds(group, device, 0, len, |_| 0).await
}

/// Unmapped ranges read as the geometry says; their neighbours as before.
pub(crate) async fn unmap(device: &Device) -> Outcome {
    let group = "unmap";
    let block = u64::from(device.geometry().block_size);
    put(group, device, 0, 128 * block, 1).await?;
    for (at, count) in RUNS {
        done(group, "unmap", device.unmap(at * block, count * block).await)?;
    }
    let unmapped = |place: u64| RUNS.iter().any(|(at, n)| (*at..at + n).contains(&(place / block)));
    match device.geometry().unmap {
        UnmapBehavior::Zeroes => {
            holds(group, device, 0, 128 * block, |place| u64::from(!unmapped(place))).await?;
        }
        UnmapBehavior::Ignored => holds(group, device, 0, 128 * block, |_| 1).await?,
        UnmapBehavior::Unspecified => {
            for at in (0..128).filter(|at| !unmapped(at * block)) {
                holds(group, device, at * block, block, |_| 1).await?;
            }
            // Whatever they hold, they can be read.
            let _ = get(group, device, 0, 128 * block).await?;
        }
    }
    put(group, device, 16 * block, 8 * block, 3).await?;
    holds(group, device, 16 * block, 8 * block, |_| 3).await?;
    done(group, "unmap of the whole device", device.unmap(0, device.size()).await)?;
    put(group, device, 0, 4 * block, 4).await?;
    holds(group, device, 0, 4 * block, |_| 4).await
}
