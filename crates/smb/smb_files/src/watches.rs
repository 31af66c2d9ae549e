//! What opens watch, and what has happened there that they have not been told of yet.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use file_store::FileId;
use parking_lot::Mutex;
use smb_protocol::NtStatus;
use smb_protocol::directory::CompletionFilter;
use smb_protocol::fscc::notify::{NotifyAction, notify_writer, push_change};
use smb_protocol::security::Sid;
use tokio::sync::Notify;

use crate::error::{Result, refuse};
use crate::path::to_client;

/// Most bytes of changes that are kept for one open between two requests: a larger buffer is cut to it (Windows' limit
/// over the network is 64 KiB).
const BUFFER_MAX: usize = 64 * 1024;
/// Bytes of a change before its name.
const HEAD: usize = 12;
/// Memory for the changes that nobody has asked for yet, of all who watch a volume; a user gets a quarter. Whoever would take more is told
/// to look for itself, as with a full buffer.
const KEPT_MAX: usize = 64 << 20;
const KEPT_BY_USER: usize = KEPT_MAX / 4;

/// How much of that memory is taken, and by whom.
#[derive(Default)]
struct Kept {
    all: usize,
    /// Invariant: the sum is `all`, and none is 0.
    of: BTreeMap<Sid, usize>,
}

impl Kept {
    /// Takes some for a user; `false` where there is none.
    fn take(&mut self, user: Sid, bytes: usize) -> bool {
        let mine = self.of.get(&user).copied().unwrap_or(0);
        let fits = mine + bytes <= KEPT_BY_USER && self.all + bytes <= KEPT_MAX;
        if fits && bytes > 0 {
            self.all += bytes;
            self.of.insert(user, mine + bytes);
        }
        fits
    }

    fn give_back(&mut self, user: Sid, bytes: usize) {
        let Some(mine) = self.of.get_mut(&user) else { return };
        self.all -= bytes;
        *mine -= bytes;
        if *mine == 0 {
            self.of.remove(&user);
        }
    }
}

/// What one open watches.
pub(crate) struct Watch {
    filter: CompletionFilter,
    tree: bool,
    limit: usize,
    user: Sid,
    kept: Arc<Mutex<Kept>>,
    state: Mutex<Pending>,
    pub(crate) ready: Notify,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.kept.lock().give_back(self.user, self.state.get_mut().memory);
    }
}

/// Something that happened below a watched folder.
#[derive(Clone)]
pub(crate) struct Change {
    pub(crate) action: NotifyAction,
    pub(crate) path: String,
    /// The folders that it lies in, below the watched one: the innermost first.
    pub(crate) folders: Vec<FileId>,
}

/// Which folders a watcher may list, as far as it was asked.
pub(crate) type MayList = BTreeMap<FileId, bool>;

/// What is there for a watcher.
pub(crate) enum Taken {
    /// Its request ends so.
    Ended(Result<NtStatus>),
    Nothing,
    /// It has to be known first whether it may list these.
    Undecided(Vec<FileId>),
}

#[derive(Default)]
struct Pending {
    changes: VecDeque<Change>,
    /// What they take in an answer, and here.
    bytes: usize,
    memory: usize,
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
    kept: Arc<Mutex<Kept>>,
}

impl Watches {
    /// Whether anybody watches anything.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn add(&self, directory: FileId, watch: &Arc<Watch>) {
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

    /// Something happened in a directory, or below it.
    pub(crate) fn tell_one(&self, directory: FileId, change: &Change, filter: CompletionFilter) {
        for watch in self.by_directory.lock().get(&directory).into_iter().flatten() {
            if (change.folders.is_empty() || watch.tree) && watch.filter.intersects(filter) {
                watch.push(change);
            }
        }
    }
}

impl Watch {
    /// What an open of this user is to watch, with the memory of these watches.
    pub(crate) fn new(
        watches: &Watches,
        user: Sid,
        filter: CompletionFilter,
        tree: bool,
        limit: usize,
    ) -> Self {
        Self {
            filter,
            tree,
            limit: limit.min(BUFFER_MAX),
            user,
            kept: Arc::clone(&watches.kept),
            state: Mutex::default(),
            ready: Notify::new(),
        }
    }

    fn push(&self, change: &Change) {
        let Change { action, ref path, ref folders } = *change;
        let mut state = self.state.lock();
        if state.ended.is_some() || state.overflow {
            return;
        }
        let path = to_client(path);
        let bytes = HEAD + path.encode_utf16().count() * 2 + 3;
        let memory = size_of::<Change>() + path.len() + size_of_val(folders.as_slice());
        // The same change to the same file twice in a row says nothing new.
        let repeated = action == NotifyAction::MODIFIED
            && state.changes.back().is_some_and(|last| last.action == action && last.path == path);
        if !repeated {
            if state.bytes + bytes > self.limit || !self.kept.lock().take(self.user, memory) {
                // Everything is lost: the client looks for itself (MS-FSA 2.1.4.1).
                self.kept.lock().give_back(self.user, state.memory);
                *state = Pending { overflow: true, ..Pending::default() };
            } else {
                state.bytes += bytes;
                state.memory += memory;
                state.changes.push_back(Change { action, path, folders: folders.clone() });
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

    /// Takes what there is for somebody who may list these folders. Nothing is taken before all of it is decided, so that nothing is
    /// lost when the request is dropped meanwhile.
    pub(crate) fn take(&self, limit: usize, may_list: &MayList, out: &mut Vec<u8>) -> Taken {
        let mut state = self.state.lock();
        match state.ended {
            Some(NtStatus::DELETE_PENDING) => {
                return Taken::Ended(refuse(NtStatus::DELETE_PENDING, "the directory is being deleted"));
            }
            Some(status) => return Taken::Ended(Ok(status)),
            None => {}
        }
        let overflow = state.overflow;
        if !overflow {
            let folders = state.changes.iter().flat_map(|change| &change.folders);
            let mut undecided: Vec<FileId> =
                folders.copied().filter(|folder| !may_list.contains_key(folder)).collect();
            if !undecided.is_empty() {
                undecided.sort_unstable();
                undecided.dedup();
                return Taken::Undecided(undecided);
            }
        }
        let taken = std::mem::take(&mut *state);
        drop(state);
        self.kept.lock().give_back(self.user, taken.memory);
        let changes = visible(taken.changes, may_list);
        if changes.is_empty() && !overflow {
            return Taken::Nothing;
        }
        let start = out.len();
        let mut list = notify_writer(out, limit);
        let fits = !overflow && changes.iter().all(|(action, path)| push_change(&mut list, *action, path));
        if !fits {
            out.truncate(start);
            return Taken::Ended(Ok(NtStatus::NOTIFY_ENUM_DIR));
        }
        Taken::Ended(Ok(NtStatus::SUCCESS))
    }
}

/// The changes of which a watcher is told, with their names. Of a file that is renamed from where it may not list to where it may, or
/// back, it hears as of one that comes or goes.
fn visible(changes: VecDeque<Change>, may_list: &MayList) -> Vec<(NotifyAction, String)> {
    let is_visible =
        |change: &Change| change.folders.iter().all(|folder| may_list.get(folder).copied().unwrap_or(false));
    let mut told = Vec::new();
    let mut changes = changes.into_iter().peekable();
    while let Some(change) = changes.next() {
        let old = change.action == NotifyAction::RENAMED_OLD_NAME;
        let new = changes.next_if(|new| old && new.action == NotifyAction::RENAMED_NEW_NAME);
        let Some(new) = new else {
            if is_visible(&change) {
                told.push((change.action, change.path));
            }
            continue;
        };
        match (is_visible(&change), is_visible(&new)) {
            (true, true) => told.extend([(change.action, change.path), (new.action, new.path)]),
            (true, false) => told.push((NotifyAction::REMOVED, change.path)),
            (false, true) => told.push((NotifyAction::ADDED, new.path)),
            (false, false) => {}
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(rid: u32) -> Sid {
        Sid::new(5, &[21, 1, 2, 3, rid]).unwrap()
    }

    #[test]
    fn memory_for_what_is_kept_is_bounded_and_shared() {
        let watches = Watches::default();
        let watch = |rid| Watch::new(&watches, user(rid), CompletionFilter(1), true, BUFFER_MAX);
        let path = "x".repeat(255);
        let change = Change { action: NotifyAction::ADDED, path, folders: vec![FileId(7); 4] };
        let overflowed = |watch: &Watch| watch.state.lock().overflow;
        let mut greedy: Vec<Watch> = Vec::new();
        let full = loop {
            let one = watch(1);
            (0..100).for_each(|_| one.push(&change));
            if overflowed(&one) {
                break one;
            }
            assert!(greedy.len() < 100_000, "nothing bounds it");
            greedy.push(one);
        };
        assert!(watches.kept.lock().all <= KEPT_BY_USER, "a quarter is one user's");
        let modest = watch(2);
        modest.push(&change);
        assert!(!overflowed(&modest), "another user's is there");
        let list = BTreeMap::from([(FileId(7), true)]);
        let mut out = Vec::new();
        assert!(matches!(
            full.take(BUFFER_MAX, &list, &mut out),
            Taken::Ended(Ok(NtStatus::NOTIFY_ENUM_DIR))
        ));
        // What was asked for, and what is closed, is given back.
        for one in greedy.iter().take(10) {
            let mut out = Vec::new();
            assert!(matches!(one.take(BUFFER_MAX, &list, &mut out), Taken::Ended(Ok(NtStatus::SUCCESS))));
        }
        full.push(&change);
        assert!(!overflowed(&full), "there is room again");
        drop((greedy, modest, full));
        let kept = watches.kept.lock();
        assert!(kept.all == 0 && kept.of.is_empty());
    }
}
