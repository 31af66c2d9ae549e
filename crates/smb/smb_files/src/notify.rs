//! CHANGE_NOTIFY (MS-FSA 2.1.5.11, 2.1.4.1).
//!
//! Who watches a tree hears of what is in the folders below only as far as it could list them: of each change it is kept through which
//! folders it lies below the watched one, and whether the watcher may list all of these is looked at when it is told. (MS-FSA asks for no
//! such right. Windows' file systems check that the watcher may traverse the path, which SeChangeNotifyPrivilege spares nearly
//! everybody; names that no listing would give somebody are given by no notification here.)

use std::sync::Arc;

use smb_protocol::NtStatus;
use smb_protocol::access::AccessMask;
use smb_protocol::directory::CompletionFilter;
use smb_protocol::fscc::notify::NotifyAction;

use crate::error::{Result, refuse};
use crate::file_system::{Core, Open, Pin};
use crate::watches::{Change, MayList, Taken, Watch, Watches};

impl Watches {
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
        let mut change = Change { action, path: name.to_owned(), folders: Vec::new() };
        self.tell_one(directory.file, &change, filter);
        let (mut at, mut below) = (directory.file, directory.place());
        while let Some((above, folder)) = below {
            change.path = format!("{folder}\\{}", change.path);
            change.folders.push(at);
            self.tell_one(above.file, &change, filter);
            (at, below) = (above.file, above.place());
        }
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
            let user = self.caller.token.user;
            let watch = Arc::new(Watch::new(&self.core.watches, user, filter, tree, limit));
            self.core.watches.add(self.node.file, &watch);
            watch
        });
        let mut may_list = MayList::new();
        loop {
            let ready = watch.ready.notified();
            match watch.take(limit, &may_list, out) {
                Taken::Ended(taken) => return taken,
                Taken::Undecided(folders) => {
                    for folder in folders {
                        // One that is gone has nothing to tell: that it went is told where it was.
                        may_list.insert(folder, self.may_list(folder).await);
                    }
                    continue;
                }
                Taken::Nothing => {}
            }
            if self.is_closed() {
                return Ok(NtStatus::NOTIFY_CLEANUP);
            }
            ready.await;
            // What it was allowed before it waited says nothing of now.
            may_list.clear();
        }
    }
}

impl Core {
    /// A named stream was made or removed.
    pub(crate) async fn stream_changed(self: &Arc<Self>, open: &Open, name: &str, made: bool) {
        let action = if made { NotifyAction::ADDED_STREAM } else { NotifyAction::REMOVED_STREAM };
        self.watches.tell_stream(&open.node, name, action, CompletionFilter::STREAM_NAME);
        open.node.touched();
    }
}
