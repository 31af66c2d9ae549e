//! Links to the other members: TCP with TLS 1.3, one in each direction between two nodes, each for what its beginner says.
//!
//! A link is there before it is needed: it is needed when the store is away, and there is no time to lose then. It says every second
//! that it works, and one that does not get its bytes across is given up and begun anew. What waits to be sent when a link breaks is left
//! out: by then it is old, and the state machine asks again.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use cluster_store::keys::{ClusterName, NodeId};
use parking_lot::{Mutex, RwLock};
use pool_ownership::Message;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::tls::{self, LinkTls};
use crate::wire::{Frame, Hello, MAX_FRAME, VERSION};

/// From the connection to the answered greeting.
const HANDSHAKE: Duration = Duration::from_millis(1500);
/// Between two attempts to reach a node.
const PAUSE: Duration = Duration::from_millis(250);
/// A link says so often that it works, and is given up when it could not say so.
const ALIVE_EVERY: Duration = Duration::from_secs(1);
const WRITE_PATIENCE: Duration = Duration::from_secs(1);
/// A link that says nothing for so long is over.
const SILENCE: Duration = Duration::from_secs(4);
/// What may wait to be sent to a node: there is one question at a time, and one answer.
const QUEUE: usize = 8;
/// Strangers that may be greeting at once.
const GREETINGS: usize = 64;

/// Messages that belong together.
pub type Round = Arc<Vec<Vec<u8>>>;
/// Takes a message of a node.
pub type Hears = dyn Fn(NodeId, &[u8]) + Send + Sync;

/// What nodes tell each other over their links that has nothing to do with who owns which pool: the newest of it, to all of them, as long as it
/// does not hold anything else up. What is older is left out, and a link that is new begins with the newest.
#[derive(Clone)]
pub struct Aside {
    /// What is to be said: messages of at most [`Aside::MOST_BYTES`], which arrive in this order.
    pub says: watch::Receiver<Round>,
    /// Takes what another node has said. It may not wait.
    pub hears: Arc<Hears>,
}

impl Aside {
    /// The longest message; a longer one is left out.
    pub const MOST_BYTES: usize = MAX_FRAME - 1;

    /// Says nothing, and hears nothing.
    #[must_use]
    pub fn none() -> Self {
        Self { says: watch::channel(Arc::default()).1, hears: Arc::new(|_, _| {}) }
    }
}

impl std::fmt::Debug for Aside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aside").finish_non_exhaustive()
    }
}

/// How it stands with the link to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// The node.
    pub node: NodeId,
    /// Why it cannot be reached; none when it can.
    pub trouble: Option<String>,
}

struct Peer {
    addresses: Vec<String>,
    queue: mpsc::Sender<Message>,
    trouble: Arc<Mutex<Option<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// All links of a node.
pub(crate) struct Links {
    me: NodeId,
    cluster: ClusterName,
    tls: RwLock<LinkTls>,
    heard: mpsc::Sender<(NodeId, Message)>,
    aside: Aside,
    /// None when the node has ended.
    peers: Mutex<Option<BTreeMap<NodeId, Peer>>>,
    /// The link that each node has begun last, to be told when it begins another one.
    heard_from: Mutex<BTreeMap<NodeId, Arc<Notify>>>,
}

impl Links {
    pub(crate) fn new(
        me: NodeId,
        cluster: ClusterName,
        tls: LinkTls,
        heard: mpsc::Sender<(NodeId, Message)>,
        aside: Aside,
    ) -> Arc<Self> {
        let (peers, heard_from) = (Mutex::new(Some(BTreeMap::new())), Mutex::default());
        Arc::new(Self { me, cluster, tls: RwLock::new(tls), heard, aside, peers, heard_from })
    }

    /// Ends the links that this node has begun, for good.
    pub(crate) fn close(&self) {
        self.peers.lock().take();
    }

    /// Links that begin from now on show these.
    pub(crate) fn set_tls(&self, tls: LinkTls) {
        *self.tls.write() = tls;
    }

    /// Who takes part, and where they are found.
    pub(crate) fn update(self: &Arc<Self>, members: &BTreeMap<NodeId, Vec<String>>) {
        let mut peers = self.peers.lock();
        let Some(peers) = &mut *peers else { return };
        peers.retain(|node, peer| members.get(node) == Some(&peer.addresses));
        for (node, addresses) in members.iter().filter(|(node, _)| **node != self.me) {
            if peers.contains_key(node) {
                continue;
            }
            let (queue, waiting) = mpsc::channel(QUEUE);
            let trouble = Arc::new(Mutex::new(Some("not reached yet".to_owned())));
            let speak = self.clone().speak(*node, addresses.clone(), waiting, trouble.clone());
            let task = tokio::spawn(speak);
            peers.insert(*node, Peer { addresses: addresses.clone(), queue, trouble, task });
        }
    }

    /// Says something to a node; it is left out where it cannot be said soon.
    pub(crate) fn send(&self, to: NodeId, message: Message) {
        if let Some(peer) = self.peers.lock().as_ref().and_then(|peers| peers.get(&to)) {
            let _ = peer.queue.try_send(message);
        }
    }

    pub(crate) fn status(&self) -> Vec<LinkStatus> {
        let peers = self.peers.lock();
        peers
            .iter()
            .flatten()
            .map(|(node, peer)| LinkStatus { node: *node, trouble: peer.trouble.lock().clone() })
            .collect()
    }

    /// Takes links that others begin, until it is dropped.
    pub(crate) async fn listen(self: Arc<Self>, listener: TcpListener) {
        let greetings = Arc::new(Semaphore::new(GREETINGS));
        let mut links = JoinSet::new();
        loop {
            while links.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, from)) => {
                    let Ok(seat) = greetings.clone().try_acquire_owned() else { continue };
                    let this = self.clone();
                    links.spawn(async move {
                        let greeted = timeout(HANDSHAKE, this.greet(stream)).await;
                        drop(seat);
                        match greeted {
                            Ok(Ok((node, stream))) => this.hear(node, stream).await,
                            Ok(Err(why)) => tracing::debug!("a link from {from} is refused: {why}"),
                            Err(_) => tracing::debug!("a link from {from} is refused: it takes too long"),
                        }
                    });
                }
                // Out of descriptors, most likely.
                Err(error) => {
                    tracing::warn!("links between nodes: {error}");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Finds out who has connected.
    async fn greet(
        &self,
        tcp: TcpStream,
    ) -> Result<(NodeId, tokio_rustls::server::TlsStream<TcpStream>), String> {
        let told = |error: io::Error| error.to_string();
        prepare(&tcp).map_err(told)?;
        let acceptor = TlsAcceptor::from(self.tls.read().server.clone());
        let mut stream = acceptor.accept(tcp).await.map_err(told)?;
        let frame = read_frame(&mut stream).await.map_err(told)?;
        let Frame::Hello(hello) = frame else { return Err("it does not greet".into()) };
        if let Err(why) = self.check(&hello, stream.get_ref().1.peer_certificates()) {
            let _ = stream.write_all(&Frame::Refused(why.clone()).framed()).await;
            let _ = stream.shutdown().await;
            return Err(why);
        }
        let answer = self.hello(hello.from, hello.version.min(VERSION));
        stream.write_all(&answer.framed()).await.map_err(told)?;
        stream.flush().await.map_err(told)?;
        Ok((hello.from, stream))
    }

    fn check(
        &self,
        hello: &Hello,
        shown: Option<&[rustls::pki_types::CertificateDer<'static>]>,
    ) -> Result<(), String> {
        let Hello { cluster, from, to, .. } = hello;
        if !tls::is_of(shown, *from) {
            return Err(format!("the certificate is not that of {}", tls::node_name(*from)));
        }
        if ClusterName::new(cluster).as_ref() != Some(&self.cluster) {
            return Err(format!("this is a node of another cluster than {cluster}"));
        }
        if *to != self.me {
            return Err(format!("this is node {}, not node {to}", self.me));
        }
        if *from == self.me {
            return Err(format!("node {from} is here"));
        }
        Ok(())
    }

    fn hello(&self, to: NodeId, version: u16) -> Frame {
        let cluster = self.cluster.root().trim_start_matches("/holdfast/").trim_end_matches('/').to_owned();
        Frame::Hello(Hello { version, cluster, from: self.me, to })
    }

    /// Hears what a node says until the link ends, or it begins another one.
    async fn hear(&self, node: NodeId, stream: impl AsyncRead + Unpin) {
        let replaced = Arc::new(Notify::new());
        if let Some(older) = self.heard_from.lock().insert(node, replaced.clone()) {
            older.notify_one();
        }
        tokio::select! {
            () = self.hear_all(node, stream) => {}
            () = replaced.notified() => return,
        }
        let mut heard_from = self.heard_from.lock();
        if heard_from.get(&node).is_some_and(|last| Arc::ptr_eq(last, &replaced)) {
            heard_from.remove(&node);
        }
    }

    async fn hear_all(&self, node: NodeId, mut stream: impl AsyncRead + Unpin) {
        loop {
            match timeout(SILENCE, read_frame(&mut stream)).await {
                Ok(Ok(Frame::Message(message))) => {
                    // While the loop is busy the link waits.
                    if self.heard.send((node, message)).await.is_err() {
                        return;
                    }
                }
                Ok(Ok(Frame::Aside(bytes))) => (self.aside.hears)(node, &bytes),
                Ok(Ok(Frame::Alive | Frame::Other(_))) => {}
                Ok(Ok(Frame::Hello(_) | Frame::Refused(_))) => return,
                Ok(Err(error)) => return tracing::debug!("the link from node {node} ends: {error}"),
                Err(_) => return tracing::debug!("the link from node {node} ends: it says nothing"),
            }
        }
    }

    /// Keeps a link to a node and says there what is to be said.
    async fn speak(
        self: Arc<Self>,
        to: NodeId,
        addresses: Vec<String>,
        mut waiting: mpsc::Receiver<Message>,
        trouble: Arc<Mutex<Option<String>>>,
    ) {
        if addresses.is_empty() {
            *trouble.lock() = Some("it has no address".into());
        }
        loop {
            for address in &addresses {
                let why = match timeout(HANDSHAKE, self.begin(to, address)).await {
                    Ok(Ok(stream)) => {
                        tracing::info!("node {to} is reached at {address}");
                        *trouble.lock() = None;
                        // It has waited for the link, and is old.
                        while waiting.try_recv().is_ok() {}
                        say(stream, &mut waiting, self.aside.says.clone()).await
                    }
                    Ok(Err(why)) => why,
                    Err(_) => format!("no link in {HANDSHAKE:?}"),
                };
                let why = format!("{address}: {why}");
                let before = trouble.lock().replace(why.clone());
                if before.is_none() {
                    tracing::warn!("the link to node {to} is broken: {why}");
                }
            }
            sleep(PAUSE).await;
        }
    }

    async fn begin(
        &self,
        to: NodeId,
        address: &str,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, String> {
        let told = |error: io::Error| error.to_string();
        let tcp = TcpStream::connect(address).await.map_err(told)?;
        prepare(&tcp).map_err(told)?;
        let name = tls::server_name(to).ok_or("it has no name")?;
        let connector = TlsConnector::from(self.tls.read().client.clone());
        let mut stream = connector.connect(name, tcp).await.map_err(told)?;
        stream.write_all(&self.hello(to, VERSION).framed()).await.map_err(told)?;
        stream.flush().await.map_err(told)?;
        match read_frame(&mut stream).await.map_err(told)? {
            Frame::Hello(hello) if hello.from == to && hello.version <= VERSION => Ok(stream),
            Frame::Hello(_) => Err("it greets as somebody else".into()),
            Frame::Refused(why) => Err(format!("it refuses: {why}")),
            _ => Err("it does not greet".into()),
        }
    }
}

/// Says what waits; returns why it cannot any more.
async fn say(
    stream: impl AsyncRead + AsyncWrite,
    waiting: &mut mpsc::Receiver<Message>,
    mut aside: watch::Receiver<Round>,
) -> String {
    let (mut from, mut to) = tokio::io::split(stream);
    let mut nothing = [0; 1];
    // Who is there now has heard nothing of it.
    aside.mark_changed();
    let mut says_aside = true;
    loop {
        let bytes = tokio::select! {
            // What decides about pools comes first.
            biased;
            message = waiting.recv() => match message {
                Some(message) => Frame::Message(message).framed(),
                None => return "it is not needed any more".into(),
            },
            // The other side only listens: this is the end of the link.
            heard = from.read(&mut nothing) => return match heard {
                Ok(0) => "it was closed".into(),
                Ok(_) => "it speaks where it should listen".into(),
                Err(error) => error.to_string(),
            },
            changed = aside.changed(), if says_aside => {
                if changed.is_err() {
                    says_aside = false;
                    continue;
                }
                let messages = aside.borrow_and_update().clone();
                let fit = messages.iter().filter(|message| message.len() <= Aside::MOST_BYTES);
                fit.flat_map(|message| Frame::Aside(message.clone()).framed()).collect()
            }
            () = sleep(ALIVE_EVERY) => Frame::Alive.framed(),
        };
        let written = timeout(WRITE_PATIENCE, async {
            to.write_all(&bytes).await?;
            to.flush().await
        });
        match written.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return format!("nothing gets across in {WRITE_PATIENCE:?}"),
        }
    }
}

/// What a frame's length promises is bounded before memory is taken for it.
async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Frame> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).await?;
    let length = usize::from(u16::from_le_bytes(length));
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    if length > MAX_FRAME {
        return Err(invalid(format!("a frame of {length} bytes, {MAX_FRAME} are allowed")));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Frame::decode(&bytes).map_err(|error| invalid(format!("a frame {error}")))
}

/// Small frames leave at once; what is not acknowledged ends the link before the kernel's own patience of minutes.
fn prepare(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    socket2::SockRef::from(tcp).set_tcp_user_timeout(Some(ALIVE_EVERY + WRITE_PATIENCE))
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.status()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_link_says_the_newest_of_what_is_told_aside_and_messages_before_it() {
        let (here, mut there) = tokio::io::duplex(1 << 16);
        let (tell, says) = watch::channel(Arc::new(vec![b"old".to_vec()]));
        tell.send_replace(Arc::new(vec![b"new".to_vec(), vec![0; MAX_FRAME], b"newer".to_vec()]));
        let (queue, mut waiting) = mpsc::channel(QUEUE);
        let ask = Message::Ask { incarnation: cluster_store::values::Incarnation(1), round: 2 };
        queue.try_send(ask).expect("room");
        let saying = tokio::spawn(async move { say(here, &mut waiting, says).await });
        let mut heard = Vec::new();
        for _ in 0..3 {
            heard.push(read_frame(&mut there).await.expect("said"));
        }
        let aside = |bytes: &[u8]| Frame::Aside(bytes.to_vec());
        assert_eq!(
            heard,
            [Frame::Message(ask), aside(b"new"), aside(b"newer")],
            "what is too long is left out"
        );
        tell.send_replace(Arc::new(vec![b"next".to_vec()]));
        assert_eq!(read_frame(&mut there).await.expect("said"), aside(b"next"));
        // Nobody says anything aside any more: the link goes on.
        drop(tell);
        assert_eq!(read_frame(&mut there).await.expect("said"), Frame::Alive);
        queue.try_send(ask).expect("room");
        assert_eq!(read_frame(&mut there).await.expect("said"), Frame::Message(ask));
        drop(queue);
        assert!(saying.await.expect("it ends").contains("not needed"));
    }
}
