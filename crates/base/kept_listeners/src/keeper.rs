//! The parent's side: has the sockets, and hands them out.

use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    recv, sendmsg, socketpair,
};

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

    fn answer(&self, child: u64, way: &OwnedFd) {
        let mut bytes = vec![0; MAX];
        loop {
            let length = match recv(way, &mut bytes[..], RecvFlags::empty()) {
                Ok((_, 0)) => return,
                Ok((_, length)) if length <= bytes.len() => length,
                Err(rustix::io::Errno::INTR) => continue,
                Ok(_) | Err(_) => return,
            };
            let Some(request) = Request::decode(&bytes[..length]) else { return };
            if self.carry_out(child, request, way).is_err() {
                return;
            }
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
