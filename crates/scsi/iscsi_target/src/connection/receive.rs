//! The way in: one large read, all complete PDUs; long data goes straight to its place.
//!
//! ```text
//!   Header ──(whole PDU in the buffer)──► handled, next
//!      └────(long data of a command)───► Bulk: socket → command's buffer ──► Trailer: pad, digest ──► Header
//! ```

use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use aligned_buffer::IoBuf;
use iscsi_protocol::digest::{DIGEST_BYTES, Digest, digest_of};
use iscsi_protocol::pdu::{Ahs, opcode, padded, parse_ahs};
use iscsi_protocol::{BHS_BYTES, Bhs, Frame};
use tcp_service::{RECEIVE_BUFFER, ReceiveBuffer, SHOWN};
use tokio::io::{AsyncRead as _, ReadBuf};

use super::{Connection, End, Flow};
use crate::limits::{BULK_THRESHOLD, MAX_SMALL_DATA};

/// Longest header read when bulk data is due: the header and little of the data, so that most of the data is
/// read to where it belongs.
const BULK_HEADER_READ: usize = 4096;

/// Where the data of a PDU belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// At this offset of the command's buffer.
    At(usize),
    /// The PDU was dealt with; its data is thrown away.
    Nowhere,
}

/// Data on its way into a command's buffer.
struct Bulk {
    bhs: Bhs,
    /// Where the command's buffer is meanwhile; `None` when the data is thrown away.
    into: Option<IoBuf>,
    /// Next byte in `into`.
    at: usize,
    /// Bytes still to come.
    left: usize,
    digest: Option<Digest>,
    /// Pad and digest after the data.
    trailer: usize,
}

/// The way in of a connection.
pub(super) struct Receive {
    buffer: ReceiveBuffer,
    /// How much of what waits in the buffer has been handled in this turn.
    start: usize,
    bulk: Option<Bulk>,
    /// Whether the next PDU is probably long data.
    expect_bulk: bool,
}

impl Receive {
    pub(super) fn new() -> Self {
        Self { buffer: ReceiveBuffer::new(), start: 0, bulk: None, expect_bulk: false }
    }

    /// At the end of a poll: the buffer goes back to the thread. Returns the bytes that hold a part of a PDU.
    pub(super) fn rest(&mut self) -> usize {
        self.buffer.rest()
    }
}

impl Connection {
    /// Reads once and handles what is there.
    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Flow {
        let got = match self.poll_read(cx) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(0)) => return Err(End::Disconnected),
            Poll::Ready(Ok(got)) => got,
            Poll::Ready(Err(_)) => return Err(End::Disconnected),
        };
        self.idle_ticks = 0;
        self.peer.counters.bytes_in.fetch_add(got as u64, Ordering::Relaxed);
        self.moved += got as u64;
        // The buffer is taken out while its PDUs change the rest of the connection.
        let mut buffer = std::mem::take(&mut self.receive.buffer);
        let handled = self.handle(buffer.waiting());
        buffer.consume(std::mem::take(&mut self.receive.start));
        self.receive.buffer = buffer;
        handled.map(|()| true)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let tight = self.account.budget().is_tight();
        let Receive { buffer, bulk, expect_bulk, .. } = &mut self.receive;
        if let Some(Bulk { into: Some(into), at, left, digest, .. }) = bulk
            && *left > 0
            && buffer.is_empty()
        {
            let place = into.get_mut(*at..*at + *left).unwrap_or_default();
            let mut read = ReadBuf::new(place);
            std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
            let got = read.filled().len();
            if let Some(digest) = digest {
                digest.update(read.filled());
            }
            *at += got;
            *left -= got;
            return Poll::Ready(Ok(got));
        }
        let most = match tight {
            _ if *expect_bulk && buffer.waiting().len() < BULK_HEADER_READ => BULK_HEADER_READ,
            true => SHOWN + BULK_HEADER_READ,
            false => RECEIVE_BUFFER,
        };
        buffer.poll_read(&mut self.stream, cx, most)
    }

    /// Handles complete PDUs in `buf` from `start` on, advancing that.
    fn handle(&mut self, buf: &[u8]) -> Result<(), End> {
        while self.closing.is_none() {
            if self.receive.bulk.is_some() {
                if !self.feed_bulk(buf)? {
                    return Ok(());
                }
                continue;
            }
            let bytes = &buf[self.receive.start..];
            let Some(bhs) = Bhs::from_prefix(bytes) else { return Ok(()) };
            let (header_digest, data_digest) = (self.params.header_digest, self.params.data_digest);
            let frame = Frame::of(&bhs, header_digest, data_digest, self.params.max_recv as usize)
                .map_err(|_| End::Protocol("data segment longer than MaxRecvDataSegmentLength"))?;
            if bytes.len() < frame.data_start {
                return Ok(());
            }
            if header_digest
                && digest_of(&bytes[..frame.header_end]) != bytes[frame.header_end..frame.data_start]
            {
                return Err(End::Protocol("header digest"));
            }
            let ahs = &bytes[BHS_BYTES..frame.header_end];
            let carries = matches!(bhs.opcode(), opcode::SCSI_COMMAND | opcode::DATA_OUT);
            if bytes.len() < frame.end {
                if carries && frame.data_len >= BULK_THRESHOLD {
                    self.receive.start += frame.data_start;
                    self.begin_bulk(&bhs, ahs, &frame)?;
                    continue;
                }
                if !carries && frame.data_len > MAX_SMALL_DATA {
                    return Err(End::Protocol("data segment too long for its PDU"));
                }
                return Ok(());
            }
            let data = &bytes[frame.data_start..frame.data_start + frame.data_len];
            let intact = !data_digest || frame.data_len == 0 || {
                let covered = frame.data_start + padded(frame.data_len);
                digest_of(&bytes[frame.data_start..covered]) == bytes[covered..covered + DIGEST_BYTES]
            };
            self.receive.start += frame.end;
            self.receive.expect_bulk = false;
            if carries {
                let placement = self.place(&bhs, ahs, frame.data_len)?;
                if let Placement::At(offset) = placement
                    && let Some(task) = self.tasks.get_mut(&bhs.itt())
                    && let Some(place) =
                        task.data.as_mut().and_then(|d| d.get_mut(offset..offset + data.len()))
                {
                    place.copy_from_slice(data);
                }
                self.placed(&bhs, placement, intact)?;
            } else if intact {
                self.on_request(&bhs, data)?;
            } else {
                return Err(End::Protocol("data digest"));
            }
        }
        Ok(())
    }

    fn begin_bulk(&mut self, bhs: &Bhs, ahs: &[u8], frame: &Frame) -> Result<(), End> {
        let (into, at) = match self.place(bhs, ahs, frame.data_len)? {
            Placement::At(offset) => {
                (self.tasks.get_mut(&bhs.itt()).and_then(|task| task.data.take()), offset)
            }
            Placement::Nowhere => (None, 0),
        };
        let digest = self.params.data_digest.then(Digest::new);
        let trailer =
            padded(frame.data_len) - frame.data_len + if digest.is_some() { DIGEST_BYTES } else { 0 };
        self.receive.bulk = Some(Bulk { bhs: *bhs, into, at, left: frame.data_len, digest, trailer });
        Ok(())
    }

    /// Moves buffered bytes into the bulk PDU; `false` when more have to be read first.
    fn feed_bulk(&mut self, buf: &[u8]) -> Flow {
        let Receive { start, bulk, .. } = &mut self.receive;
        let Some(current) = bulk else { return Ok(true) };
        let take = current.left.min(buf.len() - *start);
        let bytes = &buf[*start..*start + take];
        if let Some(place) =
            current.into.as_mut().and_then(|into| into.get_mut(current.at..current.at + take))
        {
            place.copy_from_slice(bytes);
        }
        if let Some(digest) = &mut current.digest {
            digest.update(bytes);
        }
        current.at += take;
        current.left -= take;
        *start += take;
        if current.left > 0 || buf.len() - *start < current.trailer {
            return Ok(false);
        }
        let trailer = &buf[*start..*start + current.trailer];
        *start += current.trailer;
        let Some(Bulk { bhs, into, digest, .. }) = bulk.take() else { return Ok(true) };
        let intact = digest.is_none_or(|mut digest| {
            let (pad, wire) = trailer.split_at(trailer.len() - DIGEST_BYTES);
            digest.update(pad);
            digest.wire() == wire
        });
        let mut placement = Placement::Nowhere;
        if let Some(into) = into
            && let Some(task) = self.tasks.get_mut(&bhs.itt())
            && task.data.is_none()
            && !task.started
        {
            task.data = Some(into);
            placement = Placement::At(0);
        }
        self.placed(&bhs, placement, intact)?;
        Ok(true)
    }

    /// Tells the next reads what is likely to come.
    pub(super) fn expect_bulk(&mut self, expect: bool) {
        self.receive.expect_bulk = expect;
    }
}

/// What the additional header segments say: the rest of the CDB, and the read length of a bidirectional command.
pub(super) fn extensions(ahs: &[u8]) -> (&[u8], Option<u32>) {
    let (mut cdb, mut read) = (&[][..], None);
    for segment in parse_ahs(ahs) {
        match segment {
            Ahs::ExtendedCdb(rest) => cdb = rest,
            Ahs::BidirectionalReadLength(length) => read = Some(length),
            Ahs::Other(_) => {}
        }
    }
    (cdb, read)
}
