//! Rights, attributes and options of opens (MS-SMB2 2.2.13, MS-FSCC 2.6).

bit_flags! {
    /// Rights: what is asked for, granted, or said by an ACE (MS-SMB2 2.2.13.1, MS-DTYP 2.4.3).
    pub struct AccessMask(u32) {
        /// LIST_DIRECTORY for directories.
        READ_DATA = 0x0000_0001,
        /// ADD_FILE for directories.
        WRITE_DATA = 0x0000_0002,
        /// ADD_SUBDIRECTORY for directories.
        APPEND_DATA = 0x0000_0004,
        READ_EA = 0x0000_0008,
        WRITE_EA = 0x0000_0010,
        /// TRAVERSE for directories.
        EXECUTE = 0x0000_0020,
        DELETE_CHILD = 0x0000_0040,
        READ_ATTRIBUTES = 0x0000_0080,
        WRITE_ATTRIBUTES = 0x0000_0100,
        DELETE = 0x0001_0000,
        READ_CONTROL = 0x0002_0000,
        WRITE_DAC = 0x0004_0000,
        WRITE_OWNER = 0x0008_0000,
        SYNCHRONIZE = 0x0010_0000,
        ACCESS_SYSTEM_SECURITY = 0x0100_0000,
        MAXIMUM_ALLOWED = 0x0200_0000,
        GENERIC_ALL = 0x1000_0000,
        GENERIC_EXECUTE = 0x2000_0000,
        GENERIC_WRITE = 0x4000_0000,
        GENERIC_READ = 0x8000_0000,
    }
}

impl AccessMask {
    /// Everything that can be granted on a file.
    pub const FILE_ALL: Self = Self(0x001f_01ff);
    /// What GENERIC_READ means for a file.
    pub const FILE_READ: Self = Self(0x0012_0089);
    /// What GENERIC_WRITE means for a file.
    pub const FILE_WRITE: Self = Self(0x0012_0116);
    /// What GENERIC_EXECUTE means for a file.
    pub const FILE_EXECUTE: Self = Self(0x0012_00a0);
    /// Bits that are rights or ask for rights; others make a request invalid.
    pub const VALID: Self = Self(0xf31f_01ff);

    /// The mask with its generic rights replaced by what they mean for files (MS-DTYP 2.5.3).
    #[must_use]
    pub fn map_generic(self) -> Self {
        let mut mask = self;
        for (generic, meaning) in [
            (Self::GENERIC_ALL, Self::FILE_ALL),
            (Self::GENERIC_READ, Self::FILE_READ),
            (Self::GENERIC_WRITE, Self::FILE_WRITE),
            (Self::GENERIC_EXECUTE, Self::FILE_EXECUTE),
        ] {
            if mask.contains(generic) {
                mask = mask.without(generic).union(meaning);
            }
        }
        mask
    }
}

bit_flags! {
    /// What others may do with a file while it is open.
    pub struct ShareAccess(u32) {
        READ = 0x0000_0001,
        WRITE = 0x0000_0002,
        DELETE = 0x0000_0004,
    }
}

bit_flags! {
    /// Attributes of a file (MS-FSCC 2.6).
    pub struct FileAttributes(u32) {
        READONLY = 0x0000_0001,
        HIDDEN = 0x0000_0002,
        SYSTEM = 0x0000_0004,
        DIRECTORY = 0x0000_0010,
        ARCHIVE = 0x0000_0020,
        NORMAL = 0x0000_0080,
        TEMPORARY = 0x0000_0100,
        SPARSE_FILE = 0x0000_0200,
        REPARSE_POINT = 0x0000_0400,
        COMPRESSED = 0x0000_0800,
        OFFLINE = 0x0000_1000,
        NOT_CONTENT_INDEXED = 0x0000_2000,
        ENCRYPTED = 0x0000_4000,
        INTEGRITY_STREAM = 0x0000_8000,
        NO_SCRUB_DATA = 0x0002_0000,
        RECALL_ON_OPEN = 0x0004_0000,
        PINNED = 0x0008_0000,
        UNPINNED = 0x0010_0000,
        RECALL_ON_DATA_ACCESS = 0x0040_0000,
    }
}

named_values! {
    /// What to do when the file exists, and when it does not.
    pub struct CreateDisposition(u32) {
        SUPERSEDE = 0,
        OPEN = 1,
        CREATE = 2,
        OPEN_IF = 3,
        OVERWRITE = 4,
        OVERWRITE_IF = 5,
    }
}

named_values! {
    /// What CREATE did.
    pub struct CreateAction(u32) {
        SUPERSEDED = 0,
        OPENED = 1,
        CREATED = 2,
        OVERWRITTEN = 3,
    }
}

named_values! {
    /// How far the server may act as the client.
    pub struct ImpersonationLevel(u32) {
        ANONYMOUS = 0,
        IDENTIFICATION = 1,
        IMPERSONATION = 2,
        DELEGATE = 3,
    }
}

bit_flags! {
    /// Options of CREATE.
    pub struct CreateOptions(u32) {
        DIRECTORY_FILE = 0x0000_0001,
        WRITE_THROUGH = 0x0000_0002,
        SEQUENTIAL_ONLY = 0x0000_0004,
        NO_INTERMEDIATE_BUFFERING = 0x0000_0008,
        SYNCHRONOUS_IO_ALERT = 0x0000_0010,
        SYNCHRONOUS_IO_NONALERT = 0x0000_0020,
        NON_DIRECTORY_FILE = 0x0000_0040,
        CREATE_TREE_CONNECTION = 0x0000_0080,
        COMPLETE_IF_OPLOCKED = 0x0000_0100,
        NO_EA_KNOWLEDGE = 0x0000_0200,
        OPEN_REMOTE_INSTANCE = 0x0000_0400,
        RANDOM_ACCESS = 0x0000_0800,
        DELETE_ON_CLOSE = 0x0000_1000,
        OPEN_BY_FILE_ID = 0x0000_2000,
        OPEN_FOR_BACKUP_INTENT = 0x0000_4000,
        NO_COMPRESSION = 0x0000_8000,
        OPEN_REQUIRING_OPLOCK = 0x0001_0000,
        DISALLOW_EXCLUSIVE = 0x0002_0000,
        RESERVE_OPFILTER = 0x0010_0000,
        OPEN_REPARSE_POINT = 0x0020_0000,
        OPEN_NO_RECALL = 0x0040_0000,
        OPEN_FOR_FREE_SPACE_QUERY = 0x0080_0000,
    }
}

named_values! {
    /// Oplock level, as asked for, granted or broken to.
    pub struct OplockLevel(u8) {
        NONE = 0x00,
        II = 0x01,
        EXCLUSIVE = 0x08,
        BATCH = 0x09,
        LEASE = 0xff,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_rights_become_those_of_files() {
        assert_eq!(AccessMask::GENERIC_ALL.map_generic(), AccessMask::FILE_ALL);
        let both = AccessMask::GENERIC_READ | AccessMask::GENERIC_WRITE | AccessMask::DELETE;
        assert_eq!(both.map_generic().0, 0x0013_019f);
        assert_eq!(AccessMask::MAXIMUM_ALLOWED.map_generic(), AccessMask::MAXIMUM_ALLOWED);
    }

    #[test]
    fn bits_show_their_names() {
        assert_eq!(format!("{:?}", ShareAccess(0x5)), "READ|DELETE");
        assert_eq!(format!("{:?}", ShareAccess(0x9)), "READ|0x8");
        assert_eq!(format!("{:?}", ShareAccess(0)), "0");
        assert_eq!(format!("{:?}", CreateDisposition(9)), "0x9");
    }
}
