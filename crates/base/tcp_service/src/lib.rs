//! What every service over TCP needs, whatever its protocol: listeners whose connections are spread over the shards, a
//! bound on what strangers can take, another on what all peers together make the node hold, a buffer to receive into that costs only
//! who receives, and a queue that sends headers and data in one system call.
//!
//! ```text
//!   Listeners ─ accept ─► seat (connections of the listener) ─► login seat (not logged in, by address) ─► shard ─► serve
//!   Budget: memory for the requests of all peers ─► Account: what one connection holds of it
//!   Answers: whether anything may leave at all, asked for each writev
//!   LoopWatch: whether the shard stood still, asked before a connection goes on
//!   ReceiveBuffer: lent by the thread while something comes
//!   SendQueue: small pieces copied into one buffer, large ones as they are ─► one writev
//! ```
//! Invariants: a connection whose peer is gone without a word ends within minutes, as the system asks whether it is there.
//! A connection holds its seats until it is dropped; a login seat may be given back earlier, when the peer has proven who it is.
//! It begins in a life of the node, before which nothing of it is read, and ends with that.

mod answers;
mod budget;
mod listeners;
mod network;
mod receive_buffer;
mod seats;
mod send_queue;
mod stand_still;
#[cfg(test)]
mod tests;
mod throttle;

pub use answers::{AnswerPermit, Answers};
pub use budget::{
    ALLOWANCE, Account, Admission, Budget, BudgetUse, CONNECTION, MIN_BUDGET, MIN_PROGRESS, QUIET_SWEEPS,
    SHOWN,
};
pub use listeners::{Arrived, Limits, Listeners, Serve, UNACKNOWLEDGED};
pub use network::network_of;
pub use receive_buffer::{RECEIVE_BUFFER, ReceiveBuffer};
pub use seats::LoginSeat;
pub use send_queue::SendQueue;
pub use stand_still::LoopWatch;
pub use throttle::Throttle;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use shard_runtime::Shard;

/// Work for a shard: makes the future there, which then stays.
pub type ShardJob = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Where connections run. The node implements it over its shards.
pub trait Spawner: Send + Sync + 'static {
    /// How many shards there are; at least one.
    fn shards(&self) -> usize;
    /// Starts `job` on shard `shard` (below [`Spawner::shards`]), inside its `LocalSet`.
    fn spawn(&self, shard: usize, job: ShardJob);
    /// Whether connections may answer.
    fn answers(&self) -> Answers {
        Answers::default()
    }
    /// What notices that this shard's loop stood still; none where that is of no consequence.
    fn watch(&self, _shard: usize) -> Option<Arc<dyn LoopWatch>> {
        None
    }
}

impl Spawner for Vec<Shard> {
    fn shards(&self) -> usize {
        self.len()
    }

    fn spawn(&self, shard: usize, job: ShardJob) {
        // A shard that is gone takes its connections with it: the node is stopping.
        if self.get(shard).is_none_or(|shard| shard.spawn(job).is_err()) {
            tracing::debug!(shard, "work dropped: the shard has stopped");
        }
    }
}
