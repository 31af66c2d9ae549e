//! A node of a cluster at work: `pool_ownership` decides, this carries it out.
//!
//! ```text
//!    ClusterStore                other nodes                     control plane: PoolDriver
//!   (etcd, local, …)          (links, TLS 1.3)               fence, open, restore, publish, stop
//!     │ read, watch  ▲ transactions   │ ▲ ask, promise                │ done, failed   ▲ orders
//!     ▼ follow       │ one task each  ▼ │                             ▼                │ one task for each pool
//!   ┌────────────────┴──────────────────┴──────────────────────────────────────────────┴─────┐
//!   │ life: one loop that only receives; each event goes into pool_ownership::Node::handle    │
//!   └──────────────────────────────────────────┬──────────────────────────────────────────────┘
//!                                              ▼ Permit: one number in memory
//!                            shards: "may I answer now?", before an answer is queued
//! ```
//! Invariants:
//! * The loop waits for nothing but its next event. Whatever takes time is a task that sends an event when it is done; queues are
//!   bounded, and whoever fills one waits (events) or is left out (messages, which are asked for again).
//! * A [`Permit`] is taken back before the order that makes it necessary is given, and never comes back for the same epoch.
//! * Orders of one pool never overlap: [`Order::Stop`] waits until the one before has ended at one of its waits.
//! * Time is CLOCK_BOOTTIME ([`boot_time`]): a machine that has slept finds its permit over.
//! * A life has a number that no life of this node had before, on disk before it is used ([`Incarnations`]). It replaces the one before only if
//!   the process of that is certainly gone: this data directory began it on this machine, and its lock is ours. Anybody else who lives under
//!   this node's number is left to the other members to evict.
//!
//! Deliberately absent: what fencing or opening a pool is (the control plane's), load, joining with a token.

mod back;
mod clock;
mod driver;
mod entry;
mod follow;
pub mod fuzz;
mod incarnation;
mod life;
mod links;
mod options;
mod permit;
mod remembered;
mod running;
mod status;
mod tls;
mod watchdog;
mod wire;

pub use clock::boot_time;
pub use driver::{DriverFuture, Ownership, PoolDriver};
pub use incarnation::{IncarnationError, Incarnations, life_that_is_over};
pub use life::ClusterNode;
pub use links::{Aside, Hears, LinkStatus, Round};
pub use options::{NodeError, NodeOptions};
pub use permit::{NodePermit, Permit};
pub use pool_ownership::{BootTime, Failure, NodeSight, Order, Phase, PoolSight, Settings, Sight, Timings};
pub use remembered::forget;
pub use status::{MemberState, PoolState, Status, StoreWentBack};
pub use tls::{LinkTls, TlsError, is_of, node_name};
pub use watchdog::Watchdog;
