//! Ends connections that a machine before had to an address that is here now (`ending` says how).
//!
//! ```text
//!   Farewell::begin ──► a placeholder for each connection, which the kernel takes for the connection itself: it resets nothing
//!                  └──► a raw socket for each machine of clients ◄── a copy of what they send ──► Ending ──► answers
//! ```
//! The kernel resets what it does not know, at once, and before anybody else has seen it. A socket in repair mode is in its table with the
//! addresses of the connection, and numbers that fit nothing: whatever arrives is answered with an acknowledgement that the peer ignores.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use rustix::net::{RecvFlags, recv};
use rustix::process::{Resource, getrlimit};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use crate::AddressError;
use crate::ending::{Ending, Segment};
use crate::frames::stray_segment;

const RAW: &str = "CAP_NET_RAW";
/// When a peer that has not said where it is is asked again, which it is at longer and longer intervals: what it answers may still go to a
/// machine that stands still, or the network has not been told yet.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// The longest of these intervals.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The longest headers: IPv4's and TCP's.
const HEADERS: usize = 120;

/// The part of the descriptors that the process may have which these take, two for each connection: it has other clients.
const PART: u64 = 4;

/// Connections that are being ended. Dropping it ends that.
#[derive(Debug)]
pub struct Farewell {
    /// One for each machine of clients.
    work: JoinSet<()>,
}

/// What the kernel takes for a connection that it does not have. Nothing is sent when it is dropped.
fn placeholder(local: SocketAddr, remote: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(local), Type::STREAM, Some(Protocol::TCP))?;
    setsockopt(&socket, sockopt::TcpRepair, &1)?;
    socket.bind(&SockAddr::from(local))?;
    socket.connect(&SockAddr::from(remote))?;
    Ok(socket)
}

impl Farewell {
    /// Begins to end connections, given as our end and the peer's, and goes on until all are over, or for `time`. To be called when the address
    /// is here, and better before the network knows it, on a runtime of tokio. What no placeholder can be had for is reset by the
    /// kernel. Connections that are here do not mind.
    ///
    /// # Errors
    /// When the process may not have raw sockets.
    pub fn begin(connections: &[(SocketAddr, SocketAddr)], time: Duration) -> Result<Self, AddressError> {
        let mut by_machine: BTreeMap<(IpAddr, IpAddr), Vec<Ending>> = BTreeMap::new();
        let mut placeholders: BTreeMap<(IpAddr, IpAddr), Vec<Socket>> = BTreeMap::new();
        let most =
            getrlimit(Resource::Nofile).current.map_or(usize::MAX, |allowed| (allowed / (2 * PART)) as usize);
        for (local, remote) in connections.iter().take(most) {
            let local = SocketAddr::new(local.ip().to_canonical(), local.port());
            let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
            let machine = (local.ip(), remote.ip());
            match placeholder(local, remote) {
                Ok(socket) => placeholders.entry(machine).or_default().push(socket),
                // One that this machine has itself is no orphan.
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => continue,
                Err(error) => {
                    tracing::debug!(%local, %remote, %error, "a connection of the machine before is reset")
                }
            }
            by_machine.entry(machine).or_default().push(Ending::new(local, remote));
        }
        let mut work = JoinSet::new();
        for ((local, remote), endings) in by_machine {
            let placeholders = placeholders.remove(&(local, remote));
            let socket = match raw(local, remote) {
                Ok(socket) => socket,
                Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(AddressError::of("connections cannot be ended", RAW, source));
                }
                // There may be no way to one machine: others are told all the same. Its placeholders go, so that the kernel resets what comes.
                Err(error) => {
                    tracing::debug!(%local, %remote, %error, "connections of a machine are not ended");
                    continue;
                }
            };
            work.spawn(async move {
                let _ended = tokio::time::timeout(time, end(socket, local.is_ipv4(), endings)).await;
                // The kernel may reset again what comes from now on.
                drop(placeholders);
            });
        }
        Ok(Self { work })
    }

    /// Whether nothing is left to be ended.
    pub fn is_over(&mut self) -> bool {
        while self.work.try_join_next().is_some() {}
        self.work.is_empty()
    }
}

/// A socket that gets a copy of each segment that comes from there. Tokio has no type for raw ones; they do what those for UDP do.
fn raw(local: IpAddr, remote: IpAddr) -> io::Result<UdpSocket> {
    let domain = if local.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::from(SocketAddr::new(local, 0)))?;
    socket.connect(&SockAddr::from(SocketAddr::new(remote, 0)))?;
    UdpSocket::from_std(socket.into())
}

/// The next segment that has arrived, if it is one.
fn receive(socket: &UdpSocket, is_v4: bool) -> io::Result<Option<Segment>> {
    let mut headers = [0; HEADERS];
    // The length is that of all, also where the headers are all that there is room for.
    let (_, length) = recv(socket, &mut headers[..], RecvFlags::TRUNC)?;
    Ok(Segment::parse(headers.get(..length.min(HEADERS)).unwrap_or_default(), length, is_v4))
}

async fn end(socket: UdpSocket, is_v4: bool, mut endings: Vec<Ending>) {
    let mut again = ASK_AGAIN;
    let ask = tokio::time::sleep(Duration::ZERO);
    tokio::pin!(ask);
    while !endings.is_empty() {
        tokio::select! {
            () = &mut ask => {
                ask.set(tokio::time::sleep(again));
                again = ASK_EVERY.min(again * 3);
                for ending in endings.iter().filter(|ending| ending.is_silent()) {
                    if let Some(segment) = stray_segment(ending.local, ending.remote) {
                        // One that cannot be reached now is asked again.
                        let _ = socket.try_send(&segment);
                    }
                }
            }
            ready = socket.readable() => {
                if ready.is_err() {
                    return;
                }
                // Anything else is no segment, or what the network says of a machine that cannot be reached.
                if let Ok(Some(came)) = socket.try_io(Interest::READABLE, || receive(&socket, is_v4)) {
                    answer(&socket, &mut endings, &came);
                }
            }
        }
    }
}

fn answer(socket: &UdpSocket, endings: &mut Vec<Ending>, came: &Segment) {
    let Some(ending) = endings.iter_mut().find(|ending| ending.is_of(came)) else { return };
    if let Some(answer) = ending.answer(came) {
        // What is lost is asked for again by the peer.
        let _ = socket.try_send(&answer);
    }
    endings.retain(|ending| !ending.is_over());
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A connection whose server is gone without a word, as with its machine; the client's end. `None` where that cannot be had.
    fn orphan(at: &str) -> Option<TcpStream> {
        let listener = TcpListener::bind(at).expect("a socket");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (server, _) = listener.accept().expect("accepted");
        match setsockopt(&server, sockopt::TcpRepair, &1) {
            // Closed like this it sends nothing.
            Ok(()) => Some(client),
            Err(error) => {
                println!("skipped, needs CAP_NET_ADMIN: {error}");
                None
            }
        }
    }

    fn ends(client: &TcpStream) -> (SocketAddr, SocketAddr) {
        (client.peer_addr().expect("connected"), client.local_addr().expect("connected"))
    }

    #[tokio::test]
    async fn a_client_of_a_machine_that_is_gone_comes_to_the_end_and_never_fails_to_send() {
        for at in ["127.0.88.1:0", "[::1]:0"] {
            let Some(mut client) = orphan(at) else { return };
            client.set_read_timeout(Some(PATIENCE)).expect("an option");
            // What was on its way to the machine before.
            let mut farewell = Farewell::begin(&[ends(&client)], PATIENCE).expect("begun");
            client.write_all(&[1; 1000]).expect("sent");
            let reads = tokio::task::spawn_blocking(move || {
                (client.read(&mut [0; 10]).map_err(|error| error.kind()), client)
            });
            let (read, mut client) = reads.await.expect("done");
            assert_eq!(read, Ok(0), "{at}: the end, not a reset");
            for _ in 0..50 {
                client.write_all(&[2; 10_000]).expect("a writer does not fail");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(!farewell.is_over());
            drop(client);
            let over = async {
                while !farewell.is_over() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(PATIENCE, over).await.expect("it ends when the client has closed it");
        }
    }

    #[tokio::test]
    async fn a_connection_that_is_here_does_not_mind() {
        let listener = TcpListener::bind("127.0.88.2:0").expect("a socket");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (mut server, _) = listener.accept().expect("accepted");
        match Farewell::begin(&[ends(&client)], PATIENCE) {
            Ok(mut farewell) => assert!(farewell.is_over(), "there is nothing to do"),
            Err(error) => return println!("skipped: {error}"),
        }
        client.set_nonblocking(true).expect("an option");
        client.write_all(b"on").expect("sent");
        server.read_exact(&mut [0; 2]).expect("received");
        let nothing = client.read(&mut [0; 1]).map_err(|error| error.kind());
        assert_eq!(nothing, Err(ErrorKind::WouldBlock));
    }
}
