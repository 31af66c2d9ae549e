//! The socket of a client that owns its thread.

use std::io::{self, ErrorKind, Read as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::time::Duration;

use io_engine::readiness::{self, Awaited};
use socket2::SockRef;

use crate::frames::Frames;

/// How long a read blocks when nothing else is to be done.
pub(crate) const TURN: Duration = Duration::from_millis(100);

/// A connection.
pub(crate) struct Wire {
    stream: TcpStream,
    pub(crate) frames: Frames,
    /// Bytes that the target's side has taken so far.
    pub(crate) taken: u64,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, frames: Frames::default(), taken: 0 })
    }

    /// How long [`Wire::fill`] blocks.
    pub(crate) fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(patience))
    }

    /// Sends what the system takes at once.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.frames.waiting() > 0 {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            match SockRef::from(&self.stream).send_with_flags(self.frames.unsent(), flags) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.frames.sent(count);
                    self.taken += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What [`Wire::wait`] waits for.
    pub(crate) fn awaited(&self) -> Awaited<'_> {
        Awaited { file: self.stream.as_fd(), write: self.frames.waiting() > 0 }
    }

    /// Waits for bytes for `timeout` at the most, sending meanwhile; whether any came.
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let sending = self.frames.waiting() > 0;
        // A read that may block costs one system call; it does when there is nothing else to wait for.
        if (sending || timeout < TURN) && !readiness::wait(&self.stream, sending, timeout)? {
            self.flush()?;
            return Ok(false);
        }
        self.fill()
    }

    /// Reads once.
    pub(crate) fn fill(&mut self) -> io::Result<bool> {
        match self.stream.read(self.frames.room()) {
            Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the target closed it")),
            Ok(count) => {
                self.frames.filled(count);
                Ok(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
