//! What goes through the tunnel: the header of each request and answer (2.2.2, 2.2.4.11).

use smb_protocol::NtStatus;
use smb_protocol::wire::{Reader, Wire};

use crate::Version;

smb_protocol::named_values! {
    /// An operation. The second and third hexadecimal digits' byte is a protocol, the next digit the version that it came with.
    pub struct Operation(u32) {
        GET_INITIAL_INFO = 0x0200_1001,
        SCSI = 0x0200_1002,
        CHECK_CONNECTION_STATUS = 0x0200_1003,
        SRB_STATUS = 0x0200_1004,
        GET_DISK_INFO = 0x0200_1005,
        VALIDATE_DISK = 0x0200_1006,
        META_OPERATION_QUERY_PROGRESS = 0x0200_2002,
        VHDSET_QUERY_INFORMATION = 0x0200_2005,
        DELETE_SNAPSHOT = 0x0200_2006,
        CHANGE_TRACKING_GET_PARAMETERS = 0x0200_2008,
        CHANGE_TRACKING_START = 0x0200_2009,
        CHANGE_TRACKING_STOP = 0x0200_200a,
        QUERY_VIRTUAL_DISK_CHANGES = 0x0200_200c,
        QUERY_SAFE_SIZE = 0x0200_200d,
        META_OPERATION_START = 0x0200_2101,
    }
}

/// The bits of an operation that say which protocol it is of, and what they are here.
const PROTOCOL: (u32, u32) = (0xff00_0000, 0x0200_0000);
/// The bits that say with which version it came.
const CAME_WITH: u32 = 0x00ff_f000;

smb_protocol::wire_struct! {
    /// The header (2.2.4.11).
    pub struct Header [16] {
        /// Which operation.
        operation: Operation,
        /// How it ended; not looked at in a request.
        status: NtStatus,
        /// The client's number for the request.
        request: u64,
    }
}

impl Header {
    /// Takes the header of a request, and says what is behind it.
    ///
    /// # Errors
    /// What the control ends with: BUFFER_TOO_SMALL without a whole header, INVALID_DEVICE_REQUEST for another protocol (3.2.5.5).
    pub fn of_request(input: &[u8]) -> Result<(Self, &[u8]), NtStatus> {
        let header = Self::decode(input).map_err(|_| NtStatus::BUFFER_TOO_SMALL)?;
        if header.operation.0 & PROTOCOL.0 != PROTOCOL.1 {
            return Err(NtStatus::INVALID_DEVICE_REQUEST);
        }
        Ok((header, input.get(Self::SIZE..).unwrap_or_default()))
    }

    /// What the answer's header says where a server of this version does not know the operation (3.2.5.5).
    #[must_use]
    pub fn unknown_to(&self, server: Version) -> Option<NtStatus> {
        let came_with = self.operation.0 & CAME_WITH;
        let known = came_with == 0x1000 || (server != Version::V1 && came_with == 0x2000);
        match (known, self.operation.name()) {
            (false, _) => Some(NtStatus::SVHDX_VERSION_MISMATCH),
            (true, None) => Some(NtStatus::INVALID_PARAMETER),
            (true, Some(_)) => None,
        }
    }

    /// The answer: this header with a status, and what is behind it.
    #[must_use]
    pub fn answer(&self, status: NtStatus, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::SIZE + payload.len());
        Self { status, ..*self }.put(&mut out);
        out.extend_from_slice(payload);
        out
    }
}

/// A request: an operation, the client's number for it, and what is behind the header.
#[must_use]
pub fn request(operation: Operation, number: u64, payload: &[u8]) -> Vec<u8> {
    Header { operation, status: NtStatus::SUCCESS, request: number }.answer(NtStatus::SUCCESS, payload)
}

/// Splits an answer into its header and what is behind it.
///
/// # Errors
/// When there is no whole header.
pub fn answer(output: &[u8]) -> Result<(Header, &[u8]), smb_protocol::DecodeError> {
    let header = Header::take(&mut Reader::new(output))?;
    Ok((header, output.get(Header::SIZE..).unwrap_or_default()))
}
