//! Requests that are dropped with their connection, with one of several connections, or by a CANCEL, at each of their waits.
//!
//! ```text
//!   cases (what is asked)  ─►  world (server, two clients, a slow store, virtual time)  ─►  look (what must hold after it)
//! ```
//! What the product drops, and this does: the packets that are under way when a connection ends, but for those that are marked to
//! outlive it, and a request that is cancelled once it has been answered with PENDING.
//!
//! Beside these, in the same world: what hosts say of flows (`storage_qos`), shares that are on their way (`expected_shares`), and what one
//! user leaves to others (`places`, `connections`), what a CANCEL may be told of (`cancelled`).

mod cancelled;
mod cases;
mod cases_controls;
mod cases_info;
mod client;
mod connections;
mod dropped;
mod expected_shares;
mod look;
mod places;
mod recorded;
mod storage_qos;
mod world;
