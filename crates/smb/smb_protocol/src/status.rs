//! NTSTATUS: how every request ends (MS-ERREF 2.3).

use std::fmt;

use crate::wire::DecodeError;

named_values! {
    /// A status as on the wire, without the prefix `STATUS_` in the names.
    pub struct NtStatus(u32) {
        SUCCESS = 0x0000_0000,
        PENDING = 0x0000_0103,
        REPARSE = 0x0000_0104,
        OPLOCK_BREAK_IN_PROGRESS = 0x0000_0108,
        NOTIFY_CLEANUP = 0x0000_010b,
        NOTIFY_ENUM_DIR = 0x0000_010c,
        OBJECT_NAME_EXISTS = 0x4000_0000,
        BUFFER_OVERFLOW = 0x8000_0005,
        NO_MORE_FILES = 0x8000_0006,
        NO_MORE_EAS = 0x8000_0012,
        INVALID_EA_NAME = 0x8000_0013,
        EA_LIST_INCONSISTENT = 0x8000_0014,
        INVALID_EA_FLAG = 0x8000_0015,
        NO_MORE_ENTRIES = 0x8000_001a,
        STOPPED_ON_SYMLINK = 0x8000_002d,
        UNSUCCESSFUL = 0xc000_0001,
        NOT_IMPLEMENTED = 0xc000_0002,
        INVALID_INFO_CLASS = 0xc000_0003,
        INFO_LENGTH_MISMATCH = 0xc000_0004,
        INVALID_HANDLE = 0xc000_0008,
        INVALID_PARAMETER = 0xc000_000d,
        NO_SUCH_DEVICE = 0xc000_000e,
        NO_SUCH_FILE = 0xc000_000f,
        INVALID_DEVICE_REQUEST = 0xc000_0010,
        END_OF_FILE = 0xc000_0011,
        WRONG_VOLUME = 0xc000_0012,
        NO_MEDIA_IN_DEVICE = 0xc000_0013,
        MORE_PROCESSING_REQUIRED = 0xc000_0016,
        NO_MEMORY = 0xc000_0017,
        ACCESS_DENIED = 0xc000_0022,
        BUFFER_TOO_SMALL = 0xc000_0023,
        OBJECT_TYPE_MISMATCH = 0xc000_0024,
        NOT_LOCKED = 0xc000_002a,
        INVALID_PARAMETER_MIX = 0xc000_0030,
        OBJECT_NAME_INVALID = 0xc000_0033,
        OBJECT_NAME_NOT_FOUND = 0xc000_0034,
        OBJECT_NAME_COLLISION = 0xc000_0035,
        PORT_DISCONNECTED = 0xc000_0037,
        OBJECT_PATH_INVALID = 0xc000_0039,
        OBJECT_PATH_NOT_FOUND = 0xc000_003a,
        OBJECT_PATH_SYNTAX_BAD = 0xc000_003b,
        DATA_ERROR = 0xc000_003e,
        CRC_ERROR = 0xc000_003f,
        SHARING_VIOLATION = 0xc000_0043,
        QUOTA_EXCEEDED = 0xc000_0044,
        EAS_NOT_SUPPORTED = 0xc000_004f,
        EA_TOO_LARGE = 0xc000_0050,
        NONEXISTENT_EA_ENTRY = 0xc000_0051,
        NO_EAS_ON_FILE = 0xc000_0052,
        EA_CORRUPT_ERROR = 0xc000_0053,
        FILE_LOCK_CONFLICT = 0xc000_0054,
        LOCK_NOT_GRANTED = 0xc000_0055,
        DELETE_PENDING = 0xc000_0056,
        CTL_FILE_NOT_SUPPORTED = 0xc000_0057,
        UNKNOWN_REVISION = 0xc000_0058,
        REVISION_MISMATCH = 0xc000_0059,
        INVALID_OWNER = 0xc000_005a,
        INVALID_PRIMARY_GROUP = 0xc000_005b,
        NO_IMPERSONATION_TOKEN = 0xc000_005c,
        NO_LOGON_SERVERS = 0xc000_005e,
        NO_SUCH_LOGON_SESSION = 0xc000_005f,
        NO_SUCH_PRIVILEGE = 0xc000_0060,
        PRIVILEGE_NOT_HELD = 0xc000_0061,
        NO_SUCH_USER = 0xc000_0064,
        WRONG_PASSWORD = 0xc000_006a,
        PASSWORD_RESTRICTION = 0xc000_006c,
        LOGON_FAILURE = 0xc000_006d,
        ACCOUNT_RESTRICTION = 0xc000_006e,
        INVALID_LOGON_HOURS = 0xc000_006f,
        INVALID_WORKSTATION = 0xc000_0070,
        PASSWORD_EXPIRED = 0xc000_0071,
        ACCOUNT_DISABLED = 0xc000_0072,
        NONE_MAPPED = 0xc000_0073,
        INVALID_ACL = 0xc000_0077,
        INVALID_SID = 0xc000_0078,
        INVALID_SECURITY_DESCR = 0xc000_0079,
        PROCEDURE_NOT_FOUND = 0xc000_007a,
        RANGE_NOT_LOCKED = 0xc000_007e,
        DISK_FULL = 0xc000_007f,
        SERVER_DISABLED = 0xc000_0080,
        FILE_INVALID = 0xc000_0098,
        ALLOTTED_SPACE_EXCEEDED = 0xc000_0099,
        INSUFFICIENT_RESOURCES = 0xc000_009a,
        MEDIA_WRITE_PROTECTED = 0xc000_00a2,
        DEVICE_NOT_READY = 0xc000_00a3,
        BAD_IMPERSONATION_LEVEL = 0xc000_00a5,
        INSTANCE_NOT_AVAILABLE = 0xc000_00ab,
        PIPE_NOT_AVAILABLE = 0xc000_00ac,
        INVALID_PIPE_STATE = 0xc000_00ad,
        PIPE_BUSY = 0xc000_00ae,
        PIPE_DISCONNECTED = 0xc000_00b0,
        PIPE_CLOSING = 0xc000_00b1,
        PIPE_CONNECTED = 0xc000_00b2,
        PIPE_LISTENING = 0xc000_00b3,
        INVALID_READ_MODE = 0xc000_00b4,
        IO_TIMEOUT = 0xc000_00b5,
        FILE_FORCED_CLOSED = 0xc000_00b6,
        FILE_IS_A_DIRECTORY = 0xc000_00ba,
        NOT_SUPPORTED = 0xc000_00bb,
        DUPLICATE_NAME = 0xc000_00bd,
        BAD_NETWORK_PATH = 0xc000_00be,
        NETWORK_BUSY = 0xc000_00bf,
        INVALID_NETWORK_RESPONSE = 0xc000_00c3,
        UNEXPECTED_NETWORK_ERROR = 0xc000_00c4,
        NETWORK_NAME_DELETED = 0xc000_00c9,
        NETWORK_ACCESS_DENIED = 0xc000_00ca,
        BAD_DEVICE_TYPE = 0xc000_00cb,
        BAD_NETWORK_NAME = 0xc000_00cc,
        TOO_MANY_SESSIONS = 0xc000_00ce,
        REQUEST_NOT_ACCEPTED = 0xc000_00d0,
        NOT_SAME_DEVICE = 0xc000_00d4,
        FILE_RENAMED = 0xc000_00d5,
        PIPE_EMPTY = 0xc000_00d9,
        NO_SUCH_DOMAIN = 0xc000_00df,
        OPLOCK_NOT_GRANTED = 0xc000_00e2,
        INVALID_OPLOCK_PROTOCOL = 0xc000_00e3,
        INTERNAL_ERROR = 0xc000_00e5,
        UNEXPECTED_IO_ERROR = 0xc000_00e9,
        INVALID_PARAMETER_1 = 0xc000_00ef,
        INVALID_PARAMETER_2 = 0xc000_00f0,
        INVALID_PARAMETER_3 = 0xc000_00f1,
        INVALID_PARAMETER_4 = 0xc000_00f2,
        INVALID_PARAMETER_5 = 0xc000_00f3,
        INVALID_PARAMETER_6 = 0xc000_00f4,
        DIRECTORY_NOT_EMPTY = 0xc000_0101,
        FILE_CORRUPT_ERROR = 0xc000_0102,
        NOT_A_DIRECTORY = 0xc000_0103,
        NAME_TOO_LONG = 0xc000_0106,
        FILES_OPEN = 0xc000_0107,
        TOO_MANY_OPENED_FILES = 0xc000_011f,
        CANCELLED = 0xc000_0120,
        CANNOT_DELETE = 0xc000_0121,
        FILE_DELETED = 0xc000_0123,
        FILE_CLOSED = 0xc000_0128,
        INVALID_LEVEL = 0xc000_0148,
        LOGON_TYPE_NOT_GRANTED = 0xc000_015b,
        UNMAPPABLE_CHARACTER = 0xc000_0162,
        INVALID_DEVICE_STATE = 0xc000_0184,
        IO_DEVICE_ERROR = 0xc000_0185,
        ACCOUNT_EXPIRED = 0xc000_0193,
        FS_DRIVER_REQUIRED = 0xc000_019c,
        INVALID_LOCK_RANGE = 0xc000_01a1,
        USER_SESSION_DELETED = 0xc000_0203,
        INVALID_BUFFER_SIZE = 0xc000_0206,
        CONNECTION_DISCONNECTED = 0xc000_020c,
        CONNECTION_RESET = 0xc000_020d,
        PASSWORD_MUST_CHANGE = 0xc000_0224,
        NOT_FOUND = 0xc000_0225,
        DUPLICATE_OBJECTID = 0xc000_022a,
        OBJECTID_EXISTS = 0xc000_022b,
        RETRY = 0xc000_022d,
        ACCOUNT_LOCKED_OUT = 0xc000_0234,
        USER_MAPPED_FILE = 0xc000_0243,
        PATH_NOT_COVERED = 0xc000_0257,
        UNSUPPORTED_COMPRESSION = 0xc000_025f,
        TOO_MANY_LINKS = 0xc000_0265,
        NOT_A_REPARSE_POINT = 0xc000_0275,
        IO_REPARSE_TAG_INVALID = 0xc000_0276,
        IO_REPARSE_TAG_MISMATCH = 0xc000_0277,
        IO_REPARSE_DATA_INVALID = 0xc000_0278,
        IO_REPARSE_TAG_NOT_HANDLED = 0xc000_0279,
        DIRECTORY_IS_A_REPARSE_POINT = 0xc000_0281,
        OBJECTID_NOT_FOUND = 0xc000_02f0,
        SHUTDOWN_IN_PROGRESS = 0xc000_02fe,
        NETWORK_SESSION_EXPIRED = 0xc000_035c,
        DOWNGRADE_DETECTED = 0xc000_0388,
        NTLM_BLOCKED = 0xc000_0418,
        REQUEST_OUT_OF_SEQUENCE = 0xc000_042a,
        INVALID_TOKEN = 0xc000_0465,
        SERVER_UNAVAILABLE = 0xc000_0466,
        FILE_NOT_AVAILABLE = 0xc000_0467,
        DATA_CHECKSUM_ERROR = 0xc000_0470,
        SHARE_UNAVAILABLE = 0xc000_0480,
        BLOCK_TOO_MANY_REFERENCES = 0xc000_048c,
        REPARSE_POINT_ENCOUNTERED = 0xc000_050b,
        DISK_QUOTA_EXCEEDED = 0xc000_0802,
        CANNOT_BREAK_OPLOCK = 0xc000_0909,
        INVALID_SIGNATURE = 0xc000_a000,
        HASH_NOT_SUPPORTED = 0xc000_a100,
        HASH_NOT_PRESENT = 0xc000_a101,
        OFFLOAD_READ_FLT_NOT_SUPPORTED = 0xc000_a2a1,
        OFFLOAD_WRITE_FLT_NOT_SUPPORTED = 0xc000_a2a2,
        OFFLOAD_READ_FILE_NOT_SUPPORTED = 0xc000_a2a3,
        OFFLOAD_WRITE_FILE_NOT_SUPPORTED = 0xc000_a2a4,
        SVHDX_ERROR_STORED = 0xc05c_0000,
        SVHDX_ERROR_NOT_AVAILABLE = 0xc05c_ff00,
        SVHDX_UNIT_ATTENTION_AVAILABLE = 0xc05c_ff01,
        SVHDX_UNIT_ATTENTION_CAPACITY_DATA_CHANGED = 0xc05c_ff02,
        SVHDX_UNIT_ATTENTION_RESERVATIONS_PREEMPTED = 0xc05c_ff03,
        SVHDX_UNIT_ATTENTION_RESERVATIONS_RELEASED = 0xc05c_ff04,
        SVHDX_UNIT_ATTENTION_REGISTRATIONS_PREEMPTED = 0xc05c_ff05,
        SVHDX_UNIT_ATTENTION_OPERATING_DEFINITION_CHANGED = 0xc05c_ff06,
        SVHDX_RESERVATION_CONFLICT = 0xc05c_ff07,
        SVHDX_WRONG_FILE_TYPE = 0xc05c_ff08,
        SVHDX_VERSION_MISMATCH = 0xc05c_ff09,
        VHD_SHARED = 0xc05c_ff0a,
        SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP = 0xc05d_0000,
        SMB_BAD_CLUSTER_DIALECT = 0xc05d_0001,
    }
}

impl NtStatus {
    /// Whether the two severity bits say "error"; warnings such as BUFFER_OVERFLOW carry a body like success does.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 >> 30 == 3
    }

    /// Whether the operation did what was asked, perhaps with a remark.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 >> 31 == 0
    }
}

impl fmt::Display for NtStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "STATUS_{name}"),
            None => write!(f, "{:#010x}", self.0),
        }
    }
}

/// A request that is not what its command's structure says is answered with INVALID_PARAMETER (MS-SMB2 3.3.5.2).
impl From<DecodeError> for NtStatus {
    fn from(_: DecodeError) -> Self {
        Self::INVALID_PARAMETER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_severities() {
        assert_eq!(NtStatus::ACCESS_DENIED.to_string(), "STATUS_ACCESS_DENIED");
        assert_eq!(NtStatus(0xc123_4567).to_string(), "0xc1234567");
        assert!(NtStatus::ACCESS_DENIED.is_error() && !NtStatus::ACCESS_DENIED.is_success());
        assert!(!NtStatus::BUFFER_OVERFLOW.is_error() && !NtStatus::BUFFER_OVERFLOW.is_success());
        assert!(NtStatus::PENDING.is_success());
    }
}
