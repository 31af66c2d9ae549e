//! Requests of the API that this node passes on to another one, for somebody who has asked this one.
//!
//! ```text
//!   whoever asks ─► this node: who is it? may it? ─► Call ─► TLS 1.3, both show the cluster's certificates ─► the other node: may it? ─► its own handler
//! ```
//! Invariants:
//! * A node believes who asks only from a node of its cluster that takes part now (`RelayedBy`), and asks the same role of it as of anybody.
//! * What was passed on to one life of a node is not done in a later one: a node that stood still does not do what was given up meanwhile.
//! * What is passed on is not passed on again.
//! * A connection that was kept is used again only for what may be asked twice.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Request, Response};
use cluster_store::Range;
use cluster_store::keys::{Key, NodeId};
use cluster_store::values::{Value as _, VolumeName};
use control_api::{Code, Problem};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use uuid::Uuid;

use super::{By, Cluster};

/// The header by which a node says for whom it asks.
pub(crate) const BY_HEADER: &str = "x-holdfast-by";
/// From the connection to the end of the handshake.
const CONNECT: Duration = Duration::from_secs(1);
/// What is sent and not acknowledged, or not taken, ends a connection after this: as long as a client that sends to the node itself is waited for.
/// That the node is gone is known sooner (`lives`).
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);
/// After so much silence it is asked so often whether the other machine is there.
const SILENT: Duration = Duration::from_secs(5);
const PROBE_EVERY: Duration = Duration::from_secs(2);
/// While an answer is awaited, it is looked so often whether the node lives on.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The store is asked for so long whose a volume is.
const PATIENCE: Duration = Duration::from_secs(1);

/// For whom a node asks, in which of its lives, and which life of the other it means.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct RelayedBy {
    through: NodeId,
    life: u64,
    to_life: u64,
    #[serde(flatten)]
    by: By,
}

/// A node that can be asked.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) node: NodeId,
    pub(crate) name: String,
    api: SocketAddr,
    life: u64,
}

/// Connections that were used and may be again, one for each node.
#[derive(Default)]
pub(super) struct Kept(Mutex<BTreeMap<(NodeId, u64), SendRequest<Body>>>);

fn cut(why: impl std::fmt::Display) -> Problem {
    Problem::new(Code::Unavailable, why.to_string())
}

impl Cluster {
    /// The other nodes that take part and can be asked.
    pub(crate) fn peers(&self) -> Vec<Peer> {
        let now = self.now();
        self.learn_names(&now);
        let peer = |seen: &cluster_node::MemberState| {
            let member = seen.member.as_ref().filter(|_| seen.node != self.me)?;
            Some(Peer {
                node: seen.node,
                name: self.name_of(seen.node),
                api: member.api.parse().ok()?,
                life: member.incarnation.0,
            })
        };
        now.members.iter().filter_map(peer).collect()
    }

    /// Passes a request on, and gives back the head of its answer with what follows.
    ///
    /// # Errors
    /// When the node does not answer; whether it has done it is not known then, unless the problem says so.
    pub(crate) async fn call(
        &self,
        peer: &Peer,
        by: By,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, Problem> {
        let undone = |why: &dyn std::fmt::Display| {
            cut(format!("node {} does not answer: {why}; nothing was done.", peer.name))
        };
        let life =
            self.life.holder().ok_or_else(|| undone(&"this node does not take part in its cluster now"))?;
        let said = RelayedBy { through: self.me, life: life.incarnation.0, to_life: peer.life, by };
        let said = serde_json::to_vec(&said).map_err(|error| undone(&error))?;
        let said = HeaderValue::from_bytes(&said).map_err(|error| undone(&error))?;
        request.headers_mut().insert(BY_HEADER, said);
        request.headers_mut().insert("host", HeaderValue::from_static("holdfast"));
        let kept = if request.method().is_safe() {
            self.kept_calls.0.lock().remove(&(peer.node, peer.life)).filter(SendRequest::is_ready)
        } else {
            None
        };
        if let Some(mut sender) = kept {
            // What only looks has no body.
            let mut same = Request::new(Body::empty());
            (*same.method_mut(), *same.uri_mut()) = (request.method().clone(), request.uri().clone());
            *same.headers_mut() = request.headers().clone();
            // The other side may have closed it meanwhile.
            if let Ok(answer) = self.ask(peer, &mut sender, same).await {
                self.kept_calls.0.lock().insert((peer.node, peer.life), sender);
                return Ok(answer);
            }
        }
        let mut sender = self.dial(peer).await.map_err(|error| undone(&error))?;
        let answer = self.ask(peer, &mut sender, request).await?;
        // It is ready for the next request when this answer is read, and dropped by whoever finds it is not.
        self.kept_calls.0.lock().insert((peer.node, peer.life), sender);
        Ok(answer)
    }

    /// The head of the answer, for as long as the node lives on.
    async fn ask(
        &self,
        peer: &Peer,
        sender: &mut SendRequest<Body>,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, Problem> {
        let mut asking = std::pin::pin!(sender.send_request(request));
        loop {
            match tokio::time::timeout(LOOK_EVERY, asking.as_mut()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => {
                    return Err(cut(format!(
                        "the exchange with node {} broke off ({error}): whether this was done is not known.",
                        peer.name
                    )));
                }
                Err(_) if self.lives(peer.node, peer.life) => {}
                Err(_) => {
                    return Err(cut(format!(
                        "node {} does not answer any more: whether this was done is not known.",
                        peer.name
                    )));
                }
            }
        }
    }

    async fn dial(&self, peer: &Peer) -> std::io::Result<SendRequest<Body>> {
        let dialing = async {
            let tcp = TcpStream::connect(peer.api).await?;
            tcp.set_nodelay(true)?;
            let socket = socket2::SockRef::from(&tcp);
            socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
            // Nobody looks after a node whose answer has begun; one that is gone says nothing more.
            let probes =
                socket2::TcpKeepalive::new().with_time(SILENT).with_interval(PROBE_EVERY).with_retries(3);
            socket.set_tcp_keepalive(&probes)?;
            let tls = self.tls.connect(peer.node, tcp).await?;
            let (sender, connection) = handshake(TokioIo::new(tls)).await.map_err(std::io::Error::other)?;
            // It ends with the exchange; its error shows in the answer.
            self.control.spawn(connection);
            Ok(sender)
        };
        let late = |_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut));
        tokio::time::timeout(CONNECT, dialing).await.unwrap_or_else(late)
    }

    /// Whether this life of a node takes part.
    fn lives(&self, node: NodeId, life: u64) -> bool {
        let member = self.now().members.into_iter().find(|seen| seen.node == node);
        member.and_then(|seen| seen.member).is_some_and(|member| member.incarnation.0 == life)
    }

    /// For whom a request of another node asks, where that is one of the cluster (`is_of` says so of its certificate) and means this life.
    ///
    /// # Errors
    /// When it is not to be believed.
    pub(crate) fn believed(&self, said: &[u8], is_of: impl Fn(NodeId) -> bool) -> Result<(u16, By), Problem> {
        let refused = |why: &str| Err(Problem::new(Code::Forbidden, why));
        let Ok(said) = serde_json::from_slice::<RelayedBy>(said) else {
            return refused("Here the nodes of a cluster ask, and say for whom.");
        };
        if !is_of(said.through) {
            return refused("Another node's certificate was shown.");
        }
        if !self.lives(said.through, said.life) {
            return refused("That node does not take part in the cluster now, as far as is known here.");
        }
        if self.life.holder().map(|own| own.incarnation.0) != Some(said.to_life) {
            return Err(cut("This node has been away since it was asked; nothing was done."));
        }
        Ok((said.through.number(), said.by))
    }

    /// The pool of the volume that has this name in the cluster, as far as the store tells in time.
    pub(crate) async fn pool_of_volume(&self, name: &str) -> Option<Uuid> {
        self.holder_of(name).await?.map(|holder| holder.pool.0)
    }

    /// Whether the store says that no volume has this name. All pools that are served have said which they have.
    pub(crate) async fn has_no_volume(&self, name: &str) -> bool {
        matches!(self.holder_of(name).await, Some(None))
    }

    /// Who has the name; `None` when the store does not tell in time, or not what can be understood.
    async fn holder_of(&self, name: &str) -> Option<Option<VolumeName>> {
        // What cannot be a name nobody has.
        let Some(key) = Key::of_volume(name) else { return Some(None) };
        let reading = tokio::time::timeout(PATIENCE, self.store.get(Range::Key(key.path(&self.name)))).await;
        match reading.ok()?.ok()?.found.into_iter().next() {
            Some(found) => VolumeName::decode(&found.value).ok().map(Some),
            None => Some(None),
        }
    }
}
