//! CHANGE_NOTIFY (MS-FSA 2.1.5.11, 2.1.4.1).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use file_store::FileId;
use parking_lot::Mutex;
use smb_protocol::NtStatus;
use smb_protocol::access::AccessMask;
use smb_protocol::directory::CompletionFilter;
use smb_protocol::fscc::notify::{NotifyAction, notify_writer, push_change};
use tokio::sync::Notify;

use crate::error::{Result, refuse};
use crate::node::Pin;
use crate::open::Open;
use crate::path::to_client;

/// Most bytes of changes that are kept for one open between two requests: a larger buffer is cut to it (Windows' limit
/// over the network is 64 KiB).
const BUFFER_MAX: usize = 64 * 1024;
/// Bytes of a change before its name.
const HEAD: usize = 12;

/// What one open watches.
pub(crate) struct Watch {
    filter: CompletionFilter,
    tree: bool,
    limit: usize,
    state: Mutex<Pending>,
    ready: Notify,
}

#[derive(Default)]
struct Pending {
    changes: VecDeque<(NotifyAction, String)>,
    bytes: usize,
    /// More happened than could be kept.
    overflow: bool,
    /// Why there will be no more.
    ended: Option<NtStatus>,
}

/// All watches, by directory.
#[derive(Default)]
pub(crate) struct Watches {
    by_directory: Mutex<BTreeMap<FileId, Vec<Arc<Watch>>>>,
    count: AtomicUsize,
}

impl Watches {
    /// Whether anybody watches anything.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    fn add(&self, directory: FileId, watch: &Arc<Watch>) {
        self.by_directory.lock().entry(directory).or_default().push(Arc::clone(watch));
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// The watch's open is closed.
    pub(crate) fn remove(&self, directory: FileId, watch: &Arc<Watch>) {
        watch.end(NtStatus::NOTIFY_CLEANUP);
        let mut all = self.by_directory.lock();
        if let Some(watches) = all.get_mut(&directory) {
            let before = watches.len();
            watches.retain(|other| !Arc::ptr_eq(other, watch));
            self.count.fetch_sub(before - watches.len(), Ordering::Relaxed);
            if watches.is_empty() {
                all.remove(&directory);
            }
        }
    }

    /// The directory is being deleted: who waits is told so (MS-FSA 2.1.5.14.3).
    pub(crate) fn deleted(&self, directory: FileId) {
        for watch in self.by_directory.lock().get(&directory).into_iter().flatten() {
            watch.end(NtStatus::DELETE_PENDING);
        }
    }

    /// Something happened to a file.
    pub(crate) fn tell(&self, node: &Pin, action: NotifyAction, filter: CompletionFilter) {
        if !self.any() {
            return;
        }
        if let Some((parent, name)) = node.place() {
            self.tell_at(&parent, &name, action, filter);
        }
    }

    /// Something happened to a stream of a file.
    pub(crate) fn tell_stream(
        &self,
        node: &Pin,
        stream: &str,
        action: NotifyAction,
        filter: CompletionFilter,
    ) {
        if !self.any() {
            return;
        }
        if let Some((parent, name)) = node.place() {
            self.tell_at(&parent, &format!("{name}:{stream}:$DATA"), action, filter);
        }
    }

    /// Something happened to a name in a directory.
    pub(crate) fn tell_at(
        &self,
        directory: &Pin,
        name: &str,
        action: NotifyAction,
        filter: CompletionFilter,
    ) {
        if !self.any() {
            return;
        }
        self.tell_one(directory.file, true, name, action, filter);
        let mut path = name.to_owned();
        let mut below = directory.place();
        while let Some((above, folder)) = below {
            path = format!("{folder}\\{path}");
            self.tell_one(above.file, false, &path, action, filter);
            below = above.place();
        }
    }

    fn tell_one(
        &self,
        directory: FileId,
        direct: bool,
        path: &str,
        action: NotifyAction,
        filter: CompletionFilter,
    ) {
        for watch in self.by_directory.lock().get(&directory).into_iter().flatten() {
            if (direct || watch.tree) && watch.filter.intersects(filter) {
                watch.push(action, path);
            }
        }
    }
}

impl Watch {
    fn push(&self, action: NotifyAction, path: &str) {
        let mut state = self.state.lock();
        if state.ended.is_some() || state.overflow {
            return;
        }
        let path = to_client(path);
        let bytes = HEAD + path.encode_utf16().count() * 2 + 3;
        if state.bytes + bytes > self.limit {
            // Everything is lost: the client looks for itself (MS-FSA 2.1.4.1).
            state.changes.clear();
            state.overflow = true;
        } else {
            // The same change to the same file twice in a row says nothing new.
            let repeated = action == NotifyAction::MODIFIED
                && state.changes.back().is_some_and(|(last, name)| *last == action && *name == path);
            if !repeated {
                state.bytes += bytes;
                state.changes.push_back((action, path));
            }
        }
        drop(state);
        // An old name never comes without the new one: who waits is woken by that.
        if action != NotifyAction::RENAMED_OLD_NAME {
            self.ready.notify_one();
        }
    }

    fn end(&self, status: NtStatus) {
        self.state.lock().ended.get_or_insert(status);
        self.ready.notify_waiters();
        self.ready.notify_one();
    }

    /// Takes what there is; `None` if there is nothing yet.
    fn take(&self, limit: usize, out: &mut Vec<u8>) -> Option<Result<NtStatus>> {
        let mut state = self.state.lock();
        match state.ended {
            Some(NtStatus::DELETE_PENDING) => {
                return Some(refuse(NtStatus::DELETE_PENDING, "the directory is being deleted"));
            }
            Some(status) => return Some(Ok(status)),
            None => {}
        }
        if state.changes.is_empty() && !state.overflow {
            return None;
        }
        let start = out.len();
        let mut list = notify_writer(out, limit);
        let fits = !state.overflow
            && state.changes.iter().all(|(action, path)| push_change(&mut list, *action, path));
        *state = Pending::default();
        if !fits {
            out.truncate(start);
            return Some(Ok(NtStatus::NOTIFY_ENUM_DIR));
        }
        Some(Ok(NtStatus::SUCCESS))
    }
}

impl Open {
    /// CHANGE_NOTIFY: ends with the next changes in `out` (SUCCESS), or with NOTIFY_ENUM_DIR when they do not fit into
    /// `limit`, or with NOTIFY_CLEANUP when the open is closed. The first call fixes filter, tree and buffer size.
    ///
    /// # Errors
    /// ACCESS_DENIED without LIST_DIRECTORY, INVALID_PARAMETER for a file, DELETE_PENDING when the directory goes.
    pub async fn notify(
        &self,
        filter: CompletionFilter,
        tree: bool,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<NtStatus> {
        if !self.directory {
            return refuse(NtStatus::INVALID_PARAMETER, "a file has no entries to watch");
        }
        self.needs(AccessMask::READ_DATA, "the open may not list")?;
        if self.node.name.is_going() {
            return refuse(NtStatus::DELETE_PENDING, "the directory is being deleted");
        }
        let watch = self.watch.get_or_init(|| {
            let watch = Arc::new(Watch {
                filter,
                tree,
                limit: limit.min(BUFFER_MAX),
                state: Mutex::default(),
                ready: Notify::new(),
            });
            self.core.watches.add(self.node.file, &watch);
            watch
        });
        loop {
            let ready = watch.ready.notified();
            if let Some(taken) = watch.take(limit, out) {
                return taken;
            }
            if self.is_closed() {
                return Ok(NtStatus::NOTIFY_CLEANUP);
            }
            ready.await;
        }
    }
}

impl crate::file_system::Core {
    /// A named stream was made or removed.
    pub(crate) async fn stream_changed(self: &Arc<Self>, open: &Open, name: &str, made: bool) {
        let action = if made { NotifyAction::ADDED_STREAM } else { NotifyAction::REMOVED_STREAM };
        self.watches.tell_stream(&open.node, name, action, CompletionFilter::STREAM_NAME);
        open.node.touched();
    }
}
