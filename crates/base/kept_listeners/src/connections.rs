//! Connections of a child that do not break off when it dies.
//!
//! The kernel closes the sockets of a process that is killed, and resets connections whose peers have sent what nobody has read, or send
//! something more. A peer that is just sending then fails where it would only have asked again (every Linux up to 6.12 at least gives such a
//! write up as SMB client). So the parent has each connection, too. When the child is gone it ends them as the child would have:
//!
//! ```text
//!   child:  keep(connection) ───► parent: has it, and reads nothing
//!           closes it        ───► sees the hang-up, and lets go of it
//!           dies             ───► FIN; what comes is read and thrown away until the peer has closed it, or for DRAIN
//! ```
//! Invariant: while the child lives, the parent never reads from a connection, and never ends it: the child has to say that it is over, by
//! `shutdown`, as closing its own descriptor alone ends nothing ([`crate::KeptConnection`]).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use rustix::process::{Resource, getrlimit};

/// The most connections that are kept for a child. Others end with it.
const MOST: u64 = 16 << 10;
/// They take at most this part of the descriptors that the parent may have: those of the child before may be on their way to their end, and it
/// has to be able to start the next one.
const PART: u64 = 4;
/// Peers of a child that is gone have this long to notice.
const DRAIN: Duration = Duration::from_secs(10);
/// Events that are taken at a time.
const EVENTS: usize = 64;
/// What the way to the child is called among events; connections have other numbers.
const WAY: u64 = 0;

/// The connections of one child, and the way to it.
pub(crate) struct Connections {
    epoll: OwnedFd,
    kept: BTreeMap<u64, OwnedFd>,
    last: u64,
    most: u64,
}

impl Connections {
    /// Waits for what comes over `way`, too.
    pub(crate) fn new(way: &OwnedFd) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, way, epoll::EventData::new_u64(WAY), epoll::EventFlags::IN)?;
        let most = getrlimit(Resource::Nofile).current.map_or(MOST, |allowed| MOST.min(allowed / PART));
        Ok(Self { epoll, kept: BTreeMap::new(), last: WAY, most })
    }

    pub(crate) fn count(&self) -> usize {
        self.kept.len()
    }

    /// Has one more, unless there are too many.
    pub(crate) fn keep(&mut self, connection: OwnedFd) {
        if self.kept.len() as u64 >= self.most {
            return;
        }
        self.last += 1;
        // A hang-up and an error are always told of.
        let wanted = epoll::EventFlags::RDHUP;
        if epoll::add(&self.epoll, &connection, epoll::EventData::new_u64(self.last), wanted).is_ok() {
            self.kept.insert(self.last, connection);
        }
    }

    fn let_go(&mut self, number: u64) {
        if let Some(connection) = self.kept.remove(&number) {
            // By itself it would go on with the child's descriptor.
            let _ = epoll::delete(&self.epoll, &connection);
        }
    }

    fn wait(&self, timeout: Option<&Timespec>) -> io::Result<Vec<u64>> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout) {
                Ok(_) => return Ok(events.iter().map(|event| event.data.u64()).collect()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until something comes from the child, or it ends; lets go of connections that are over.
    pub(crate) fn wait_for_child(&mut self) -> io::Result<()> {
        loop {
            let found = self.wait(None)?;
            for number in found.iter().filter(|number| **number != WAY) {
                self.let_go(*number);
            }
            if found.contains(&WAY) {
                return Ok(());
            }
        }
    }

    /// The child is gone: ends all connections.
    pub(crate) fn end(mut self, way: &OwnedFd) {
        let _ = epoll::delete(&self.epoll, way);
        for (number, connection) in &self.kept {
            // An error means that it is over already.
            let _ = shutdown(connection, Shutdown::Write);
            let _ = epoll::modify(
                &self.epoll,
                connection,
                epoll::EventData::new_u64(*number),
                epoll::EventFlags::IN,
            );
        }
        #[expect(clippy::disallowed_methods, reason = "a real network, on a thread that may wait")]
        let began = Instant::now();
        let mut bytes = vec![0; 64 << 10];
        while !self.kept.is_empty() {
            let left = DRAIN.saturating_sub(began.elapsed());
            let Ok(timeout) = Timespec::try_from(left) else { return };
            let Ok(found) = self.wait(Some(&timeout)) else { return };
            if found.is_empty() || left.is_zero() {
                return;
            }
            for number in found {
                let Some(connection) = self.kept.get(&number) else { continue };
                match recv(connection.as_fd(), &mut bytes[..], RecvFlags::DONTWAIT) {
                    Ok((_, 1..)) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                    Ok((_, 0)) | Err(_) => self.let_go(number),
                }
            }
        }
    }
}
