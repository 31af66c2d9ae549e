//! The socket: PDUs in and out, with their digests.

use std::io::{self, ErrorKind, Read as _};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::time::Duration;

use io_engine::readiness::{self, Awaited};
use iscsi_protocol::digest::digest_of;
use iscsi_protocol::pdu::padded;
use iscsi_protocol::{BHS_BYTES, Bhs, ConnectionParams, Frame};
use socket2::SockRef;

use crate::error::ClientError;

/// Longest data segment that we declare to take.
pub(crate) const MAX_RECV: u32 = 256 << 10;
/// Bytes of the inbox: room for one PDU of [`MAX_RECV`] with header segments and digests, and as much again for what
/// comes behind it in the same read.
const INBOX: usize = 2 * (MAX_RECV as usize + 4096);
/// More than this waiting to be sent, and no further data is put behind it.
pub(crate) const OUTBOX_FULL: usize = 1 << 20;
/// A target that makes us answer and takes nothing ends here.
const OUTBOX_BOUND: usize = 64 << 20;
/// When there is less room than this behind the bytes that are there, these are moved to the front before the next read.
const LEAST_READ: usize = 64 << 10;
/// How long a read blocks when nothing else is to be done.
pub(crate) const TURN: Duration = Duration::from_millis(100);

/// A connection.
pub(crate) struct Wire {
    stream: TcpStream,
    pub(crate) params: ConnectionParams,
    inbox: Box<[u8]>,
    start: usize,
    end: usize,
    out: Vec<u8>,
    sent: usize,
    /// Bytes that the target's side has taken so far.
    pub(crate) taken: u64,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let inbox = vec![0; INBOX].into_boxed_slice();
        let params = ConnectionParams::default();
        Ok(Self { stream, params, inbox, start: 0, end: 0, out: Vec::new(), sent: 0, taken: 0 })
    }

    /// How long [`Wire::fill`] blocks.
    pub(crate) fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(patience))
    }

    /// Bytes that wait to be sent.
    pub(crate) fn waiting(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Puts a PDU behind what waits to be sent.
    pub(crate) fn push(&mut self, mut bhs: Bhs, data: &[u8]) -> Result<(), ClientError> {
        if self.waiting() > OUTBOX_BOUND {
            return Err(ClientError::Protocol("it asks and asks and takes no answer"));
        }
        bhs.set_data_len(data.len());
        self.out.extend_from_slice(&bhs.0);
        if self.params.header_digest {
            self.out.extend_from_slice(&digest_of(&bhs.0));
        }
        let begin = self.out.len();
        self.out.extend_from_slice(data);
        self.out.resize(begin + padded(data.len()), 0);
        if self.params.data_digest && !data.is_empty() {
            let digest = digest_of(self.out.get(begin..).unwrap_or_default());
            self.out.extend_from_slice(&digest);
        }
        Ok(())
    }

    /// Sends what the system takes at once.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.out.len() {
            let rest = self.out.get(self.sent..).unwrap_or_default();
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            match SockRef::from(&self.stream).send_with_flags(rest, flags) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.sent += count;
                    self.taken += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// What [`Wire::wait`] waits for.
    pub(crate) fn awaited(&self) -> Awaited<'_> {
        Awaited { file: self.stream.as_fd(), write: self.waiting() > 0 }
    }

    /// Waits for bytes for `timeout` at the most, sending meanwhile; whether any came.
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        // A read that may block costs one system call; it does when there is nothing else to wait for.
        if (self.waiting() > 0 || timeout < TURN)
            && !readiness::wait(&self.stream, self.waiting() > 0, timeout)?
        {
            self.flush()?;
            return Ok(false);
        }
        self.fill()
    }

    /// Reads once.
    pub(crate) fn fill(&mut self) -> io::Result<bool> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.inbox.len() - self.end < LEAST_READ {
            self.inbox.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        match self.stream.read(self.inbox.get_mut(self.end..).unwrap_or_default()) {
            Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the target closed it")),
            Ok(count) => {
                self.end += count;
                Ok(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The next whole PDU of what was read: its header, and where its data is.
    pub(crate) fn next(&mut self) -> Result<Option<(Bhs, Range<usize>)>, ClientError> {
        let here = self.inbox.get(self.start..self.end).unwrap_or_default();
        let Some(bhs) = Bhs::from_prefix(here) else { return Ok(None) };
        let (with_header, with_data) = (self.params.header_digest, self.params.data_digest);
        // With a header digest, nothing in the header is believed before it is checked.
        if with_header {
            let header_end = BHS_BYTES + bhs.ahs_len();
            let Some(digest) = here.get(header_end..header_end + 4) else { return Ok(None) };
            if digest != digest_of(here.get(..header_end).unwrap_or_default()) {
                return Err(ClientError::Digest("header"));
            }
        }
        let frame = Frame::of(&bhs, with_header, with_data, self.params.max_recv as usize)?;
        let Some(whole) = here.get(..frame.end) else { return Ok(None) };
        let data_end = frame.data_start + padded(frame.data_len);
        if with_data && frame.data_len > 0 {
            let data = whole.get(frame.data_start..data_end).unwrap_or_default();
            if whole.get(data_end..) != Some(&digest_of(data)[..]) {
                return Err(ClientError::Digest("data"));
            }
        }
        let begin = self.start + frame.data_start;
        self.start += frame.end;
        Ok(Some((bhs, begin..begin + frame.data_len)))
    }

    /// Data of the PDU that [`Wire::next`] found, until the next read.
    pub(crate) fn data(&self, range: Range<usize>) -> &[u8] {
        self.inbox.get(range).unwrap_or_default()
    }
}
