//! What a connection has received and not handled yet.
//!
//! ```text
//!   poll_read ─► a buffer of RECEIVE_BUFFER, lent by the thread ─► waiting() ─► consume()
//!   rest()    ─► nothing is left: no buffer; a part of a request is left: a buffer of just that size
//! ```
//! Invariant: between two polls of its task a connection holds what it has received, and no byte more. Thousands of connections that
//! are idle, or that have sent half of a request, hold next to nothing.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::TcpStream;

/// Most bytes of one read, and of one request that is not received to a place of its own: some 30 requests with 8 KiB of data per system
/// call.
pub const RECEIVE_BUFFER: usize = 256 << 10;
/// Buffers that a thread keeps. One is in use at a time, unless a service handles connections inside of others.
const SPARE_MAX: usize = 2;
/// Room that there is for a read however little was asked for, so that what waits for more of itself gets more.
const LEAST: usize = 4096;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Received bytes: `buf[start..end]`.
#[derive(Debug, Default)]
pub struct ReceiveBuffer {
    /// Lent, and of [`RECEIVE_BUFFER`] bytes; or its own, and then `start` is 0 and `end` is its length.
    buf: Vec<u8>,
    start: usize,
    end: usize,
}

impl ReceiveBuffer {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { buf: Vec::new(), start: 0, end: 0 }
    }

    /// What is there.
    #[must_use]
    pub fn waiting(&self) -> &[u8] {
        self.buf.get(self.start..self.end).unwrap_or_default()
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The first `bytes` have been handled.
    pub fn consume(&mut self, bytes: usize) {
        self.start = self.start.saturating_add(bytes).min(self.end);
    }

    /// Reads once, so that about `most` bytes are there at most. 0 means that the peer has closed.
    ///
    /// # Errors
    /// Those of the socket, and [`io::ErrorKind::InvalidData`] when the buffer is full of what nobody handles.
    pub fn poll_read(
        &mut self,
        stream: &mut TcpStream,
        cx: &mut Context<'_>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        if !self.is_empty() {
            // What is left moves into a borrowed buffer only where more follows.
            ready!(stream.poll_read_ready(cx))?;
        }
        self.borrow();
        let room = most.max(self.end + LEAST).min(self.buf.len());
        let place = self.buf.get_mut(self.end..room).unwrap_or_default();
        if place.is_empty() {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        let mut read = ReadBuf::new(place);
        ready!(Pin::new(stream).poll_read(cx, &mut read))?;
        let got = read.filled().len();
        self.end += got;
        Poll::Ready(Ok(got))
    }

    /// Borrows a buffer if it has none, and moves what is there to the front.
    fn borrow(&mut self) {
        if self.buf.len() == RECEIVE_BUFFER {
            if self.start > 0 {
                self.buf.copy_within(self.start..self.end, 0);
            }
        } else {
            let spare = SPARE.with_borrow_mut(Vec::pop);
            // Zeroed by the allocator: pages that were never read into cost no memory.
            let mut buf = spare.unwrap_or_else(|| vec![0; RECEIVE_BUFFER]);
            let waiting = self.waiting();
            if let Some(place) = buf.get_mut(..waiting.len()) {
                place.copy_from_slice(waiting);
            }
            self.buf = buf;
        }
        (self.start, self.end) = (0, self.end - self.start);
    }

    /// At the end of a poll: gives the buffer back, and keeps what is left in one of its own. Returns how many bytes that holds.
    pub fn rest(&mut self) -> usize {
        if self.buf.len() == RECEIVE_BUFFER || self.start > 0 {
            let left = self.waiting().to_vec();
            (self.start, self.end) = (0, left.len());
            let buf = std::mem::replace(&mut self.buf, left);
            SPARE.with_borrow_mut(|spare| {
                if buf.len() == RECEIVE_BUFFER && spare.len() < SPARE_MAX {
                    spare.push(buf);
                }
            });
        }
        self.buf.len()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    async fn read(buffer: &mut ReceiveBuffer, stream: &mut TcpStream, most: usize) -> usize {
        poll_fn(|cx| buffer.poll_read(stream, cx, most)).await.unwrap()
    }

    #[tokio::test]
    async fn half_a_request_holds_what_has_come_of_it() {
        let (mut client, mut server) = pair().await;
        let mut buffer = ReceiveBuffer::new();
        assert_eq!((buffer.rest(), buffer.buf.capacity()), (0, 0));
        client.write_all(b"a request, half of a").await.unwrap();
        assert_eq!(read(&mut buffer, &mut server, RECEIVE_BUFFER).await, 20);
        buffer.consume(11);
        assert_eq!(buffer.rest(), 9);
        assert_eq!((buffer.waiting(), buffer.buf.capacity()), (&b"half of a"[..], 9));
        // A poll that finds nothing to read borrows nothing.
        let nothing = poll_fn(|cx| Poll::Ready(buffer.poll_read(&mut server, cx, RECEIVE_BUFFER))).await;
        assert!(nothing.is_pending() && buffer.buf.capacity() <= RECEIVE_BUFFER);
        assert_eq!((buffer.rest(), buffer.buf.capacity()), (9, 9));
        client.write_all(b"nother one").await.unwrap();
        assert_eq!(read(&mut buffer, &mut server, RECEIVE_BUFFER).await, 10);
        assert_eq!(buffer.waiting(), b"half of another one");
        buffer.consume(usize::MAX);
        assert!(buffer.is_empty());
        assert_eq!((buffer.rest(), buffer.buf.capacity()), (0, 0));
        drop(client);
        assert_eq!(read(&mut buffer, &mut server, 0).await, 0, "the peer has closed");
        assert_eq!((buffer.rest(), buffer.buf.capacity()), (0, 0));
    }

    #[tokio::test]
    async fn no_more_is_read_than_was_asked_for_and_what_waits_gets_more() {
        let (mut client, mut server) = pair().await;
        let sent: Vec<u8> = (0..3 * RECEIVE_BUFFER).map(|at| (at % 251) as u8).collect();
        let all = sent.clone();
        let writer = tokio::spawn(async move {
            client.write_all(&all).await.unwrap();
            client
        });
        let mut buffer = ReceiveBuffer::new();
        while buffer.waiting().len() < 36 << 10 {
            assert!(read(&mut buffer, &mut server, 36 << 10).await > 0);
        }
        assert_eq!(buffer.waiting().len(), 36 << 10);
        assert_eq!(buffer.rest(), 36 << 10);
        let got = read(&mut buffer, &mut server, 1).await;
        assert!(got > 0 && got <= LEAST, "{got}");
        while buffer.waiting().len() < RECEIVE_BUFFER {
            read(&mut buffer, &mut server, RECEIVE_BUFFER).await;
        }
        let full = poll_fn(|cx| buffer.poll_read(&mut server, cx, usize::MAX)).await;
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::InvalidData);
        let mut at = 0;
        while at < sent.len() {
            let take = buffer.waiting().len().min(100_000);
            assert_eq!(buffer.waiting().get(..take), sent.get(at..at + take));
            buffer.consume(take);
            at += take;
            if at % 3 == 0 {
                buffer.rest();
            }
            if at < sent.len() && buffer.waiting().len() < 50_000 {
                read(&mut buffer, &mut server, RECEIVE_BUFFER).await;
            }
        }
        drop(writer.await.unwrap());
    }
}
