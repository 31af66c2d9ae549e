//! Making a file (MS-FSA 2.1.5.1.1).

use std::sync::Arc;

use file_store::{Attributes, FileKind, NewFile, StoreErrorKind};
use smb_protocol::NtStatus;
use smb_protocol::access::{AccessMask, CreateAction, CreateOptions, FileAttributes};
use smb_protocol::directory::CompletionFilter;
use smb_protocol::fscc::notify::NotifyAction;
use smb_protocol::security::{Control, SecurityDescriptor};

use super::admit::Admission;
use super::plan::Plan;
use super::{Admitted, Attempt};
use crate::error::{Result, refuse};
use crate::file_system::{Core, Pin};
use crate::path::StreamPart;

impl Core {
    pub(super) async fn make(
        self: &Arc<Self>,
        plan: &Plan<'_>,
        directory: &Pin,
        name: &str,
    ) -> Result<Attempt> {
        plan.keep_previous(true)?;
        let kind = if plan.wants_directory() { FileKind::Directory } else { FileKind::File };
        let long = self.name_again(directory.file, name);
        let name = long.as_deref().unwrap_or(name);
        let granted = self.check_making(plan, directory, kind).await?;
        let new = self.describe(plan, directory, kind).await?;
        let guard = self.names.lock(directory.file, name).await;
        if directory.name.is_going() {
            return refuse(NtStatus::DELETE_PENDING, "the directory is being deleted");
        }
        plan.asker.is_there()?;
        let store = self.store_for(plan.caller, plan.request.options);
        let file = match store.create(directory.file, name, new).await {
            Ok(file) => file,
            // Somebody was faster.
            Err(error) if error.kind() == StoreErrorKind::AlreadyExists => return Ok(Attempt::Again),
            Err(error) if error.kind() == StoreErrorKind::NotFound => {
                return refuse(NtStatus::OBJECT_PATH_NOT_FOUND, "the directory is gone");
            }
            Err(error) => return Err(error.into()),
        };
        let node = self.pin(file, kind, directory, name);
        let admission = Admission {
            node,
            stream_name: plan.stream_name().to_owned(),
            make_stream: matches!(plan.stream, StreamPart::Named(_)),
            directory: kind == FileKind::Directory,
            granted,
            implied: AccessMask::NONE,
            overwrites: false,
        };
        let node = admission.node.clone();
        let admitted = match self.admit(plan, admission).await {
            Ok(Some((open, caching))) => self.finish_making(plan, &open).await.map(|()| (open, caching)),
            Ok(None) => refuse(NtStatus::DELETE_PENDING, "the new file was removed at once"),
            Err(error) => Err(error),
        };
        let (open, caching) = match admitted {
            Ok(done) => done,
            Err(error) => {
                // It was never there: nobody can have seen it, as the name is still locked.
                plan.unwind.run().await;
                if let Err(left) = store.remove(directory.file, name).await {
                    tracing::warn!("a file that could not be made stays: {left}");
                }
                return Err(error);
            }
        };
        drop(guard);
        let filter = if kind == FileKind::Directory {
            CompletionFilter::DIR_NAME
        } else {
            CompletionFilter::FILE_NAME
        };
        self.watches.tell(&node, NotifyAction::ADDED, filter);
        self.listing_changed(directory, Some(&open)).await;
        let maximal = plan.caller.share.maximal_access;
        Ok(Attempt::Done(Admitted { open, action: CreateAction::CREATED, granted: caching, maximal }))
    }

    /// Whether the user may make it, and what the open then may do: everything that it asks for, as its maker.
    async fn check_making(&self, plan: &Plan<'_>, directory: &Pin, kind: FileKind) -> Result<AccessMask> {
        let (caller, attributes) = (plan.caller, plan.attributes);
        let needed = match kind {
            FileKind::File => AccessMask::WRITE_DATA,
            FileKind::Directory => AccessMask::APPEND_DATA,
        };
        let security = self.security(directory).await?;
        let rights = smb_security::maximal(&security, &caller.token) & caller.share.maximal_access;
        if !rights.contains(needed) {
            return refuse(NtStatus::ACCESS_DENIED, "the user may not make files in the directory");
        }
        let read_only = attributes.contains(FileAttributes::READONLY);
        if read_only && plan.has(CreateOptions::DELETE_ON_CLOSE) {
            return refuse(NtStatus::CANNOT_DELETE, "a read-only file that goes when it is closed");
        }
        if kind == FileKind::Directory && plan.request.attributes.contains(FileAttributes::TEMPORARY) {
            return refuse(NtStatus::INVALID_PARAMETER, "a temporary directory");
        }
        let system = plan.desired & AccessMask::ACCESS_SYSTEM_SECURITY;
        if !system.is_empty() && !caller.token.privileges.security {
            return refuse(NtStatus::PRIVILEGE_NOT_HELD, "SACLs need the security privilege");
        }
        let asked = plan.desired.without(AccessMask::MAXIMUM_ALLOWED | system);
        if !caller.share.maximal_access.contains(asked) {
            return refuse(NtStatus::ACCESS_DENIED, "the share does not allow what is asked for");
        }
        let all = plan.desired.contains(AccessMask::MAXIMUM_ALLOWED);
        Ok(if all { caller.share.maximal_access & AccessMask::FILE_ALL } else { asked } | system)
    }

    /// Attributes and descriptor of the new file.
    async fn describe(&self, plan: &Plan<'_>, directory: &Pin, kind: FileKind) -> Result<NewFile> {
        let token = &plan.caller.token;
        let creator = match plan.request.security {
            None => None,
            Some(bytes) => match SecurityDescriptor::decode(bytes) {
                Ok(sd) => Some(sd),
                Err(error) => {
                    let reason = format!("the security descriptor cannot be read: {error}");
                    return refuse(NtStatus::INVALID_SECURITY_DESCR, reason);
                }
            },
        };
        if let Some(sd) = &creator {
            if sd.owner.is_some_and(|owner| !token.may_make_owner(&owner)) {
                return refuse(NtStatus::INVALID_OWNER, "the user may not make that the owner");
            }
            if sd.control.contains(Control::SACL_PRESENT) && sd.sacl.is_some() && !token.privileges.security {
                return refuse(NtStatus::PRIVILEGE_NOT_HELD, "SACLs need the security privilege");
            }
        }
        let parent = self.security(directory).await?;
        let new = smb_security::NewObject {
            parent: Some(&parent),
            creator: creator.as_ref(),
            container: kind == FileKind::Directory,
            token,
        };
        let security = smb_security::new_object(&new).encode();
        if security.len() > file_store::SECURITY_MAX {
            return refuse(NtStatus::INVALID_SECURITY_DESCR, "the security descriptor is too long");
        }
        let attributes = match kind {
            FileKind::File => plan.attributes | FileAttributes::ARCHIVE,
            FileKind::Directory => plan.attributes.without(FileAttributes::ARCHIVE),
        };
        Ok(NewFile { kind, attributes: Attributes(attributes.0), security })
    }

    async fn finish_making(
        self: &Arc<Self>,
        plan: &Plan<'_>,
        open: &Arc<crate::file_system::Open>,
    ) -> Result<()> {
        if let Some(ea) = plan.request.ea.filter(|ea| !ea.is_empty()) {
            self.replace_ea(&open.node, ea).await?;
        }
        self.reserve(plan, open).await
    }
}
