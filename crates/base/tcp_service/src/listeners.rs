//! Listeners, and how what they accept comes to a shard.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::network::network_of;
use crate::seats::{Logins, Seat};
use crate::stand_still::until_stand_still;
use crate::{Answers, LoginSeat, ShardJob, Spawner, Throttle};

/// How long nothing is accepted after an error: out of descriptors, mostly, and waiting lets others end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a peer may have said nothing before the system asks it whether it is there, how often it then asks, and how many questions
/// may stay without an answer: a machine that has lost its power, or whose flow a NAT has forgotten, is gone after two minutes.
const ASKED_AFTER: Duration = Duration::from_secs(60);
const ASKED_EVERY: Duration = Duration::from_secs(10);
const UNANSWERED: u32 = 6;
/// How long what was sent may stay unacknowledged, or unread by a peer that takes nothing more: as long. The system's own quarter of an
/// hour is for peers that nobody waits for.
pub const UNACKNOWLEDGED: Duration = Duration::from_secs(120);

/// What peers can take at most. For a further connection the one goes that has been there longest without a login; where there is
/// none, the further one is closed at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections of one listener.
    pub connections: usize,
    /// Connections of all listeners that have not logged in.
    pub logins: usize,
    /// How many of those may come from one address; of IPv6, from one network of 64 bits.
    pub logins_per_address: usize,
}

/// A connection on its shard.
#[derive(Debug)]
pub struct Arrived {
    /// The connection, without Nagle's delay.
    pub stream: TcpStream,
    /// The peer's address.
    pub remote: SocketAddr,
    /// Ours.
    pub local: SocketAddr,
    /// Where it runs.
    pub shard: usize,
    /// To be dropped when the peer has logged in.
    pub login: LoginSeat,
    /// What its queue asks before anything leaves.
    pub answers: Answers,
}

/// Serves a connection to its end; called on the connection's shard.
pub type Serve = Arc<dyn Fn(Arrived) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync>;

struct Listener {
    number: u64,
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    close: watch::Sender<bool>,
    serve: Serve,
}

struct Shared {
    spawner: Arc<dyn Spawner>,
    limits: Limits,
    logins: Arc<Logins>,
    listeners: Mutex<Vec<Arc<Listener>>>,
    next_shard: AtomicUsize,
    next_listener: AtomicU64,
    throttle: Throttle,
}

/// The listeners of a service. Cheap to clone.
#[derive(Clone)]
pub struct Listeners(Arc<Shared>);

impl Listeners {
    /// None yet.
    #[must_use]
    pub fn new(spawner: Arc<dyn Spawner>, limits: Limits) -> Self {
        Self(Arc::new(Shared {
            spawner,
            limits,
            logins: Arc::default(),
            listeners: Mutex::default(),
            next_shard: AtomicUsize::new(0),
            next_listener: AtomicU64::new(0),
            throttle: Throttle::default(),
        }))
    }

    /// Starts to listen; the address says which port was taken.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn listen(&self, address: SocketAddr, serve: Serve) -> io::Result<SocketAddr> {
        let socket = kept_listeners::listen(address)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let (connections, close) = (Arc::default(), watch::Sender::new(false));
        let number = self.0.next_listener.fetch_add(1, Ordering::Relaxed);
        let listener = Arc::new(Listener { number, address, connections, close, serve });
        self.0.listeners.lock().push(Arc::clone(&listener));
        let shared = Arc::clone(&self.0);
        self.0.spawner.spawn(0, Box::new(move || Box::pin(accept(shared, listener, socket))));
        Ok(address)
    }

    /// Where the service listens.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.listeners.lock().iter().map(|listener| listener.address).collect()
    }

    /// Stops listening there; open connections stay. `false` when there was no such listener.
    pub fn close(&self, address: SocketAddr) -> bool {
        let mut listeners = self.0.listeners.lock();
        let Some(at) = listeners.iter().position(|listener| listener.address == address) else {
            return false;
        };
        listeners.remove(at).close.send_replace(true);
        kept_listeners::close(address);
        true
    }

    /// Stops listening anywhere; open connections stay. Sockets that are kept for a later process stay for that one.
    pub fn close_all(&self) {
        for listener in self.0.listeners.lock().drain(..) {
            listener.close.send_replace(true);
        }
    }
}

/// Takes connections and gives each to a shard, for good.
async fn accept(shared: Arc<Shared>, listener: Arc<Listener>, socket: std::net::TcpListener) {
    let socket = match TcpListener::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::error!(address = %listener.address, %error, "cannot listen");
            return;
        }
    };
    let mut close = listener.close.subscribe();
    loop {
        let accepted = tokio::select! {
            _ = close.wait_for(|close| *close) => return,
            accepted = next(&shared, &socket) => accepted,
        };
        match accepted {
            Ok((stream, remote, answers)) => place(&shared, &listener, stream, remote, answers),
            Err(error) => {
                tracing::warn!(address = %listener.address, %error, "cannot accept");
                shard_runtime::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The next connection, with what it asks before it answers. While nothing may be answered at all those that come wait in the kernel's backlog,
/// one in here, and none of them is read from.
async fn next(shared: &Shared, socket: &TcpListener) -> io::Result<(TcpStream, SocketAddr, Answers)> {
    let answers = shared.spawner.answers();
    answers.begin().await;
    let (stream, remote) = socket.accept().await?;
    // It may have come long after.
    Ok((stream, remote, answers.begin().await))
}

/// Has the system find out that a peer is gone without a word: what it holds would stay with it for ever.
fn ask_whether_it_is_there(stream: &TcpStream) {
    let socket = socket2::SockRef::from(stream);
    let asked = socket2::TcpKeepalive::new()
        .with_time(ASKED_AFTER)
        .with_interval(ASKED_EVERY)
        .with_retries(UNANSWERED);
    let told =
        socket.set_tcp_keepalive(&asked).and_then(|()| socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED)));
    if let Err(error) = told {
        tracing::debug!(%error, "a connection is not asked whether its peer is there");
    }
}

/// Gives a connection to a shard; closes it where there is no seat for it, not even one of somebody who has not logged in.
fn place(
    shared: &Arc<Shared>,
    listener: &Arc<Listener>,
    stream: TcpStream,
    remote: SocketAddr,
    answers: Answers,
) {
    let Limits { connections, logins, logins_per_address } = shared.limits;
    let tell = |kind, peer| shared.throttle.admits(kind, peer);
    let seat = match Seat::take(&listener.connections, connections) {
        Some(seat) => seat,
        None => match shared.logins.end_oldest(listener.number) {
            Some(from) => {
                if tell("dropped for another", from) {
                    tracing::warn!(%from, address = %listener.address, connections, "connection dropped: there are too many, and it had not logged in");
                }
                Seat::instead(&listener.connections)
            }
            None => {
                if tell("no room", remote.ip()) {
                    tracing::warn!(%remote, address = %listener.address, connections, "connection refused: there are too many, and all have logged in");
                }
                return;
            }
        },
    };
    let (login, lost, dropped) =
        shared.logins.seat(listener.number, network_of(remote.ip()), logins, logins_per_address);
    if let Some(from) = dropped.filter(|from| tell("dropped without a login", *from)) {
        tracing::warn!(%from, address = %listener.address, logins, logins_per_address, "connection dropped: too many have not logged in");
    }
    // Without Nagle: answers leave when they are ready. A failure costs speed only.
    let _ = stream.set_nodelay(true);
    ask_whether_it_is_there(&stream);
    let Ok(local) = stream.local_addr() else { return };
    let Ok(stream) = stream.into_std() else { return };
    let shard = shared.next_shard.fetch_add(1, Ordering::Relaxed) % shared.spawner.shards().max(1);
    let serve = Arc::clone(&listener.serve);
    let watch = shared.spawner.watch(shard);
    let job: ShardJob = Box::new(move || {
        Box::pin(async move {
            let _seat = seat;
            if let Ok(stream) = TcpStream::from_std(stream) {
                let serving = serve(Arrived { stream, remote, local, shard, login, answers });
                tokio::select! {
                    () = until_stand_still(watch, serving) => {}
                    // It goes to somebody who may log in.
                    () = lost.notified() => {}
                }
            }
        })
    });
    shared.spawner.spawn(shard, job);
}
