//! The way out: headers in one reused buffer, data as handles, all of it in one `writev`.

use std::io;
use std::task::Context;

use aligned_buffer::SharedBuf;
use iscsi_protocol::Bhs;
use iscsi_protocol::digest::{Digest, digest_of};
use iscsi_protocol::pdu::padded;
use tcp_service::{Answers, SendQueue};
use tokio::net::TcpStream;

/// PDUs that wait for the socket.
pub(crate) struct Transmit {
    queue: SendQueue,
    header_digest: bool,
    data_digest: bool,
}

impl Transmit {
    pub(crate) fn new(header_digest: bool, data_digest: bool) -> Self {
        Self { queue: SendQueue::default(), header_digest, data_digest }
    }

    /// Asks this before anything leaves.
    pub(crate) fn ask(&mut self, answers: Answers) {
        self.queue.ask(answers);
    }

    /// Bytes that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    fn head(&mut self, bytes: &[u8]) {
        self.queue.small(|buffer| buffer.extend_from_slice(bytes));
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
        self.queue.large(data.clone());
        self.finish(&data);
    }

    /// Sends as much as the socket takes; whether something went out.
    pub(crate) fn poll_send(&mut self, stream: &mut TcpStream, cx: &mut Context<'_>) -> io::Result<bool> {
        self.queue.poll_send(stream, cx)
    }
}
