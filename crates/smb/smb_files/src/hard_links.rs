//! FileLinkInformation and FileHardLinkInformation: one more name of a file, and which it has (MS-FSA 2.1.5.15.6, 2.1.5.12.13).
//!
//! A name is made below the share's folder only, by whoever may write the file's attributes and make files in the new
//! directory. What the open itself may is no matter (MS-SMB2 3.3.5.21.1): the Linux kernel's client links by an open that may read
//! attributes only. All names are one file: one descriptor, one set of streams, opens, leases and locks.

use std::sync::Arc;

use smb_protocol::access::AccessMask;
use smb_protocol::directory::CompletionFilter;
use smb_protocol::fscc::names::{RenameFlags, RenameInformation, put_hard_links};
use smb_protocol::fscc::notify::NotifyAction;
use smb_protocol::{NtStatus, Utf16};

use crate::error::{Result, refuse};
use crate::file_system::{Open, Pin};
use crate::path::{StreamPart, parse};
use crate::rename::{Wanted, in_the_way};

/// How often a link looks again when a replaced file's opens change under it.
const ATTEMPTS_MAX: usize = 100;
/// Fixed part of FileHardLinkInformation (MS-FSCC 2.4.21).
const LINKS_FIXED: usize = 8;

impl Open {
    pub(crate) async fn add_name(
        self: &Arc<Self>,
        buffer: &[u8],
        ex: bool,
        on_wait: &dyn Fn(bool),
    ) -> Result<()> {
        let Ok(info) = RenameInformation::decode(buffer, ex) else {
            return refuse(NtStatus::INFO_LENGTH_MISMATCH, "the new name is not whole");
        };
        if info.root_directory != 0 {
            return refuse(NtStatus::INVALID_PARAMETER, "a link relative to an open directory");
        }
        self.needs(AccessMask::NONE, "another name needs an open file")?;
        if !self.maximal_access(&self.caller).await?.contains(AccessMask::WRITE_ATTRIBUTES) {
            return refuse(NtStatus::ACCESS_DENIED, "another name needs the right to write attributes");
        }
        if self.node.is_directory() {
            return refuse(NtStatus::FILE_IS_A_DIRECTORY, "a directory has one name");
        }
        if !self.stream.is_empty() {
            return refuse(NtStatus::INVALID_PARAMETER, "names are a file's, not a stream's");
        }
        // Samba's client writes a backslash before the path of a link, and its server does not mind.
        let bytes = info.name.bytes();
        let path = parse(Utf16::new(bytes.strip_prefix(b"\\\0").unwrap_or(bytes))?)?;
        if !matches!(path.stream, StreamPart::None) || path.directory {
            return refuse(NtStatus::OBJECT_NAME_INVALID, "the new name is not a file's");
        }
        let Some((name, folders)) = path.components.split_last() else {
            return refuse(NtStatus::OBJECT_NAME_INVALID, "the new name is empty");
        };
        let target = self.target_directory(folders).await?;
        self.check_target_directory(&target).await?;
        self.core.break_handles(&self.node, &self.stream, &self.by(), on_wait).await?;
        for _ in 0..ATTEMPTS_MAX {
            let wanted = Wanted {
                target: target.clone(),
                name: name.to_owned(),
                replace: info.flags.contains(RenameFlags::REPLACE_IF_EXISTS),
                ignore_read_only: info.flags.contains(RenameFlags::IGNORE_READONLY_ATTRIBUTE),
            };
            // To its end, once begun: the store and what is known of names here must not come apart when the connection goes.
            let open = Arc::clone(self);
            let linking = shard_runtime::finish_anyway(async move { open.try_link(&wanted).await });
            match linking.await? {
                None => return Ok(()),
                Some(held) => {
                    self.core.break_handles(&held, "", &self.by(), on_wait).await?;
                    if in_the_way(&held.state.lock(), &held, &self.node) {
                        return refuse(NtStatus::ACCESS_DENIED, "the file to be replaced is open");
                    }
                }
            }
        }
        refuse(NtStatus::RETRY, "the file to be replaced kept being opened")
    }

    /// Makes the name; returns the file to be replaced if it is open.
    async fn try_link(self: &Arc<Self>, wanted: &Wanted) -> Result<Option<Pin>> {
        let core = &self.core;
        let (target, name) = (&wanted.target, wanted.name.as_str());
        let guard = core.names.lock(target.file, name).await;
        if self.node.name.is_going() {
            return refuse(NtStatus::ACCESS_DENIED, "the name that the open came by is being deleted");
        }
        if target.name.is_going() {
            return refuse(NtStatus::DELETE_PENDING, "the new directory is being deleted");
        }
        self.check_adding(target)?;
        let there = core.child_now(target, name).await?;
        if there.is_some() && !wanted.replace {
            return refuse(NtStatus::OBJECT_NAME_COLLISION, "the new name is taken");
        }
        // Its own name stays, in the case that it is given in now.
        let own = there.as_ref().is_some_and(|node| node.file == self.node.file);
        let replaced = there.filter(|_| !own);
        if let Some(node) = &replaced {
            self.check_replacing(node, wanted).await?;
            let state = node.state.lock();
            if in_the_way(&state, node, &self.node) {
                drop(state);
                drop(guard);
                return Ok(replaced);
            }
            // Nobody opens it any more: who looked it up before finds it going.
            node.name.goes(self.is_durable());
        }
        let linked = self.store().link(self.node.file, (target.file, name), wanted.replace).await;
        if let Some(node) = &replaced {
            let _state = node.state.lock();
            match &linked {
                Ok(()) => node.name.set_gone(),
                Err(_) => node.name.stays(),
            }
        }
        linked?;
        drop(guard);
        self.node.touched();
        let watches = &core.watches;
        if let Some(node) = &replaced {
            node.touched();
            core.forget_extras_of_removed(node.file).await;
            watches.tell_at(target, name, NotifyAction::REMOVED, CompletionFilter::FILE_NAME);
        }
        if !own {
            watches.tell_at(target, name, NotifyAction::ADDED, CompletionFilter::FILE_NAME);
        }
        core.listing_changed(target, Some(self)).await;
        Ok(None)
    }

    /// Names that are there and will stay (MS-FSA 2.1.5.12.27): of one that is going only the others count.
    pub(crate) fn links_left(&self, names: u32, delete_pending: bool) -> u32 {
        let going = self.node.names.going().max(u32::from(delete_pending && self.stream.is_empty()));
        names.saturating_sub(going)
    }

    /// The file's names, as far as they are in the share and in directories that the user may list.
    pub(crate) async fn query_links(&self, limit: usize, out: &mut Vec<u8>) -> Result<NtStatus> {
        if limit < LINKS_FIXED {
            return refuse(NtStatus::INFO_LENGTH_MISMATCH, "the answer does not fit");
        }
        let mut shown: Vec<(u64, String)> = Vec::new();
        let own = self.node.place().map(|(parent, name)| (parent.file, name));
        for (parent, name) in self.core.store.names(self.node.file).await? {
            let mine = own.as_ref().is_some_and(|(at, known)| *at == parent && *known == name);
            if mine || self.may_list(parent).await {
                shown.push((parent.0, crate::path::to_client(&name)));
            }
        }
        if shown.is_empty() {
            // A root, or what was removed meanwhile.
            let (parent, name) = own.unwrap_or((self.node.file, String::new()));
            shown.push((parent.0, crate::path::to_client(&name)));
        }
        let shown: Vec<(u64, &str)> = shown.iter().map(|(parent, name)| (*parent, name.as_str())).collect();
        let all = put_hard_links(&shown, limit, out);
        Ok(if all { NtStatus::SUCCESS } else { NtStatus::BUFFER_OVERFLOW })
    }

    /// Whether the user may know what is in a directory.
    pub(crate) async fn may_list(&self, directory: file_store::FileId) -> bool {
        let Ok(directory) = self.core.pin_by_id(directory).await else { return false };
        if !directory.is_within(self.caller.share.root) {
            return false;
        }
        let Ok(security) = self.core.security(&directory).await else { return false };
        let rights = smb_security::maximal(&security, &self.caller.token) & self.caller.share.maximal_access;
        // LIST_DIRECTORY is READ_DATA.
        rights.contains(AccessMask::READ_DATA)
    }
}
