//! The vote that is not on a disk of the pool.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;

use parking_lot::Mutex;
use pool_format::{Epoch, Guid, Seq};

/// The future of a witness.
pub type WitnessFuture<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + 'a>>;

/// What came of a vote that a witness was asked for.
#[must_use = "a vote that was refused is none"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// It is given, durably.
    Given,
    /// The pool has an owner of this epoch, which is a higher one: whoever asked owns it no longer.
    Refused(Epoch),
}

/// Remembers the newest epoch and change of a pool, apart from its disks.
///
/// With an even number of metadata disks the witness is one more vote. It is told at every opening, and of
/// changes that did not reach all metadata disks; so a disk that knows less than the witness has missed
/// something and is never believed alone.
pub trait QuorumWitness: Send + Sync + 'static {
    /// What was last stored for the pool.
    fn load(&self, pool: Guid) -> WitnessFuture<'_, Option<(Epoch, Seq)>>;

    /// Remembers durably, unless a higher epoch of the pool is known: comparing and remembering are one. An error may mean either.
    fn store(&self, pool: Guid, epoch: Epoch, seq: Seq) -> WitnessFuture<'_, Vote>;

    /// The node that remembers: the pools that it opens are its own until it lets go of them. One that says nothing takes every
    /// pool, and owns none.
    fn node(&self) -> Option<Node> {
        None
    }

    /// The pool is no more. Forgetting what was never known is no error.
    fn forget(&self, pool: Guid) -> WitnessFuture<'_, ()>;
}

/// A node that has pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its identity.
    pub id: Guid,
    /// Its name, for messages.
    pub name: String,
}

/// A witness in memory, for tests.
#[derive(Default)]
pub struct MemoryWitness(Mutex<BTreeMap<Guid, (Epoch, Seq)>>, Option<Node>);

impl MemoryWitness {
    /// That of a node.
    #[must_use]
    pub fn of(node: Node) -> Self {
        Self(Mutex::default(), Some(node))
    }
}

impl QuorumWitness for MemoryWitness {
    fn load(&self, pool: Guid) -> WitnessFuture<'_, Option<(Epoch, Seq)>> {
        Box::pin(async move { Ok(self.0.lock().get(&pool).copied()) })
    }

    fn node(&self) -> Option<Node> {
        self.1.clone()
    }

    fn store(&self, pool: Guid, epoch: Epoch, seq: Seq) -> WitnessFuture<'_, Vote> {
        Box::pin(async move {
            let mut known = self.0.lock();
            if let Some((higher, _)) = known.get(&pool).filter(|(known, _)| *known > epoch) {
                return Ok(Vote::Refused(*higher));
            }
            known.insert(pool, (epoch, seq));
            Ok(Vote::Given)
        })
    }

    fn forget(&self, pool: Guid) -> WitnessFuture<'_, ()> {
        Box::pin(async move {
            self.0.lock().remove(&pool);
            Ok(())
        })
    }
}
