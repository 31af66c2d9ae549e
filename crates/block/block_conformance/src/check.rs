//! How a check says what is wrong, and the operations all checks are made of.

use std::error::Error;
use std::fmt;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockError, BlockErrorKind, Device, Durability};

use crate::MIN_SIZE;
use crate::pattern::{self, Found, SECTOR};

/// A sentence of the contract that the device breaks.
#[derive(Debug)]
pub struct Failure {
    group: &'static str,
    what: String,
}

/// The result of a check.
pub type Outcome<T = ()> = Result<T, Failure>;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block device contract, {}: {}", self.group, self.what)
    }
}

impl Error for Failure {}

/// Ends a check.
pub(crate) fn fail<T>(group: &'static str, what: String) -> Outcome<T> {
    Err(Failure { group, what })
}

/// An operation that must succeed.
pub(crate) fn done<T>(group: &'static str, what: &str, result: Result<T, BlockError>) -> Outcome<T> {
    result.map_err(|error| {
        let cause = error.source().map(ToString::to_string).unwrap_or_default();
        Failure { group, what: format!("{what} failed: {error} {cause}") }
    })
}

/// An operation that must fail with one of `kinds`.
pub(crate) fn refused<T>(
    group: &'static str,
    what: &str,
    result: Result<T, BlockError>,
    kinds: &[BlockErrorKind],
) -> Outcome {
    match result {
        Ok(_) => fail(group, format!("{what} succeeded, but must fail with one of {kinds:?}")),
        Err(error) if kinds.contains(&error.kind()) => Ok(()),
        Err(error) => fail(group, format!("{what} failed with {:?}, not one of {kinds:?}", error.kind())),
    }
}

/// The name under which the suite writes its patterns.
pub(crate) const DEVICE: u64 = 0x00c0_ffee;

/// A buffer with the pattern of `generation` for `offset`.
pub(crate) fn data(offset: u64, len: usize, generation: u64) -> SharedBuf {
    let mut buf = IoBuf::new(len);
    pattern::fill(&mut buf, DEVICE, offset, generation);
    buf.freeze()
}

/// Writes the pattern of `generation`.
pub(crate) async fn put(
    group: &'static str,
    device: &Device,
    offset: u64,
    len: u64,
    generation: u64,
) -> Outcome {
    let buf = data(offset, len as usize, generation);
    done(group, "write", device.write(offset, buf, Durability::Volatile).await)
}

/// Reads a range.
pub(crate) async fn get(group: &'static str, device: &Device, offset: u64, len: u64) -> Outcome<IoBuf> {
    // Not zeroed: what the device does not fill must not pass for zeros.
    let mut buf = IoBuf::new(len as usize);
    buf.fill(0xa5);
    let buf = done(group, "read", device.read(offset, buf).await)?;
    if buf.len() as u64 != len {
        return fail(group, format!("read of {len} bytes gave {} back", buf.len()));
    }
    Ok(buf)
}

/// Every sector of the range must be as `expect` says for its offset: a generation, 0 for zeros.
pub(crate) async fn holds(
    group: &'static str,
    device: &Device,
    offset: u64,
    len: u64,
    expect: impl Fn(u64) -> u64,
) -> Outcome {
    // In pieces, so that checking a whole device does not need its size in memory.
    const PIECE: u64 = 1 << 20;
    let mut at = offset;
    while at < offset + len {
        let piece = PIECE.min(offset + len - at);
        let buf = get(group, device, at, piece).await?;
        for (index, sector) in buf.chunks(SECTOR).enumerate() {
            let place = at + (index * SECTOR) as u64;
            let generation = expect(place);
            let wanted = match generation {
                0 => Found::Zero,
                generation => Found::Written { device: DEVICE, offset: place, generation },
            };
            let found = pattern::identify(sector);
            if found != wanted {
                return fail(group, format!("sector at {place} holds {found:?}, not {wanted:?}"));
            }
        }
        at += piece;
    }
    Ok(())
}

/// The properties must make sense together.
pub(crate) fn geometry(device: &Device) -> Outcome {
    let group = "geometry";
    let (geometry, size) = (device.geometry(), device.size());
    let block = geometry.block_size;
    if block != 512 && block != 4096 {
        return fail(group, format!("block size {block} is neither 512 nor 4096"));
    }
    if !geometry.physical_block_size.is_power_of_two() || geometry.physical_block_size < block {
        return fail(group, format!("physical block size of {geometry:?}"));
    }
    if !geometry.optimal_io_size.is_multiple_of(block) {
        return fail(group, format!("optimal I/O size of {geometry:?} is not whole blocks"));
    }
    if !size.is_multiple_of(u64::from(block)) {
        return fail(group, format!("size {size} is not whole blocks of {block}"));
    }
    if size < MIN_SIZE {
        return fail(group, format!("size {size} is below the suite's minimum of {MIN_SIZE}"));
    }
    Ok(())
}

impl Failure {
    /// Adds to the description.
    pub(crate) fn adding(mut self, text: &str) -> Self {
        self.what.push_str(text);
        self
    }
}
