//! Devices around devices.
//!
//! [`WatchedDisk`] counts what goes through it and does wrong what it is told to: each disk of a node is in one, so that
//! statistics are always there, and a test can switch faults on in a running node.

mod fault;
mod watched;

#[cfg(test)]
mod tests;

pub use fault::{Fault, FaultKind, FaultOperation};
pub use watched::WatchedDisk;
