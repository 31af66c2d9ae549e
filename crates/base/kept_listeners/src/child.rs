//! The child's side: sockets come from the keeper where there is one.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use parking_lot::Mutex;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, recvmsg, send, sendmsg, shutdown,
};
use rustix::process::{Pid, getppid};

use crate::message::{MAX, Request, decode_answer};
use crate::{PATIENCE, VARIABLE};

/// The way to the keeper: one request at a time. None after a failure: an answer that comes late would be taken for that of the next
/// request.
pub(crate) struct Way {
    socket: Mutex<Option<OwnedFd>>,
    /// The process that made the pair of sockets, whether it is still there or not.
    keeper: Option<Pid>,
}

/// The keeper of this process, if it has one.
fn way() -> Option<&'static Way> {
    static WAY: OnceLock<Option<Way>> = OnceLock::new();
    let found = || {
        std::env::var_os(VARIABLE)?;
        let socket = io::stdin().as_fd().try_clone_to_owned();
        match socket.and_then(Way::new) {
            Ok(way) => Some(way),
            Err(error) => {
                tracing::warn!(%error, "the keeper of listening sockets cannot be asked: this process binds its own");
                None
            }
        }
    };
    WAY.get_or_init(found).as_ref()
}

/// Whether this process gets its sockets from a keeper.
#[must_use]
pub fn is_kept() -> bool {
    way().is_some()
}

/// Whether the keeper of this process has died: nobody starts another process when this one dies, or tells it to stop. It may have
/// died before this process has come so far as to ask.
#[must_use]
pub fn is_orphaned() -> bool {
    way().and_then(|way| way.keeper).is_some_and(|keeper| getppid() != Some(keeper))
}

/// A socket that listens on an address, from the keeper if there is one. Waits for [`crate::PATIENCE`] at most.
///
/// # Errors
/// Those of binding it.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let Some(way) = way() else { return TcpListener::bind(address) };
    match way.listen(address) {
        // The keeper is gone, or does not answer: what it keeps of this address stands in the way, and that is said.
        Err(error) if is_of_the_way(error.kind()) => {
            tracing::warn!(%address, %error, "the keeper of listening sockets does not answer: this process binds its own");
            TcpListener::bind(address)
        }
        other => other,
    }
}

/// A socket of [`listen`] that had this address is closed for good.
pub fn close(address: SocketAddr) {
    tell(Request::Close(address));
}

/// All sockets that are to be served have been asked for: what an earlier process had besides is closed.
pub fn settled() {
    tell(Request::Settled);
}

/// Whether a failure says nothing of the address.
fn is_of_the_way(kind: ErrorKind) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionReset, InvalidData, NotConnected, TimedOut, WouldBlock};
    matches!(kind, BrokenPipe | ConnectionReset | InvalidData | NotConnected | TimedOut | WouldBlock)
}

/// This process serves none of its sockets any more, and will ask for them again, as a later process would.
pub fn start_over() {
    tell(Request::Again);
}

/// Asks the parent for something that is not a socket; what it answers. Waits for [`crate::PATIENCE`] at most.
///
/// # Errors
/// When there is no parent, it does not answer, it does nothing of this kind, or could not.
pub fn ask_beside(text: &str) -> io::Result<String> {
    let way = way().ok_or(ErrorKind::NotConnected)?;
    way.ask(&Request::Beside(text.to_owned())).map(|(answer, _)| answer)
}

/// A connection that does not break off when this process dies, where there is a keeper ([`crate`]). It ends when this is dropped.
#[derive(Debug)]
pub struct KeptConnection<T: AsFd> {
    connection: T,
    kept: bool,
}

impl<T: AsFd> KeptConnection<T> {
    /// One that is not kept yet.
    pub const fn new(connection: T) -> Self {
        Self { connection, kept: false }
    }

    /// Whether it does not break off.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        self.kept
    }

    /// Gives it to the keeper, too, if there is one that has time. Never waits.
    pub fn keep(&mut self) {
        self.kept = self.kept || way().is_some_and(|way| way.keep(&self.connection).is_ok());
    }
}

impl<T: AsFd> Deref for KeptConnection<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.connection
    }
}

impl<T: AsFd> DerefMut for KeptConnection<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.connection
    }
}

impl<T: AsFd> Drop for KeptConnection<T> {
    fn drop(&mut self) {
        if self.kept {
            // The keeper's descriptor would leave it open. An error means that it is over already.
            let _ = shutdown(&self.connection, Shutdown::Both);
        }
    }
}

fn tell(request: Request) {
    if let Some(way) = way()
        && let Err(error) = way.ask(&request)
    {
        tracing::warn!(?request, %error, "the keeper of listening sockets was not told");
    }
}

impl Way {
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
        let keeper = socket_peercred(&socket).ok().map(|peer| peer.pid);
        Ok(Self { socket: Mutex::new(Some(socket)), keeper })
    }

    pub(crate) fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        let (_, socket) = self.ask(&Request::Listen(address))?;
        let socket = socket.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "no socket came"))?;
        Ok(TcpListener::from(socket))
    }

    /// Gives a connection to the keeper, too.
    pub(crate) fn keep(&self, connection: &impl AsFd) -> io::Result<()> {
        let way = self.socket.try_lock().ok_or(ErrorKind::WouldBlock)?;
        let socket = way.as_ref().ok_or(ErrorKind::BrokenPipe)?;
        let sockets = [connection.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !beside.push(SendAncillaryMessage::ScmRights(&sockets)) {
            return Err(ErrorKind::OutOfMemory.into());
        }
        let text = Request::Keep.encode();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(socket, &[IoSlice::new(text.as_bytes())], &mut beside, flags)?;
        Ok(())
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask(&self, request: &Request) -> io::Result<(String, Option<OwnedFd>)> {
        let text = request.encode();
        if text.len() > MAX {
            return Err(ErrorKind::InvalidInput.into());
        }
        let mut way = self.socket.lock();
        let socket = way.as_ref().ok_or(ErrorKind::BrokenPipe)?;
        match exchange(socket, &text) {
            Ok((answer, found)) => answer.map(|text| (text, found)),
            Err(error) => {
                *way = None;
                Err(error)
            }
        }
    }
}

/// One request and its answer, with the socket that comes beside it.
fn exchange(socket: &OwnedFd, request: &str) -> io::Result<(io::Result<String>, Option<OwnedFd>)> {
    send(socket, request.as_bytes(), SendFlags::NOSIGNAL)?;
    let mut bytes = vec![0; MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let came = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut beside, flags)?;
    let mut sockets = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    });
    let found = sockets.next().and_then(|mut sockets| sockets.next());
    if came.bytes == 0 || came.flags.contains(ReturnFlags::TRUNC) {
        return Err(ErrorKind::BrokenPipe.into());
    }
    Ok((decode_answer(&bytes[..came.bytes])?, found))
}
