//! The named pipes of IPC$: remote procedure calls, on threads of their own.
//!
//! A call may list a hundred thousand opens, or wait for the control plane to make a share, so none runs on a shard: the
//! connection that asked waits as it waits for a disk, and serves other requests meanwhile.

use std::sync::Arc;

use rpc::{RpcClient, RpcPipe, RpcService};
use smb_protocol::NtStatus;
use smb_server::{Pipe, PipeClient, PipeService, PipeWork};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Semaphore};

use super::view::{NodeView, canonical};

/// Most calls at a time: others wait, so that clients cannot take all of the control plane's threads.
const CALLS_MAX: usize = 32;

/// Opens pipes.
pub(super) struct Pipes {
    service: RpcService,
    view: Arc<NodeView>,
    runtime: Handle,
    seats: Arc<Semaphore>,
}

impl Pipes {
    /// Pipes that show `view`; their calls run on `runtime`'s threads for what blocks.
    pub(super) fn new(view: Arc<NodeView>, runtime: Handle) -> Self {
        let service = RpcService::new(view.clone(), view.clone());
        Self { service, view, runtime, seats: Arc::new(Semaphore::new(CALLS_MAX)) }
    }
}

impl PipeService for Pipes {
    fn open(&self, name: &str, client: &PipeClient) -> Result<Arc<dyn Pipe>, NtStatus> {
        let client = RpcClient {
            user: client.user.clone(),
            domain: self.view.machine_name(),
            from: format!("smb {}", canonical(client.remote)),
            sid: client.sid,
            is_administrator: client.is_administrator,
        };
        let pipe = Arc::new(self.service.open(name, client)?);
        let (runtime, seats) = (self.runtime.clone(), self.seats.clone());
        Ok(Arc::new(NodePipe { pipe, turn: Arc::default(), runtime, seats }))
    }
}

/// An open pipe.
struct NodePipe {
    pipe: Arc<RpcPipe>,
    /// Held, on whatever thread, by who uses the pipe: a shard must never wait for the pipe's own lock.
    turn: Arc<Mutex<()>>,
    runtime: Handle,
    seats: Arc<Semaphore>,
}

impl NodePipe {
    /// Uses the pipe on another thread, when it is this request's turn.
    async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&RpcPipe) -> T + Send + 'static,
    ) -> Result<T, NtStatus> {
        let turn = self.turn.clone().lock_owned().await;
        // Neither is ever closed; the runtime ends with the node.
        let seat = self.seats.clone().acquire_owned().await.map_err(|_| NtStatus::PIPE_DISCONNECTED)?;
        let pipe = self.pipe.clone();
        let done = self.runtime.spawn_blocking(move || {
            // Who asked may have gone: its call goes on to its end, and what comes after it waits.
            let _held = (turn, seat);
            work(&pipe)
        });
        done.await.map_err(|_| NtStatus::PIPE_DISCONNECTED)
    }
}

impl Pipe for NodePipe {
    fn write(&self, bytes: Vec<u8>) -> PipeWork<'_, Result<(), NtStatus>> {
        Box::pin(async move { self.apart(move |pipe| pipe.write(&bytes)).await? })
    }

    fn read(&self, limit: usize) -> PipeWork<'_, Option<(Vec<u8>, bool)>> {
        // Also apart: room for answers lets requests that waited go on.
        Box::pin(async move { self.apart(move |pipe| pipe.read(limit)).await.ok().flatten() })
    }

    fn transceive(&self, bytes: Vec<u8>, limit: usize) -> PipeWork<'_, Result<(Vec<u8>, bool), NtStatus>> {
        Box::pin(async move {
            self.apart(move |pipe| {
                pipe.write(&bytes)?;
                Ok(pipe.read(limit).unwrap_or_default())
            })
            .await?
        })
    }

    fn available(&self) -> (usize, usize) {
        // What is being answered is not there yet.
        self.turn.try_lock().map_or((0, 0), |_turn| self.pipe.available())
    }
}
