//! Opening a file that is there (MS-FSA 2.1.5.1.2).

use std::sync::Arc;

use file_store::{FileInfo, StreamInfo};
use smb_protocol::NtStatus;
use smb_protocol::access::{AccessMask, CreateAction, CreateDisposition, CreateOptions, FileAttributes};
use smb_security::{Denied, Request};

use super::admit::Admission;
use super::plan::Plan;
use super::resolve::check_kind;
use super::{Admitted, Attempt};
use crate::caching::By;
use crate::data::WRITES;
use crate::error::{FileError, Result, refuse};
use crate::file_system::{Core, Node, Open, Pin, stream_key};
use crate::path::StreamPart;
use crate::previous::CHANGES;

/// What a user may do with a file: granted for this open, and at most.
pub(super) struct Rights {
    pub(super) granted: AccessMask,
    pub(super) maximal: AccessMask,
}

impl Core {
    pub(super) async fn open_existing(self: &Arc<Self>, plan: &Plan<'_>, node: Pin) -> Result<Attempt> {
        let named = matches!(plan.stream, StreamPart::Named(_));
        let info = match self.info(&node).await {
            Ok(info) => info,
            Err(error) if error.status == NtStatus::OBJECT_NAME_NOT_FOUND => return Ok(Attempt::Again),
            Err(error) => return Err(error),
        };
        let attributes = FileAttributes(info.attributes.0);
        let stream = self.find_stream(plan, &node).await?;
        let missing_stream = named && stream.is_none();
        if missing_stream && !plan.makes() {
            return refuse(NtStatus::OBJECT_NAME_NOT_FOUND, "there is no such stream");
        }
        plan.keep_previous(missing_stream)?;
        if !missing_stream && plan.request.disposition == CreateDisposition::CREATE {
            // Whatever kind it is of (MS-FSA 2.1.5.1.2).
            return refuse(NtStatus::OBJECT_NAME_COLLISION, "there is such a file or stream already");
        }
        check_kind(plan, node.kind)?;
        let overwrites = plan.overwrites() && !missing_stream;
        // Making a stream is writing to its file, as overwriting is, whatever the open asks for besides.
        let writes = overwrites || missing_stream;
        let implied = implied(plan, overwrites, writes);
        let rights = self.rights(plan, &node, attributes, implied).await?;
        if plan.has(CreateOptions::DELETE_ON_CLOSE) {
            self.check_deletion(plan.caller, &node, plan.stream_name(), attributes, false).await?;
        }
        check_attributes(plan, attributes, &rights, node.is_directory(), (overwrites, writes))?;
        let directory = node.is_directory() && !named;
        let admission = Admission {
            node,
            stream_name: stream.map_or_else(|| plan.stream_name().to_owned(), |stream| stream.name),
            make_stream: missing_stream,
            directory,
            granted: rights.granted,
            implied,
            overwrites,
        };
        let Some((open, granted)) = self.admit(plan, admission).await? else { return Ok(Attempt::Again) };
        let action = match (missing_stream, overwrites, plan.request.disposition) {
            (true, ..) => CreateAction::CREATED,
            (_, true, CreateDisposition::SUPERSEDE) => CreateAction::SUPERSEDED,
            (_, true, _) => CreateAction::OVERWRITTEN,
            _ => CreateAction::OPENED,
        };
        self.after_admission(plan, &open, &info, action).await?;
        Ok(Attempt::Done(Admitted { open, action, granted, maximal: rights.maximal }))
    }

    async fn find_stream(&self, plan: &Plan<'_>, node: &Node) -> Result<Option<StreamInfo>> {
        let StreamPart::Named(name) = &plan.stream else { return Ok(None) };
        let key = stream_key(name);
        let streams = self.store.streams(node.file).await?;
        Ok(streams.into_iter().find(|stream| stream_key(&stream.name) == key))
    }

    /// The access check: what the descriptor, the privileges, the parent and the share allow.
    async fn rights(
        self: &Arc<Self>,
        plan: &Plan<'_>,
        node: &Pin,
        attributes: FileAttributes,
        implied: AccessMask,
    ) -> Result<Rights> {
        let caller = plan.caller;
        let security = self.security(node).await?;
        let mut request = Request {
            desired: plan.desired | implied,
            backup_intent: plan.has(CreateOptions::OPEN_FOR_BACKUP_INTENT),
            from_parent: AccessMask::NONE,
        };
        let from_parent = AccessMask::DELETE | AccessMask::READ_ATTRIBUTES;
        let alone = smb_security::check(&security, &caller.token, &request);
        let wants_all =
            plan.desired.contains(AccessMask::MAXIMUM_ALLOWED) || plan.request.maximal_access.is_some();
        let parent_helps = match alone {
            Ok(_) => wants_all,
            Err(Denied::Rights(missing)) => missing.intersects(from_parent),
            Err(Denied::Privilege) => false,
        };
        if parent_helps {
            request.from_parent = self.granted_by_parent(plan, node).await?;
        }
        let checked = smb_security::check(&security, &caller.token, &request);
        let granted = checked.map_err(|denied| match denied {
            Denied::Rights(missing) => {
                FileError::new(NtStatus::ACCESS_DENIED, format!("the descriptor does not grant {missing:?}"))
            }
            Denied::Privilege => {
                FileError::new(NtStatus::PRIVILEGE_NOT_HELD, "SACLs need the security privilege")
            }
        })?;
        let read_only = attributes.contains(FileAttributes::READONLY) && !node.is_directory();
        let not_now = if read_only { WRITES } else { AccessMask::NONE };
        let never = if plan.timewarp.is_some() { CHANGES } else { AccessMask::NONE };
        let share = caller.share.maximal_access.without(never);
        let cap = share | AccessMask::ACCESS_SYSTEM_SECURITY;
        let asked = plan.desired.without(AccessMask::MAXIMUM_ALLOWED);
        if !cap.contains(asked | implied) {
            return refuse(
                NtStatus::ACCESS_DENIED,
                format!("the share does not allow {:?}", (asked | implied).without(cap)),
            );
        }
        let granted = granted & cap;
        let granted = if plan.desired.contains(AccessMask::MAXIMUM_ALLOWED) {
            asked | granted.without(not_now)
        } else {
            // What was implied is not asked for.
            granted & asked
        };
        let maximal = smb_security::maximal(&security, &caller.token) | request.from_parent;
        Ok(Rights { granted, maximal: (maximal & share).without(not_now) })
    }

    /// What the directory grants on what is in it (MS-FSA 2.1.5.1.2.1).
    async fn granted_by_parent(&self, plan: &Plan<'_>, node: &Pin) -> Result<AccessMask> {
        let Some((parent, _)) = node.place().filter(|_| node.file != plan.caller.share.root) else {
            return Ok(AccessMask::NONE);
        };
        let security = self.security(&parent).await?;
        let rights = smb_security::maximal(&security, &plan.caller.token) & plan.caller.share.maximal_access;
        let mut given = AccessMask::NONE;
        if rights.contains(AccessMask::DELETE_CHILD) {
            given |= AccessMask::DELETE;
        }
        // LIST_DIRECTORY is READ_DATA.
        if rights.contains(AccessMask::READ_DATA) {
            given |= AccessMask::READ_ATTRIBUTES;
        }
        Ok(given)
    }

    /// What follows once nobody is in the way.
    async fn after_admission(
        self: &Arc<Self>,
        plan: &Plan<'_>,
        open: &Arc<Open>,
        before: &FileInfo,
        action: CreateAction,
    ) -> Result<()> {
        match action {
            CreateAction::OPENED => {}
            CreateAction::CREATED => {
                self.reserve(plan, open).await?;
                self.stream_changed(open, &open.stream_now(), true).await;
            }
            _ => self.overwrite(plan, open, before).await?,
        }
        Ok(())
    }

    /// Empties a file: attributes are those asked for, extended attributes and named streams go (MS-FSA 2.1.5.1.2).
    async fn overwrite(self: &Arc<Self>, plan: &Plan<'_>, open: &Arc<Open>, before: &FileInfo) -> Result<()> {
        let writer = self.writer(open).await?;
        plan.asker.unless_gone(open.node.orphans.ended()).await?;
        // From here on it comes to its end, whoever asks for it: what changes the file next comes after it.
        let _going = open.node.orphans.begin();
        open.node.data_changes();
        writer.set_size(0).await?;
        self.reserve(plan, open).await?;
        if open.stream.is_empty() {
            let kept = before.attributes.0 & crate::extras::INTERNAL.0;
            let attributes = plan.attributes.0 | FileAttributes::ARCHIVE.0 | kept;
            let change = file_store::InfoChange {
                attributes: Some(file_store::Attributes(attributes)),
                ..file_store::InfoChange::default()
            };
            open.store().set_info(open.node.file, change).await?;
            self.replace_ea(&open.node, plan.request.ea.unwrap_or_default()).await?;
            self.remove_named_streams(open).await?;
        }
        open.node.touched();
        // Others may have come in since admission, and cached what was there before.
        let by = By { creates: true, ..open.by() };
        self.break_for_change(&open.node, &open.stream, &by).await?;
        open.wrote(true).await
    }

    /// Removes all named streams that nobody has open.
    async fn remove_named_streams(&self, of: &Open) -> Result<()> {
        let node = &of.node;
        for stream in self.store.streams(node.file).await? {
            let open = {
                let state = node.state.lock();
                state.opens_of(&state.key_of(&stream.name)).next().is_some()
            };
            if !stream.name.is_empty() && !open {
                of.store().remove_stream(node.file, &stream.name).await?;
            }
        }
        Ok(())
    }

    /// Reserves what the AlSi context asks for.
    pub(super) async fn reserve(self: &Arc<Self>, plan: &Plan<'_>, open: &Arc<Open>) -> Result<()> {
        match plan.request.allocation_size {
            Some(bytes) if bytes > 0 && !open.directory => {
                let writer = self.writer(open).await?;
                writer.allocate(0, bytes, false).await?;
                open.node.touched();
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Rights that a disposition needs for what it does, whatever the open asks for. Who empties a file replaces its attributes and extended
/// attributes as well, and who supersedes it puts another one in its place: so it needs the right to delete, as with Windows' file systems.
fn implied(plan: &Plan<'_>, overwrites: bool, writes: bool) -> AccessMask {
    let more = match plan.request.disposition {
        _ if !overwrites || !plan.stream_name().is_empty() => AccessMask::NONE,
        CreateDisposition::SUPERSEDE => AccessMask::DELETE,
        _ => AccessMask::WRITE_EA | AccessMask::WRITE_ATTRIBUTES,
    };
    if writes { more | AccessMask::WRITE_DATA } else { more }
}

/// What a file's attributes forbid.
fn check_attributes(
    plan: &Plan<'_>,
    attributes: FileAttributes,
    rights: &Rights,
    directory: bool,
    (overwrites, writes): (bool, bool),
) -> Result<()> {
    let read_only = attributes.contains(FileAttributes::READONLY);
    if read_only && !directory && (rights.granted.intersects(WRITES) || writes) {
        return refuse(NtStatus::ACCESS_DENIED, "the file is read-only");
    }
    let guarded = attributes & (FileAttributes::HIDDEN | FileAttributes::SYSTEM);
    if overwrites && plan.stream_name().is_empty() && !plan.request.attributes.contains(guarded) {
        return refuse(NtStatus::ACCESS_DENIED, "a hidden or system file is overwritten by its kind only");
    }
    if plan.has(CreateOptions::DELETE_ON_CLOSE) && !rights.granted.contains(AccessMask::DELETE) {
        return refuse(NtStatus::ACCESS_DENIED, "deletion on close without the right to delete");
    }
    Ok(())
}
