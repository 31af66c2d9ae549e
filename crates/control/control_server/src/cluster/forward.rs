//! Connections between nodes that bring SCSI commands to whoever serves the unit: of their own, beside the links, so that much data delays
//! no beat; with the same certificates.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster_node::{boot_time, is_of};
use cluster_store::keys::NodeId;
use scsi_disk::{Forward, TargetDevice};
use scsi_forward::{Dial, Host, Owner, Sender, Stream, Streaming};
use tcp_service::{Arrived, Limits, Listeners, Spawner};
use tokio::net::TcpStream;

use super::Cluster;
use crate::backend::Targets;

/// The port of links and this give the port, where nobody else has it.
const PORT_AFTER_LINKS: u16 = 5;
/// From the connection to the greeting.
const HANDSHAKE: Duration = Duration::from_millis(1500);
/// What is not acknowledged ends the connection after this.
const UNACKNOWLEDGED: Duration = Duration::from_secs(2);
/// A connection for each shard of each node.
const LIMITS: Limits = Limits { connections: 4096, logins: 256, logins_per_address: 128 };

struct Between {
    cluster: Arc<Cluster>,
    targets: Targets,
}

impl Dial for Between {
    fn me(&self) -> Option<(u16, u64)> {
        let holder = self.cluster.life.holder()?;
        Some((holder.node.number(), holder.incarnation.0))
    }

    fn dial(&self, node: u16) -> Streaming<'_> {
        Box::pin(async move {
            let node = NodeId::new(node).ok_or(io::ErrorKind::InvalidInput)?;
            let address = self.cluster.forward_address(node).ok_or(io::ErrorKind::AddrNotAvailable)?;
            let tcp = TcpStream::connect(address).await?;
            prepare(&tcp)?;
            Ok(Box::new(self.cluster.tls.connect(node, tcp).await?) as Box<dyn Stream>)
        })
    }

    fn now(&self) -> u64 {
        boot_time().0
    }
}

impl Host for Between {
    fn node(&self) -> u16 {
        self.cluster.me.number()
    }

    fn is_member(&self, node: u16, incarnation: u64) -> bool {
        let Some(status) = self.cluster.status.get() else { return false };
        let status = status.borrow();
        let member = status.members.iter().find(|seen| seen.node.number() == node);
        member.and_then(|seen| seen.member.as_ref()).is_some_and(|member| member.incarnation.0 == incarnation)
    }

    fn is_port_of(&self, node: u16, target_port: u16) -> bool {
        super::paths::node_of(target_port).is_some_and(|of| of.number() == node)
    }

    fn device(&self, target: &str) -> Option<Arc<TargetDevice>> {
        (self.targets)(target)
    }

    fn now(&self) -> u64 {
        boot_time().0
    }
}

/// Small frames leave at once, and a node that is gone is noticed.
fn prepare(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    socket2::SockRef::from(tcp).set_tcp_user_timeout(Some(UNACKNOWLEDGED))
}

/// Takes commands from other nodes from now on, on these shards, for these targets. What brings commands to them comes back, and where it
/// listens.
pub(crate) fn begin(
    cluster: &Arc<Cluster>,
    shards: Arc<dyn Spawner>,
    targets: Targets,
) -> (Arc<dyn Forward>, Listeners) {
    let between = Arc::new(Between { cluster: cluster.clone(), targets });
    let sender = Sender::new(between.clone(), cluster.may_answer());
    let owner = Owner::new(between);
    let listeners = Listeners::new(shards, LIMITS);
    if let Some(links) = cluster.links_at {
        let serve = {
            let (owner, cluster) = (owner, cluster.clone());
            Arc::new(move |arrived| {
                let (owner, cluster) = (owner.clone(), cluster.clone());
                Box::pin(serve(owner, cluster, arrived)) as std::pin::Pin<Box<dyn Future<Output = ()>>>
            })
        };
        let usual = links.port().saturating_add(PORT_AFTER_LINKS);
        let at = |port| listeners.listen(SocketAddr::new(links.ip(), port), serve.clone());
        match at(usual).or_else(|_| at(0)) {
            Ok(address) => cluster.say_forward(address.port()),
            Err(error) => tracing::error!(%error, "other nodes cannot bring commands for LUNs of this one"),
        }
    }
    (sender, listeners)
}

async fn serve(owner: Arc<Owner>, cluster: Arc<Cluster>, arrived: Arrived) {
    let Arrived { stream, remote, login, answers, .. } = arrived;
    let greeting = async {
        prepare(&stream)?;
        cluster.tls.accept(stream).await
    };
    let shaken = shard_runtime::timeout(HANDSHAKE, greeting).await;
    let ended = match shaken.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => {
            let certificates = stream.get_ref().1.peer_certificates().map(<[_]>::to_vec);
            let of = |node| NodeId::new(node).is_some_and(|node| is_of(certificates.as_deref(), node));
            owner.serve(stream, of, answers, || drop(login)).await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = ended {
        tracing::debug!(%remote, "a connection of another node for SCSI commands: {error}");
    }
}
