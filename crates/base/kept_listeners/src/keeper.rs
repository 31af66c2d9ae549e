//! The parent's side: has the sockets, and hands them out.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::connections::Connections;
use crate::message::{MAX, Request, encode_answer};

/// The most sockets that are kept: whoever asks for more binds them by itself no better.
const MOST: usize = 4096;

/// What a parent does for its child besides keeping sockets.
pub trait Helper: Send + Sync + 'static {
    /// Does it, and answers at once: other requests of the child wait.
    ///
    /// # Errors
    /// When it cannot, or what is asked for is not known.
    fn asked(&self, text: &str) -> io::Result<String>;
}

/// Has the sockets of a child, and of those that follow it. Clones have the same.
#[derive(Clone, Default)]
pub struct Keeper(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    sockets: Vec<Socket>,
    /// The number of the child that is served.
    child: u64,
    /// How many connections of it are kept.
    connections: usize,
    helper: Option<Arc<dyn Helper>>,
}

#[derive(Debug)]
struct Socket {
    asked: SocketAddr,
    bound: SocketAddr,
    socket: TcpListener,
    /// The last child that it was handed out to; 0 for none.
    child: u64,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Keeper").field(&self.0.lock().sockets).finish()
    }
}

impl Kept {
    fn listen(&mut self, child: u64, asked: SocketAddr) -> io::Result<&TcpListener> {
        if child != self.child {
            // One that ends late must not take what its successor serves.
            return Err(ErrorKind::ConnectionAborted.into());
        }
        let found = self.sockets.iter().position(|kept| kept.child != child && kept.asked == asked);
        let at = match found {
            Some(at) => at,
            None if self.sockets.len() >= MOST => return Err(io::Error::from_raw_os_error(24)),
            None => {
                let socket = TcpListener::bind(asked)?;
                let bound = socket.local_addr()?;
                self.sockets.push(Socket { asked, bound, socket, child });
                self.sockets.len() - 1
            }
        };
        let kept = &mut self.sockets[at];
        kept.child = child;
        Ok(&kept.socket)
    }

    fn close(&mut self, child: u64, bound: SocketAddr) {
        if let Some(at) = self.sockets.iter().position(|kept| kept.child == child && kept.bound == bound) {
            // Order is what tells sockets of one asked address apart.
            self.sockets.remove(at);
        }
    }

    fn again(&mut self, child: u64) {
        self.sockets.iter_mut().filter(|kept| kept.child == child).for_each(|kept| kept.child = 0);
    }

    fn settled(&mut self, child: u64) {
        if child == self.child {
            self.sockets.retain(|kept| kept.child == child);
        }
    }
}

impl Keeper {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One that also passes on what a child asks beside.
    #[must_use]
    pub fn with_helper(helper: Arc<dyn Helper>) -> Self {
        Self(Arc::new(Mutex::new(Kept { helper: Some(helper), ..Kept::default() })))
    }

    /// The end of a socket pair for the next child, as its standard input. A thread answers it until the child ends; the child before it
    /// gets nothing any more.
    ///
    /// # Errors
    /// Those of the system.
    pub fn for_child(&self) -> io::Result<OwnedFd> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let child = {
            let mut kept = self.0.lock();
            kept.child += 1;
            kept.child
        };
        let keeper = self.clone();
        std::thread::Builder::new().name("keeper".into()).spawn(move || keeper.answer(child, &ours))?;
        Ok(theirs)
    }

    /// Addresses of the sockets that are kept.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.lock().sockets.iter().map(|kept| kept.bound).collect()
    }

    /// How many connections are kept of the child that is served.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.lock().connections
    }

    fn answer(&self, child: u64, way: &OwnedFd) {
        let mut connections = match Connections::new(way) {
            Ok(connections) => connections,
            Err(error) => {
                tracing::warn!(%error, "nothing is kept for the child");
                return;
            }
        };
        let mut bytes = vec![0; MAX];
        while let Some((length, beside)) = next(&mut connections, way, &mut bytes) {
            let done = match Request::decode(&bytes[..length]) {
                None => break,
                Some(Request::Keep) => {
                    beside.into_iter().for_each(|connection| connections.keep(connection));
                    Ok(())
                }
                Some(request) => {
                    self.note(child, connections.count());
                    self.carry_out(child, request, way)
                }
            };
            if done.is_err() {
                break;
            }
        }
        self.note(child, 0);
        connections.end(way);
    }

    fn note(&self, child: u64, connections: usize) {
        let mut kept = self.0.lock();
        if child == kept.child {
            kept.connections = connections;
        }
    }

    fn carry_out(&self, child: u64, request: Request, way: &OwnedFd) -> io::Result<()> {
        let mut kept = self.0.lock();
        let done = Ok(String::new());
        match request {
            Request::Listen(address) => match kept.listen(child, address) {
                Ok(socket) => reply(way, &done, Some(socket.as_fd())),
                Err(error) => reply(way, &Err(error), None),
            },
            Request::Close(address) => {
                kept.close(child, address);
                reply(way, &done, None)
            }
            Request::Settled => {
                kept.settled(child);
                reply(way, &done, None)
            }
            Request::Again => {
                kept.again(child);
                reply(way, &done, None)
            }
            // Not answered, and not its affair.
            Request::Keep => Ok(()),
            Request::Beside(text) => {
                let answer = match &kept.helper {
                    // One that ends late has nothing to say any more.
                    Some(helper) if child == kept.child => helper.asked(&text),
                    _ => Err(ErrorKind::Unsupported.into()),
                };
                reply(way, &answer, None)
            }
        }
    }
}

/// The next message of a child, in `bytes`, and the socket beside it. `None` when there will be none.
fn next(connections: &mut Connections, way: &OwnedFd, bytes: &mut [u8]) -> Option<(usize, Option<OwnedFd>)> {
    loop {
        connections.wait_for_child().ok()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::TRUNC;
        let came = match recvmsg(way, &mut [IoSliceMut::new(bytes)], &mut beside, flags) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return None,
            Ok(came) => came.bytes,
        };
        let mut sockets = beside.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
            _ => None,
        });
        let found = sockets.next().and_then(|mut sockets| sockets.next());
        return (1..=bytes.len()).contains(&came).then_some((came, found));
    }
}

fn reply(way: &OwnedFd, answer: &io::Result<String>, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let sockets: Vec<BorrowedFd<'_>> = socket.into_iter().collect();
    if !sockets.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(&sockets)) {
        return Err(ErrorKind::OutOfMemory.into());
    }
    let text = encode_answer(answer);
    sendmsg(way, &[IoSlice::new(text.as_bytes())], &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}
