//! What checksums and parity cost: bytes a second on one core.
//!
//! ```text
//!   kernel_bench SECONDS
//! ```
//! Prints `sums_gb_s=… p_gb_s=… pq_gb_s=…`: checksums of 4 KiB blocks, parity of four units of data into one (`p`) and
//! two (`pq`), in bytes of data.

use std::hint::black_box;
use std::time::Duration;

use byte_codec::Checksum;
use shard_runtime::{Clock, SystemClock};

/// Length of a unit, in bytes: what the pool calculates at once.
const UNIT: usize = 256 << 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: f64 = std::env::args().nth(1).ok_or("usage: kernel_bench SECONDS")?.parse()?;
    let time = Duration::from_secs_f64(seconds);
    let units: Vec<Vec<u8>> = (0..4u8).map(|n| vec![n.wrapping_mul(37).wrapping_add(5); UNIT]).collect();
    let data: Vec<&[u8]> = units.iter().map(Vec::as_slice).collect();
    let (mut p, mut q) = (vec![0; UNIT], vec![0; UNIT]);
    let sums = rate(time, || {
        for block in data.iter().flat_map(|unit| unit.chunks_exact(4096)) {
            black_box(Checksum::default().of(black_box(block)));
        }
    });
    let single = rate(time, || pool_layout::parity::generate(black_box(&data), &mut p, None));
    let dual = rate(time, || pool_layout::parity::generate(black_box(&data), &mut p, Some(&mut q)));
    println!("sums_gb_s={sums:.2} p_gb_s={single:.2} pq_gb_s={dual:.2}");
    Ok(())
}

/// Gigabytes of data a second that `work` goes through, four units at a time.
fn rate(time: Duration, mut work: impl FnMut()) -> f64 {
    let clock = SystemClock::new();
    let (begun, mut rounds) = (clock.now(), 0u64);
    while clock.now().since(begun) < time {
        work();
        rounds += 1;
    }
    (rounds * 4 * UNIT as u64) as f64 / clock.now().since(begun).as_secs_f64() / 1e9
}
