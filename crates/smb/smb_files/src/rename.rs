//! FileRenameInformation (MS-FSA 2.1.5.15.11).

use std::sync::Arc;

use file_store::FileKind;
use smb_protocol::NtStatus;
use smb_protocol::access::{AccessMask, FileAttributes, ShareAccess};
use smb_protocol::directory::CompletionFilter;
use smb_protocol::fscc::names::{RenameFlags, RenameInformation};
use smb_protocol::fscc::notify::NotifyAction;

use crate::error::{Result, refuse};
use crate::file_system::{Core, Node, NodeState, Open, Pin, Place};
use crate::path::{StreamPart, parse};
use crate::share_mode::conflict;

/// How often a rename looks again when a replaced file's opens change under it.
const ATTEMPTS_MAX: usize = 100;

impl Open {
    pub(crate) async fn rename(
        self: &Arc<Self>,
        buffer: &[u8],
        ex: bool,
        on_wait: &dyn Fn(bool),
    ) -> Result<()> {
        let Ok(info) = RenameInformation::decode(buffer, ex) else {
            return refuse(NtStatus::INFO_LENGTH_MISMATCH, "the new name is not whole");
        };
        if info.root_directory != 0 {
            return refuse(NtStatus::INVALID_PARAMETER, "a rename relative to an open directory");
        }
        self.needs(AccessMask::DELETE, "renaming needs the right to delete")?;
        if info.name.iter_units().next() == Some(u16::from(b':')) {
            return self.rename_stream(&info, on_wait).await;
        }
        let path = parse(info.name)?;
        let of_stream = !matches!(path.stream, StreamPart::None) || !self.stream.is_empty();
        let Some((name, folders)) = path.components.split_last() else {
            return refuse(NtStatus::OBJECT_NAME_INVALID, "the new name is empty");
        };
        self.core.keep_shared(&self.node, &self.caller, NtStatus::ACCESS_DENIED)?;
        let target = self.target_directory(folders).await?;
        self.check_target_directory(&target).await?;
        if of_stream {
            self.check_adding(&target)?;
            return refuse(
                NtStatus::INVALID_PARAMETER,
                "a stream is renamed by a name that begins with a colon",
            );
        }
        let replace = info.flags.contains(RenameFlags::REPLACE_IF_EXISTS);
        let ignore_read_only = info.flags.contains(RenameFlags::IGNORE_READONLY_ATTRIBUTE);
        self.core.break_handles(&self.node, &self.stream, &self.by(), on_wait).await?;
        for _ in 0..ATTEMPTS_MAX {
            let wanted = Wanted { target: target.clone(), name: name.to_owned(), replace, ignore_read_only };
            // To its end, once begun: the store and what is known of names here must not come apart when the connection goes.
            let open = Arc::clone(self);
            let renaming = shard_runtime::finish_anyway(async move { open.try_rename(&wanted).await });
            match renaming.await? {
                None => return Ok(()),
                Some(held) => {
                    let by = self.by();
                    self.core.break_handles(&held, "", &by, on_wait).await?;
                    if in_the_way(&held.state.lock(), &held, &self.node) {
                        return refuse(NtStatus::ACCESS_DENIED, "the file to be replaced is open");
                    }
                }
            }
        }
        refuse(NtStatus::RETRY, "the file to be replaced kept being opened")
    }

    pub(crate) async fn target_directory(&self, folders: &[String]) -> Result<Pin> {
        let mut directory = self.core.share_root(self.caller.share.root).await?;
        for folder in folders {
            match self.core.child(&directory, folder).await? {
                Some(node) if node.is_directory() => directory = node,
                _ => return refuse(NtStatus::OBJECT_PATH_NOT_FOUND, "the new directory does not exist"),
            }
        }
        Ok(directory)
    }

    pub(crate) async fn check_target_directory(&self, target: &Pin) -> Result<()> {
        let needed = if self.directory { AccessMask::APPEND_DATA } else { AccessMask::WRITE_DATA };
        let security = self.core.security(target).await?;
        let rights = smb_security::maximal(&security, &self.caller.token) & self.caller.share.maximal_access;
        if !rights.contains(needed) {
            return refuse(NtStatus::ACCESS_DENIED, "the user may not make files in the new directory");
        }
        Ok(())
    }

    /// Renames; returns the file to be replaced if it is open.
    async fn try_rename(self: &Arc<Self>, wanted: &Wanted) -> Result<Option<Pin>> {
        let core = &self.core;
        let Some((from, old_name)) = self.node.place() else {
            return refuse(NtStatus::ACCESS_DENIED, "the root has no name");
        };
        let (target, name) = (&wanted.target, wanted.name.as_str());
        let guards = core.names.lock_two((from.file, &old_name), (target.file, name)).await;
        // The name may have changed while this one waited for its turn.
        if self.node.place().is_none_or(|(at, now)| at.file != from.file || now != old_name) {
            return refuse(NtStatus::RETRY, "the file was renamed meanwhile");
        }
        if from.file == target.file && old_name == name {
            return Ok(None);
        }
        self.check_sharing(&from, target)?;
        let replaced =
            core.child_now(target, name).await?.filter(|node| !Arc::ptr_eq(&node.name, &self.node.name));
        if let Some(node) = &replaced {
            if !wanted.replace {
                return refuse(NtStatus::OBJECT_NAME_COLLISION, "the new name is taken");
            }
            self.check_replacing(node, wanted).await?;
            let state = node.state.lock();
            if in_the_way(&state, node, &self.node) {
                drop(state);
                drop(guards);
                return Ok(replaced);
            }
            // Nobody opens it any more: who looked it up before finds it going.
            node.name.goes(self.is_durable());
        }
        let renamed = self.store().rename((from.file, &old_name), (target.file, name), wanted.replace).await;
        if let Some(node) = &replaced {
            let _state = node.state.lock();
            match &renamed {
                Ok(()) => node.name.set_gone(),
                Err(_) => node.name.stays(),
            }
        }
        if let Err(error) = renamed {
            let error = crate::FileError::from(error);
            // A directory into itself: what NTFS says.
            if error.status == NtStatus::INVALID_PARAMETER && self.directory {
                return refuse(NtStatus::SHARING_VIOLATION, "a directory cannot be moved into itself");
            }
            return Err(error);
        }
        let spare = {
            let place = Place { parent: Some(target.clone()), name: name.to_owned() };
            std::mem::replace(&mut *self.node.name.place.lock(), place)
        };
        drop(spare);
        drop(guards);
        core.name_gone(from.file, &old_name);
        self.node.touched();
        if let Some(node) = &replaced {
            node.touched();
            core.forget_extras_of_removed(node.file).await;
        }
        self.tell_rename((&from, &old_name), (target, name), replaced.is_some()).await;
        Ok(None)
    }

    /// Share modes of what a rename touches besides the file (MS-FSA 2.1.5.15.11): nothing below a directory may be open,
    /// nobody may be about to delete the directory that the file is in, and who has the new directory open shares writing:
    /// Windows opens it to add the name, sharing all but its deletion.
    fn check_sharing(&self, from: &Node, target: &Node) -> Result<()> {
        if self.directory && self.core.has_opens_below(&self.node) {
            return refuse(NtStatus::ACCESS_DENIED, "files in the directory are open");
        }
        let state = from.state.lock();
        let deletes = |open: &&Arc<Open>| open.granted.contains(AccessMask::DELETE) && open.directory;
        if state.opens.iter().any(|open| deletes(&open)) {
            return refuse(NtStatus::SHARING_VIOLATION, "the directory is open for deletion");
        }
        drop(state);
        self.check_adding(target)
    }

    /// Whoever has the new directory open shares writing.
    pub(crate) fn check_adding(&self, target: &Node) -> Result<()> {
        let adds = if self.directory { AccessMask::APPEND_DATA } else { AccessMask::WRITE_DATA };
        let mine = (adds, ShareAccess::READ | ShareAccess::WRITE);
        let state = target.state.lock();
        if state.opens_of("").any(|open| conflict((open.granted, open.share_access), mine)) {
            return refuse(
                NtStatus::SHARING_VIOLATION,
                "an open of the new directory does not share writing",
            );
        }
        Ok(())
    }

    pub(crate) async fn check_replacing(&self, node: &Pin, wanted: &Wanted) -> Result<()> {
        if node.kind == FileKind::Directory || self.directory {
            return refuse(NtStatus::ACCESS_DENIED, "directories neither replace nor are replaced");
        }
        let info = self.core.info(node).await?;
        let read_only = FileAttributes(info.attributes.0).contains(FileAttributes::READONLY);
        if read_only && !wanted.ignore_read_only {
            return refuse(NtStatus::ACCESS_DENIED, "the file to be replaced is read-only");
        }
        let token = &self.caller.token;
        let own = smb_security::maximal(&*self.core.security(node).await?, token);
        let parent = smb_security::maximal(&*self.core.security(&wanted.target).await?, token);
        let may = own.contains(AccessMask::DELETE) || parent.contains(AccessMask::DELETE_CHILD);
        if !may || !self.caller.share.maximal_access.contains(AccessMask::DELETE) {
            return refuse(NtStatus::ACCESS_DENIED, "the user may not delete the file to be replaced");
        }
        Ok(())
    }

    async fn tell_rename(self: &Arc<Self>, from: (&Pin, &str), to: (&Pin, &str), replaced: bool) {
        let core = &self.core;
        let filter = if self.directory { CompletionFilter::DIR_NAME } else { CompletionFilter::FILE_NAME };
        let watches = &core.watches;
        if replaced {
            watches.tell_at(to.0, to.1, NotifyAction::REMOVED, filter);
        }
        if from.0.file == to.0.file {
            watches.tell_at(from.0, from.1, NotifyAction::RENAMED_OLD_NAME, filter);
            watches.tell_at(to.0, to.1, NotifyAction::RENAMED_NEW_NAME, filter);
        } else {
            watches.tell_at(from.0, from.1, NotifyAction::REMOVED, filter);
            watches.tell_at(to.0, to.1, NotifyAction::ADDED, filter);
        }
        core.listing_changed(from.0, Some(self)).await;
        if from.0.file != to.0.file {
            core.listing_changed(to.0, Some(self)).await;
        }
        // This one's, too: who asked may be gone. And those whose clients are away.
        self.node.record_soon(|_| true);
    }
}

/// What a rename or a link is to come to.
pub(crate) struct Wanted {
    pub(crate) target: Pin,
    pub(crate) name: String,
    pub(crate) replace: bool,
    pub(crate) ignore_read_only: bool,
}

impl Core {
    /// Whether anything below a directory is open.
    fn has_opens_below(&self, directory: &Node) -> bool {
        let nodes: Vec<Arc<Node>> = self.nodes.lock().values().cloned().collect();
        nodes.iter().filter(|node| node.file != directory.file).any(|node| {
            let opens: Vec<Arc<Open>> = node.state.lock().opens.clone();
            opens.iter().any(|open| open.node.is_within(directory.file))
        })
    }
}

/// Whether opens keep a name from being replaced: any of its file, or, if that is the one that gets the name, those that came
/// by it.
pub(crate) fn in_the_way(state: &NodeState, replaced: &Pin, by: &Pin) -> bool {
    let same = replaced.file == by.file;
    state.opens.iter().any(|open| !same || Arc::ptr_eq(&open.node.name, &replaced.name))
}
