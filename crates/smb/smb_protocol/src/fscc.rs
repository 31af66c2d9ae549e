//! Information classes: what QUERY_INFO, SET_INFO and QUERY_DIRECTORY carry (MS-FSCC 2.4, 2.5, 2.7).
//!
//! Structures of fixed size are types with [`Wire`](crate::wire::Wire); what has a name or is a list has functions of
//! its own. Lists whose entries tell where the next one begins are written and walked by [`entries`] alone.

pub mod ea;
pub mod entries;
pub mod file;
pub mod listing;
pub mod names;
pub mod notify;
pub mod quota;
pub mod volume;

named_values! {
    /// Classes of information about a file (MS-FSCC 2.4).
    pub struct FileClass(u8) {
        DIRECTORY = 1,
        FULL_DIRECTORY = 2,
        BOTH_DIRECTORY = 3,
        BASIC = 4,
        STANDARD = 5,
        INTERNAL = 6,
        EA = 7,
        ACCESS = 8,
        NAME = 9,
        RENAME = 10,
        LINK = 11,
        NAMES = 12,
        DISPOSITION = 13,
        POSITION = 14,
        FULL_EA = 15,
        MODE = 16,
        ALIGNMENT = 17,
        ALL = 18,
        ALLOCATION = 19,
        END_OF_FILE = 20,
        ALTERNATE_NAME = 21,
        STREAM = 22,
        PIPE = 23,
        PIPE_LOCAL = 24,
        PIPE_REMOTE = 25,
        COMPRESSION = 28,
        OBJECT_ID = 29,
        MOVE_CLUSTER = 31,
        QUOTA = 32,
        REPARSE_POINT = 33,
        NETWORK_OPEN = 34,
        ATTRIBUTE_TAG = 35,
        TRACKING = 36,
        ID_BOTH_DIRECTORY = 37,
        ID_FULL_DIRECTORY = 38,
        VALID_DATA_LENGTH = 39,
        SHORT_NAME = 40,
        HARD_LINK = 46,
        NORMALIZED_NAME = 48,
        ID_GLOBAL_TX_DIRECTORY = 50,
        STANDARD_LINK = 54,
        ID = 59,
        ID_EXTD_DIRECTORY = 60,
        DISPOSITION_EX = 64,
        RENAME_EX = 65,
        LINK_EX = 72,
        ID_64_EXTD_DIRECTORY = 78,
        ID_64_EXTD_BOTH_DIRECTORY = 79,
        ID_ALL_EXTD_DIRECTORY = 80,
        ID_ALL_EXTD_BOTH_DIRECTORY = 81,
        /// Samba's and Linux' POSIX extensions.
        POSIX = 100,
    }
}

named_values! {
    /// Classes of information about a file system (MS-FSCC 2.5).
    pub struct VolumeClass(u8) {
        VOLUME = 1,
        LABEL = 2,
        SIZE = 3,
        DEVICE = 4,
        ATTRIBUTE = 5,
        CONTROL = 6,
        FULL_SIZE = 7,
        OBJECT_ID = 8,
        DRIVER_PATH = 9,
        VOLUME_FLAGS = 10,
        SECTOR_SIZE = 11,
        POSIX = 100,
    }
}
