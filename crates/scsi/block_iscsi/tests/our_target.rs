//! The disk over our own target: the contracts of block devices and of reservations, and what the network does to it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod rig;
#[path = "../../iscsi_target/tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_conformance::{SharedSubject, Subject, SubjectFuture};
use block_device::{BlockDevice, BlockErrorKind, Device, Durability, Reservations};
use futures_util::future::{join, join_all};
use iscsi_protocol::chap::{ChapUser, Secret};
use iscsi_target::AuthConfig;
use parking_lot::Mutex;
use rig::{Make, Relay, Rig, TARGET, hasty, on_shard, open, settings};

/// Makes a target for each disk, and keeps it.
struct Targets {
    make: Make,
    lanes: usize,
    query: &'static str,
    rigs: Mutex<Vec<Rig>>,
}

impl Targets {
    fn new(make: Make, lanes: usize, query: &'static str) -> Self {
        Self { make, lanes, query, rigs: Mutex::default() }
    }

    async fn disks(&self, initiators: usize) -> Vec<Device> {
        let rig = Rig::new(self.make.clone()).await;
        let mut disks = Vec::new();
        for node in 0..initiators {
            let settings = settings(rig.address, TARGET, 0, node as u8 + 1, self.lanes, self.query);
            disks.push(Arc::new(open(settings).await.unwrap()) as Device);
        }
        self.rigs.lock().push(rig);
        disks
    }
}

impl Subject for Targets {
    fn create(&self) -> SubjectFuture<'_, Device> {
        Box::pin(async { self.disks(1).await.remove(0) })
    }
}

impl SharedSubject for Targets {
    fn create_shared(&self, initiators: usize) -> SubjectFuture<'_, Vec<Device>> {
        Box::pin(self.disks(initiators))
    }
}

#[test]
fn conforms() {
    let make = |block, write_cache| Make { block, write_cache, ..Make::default() };
    for (make, lanes, query) in [
        (make(512, false), 1, ""),
        (make(4096, true), 3, ""),
        (make(512, true), 2, "?header_digest=crc32c&data_digest=crc32c"),
    ] {
        on_shard(async {
            let targets = Targets::new(make, lanes, query);
            let options = block_conformance::Options::seeded(18);
            block_conformance::run(&targets, options)
                .await
                .unwrap_or_else(|failure| panic!("{lanes} {query}: {failure}"));
        });
    }
}

#[test]
fn reservations_conform() {
    for lanes in [1, 3] {
        on_shard(async {
            let targets = Targets::new(Make::default(), lanes, "");
            block_conformance::run_reservations(&targets)
                .await
                .unwrap_or_else(|failure| panic!("{lanes}: {failure}"));
        });
    }
}

#[test]
fn both_prove_who_they_are() {
    on_shard(async {
        let user = |name: &str, secret: &str| ChapUser { name: name.into(), secret: Secret::new(secret) };
        let (ours, theirs) = (user("node", "a secret of ours"), user("target", "a secret of theirs"));
        let auth = AuthConfig::Chap { users: vec![ours.clone().into()], mutual: Some(theirs.clone()) };
        let rig = Rig::new(Make { auth, ..Make::default() }).await;
        let with = |mine: Option<&ChapUser>, other: Option<&ChapUser>| {
            let mut settings = settings(rig.address, TARGET, 0, 1, 1, "");
            (settings.login.user, settings.login.target_user) = (mine.cloned(), other.cloned());
            open(settings)
        };
        assert!(with(Some(&ours), Some(&theirs)).await.is_ok());
        assert!(with(None, None).await.is_err(), "let in without a secret");
        assert!(
            with(Some(&user("node", "a wrong secret...")), None).await.is_err(),
            "let in with a wrong secret"
        );
        let impostor = user("target", "another secret!!");
        assert!(
            with(Some(&ours), Some(&impostor)).await.is_err(),
            "a target with another secret is believed"
        );
    });
}

fn data(len: usize, byte: u8) -> SharedBuf {
    IoBuf::copy_from(&vec![byte; len]).freeze()
}

async fn kind<T>(work: impl Future<Output = Result<T, block_device::BlockError>>) -> Option<BlockErrorKind> {
    work.await.err().map(|error| error.kind())
}

const PIECE: usize = 200 << 10;
const WRITES: usize = 5;

/// Cuts the connection at each PDU of a handful of writes, once: all of them come through, and nothing of their first sendings
/// lands later.
#[test]
fn a_cut_at_any_pdu_loses_nothing() {
    let mut cuts = 0;
    for pdus in 0..400 {
        let over = on_shard(async {
            let rig = Rig::new(Make::default()).await;
            let relay = Relay::new(rig.address);
            let disk = open(settings(relay.address, TARGET, 0, 1, 1 + pdus as usize % 2, "")).await.unwrap();
            relay.cut_after(pdus);
            for round in 1..=2_u8 {
                let writes = (0..WRITES).map(|n| {
                    let byte = round * 16 + n as u8;
                    disk.write((n * PIECE) as u64, data(PIECE, byte), Durability::Durable)
                });
                for written in join_all(writes).await {
                    written.unwrap_or_else(|error| panic!("cut at {pdus}: {error:?}"));
                }
                let whole = rig.medium.read(0, IoBuf::new(WRITES * PIECE)).await.unwrap();
                for (n, piece) in whole.chunks(PIECE).enumerate() {
                    assert!(
                        piece.iter().all(|byte| *byte == round * 16 + n as u8),
                        "cut at {pdus}: piece {n} of {round}"
                    );
                }
            }
            let whole = disk.read(0, IoBuf::new(WRITES * PIECE)).await.unwrap();
            assert!(
                whole
                    .chunks(PIECE)
                    .enumerate()
                    .all(|(n, piece)| piece.iter().all(|byte| *byte == 32 + n as u8))
            );
            !relay.was_cut()
        });
        if over {
            break;
        }
        cuts += 1;
    }
    assert!((20..400).contains(&cuts), "{cuts} cuts");
}

#[test]
fn a_target_that_comes_back_in_time_is_not_missed_and_one_that_stays_away_is_gone() {
    on_shard(async {
        let rig = Rig::new(Make::default()).await;
        let relay = Relay::new(rig.address);
        let disk = open(settings(relay.address, TARGET, 0, 1, 2, "")).await.unwrap();
        disk.write(0, data(4096, 1), Durability::Durable).await.unwrap();
        relay.refuse();
        let back = async {
            shard_runtime::sleep(Duration::from_millis(200)).await;
            relay.pass();
        };
        let (written, ()) = join(disk.write(4096, data(4096, 2), Durability::Durable), back).await;
        written.unwrap();
        assert_eq!(disk.read(4096, IoBuf::new(4096)).await.unwrap()[0], 2);
        drop(disk);
        let mut brief = settings(relay.address, TARGET, 0, 1, 2, "");
        brief.times = hasty();
        let disk = open(brief).await.unwrap();
        relay.refuse();
        let gone = Some(BlockErrorKind::Gone);
        assert_eq!(kind(disk.write(0, data(4096, 3), Durability::Durable)).await, gone);
        // For good: what it missed must be found out by whoever opens it anew.
        relay.pass();
        assert_eq!(kind(disk.read(0, IoBuf::new(4096))).await, gone);
        assert_eq!(kind(disk.flush()).await, gone);
        let disk = open(settings(relay.address, TARGET, 0, 1, 2, "")).await.unwrap();
        assert_eq!(disk.read(4096, IoBuf::new(4096)).await.unwrap()[0], 2);
    });
}

#[test]
fn a_target_that_answers_nothing_is_given_up() {
    on_shard(async {
        let rig = Rig::new(Make::default()).await;
        let relay = Relay::new(rig.address);
        let mut brief = settings(relay.address, TARGET, 0, 1, 2, "");
        brief.times = hasty();
        let disk = open(brief).await.unwrap();
        relay.mute();
        let both = join(disk.write(0, data(4096, 3), Durability::Durable), disk.read(8192, IoBuf::new(4096)));
        let (written, read) = both.await;
        assert_eq!(written.err().map(|error| error.kind()), Some(BlockErrorKind::Gone));
        assert_eq!(read.err().map(|error| error.kind()), Some(BlockErrorKind::Gone));
    });
}

/// Another unit, of the same name and size, behind the same address: it is not written to.
#[test]
fn another_unit_in_its_place_is_not_taken_for_it() {
    on_shard(async {
        let (rig, other) = (Rig::new(Make::default()).await, Rig::other().await);
        let relay = Relay::new(rig.address);
        let disk = open(settings(relay.address, TARGET, 0, 1, 1, "")).await.unwrap();
        relay.lead_to(other.address);
        assert_eq!(kind(disk.write(0, data(4096, 3), Durability::Durable)).await, Some(BlockErrorKind::Gone));
        assert_eq!(other.medium.read(0, IoBuf::new(4096)).await.unwrap()[0], 0);
    });
}

/// Preempted while it was not connected: it is told so by the first write.
#[test]
fn who_is_preempted_while_away_is_fenced_when_back() {
    on_shard(async {
        let rig = Rig::new(Make::default()).await;
        let relay = Relay::new(rig.address);
        let old = open(settings(relay.address, TARGET, 0, 1, 2, "")).await.unwrap();
        let new = open(settings(rig.address, TARGET, 0, 2, 2, "")).await.unwrap();
        let reservations = |disk| -> &dyn Reservations { BlockDevice::reservations(disk).unwrap() };
        reservations(&old).register(1).await.unwrap();
        reservations(&old).reserve(1).await.unwrap();
        old.write(0, data(4096, 1), Durability::Durable).await.unwrap();
        relay.refuse();
        reservations(&new).register(2).await.unwrap();
        reservations(&new).preempt_and_abort(2, 1).await.unwrap();
        new.write(0, data(4096, 2), Durability::Durable).await.unwrap();
        relay.pass();
        for _ in 0..3 {
            assert_eq!(
                kind(old.write(0, data(4096, 9), Durability::Durable)).await,
                Some(BlockErrorKind::Fenced)
            );
        }
        assert_eq!(old.read(0, IoBuf::new(4096)).await.unwrap()[0], 2);
        // A fresh claim makes it an owner again, through all its lanes.
        reservations(&old).register(3).await.unwrap();
        reservations(&old).preempt_and_abort(3, 2).await.unwrap();
        for n in 0..8_u64 {
            old.write(n * 4096, data(4096, 3), Durability::Durable).await.unwrap();
        }
        assert_eq!(
            kind(new.write(0, data(4096, 9), Durability::Durable)).await,
            Some(BlockErrorKind::Fenced)
        );
    });
}

/// What was let in before the target forgot who it is waits in a queue: where nobody holds a reservation either, only we keep it back.
#[test]
fn what_waits_for_a_session_is_not_written_once_the_registration_is_gone() {
    on_shard(async {
        let rig = Rig::new(Make::default()).await;
        let relay = Relay::new(rig.address);
        let mut narrow = settings(relay.address, TARGET, 0, 1, 1, "");
        narrow.login.depth = 2;
        let old = open(narrow).await.unwrap();
        let new = open(settings(rig.address, TARGET, 0, 2, 1, "")).await.unwrap();
        let reservations = |disk| -> &dyn Reservations { BlockDevice::reservations(disk).unwrap() };
        reservations(&old).register(1).await.unwrap();
        old.write(0, data(4096, 1), Durability::Durable).await.unwrap();
        relay.refuse();
        let writes = (0..8_u64).map(|n| kind(old.write(n * 4096, data(4096, 9), Durability::Durable)));
        let forgotten = async {
            reservations(&new).register(2).await.unwrap();
            reservations(&new).preempt_and_abort(2, 1).await.unwrap();
            relay.pass();
        };
        let (ended, ()) = join(futures_util::future::join_all(writes), forgotten).await;
        assert_eq!(ended, [Some(BlockErrorKind::Fenced); 8]);
        assert_eq!(new.read(0, IoBuf::new(4096)).await.unwrap()[0], 1);
        assert_eq!(new.read(7 * 4096, IoBuf::new(4096)).await.unwrap()[0], 0);
    });
}
