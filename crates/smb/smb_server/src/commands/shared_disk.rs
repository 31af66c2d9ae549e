//! Opening a file as a shared virtual disk (MS-RSVD 3.2.5.1, MS-SMB2 3.3.5.9.14), and what such an open does with READ, WRITE, FLUSH, controls
//! and SET_INFO.
//!
//! Reads and writes are SCSI commands of the open's initiator like those of the tunnel: reservations hold for all of them.

use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use qos_gate::Flow;
use rsvd_protocol::NAME_SUFFIX;
use rsvd_protocol::open::{DiskProperties, OpenDevice, Originator};
use rsvd_protocol::scsi::{Sensed, SrbStatus};
use smb_files::DiskUse;
use smb_protocol::access::{AccessMask, CreateDisposition, CreateOptions, ShareAccess};
use smb_protocol::create::CreateRequest;
use smb_protocol::create::contexts::{ContextWriter, tag};
use smb_protocol::fscc::FileClass;
use smb_protocol::fsctl::FsctlCode;
use smb_protocol::utf16::utf16;
use smb_protocol::{Dialect, NtStatus};

use super::contexts::Contexts;
use super::{Call, turn};
use crate::config::ShareKind;
use crate::disks::{DiskAnswer, DiskFacts, DiskFile, SharedDisk};
use crate::open::disk::DiskOpen;
use crate::open::{Open, Thing};
use crate::session::Session;
use crate::shared::Shared;
use crate::tree::Target;

/// The version that is spoken. Sets (`.vhds`), which it brought, are refused.
pub(super) const SERVER: rsvd_protocol::Version = rsvd_protocol::Version::V2;
/// How names of files end that can be shared disks.
const EXTENSION: &str = ".VHDX";
/// What the specification's servers leave for a read or write of nobody (3.2.5.3, endnote 12).
const OF_NOBODY: [u8; 20] = [0xf0, 0, 0, 0, 0, 0, 0, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// How long a read or write waits before it asks once more, where the disk has no room for its command.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// What a CREATE with the context asks for.
pub(super) struct WantedDisk {
    pub(super) device: OpenDevice,
    /// The file's name without what clients append to it, in UTF-16.
    pub(super) name: Vec<u8>,
}

/// Whether shared disks are served: where a scale-out share is, and to who speaks 3.0.2 or newer (3.2.3, 2.1).
pub(super) fn are_served(shared: &Shared, dialect: Dialect) -> bool {
    let scale_out =
        || shared.shares.published().iter().any(|share| share.config().kind == ShareKind::ScaleOut);
    dialect >= Dialect::SMB_3_0_2 && shared.parts.disks.are_served() && scale_out()
}

/// A file's name without what clients append to it.
pub(super) fn file_name(name: &str) -> Option<&str> {
    let at = name.len().checked_sub(NAME_SUFFIX.len())?;
    let (file, suffix) = (name.get(..at)?, name.get(at..)?);
    suffix.eq_ignore_ascii_case(NAME_SUFFIX).then_some(file)
}

impl WantedDisk {
    /// What a CREATE asks for; `None` without the context.
    ///
    /// # Errors
    /// INVALID_DEVICE_REQUEST where shared disks are not served, and what is wrong with the context or the request.
    pub(super) fn of(
        call: &Call<'_>,
        request: &CreateRequest<'_>,
        contexts: &Contexts<'_>,
    ) -> Result<Option<Self>, NtStatus> {
        let Some(data) = contexts.disk else { return Ok(None) };
        if !are_served(&call.conn.shared, call.dialect()) {
            return Err(NtStatus::INVALID_DEVICE_REQUEST);
        }
        let device = OpenDevice::of_request(data)?;
        if request.options.intersects(CreateOptions::OPEN_BY_FILE_ID | CreateOptions::DIRECTORY_FILE) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let name = request.name.to_string().map_err(|_| NtStatus::OBJECT_NAME_INVALID)?;
        let file = file_name(&name).unwrap_or(&name);
        let wanted = Self { device, name: utf16(file) };
        if wanted.is_of_host() {
            return Ok(Some(wanted));
        }
        if !upcase::upper(file).ends_with(EXTENSION) || file.contains(':') {
            return Err(NtStatus::SVHDX_WRONG_FILE_TYPE);
        }
        // Nothing of the file is made, emptied or deleted by opening the disk in it, and no version of before is a disk.
        let opens = matches!(request.disposition, CreateDisposition::OPEN | CreateDisposition::OPEN_IF);
        if !opens || contexts.timewarp.is_some() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        if request.options.contains(CreateOptions::DELETE_ON_CLOSE) {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        Ok(Some(wanted))
    }

    /// Whether it is the bytes of the file that a host wants.
    fn is_of_host(&self) -> bool {
        self.device.originator == Originator::VHDMP
    }

    /// What the disk's open is to be.
    pub(super) fn open(&self) -> Option<Arc<DiskOpen>> {
        (!self.is_of_host()).then(|| DiskOpen::new(self.device.initiator()))
    }

    /// What is asked of the file for it: who opens the disk may read and write all of it, and shares that with the others who do.
    pub(super) fn ask<'a>(&'a self, wanted: &mut smb_files::CreateRequest<'a>) -> Result<(), NtStatus> {
        wanted.name = smb_protocol::Utf16::new(&self.name).map_err(|_| NtStatus::OBJECT_NAME_INVALID)?;
        if self.is_of_host() {
            wanted.disk = DiskUse::HostBytes;
            return Ok(());
        }
        wanted.disk = DiskUse::Disk;
        wanted.disposition = CreateDisposition::OPEN;
        wanted.options |= CreateOptions::NON_DIRECTORY_FILE;
        // A disk is not deleted, and nothing more than its bytes is asked of the file.
        let asked = wanted.desired_access.without(AccessMask::DELETE | AccessMask::MAXIMUM_ALLOWED);
        wanted.desired_access = asked | AccessMask::READ_DATA | AccessMask::WRITE_DATA;
        wanted.share_access = ShareAccess::READ | ShareAccess::WRITE;
        wanted.caching = smb_files::CachingRequest::None;
        Ok(())
    }
}

/// The disk of an open, opened if it is not yet.
///
/// # Errors
/// INVALID_PARAMETER for an open of something else, and why the disk cannot be opened.
pub(crate) async fn disk_of(shared: &Shared, open: &Open) -> Result<Arc<dyn SharedDisk>, NtStatus> {
    let (Some(disk), Thing::File(file), Target::Disk(target)) = (&open.disk, &open.thing, &open.tree.target)
    else {
        return Err(NtStatus::INVALID_PARAMETER);
    };
    let which = || DiskFile {
        files: target.files.clone(),
        file: file.file(),
        path: file.volume_path(),
        initiator: disk.initiator,
    };
    let opened = disk.disk(&*shared.parts.disks, which).await?;
    if file.is_closed() {
        // From outside, while the disk was being opened: whoever did that may not have known of it.
        disk.close().await;
        return Err(NtStatus::FILE_CLOSED);
    }
    Ok(opened)
}

/// Before an open of a disk is given to its client again: the disk is there, and the client means this open.
///
/// # Errors
/// INVALID_HANDLE for another initiator's, what is wrong with the context, and FILE_NOT_AVAILABLE while the disk cannot be opened: the
/// client is to come again.
pub(super) async fn comes_back(
    shared: &Shared,
    open: &Open,
    contexts: &Contexts<'_>,
) -> Result<(), NtStatus> {
    let device = contexts.disk.map(OpenDevice::of_request).transpose()?;
    let Some(disk) = &open.disk else { return Ok(()) };
    if device.is_some_and(|device| device.initiator() != disk.initiator) {
        return Err(NtStatus::INVALID_HANDLE);
    }
    disk_of(shared, open).await.map(drop).map_err(|status| {
        tracing::debug!(persistent = open.id.persistent, %status, "SMB reconnection refused: its disk is not there yet");
        NtStatus::FILE_NOT_AVAILABLE
    })
}

/// What the answer to a CREATE says of the disk.
pub(super) async fn reply(
    call: &Call<'_>,
    open: &Open,
    contexts: &Contexts<'_>,
    replies: &mut ContextWriter,
) -> Result<(), NtStatus> {
    let Some(data) = contexts.disk else { return Ok(()) };
    let device = OpenDevice::of_request(data)?;
    let properties = match &open.disk {
        Some(_) => properties(&disk_of(&call.conn.shared, open).await?.facts()),
        None => DiskProperties { server: SERVER, ..DiskProperties::default() },
    };
    replies.push(tag::SVHDX_OPEN_DEVICE, &device.encode(&properties));
    Ok(())
}

fn properties(facts: &DiskFacts) -> DiskProperties {
    let DiskFacts { sector, physical_sector, size, .. } = *facts;
    DiskProperties { known: 1, server: SERVER, sector, physical_sector, size }
}

/// What a command has left, as it is told.
pub(super) fn sensed(answer: Option<&DiskAnswer>) -> Sensed {
    /// TASK ABORTED.
    const ABORTED: u8 = 0x40;
    match answer {
        Some(answer) if answer.status == 0 => Sensed::of(SrbStatus::SUCCESS, 0, &[]),
        Some(answer) => Sensed::of(SrbStatus::ERROR, answer.status, &answer.sense),
        None => Sensed::of(SrbStatus::ABORTED, ABORTED, &[]),
    }
}

/// Key, additional code and qualifier of sense data, of either format (SPC-4 4.5).
fn code(sense: &[u8]) -> (u8, u8, u8) {
    let byte = |at: usize| sense.get(at).copied().unwrap_or(0);
    match byte(0) & 0x7f {
        0x72 | 0x73 => (byte(1) & 0x0f, byte(2), byte(3)),
        _ => (byte(2) & 0x0f, byte(12), byte(13)),
    }
}

/// How a READ or WRITE ends whose command has failed (3.2.5.3, 3.2.5.4): a status of its own, or where the sense data is kept.
fn failed(open: &DiskOpen, answer: Option<&DiskAnswer>) -> NtStatus {
    const RESERVATION_CONFLICT: u8 = 0x18;
    const UNIT_ATTENTION: u8 = 6;
    if answer.is_some_and(|answer| answer.status == RESERVATION_CONFLICT) {
        return NtStatus::SVHDX_RESERVATION_CONFLICT;
    }
    match answer.map(|answer| code(&answer.sense)) {
        Some((UNIT_ATTENTION, 0x2a, 0x09)) => NtStatus::SVHDX_UNIT_ATTENTION_CAPACITY_DATA_CHANGED,
        Some((UNIT_ATTENTION, 0x2a, 0x03)) => NtStatus::SVHDX_UNIT_ATTENTION_RESERVATIONS_PREEMPTED,
        Some((UNIT_ATTENTION, 0x2a, 0x04)) => NtStatus::SVHDX_UNIT_ATTENTION_RESERVATIONS_RELEASED,
        Some((UNIT_ATTENTION, 0x2a, 0x05)) => NtStatus::SVHDX_UNIT_ATTENTION_REGISTRATIONS_PREEMPTED,
        Some((UNIT_ATTENTION, 0x3f, 0x02)) => NtStatus::SVHDX_UNIT_ATTENTION_OPERATING_DEFINITION_CHANGED,
        // Others are told once only, and so are kept.
        _ => open.keep(sensed(answer)),
    }
}

/// READ(16) or WRITE(16) of a range.
fn range(opcode: u8, facts: &DiskFacts, offset: u64, len: u64) -> Result<[u8; 16], NtStatus> {
    let sector = u64::from(facts.sector.max(1));
    if !offset.is_multiple_of(sector) || !len.is_multiple_of(sector) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let blocks = u32::try_from(len / sector).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[2..10].copy_from_slice(&(offset / sector).to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    Ok(cdb)
}

/// Reads or writes: the command's data.
async fn transfer(
    shared: &Shared,
    (open, flow): (&Open, Option<Arc<Flow>>),
    opcode: u8,
    offset: u64,
    (data, room): (SharedBuf, u32),
) -> Result<Option<SharedBuf>, NtStatus> {
    const TASK_SET_FULL: u8 = 0x28;
    let Some(own) = &open.disk else { return Err(NtStatus::INVALID_PARAMETER) };
    if own.initiator.is_none() {
        return Err(own.keep(Sensed::of(SrbStatus::ABORTED, 2, &OF_NOBODY)));
    }
    if !open.file()?.options().contains(CreateOptions::NO_INTERMEDIATE_BUFFERING) {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let disk = disk_of(shared, open).await?;
    let len = data.len() as u64 + u64::from(room);
    let cdb = range(opcode, &disk.facts(), offset, len)?;
    if len == 0 {
        return Ok(None);
    }
    loop {
        match disk.execute(&cdb, data.clone(), room, flow.clone()).await? {
            Some(answer) if answer.status == 0 => return Ok(answer.data),
            // Clients take an error for a broken disk: it waits outside, which its credits bound, until there is room or the open is closed.
            Some(answer) if answer.status == TASK_SET_FULL => shard_runtime::sleep(ASK_AGAIN).await,
            answer => return Err(failed(own, answer.as_ref())),
        }
    }
}

/// READ, as many bytes as there is room for.
pub(super) async fn read(
    shared: &Shared,
    open: (&Open, Option<Arc<Flow>>),
    offset: u64,
    mut buf: IoBuf,
) -> Result<IoBuf, NtStatus> {
    const READ_16: u8 = 0x88;
    let room = u32::try_from(buf.len()).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let nothing = IoBuf::new(0).freeze();
    let data = transfer(shared, open, READ_16, offset, (nothing, room)).await?;
    let data = data.as_deref().unwrap_or_default();
    // A command that ends well has read all of it.
    if data.len() != buf.len() {
        return Err(NtStatus::UNEXPECTED_IO_ERROR);
    }
    buf.copy_from_slice(data);
    Ok(buf)
}

/// WRITE.
pub(super) async fn write(
    shared: &Shared,
    open: (&Open, Option<Arc<Flow>>),
    offset: u64,
    data: SharedBuf,
) -> Result<u32, NtStatus> {
    const WRITE_16: u8 = 0x8a;
    let len = u32::try_from(data.len()).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    transfer(shared, open, WRITE_16, offset, (data, 0)).await?;
    Ok(len)
}

/// Of the flow that a request's command waits in: the disk sees to each turn, as it knows what a command moves.
pub(super) fn flow(call: &Call<'_>, session: &Session, open: &Open) -> Option<Arc<Flow>> {
    call.pending.say_long();
    turn::flow_of(call, session, open)
}

/// FLUSH: what an initiator has written is durable.
pub(super) async fn flush(shared: &Shared, (open, flow): (&Open, Option<Arc<Flow>>)) -> Result<(), NtStatus> {
    const SYNCHRONIZE_CACHE: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let Some(own) = &open.disk else { return Err(NtStatus::INVALID_PARAMETER) };
    if own.initiator.is_none() {
        // It has written nothing.
        return Ok(());
    }
    let disk = disk_of(shared, open).await?;
    match disk.execute(&SYNCHRONIZE_CACHE, IoBuf::new(0).freeze(), 0, flow).await? {
        Some(answer) if answer.status == 0 => Ok(()),
        answer => Err(failed(own, answer.as_ref())),
    }
}

/// Refuses controls that would reach the bytes of the file (3.2.4).
pub(super) fn check_control(code: FsctlCode) -> Result<(), NtStatus> {
    match code {
        FsctlCode::OFFLOAD_READ => Err(NtStatus::OFFLOAD_READ_FILE_NOT_SUPPORTED),
        FsctlCode::OFFLOAD_WRITE => Err(NtStatus::OFFLOAD_WRITE_FILE_NOT_SUPPORTED),
        FsctlCode::IS_PATHNAME_VALID
        | FsctlCode::GET_COMPRESSION
        | FsctlCode::FILESYSTEM_GET_STATISTICS
        | FsctlCode::GET_NTFS_VOLUME_DATA
        | FsctlCode::QUERY_ON_DISK_VOLUME_INFO => Ok(()),
        _ => Err(NtStatus::INVALID_DEVICE_REQUEST),
    }
}

/// Refuses classes that would change the file under the disk (3.2.5.9).
pub(super) fn check_set(class: FileClass) -> Result<(), NtStatus> {
    match class {
        FileClass::LINK | FileClass::LINK_EX => Err(NtStatus::INVALID_PARAMETER),
        FileClass::BASIC | FileClass::POSITION | FileClass::MODE => Ok(()),
        _ => Err(NtStatus::NOT_SUPPORTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suffix_is_taken_off_whatever_its_case() {
        assert_eq!(file_name("a\\d.vhdx:SharedVirtualDisk"), Some("a\\d.vhdx"));
        assert_eq!(file_name("d.vhdx:sharedvirtualDISK"), Some("d.vhdx"));
        assert_eq!(file_name("d.vhdx"), None);
        assert_eq!(file_name("ü"), None);
        assert_eq!(file_name("aüedVirtualDiskaaaaa"), None);
    }

    #[test]
    fn attentions_of_both_formats_have_statuses_of_their_own() {
        let open = DiskOpen::new(None);
        let of =
            |sense: &[u8]| failed(&open, Some(&DiskAnswer { status: 2, sense: sense.to_vec(), data: None }));
        let fixed = |asc, ascq| [0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
        assert_eq!(of(&fixed(0x2a, 3)), NtStatus::SVHDX_UNIT_ATTENTION_RESERVATIONS_PREEMPTED);
        assert_eq!(of(&[0x72, 6, 0x2a, 9, 0, 0, 0, 0]), NtStatus::SVHDX_UNIT_ATTENTION_CAPACITY_DATA_CHANGED);
        assert_eq!(of(&fixed(0x29, 0)), NtStatus(0xc05c_0001), "kept, as it is told once only");
        assert_eq!(open.kept(1).unwrap().bytes()[12], 0x29);
        let conflict = DiskAnswer { status: 0x18, sense: Vec::new(), data: None };
        assert_eq!(failed(&open, Some(&conflict)), NtStatus::SVHDX_RESERVATION_CONFLICT);
        assert_eq!(failed(&open, None), NtStatus(0xc05c_0002));
    }

    #[test]
    fn ranges_are_whole_sectors() {
        let facts = DiskFacts { sector: 4096, ..DiskFacts::default() };
        let cdb = range(0x88, &facts, 8192, 4096).unwrap();
        assert_eq!((cdb[0], cdb[9], cdb[13]), (0x88, 2, 1));
        assert_eq!(range(0x88, &facts, 512, 4096), Err(NtStatus::INVALID_PARAMETER));
        assert_eq!(range(0x88, &facts, 0, 512), Err(NtStatus::INVALID_PARAMETER));
    }
}
