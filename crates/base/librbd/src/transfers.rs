//! Reads and writes: begun here, ended by the library's threads.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use tokio::sync::oneshot;

use crate::failure::check;
use crate::symbols::{Handle, Symbols};
use crate::{Failure, Image};

/// What a transfer holds until its completion is called, also when nobody waits for it any more: a place among those under way.
pub type Held = Box<dyn Send>;

/// A transfer under way: it owns its buffer, and holds its image and what it was given to hold, until its completion is called.
struct Transfer<B> {
    buffer: B,
    image: Arc<Image>,
    held: Held,
    ended: oneshot::Sender<(B, isize)>,
}

/// Called by the library when a transfer has ended.
///
/// # Safety
/// `argument` is a `Transfer<B>` of [`begin`] that nobody else has, `completion` its completion.
unsafe extern "C" fn complete<B>(completion: Handle, argument: *mut c_void) {
    // SAFETY: as promised; the library has accepted the transfer and calls this once.
    let transfer = unsafe { Box::from_raw(argument.cast::<Transfer<B>>()) };
    let symbols = transfer.image.pool.cluster.symbols;
    // SAFETY: the completion is alive until it is released, which is here.
    let result = unsafe {
        let result = (symbols.rbd_aio_get_return_value)(completion);
        (symbols.rbd_aio_release)(completion);
        result
    };
    let Transfer { buffer, image, held, ended } = *transfer;
    // Before it is told: who waits may want to close the image.
    drop(image);
    drop(held);
    // Nobody waits where the future was dropped.
    let _ = ended.send((buffer, result));
}

/// Begins a transfer by `start`, which is given the library, the image's handle, the buffer and the completion.
fn begin<B: Send + 'static>(
    image: &Arc<Image>,
    (buffer, held): (B, Held),
    doing: &'static str,
    start: impl FnOnce(&Symbols, Handle, &mut B, Handle) -> i32,
) -> Result<oneshot::Receiver<(B, isize)>, Failure> {
    let symbols = image.pool.cluster.symbols;
    let (ended, ends) = oneshot::channel();
    let transfer = Box::into_raw(Box::new(Transfer { buffer, image: Arc::clone(image), held, ended }));
    let mut completion = ptr::null_mut();
    // SAFETY: `completion` is where the new one goes; `complete` gets what it wants.
    let made =
        unsafe { (symbols.rbd_aio_create_completion)(transfer.cast(), complete::<B>, &raw mut completion) };
    let started = check(made, doing).and_then(|_| {
        // SAFETY: the transfer is ours until the library has accepted it; then `start` has used it already, as it gets the buffer's
        // address out of it before it calls the library.
        let buffer = unsafe { &mut (*transfer).buffer };
        check(start(symbols, image.handle.0, buffer, completion), doing).inspect_err(|_| {
            // SAFETY: it was not accepted, so nobody else has it.
            unsafe { (symbols.rbd_aio_release)(completion) };
        })
    });
    match started {
        Ok(_) => Ok(ends),
        Err(failure) => {
            // SAFETY: it was not accepted, so nobody else has it.
            drop(unsafe { Box::from_raw(transfer) });
            Err(failure)
        }
    }
}

/// Waits for the end. The result of a read is how much was read, of everything else nothing of use.
async fn end<B>(ends: oneshot::Receiver<(B, isize)>, doing: &'static str) -> Result<(B, usize), Failure> {
    // A library that drops a completion without calling it does not exist; an answer would be none.
    let (buffer, result) = ends.await.map_err(|_| Failure::Answer { doing, code: 5 })?;
    match usize::try_from(result) {
        Ok(moved) => Ok((buffer, moved)),
        Err(_) => {
            let code = i32::try_from(result.unsigned_abs()).unwrap_or(5);
            Err(Failure::Answer { doing, code })
        }
    }
}

impl Image {
    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// What the library answers. The buffer is gone.
    pub async fn read(self: &Arc<Self>, offset: u64, buffer: IoBuf, held: Held) -> Result<IoBuf, Failure> {
        let doing = "read";
        let ends = begin(self, (buffer, held), doing, |symbols, image, buffer, completion| {
            let (bytes, len) = (buffer.as_mut_ptr(), buffer.len());
            // SAFETY: the transfer owns the buffer until the completion, and nobody else has it.
            unsafe { (symbols.rbd_aio_read)(image, offset, len, bytes.cast(), completion) }
        })?;
        let (buffer, moved) = end(ends, doing).await?;
        match moved == buffer.len() {
            true => Ok(buffer),
            // Cut off at the end of an image that has shrunk.
            false => Err(Failure::Answer { doing, code: 5 }),
        }
    }

    /// Writes `data` at `offset`. When it has ended, all copies have it durably, unless the library keeps a cache of its own.
    ///
    /// # Errors
    /// What the library answers; it may have been written.
    pub async fn write(self: &Arc<Self>, offset: u64, data: SharedBuf, held: Held) -> Result<(), Failure> {
        let doing = "write";
        let ends = begin(self, (data, held), doing, |symbols, image, data, completion| {
            let (bytes, len) = (data.as_ptr(), data.len());
            // SAFETY: the transfer holds the buffer until the completion; a shared buffer is never changed.
            unsafe { (symbols.rbd_aio_write)(image, offset, len, bytes.cast(), completion) }
        })?;
        end(ends, doing).await.map(drop)
    }

    /// Makes a range read as zeros; objects of it that are whole are given back.
    ///
    /// # Errors
    /// What the library answers; a part may have been done.
    pub async fn write_zeroes(self: &Arc<Self>, offset: u64, len: usize, held: Held) -> Result<(), Failure> {
        let doing = "write zeroes";
        let ends = begin(self, ((), held), doing, |symbols, image, (), completion| {
            // SAFETY: the image is held by the transfer; there is no buffer.
            unsafe { (symbols.rbd_aio_write_zeroes)(image, offset, len, completion, 0, 0) }
        })?;
        end(ends, doing).await.map(drop)
    }

    /// Makes every write that has ended durable.
    ///
    /// # Errors
    /// What the library answers.
    pub async fn flush(self: &Arc<Self>, held: Held) -> Result<(), Failure> {
        let doing = "flush";
        let ends = begin(self, ((), held), doing, |symbols, image, (), completion| {
            // SAFETY: the image is held by the transfer; there is no buffer.
            unsafe { (symbols.rbd_aio_flush)(image, completion) }
        })?;
        end(ends, doing).await.map(drop)
    }
}
