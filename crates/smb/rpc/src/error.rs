//! How a call ends: faults of the protocol, and the numbers that Windows' functions return.

use std::fmt;

use smb_protocol::NtStatus;

/// A call that could not be answered: the status of a fault PDU (C706 appendix E, MS-RPCE 2.2.2.9, MS-ERREF 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault(pub u32);

impl Fault {
    /// The caller may not do this; also what is answered where an authentication is missing or was not accepted.
    pub const ACCESS_DENIED: Self = Self(0x0000_0005);
    /// The arguments are not what the interface says: RPC_X_BAD_STUB_DATA.
    pub const BAD_STUB_DATA: Self = Self(0x0000_06f7);
    /// A message's protection does not verify: RPC_S_SEC_PKG_ERROR.
    pub const SEC_PKG_ERROR: Self = Self(0x0000_0721);
    /// The operation does not exist: nca_s_op_rng_error.
    pub const OP_RANGE: Self = Self(0x1c01_0002);
    /// The presentation context was not negotiated: nca_s_unk_if.
    pub const UNKNOWN_INTERFACE: Self = Self(0x1c01_0003);
    /// A PDU that the protocol does not allow here: nca_s_proto_error.
    pub const PROTOCOL: Self = Self(0x1c01_000b);
    /// A context handle that nobody has: nca_s_fault_context_mismatch.
    pub const CONTEXT_MISMATCH: Self = Self(0x1c00_001a);
    /// The arguments are longer than any that are taken: nca_s_fault_remote_no_memory.
    pub const NO_MEMORY: Self = Self(0x1c00_001b);
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fault {:#010x}", self.0)
    }
}

/// What functions of srvsvc and wkssvc return: Win32 errors (MS-ERREF 2.2) and those of the LAN Manager (lmerr.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Win32(pub u32);

#[allow(missing_docs, reason = "the names are the specification's")]
impl Win32 {
    pub const SUCCESS: Self = Self(0);
    pub const FILE_NOT_FOUND: Self = Self(2);
    pub const PATH_NOT_FOUND: Self = Self(3);
    pub const ACCESS_DENIED: Self = Self(5);
    pub const NOT_ENOUGH_MEMORY: Self = Self(8);
    pub const NOT_READY: Self = Self(21);
    pub const GEN_FAILURE: Self = Self(31);
    pub const NOT_SUPPORTED: Self = Self(50);
    pub const INVALID_PARAMETER: Self = Self(87);
    pub const DISK_FULL: Self = Self(112);
    pub const INVALID_NAME: Self = Self(123);
    pub const INVALID_LEVEL: Self = Self(124);
    pub const MORE_DATA: Self = Self(234);
    pub const NONE_MAPPED: Self = Self(1332);
    pub const BUFFER_TOO_SMALL: Self = Self(2123);
    pub const UNKNOWN_DIRECTORY: Self = Self(2116);
    pub const DUPLICATE_SHARE: Self = Self(2118);
    pub const USER_NOT_FOUND: Self = Self(2221);
    pub const NET_NAME_NOT_FOUND: Self = Self(2310);
    pub const DEVICE_NOT_SHARED: Self = Self(2311);
    pub const CLIENT_NAME_NOT_FOUND: Self = Self(2312);
    pub const FILE_ID_NOT_FOUND: Self = Self(2314);
}

impl fmt::Display for Win32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {}", self.0)
    }
}

/// Statuses of lsarpc and samr that files do not have (MS-ERREF 2.3).
pub(crate) mod status {
    use super::NtStatus;

    pub(crate) const MORE_ENTRIES: NtStatus = NtStatus(0x0000_0105);
    pub(crate) const SOME_NOT_MAPPED: NtStatus = NtStatus(0x0000_0107);
    pub(crate) const NO_SUCH_GROUP: NtStatus = NtStatus(0xc000_0066);
    pub(crate) const NO_SUCH_ALIAS: NtStatus = NtStatus(0xc000_0151);
}
