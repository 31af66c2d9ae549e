//! What comes from the server: packets, and data of READ answers where they belong.

use smb_protocol::compound;
use smb_protocol::framing::{PREFIX_BYTES, Packet, Prefix};
use smb_protocol::header::{HeaderFlags, UNSOLICITED};
use smb_protocol::read::{READ_DATA_AT, ReadResponse};
use smb_protocol::transform::TRANSFORM_BYTES;
use smb_protocol::{Command, Dialect, Header, NtStatus};

use crate::connection::Connection;
use crate::error::ClientError;
use crate::types::{Protection, Received};

/// The longest packet that is taken from a server.
const MAX_PACKET: usize = 9 << 20;
/// A packet that is longer has the spare memory.
const LONG: usize = 64 << 10;

/// Where data of READ answers go that need no look before: neither a signature nor encryption.
pub trait Buffers {
    /// The place for `len` bytes that answer this message, if it awaits them.
    fn input(&mut self, message: u64, len: usize) -> Option<&mut [u8]>;
}

/// Nothing is placed.
struct Nowhere;

impl Buffers for Nowhere {
    fn input(&mut self, _: u64, _: usize) -> Option<&mut [u8]> {
        None
    }
}

impl Connection {
    /// What the server says next, whatever it is.
    ///
    /// # Errors
    /// The same as those of [`Connection::call`].
    pub fn receive(&mut self) -> Result<Received, ClientError> {
        self.receive_into(&mut Nowhere)
    }

    /// The same; the data of a READ answer go straight to their place, if `buffers` has one and nothing is to be checked
    /// first. Of such an answer only what is before the data is returned, with their length.
    ///
    /// # Errors
    /// The same as those of [`Connection::call`]. Places may then have been written to.
    pub fn receive_into(&mut self, buffers: &mut impl Buffers) -> Result<Received, ClientError> {
        while self.waiting.is_empty() {
            let len = self.next_packet()?;
            if let Some(placed) = self.place(len, buffers)? {
                return Ok(placed);
            }
            let fresh = self.receive_packet(len)?;
            self.waiting.extend(fresh);
        }
        self.waiting.pop_front().ok_or(ClientError::Protocol("lost"))
    }

    /// Gives the memory of an answer back, for the next one.
    pub fn recycle(&mut self, received: Received) {
        if received.bytes.capacity() > self.spare.capacity() {
            self.spare = received.bytes;
        }
    }

    /// Whether an answer is here as a whole: [`Connection::receive`] then asks the system for nothing.
    #[must_use]
    pub fn has_more(&self) -> bool {
        if !self.waiting.is_empty() {
            return true;
        }
        let here = self.inbox.here();
        here.first_chunk().is_some_and(|prefix| match Prefix::decode(*prefix, MAX_PACKET) {
            Ok(Prefix::Packet(len)) => here.len() >= PREFIX_BYTES + len,
            Ok(Prefix::KeepAlive) => false,
            Err(_) => true,
        })
    }

    /// Waits for the next packet; its length.
    fn next_packet(&mut self) -> Result<usize, ClientError> {
        loop {
            self.inbox.fill(&mut self.stream, PREFIX_BYTES)?;
            let prefix = self.inbox.here().first_chunk().copied().unwrap_or_default();
            self.inbox.consume(PREFIX_BYTES);
            let decoded = Prefix::decode(prefix, MAX_PACKET);
            match decoded.map_err(|_| ClientError::Protocol("the server's packet is no packet"))? {
                Prefix::KeepAlive => {}
                Prefix::Packet(len) => return Ok(len),
            }
        }
    }

    /// Takes a packet of `len` bytes that is one answer to a READ, with nothing to be checked, if there is a place for its data.
    fn place(&mut self, len: usize, buffers: &mut impl Buffers) -> Result<Option<Received>, ClientError> {
        if self.protection != Protection::None || len <= READ_DATA_AT {
            return Ok(None);
        }
        self.inbox.fill(&mut self.stream, READ_DATA_AT)?;
        let head = self.inbox.here().get(..READ_DATA_AT).unwrap_or_default();
        let Ok(header) = Header::decode(head) else { return Ok(None) };
        let is_whole = ReadResponse::in_front(head)
            .is_ok_and(|response| response == ReadResponse::of((len - READ_DATA_AT) as u32));
        if header.command != Command::READ
            || header.status != NtStatus::SUCCESS
            || !header.is_response()
            || header.next_command != 0
            || !is_whole
        {
            return Ok(None);
        }
        let Some(place) = buffers.input(header.message_id, len - READ_DATA_AT) else { return Ok(None) };
        let bytes = head.to_vec();
        self.inbox.consume(READ_DATA_AT);
        self.inbox.take(&mut self.stream, place)?;
        Ok(Some(Received { header, bytes, sealed: false, placed: Some(place.len()) }))
    }

    fn read_packet(&mut self, len: usize) -> Result<Vec<u8>, ClientError> {
        let mut packet = if len > LONG { std::mem::take(&mut self.spare) } else { Vec::new() };
        // Packets are mostly as long as those before, and what is in the memory need not be cleared.
        packet.resize(len, 0);
        self.inbox.take(&mut self.stream, &mut packet)?;
        Ok(packet)
    }

    /// One packet's messages, checked.
    pub(crate) fn receive_fresh(&mut self) -> Result<Vec<Received>, ClientError> {
        let len = self.next_packet()?;
        self.receive_packet(len)
    }

    fn receive_packet(&mut self, len: usize) -> Result<Vec<Received>, ClientError> {
        let mut packet = self.read_packet(len)?;
        let mut sealed = false;
        if Packet::of(&packet) == Some(Packet::Encrypted) {
            let session =
                self.session.as_ref().ok_or(ClientError::Protocol("encrypted without a session"))?;
            let (_, opener) = session.seal.as_ref().ok_or(ClientError::Protocol("cannot decrypt"))?;
            opener.open(&mut packet)?;
            packet.drain(..TRANSFORM_BYTES);
            sealed = true;
        }
        let mut received = Vec::new();
        let mut whole = None;
        for message in compound::messages(&packet) {
            let message = message?;
            if message.bytes.len() == packet.len() {
                whole = Some(message.header);
                break;
            }
            received.push(Received {
                header: message.header,
                bytes: message.bytes.to_vec(),
                sealed,
                placed: None,
            });
        }
        // Mostly a packet is one message, which may be long: it is not copied.
        if let Some(header) = whole {
            received.push(Received { header, bytes: packet, sealed, placed: None });
        }
        let signed = self.protection == Protection::Sign && self.dialect != Dialect::WILDCARD;
        if let (true, false, Some(session)) = (signed, sealed, &self.session) {
            for each in &mut received {
                let Header { status, message_id, flags, .. } = each.header;
                // An interim answer and what comes unasked are not signed; some refusals cannot be, and carry what was
                // sent where the signature would be.
                let exempt = status == NtStatus::PENDING || message_id == UNSOLICITED;
                let refused = matches!(status, NtStatus::USER_SESSION_DELETED | NtStatus::ACCESS_DENIED);
                if !refused && (flags.contains(HeaderFlags::SIGNED) || !exempt) {
                    session.signer.verify(&mut each.bytes)?;
                }
            }
        }
        Ok(received)
    }

    /// The next message without a look at its signature: answers to SESSION_SETUP are checked when the key is known.
    pub(crate) fn receive_unchecked(&mut self) -> Result<Received, ClientError> {
        let len = self.next_packet()?;
        let packet = self.read_packet(len)?;
        let message =
            compound::messages(&packet).next().ok_or(ClientError::Protocol("an empty packet"))??;
        Ok(Received { header: message.header, bytes: message.bytes.to_vec(), sealed: false, placed: None })
    }
}
