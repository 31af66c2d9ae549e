//! File system controls (MS-FSA 2.1.5.10, MS-SMB2 3.3.5.15): the table of what each is.

mod copy;
mod offload;
mod ranges;
mod reparse;

use std::sync::Arc;

use smb_protocol::Guid;
use smb_protocol::NtStatus;
use smb_protocol::access::AccessMask;
use smb_protocol::fsctl::FsctlCode;
use smb_protocol::fsctl::copy::ResumeKeyReply;
use smb_protocol::fsctl::ranges::{
    ChecksumAlgorithm, Compression, GetIntegrity, ObjectIdBuffer, SetIntegrity, SetIntegrityEx,
};
use smb_protocol::wire::Wire;

use crate::error::{Result, refuse};
use crate::file_system::{Open, OpenLookup};

/// Rights of which changing a file's nature needs one.
const CHANGES: AccessMask =
    AccessMask(AccessMask::WRITE_DATA.0 | AccessMask::APPEND_DATA.0 | AccessMask::WRITE_ATTRIBUTES.0);
/// COMPRESSION_FORMAT_NONE.
const UNCOMPRESSED: u16 = 0;

/// The controls that are served; one that is not listed is refused, whatever the table below says. Tests that go through all of them
/// go by this list.
pub const FSCTLS: [FsctlCode; 27] = [
    FsctlCode::SET_SPARSE,
    FsctlCode::SET_ZERO_DATA,
    FsctlCode::QUERY_ALLOCATED_RANGES,
    FsctlCode::FILE_LEVEL_TRIM,
    FsctlCode::QUERY_FILE_REGIONS,
    FsctlCode::SRV_REQUEST_RESUME_KEY,
    FsctlCode::SRV_COPYCHUNK,
    FsctlCode::SRV_COPYCHUNK_WRITE,
    FsctlCode::DUPLICATE_EXTENTS_TO_FILE,
    FsctlCode::DUPLICATE_EXTENTS_TO_FILE_EX,
    FsctlCode::OFFLOAD_READ,
    FsctlCode::OFFLOAD_WRITE,
    FsctlCode::GET_REPARSE_POINT,
    FsctlCode::SET_REPARSE_POINT,
    FsctlCode::DELETE_REPARSE_POINT,
    FsctlCode::GET_COMPRESSION,
    FsctlCode::SET_COMPRESSION,
    FsctlCode::GET_INTEGRITY_INFORMATION,
    FsctlCode::SET_INTEGRITY_INFORMATION,
    FsctlCode::SET_INTEGRITY_INFORMATION_EX,
    FsctlCode::CREATE_OR_GET_OBJECT_ID,
    FsctlCode::GET_OBJECT_ID,
    FsctlCode::SET_OBJECT_ID,
    FsctlCode::SET_OBJECT_ID_EXTENDED,
    FsctlCode::DELETE_OBJECT_ID,
    FsctlCode::IS_PATHNAME_VALID,
    FsctlCode::SRV_ENUMERATE_SNAPSHOTS,
];

/// Those of them that change the file and are small: once begun, they go on to their end. The others that change something are made
/// of pieces that do so.
const CHANGING: [FsctlCode; 3] =
    [FsctlCode::SET_SPARSE, FsctlCode::SET_REPARSE_POINT, FsctlCode::DELETE_REPARSE_POINT];

/// What a control answers.
type Answer = (NtStatus, Vec<u8>);

fn done(output: Vec<u8>) -> Result<Answer> {
    Ok((NtStatus::SUCCESS, output))
}

/// A structure of fixed size as output.
fn reply(value: &impl Wire, limit: usize) -> Result<Answer> {
    let bytes = value.to_bytes();
    if bytes.len() > limit {
        return refuse(NtStatus::BUFFER_TOO_SMALL, "the output does not fit");
    }
    done(bytes)
}

impl Open {
    /// A file system control; returns SUCCESS or a warning, and its output. Those of the server itself (negotiation, network
    /// interfaces, resilience, pipes) do not come here; SRV_REQUEST_RESUME_KEY does.
    ///
    /// # Errors
    /// INVALID_DEVICE_REQUEST for controls that are not known, and those of each control. COPYCHUNK has output with errors
    /// too, in the detail.
    pub async fn fsctl(
        self: &Arc<Self>,
        code: FsctlCode,
        input: &[u8],
        limit: usize,
        others: &dyn OpenLookup,
    ) -> Result<Answer> {
        if self.is_closed() {
            return refuse(NtStatus::FILE_CLOSED, "the file is closed");
        }
        if !FSCTLS.contains(&code) {
            return refuse(NtStatus::INVALID_DEVICE_REQUEST, format!("{code:?} is not served"));
        }
        if CHANGING.contains(&code) {
            let (open, input) = (Arc::clone(self), input.to_vec());
            return self.change(async move { open.changing(code, &input).await }).await;
        }
        match code {
            FsctlCode::QUERY_ALLOCATED_RANGES => self.query_allocated(input, limit).await,
            FsctlCode::SET_ZERO_DATA => self.set_zero_data(input).await,
            FsctlCode::FILE_LEVEL_TRIM => self.trim(input, limit).await,
            FsctlCode::QUERY_FILE_REGIONS => self.query_regions(input, limit).await,
            FsctlCode::SRV_REQUEST_RESUME_KEY => reply(&ResumeKeyReply { key: self.resume_key() }, limit),
            FsctlCode::SRV_COPYCHUNK => self.copy_chunks(input, limit, others, true).await,
            FsctlCode::SRV_COPYCHUNK_WRITE => self.copy_chunks(input, limit, others, false).await,
            FsctlCode::DUPLICATE_EXTENTS_TO_FILE => self.duplicate(input, others, false).await,
            FsctlCode::DUPLICATE_EXTENTS_TO_FILE_EX => self.duplicate(input, others, true).await,
            FsctlCode::OFFLOAD_READ => self.offload_read(input, limit),
            FsctlCode::OFFLOAD_WRITE => self.offload_write(input, limit).await,
            FsctlCode::GET_REPARSE_POINT => self.get_reparse(limit).await,
            FsctlCode::GET_COMPRESSION => reply(&Compression { format: UNCOMPRESSED }, limit),
            FsctlCode::SET_COMPRESSION => self.set_compression(input),
            FsctlCode::GET_INTEGRITY_INFORMATION => reply(&self.integrity(), limit),
            FsctlCode::SET_INTEGRITY_INFORMATION => self.set_integrity(input),
            FsctlCode::SET_INTEGRITY_INFORMATION_EX => self.set_integrity_ex(input),
            FsctlCode::CREATE_OR_GET_OBJECT_ID | FsctlCode::GET_OBJECT_ID => reply(&self.object_id(), limit),
            FsctlCode::SET_OBJECT_ID | FsctlCode::SET_OBJECT_ID_EXTENDED | FsctlCode::DELETE_OBJECT_ID => {
                refuse(NtStatus::NOT_SUPPORTED, "object identifiers are made from the file's number")
            }
            FsctlCode::IS_PATHNAME_VALID => done(Vec::new()),
            FsctlCode::SRV_ENUMERATE_SNAPSHOTS => done(self.core.list_previous(&self.node, limit).await?),
            _ => refuse(NtStatus::INVALID_DEVICE_REQUEST, format!("{code:?} is not served")),
        }
    }

    /// Bytes that a control is going to move, or 0 where that is done by reference; `None` when it moves nothing, or will be refused.
    #[must_use]
    pub fn moves(&self, code: FsctlCode, input: &[u8], others: &dyn OpenLookup) -> Option<u64> {
        match code {
            FsctlCode::SRV_COPYCHUNK | FsctlCode::SRV_COPYCHUNK_WRITE => self.bytes_to_copy(input, others),
            FsctlCode::SET_ZERO_DATA
            | FsctlCode::FILE_LEVEL_TRIM
            | FsctlCode::DUPLICATE_EXTENTS_TO_FILE
            | FsctlCode::DUPLICATE_EXTENTS_TO_FILE_EX
            | FsctlCode::OFFLOAD_WRITE => Some(0),
            _ => None,
        }
    }

    /// One of [`CHANGING`].
    async fn changing(self: &Arc<Self>, code: FsctlCode, input: &[u8]) -> Result<Answer> {
        match code {
            FsctlCode::SET_SPARSE => self.set_sparse(input).await,
            FsctlCode::SET_REPARSE_POINT => self.set_reparse(input).await,
            FsctlCode::DELETE_REPARSE_POINT => self.delete_reparse(input).await,
            _ => refuse(NtStatus::INVALID_DEVICE_REQUEST, format!("{code:?} changes nothing")),
        }
    }

    /// Nothing is compressed, and to say so again is no error (MS-FSA 2.1.5.10.34).
    fn set_compression(&self, input: &[u8]) -> Result<Answer> {
        let Ok(wanted) = Compression::decode(input) else {
            return refuse(NtStatus::INVALID_PARAMETER, "no compression format");
        };
        self.needs_any(CHANGES, "the open may not change the file")?;
        if wanted.format != UNCOMPRESSED {
            return refuse(NtStatus::NOT_SUPPORTED, "files are not compressed");
        }
        done(Vec::new())
    }

    /// Integrity is the pool's affair, not the file's: no checksums that a client could see.
    fn integrity(&self) -> GetIntegrity {
        GetIntegrity {
            algorithm: ChecksumAlgorithm::NONE,
            flags: 0,
            chunk_size: self.core.options.cluster,
            cluster_size: self.core.options.cluster,
        }
    }

    fn set_integrity(&self, input: &[u8]) -> Result<Answer> {
        let Ok(wanted) = SetIntegrity::decode(input) else {
            return refuse(NtStatus::INVALID_PARAMETER, "the input is not whole");
        };
        self.needs_any(CHANGES, "the open may not change the file")?;
        match wanted.algorithm {
            ChecksumAlgorithm::NONE | ChecksumAlgorithm::UNCHANGED => done(Vec::new()),
            _ => refuse(NtStatus::NOT_SUPPORTED, "files have no checksums of their own"),
        }
    }

    fn set_integrity_ex(&self, input: &[u8]) -> Result<Answer> {
        let Ok(wanted) = SetIntegrityEx::decode(input) else {
            return refuse(NtStatus::INVALID_PARAMETER, "the input is not whole");
        };
        self.needs_any(CHANGES, "the open may not change the file")?;
        if wanted.enable && !wanted.keep {
            return refuse(NtStatus::NOT_SUPPORTED, "files have no checksums of their own");
        }
        done(Vec::new())
    }

    /// A file's object identifier: the volume's with the file's number in it. Numbers are never used again, so it is unique
    /// without being stored.
    fn object_id(&self) -> ObjectIdBuffer {
        let volume = self.core.options.id;
        let mut id = volume.0;
        for (byte, number) in id.iter_mut().skip(8).zip(self.node.file.0.to_be_bytes()) {
            *byte ^= number;
        }
        ObjectIdBuffer { object_id: Guid(id), birth: [volume.0, id, [0; 16]] }
    }
}
