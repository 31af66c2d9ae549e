//! Nodes of a cluster: pools on disks that all reach, owned by one at a time. Parts are in memory, the ownership is real.
#![cfg(feature = "memory")]
#![allow(clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod addresses;
mod anywhere;
mod apart;
mod balance;
#[path = "../common/mod.rs"]
mod common;
mod glance;
mod local;
mod modes;
mod names;
mod restored;
mod shared;
mod takeover;
mod unfenced;
mod world;
mod write_caches;
