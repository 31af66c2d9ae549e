//! What the connections of one session share: numbering of commands, membership, the nexus.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::task::AtomicWaker;
use iscsi_protocol::chap::ChapUser;
use iscsi_protocol::pdu::sn_lt;
use iscsi_protocol::{ConnectionParams, IscsiName, SessionParams};
use parking_lot::Mutex;
use scsi_core::{Nexus, ScsiDevice, WireLun};
use tokio::sync::{oneshot, watch};

use crate::limits::COMMAND_WINDOW;
use crate::share::{Host, Place, Places};

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
    /// Its places among the connections of all hosts.
    places: Mutex<Vec<Place>>,
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
            places: Mutex::default(),
            gone: watch::Sender::new(false),
        })
    }

    /// Holds these places until the connection leaves its session.
    pub(crate) fn hold(&self, places: Vec<Place>) {
        *self.places.lock() = places;
    }

    /// Whether what comes instead of it is given one of these places.
    pub(crate) fn gives_up(&self, places: &Arc<Places>, host: &Host) -> bool {
        places.is_replaced_by(&self.places.lock(), host)
    }

    /// Gives its places to what comes instead of it.
    pub(crate) fn give_up_places(&self) -> Vec<Place> {
        std::mem::take(&mut *self.places.lock())
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
    /// Connections about to be put in by their logins; the session stays alive for them.
    joining: BTreeSet<u16>,
    /// Nobody may join any more, and who is about to is told to end.
    closing: bool,
    ended: bool,
}

/// One session.
pub(crate) struct Session {
    pub(crate) nexus: Arc<Nexus>,
    pub(crate) device: Arc<dyn ScsiDevice>,
    pub(crate) target: IscsiName,
    pub(crate) initiator: IscsiName,
    pub(crate) alias: Option<String>,
    pub(crate) user: Option<ChapUser>,
    pub(crate) isid: [u8; 6],
    pub(crate) tsih: u16,
    pub(crate) params: SessionParams,
    order: Mutex<Order>,
    members: Mutex<Members>,
    /// Its place among the sessions of the target.
    place: Mutex<Option<Place>>,
    ended: watch::Sender<bool>,
}

/// Names of a session to be.
pub(crate) struct SessionSeed {
    pub(crate) nexus: Arc<Nexus>,
    pub(crate) device: Arc<dyn ScsiDevice>,
    pub(crate) target: IscsiName,
    pub(crate) initiator: IscsiName,
    pub(crate) alias: Option<String>,
    pub(crate) user: Option<ChapUser>,
    pub(crate) tsih: u16,
    pub(crate) params: SessionParams,
    pub(crate) first_cmd_sn: u32,
    /// The connection that begins the session; it has its place already.
    pub(crate) first_cid: u16,
    /// Its place among the sessions of the target.
    pub(crate) place: Option<Place>,
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
            members: Mutex::new(Members {
                peers: BTreeMap::new(),
                joining: BTreeSet::from([seed.first_cid]),
                closing: false,
                ended: false,
            }),
            place: Mutex::new(seed.place),
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

    /// Reserves a place for a connection about to join. A connection identifier stands for one connection (RFC 7143
    /// 4.4.3): of two logins with the same one at the same time the later is refused, and replaces the earlier
    /// when it tries again.
    pub(crate) fn reserve(&self, cid: u16) -> Result<(), ReserveError> {
        let mut members = self.members.lock();
        if members.ended || members.closing {
            return Err(ReserveError::Ended);
        }
        if members.joining.contains(&cid) {
            return Err(ReserveError::Joining);
        }
        let others = members.peers.keys().filter(|other| **other != cid).count() + members.joining.len();
        if others >= usize::from(self.params.max_connections) {
            return Err(ReserveError::Full);
        }
        members.joining.insert(cid);
        Ok(())
    }

    /// Puts a connection into the place reserved for it.
    pub(crate) fn join(&self, peer: &Arc<Peer>) {
        let mut members = self.members.lock();
        members.joining.remove(&peer.cid);
        members.peers.insert(peer.cid, Arc::clone(peer));
        if members.closing {
            peer.tell(Message::Close);
        }
    }

    /// Gives a reserved place back; whether the session is over.
    pub(crate) fn give_up(&self, cid: u16) -> bool {
        let mut members = self.members.lock();
        members.joining.remove(&cid);
        Self::is_over(&mut members)
    }

    fn is_over(members: &mut Members) -> bool {
        let over = members.peers.is_empty() && members.joining.is_empty() && !members.ended;
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
        // Before it is said: whoever comes in its place finds them free.
        drop(peer.give_up_places());
        peer.gone.send_replace(true);
        over
    }

    /// Says that the nexus is gone; once, after [`Session::leave`] or [`Session::give_up`] said it is over.
    pub(crate) fn finish(&self) {
        self.device.nexus_lost(&self.nexus);
        drop(self.place.lock().take());
        self.ended.send_replace(true);
    }

    /// Whether what comes instead of it is given one of these places.
    pub(crate) fn gives_up(&self, places: &Arc<Places>, host: &Host) -> bool {
        places.is_replaced_by(self.place.lock().as_slice(), host)
            || self.peers().iter().any(|peer| peer.gives_up(places, host))
    }

    /// Gives its places, and those of its connections, to what comes instead of it.
    pub(crate) fn give_up_places(&self) -> Vec<Place> {
        let connections = self.peers().into_iter().flat_map(|peer| peer.give_up_places());
        self.place.lock().take().into_iter().chain(connections).collect()
    }

    /// Makes all connections end, also those about to join.
    pub(crate) fn close(&self) {
        let peers: Vec<_> = {
            let mut members = self.members.lock();
            members.closing = true;
            members.peers.values().cloned().collect()
        };
        for peer in peers {
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
    /// Another login with the same connection identifier is on its way.
    Joining,
}

#[cfg(test)]
mod tests {
    use observe::IoTally;
    use scsi_core::{ScsiCommand, ScsiFuture, ScsiResponse, TaskManagement, TaskManagementOutcome};

    use super::*;

    struct Nothing;

    impl ScsiDevice for Nothing {
        fn nexus_established(&self, _: &Arc<Nexus>) {}
        fn nexus_lost(&self, _: &Arc<Nexus>) {}
        fn execute<'a>(
            &'a self,
            _: &'a Arc<Nexus>,
            _: WireLun,
            _: ScsiCommand,
        ) -> ScsiFuture<'a, Option<ScsiResponse>> {
            Box::pin(async { None })
        }
        fn task_management<'a>(
            &'a self,
            _: &'a Arc<Nexus>,
            _: WireLun,
            _: TaskManagement,
        ) -> ScsiFuture<'a, TaskManagementOutcome> {
            Box::pin(async { TaskManagementOutcome::Rejected })
        }
    }

    fn peer(cid: u16) -> Arc<Peer> {
        let address: SocketAddr = "127.0.0.1:3260".parse().expect("address");
        Peer::new(cid, (address, address), 0, ConnectionParams::default())
    }

    /// A session of up to four connections, of which the first, number 0, is there.
    fn session() -> Arc<Session> {
        let initiator = IscsiName::parse("iqn.2026-01.org.example:host").expect("name");
        let nexus = Nexus {
            id: 1,
            initiator: initiator.to_string(),
            initiator_port: [0; 6],
            target: "iqn.2026-01.org.example:disk".to_owned(),
            target_port: 1,
            io: IoTally::default(),
        };
        let session = Session::new(SessionSeed {
            nexus: Arc::new(nexus),
            device: Arc::new(Nothing),
            target: IscsiName::parse("iqn.2026-01.org.example:disk").expect("name"),
            initiator,
            alias: None,
            user: None,
            tsih: 1,
            params: SessionParams { max_connections: 4, ..SessionParams::default() },
            first_cmd_sn: 1,
            first_cid: 0,
            place: None,
        });
        session.join(&peer(0));
        session
    }

    #[test]
    fn of_two_logins_with_one_cid_one_joins() {
        let session = session();
        assert_eq!(session.reserve(1), Ok(()));
        assert_eq!(session.reserve(1), Err(ReserveError::Joining));
        assert_eq!(session.reserve(2), Ok(()), "another connection may join meanwhile");
        session.join(&peer(1));
        assert_eq!(session.reserve(1), Ok(()), "it may be reinstated when it is there");
        assert!(!session.give_up(1));
        assert_eq!(session.peers().len(), 2);
    }

    #[test]
    fn who_joins_a_session_that_is_being_closed_is_closed_too() {
        let session = session();
        assert_eq!(session.reserve(1), Ok(()));
        session.close();
        assert_eq!(session.reserve(2), Err(ReserveError::Ended));
        let late = peer(1);
        session.join(&late);
        assert!(matches!(late.mail()[..], [Message::Close]));
    }
}
