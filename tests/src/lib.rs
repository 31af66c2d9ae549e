//! End-to-end tests: real clients against the real binary.
//!
//! A **case** is a named function that starts a node of its own in a folder of its own, lets stock clients (the kernel of
//! a guest VM, libiscsi's suite, QEMU, tshark) work on it, hurts it, and looks whether every promise held. Each case is
//! one line in [`cases::CASES`]; the runner is `cargo run -p tests --bin e2e` (`make e2e`, and the small set in
//! `make test`).
//!
//! ```text
//!   bin/e2e.rs     picks cases, prints ok / FAIL / skip and the closing line
//!   cases/         what is promised, one file per client
//!   api.rs         the node's API over one connection, for cases that ask a thousand times
//!   node.rs        a Holdfast node: start, CLI, kill -9, restart, its log
//!   guest.rs       the test guest: a script inside it, and its output line by line
//!   notes.rs       what a case tells beside its verdict
//!   peer.rs        Debian's tgt in the node's place: is it the case or is it Holdfast?
//!   process.rs     programs that are started here end here
//! ```
//!
//! Invariants: a case waits for events (a line of output, a state in `holdfast status`), never for time to pass. It ends
//! every process that it started, by its id. Ports are chosen by the system. A WARN or ERROR line in the node's log
//! that the case did not announce fails the case. A program that is missing makes a case *skipped*, with the reason;
//! it never makes it pass.
//!
//! What it does not do: measure speed (`bench/`), inject power cuts (`crates/pool/pool/src/tests/crash.rs`).

pub mod api;
pub mod cases;
pub mod fuzz_targets;
pub mod guest;
pub mod node;
pub mod notes;
pub mod peer;
pub mod process;

use std::fmt;

/// How a case ends when it does not end well.
#[derive(Debug)]
pub enum Outcome {
    /// Something that the case needs is not on this machine.
    Skip(String),
    /// A promise was broken.
    Fail(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skip(why) | Self::Fail(why) => f.write_str(why),
        }
    }
}

impl From<String> for Outcome {
    fn from(why: String) -> Self {
        Self::Fail(why)
    }
}

impl From<std::io::Error> for Outcome {
    fn from(error: std::io::Error) -> Self {
        Self::Fail(error.to_string())
    }
}

/// Result of a case or of a step of one.
pub type Result<T = ()> = std::result::Result<T, Outcome>;

/// Fails with `what` unless `holds`.
pub fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result {
    if holds { Ok(()) } else { Err(Outcome::Fail(what())) }
}
