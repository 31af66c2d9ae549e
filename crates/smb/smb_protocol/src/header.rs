//! The header of every SMB 2 message (MS-SMB2 2.2.1).
//!
//! ```text
//!    0  ProtocolId FE 'SMB'        4  StructureSize 64       6  CreditCharge
//!    8  Status | ChannelSequence  12  Command               14  Credits
//!   16  Flags                     20  NextCommand           24  MessageId
//!   32  AsyncId  |  Reserved, TreeId                        40  SessionId
//!   48  Signature (16)
//! ```

use crate::command::Command;
use crate::status::NtStatus;
use crate::wire::{DecodeError, Reader, Wire};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;
/// Where the signature lies.
pub const SIGNATURE_AT: usize = 48;
/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 16;
/// The identifier of SMB 2 and 3 in the clear.
pub const PROTOCOL_ID: [u8; 4] = *b"\xfeSMB";
/// MessageId of what the server sends unasked (oplock and lease breaks).
pub const UNSOLICITED: u64 = u64::MAX;

bit_flags! {
    /// Flags of the header (MS-SMB2 2.2.1.1).
    pub struct HeaderFlags(u32) {
        SERVER_TO_REDIR = 0x0000_0001,
        ASYNC_COMMAND = 0x0000_0002,
        RELATED_OPERATIONS = 0x0000_0004,
        SIGNED = 0x0000_0008,
        PRIORITY_MASK = 0x0000_0070,
        DFS_OPERATIONS = 0x1000_0000,
        REPLAY_OPERATION = 0x2000_0000,
    }
}

/// What the eight bytes at 32 are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// A tree connect of the session.
    Sync {
        /// A client's process; clients send 0 or 0xFEFF, servers do not look at it.
        process: u32,
        /// The tree connect.
        tree: u32,
    },
    /// An operation that goes on after an interim response.
    Async(u64),
}

impl Default for Routing {
    fn default() -> Self {
        Self::Sync { process: 0, tree: 0 }
    }
}

/// A header, decoded. In requests of SMB 3 the two low bytes of `status` are the channel sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Credits that the request takes; 0 in SMB 2.0.2.
    pub credit_charge: u16,
    /// The result in responses; see [`Header::channel_sequence`] for requests.
    pub status: NtStatus,
    /// The command.
    pub command: Command,
    /// Credits asked for, or granted.
    pub credits: u16,
    /// Flags.
    pub flags: HeaderFlags,
    /// Offset of the next message of a compound, 0 in the last one.
    pub next_command: u32,
    /// The request's number on its connection.
    pub message_id: u64,
    /// Tree, or the number of an asynchronous operation.
    pub routing: Routing,
    /// The session.
    pub session_id: u64,
    /// The signature.
    pub signature: [u8; SIGNATURE_BYTES],
}

impl Header {
    /// Reads the header at the beginning of a message.
    ///
    /// # Errors
    /// When there are fewer than 64 bytes, the identifier is another one, or the structure size is not 64.
    pub fn decode(message: &[u8]) -> Result<Self, DecodeError> {
        let head = message.get(..HEADER_BYTES).ok_or(DecodeError::Truncated)?;
        let mut r = Reader::new(head);
        if r.raw(4)? != PROTOCOL_ID {
            return Err(DecodeError::WrongMagic);
        }
        if r.u16()? != HEADER_BYTES as u16 {
            return Err(DecodeError::Invalid("structure size"));
        }
        let credit_charge = r.u16()?;
        let status = NtStatus(r.u32()?);
        let command = Command(r.u16()?);
        let credits = r.u16()?;
        let flags = HeaderFlags(r.u32()?);
        let next_command = r.u32()?;
        let message_id = r.u64()?;
        let routing = if flags.contains(HeaderFlags::ASYNC_COMMAND) {
            Routing::Async(r.u64()?)
        } else {
            Routing::Sync { process: r.u32()?, tree: r.u32()? }
        };
        let session_id = r.u64()?;
        let signature = <[u8; SIGNATURE_BYTES]>::take(&mut r)?;
        Ok(Self {
            credit_charge,
            status,
            command,
            credits,
            flags,
            next_command,
            message_id,
            routing,
            session_id,
            signature,
        })
    }

    /// The 64 bytes. Whether the async flag is set follows from `routing`.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let (flags, routing) = match self.routing {
            Routing::Async(id) => (self.flags.union(HeaderFlags::ASYNC_COMMAND), id),
            Routing::Sync { process, tree } => {
                (self.flags.without(HeaderFlags::ASYNC_COMMAND), u64::from(process) | u64::from(tree) << 32)
            }
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&PROTOCOL_ID);
        bytes[4..6].copy_from_slice(&(HEADER_BYTES as u16).to_le_bytes());
        bytes[6..8].copy_from_slice(&self.credit_charge.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.status.0.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.command.0.to_le_bytes());
        bytes[14..16].copy_from_slice(&self.credits.to_le_bytes());
        bytes[16..20].copy_from_slice(&flags.0.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.next_command.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.message_id.to_le_bytes());
        bytes[32..40].copy_from_slice(&routing.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.session_id.to_le_bytes());
        bytes[SIGNATURE_AT..].copy_from_slice(&self.signature);
        bytes
    }

    /// The channel sequence of a request of SMB 3 (MS-SMB2 2.2.1.2).
    #[must_use]
    pub fn channel_sequence(&self) -> u16 {
        self.status.0 as u16
    }

    /// Sets the channel sequence of a request.
    pub fn set_channel_sequence(&mut self, sequence: u16) {
        self.status = NtStatus(u32::from(sequence));
    }

    /// The tree connect, if the message is not asynchronous.
    #[must_use]
    pub fn tree_id(&self) -> Option<u32> {
        match self.routing {
            Routing::Sync { tree, .. } => Some(tree),
            Routing::Async(_) => None,
        }
    }

    /// Whether the message takes session, tree and file from the one before it in the compound.
    #[must_use]
    pub fn is_related(&self) -> bool {
        self.flags.contains(HeaderFlags::RELATED_OPERATIONS)
    }

    /// Whether this is a response.
    #[must_use]
    pub fn is_response(&self) -> bool {
        self.flags.contains(HeaderFlags::SERVER_TO_REDIR)
    }

    /// The header of the answer to this request: same command, message, session and tree.
    #[must_use]
    pub fn answer(&self, status: NtStatus, credits: u16) -> Self {
        let kept = HeaderFlags::RELATED_OPERATIONS
            | HeaderFlags::PRIORITY_MASK
            | HeaderFlags::DFS_OPERATIONS
            | HeaderFlags::REPLAY_OPERATION;
        Self {
            status,
            credits,
            flags: HeaderFlags::SERVER_TO_REDIR | (self.flags & kept),
            next_command: 0,
            signature: [0; SIGNATURE_BYTES],
            ..*self
        }
    }
}

/// A reader behind the message's header.
///
/// # Errors
/// When the message is shorter than a header.
pub(crate) fn body(message: &[u8]) -> Result<Reader<'_>, DecodeError> {
    message.get(HEADER_BYTES..).map(Reader::new).ok_or(DecodeError::Truncated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_place() {
        let header = Header {
            credit_charge: 0x0102,
            status: NtStatus(0x0304_0506),
            command: Command::WRITE,
            credits: 0x0708,
            flags: HeaderFlags::SIGNED | HeaderFlags::RELATED_OPERATIONS,
            next_command: 0x1112_1314,
            message_id: 0x2122_2324_2526_2728,
            routing: Routing::Sync { process: 0xfeff, tree: 0x3132_3334 },
            session_id: 0x4142_4344_4546_4748,
            signature: [0x5a; 16],
        };
        let bytes = header.encode();
        assert_eq!(&bytes[..8], b"\xfeSMB\x40\x00\x02\x01");
        assert_eq!(&bytes[12..16], &[9, 0, 8, 7]);
        assert_eq!(&bytes[32..40], &[0xff, 0xfe, 0, 0, 0x34, 0x33, 0x32, 0x31]);
        assert_eq!(&bytes[SIGNATURE_AT..], &[0x5a; 16]);
        assert_eq!(Header::decode(&bytes), Ok(header));
        assert_eq!(header.channel_sequence(), 0x0506);
    }

    #[test]
    fn asynchronous_ones_have_a_number_instead_of_a_tree() {
        let header = Header { routing: Routing::Async(0x0102_0304_0506_0708), ..Header::default() };
        let bytes = header.encode();
        assert_eq!(bytes[16], 2);
        let back = Header::decode(&bytes).unwrap();
        assert_eq!(back.routing, header.routing);
        assert_eq!(back.tree_id(), None);
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let good = Header::default().encode();
        assert_eq!(Header::decode(&good[..63]), Err(DecodeError::Truncated));
        let mut other = good;
        other[0] = 0xff;
        assert_eq!(Header::decode(&other), Err(DecodeError::WrongMagic));
        let mut other = good;
        other[4] = 65;
        assert!(Header::decode(&other).is_err());
    }

    #[test]
    fn an_answer_keeps_what_identifies_the_request() {
        let request = Header {
            command: Command::READ,
            message_id: 7,
            session_id: 9,
            flags: HeaderFlags::SIGNED | HeaderFlags::RELATED_OPERATIONS | HeaderFlags(0x20),
            next_command: 88,
            routing: Routing::Sync { process: 0, tree: 3 },
            ..Header::default()
        };
        let answer = request.answer(NtStatus::END_OF_FILE, 4);
        assert!(answer.is_response() && answer.is_related());
        assert!(!answer.flags.contains(HeaderFlags::SIGNED));
        assert!(answer.flags.contains(HeaderFlags(0x20)));
        assert_eq!((answer.next_command, answer.credits, answer.message_id), (0, 4, 7));
    }
}
