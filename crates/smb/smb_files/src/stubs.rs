//! Signatures whose bodies follow.

use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use smb_protocol::access::{AccessMask, OplockLevel};
use smb_protocol::create::lease::{LeaseKey, LeaseState};
use smb_protocol::directory::CompletionFilter;
use smb_protocol::fscc::{FileClass, VolumeClass};
use smb_protocol::fsctl::FsctlCode;
use smb_protocol::fsctl::copy::ResumeKey;
use smb_protocol::info::{QueryInfoFlags, SecurityInformation};
use smb_protocol::lock::LockElement;
use smb_protocol::{Guid, NtStatus};

use crate::api::*;
use crate::error::Result;
use crate::open::*;
use crate::record::OpenRecord;
use crate::{FileError, FileSystem};

fn later<T>() -> Result<T> {
    Err(FileError::from(NtStatus::NOT_IMPLEMENTED))
}

#[allow(unused_variables, clippy::unused_async, reason = "stub")]
impl FileSystem {
    /// CREATE (MS-FSA 2.1.5.1). Dropping the future before it ends leaves nothing open.
    ///
    /// # Errors
    /// Those of the specification, among them STOPPED_ON_SYMLINK with its data in the detail, SHARING_VIOLATION after
    /// breaks that could have helped, and FILE_NOT_AVAILABLE where a disconnected persistent open protects the file.
    pub async fn create(&self, caller: &Caller, request: CreateRequest<'_>) -> Result<Created> {
        later()
    }

    /// Acknowledges a lease break; returns the state that the lease has now.
    ///
    /// # Errors
    /// OBJECT_NAME_NOT_FOUND without such a lease, UNSUCCESSFUL when it is not being broken, REQUEST_NOT_ACCEPTED when
    /// `state` is more than was offered (MS-SMB2 3.3.5.22.2).
    pub fn acknowledge_lease(&self, client: Guid, key: LeaseKey, state: LeaseState) -> Result<LeaseState> {
        later()
    }

    /// All opens.
    #[must_use]
    pub fn opens(&self) -> Vec<OpenSummary> {
        Vec::new()
    }

    /// The open with this number.
    #[must_use]
    pub fn open_by_id(&self, id: OpenId) -> Option<Arc<Open>> {
        None
    }

    /// The open whose resume key this is; of any session: the caller compares the owner.
    #[must_use]
    pub fn open_by_resume_key(&self, key: ResumeKey) -> Option<Arc<Open>> {
        None
    }

    /// Closes an open from outside and tells its holder; says whether there was one.
    pub async fn force_close(&self, id: OpenId) -> bool {
        false
    }

    /// Brings disconnected persistent opens back, before anything else is served. Each is as it was, without a holder,
    /// or the reason why it cannot be (its file is gone).
    pub async fn restore(&self, records: Vec<OpenRecord>) -> Vec<Result<Arc<Open>>> {
        Vec::new()
    }
}

#[allow(unused_variables, clippy::unused_async, reason = "stub")]
impl Open {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> OpenId {
        OpenId(0)
    }

    /// Its rights.
    #[must_use]
    pub fn granted(&self) -> AccessMask {
        self.granted
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        false
    }

    /// The path below the share's root, without a backslash before it, with the stream if it is a named one.
    #[must_use]
    pub fn path(&self) -> String {
        String::new()
    }

    /// Who opened it and through which share.
    #[must_use]
    pub fn caller(&self) -> Caller {
        unimplemented!()
    }

    /// The key that names this open as a source of COPYCHUNK.
    #[must_use]
    pub fn resume_key(&self) -> ResumeKey {
        ResumeKey::default()
    }

    /// What caching it has now (for reconnects).
    #[must_use]
    pub fn caching(&self) -> Granted {
        Granted::Oplock(OplockLevel::NONE)
    }

    /// Times, sizes and attributes now.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn info(&self) -> Result<OpenInfo> {
        later()
    }

    /// Reads into `buf` and gives it back, cut at the end of the file.
    ///
    /// # Errors
    /// ACCESS_DENIED, INVALID_DEVICE_REQUEST for a directory, FILE_LOCK_CONFLICT, END_OF_FILE beyond the end,
    /// INVALID_PARAMETER, FILE_CLOSED.
    pub async fn read(&self, offset: u64, buf: IoBuf) -> Result<IoBuf> {
        later()
    }

    /// Writes; u64::MAX as offset appends. Returns how many bytes.
    ///
    /// # Errors
    /// ACCESS_DENIED, INVALID_DEVICE_REQUEST, FILE_LOCK_CONFLICT, DISK_FULL, INVALID_PARAMETER, FILE_CLOSED.
    pub async fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> Result<u32> {
        later()
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// ACCESS_DENIED without a right to write, FILE_CLOSED.
    pub async fn flush(&self) -> Result<()> {
        later()
    }

    /// Locks or unlocks ranges (MS-SMB2 3.3.5.14). Waits where an element does not fail immediately; dropping the future
    /// is CANCEL.
    ///
    /// # Errors
    /// LOCK_NOT_GRANTED, RANGE_NOT_LOCKED, INVALID_LOCK_RANGE, INVALID_PARAMETER, FILE_CLOSED; RANGE_NOT_LOCKED also ends
    /// a wait whose open is closed.
    pub async fn lock(&self, elements: &[LockElement], on_wait: &dyn Fn()) -> Result<()> {
        later()
    }

    /// QUERY_INFO about the file. `input`, `index` and `flags` are for extended attributes. Appends at most `limit` bytes
    /// to `out` and returns SUCCESS or BUFFER_OVERFLOW.
    ///
    /// # Errors
    /// INVALID_INFO_CLASS, INFO_LENGTH_MISMATCH when `limit` is below the fixed part, ACCESS_DENIED, and others.
    pub async fn query_info(
        &self,
        class: FileClass,
        input: &[u8],
        index: u32,
        flags: QueryInfoFlags,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<NtStatus> {
        later()
    }

    /// SET_INFO about the file: times, sizes, names, deletion, extended attributes.
    ///
    /// # Errors
    /// Those of the class.
    pub async fn set_info(&self, class: FileClass, buffer: &[u8], on_wait: &dyn Fn()) -> Result<()> {
        later()
    }

    /// QUERY_INFO about the volume.
    ///
    /// # Errors
    /// INVALID_INFO_CLASS, INFO_LENGTH_MISMATCH.
    pub async fn query_volume(&self, class: VolumeClass, limit: usize, out: &mut Vec<u8>) -> Result<NtStatus> {
        later()
    }

    /// SET_INFO about the volume.
    ///
    /// # Errors
    /// ACCESS_DENIED, INVALID_INFO_CLASS.
    pub async fn set_volume(&self, class: VolumeClass, buffer: &[u8]) -> Result<()> {
        later()
    }

    /// The parts of the security descriptor that are asked for.
    ///
    /// # Errors
    /// ACCESS_DENIED; BUFFER_TOO_SMALL with the needed length as detail.
    pub async fn query_security(
        &self,
        wanted: SecurityInformation,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        later()
    }

    /// Replaces parts of the security descriptor.
    ///
    /// # Errors
    /// ACCESS_DENIED, INVALID_SECURITY_DESCR, INVALID_OWNER.
    pub async fn set_security(&self, parts: SecurityInformation, descriptor: &[u8]) -> Result<()> {
        later()
    }

    /// QUERY_DIRECTORY. Appends entries to `out`.
    ///
    /// # Errors
    /// NO_SUCH_FILE when nothing matches from the beginning, NO_MORE_FILES at the end, INFO_LENGTH_MISMATCH when not one
    /// entry fits, OBJECT_NAME_INVALID, INVALID_INFO_CLASS, ACCESS_DENIED.
    pub async fn query_directory(&self, query: DirectoryQuery<'_>, out: &mut Vec<u8>) -> Result<()> {
        later()
    }

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
        later()
    }

    /// A file system control; returns its output. Those of the server itself (negotiation, network interfaces, resilience,
    /// snapshots, pipes) do not come here. SRV_REQUEST_RESUME_KEY does.
    ///
    /// # Errors
    /// INVALID_DEVICE_REQUEST for controls that are not known, and those of each control.
    pub async fn fsctl(
        &self,
        code: FsctlCode,
        input: &[u8],
        limit: usize,
        others: &dyn OpenLookup,
    ) -> Result<(NtStatus, Vec<u8>)> {
        later()
    }

    /// Acknowledges an oplock break; returns the level that the open has now (MS-SMB2 3.3.5.22.1).
    ///
    /// # Errors
    /// INVALID_PARAMETER, INVALID_OPLOCK_PROTOCOL, INVALID_DEVICE_STATE.
    pub fn acknowledge_oplock(&self, level: OplockLevel) -> Result<OplockLevel> {
        later()
    }

    /// Says how long it outlives its connection.
    pub fn set_durability(&self, durability: Durability) {}

    /// How long it outlives its connection.
    #[must_use]
    pub fn durability(&self) -> Durability {
        Durability::None
    }

    /// Its connection is gone: nobody hears of breaks. Changes that it waits for (locks, notification) are the server's
    /// to cancel.
    pub fn detach(&self) {}

    /// Its client is back.
    pub fn attach(&self, holder: Arc<dyn Holder>, owner: OwnerId) {}

    /// Whether it is detached.
    #[must_use]
    pub fn is_detached(&self) -> bool {
        false
    }

    /// Whether it was closed, by whomever.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        false
    }

    /// Its durable form, as it is now.
    #[must_use]
    pub fn record(&self) -> OpenRecord {
        unimplemented!()
    }

    /// Closes it: releases locks and caching, ends waits, deletes what is to be deleted. With `query`, returns times, sizes
    /// and attributes as they were before.
    ///
    /// # Errors
    /// FILE_CLOSED when it was closed already; what the deletion met is logged, not returned.
    pub async fn close(&self, query: bool) -> Result<Option<OpenInfo>> {
        later()
    }
}
