//! A CREATE and who asks for it: once begun it comes to an end of its own, so that nobody finds a file half made or half emptied.
//!
//! ```text
//!   who asks ─► Asking (polls, passes on that it waits) ─► the CREATE, which goes on when that is dropped
//!                  └─ dropped: gone ─► what waits for others gives up; what is done is closed again
//! ```

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

use smb_protocol::access::{AccessMask, CreateDisposition, CreateOptions, FileAttributes, ShareAccess};
use smb_protocol::{FileTime, NtStatus, Utf16};
use tokio::sync::Notify;

use crate::api::{CachingRequest, Caller, CreateRequest, DiskUse, Holder, LeftBehind};
use crate::error::{FileError, Result};

/// What becomes of who asks.
#[derive(Default)]
pub(super) struct Asker {
    gone: Cell<bool>,
    left: Notify,
    /// The CREATE waits for somebody else.
    waits: Cell<bool>,
}

impl Asker {
    /// # Errors
    /// CANCELLED when who asks is gone: nothing further is begun.
    pub(super) fn is_there(&self) -> Result<()> {
        if self.gone.get() {
            return Err(FileError::new(NtStatus::CANCELLED, "who asked is gone"));
        }
        Ok(())
    }

    /// Waits for somebody else, as long as who asks does.
    ///
    /// # Errors
    /// CANCELLED.
    pub(super) async fn unless_gone<T>(&self, wait: impl Future<Output = T>) -> Result<T> {
        let mut left = pin!(self.left.notified());
        left.as_mut().enable();
        self.is_there()?;
        tokio::select! {
            biased;
            done = wait => Ok(done),
            () = left => self.is_there().and(Err(FileError::new(NtStatus::CANCELLED, "who asked is gone"))),
        }
    }

    fn leave(&self) {
        self.gone.set(true);
        self.left.notify_waiters();
    }
}

/// Says that who asks is gone, unless it has the answer.
struct Leaving<'a>(&'a Asker, bool);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.leave();
        }
    }
}

/// Runs `work` for who asks, to its end in any case. `on_wait` is called when it begins to wait for somebody else, and when it goes on.
pub(super) async fn ask<T: 'static>(
    asker: Rc<Asker>,
    on_wait: &dyn Fn(bool),
    work: impl Future<Output = T> + 'static,
) -> T {
    // Dropped in the other order: who asks is gone before the work finds itself alone.
    let mut work = pin!(shard_runtime::finish_anyway(work));
    let mut leaving = Leaving(&asker, false);
    let mut told = false;
    let done = poll_fn(|cx| {
        let polled = work.as_mut().poll(cx);
        let waits = asker.waits.get();
        if std::mem::replace(&mut told, waits) != waits {
            on_wait(waits);
        }
        polled
    })
    .await;
    leaving.1 = true;
    done
}

/// A request that belongs to nobody else.
pub(super) struct OwnRequest {
    name: Vec<u8>,
    desired_access: AccessMask,
    attributes: FileAttributes,
    share_access: ShareAccess,
    disposition: CreateDisposition,
    options: CreateOptions,
    caching: CachingRequest,
    security: Option<Vec<u8>>,
    ea: Option<Vec<u8>>,
    allocation_size: Option<u64>,
    timewarp: Option<FileTime>,
    maximal_access: Option<Option<FileTime>>,
    on_disk_id: bool,
    disk: DiskUse,
    left_behind: Vec<LeftBehind>,
    holder: std::sync::Arc<dyn Holder>,
    pub(super) caller: Caller,
}

impl OwnRequest {
    pub(super) fn of(caller: &Caller, request: &CreateRequest<'_>) -> Self {
        Self {
            name: request.name.bytes().to_vec(),
            desired_access: request.desired_access,
            attributes: request.attributes,
            share_access: request.share_access,
            disposition: request.disposition,
            options: request.options,
            caching: request.caching,
            security: request.security.map(<[u8]>::to_vec),
            ea: request.ea.map(<[u8]>::to_vec),
            allocation_size: request.allocation_size,
            timewarp: request.timewarp,
            maximal_access: request.maximal_access,
            on_disk_id: request.on_disk_id,
            disk: request.disk,
            left_behind: request.left_behind.to_vec(),
            holder: std::sync::Arc::clone(&request.holder),
            caller: caller.clone(),
        }
    }

    /// The request, which tells `asker` that it waits.
    pub(super) fn request<'a>(&'a self, on_wait: &'a dyn Fn(bool)) -> Result<CreateRequest<'a>> {
        Ok(CreateRequest {
            name: Utf16::new(&self.name)?,
            desired_access: self.desired_access,
            attributes: self.attributes,
            share_access: self.share_access,
            disposition: self.disposition,
            options: self.options,
            caching: self.caching,
            security: self.security.as_deref(),
            ea: self.ea.as_deref(),
            allocation_size: self.allocation_size,
            timewarp: self.timewarp,
            maximal_access: self.maximal_access,
            on_disk_id: self.on_disk_id,
            disk: self.disk,
            left_behind: &self.left_behind,
            holder: std::sync::Arc::clone(&self.holder),
            on_wait,
        })
    }
}

impl Asker {
    /// Takes note whether the CREATE waits for somebody else.
    pub(super) fn waits(&self, waits: bool) {
        self.waits.set(waits);
    }
}
