//! Persistent reservations of a block device that other machines may reach, too. The machine is the initiator, with all paths that it has to
//! the device; who else opens it here is kept away by the exclusive opening.
//!
//! The system's calls wait for the device, so each is made on a thread of its own: there are a few when a pool is opened, and none later. One
//! that is dropped ends all the same, and has the device open until then.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use block_device::spc::{self, In};
use block_device::{BlockError, BlockErrorKind, BlockFuture, Reservation, Reservations};
use io_engine::{IoTarget, persistent_reservation as system};

use crate::LocalDisk;

/// Whether a block device that is open for writing keeps reservations for us: it answers when it is asked for its keys, and is no
/// partition, whose neighbours a reservation would concern as well.
pub(crate) fn are_kept(device: impl AsFd, number: u64) -> bool {
    let (major, minor) = (libc::major(number), libc::minor(number));
    let partition = Path::new("/sys/dev/block").join(format!("{major}:{minor}/partition"));
    if partition.exists() {
        return false;
    }
    match ask_keys(device.as_fd(), spc::KEYS_BYTES) {
        Ok(_) => true,
        // The kernel does not let this process ask: the device may keep some, and others may be kept from it only when we may say so.
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

fn ask_keys(device: BorrowedFd<'_>, len: u16) -> io::Result<Option<Vec<u64>>> {
    Ok(spc::keys(&ask(device, In::Keys, len)?))
}

fn ask(device: BorrowedFd<'_>, action: In, len: u16) -> io::Result<Vec<u8>> {
    let mut answer = vec![0; usize::from(len)];
    let came = system::read(device, &spc::command_in(action, len), &mut answer)?;
    answer.truncate(came);
    Ok(answer)
}

fn no_answer() -> io::Error {
    io::Error::other("the device's answer is none, or too long")
}

impl LocalDisk {
    /// Makes calls that wait for the device.
    async fn call<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(BorrowedFd<'_>) -> io::Result<T> + Send + 'static,
    ) -> Result<T, BlockError> {
        let failed = |error| BlockError::from_io(error, doing).on(self.name());
        let IoTarget::File(device) = self.target() else {
            return Err(BlockError::new(BlockErrorKind::Unsupported, doing).on(self.name()));
        };
        let device: Arc<OwnedFd> = Arc::clone(device);
        let (reply, answer) = tokio::sync::oneshot::channel();
        let calling = std::thread::Builder::new().name("reservation".into()).spawn(move || {
            let done = work(device.as_fd());
            // Closed before the answer is there: whoever gets it may open the device again.
            drop(device);
            let _ = reply.send(done);
        });
        calling.map_err(failed)?;
        answer.await.unwrap_or_else(|_| Err(io::Error::other("the calling thread has ended"))).map_err(failed)
    }
}

impl Reservations for LocalDisk {
    fn register(&self, key: u64) -> BlockFuture<'_, ()> {
        Box::pin(self.call("register", move |device| system::register(device, key)))
    }

    fn unregister(&self) -> BlockFuture<'_, ()> {
        Box::pin(self.call("unregister", |device| system::register(device, 0)))
    }

    fn keys(&self) -> BlockFuture<'_, BTreeSet<u64>> {
        Box::pin(self.call("read keys", |device| {
            for len in [spc::KEYS_BYTES, u16::MAX - 7] {
                if let Some(keys) = ask_keys(device, len)? {
                    return Ok(keys.into_iter().collect());
                }
            }
            Err(no_answer())
        }))
    }

    fn reservation(&self) -> BlockFuture<'_, Option<Reservation>> {
        Box::pin(self.call("read the reservation", |device| {
            spc::reservation(&ask(device, In::Reservation, spc::RESERVATION_BYTES)?).ok_or_else(no_answer)
        }))
    }

    fn reserve(&self, key: u64) -> BlockFuture<'_, ()> {
        Box::pin(self.call("reserve", move |device| system::reserve(device, key)))
    }

    fn preempt_and_abort(&self, key: u64, victim: u64) -> BlockFuture<'_, ()> {
        Box::pin(self.call("preempt and abort", move |device| system::preempt_and_abort(device, key, victim)))
    }
}
