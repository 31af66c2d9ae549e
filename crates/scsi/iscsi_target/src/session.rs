//! What the connections of one session share: numbering of commands, membership, the nexus.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::task::AtomicWaker;
use iscsi_protocol::pdu::sn_lt;
use iscsi_protocol::{ConnectionParams, IscsiName, SessionParams};
use parking_lot::Mutex;
use scsi_core::{Nexus, ScsiDevice, WireLun};
use tokio::sync::{oneshot, watch};

use crate::limits::COMMAND_WINDOW;

/// What others tell a connection.
pub(crate) enum Message {
    /// The command with this CmdSN is next in order: go on with it.
    Release(u32),
    /// Drop the session's commands on the unit (`None`: on all), then say so.
    Cancel(Option<WireLun>, oneshot::Sender<()>),
    /// End now.
    Close,
    /// Ask the initiator to log out within so many seconds, then end.
    AskLogout(u16),
}

/// The part of a connection that other threads see.
pub(crate) struct Peer {
    pub(crate) cid: u16,
    pub(crate) remote: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) shard: usize,
    pub(crate) params: ConnectionParams,
    pub(crate) counters: Counters,
    inbox: Mutex<Vec<Message>>,
    mail: AtomicBool,
    pub(crate) waker: AtomicWaker,
    gone: watch::Sender<bool>,
}

/// Counters of a connection. Written on one shard only, so relaxed and uncontended.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) commands: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
}

impl Peer {
    pub(crate) fn new(
        cid: u16,
        (remote, local): (SocketAddr, SocketAddr),
        shard: usize,
        params: ConnectionParams,
    ) -> Arc<Self> {
        Arc::new(Self {
            cid,
            remote,
            local,
            shard,
            params,
            counters: Counters::default(),
            inbox: Mutex::new(Vec::new()),
            mail: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            gone: watch::Sender::new(false),
        })
    }

    pub(crate) fn tell(&self, message: Message) {
        self.inbox.lock().push(message);
        self.mail.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(crate) fn mail(&self) -> Vec<Message> {
        if !self.mail.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *self.inbox.lock())
    }

    /// Ends when the connection has ended.
    pub(crate) async fn wait_gone(&self) {
        let mut gone = self.gone.subscribe();
        let _ = gone.wait_for(|gone| *gone).await;
    }
}

/// Numbering (RFC 7143 4.2.2.1). Commands in `[expected, max]` are taken, others ignored.
struct Order {
    expected: u32,
    max: u32,
    /// Received before their turn, by CmdSN: which connection has them.
    held: BTreeMap<u32, Arc<Peer>>,
}

/// What to do with a numbered PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is next.
    Now,
    /// Keep it; [`Message::Release`] tells when.
    Later,
    /// Outside of the window or a duplicate: ignore it.
    Ignore,
}

struct Members {
    peers: BTreeMap<u16, Arc<Peer>>,
    /// Logins about to put a connection in; the session stays alive for them.
    joining: usize,
    ended: bool,
}

/// One session.
pub(crate) struct Session {
    pub(crate) nexus: Arc<Nexus>,
    pub(crate) device: Arc<dyn ScsiDevice>,
    pub(crate) target: IscsiName,
    pub(crate) initiator: IscsiName,
    pub(crate) alias: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) isid: [u8; 6],
    pub(crate) tsih: u16,
    pub(crate) params: SessionParams,
    order: Mutex<Order>,
    members: Mutex<Members>,
    ended: watch::Sender<bool>,
}

/// Names of a session to be.
pub(crate) struct SessionSeed {
    pub(crate) nexus: Arc<Nexus>,
    pub(crate) device: Arc<dyn ScsiDevice>,
    pub(crate) target: IscsiName,
    pub(crate) initiator: IscsiName,
    pub(crate) alias: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) tsih: u16,
    pub(crate) params: SessionParams,
    pub(crate) first_cmd_sn: u32,
}

impl Session {
    pub(crate) fn new(seed: SessionSeed) -> Arc<Self> {
        seed.device.nexus_established(&seed.nexus);
        Arc::new(Self {
            isid: seed.nexus.initiator_port,
            nexus: seed.nexus,
            device: seed.device,
            target: seed.target,
            initiator: seed.initiator,
            alias: seed.alias,
            user: seed.user,
            tsih: seed.tsih,
            params: seed.params,
            order: Mutex::new(Order {
                expected: seed.first_cmd_sn,
                max: seed.first_cmd_sn.wrapping_add(COMMAND_WINDOW - 1),
                held: BTreeMap::new(),
            }),
            members: Mutex::new(Members { peers: BTreeMap::new(), joining: 1, ended: false }),
            ended: watch::Sender::new(false),
        })
    }

    /// Places a numbered PDU in the session's order. Those that it held up go to `released`, to be told when this
    /// one has been started: commands are started in the order of their numbers.
    pub(crate) fn turn(&self, cmd_sn: u32, peer: &Arc<Peer>, released: &mut Vec<(Arc<Peer>, u32)>) -> Turn {
        let mut order = self.order.lock();
        if cmd_sn == order.expected && !sn_lt(order.max, cmd_sn) {
            order.expected = order.expected.wrapping_add(1);
            while !order.held.is_empty() {
                let next = order.expected;
                let Some(holder) = order.held.remove(&next) else { break };
                order.expected = next.wrapping_add(1);
                released.push((holder, next));
            }
            return Turn::Now;
        }
        if sn_lt(cmd_sn, order.expected) || sn_lt(order.max, cmd_sn) || order.held.contains_key(&cmd_sn) {
            return Turn::Ignore;
        }
        order.held.insert(cmd_sn, Arc::clone(peer));
        Turn::Later
    }

    /// A numbered command has ended: the window moves on.
    pub(crate) fn credit(&self) {
        let mut order = self.order.lock();
        order.max = order.max.wrapping_add(1);
    }

    /// ExpCmdSN and MaxCmdSN.
    pub(crate) fn window(&self) -> (u32, u32) {
        let order = self.order.lock();
        (order.expected, order.max)
    }

    pub(crate) fn peers(&self) -> Vec<Arc<Peer>> {
        self.members.lock().peers.values().cloned().collect()
    }

    pub(crate) fn peer(&self, cid: u16) -> Option<Arc<Peer>> {
        self.members.lock().peers.get(&cid).cloned()
    }

    /// Reserves a place for a connection about to join; `false` when the session is over or full.
    pub(crate) fn reserve(&self, cid: u16) -> Result<(), ReserveError> {
        let mut members = self.members.lock();
        if members.ended {
            return Err(ReserveError::Ended);
        }
        let others = members.peers.keys().filter(|other| **other != cid).count() + members.joining;
        if others >= usize::from(self.params.max_connections) {
            return Err(ReserveError::Full);
        }
        members.joining += 1;
        Ok(())
    }

    /// Puts a connection into the place reserved for it.
    pub(crate) fn join(&self, peer: &Arc<Peer>) {
        let mut members = self.members.lock();
        members.joining -= 1;
        members.peers.insert(peer.cid, Arc::clone(peer));
    }

    /// Gives a reserved place back; whether the session is over.
    pub(crate) fn give_up(&self) -> bool {
        let mut members = self.members.lock();
        members.joining -= 1;
        Self::is_over(&mut members)
    }

    fn is_over(members: &mut Members) -> bool {
        let over = members.peers.is_empty() && members.joining == 0 && !members.ended;
        members.ended |= over;
        over
    }

    /// A connection has ended and its commands are gone; whether the session is over with it.
    pub(crate) fn leave(&self, peer: &Arc<Peer>) -> bool {
        let mut members = self.members.lock();
        if members.peers.get(&peer.cid).is_some_and(|member| Arc::ptr_eq(member, peer)) {
            members.peers.remove(&peer.cid);
        }
        let over = Self::is_over(&mut members);
        drop(members);
        self.order.lock().held.retain(|_, holder| !Arc::ptr_eq(holder, peer));
        peer.gone.send_replace(true);
        over
    }

    /// Says that the nexus is gone; once, after [`Session::leave`] or [`Session::give_up`] said it is over.
    pub(crate) fn finish(&self) {
        self.device.nexus_lost(&self.nexus);
        self.ended.send_replace(true);
    }

    /// Makes all connections end.
    pub(crate) fn close(&self) {
        for peer in self.peers() {
            peer.tell(Message::Close);
        }
    }

    /// Ends when the session has ended.
    pub(crate) async fn wait_ended(&self) {
        let mut ended = self.ended.subscribe();
        let _ = ended.wait_for(|ended| *ended).await;
    }
}

/// Why a connection cannot join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReserveError {
    Ended,
    Full,
}
