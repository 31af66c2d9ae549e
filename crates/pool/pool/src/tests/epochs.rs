//! The epoch that an owner opens a pool in, and a witness that knows of a later one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aligned_buffer::IoBuf;
use block_device::BlockDevice;
use block_device::Durability;

use super::{Bench, SLAB, on_shard};
use crate::{
    Epoch, Guid, MemoryWitness, OpenOptions, Pool, PoolErrorKind, QuorumWitness, Resiliency, Seq, SpaceSpec,
    Vote, WitnessFuture,
};

/// Counts how often it is asked to vote.
#[derive(Default)]
struct Counting {
    memory: MemoryWitness,
    asked: AtomicU64,
}

impl QuorumWitness for Counting {
    fn load(&self, pool: Guid) -> WitnessFuture<'_, Option<(Epoch, Seq)>> {
        self.memory.load(pool)
    }

    fn store(&self, pool: Guid, epoch: Epoch, seq: Seq) -> WitnessFuture<'_, Vote> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.memory.store(pool, epoch, seq)
    }

    fn forget(&self, pool: Guid) -> WitnessFuture<'_, ()> {
        self.memory.forget(pool)
    }
}

fn in_epoch(epoch: u64) -> OpenOptions {
    OpenOptions { epoch: Some(Epoch(epoch)), ..OpenOptions::default() }
}

fn written(bench: &Bench) -> Vec<u64> {
    bench.disks.iter().map(|disk| disk.written.load(Ordering::SeqCst)).collect()
}

#[test]
fn a_pool_is_opened_in_its_owners_epoch_or_not_touched() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create().await;
        let guid = pool.guid();
        pool.close().await.expect("close");
        let open = |options| Pool::open(guid, bench.devices(), options, bench.surroundings.clone());
        let pool = open(in_epoch(40)).await.expect("above all that is known");
        assert_eq!(pool.status().epoch, Epoch(40));
        pool.close().await.expect("close");
        let before = written(&bench);
        for old in [1, 39, 40] {
            let error = open(in_epoch(old)).await.err().expect("not above");
            assert_eq!(error.kind(), PoolErrorKind::OldEpoch(Epoch(40)), "{error}");
        }
        assert_eq!(written(&bench), before, "nothing was changed");
        let pool = open(in_epoch(41)).await.expect("above");
        assert_eq!(pool.status().epoch, Epoch(41));
        pool.close().await.expect("close");
        let pool = open(OpenOptions::default()).await.expect("the next one");
        assert_eq!(pool.status().epoch, Epoch(42));
    });
}

/// The vote of the witness counts for the owner of the highest epoch that it knows, and for nobody else.
#[test]
fn a_witness_that_knows_a_higher_epoch_stops_the_pool() {
    on_shard(async {
        let bench = Bench::new(2);
        let pool = bench.create().await;
        let guid = pool.guid();
        pool.create_space(SpaceSpec::thin("a", Resiliency::Mirror(2), SLAB)).await.expect("both disks");
        let later = Epoch(pool.status().epoch.0 + 1);
        let vote = bench.surroundings.witness.store(guid, later, Seq(0)).await.expect("remembers");
        assert_eq!(vote, Vote::Given);
        pool.create_space(SpaceSpec::thin("b", Resiliency::Mirror(2), SLAB)).await.expect("nobody is asked");
        bench.disks[1].gone.store(true, Ordering::SeqCst);
        let refused = pool.create_space(SpaceSpec::thin("c", Resiliency::Mirror(2), SLAB)).await;
        assert_eq!(refused.err().map(|error| error.kind()), Some(PoolErrorKind::Stopped));
        assert!(pool.status().superseded && pool.status().stopped);
        bench.disks[1].gone.store(false, Ordering::SeqCst);
        let open = |epoch, accept_loss| {
            let options = OpenOptions { accept_loss, ..in_epoch(epoch) };
            Pool::open(guid, bench.devices(), options, bench.surroundings.clone())
        };
        let refused = open(later.0 + 1, false).await.err().expect("the disks lack what the witness knows");
        assert_eq!(refused.kind(), PoolErrorKind::NoQuorum);
        let refused = open(later.0, true).await.err().expect("not above what the witness knows");
        assert_eq!(refused.kind(), PoolErrorKind::OldEpoch(later));
        let pool = open(later.0 + 1, true).await.expect("above, and told that the loss is accepted");
        assert!(pool.space("a").is_some());
    });
}

/// Where the disks are a majority by themselves the witness is told once of a voter that lags; where its vote counts, each time.
#[test]
fn the_witness_is_asked_when_its_vote_counts() {
    for (disks, needs_vote) in [(2, true), (3, false), (4, false)] {
        on_shard(async {
            let mut bench = Bench::new(disks);
            let witness = Arc::new(Counting::default());
            bench.surroundings.witness = witness.clone();
            let pool = bench.create().await;
            let guid = pool.guid();
            let make = async |name: &str| {
                let space = pool.create_space(SpaceSpec::thin(name, Resiliency::Simple, SLAB)).await;
                drop(space.expect("a majority"));
                pool.core.meta.commits()
            };
            let asked = || witness.asked.load(Ordering::Relaxed);
            make("whole").await;
            let before = asked();
            make("whole too").await;
            assert_eq!(asked(), before, "all voters are there");
            bench.disks[1].gone.store(true, Ordering::SeqCst);
            let first = make("one lags").await;
            assert!(asked() > before, "{disks} disks: the witness knows that a disk lags");
            let before = asked();
            let last = make("it lags still").await;
            let expected = if needs_vote { last - first } else { 0 };
            assert_eq!(asked() - before, expected, "{disks} disks");
            // What lags is never believed alone, though the witness knows only the first batch that it missed.
            drop(pool);
            bench.disks[1].gone.store(false, Ordering::SeqCst);
            let surroundings = bench.surroundings.clone();
            let alone = Pool::open(guid, vec![bench.device(1)], OpenOptions::default(), surroundings).await;
            assert_eq!(alone.err().map(|error| error.kind()), Some(PoolErrorKind::NoQuorum));
            let pool = Pool::open(guid, bench.devices(), OpenOptions::default(), bench.surroundings.clone());
            let pool = pool.await.expect("all are here");
            assert!(pool.space("it lags still").is_some());
            let space = pool.space("whole").expect("there");
            space.write(0, IoBuf::zeroed(4096).freeze(), Durability::Durable).await.expect("writes");
        });
    }
}
