//! CLOSE, and what goes with the last open (MS-FSA 2.1.5.4).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use file_store::{Access, OpenOptions, StoreErrorKind};
use smb_protocol::NtStatus;
use smb_protocol::access::FileAttributes;
use smb_protocol::directory::CompletionFilter;
use smb_protocol::fscc::notify::NotifyAction;

use crate::api::{Caller, OpenInfo};
use crate::error::{Result, refuse};
use crate::file_system::{Core, Open, Pin};

/// What has to go now that an open is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    file: bool,
    stream: bool,
    /// That was promised to be durable to somebody who asked for it, or is to the one who closes.
    durably: bool,
}

impl Open {
    /// Closes it: releases locks and caching, ends waits, deletes what is to be deleted. With `query`, returns times, sizes
    /// and attributes as they were before.
    ///
    /// # Errors
    /// FILE_CLOSED when it was closed already; what the deletion met is logged, not returned.
    pub async fn close(self: &Arc<Self>, query: bool) -> Result<Option<OpenInfo>> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return refuse(NtStatus::FILE_CLOSED, "the file is closed");
        }
        // Nothing of it stops half-way when the connection goes: nobody else would close it.
        let open = Arc::clone(self);
        let closing = async move {
            open.changes.ended().await;
            open.show_write_time_at_close().await;
            let info = if query { open.info().await.ok() } else { None };
            open.finish_closing().await;
            info
        };
        Ok(shard_runtime::finish_anyway(closing).await)
    }

    /// Lets go of it without closing it, as its volume goes away: nothing is deleted, and what is stored of it stays for who
    /// serves the volume next.
    pub fn release(&self) {
        if let Some(watch) = self.watch.get() {
            self.core.watches.remove(self.node.file, watch);
        }
        self.leave();
        let data = self.data.write().take();
        drop(data);
    }

    async fn finish_closing(self: Arc<Self>) {
        let core = &self.core;
        if let Some(watch) = self.watch.get() {
            core.watches.remove(self.node.file, watch);
        }
        if self.delete_was_asked() {
            // Who only keeps a handle for later would keep the file: it is asked to close it.
            core.give_up_handles(&self.node, &self.stream, &self.by()).await;
            core.mark_deleted(&self).await;
        }
        let left = self.leave();
        let data = self.data.write().take();
        drop(data);
        if left.stream {
            core.remove_stream(&self, left.durably).await;
        }
        if left.file {
            core.remove_file(&self.node, Some(&self), left.durably).await;
        } else if self.wrote.load(Ordering::Acquire)
            && let Some((parent, _)) = self.node.place()
        {
            // Sizes and times in the listing are right only now (MS-FSA 2.1.5.4 flushes them to the directory).
            core.listing_changed(&parent, Some(&self)).await;
        }
    }

    fn delete_was_asked(&self) -> bool {
        self.state.lock().delete_on_close
    }

    /// Leaves the tables; says what has to go with it.
    pub(crate) fn leave(&self) -> Left {
        self.closed.store(true, Ordering::Release);
        let core = &self.core;
        let (left, lease, spare) = {
            let mut state = self.node.state.lock();
            let at = state.opens.iter().position(|open| open.id == self.id);
            // Not dropped under the lock: it may be the last handle on a node above.
            let spare = at.map(|at| state.opens.swap_remove(at));
            let by_name = |open: &&Arc<Open>| Arc::ptr_eq(&open.node.name, &self.node.name);
            let last = !state.opens.iter().any(|open| by_name(&open));
            let last_of_stream = !state.opens.iter().any(|open| open.stream == self.stream);
            let file = last && self.node.name.is_going() && spare.is_some();
            let durably = self.is_durable() || (file && self.node.name.goes_durably());
            let mut left = Left { file, stream: false, durably };
            let mut lease = None;
            if let Some(stream) = state.streams.get_mut(&self.stream) {
                lease = stream.caching.close(self.id);
                let locks = stream.locks.of(self.id).count();
                stream.locks.release(self.id);
                self.node.locked.fetch_sub(locks, Ordering::AcqRel);
                left.stream = last_of_stream && stream.delete_pending && spare.is_some();
                left.durably |= left.stream && stream.delete_durably;
                if last_of_stream && !left.stream {
                    state.streams.remove(&self.stream);
                }
            }
            (left, lease, spare)
        };
        drop(spare);
        if let Some(name) = lease {
            core.leases.lock().remove(&name);
        }
        let open = core.opens.lock().remove(&self.id);
        drop(open);
        self.node.changed.notify_waiters();
        self.node.unlocked.notify_waiters();
        left
    }
}

impl Core {
    /// Whether a file, or one of its streams, may be deleted, at once or with an open: asked by whatever can delete it.
    ///
    /// # Errors
    /// CANNOT_DELETE; SHARING_VIOLATION where another user of the store (a LUN) has the file open and keeps it.
    pub(crate) async fn check_deletion(
        &self,
        caller: &Caller,
        node: &Pin,
        stream: &str,
        attributes: FileAttributes,
        ignore_read_only: bool,
    ) -> Result<()> {
        if stream.is_empty() {
            self.keep_shared(node, caller, NtStatus::CANNOT_DELETE)?;
        }
        if attributes.contains(FileAttributes::READONLY) && !ignore_read_only {
            return refuse(NtStatus::CANNOT_DELETE, "the file is read-only");
        }
        if stream.is_empty() && !node.is_directory() {
            // At the last close nobody hears of it any more.
            let access = Access { read: false, write: false, delete: true };
            self.store.open(node.file, OpenOptions::shared(access)).await?;
        }
        Ok(())
    }

    /// The open's stream, or the name that it came by, goes with the last open from now on (MS-FSA 2.1.5.14.3).
    pub(crate) async fn mark_deleted(self: &Arc<Self>, open: &Open) {
        if !open.stream.is_empty() {
            let mut state = open.node.state.lock();
            let stream = state.stream(&open.stream);
            stream.delete_pending = true;
            stream.delete_durably |= open.is_durable();
            return;
        }
        if open.directory && !self.is_empty(open.node.file).await {
            return;
        }
        {
            let _state = open.node.state.lock();
            open.node.name.goes(open.is_durable());
        }
        if open.directory {
            self.watches.deleted(open.node.file);
        }
    }

    /// Whether a directory has no entries.
    pub(crate) async fn is_empty(&self, directory: file_store::FileId) -> bool {
        let page = self.store.read_directory(directory, file_store::DirectoryCursor::default(), 1).await;
        page.is_ok_and(|page| page.entries.is_empty())
    }

    async fn remove_stream(self: &Arc<Self>, open: &Open, durably: bool) {
        // The last handle in the store went with the open, or the store would call the stream open.
        let name = open.stream_now();
        match self.store_that_is(durably).remove_stream(open.node.file, &name).await {
            Err(error) if error.kind() == StoreErrorKind::SharingViolation => {
                tracing::warn!("a stream that was to be deleted stays: {error}");
            }
            Err(error) if error.kind() != StoreErrorKind::NotFound => {
                tracing::warn!("a stream cannot be deleted: {error}");
            }
            _ => {}
        }
        open.node.state.lock().streams.remove(&open.stream);
        open.node.touched();
        self.stream_changed(open, &name, false).await;
    }

    /// Removes a name when the last open that came by it is closed, and with its last name the file. Durably, if that was promised to
    /// anybody who asked for it.
    pub(crate) async fn remove_file(self: &Arc<Self>, node: &Pin, by: Option<&Open>, durably: bool) {
        let Some((parent, name)) = node.place() else { return };
        if self.is_shared(node) {
            // It became a share's after its deletion was asked for.
            node.name.stays();
            return;
        }
        let guard = self.names.lock(parent.file, &name).await;
        // It may have been renamed by another user of the store; what has its name now is not ours to remove.
        let same = self.store.lookup(parent.file, &name).await.is_ok_and(|entry| entry.file == node.file);
        let store = self.store_that_is(durably);
        let rows = self.may_have_extras(node).await;
        let removed = if same { store.remove(parent.file, &name).await } else { Ok(()) };
        {
            let _state = node.state.lock();
            match &removed {
                Ok(()) => node.name.set_gone(),
                Err(_) => node.name.stays(),
            }
        }
        drop(guard);
        match removed {
            Ok(()) if same => {
                self.name_gone(parent.file, &name);
                node.touched();
                if rows {
                    self.forget_extras_of_removed(node.file).await;
                }
                let filter = if node.is_directory() {
                    CompletionFilter::DIR_NAME
                } else {
                    CompletionFilter::FILE_NAME
                };
                self.watches.tell(node, NotifyAction::REMOVED, filter);
                self.listing_changed(&parent, by).await;
            }
            Ok(()) => {}
            // Entries were made between the request to delete and the last close: the directory stays.
            Err(error) if error.kind() == StoreErrorKind::NotEmpty => {}
            Err(error) => tracing::warn!("{name} was to be deleted with its last open, and stays: {error}"),
        }
    }

    /// Closes an open that its holder did not close; says whether it was open.
    pub(crate) async fn close_from_outside(self: &Arc<Self>, open: &Arc<Open>) -> bool {
        // Also where the client is away: what stands for the open elsewhere goes with it.
        let holder = open.keeper();
        if let Some(holder) = holder.as_ref().filter(|_| open.disk) {
            holder.closes(open.id).await;
        }
        // A box, as closing may need others to be closed in turn.
        let closing: std::pin::Pin<Box<dyn Future<Output = Result<Option<OpenInfo>>> + '_>> =
            Box::pin(open.close(false));
        let closed = closing.await.is_ok();
        if let Some(holder) = holder.as_ref().filter(|_| open.disk) {
            // One that was about to begin has not seen that it is closed, or is known to its holder by now.
            holder.closes(open.id).await;
        }
        if let Some(holder) = holder.filter(|_| closed) {
            holder.closed(open.id);
        }
        closed
    }
}
