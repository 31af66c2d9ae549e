//! The API over the network as its clients see it, over real TLS connections: who may ask what, how one logs in, what is
//! refused, and that secrets stay where they are. Parts are in memory.
#![cfg(feature = "memory")]
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod accounts;
mod changes;
mod client;
mod events;
mod hostile;
mod listeners;
mod login;
mod roles;
mod secrets;
mod world;
