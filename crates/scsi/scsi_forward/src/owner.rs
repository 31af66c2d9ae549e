//! The node that serves the units: takes commands from other nodes and carries them out.

mod nexuses;
mod session;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use scsi_disk::TargetDevice;
use tcp_service::Answers;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Notify, watch};

use crate::frames::{invalid, read_head};
use crate::wire::{Call, Hello, Reply, VERSION, framed};
use nexuses::Nexuses;
use session::Session;

/// From the connection to its greeting.
const GREETING: Duration = Duration::from_millis(1500);
/// How long a connection may take to end before the one that takes its place is refused.
const REPLACED_WITHIN: Duration = Duration::from_secs(1);

/// What the owner needs of its node.
pub trait Host: Send + Sync + 'static {
    /// Its number.
    fn node(&self) -> u16;
    /// Whether a node is a member of the cluster in this life.
    fn is_member(&self, node: u16, incarnation: u64) -> bool;
    /// Whether a target port is one of a node's.
    fn is_port_of(&self, node: u16, target_port: u16) -> bool;
    /// The device behind a target.
    fn device(&self, target: &str) -> Option<Arc<TargetDevice>>;
    /// Nanoseconds on a clock that never goes back and goes on while the machine sleeps.
    fn now(&self) -> u64;
}

/// A connection's place: a later one takes it.
struct Seat {
    incarnation: u64,
    end: Notify,
    ended: watch::Sender<bool>,
}

/// The owner's end of all connections.
pub struct Owner {
    host: Arc<dyn Host>,
    nexuses: Nexuses,
    /// By node and number.
    seats: Mutex<BTreeMap<(u16, u32), Arc<Seat>>>,
}

/// Gives a seat back when the connection has ended, with all that it had begun.
struct Seated<'a> {
    owner: &'a Owner,
    key: (u16, u32),
    seat: Arc<Seat>,
}

impl Drop for Seated<'_> {
    fn drop(&mut self) {
        let mut seats = self.owner.seats.lock();
        if seats.get(&self.key).is_some_and(|seat| Arc::ptr_eq(seat, &self.seat)) {
            seats.remove(&self.key);
        }
        self.seat.ended.send_replace(true);
    }
}

impl Owner {
    /// For the targets of `host`.
    #[must_use]
    pub fn new(host: Arc<dyn Host>) -> Arc<Self> {
        Arc::new(Self { host, nexuses: Nexuses::default(), seats: Mutex::default() })
    }

    /// Serves a connection to its end, on the shard that it is on. `is_of` says whether the other end has proved to be a node; `greeted` is
    /// called when it is let in. Answers leave while `answers` says that they may.
    ///
    /// # Errors
    /// Why the connection has ended.
    pub async fn serve(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        is_of: impl Fn(u16) -> bool,
        answers: Answers,
        greeted: impl FnOnce(),
    ) -> io::Result<()> {
        let greeting = shard_runtime::timeout(GREETING, read_head(&mut stream)).await;
        let (head, data) = greeting.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))?;
        let hello = match Call::decode(&head).map_err(invalid)? {
            Call::Hello(hello) if data == 0 => hello,
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "it does not greet")),
        };
        let key = (hello.from, hello.channel);
        let seated = match self.check(&hello, is_of) {
            Ok(()) => self.sit(key, hello.incarnation).await,
            Err(why) => Err(why),
        };
        let seated = match seated {
            Ok(seated) => seated,
            Err(why) => {
                say(&mut stream, &Reply::Refused(why.clone())).await?;
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
        };
        greeted();
        say(&mut stream, &Reply::Welcome { version: hello.version.min(VERSION), tick: self.host.now() })
            .await?;
        let session = Session::new(&*self.host, &self.nexuses, &hello, answers);
        let result = tokio::select! {
            result = session.run(stream) => result,
            () = seated.seat.end.notified() => Ok(()),
        };
        // First what it has begun, then its place.
        drop(session);
        drop(seated);
        result
    }

    fn check(&self, hello: &Hello, is_of: impl Fn(u16) -> bool) -> Result<(), String> {
        if !is_of(hello.from) {
            return Err(format!("the certificate is not that of node {}", hello.from));
        }
        let me = self.host.node();
        if hello.to != me || hello.from == me {
            return Err(format!("this is node {me}"));
        }
        if !self.host.is_member(hello.from, hello.incarnation) {
            return Err(format!("node {} is no member in its life {}", hello.from, hello.incarnation));
        }
        Ok(())
    }

    /// Takes a place when whoever had it has ended, and so has all that came from an earlier life of the same node.
    async fn sit(&self, key: (u16, u32), incarnation: u64) -> Result<Seated<'_>, String> {
        let seat = Arc::new(Seat { incarnation, end: Notify::new(), ended: watch::Sender::new(false) });
        let before: Vec<Arc<Seat>> = {
            let mut seats = self.seats.lock();
            let others = seats.iter().filter(|((node, channel), seat)| {
                *node == key.0 && (*channel == key.1 || seat.incarnation < incarnation)
            });
            let before = others.map(|(_, seat)| seat.clone()).collect();
            seats.insert(key, seat.clone());
            before
        };
        let seated = Seated { owner: self, key, seat };
        for old in before {
            old.end.notify_one();
            let mut ended = old.ended.subscribe();
            let gone = async { ended.wait_for(|ended| *ended).await.is_ok() };
            if shard_runtime::timeout(REPLACED_WITHIN, gone).await.is_none() {
                return Err("the connection before is still there".into());
            }
        }
        Ok(seated)
    }
}

async fn say(stream: &mut (impl AsyncWrite + Unpin), reply: &Reply) -> io::Result<()> {
    stream.write_all(&framed(&reply.encode(), 0)).await?;
    stream.flush().await
}
