//! The node that initiators have reached: sends their commands to whoever serves the unit.

mod channel;
mod link;
mod still;

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use parking_lot::Mutex;
use scsi_core::{Nexus, ScsiCommand, ScsiFuture, TaskManagement, TaskManagementOutcome};
use scsi_disk::{Brought, Forward, Place};
use tcp_service::AnswerPermit;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use crate::MAX_AGE;
use crate::wire::Port;
use channel::{Channel, Ending, Work};

/// A connection between two nodes.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// A connection on its way.
pub type Streaming<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + 'a>>;

/// What the sender needs of its node.
pub trait Dial: Send + Sync + 'static {
    /// This node, and its present life; none while it does not take part.
    fn me(&self) -> Option<(u16, u64)>;
    /// A connection to a node, which has proved to be that one; on the shard where this is called.
    fn dial(&self, node: u16) -> Streaming<'_>;
    /// Nanoseconds on a clock that never goes back and goes on while the machine sleeps.
    fn now(&self) -> u64;
}

/// A nexus of this node.
struct Own {
    port: Port,
    /// The life of the node that it began in: nothing of it is sent in a later one.
    life: Option<u64>,
}

/// What all connections share.
struct Shared {
    dial: Arc<dyn Dial>,
    permit: Arc<dyn AnswerPermit>,
    nexuses: Mutex<BTreeMap<u64, Arc<Own>>>,
    /// Commands that were dropped here and that the owner may still have.
    unsettled: AtomicUsize,
    settled: Notify,
}

impl Shared {
    fn settle(&self, count: usize) {
        if count > 0 && self.unsettled.fetch_sub(count, Ordering::SeqCst) == count {
            self.settled.notify_waiters();
        }
    }

    /// The same when nobody can tell any more: after a time in which the owner begins nothing of that any more.
    fn settle_later(self: &Arc<Self>, count: usize) {
        if count == 0 {
            return;
        }
        let shared = self.clone();
        if shard_runtime::can_detach() {
            shard_runtime::detach(async move {
                shard_runtime::sleep(MAX_AGE).await;
                shared.settle(count);
            });
        } else {
            shared.settle(count);
        }
    }
}

/// Sends commands to other nodes.
pub struct Sender {
    shared: Arc<Shared>,
    /// One for each shard and owner.
    channels: Mutex<BTreeMap<(usize, u16), Arc<Channel>>>,
    /// Shards in the order in which they came.
    threads: Mutex<Vec<ThreadId>>,
}

impl Sender {
    /// Over connections of `dial`, while `permit` says that this node may answer.
    #[must_use]
    pub fn new(dial: Arc<dyn Dial>, permit: Arc<dyn AnswerPermit>) -> Arc<Self> {
        let shared = Shared {
            dial,
            permit,
            nexuses: Mutex::default(),
            unsettled: AtomicUsize::new(0),
            settled: Notify::new(),
        };
        Arc::new(Self { shared: Arc::new(shared), channels: Mutex::default(), threads: Mutex::default() })
    }

    /// The connection of this shard to a node.
    fn channel(&self, owner: u16) -> Arc<Channel> {
        let thread = std::thread::current().id();
        let shard = {
            let mut threads = self.threads.lock();
            threads.iter().position(|known| *known == thread).unwrap_or_else(|| {
                threads.push(thread);
                threads.len() - 1
            })
        };
        let mut channels = self.channels.lock();
        channels
            .entry((shard, owner))
            .or_insert_with(|| {
                let channel = Channel::new(self.shared.clone(), owner, shard as u32);
                drop(shard_runtime::spawn_local(link::keep(channel.clone())));
                drop(shard_runtime::spawn_local(link::turn(channel.clone())));
                channel
            })
            .clone()
    }

    /// `arrived` is the time at which it came from the initiator.
    async fn send(&self, to: Place, nexus: &Nexus, work: Work, arrived: u64) -> Ending {
        let shared = &self.shared;
        if shared.unsettled.load(Ordering::SeqCst) > 0 {
            self.settled().await;
        }
        let Some(own) = shared.nexuses.lock().get(&nexus.id).cloned() else { return Ending::NotBegun };
        self.channel(to.node).send(own, to, work, arrived).await
    }
}

impl Forward for Sender {
    fn nexus_established(&self, nexus: &Arc<Nexus>) {
        let port = Port {
            nexus: nexus.id,
            initiator: nexus.initiator.to_lowercase(),
            initiator_port: nexus.initiator_port,
            target: nexus.target.clone(),
            target_port: nexus.target_port,
        };
        let own = Own { port, life: self.shared.permit.life() };
        self.shared.nexuses.lock().insert(nexus.id, Arc::new(own));
    }

    fn nexus_lost(&self, nexus: &Arc<Nexus>) {
        self.shared.nexuses.lock().remove(&nexus.id);
        let channels: Vec<Arc<Channel>> = self.channels.lock().values().cloned().collect();
        channels.iter().for_each(|channel| channel.lose(nexus.id));
    }

    fn now(&self) -> u64 {
        self.shared.dial.now()
    }

    fn execute<'a>(
        &'a self,
        to: Place,
        nexus: &'a Arc<Nexus>,
        command: ScsiCommand,
        arrived: u64,
    ) -> ScsiFuture<'a, Brought> {
        Box::pin(async move {
            match self.send(to, nexus, Work::Command(command), arrived).await {
                Ending::Answered(response) => Brought::Ended(Some(response)),
                Ending::Unanswered | Ending::Managed(_) => Brought::Ended(None),
                Ending::NotBegun => Brought::NotBegun,
                Ending::Stale => Brought::Stale,
                Ending::Unknown => Brought::Unknown,
            }
        })
    }

    fn task_management<'a>(
        &'a self,
        to: Place,
        nexus: &'a Arc<Nexus>,
        function: TaskManagement,
    ) -> ScsiFuture<'a, Option<TaskManagementOutcome>> {
        Box::pin(async move {
            match self.send(to, nexus, Work::Manage(function), self.shared.dial.now()).await {
                Ending::Managed(outcome) => Some(outcome),
                _ => None,
            }
        })
    }

    fn settled(&self) -> ScsiFuture<'_, ()> {
        Box::pin(async move {
            let all = async {
                loop {
                    let settled = self.shared.settled.notified();
                    tokio::pin!(settled);
                    settled.as_mut().enable();
                    if self.shared.unsettled.load(Ordering::SeqCst) == 0 {
                        return;
                    }
                    settled.await;
                }
            };
            // Whatever becomes of connections, after this nothing of what was dropped is begun any more.
            let _ = shard_runtime::timeout(2 * MAX_AGE + Duration::from_millis(100), all).await;
        })
    }
}
