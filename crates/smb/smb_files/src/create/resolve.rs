//! From a path to a file (MS-FSA 2.1.5.1, phase 6 on).

use std::sync::Arc;

use file_store::{FileKind, StoreErrorKind};
use smb_protocol::NtStatus;
use smb_protocol::access::{CreateDisposition, CreateOptions};
use smb_protocol::error::SymlinkError;
use smb_protocol::fsctl::reparse::Reparse;
use smb_protocol::utf16::utf16;

use super::plan::{Plan, Target};
use crate::error::{Detail, FileError, Result, refuse};
use crate::file_system::{Core, Pin};
use crate::path::{StreamPart, to_client};

/// Where a path leads.
pub(super) enum Found {
    /// To a file that is there.
    Existing(Pin),
    /// To a name in a directory that may be made.
    Missing(Pin, String),
}

impl Core {
    pub(super) async fn resolve(self: &Arc<Self>, root: &Pin, plan: &Plan<'_>) -> Result<Found> {
        let path = match &plan.target {
            Target::Id(id) => {
                return Ok(Found::Existing(self.pin_within(*id, root.file).await?));
            }
            Target::Path(path) => path,
        };
        let (start, known) = match plan.timewarp {
            Some(time) => self.previous(root, &path.components, time).await?,
            None => (root.clone(), 0),
        };
        let names = path.components.get(known..).unwrap_or_default();
        let Some((last, folders)) = names.split_last() else {
            return Ok(Found::Existing(start));
        };
        let mut directory = start;
        if !directory.is_directory() {
            return refuse(NtStatus::OBJECT_PATH_NOT_FOUND, "a directory of the path is a file");
        }
        for (depth, folder) in folders.iter().enumerate() {
            let Some(node) = self.child(&directory, folder).await? else {
                return refuse(NtStatus::OBJECT_PATH_NOT_FOUND, "a directory of the path does not exist");
            };
            if self.is_reparse_point(node.file).await? {
                let rest = names.get(depth + 1..).unwrap_or_default();
                return Err(self.stopped(&node, rest, &path.stream).await?);
            }
            if !node.is_directory() {
                return refuse(NtStatus::OBJECT_PATH_NOT_FOUND, "a directory of the path is a file");
            }
            directory = node;
        }
        if let Some(node) = self.child(&directory, last).await? {
            if path.directory && !node.is_directory() {
                return refuse(NtStatus::OBJECT_NAME_INVALID, "a file's name with a backslash behind it");
            }
            if !plan.has(CreateOptions::OPEN_REPARSE_POINT) && self.is_reparse_point(node.file).await? {
                if plan.request.disposition == CreateDisposition::CREATE {
                    return refuse(NtStatus::OBJECT_NAME_COLLISION, "a link has that name");
                }
                return Err(self.stopped(&node, &[], &path.stream).await?);
            }
            return Ok(Found::Existing(node));
        }
        if !plan.makes() {
            return refuse(NtStatus::OBJECT_NAME_NOT_FOUND, "there is no such file");
        }
        if path.directory && !plan.wants_directory() {
            return refuse(NtStatus::OBJECT_NAME_INVALID, "a file's name with a backslash behind it");
        }
        Ok(Found::Missing(directory, last.clone()))
    }

    /// The file of that name, be it the short one, in a directory. Waits while the name is being changed.
    pub(crate) async fn child(self: &Arc<Self>, directory: &Pin, name: &str) -> Result<Option<Pin>> {
        self.names.wait(directory.file, name).await;
        if let Some(node) = self.child_now(directory, name).await? {
            return Ok(Some(node));
        }
        match self.lookup_alias(directory.file, name).await? {
            Some(entry) => self.pin_entry(directory, &entry).await,
            None => Ok(None),
        }
    }

    /// The file of that long name, for who changes the name itself.
    pub(crate) async fn child_now(self: &Arc<Self>, directory: &Pin, name: &str) -> Result<Option<Pin>> {
        match self.store.lookup(directory.file, name).await {
            Ok(entry) => self.pin_entry(directory, &entry).await,
            Err(error) if error.kind() == StoreErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The error of a path that meets a reparse point (MS-SMB2 2.2.2.2.1).
    async fn stopped(&self, node: &Pin, rest: &[String], stream: &StreamPart) -> Result<FileError> {
        let data = self.reparse_data(node.file).await?.unwrap_or_default();
        let (substitute, print, relative) = match Reparse::decode(&data) {
            Ok(Reparse::Symlink { substitute, print, relative }) => (substitute, print, relative),
            Ok(Reparse::MountPoint { substitute, print }) => (substitute, print, false),
            _ => {
                let reason = "the path meets a reparse point that only its owner understands";
                return Ok(FileError::new(NtStatus::IO_REPARSE_TAG_NOT_HANDLED, reason));
            }
        };
        let mut unparsed: String = rest.iter().map(|name| format!("\\{}", to_client(name))).collect();
        if let StreamPart::Named(name) = stream {
            unparsed.push(':');
            unparsed.push_str(&to_client(name));
        }
        let unparsed_len = u16::try_from(utf16(&unparsed).len()).unwrap_or(u16::MAX);
        let data = SymlinkError { unparsed_len, substitute, print, relative }.encode();
        let error = FileError::new(NtStatus::STOPPED_ON_SYMLINK, "the path meets a symbolic link");
        Ok(error.with(Detail::Symlink(data.into_boxed_slice())))
    }
}

/// Whether the kind that exists is one that was asked for.
pub(super) fn check_kind(plan: &Plan<'_>, kind: FileKind) -> Result<()> {
    let directory = kind == FileKind::Directory;
    match (&plan.stream, directory) {
        (StreamPart::Named(_), _) => Ok(()),
        (StreamPart::Data, true) => {
            refuse(NtStatus::FILE_IS_A_DIRECTORY, "a directory has no unnamed stream")
        }
        (_, true) if plan.has(CreateOptions::NON_DIRECTORY_FILE) => {
            refuse(NtStatus::FILE_IS_A_DIRECTORY, "a directory where a file was asked for")
        }
        (_, false) if plan.wants_directory() => {
            refuse(NtStatus::NOT_A_DIRECTORY, "a file where a directory was asked for")
        }
        (_, true) if plan.overwrites() => {
            refuse(NtStatus::INVALID_PARAMETER, "a directory cannot be overwritten")
        }
        _ => Ok(()),
    }
}
