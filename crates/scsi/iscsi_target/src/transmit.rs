//! The way out: headers in one reused buffer, data as handles, all of it in one `writev`.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use aligned_buffer::SharedBuf;
use iscsi_protocol::Bhs;
use iscsi_protocol::digest::{Digest, digest_of};
use iscsi_protocol::pdu::padded;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

/// Pieces per system call: header and data of 32 answers.
const MAX_PIECES: usize = 64;
/// Sent header bytes after which the buffer is moved down, when it never runs empty.
const COMPACT_AT: usize = 64 << 10;

enum Piece {
    /// So many of the next bytes of `heads`.
    Head(usize),
    /// The rest of this buffer.
    Data(SharedBuf),
}

/// Answers that wait for the socket.
///
/// Invariant: the `Head` pieces cover `heads[sent..]` exactly, in order.
pub(crate) struct Transmit {
    heads: Vec<u8>,
    sent: usize,
    pieces: VecDeque<Piece>,
    bytes: usize,
    header_digest: bool,
    data_digest: bool,
}

impl Transmit {
    pub(crate) fn new(header_digest: bool, data_digest: bool) -> Self {
        let (heads, pieces) = (Vec::with_capacity(4096), VecDeque::with_capacity(MAX_PIECES));
        Self { heads, sent: 0, pieces, bytes: 0, header_digest, data_digest }
    }

    /// Bytes that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.bytes
    }

    fn head(&mut self, bytes: &[u8]) {
        self.heads.extend_from_slice(bytes);
        self.bytes += bytes.len();
        match self.pieces.back_mut() {
            Some(Piece::Head(len)) => *len += bytes.len(),
            _ => self.pieces.push_back(Piece::Head(bytes.len())),
        }
    }

    fn start(&mut self, mut bhs: Bhs, data_len: usize) {
        bhs.set_data_len(data_len);
        self.head(&bhs.0);
        if self.header_digest {
            self.head(&digest_of(&bhs.0));
        }
    }

    fn finish(&mut self, data: &[u8]) {
        let pad = padded(data.len()) - data.len();
        self.head(&[0; 3][..pad]);
        if self.data_digest && !data.is_empty() {
            let mut digest = Digest::new();
            digest.update(data);
            digest.update(&[0; 3][..pad]);
            self.head(&digest.wire());
        }
    }

    /// A PDU whose data, if any, is small and copied.
    pub(crate) fn pdu(&mut self, bhs: Bhs, data: &[u8]) {
        self.start(bhs, data.len());
        self.head(data);
        self.finish(data);
    }

    /// A PDU whose data stays where it is.
    pub(crate) fn pdu_shared(&mut self, bhs: Bhs, data: SharedBuf) {
        self.start(bhs, data.len());
        self.bytes += data.len();
        self.pieces.push_back(Piece::Data(data.clone()));
        self.finish(&data);
    }

    /// Sends as much as the socket takes; `Ready(true)` when something went out.
    pub(crate) fn poll_send(&mut self, stream: &mut TcpStream, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut progress = false;
        while !self.pieces.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_PIECES];
            let (mut count, mut head) = (0, self.sent);
            for (piece, slice) in self.pieces.iter().zip(&mut slices) {
                *slice = match piece {
                    Piece::Head(len) => {
                        head += len;
                        IoSlice::new(&self.heads[head - len..head])
                    }
                    Piece::Data(data) => IoSlice::new(data),
                };
                count += 1;
            }
            match Pin::new(&mut *stream).poll_write_vectored(cx, &slices[..count]) {
                Poll::Pending => return Ok(progress),
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(written)) => {
                    progress = true;
                    self.advance(written);
                }
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        Ok(progress)
    }

    fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(piece) = self.pieces.front_mut() {
            let len = match piece {
                Piece::Head(len) => *len,
                Piece::Data(data) => data.len(),
            };
            let taken = written.min(len);
            written -= taken;
            if let Piece::Head(_) = piece {
                self.sent += taken;
            }
            if taken == len {
                self.pieces.pop_front();
                continue;
            }
            match piece {
                Piece::Head(rest) => *rest -= taken,
                Piece::Data(data) => *data = data.slice(taken..len),
            }
            break;
        }
        if self.pieces.is_empty() {
            self.heads.clear();
            self.sent = 0;
        } else if self.sent > COMPACT_AT {
            self.heads.drain(..self.sent);
            self.sent = 0;
        }
    }
}
