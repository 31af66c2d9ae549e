//! SMB over TCP: a length before each packet (MS-SMB2 2.1), and which kind of packet it is.
//!
//! ```text
//!   0    1            4
//!   ┌────┬────────────┬────────────────────────────────
//!   │ 00 │ length, BE │ FE 'SMB' …   plain messages, possibly several (compound)
//!   └────┴────────────┤ FD 'SMB' …   one encrypted packet (transform)
//!                     │ FC 'SMB' …   a compressed message (transform)
//!                     │ FF 'SMB' …   SMB 1
//! ```

/// Bytes of the length prefix.
pub const PREFIX_BYTES: usize = 4;
/// The longest packet that the prefix can announce: 24 bits. What a server takes is far less.
pub const MAX_PACKET_BYTES: usize = 0x00ff_ffff;

/// What a prefix announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// A packet of this many bytes follows.
    Packet(usize),
    /// A NetBIOS keep-alive (RFC 1002 4.3.7): nothing follows. Old clients send them on port 445 too.
    KeepAlive,
}

/// Why a connection cannot go on: where the next packet begins is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// The first byte is no type that is used over port 445.
    #[error("packet type {0:#04x} is not SMB over TCP")]
    Type(u8),
    /// The packet is longer than we take.
    #[error("a packet of {len} bytes is announced, {limit} are allowed")]
    TooLong {
        /// Announced.
        len: usize,
        /// Allowed.
        limit: usize,
    },
    /// The packet is too short to be of any kind.
    #[error("a packet of {0} bytes is announced, too few for a protocol identifier")]
    TooShort(usize),
}

impl Prefix {
    /// Reads the four bytes.
    ///
    /// # Errors
    /// When the stream is something else than SMB, or the packet is longer than `limit`.
    pub fn decode(bytes: [u8; PREFIX_BYTES], limit: usize) -> Result<Self, FramingError> {
        let [kind, a, b, c] = bytes;
        let len = u32::from_be_bytes([0, a, b, c]) as usize;
        match kind {
            0x00 if len > limit => Err(FramingError::TooLong { len, limit }),
            0x00 if len < PREFIX_BYTES => Err(FramingError::TooShort(len)),
            0x00 => Ok(Self::Packet(len)),
            0x85 => Ok(Self::KeepAlive),
            other => Err(FramingError::Type(other)),
        }
    }

    /// The prefix of a packet of `len` bytes; `None` when it is longer than 24 bits can say.
    #[must_use]
    pub fn encode(len: usize) -> Option<[u8; PREFIX_BYTES]> {
        let len = u32::try_from(len).ok().filter(|len| *len <= MAX_PACKET_BYTES as u32)?;
        Some(len.to_be_bytes())
    }
}

/// What begins a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// SMB 2 or 3, in the clear.
    Smb2,
    /// Encrypted (MS-SMB2 2.2.41).
    Encrypted,
    /// Compressed (MS-SMB2 2.2.42).
    Compressed,
    /// SMB 1; only a multi-protocol NEGOTIATE is ever answered ([`crate::smb1`]).
    Smb1,
}

impl Packet {
    /// The kind that the protocol identifier names; `None` when it is none of them.
    #[must_use]
    pub fn of(packet: &[u8]) -> Option<Self> {
        match packet {
            [0xfe, b'S', b'M', b'B', ..] => Some(Self::Smb2),
            [0xfd, b'S', b'M', b'B', ..] => Some(Self::Encrypted),
            [0xfc, b'S', b'M', b'B', ..] => Some(Self::Compressed),
            [0xff, b'S', b'M', b'B', ..] => Some(Self::Smb1),
            _ => None,
        }
    }
}

/// The next whole packet at the start of `buffer`: its bytes and how many of the buffer it takes with its prefix.
/// Keep-alives before it are passed over.
///
/// `None` means that more must be read first.
///
/// # Errors
/// The same as those of [`Prefix::decode`].
pub fn next_packet(buffer: &[u8], limit: usize) -> Result<Option<(&[u8], usize)>, FramingError> {
    let mut at = 0;
    while let Some(prefix) = buffer.get(at..).and_then(|rest| rest.first_chunk::<PREFIX_BYTES>()) {
        at += PREFIX_BYTES;
        match Prefix::decode(*prefix, limit)? {
            Prefix::KeepAlive => {}
            Prefix::Packet(len) => return Ok(buffer.get(at..at + len).map(|packet| (packet, at + len))),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        assert_eq!(Prefix::decode([0, 1, 2, 3], 1 << 20), Ok(Prefix::Packet(0x01_0203)));
        assert_eq!(Prefix::decode([0x85, 0, 0, 0], 0), Ok(Prefix::KeepAlive));
        assert_eq!(Prefix::decode([0x81, 0, 0, 68], 1 << 20), Err(FramingError::Type(0x81)));
        assert_eq!(
            Prefix::decode([0, 1, 0, 0], 0xffff),
            Err(FramingError::TooLong { len: 0x1_0000, limit: 0xffff })
        );
        assert_eq!(Prefix::decode([0, 0, 0, 3], 100), Err(FramingError::TooShort(3)));
        assert_eq!(Prefix::encode(0x01_0203), Some([0, 1, 2, 3]));
        assert_eq!(Prefix::encode(MAX_PACKET_BYTES + 1), None);
    }

    #[test]
    fn packets_come_out_whole_or_not_at_all() {
        let mut stream = vec![0x85, 0, 0, 0, 0, 0, 0, 5];
        stream.extend_from_slice(b"\xfeSMBx\x00");
        for cut in 0..13 {
            assert_eq!(next_packet(&stream[..cut], 100), Ok(None));
        }
        let (packet, used) = next_packet(&stream, 100).unwrap().unwrap();
        assert_eq!((packet, used), (&b"\xfeSMBx"[..], 13));
        assert_eq!(Packet::of(packet), Some(Packet::Smb2));
        assert_eq!(Packet::of(b"\xffSMC"), None);
        assert_eq!(Packet::of(b"\xffSM"), None);
    }
}
