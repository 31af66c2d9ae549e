//! Judging what was found, and content that says where it belongs.

use std::error::Error;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::BlockDevice;

/// Ends with what is wrong, for people.
pub type Fallible<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Unit of the content, in bytes.
pub(crate) const BLOCK: u64 = 4096;

/// Fails with a message unless it holds.
///
/// # Errors
/// The message.
pub fn ensure(holds: bool, what: impl FnOnce() -> String) -> Fallible {
    if holds { Ok(()) } else { Err(what().into()) }
}

/// Fails unless both are the same.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, expected: &T) -> Fallible {
    ensure(got == expected, || format!("{what}: it is\n  {got:?}\nand was\n  {expected:?}"))
}

/// A line of 32 bytes again and again, which says what, which write and where: little in an image, and never elsewhere.
pub(crate) fn content(what: &str, round: u32, offset: u64, len: u64) -> Vec<u8> {
    let block = |at: u64| format!("{what:>8}.{round} at block {:<11}\n", at / BLOCK).into_bytes();
    (0..len).step_by(32).flat_map(|at| block(offset + at)).take(len as usize).collect()
}

/// The same, to be written.
pub(crate) fn buffer(what: &str, round: u32, offset: u64, len: u64) -> SharedBuf {
    IoBuf::copy_from(&content(what, round, offset, len)).freeze()
}

/// Compares bytes, and says where they differ.
pub(crate) fn same_bytes(what: &str, got: &[u8], expected: &[u8]) -> Fallible {
    ensure(got.len() == expected.len(), || {
        format!("{what} has {} bytes, not {}", got.len(), expected.len())
    })?;
    let differs = got.iter().zip(expected).position(|(a, b)| a != b);
    ensure(differs.is_none(), || {
        let at = differs.unwrap_or_default() / 32 * 32;
        let line = |bytes: &[u8]| String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 32)]).into_owned();
        format!("{what} differs at byte {at}: {:?}, not {:?}", line(got), line(expected))
    })
}

/// The first `len` bytes of a device.
pub(crate) async fn read(device: &dyn BlockDevice, len: u64) -> Fallible<Vec<u8>> {
    Ok(device.read(0, IoBuf::new(len as usize)).await?.to_vec())
}
