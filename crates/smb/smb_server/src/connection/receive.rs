//! The way in: one large read, all complete packets; long ones go straight into a buffer of their own.
//!
//! ```text
//!   socket ─► receive buffer ─► packet (copied into its own aligned buffer) ─► handled
//!                 └─ a long packet: the rest of it socket ─► its own buffer
//! ```
//! A packet lies in its buffer so that the data of a WRITE, which follow 112 bytes of headers (and 52 of the transform
//! where it is encrypted), begin at an aligned address: a disk takes them from there.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use aligned_buffer::IoBuf;
use smb_protocol::framing::{PREFIX_BYTES, Prefix};
use smb_protocol::transform::TRANSFORM_BYTES;
use smb_protocol::write::WRITE_DATA_AT;
use tcp_service::{Account, Admission, RECEIVE_BUFFER, ReceiveBuffer, SHOWN};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

use crate::limits::{BULK_THRESHOLD, MAX_PACKET, MAX_PACKET_BEFORE_LOGIN};

/// Where the data of a WRITE begin in a packet's buffer.
pub(crate) const DATA_AT: usize = 4096;
/// Longest read when the next packet is probably long, so that most of it is read to where it belongs.
const BULK_HEADER_READ: usize = 4096;

/// A packet in a buffer of its own: `buf[start..]`.
pub(crate) struct Packet {
    pub(crate) buf: IoBuf,
    pub(crate) start: usize,
}

impl Packet {
    /// Where in its buffer a packet begins that begins with `head`, so that the data of a WRITE begin at [`DATA_AT`].
    fn start(head: &[u8]) -> usize {
        let encrypted = head.first() == Some(&0xfd);
        DATA_AT - WRITE_DATA_AT - if encrypted { TRANSFORM_BYTES } else { 0 }
    }

    /// Room for a packet of `len` bytes that begins with `head`.
    fn new(len: usize, head: &[u8]) -> Self {
        let start = Self::start(head);
        let mut buf = IoBuf::new(start + len);
        if let Some(place) = buf.get_mut(start..start + head.len()) {
            place.copy_from_slice(head);
        }
        Self { buf, start }
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buf.get(self.start..).unwrap_or_default()
    }

    /// Its bytes, to be decrypted or checked in place.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.start;
        self.buf.get_mut(start..).unwrap_or_default()
    }

    /// A message of it.
    pub(crate) fn message(&self, range: &Range<usize>) -> &[u8] {
        self.bytes().get(range.clone()).unwrap_or_default()
    }

    /// A message of it, to be checked in place.
    pub(crate) fn message_mut(&mut self, range: &Range<usize>) -> &mut [u8] {
        self.bytes_mut().get_mut(range.clone()).unwrap_or_default()
    }

    /// A packet that has come.
    #[cfg(test)]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self::new(bytes.len(), bytes)
    }

    /// Nothing: what stays when the bytes have been taken.
    pub(crate) fn empty() -> Self {
        Self { buf: IoBuf::new(0), start: 0 }
    }

    /// Leaves the first bytes out: what is inside a transform.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.buf.len());
    }

    /// The bytes `range` of the packet as a buffer, which is aligned if they are where the data of a WRITE should be.
    pub(crate) fn into_data(mut self, range: Range<usize>) -> IoBuf {
        let (from, to) = (self.start + range.start, self.start + range.end);
        if from == DATA_AT && to <= self.buf.len() {
            self.buf.truncate(to);
            // The front part goes; what stays is the rest of the same memory.
            let front = self.buf.split_to(from);
            drop(front);
            return self.buf;
        }
        IoBuf::copy_from(self.buf.get(from..to).unwrap_or_default())
    }
}

/// A long packet on its way.
struct Bulk {
    packet: Packet,
    /// Next byte in its buffer.
    at: usize,
}

/// The way in of a connection.
pub(crate) struct Receive {
    buffer: ReceiveBuffer,
    bulk: Option<Bulk>,
    expect_bulk: bool,
    limit: usize,
}

/// What is at the front of what was received.
pub(crate) enum Next {
    /// A whole packet.
    Packet(Packet),
    /// More has to come.
    More,
    /// A long packet, for which there is no memory yet.
    Wait,
    /// A long packet, for which there will be none.
    Refused,
}

/// What a read gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// This many bytes follow.
    Bytes(usize),
    /// The peer closed.
    End,
}

impl Receive {
    pub(crate) fn new() -> Self {
        Self { buffer: ReceiveBuffer::new(), bulk: None, expect_bulk: false, limit: MAX_PACKET_BEFORE_LOGIN }
    }

    /// Somebody has logged in: packets may be long now.
    pub(crate) fn allow_long(&mut self) {
        self.limit = MAX_PACKET;
    }

    /// Reads once; while memory is short no more than shows that a long packet comes.
    pub(crate) fn poll_read(
        &mut self,
        stream: &mut TcpStream,
        cx: &mut Context<'_>,
        tight: bool,
    ) -> Poll<io::Result<Got>> {
        let got = if let Some(Bulk { packet, at }) = &mut self.bulk {
            let place = packet.buf.get_mut(*at..).unwrap_or_default();
            let mut read = ReadBuf::new(place);
            ready!(Pin::new(stream).poll_read(cx, &mut read))?;
            let got = read.filled().len();
            *at += got;
            got
        } else {
            let most = match tight {
                _ if self.expect_bulk && self.buffer.waiting().len() < BULK_HEADER_READ => BULK_HEADER_READ,
                true => SHOWN + BULK_HEADER_READ,
                false => RECEIVE_BUFFER,
            };
            ready!(self.buffer.poll_read(stream, cx, most))?
        };
        Poll::Ready(Ok(if got == 0 { Got::End } else { Got::Bytes(got) }))
    }

    /// At the end of a poll: the buffer goes back to the thread. Returns the bytes that hold a part of a packet.
    pub(crate) fn rest(&mut self) -> usize {
        self.buffer.rest()
    }

    /// Bytes that a packet on its way takes.
    pub(crate) fn held(&self) -> usize {
        self.bulk.as_ref().map_or(0, |bulk| bulk.packet.buf.capacity())
    }

    /// The next whole packet; memory for a long one is asked for, on top of what the connection holds `besides`.
    ///
    /// # Errors
    /// When the stream is something else than SMB, or a packet is too long.
    pub(crate) fn next_packet(
        &mut self,
        account: &mut Account,
        besides: usize,
    ) -> Result<Next, smb_protocol::framing::FramingError> {
        if let Some(bulk) = self.bulk.take() {
            if bulk.at < bulk.packet.buf.len() {
                self.bulk = Some(bulk);
                return Ok(Next::More);
            }
            return Ok(Next::Packet(bulk.packet));
        }
        loop {
            let Some((prefix, rest)) = self.buffer.waiting().split_first_chunk::<PREFIX_BYTES>() else {
                return Ok(Next::More);
            };
            let len = match Prefix::decode(*prefix, self.limit)? {
                Prefix::KeepAlive => {
                    self.buffer.consume(PREFIX_BYTES);
                    continue;
                }
                Prefix::Packet(len) => len,
            };
            let long = len >= BULK_THRESHOLD && rest.len() >= PREFIX_BYTES;
            if rest.len() < len && (!long || account.budget().is_tight() && rest.len() < SHOWN) {
                // While memory is short, who only says that much will come gets none for it.
                account.withdraw();
                return Ok(Next::More);
            }
            match account.admit(besides + IoBuf::footprint(Packet::start(rest) + len)) {
                Admission::Now => {}
                Admission::Wait => return Ok(Next::Wait),
                Admission::Refused => return Ok(Next::Refused),
            }
            if let Some(bytes) = rest.get(..len) {
                let packet = Packet::new(len, bytes);
                self.buffer.consume(PREFIX_BYTES + len);
                self.expect_bulk = false;
                return Ok(Next::Packet(packet));
            }
            let packet = Packet::new(len, rest);
            let at = packet.start + rest.len();
            self.buffer.consume(usize::MAX);
            self.expect_bulk = true;
            self.bulk = Some(Bulk { packet, at });
            return Ok(Next::More);
        }
    }
}
