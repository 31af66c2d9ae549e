//! Several messages in one packet (MS-SMB2 3.2.4.1.4, 3.3.5.2.7).
//!
//! ```text
//!   │ prefix │ header │ body … │ pad to 8 │ header │ body … │ pad │ header │ body … │
//!              NextCommand ───────────────► NextCommand ────────► 0
//! ```
//! Offsets inside a message count from its own header, so [`messages`] gives each as a slice of its own. A signature
//! covers a message with its padding: sign after the frame is finished, with [`for_each_message`].

use crate::framing::{MAX_PACKET_BYTES, PREFIX_BYTES, Prefix};
use crate::header::{HEADER_BYTES, Header};
use crate::wire::{DecodeError, Out, Oversized};

/// Alignment of messages in a compound.
pub const ALIGNMENT: usize = 8;
/// Where NextCommand lies in a header.
const NEXT_COMMAND_AT: usize = 20;

/// One message of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its header.
    pub header: Header,
    /// All of it from its header on, with the padding behind it if another one follows.
    pub bytes: &'a [u8],
    /// Where it begins in the packet.
    pub at: usize,
}

/// The messages of a packet, in order. After an error there are no more: where the next would begin is not known.
pub fn messages(packet: &[u8]) -> impl Iterator<Item = Result<Message<'_>, DecodeError>> {
    let mut at = Some(0);
    std::iter::from_fn(move || {
        let start = at.take()?;
        Some(message_at(packet, start).inspect(|message| {
            if message.header.next_command != 0 {
                at = Some(start + message.bytes.len());
            }
        }))
    })
}

fn message_at(packet: &[u8], at: usize) -> Result<Message<'_>, DecodeError> {
    let rest = packet.get(at..).ok_or(DecodeError::Truncated)?;
    let header = Header::decode(rest)?;
    let bytes = match header.next_command as usize {
        0 => rest,
        // Each step goes forward by a header at least, so a chain has an end.
        next if next >= HEADER_BYTES && next.is_multiple_of(ALIGNMENT) => match rest.split_at_checked(next) {
            Some((bytes, following)) if following.len() >= HEADER_BYTES => bytes,
            _ => return Err(DecodeError::Invalid("next command")),
        },
        _ => return Err(DecodeError::Invalid("next command")),
    };
    Ok(Message { header, bytes, at })
}

/// Calls `visit` with each message's bytes, for instance to sign them; stops where a header is not one.
pub fn for_each_message(mut packet: &mut [u8], mut visit: impl FnMut(&Header, &mut [u8])) {
    while let Ok(header) = Header::decode(packet) {
        match header.next_command as usize {
            0 => return visit(&header, packet),
            next if next >= HEADER_BYTES => {
                let Some((message, rest)) = packet.split_at_mut_checked(next) else { return };
                visit(&header, message);
                packet = rest;
            }
            _ => return,
        }
    }
}

/// Writes a packet of one or several messages with its length prefix at the end of a buffer.
#[derive(Debug)]
pub struct FrameWriter<'a> {
    buffer: &'a mut Vec<u8>,
    prefix: usize,
    last: Option<usize>,
    oversized: bool,
}

impl<'a> FrameWriter<'a> {
    /// Begins a packet.
    #[must_use]
    pub fn new(buffer: &'a mut Vec<u8>) -> Self {
        let prefix = buffer.len();
        buffer.extend_from_slice(&[0; PREFIX_BYTES]);
        Self { buffer, prefix, last: None, oversized: false }
    }

    /// Appends a message: its header, and what `body` appends. Returns where it begins in the buffer.
    pub fn push(&mut self, header: &Header, body: impl FnOnce(&mut Out<'_>)) -> usize {
        let packet = self.prefix + PREFIX_BYTES;
        if let Some(last) = self.last {
            let padded = packet + (self.buffer.len() - packet).next_multiple_of(ALIGNMENT);
            self.buffer.resize(padded, 0);
            let next = (padded - last) as u32;
            if let Some(field) = self.buffer.get_mut(last + NEXT_COMMAND_AT..last + NEXT_COMMAND_AT + 4) {
                field.copy_from_slice(&next.to_le_bytes());
            }
        }
        let start = self.buffer.len();
        self.last = Some(start);
        self.buffer.extend_from_slice(&Header { next_command: 0, ..*header }.encode());
        let mut out = Out::at(self.buffer, start);
        body(&mut out);
        self.oversized |= out.check().is_err();
        start
    }

    /// Whether a message has been appended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Bytes of the packet so far, without the prefix.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len() - self.prefix - PREFIX_BYTES
    }

    /// Appends zeros until the packet's length is a multiple of [`ALIGNMENT`]: the last message of a compound answer is
    /// padded like the others, as Windows does.
    pub fn pad(&mut self) {
        let packet = self.prefix + PREFIX_BYTES;
        let padded = packet + (self.buffer.len() - packet).next_multiple_of(ALIGNMENT);
        self.buffer.resize(padded, 0);
    }

    /// Writes the prefix. `following` bytes of the last message come from another buffer (the data of a READ).
    ///
    /// # Errors
    /// When a part or the packet is longer than its length can say; the buffer is as before [`FrameWriter::new`] then.
    pub fn finish(self, following: usize) -> Result<(), Oversized> {
        let len = self.len().saturating_add(following).min(MAX_PACKET_BYTES + 1);
        let prefix = if self.oversized { None } else { Prefix::encode(len) };
        let place = self.buffer.get_mut(self.prefix..self.prefix + PREFIX_BYTES);
        if let (Some(prefix), Some(place)) = (prefix, place) {
            place.copy_from_slice(&prefix);
            return Ok(());
        }
        self.buffer.truncate(self.prefix);
        Err(Oversized)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;
    use crate::session::Empty;

    fn three() -> Vec<u8> {
        let mut buffer = vec![1, 2, 3];
        let mut frame = FrameWriter::new(&mut buffer);
        for id in 0..3 {
            let header = Header { command: Command::ECHO, message_id: id, ..Header::default() };
            frame.push(&header, |out| out.put(&Empty {}));
        }
        frame.finish(0).unwrap();
        buffer.split_off(3 + PREFIX_BYTES)
    }

    #[test]
    fn chains_there_and_back() {
        let packet = three();
        let all: Vec<_> = messages(&packet).map(Result::unwrap).collect();
        assert_eq!(all.iter().map(|m| m.at).collect::<Vec<_>>(), [0, 72, 144]);
        assert_eq!(all.iter().map(|m| m.bytes.len()).collect::<Vec<_>>(), [72, 72, 68]);
        assert_eq!(all[2].header.message_id, 2);
        let mut copy = packet.clone();
        let mut seen = Vec::new();
        for_each_message(&mut copy, |header, bytes| seen.push((header.message_id, bytes.len())));
        assert_eq!(seen, [(0, 72), (1, 72), (2, 68)]);
    }

    #[test]
    fn chains_that_lead_astray_end() {
        for next in [1_u32, 8, 63, 65, 144 + 68, 0x1000, !7] {
            let mut packet = three();
            packet[72 + 20..72 + 24].copy_from_slice(&next.to_le_bytes());
            let all: Vec<_> = messages(&packet).collect();
            assert_eq!(all.len(), 2, "{next}");
            assert!(all[1].is_err(), "{next}");
        }
        assert!(messages(&[]).next().unwrap().is_err());
    }

    #[test]
    fn what_does_not_fit_is_not_sent() {
        let mut buffer = vec![9];
        let mut frame = FrameWriter::new(&mut buffer);
        frame.push(&Header::default(), |out| out.len16(0x1_0000));
        assert_eq!(frame.finish(0), Err(Oversized));
        let mut frame = FrameWriter::new(&mut buffer);
        frame.push(&Header::default(), |out| out.put(&Empty {}));
        assert_eq!(frame.finish(MAX_PACKET_BYTES), Err(Oversized));
        assert_eq!(buffer, [9]);
    }
}
