//! What a CREATE asks for, checked as far as it can be without looking at files.

use smb_protocol::access::{AccessMask, CreateDisposition, CreateOptions, FileAttributes, ShareAccess};
use smb_protocol::fscc::ea::EaList;
use smb_protocol::fsctl::snapshots::snapshot_time;
use smb_protocol::{FileTime, NtStatus};

use super::Unwind;
use super::asker::Asker;
use crate::api::{CachingRequest, Caller, CreateRequest, LeaseName};
use crate::error::{Result, refuse};
use crate::path::{ParsedPath, StreamPart, parse};
use crate::previous::CHANGES;

/// Options that are refused as Windows' server does (MS-SMB2 3.3.5.9).
const NOT_SUPPORTED: CreateOptions =
    CreateOptions(CreateOptions::CREATE_TREE_CONNECTION.0 | CreateOptions::RESERVE_OPFILTER.0);
/// All bits that options may have.
const VALID_OPTIONS: u32 = 0x00ff_ffff;
/// Attributes that may be asked for.
const VALID_ATTRIBUTES: u32 = 0x0000_7fb7;
/// Attributes that a new file takes over.
const KEPT_ATTRIBUTES: FileAttributes = FileAttributes(
    FileAttributes::READONLY.0
        | FileAttributes::HIDDEN.0
        | FileAttributes::SYSTEM.0
        | FileAttributes::ARCHIVE.0
        | FileAttributes::TEMPORARY.0
        | FileAttributes::OFFLINE.0
        | FileAttributes::NOT_CONTENT_INDEXED.0,
);
/// Bytes of a name that is a file's number.
const FILE_ID_BYTES: usize = 8;

/// A checked CREATE.
pub(super) struct Plan<'a> {
    pub(super) caller: &'a Caller,
    pub(super) request: &'a CreateRequest<'a>,
    pub(super) target: Target,
    /// The file as it was at that time.
    pub(super) timewarp: Option<FileTime>,
    /// Whether what is there would be changed, or could be through the open.
    changes: bool,
    pub(super) stream: StreamPart,
    /// Rights asked for, generic ones mapped; MAXIMUM_ALLOWED and ACCESS_SYSTEM_SECURITY may be among them.
    pub(super) desired: AccessMask,
    /// Attributes of a new file.
    pub(super) attributes: FileAttributes,
    pub(super) unwind: Unwind,
    pub(super) asker: &'a Asker,
}

/// Which file is meant.
pub(super) enum Target {
    Path(ParsedPath),
    Id(file_store::FileId),
}

impl<'a> Plan<'a> {
    pub(super) fn new(caller: &'a Caller, request: &'a CreateRequest<'a>, asker: &'a Asker) -> Result<Self> {
        // Before everything else, as Windows' server does (MS-SMB2 3.3.5.9).
        let desired = desired(request)?;
        let options = request.options;
        if options.0 & !VALID_OPTIONS != 0 {
            return refuse(NtStatus::INVALID_PARAMETER, "unknown create options");
        }
        if options.intersects(NOT_SUPPORTED) {
            return refuse(NtStatus::NOT_SUPPORTED, "a create option that is not served");
        }
        if options.contains(CreateOptions::DIRECTORY_FILE | CreateOptions::NON_DIRECTORY_FILE) {
            return refuse(NtStatus::INVALID_PARAMETER, "a directory that is none");
        }
        let disposition = request.disposition;
        if disposition.0 > CreateDisposition::OVERWRITE_IF.0 {
            return refuse(NtStatus::INVALID_PARAMETER, "unknown disposition");
        }
        if options.contains(CreateOptions::DIRECTORY_FILE) && overwrites(disposition) {
            return refuse(NtStatus::INVALID_PARAMETER, "a directory cannot be overwritten");
        }
        if request.share_access.0 & !ShareAccess(7).0 != 0 {
            return refuse(NtStatus::INVALID_PARAMETER, "unknown share access");
        }
        if request.attributes.0 & !VALID_ATTRIBUTES != 0 {
            return refuse(NtStatus::INVALID_PARAMETER, "unknown attributes");
        }
        if options.contains(CreateOptions::DELETE_ON_CLOSE)
            && !desired.intersects(AccessMask::DELETE | AccessMask::MAXIMUM_ALLOWED)
        {
            return refuse(NtStatus::INVALID_PARAMETER, "deletion on close without the right to delete");
        }
        if request.ea.is_some() && options.contains(CreateOptions::NO_EA_KNOWLEDGE) {
            return refuse(NtStatus::ACCESS_DENIED, "attributes from who does not know them");
        }
        if let Some(ea) = request.ea
            && EaList::new(ea).is_err()
        {
            return refuse(NtStatus::EA_LIST_INCONSISTENT, "the extended attributes are no list");
        }
        let (mut target, stream) = target(request)?;
        let timewarp = timewarp(request, &mut target);
        if timewarp.is_some() && matches!(target, Target::Id(_)) {
            return refuse(NtStatus::NOT_SUPPORTED, "a file's number leads to the file as it is now");
        }
        let changes = options.contains(CreateOptions::DELETE_ON_CLOSE)
            || disposition == CreateDisposition::CREATE
            || overwrites(disposition)
            || desired.intersects(CHANGES);
        Ok(Self {
            timewarp,
            changes,
            caller,
            request,
            target,
            stream,
            desired,
            attributes: request.attributes & KEPT_ATTRIBUTES,
            unwind: Unwind::default(),
            asker,
        })
    }

    /// Refuses to change a previous version, or to make something in one. Asked when it is known what is there: what was not
    /// there at that time is not found, whatever it is wanted for.
    ///
    /// # Errors
    /// MEDIA_WRITE_PROTECTED.
    pub(super) fn keep_previous(&self, makes: bool) -> Result<()> {
        if self.timewarp.is_some() && (self.changes || makes) {
            return refuse(NtStatus::MEDIA_WRITE_PROTECTED, "previous versions never change");
        }
        Ok(())
    }

    pub(super) fn has(&self, option: CreateOptions) -> bool {
        self.request.options.contains(option)
    }

    /// Whether an existing file is emptied.
    pub(super) fn overwrites(&self) -> bool {
        overwrites(self.request.disposition)
    }

    /// Whether a missing file is made.
    pub(super) fn makes(&self) -> bool {
        !matches!(self.request.disposition, CreateDisposition::OPEN | CreateDisposition::OVERWRITE)
    }

    /// The name of the stream; empty for the unnamed one.
    pub(super) fn stream_name(&self) -> &str {
        match &self.stream {
            StreamPart::Named(name) => name,
            _ => "",
        }
    }

    /// Whether the path can only mean a directory.
    pub(super) fn wants_directory(&self) -> bool {
        self.has(CreateOptions::DIRECTORY_FILE) || self.stream == StreamPart::Directory
    }

    /// The lease that is wanted.
    pub(super) fn lease(&self) -> Option<LeaseName> {
        match &self.request.caching {
            CachingRequest::Lease(lease) => Some(self.caller.lease(lease.key)),
            _ => None,
        }
    }
}

fn overwrites(disposition: CreateDisposition) -> bool {
    matches!(
        disposition,
        CreateDisposition::SUPERSEDE | CreateDisposition::OVERWRITE | CreateDisposition::OVERWRITE_IF
    )
}

/// The time that TWrp names, or a `@GMT-…` in the path, which is taken out (MS-SMB2 3.3.5.9).
fn timewarp(request: &CreateRequest<'_>, target: &mut Target) -> Option<FileTime> {
    let Target::Path(path) = target else { return request.timewarp };
    let token = path.components.iter().position(|name| snapshot_time(name).is_some());
    let in_path = token.and_then(|at| snapshot_time(&path.components.remove(at)));
    request.timewarp.or(in_path)
}

fn desired(request: &CreateRequest<'_>) -> Result<AccessMask> {
    let asked = request.desired_access;
    if asked.is_empty() || !AccessMask::VALID.contains(asked) {
        return refuse(NtStatus::ACCESS_DENIED, "no right, or an unknown one, was asked for");
    }
    Ok(asked.map_generic())
}

fn target(request: &CreateRequest<'_>) -> Result<(Target, StreamPart)> {
    if request.options.contains(CreateOptions::OPEN_BY_FILE_ID) {
        return match <[u8; FILE_ID_BYTES]>::try_from(request.name.bytes()) {
            Ok(id) => Ok((Target::Id(file_store::FileId(u64::from_le_bytes(id))), StreamPart::None)),
            // What Windows' server says to all of them (MS-SMB2 3.3.5.9).
            Err(_) => refuse(NtStatus::NOT_SUPPORTED, "a file's number has eight bytes"),
        };
    }
    let path = parse(request.name)?;
    let named = matches!(path.stream, StreamPart::Named(_) | StreamPart::Data);
    if named && request.options.contains(CreateOptions::DIRECTORY_FILE) {
        return refuse(NtStatus::NOT_A_DIRECTORY, "a stream is no directory");
    }
    let stream = path.stream.clone();
    Ok((Target::Path(path), stream))
}
