//! The commands (MS-SMB2 2.2.1).

named_values! {
    /// A command's number.
    pub struct Command(u16) {
        NEGOTIATE = 0x00,
        SESSION_SETUP = 0x01,
        LOGOFF = 0x02,
        TREE_CONNECT = 0x03,
        TREE_DISCONNECT = 0x04,
        CREATE = 0x05,
        CLOSE = 0x06,
        FLUSH = 0x07,
        READ = 0x08,
        WRITE = 0x09,
        LOCK = 0x0a,
        IOCTL = 0x0b,
        CANCEL = 0x0c,
        ECHO = 0x0d,
        QUERY_DIRECTORY = 0x0e,
        CHANGE_NOTIFY = 0x0f,
        QUERY_INFO = 0x10,
        SET_INFO = 0x11,
        OPLOCK_BREAK = 0x12,
        /// From the server only, for clients that announced NOTIFICATIONS.
        SERVER_TO_CLIENT_NOTIFICATION = 0x13,
    }
}

named_values! {
    /// A version of the protocol, as negotiated.
    pub struct Dialect(u16) {
        SMB_2_0_2 = 0x0202,
        SMB_2_1 = 0x0210,
        SMB_3_0 = 0x0300,
        SMB_3_0_2 = 0x0302,
        SMB_3_1_1 = 0x0311,
        /// Not a version: the answer to a multi-protocol NEGOTIATE that asks for an SMB 2 one (MS-SMB2 3.3.5.3.1).
        WILDCARD = 0x02ff,
    }
}

impl Dialect {
    /// Every version, oldest first.
    pub const ALL: [Self; 5] =
        [Self::SMB_2_0_2, Self::SMB_2_1, Self::SMB_3_0, Self::SMB_3_0_2, Self::SMB_3_1_1];

    /// Whether it is 3.0, 3.0.2 or 3.1.1.
    #[must_use]
    pub fn is_smb3(self) -> bool {
        matches!(self, Self::SMB_3_0 | Self::SMB_3_0_2 | Self::SMB_3_1_1)
    }
}
