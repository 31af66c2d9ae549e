//! The way out: what is small in one reused buffer, what is large as it is, as much as possible in one `writev`.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use aligned_buffer::SharedBuf;
use tokio::io::AsyncWrite;

use crate::answers::{Answers, Gate};

/// Pieces per system call: header and data of 32 answers.
const MAX_PIECES: usize = 64;
/// Sent bytes after which the buffer is moved down, when it never runs empty.
const COMPACT_AT: usize = 64 << 10;
/// Bytes that an empty queue keeps: the headers of a deep batch. An answer of megabytes that was small pieces does not stay.
const KEEP: usize = 8 << 10;

#[derive(Debug)]
enum Piece {
    /// This many of the next bytes of `small`.
    Small(usize),
    /// The rest of this buffer.
    Large(SharedBuf),
}

/// Bytes that wait for the socket, in order.
///
/// Invariant: the `Small` pieces cover `small[sent..]` exactly, in order.
#[derive(Debug, Default)]
pub struct SendQueue {
    small: Vec<u8>,
    sent: usize,
    pieces: VecDeque<Piece>,
    bytes: usize,
    gate: Gate,
}

impl SendQueue {
    /// Asks this from now on before anything leaves. For a connection that begins.
    pub fn ask(&mut self, answers: Answers) {
        self.gate = Gate::new(answers);
    }

    /// Bytes that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.bytes
    }

    /// Appends what `write` writes at the end of a buffer.
    pub fn small<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let before = self.small.len();
        let result = write(&mut self.small);
        let len = self.small.len() - before;
        self.bytes += len;
        match self.pieces.back_mut() {
            Some(Piece::Small(last)) => *last += len,
            _ if len > 0 => self.pieces.push_back(Piece::Small(len)),
            _ => {}
        }
        result
    }

    /// Appends a buffer, which is sent from where it is.
    pub fn large(&mut self, buffer: SharedBuf) {
        self.bytes += buffer.len();
        self.pieces.push_back(Piece::Large(buffer));
    }

    /// Sends as much as the socket takes, while answers may leave; whether something went out.
    ///
    /// # Errors
    /// Those of the socket, and [`io::ErrorKind::ConnectionAborted`] when what waits must not leave any more.
    pub fn poll_send(
        &mut self,
        stream: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> io::Result<bool> {
        let mut progress = false;
        while !self.pieces.is_empty() {
            if !self.gate.poll_open(cx)? {
                return Ok(progress);
            }
            let mut slices = [IoSlice::new(&[]); MAX_PIECES];
            let (mut count, mut small) = (0, self.sent);
            for (piece, slice) in self.pieces.iter().zip(&mut slices) {
                *slice = match piece {
                    Piece::Small(len) => {
                        small += len;
                        IoSlice::new(&self.small[small - len..small])
                    }
                    Piece::Large(data) => IoSlice::new(data),
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
                Piece::Small(len) => *len,
                Piece::Large(data) => data.len(),
            };
            let taken = written.min(len);
            written -= taken;
            if let Piece::Small(_) = piece {
                self.sent += taken;
            }
            if taken == len {
                self.pieces.pop_front();
                continue;
            }
            match piece {
                Piece::Small(rest) => *rest -= taken,
                Piece::Large(data) => *data = data.slice(taken..len),
            }
            break;
        }
        if self.pieces.is_empty() {
            self.small.clear();
            self.small.shrink_to(KEEP);
            self.sent = 0;
        } else if self.sent > COMPACT_AT {
            self.small.drain(..self.sent);
            self.sent = 0;
        }
    }
}
