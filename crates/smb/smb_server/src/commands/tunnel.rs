//! FSCTL_SVHDX_SYNC_TUNNEL_REQUEST, FSCTL_SVHDX_ASYNC_TUNNEL_REQUEST and FSCTL_QUERY_SHARED_VIRTUAL_DISK_SUPPORT (MS-RSVD 3.2.5.5, 3.2.5.6).
//!
//! What fails before an operation begins fails the control; what an operation comes to is in the header of the answer.

use aligned_buffer::IoBuf;
use observe::IoKind;
use qos_gate::Kind;
use rsvd_protocol::disk::{
    Capability, DiskFormat, DiskInfo, DiskType, HandleState, InitialInfo, Support, Validation,
};
use rsvd_protocol::scsi::{ScsiAnswer, ScsiRequest, SrbStatusAnswer, SrbStatusRequest};
use rsvd_protocol::set::{CreateSnapshot, MetaOperation, MetaStart, Resize, SetQuery};
use rsvd_protocol::tunnel::{Header, Operation};
use smb_protocol::ioctl::IoctlRequest;
use smb_protocol::{Dialect, Guid, NtStatus, Wire as _};

use super::Call;
use super::io::counted;
use super::shared_disk::{SERVER, are_served, disk_of, flow, sensed};
use crate::disks::{DiskAnswer, SharedDisk};
use crate::open::Open;
use crate::session::Session;

/// Refuses an answer that there is no room for.
fn room(request: &IoctlRequest<'_>, payload: usize, status: NtStatus) -> Result<(), NtStatus> {
    if (request.max_output_response as usize) < Header::SIZE + payload { Err(status) } else { Ok(()) }
}

/// What this server can do, and how the file of an open is open.
pub(super) fn support(call: &Call<'_>, open: &Open, request: &IoctlRequest<'_>) -> Result<Vec<u8>, NtStatus> {
    if !are_served(&call.conn.shared, call.dialect()) {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    if (request.max_output_response as usize) < Support::SIZE {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    let state = match &open.disk {
        Some(_) => HandleState::SHARED,
        None if open.file()?.is_of_shared_disk() => HandleState::FILE_SHARED,
        None => HandleState::NONE,
    };
    // Sets, and so snapshots, are not served.
    Ok(Support { capability: Capability::SHARED, state }.to_bytes())
}

/// An operation on a shared disk.
pub(super) async fn run(
    call: &Call<'_>,
    session: &Session,
    open: &Open,
    request: &IoctlRequest<'_>,
) -> Result<Vec<u8>, NtStatus> {
    // Where a disk is open, disks are served.
    let served = if open.disk.is_some() {
        call.dialect() >= Dialect::SMB_3_0_2
    } else {
        are_served(&call.conn.shared, call.dialect())
    };
    if !served {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    let Some(own) = &open.disk else { return Err(NtStatus::INVALID_PARAMETER) };
    let (header, payload) = Header::of_request(request.input)?;
    if let Some(status) = header.unknown_to(SERVER) {
        room(request, 0, NtStatus::BUFFER_TOO_SMALL)?;
        return Ok(header.answer(status, &[]));
    }
    let told = |payload: &[u8]| Ok(header.answer(NtStatus::SUCCESS, payload));
    match header.operation {
        Operation::CHECK_CONNECTION_STATUS => {
            room(request, 0, NtStatus::BUFFER_OVERFLOW)?;
            return told(&[]);
        }
        Operation::SRB_STATUS => {
            room(request, SrbStatusAnswer::SIZE, NtStatus::INVALID_PARAMETER)?;
            let SrbStatusRequest { key } =
                SrbStatusRequest::decode(payload).map_err(|_| NtStatus::INVALID_PARAMETER)?;
            return match own.kept(key) {
                Some(sensed) => told(&SrbStatusAnswer { key, sensed }.to_bytes()),
                None => Ok(header.answer(NtStatus::SVHDX_ERROR_NOT_AVAILABLE, &[])),
            };
        }
        _ => {}
    }
    let disk = disk_of(&call.conn.shared, open).await?;
    let facts = disk.facts();
    match header.operation {
        Operation::GET_INITIAL_INFO => {
            room(request, InitialInfo::SIZE, NtStatus::BUFFER_TOO_SMALL)?;
            let (sector, physical_sector, size) = (facts.sector, facts.physical_sector, facts.size);
            told(&InitialInfo { server: SERVER, sector, physical_sector, size }.to_bytes())
        }
        Operation::GET_DISK_INFO => {
            room(request, DiskInfo::SIZE, NtStatus::BUFFER_TOO_SMALL)?;
            let info = DiskInfo {
                disk_type: if facts.block_size == 0 { DiskType::FIXED } else { DiskType::DYNAMIC },
                format: DiskFormat::VHDX,
                block_size: facts.block_size,
                linkage: Guid::ZERO,
                is_mounted: facts.is_mounted,
                // Blocks of the format begin at whole megabytes.
                is_4k_aligned: true,
                file_size: facts.file_size,
                disk: facts.disk,
            };
            told(&info.to_bytes())
        }
        Operation::VALIDATE_DISK => {
            room(request, Validation::SIZE, NtStatus::BUFFER_TOO_SMALL)?;
            told(&Validation { is_valid: facts.is_mounted }.to_bytes())
        }
        Operation::SCSI => {
            room(request, ScsiAnswer::SIZE, NtStatus::INVALID_PARAMETER)?;
            scsi(call, session, (open, &*disk), request, (&header, payload)).await
        }
        Operation::META_OPERATION_START => {
            room(request, 0, NtStatus::BUFFER_TOO_SMALL)?;
            meta(&*disk, (&header, payload)).await
        }
        Operation::VHDSET_QUERY_INFORMATION if payload.len() != SetQuery::SIZE => {
            Err(NtStatus::BUFFER_TOO_SMALL)
        }
        // Nothing that has been begun goes on after its answer.
        Operation::META_OPERATION_QUERY_PROGRESS => {
            room(request, 0, NtStatus::BUFFER_TOO_SMALL)?;
            Ok(header.answer(NtStatus::NOT_FOUND, &[]))
        }
        Operation::QUERY_SAFE_SIZE => {
            room(request, 0, NtStatus::BUFFER_TOO_SMALL)?;
            Ok(header.answer(NtStatus::NOT_SUPPORTED, &[]))
        }
        // They are about sets, and this is none (3.2.5.5.9).
        _ => Err(NtStatus::INVALID_DEVICE_REQUEST),
    }
}

/// A SCSI command (3.2.5.5.5).
async fn scsi(
    call: &Call<'_>,
    session: &Session,
    (open, disk): (&Open, &dyn SharedDisk),
    request: &IoctlRequest<'_>,
    (header, payload): (&Header, &[u8]),
) -> Result<Vec<u8>, NtStatus> {
    // The answer to one that is not carried out has the request in it.
    let refused = |status: NtStatus| {
        let echo: Vec<u8> =
            payload.iter().copied().chain(std::iter::repeat(0)).take(ScsiAnswer::SIZE).collect();
        Ok(header.answer(status, &echo))
    };
    if open.disk.as_ref().is_none_or(|own| own.initiator.is_none()) {
        return refused(NtStatus::INVALID_HANDLE);
    }
    let (wanted, data) = match ScsiRequest::of_request(payload) {
        Ok(parts) => parts,
        Err(status) => return refused(status),
    };
    // Clients send all data of a command or, for one that reads, none.
    if !data.is_empty() && data.len() != wanted.transfer as usize {
        return refused(NtStatus::INVALID_PARAMETER);
    }
    let most = (request.max_output_response as usize).saturating_sub(Header::SIZE + ScsiAnswer::SIZE);
    let limit = wanted.transfer.min(u32::try_from(most).unwrap_or(u32::MAX));
    let moves = disk.moves(wanted.cdb());
    let reads = matches!(moves, Some((Kind::Read, _)));
    let _writing = if reads { None } else { Some(call.session()?.begin_write()?) };
    let data = IoBuf::copy_from(data).freeze();
    let command = disk.execute(wanted.cdb(), data, limit, flow(call, session, open));
    let ended = match moves {
        Some((kind, bytes)) => {
            let kind = if kind == Kind::Read { IoKind::Read } else { IoKind::Write };
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            let done = |answer: &Option<DiskAnswer>| match answer {
                Some(answer) if answer.status == 0 => bytes,
                _ => 0,
            };
            counted(call, (session, open), (kind, None), done, command).await
        }
        None => {
            open.tree.share().iter().for_each(|share| share.counters.other());
            command.await
        }
    };
    let answer = match ended {
        Ok(answer) => answer,
        // It is no answer of the disk: who asks again, as clients do for what is persistent, gets one.
        Err(status @ (NtStatus::FILE_NOT_AVAILABLE | NtStatus::FILE_CLOSED)) => return Err(status),
        Err(status) => return refused(status),
    };
    let data = answer.as_ref().and_then(|answer| answer.data.as_deref()).unwrap_or_default();
    if data.len() > limit as usize {
        return refused(NtStatus::INVALID_PARAMETER);
    }
    let told = ScsiAnswer {
        sensed: sensed(answer.as_ref()),
        cdb_length: wanted.cdb_length,
        disposition: wanted.disposition,
        srb_flags: wanted.srb_flags,
        transfer: data.len() as u32,
    };
    let mut bytes = told.to_bytes();
    bytes.extend_from_slice(data);
    Ok(header.answer(NtStatus::SUCCESS, &bytes))
}

/// META_OPERATION_START: a disk becomes larger, and nothing else that a set could do (3.2.5.5.7).
async fn meta(disk: &dyn SharedDisk, (header, payload): (&Header, &[u8])) -> Result<Vec<u8>, NtStatus> {
    let (start, data) = MetaStart::of_request(payload)?;
    match start.operation {
        MetaOperation::RESIZE => {
            let resize = Resize::of_request(data)?;
            let size = disk.facts().size;
            if resize.expand_only && resize.size < size {
                return Err(NtStatus::INVALID_PARAMETER);
            }
            if resize.shrink_to_safe || resize.size < size {
                // What is on the disk is not known here.
                return Ok(header.answer(NtStatus::NOT_SUPPORTED, &[]));
            }
            match disk.grow(resize.size).await {
                Err(status @ (NtStatus::FILE_NOT_AVAILABLE | NtStatus::FILE_CLOSED)) => Err(status),
                // Another one was quicker, and made it larger than that.
                Err(status) if resize.expand_only && disk.facts().size > resize.size => Err(status),
                grown => Ok(header.answer(grown.err().unwrap_or(NtStatus::SUCCESS), &[])),
            }
        }
        MetaOperation::CREATE_SNAPSHOT => {
            CreateSnapshot::of_request(data)?;
            Err(NtStatus::INVALID_DEVICE_REQUEST)
        }
        MetaOperation::CONVERT_TO_VHD_SET => Ok(header.answer(NtStatus::NOT_SUPPORTED, &[])),
        _ => Err(NtStatus::INVALID_DEVICE_REQUEST),
    }
}
