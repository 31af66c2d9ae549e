//! The store while etcd is killed, stands still, loses answers or its leader: what was answered stays, what was refused was not
//! done, and what is unknown was done once or not at all.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod scene;

use std::time::Duration;

use cluster_store::{Change, ClusterStore, Condition, Range, Revision, Step, StoreError, Transaction};
use cluster_store_etcd::{EtcdStore, Options, Patience};
use scene::{block_on, options, put, runtime, store};
use test_etcd::{Etcd, Proxy, is_installed};
use tokio::runtime::Runtime;

const COUNTER: &str = "/counter";

/// What one client knows of a counter that it raises, each time from the value that it expects: what may be done twice shows.
struct Counter {
    store: EtcdStore,
    /// The values that may be there.
    possible: Vec<u64>,
    seen: Revision,
    sure: bool,
    unknown: u32,
}

impl Counter {
    fn new(store: EtcdStore) -> Self {
        Self { store, possible: vec![0], seen: Revision(0), sure: true, unknown: 0 }
    }

    /// Raises it once, or finds out what became of the last time.
    async fn step(&mut self) -> Result<(), StoreError> {
        if !self.sure {
            let found = self.store.get(Range::Key(COUNTER.into())).await?.found.pop();
            let value = found.as_ref().map_or(0, |found| number(&found.value));
            assert!(self.possible.contains(&value), "{value} is there, {:?} were possible", self.possible);
            (self.possible, self.seen) = (vec![value], found.map(|found| found.modified).unwrap_or_default());
            // What was unknown may still be on its way until something else has changed the key.
            let fence = Transaction {
                conditions: vec![Condition::Modified(COUNTER.into(), self.seen)],
                steps: vec![Step::Put(COUNTER.into(), value.to_string().into())],
                reads: Vec::new(),
            };
            let fenced = self.store.transact(fence).await;
            match fenced {
                Ok(outcome) if outcome.done => (self.seen, self.sure) = (outcome.revision, true),
                // The old one has arrived after all, or the fence itself: look again.
                Ok(_) | Err(StoreError::Unknown(_)) => self.possible.push(value + 1),
                Err(error) => return Err(error),
            }
            return Ok(());
        }
        let value = self.possible[0];
        let raise = Transaction {
            conditions: vec![Condition::Modified(COUNTER.into(), self.seen)],
            steps: vec![Step::Put(COUNTER.into(), (value + 1).to_string().into())],
            reads: Vec::new(),
        };
        match self.store.transact(raise).await {
            Ok(outcome) => {
                assert!(outcome.done, "nobody else changes it, and what was refused was not done");
                (self.possible, self.seen) = (vec![value + 1], outcome.revision);
                Ok(())
            }
            Err(error) if error.is_certainly_not_done() => Err(error),
            Err(_) => {
                self.unknown += 1;
                (self.possible, self.sure) = (vec![value, value + 1], false);
                Ok(())
            }
        }
    }

    /// Goes on until it has been raised so much further.
    async fn raise(&mut self, by: u64) {
        let until = self.possible[0] + by;
        while !self.sure || self.possible[0] < until {
            if self.step().await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

fn number(value: &[u8]) -> u64 {
    String::from_utf8_lossy(value).parse().expect("a number")
}

fn impatient(options: Options) -> Options {
    let patience = Patience {
        connect: Duration::from_secs(1),
        request: Duration::from_secs(2),
        rotate_after: Duration::from_millis(200),
        watch_silence: Duration::from_secs(1),
    };
    Options { patience, ..options }
}

/// Reads and watches as a node does: what it has seen is in order, and complete.
async fn follow(store: EtcdStore, until: u64) -> Vec<Revision> {
    let (mut revisions, mut after) = (Vec::new(), Revision(0));
    let mut note = |change: &Change| {
        assert!(revisions.last().is_none_or(|last| *last < change.revision), "once each, in order");
        revisions.push(change.revision);
        change.now.as_ref().map_or(0, |found| number(&found.value))
    };
    loop {
        let Ok(mut watch) = store.watch(COUNTER.into(), after).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        while let Ok(changes) = watch.next().await {
            for change in changes {
                after = change.revision;
                if note(&change) >= until {
                    return revisions;
                }
            }
        }
    }
}

/// The counter under faults, followed by another client; all changes were seen at the end.
fn under(runtime: &Runtime, etcd: &mut Etcd, fault: impl AsyncFnOnce(&mut Etcd, &mut Counter)) -> Counter {
    let mut counter =
        Counter::new(EtcdStore::new(impatient(options(etcd)), runtime.handle().clone()).expect("options"));
    let follower = EtcdStore::new(impatient(options(etcd)), runtime.handle().clone()).expect("options");
    block_on(runtime, counter.raise(20));
    block_on(runtime, fault(etcd, &mut counter));
    block_on(runtime, counter.raise(20));
    let last = counter.possible[0];
    let seen = block_on(runtime, follow(follower, last));
    // As many changes as revisions of the key: none was missed.
    let found = block_on(runtime, counter.store.get(Range::Key(COUNTER.into()))).expect("read");
    assert_eq!(found.found[0].modified, *seen.last().expect("seen"));
    counter
}

#[test]
fn a_member_that_is_killed_and_comes_back() {
    if !is_installed() {
        return;
    }
    let (mut etcd, runtime) = (Etcd::start(1, &[]), runtime());
    under(&runtime, &mut etcd, async |etcd, counter| {
        for _ in 0..2 {
            etcd.kill(0);
            let error = async {
                loop {
                    if let Err(error) = counter.step().await {
                        break error;
                    }
                }
            };
            assert!(matches!(error.await, StoreError::NotDone(_)), "there is nobody to ask");
            etcd.restart(0);
            counter.raise(5).await;
        }
    });
}

#[test]
fn a_member_that_stands_still() {
    if !is_installed() {
        return;
    }
    let (mut etcd, runtime) = (Etcd::start(1, &[]), runtime());
    let counter = under(&runtime, &mut etcd, async |etcd, counter| {
        etcd.freeze(0);
        counter.step().await.expect("it was sent");
        assert!(!counter.sure, "nobody has answered: it is unknown");
        etcd.thaw(0);
        counter.raise(5).await;
    });
    assert!(counter.unknown > 0);
}

/// The answer is lost after the commit: the next look finds the change.
#[test]
fn an_answer_that_is_lost() {
    if !is_installed() {
        return;
    }
    let (etcd, runtime) = (Etcd::start(1, &[]), runtime());
    let direct = store(&etcd, &runtime);
    let proxy = Proxy::start(etcd.client_address(0));
    let (address, port) = proxy.address();
    let far = Options { endpoints: vec![format!("https://{address}:{port}")], ..impatient(options(&etcd)) };
    let far = EtcdStore::new(far, runtime.handle().clone()).expect("options");
    block_on(&runtime, far.transact(put("/a", "1"))).expect("the way is open");
    let mut watch = block_on(&runtime, far.watch("/a".into(), Revision(0))).expect("watched");
    block_on(&runtime, watch.next()).expect("told");
    proxy.mute(true);
    let (there, answer) = block_on(&runtime, async {
        let asked = far.transact(put("/a", "2"));
        let committed = async {
            loop {
                let found = direct.get(Range::Key("/a".into())).await.expect("read");
                if found.found[0].value == b"2" {
                    proxy.cut(true);
                    return true;
                }
            }
        };
        tokio::join!(committed, asked)
    });
    assert!(there && matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
    assert!(block_on(&runtime, watch.next()).is_err(), "a watch that was cut is over");
    // With the way closed nothing is sent.
    let error = block_on(&runtime, far.transact(put("/a", "3"))).expect_err("closed");
    assert!(matches!(error, StoreError::NotDone(_)), "{error}");
    proxy.mute(false);
    proxy.cut(false);
    block_on(&runtime, far.transact(put("/a", "4"))).expect("open again");
    let found = block_on(&runtime, direct.get(Range::Key("/a".into()))).expect("read").found;
    assert_eq!(found[0].value, b"4");
}

/// A watch whose etcd says nothing any more is noticed, although the connection stands.
#[test]
fn a_watch_that_hears_nothing_ends() {
    if !is_installed() {
        return;
    }
    let (etcd, runtime) = (Etcd::start(1, &[]), runtime());
    let store = EtcdStore::new(impatient(options(&etcd)), runtime.handle().clone()).expect("options");
    block_on(&runtime, store.transact(put("/a", "1"))).expect("done");
    // Silence alone is no fault: etcd is asked, and answers; on a machine that is busy not always in time.
    let mut watch = runtime.block_on(async {
        for _ in 0..10 {
            let mut watch = store.watch("/b".into(), Revision(0)).await.expect("watched");
            if tokio::time::timeout(Duration::from_secs(4), watch.next()).await.is_err() {
                return watch;
            }
        }
        panic!("a watch over nothing never lasts");
    });
    etcd.freeze(0);
    block_on(&runtime, watch.next()).expect_err("nobody is there");
    etcd.thaw(0);
}

#[test]
fn a_leader_that_is_killed() {
    if !is_installed() {
        return;
    }
    let (mut etcd, runtime) = (Etcd::start(3, &[]), runtime());
    under(&runtime, &mut etcd, async |etcd, counter| {
        let leader = etcd.leader();
        etcd.kill(leader);
        counter.raise(20).await;
        etcd.restart(leader);
        counter.raise(20).await;
        // One that only stands still is worse: its connections stay.
        let leader = etcd.leader();
        etcd.freeze(leader);
        counter.raise(20).await;
        etcd.thaw(leader);
    });
}

/// Without a majority nothing is done, and that is known where etcd says so.
#[test]
fn a_majority_that_is_away() {
    if !is_installed() {
        return;
    }
    let (mut etcd, runtime) = (Etcd::start(3, &[]), runtime());
    under(&runtime, &mut etcd, async |etcd, counter| {
        etcd.kill(1);
        etcd.kill(2);
        let before = counter.possible[0];
        for _ in 0..3 {
            let _ = counter.step().await;
        }
        assert_eq!(counter.possible[0], before, "nothing was answered");
        etcd.restart(1);
        counter.raise(10).await;
        etcd.restart(2);
        counter.raise(10).await;
    });
}

/// Requests go to whoever answers; each member is asked all the same how it is.
#[test]
fn a_member_that_is_away_or_stands_still_is_noticed_while_others_answer() {
    if !is_installed() {
        return;
    }
    let (mut etcd, runtime) = (Etcd::start(3, &[]), runtime());
    let patience = Patience { request: Duration::from_secs(1), ..Patience::default() };
    let store = EtcdStore::new(Options { patience, ..options(&etcd) }, runtime.handle().clone());
    let store = store.expect("options");
    let urls = etcd.endpoints();
    let answer = |store: &EtcdStore| -> Vec<bool> {
        let health = block_on(&runtime, store.health());
        assert!(health.iter().map(|member| &member.url).eq(&urls));
        let well = health.iter().map(|member| member.told.as_ref());
        well.map(|told| told.is_ok_and(|told| told.bytes > 0 && told.alarms.is_empty())).collect()
    };
    assert_eq!(answer(&store), [true, true, true]);
    etcd.kill(1);
    assert_eq!(answer(&store), [true, false, true]);
    // The one that was killed may have led: the others go on once they have elected another.
    let goes_on = || block_on(&runtime, store.transact(put("/a", "1"))).is_ok();
    assert!((0..30).any(|_| goes_on()), "the others go on");
    etcd.restart(1);
    etcd.wait_until_healthy();
    etcd.freeze(2);
    assert_eq!(answer(&store), [true, true, false]);
    etcd.thaw(2);
    etcd.wait_until_healthy();
    assert_eq!(answer(&store), [true, true, true]);
}

/// In an election no member knows a leader. Each of them answers all the same: none of them is away.
#[test]
fn a_member_without_a_leader_says_so_and_is_not_away() {
    if !is_installed() {
        return;
    }
    let (mut etcd, runtime) = (Etcd::start(3, &[]), runtime());
    let store = store(&etcd, &runtime);
    let led = |store: &EtcdStore| -> Vec<Option<bool>> {
        let health = block_on(&runtime, store.health());
        health.into_iter().map(|member| member.told.ok().map(|told| told.has_leader)).collect()
    };
    assert_eq!(led(&store), [Some(true); 3]);
    let leader = etcd.leader();
    let (other, left) = ((leader + 1) % 3, (leader + 2) % 3);
    etcd.kill(other);
    etcd.kill(leader);
    test_etcd::wait_for("it has noticed", || led(&store)[left] != Some(true));
    for _ in 0..20 {
        let led = led(&store);
        assert_eq!((led[leader], led[other], led[left]), (None, None, Some(false)), "{led:?}");
    }
    // Also over a connection that is made while there is none.
    let fresh = self::store(&etcd, &runtime);
    assert_eq!(led(&fresh)[left], Some(false));
}

/// Beyond what etcd sets aside for its log: a few megabytes for its database.
const SMALL_DISK: u64 = 140 << 20;

/// A full disk ends etcd at its next change. Nobody is there to ask then, which is said; what was answered before is there when it has room again.
#[test]
fn a_full_disk_of_the_only_member() {
    if !is_installed() {
        return;
    }
    let Some(mut etcd) = Etcd::start_on_small_disks(1, &[0], SMALL_DISK) else { return };
    let runtime = runtime();
    under(&runtime, &mut etcd, async |etcd, counter| {
        etcd.fill_disk(0);
        let failed = async { while counter.step().await.is_ok() {} };
        failed.await;
        test_etcd::wait_for("it has ended", || etcd.has_ended(0));
        let error = counter.step().await.expect_err("there is nobody to ask");
        assert!(matches!(error, StoreError::NotDone(_)), "{error}");
        assert!(error.to_string().contains("refused"), "it is said why: {error}");
        etcd.free_disk(0);
        etcd.restart(0);
        counter.raise(20).await;
    });
}

/// The others go on without a member whose disk is full; it is told of as one that is away, and takes part again when it has room.
#[test]
fn a_full_disk_of_one_of_three_members() {
    if !is_installed() {
        return;
    }
    let Some(mut etcd) = Etcd::start_on_small_disks(3, &[0], SMALL_DISK) else { return };
    let runtime = runtime();
    let asking = store(&etcd, &runtime);
    under(&runtime, &mut etcd, async |etcd, counter| {
        etcd.fill_disk(0);
        counter.raise(20).await;
        while !etcd.has_ended(0) {
            counter.raise(1).await;
        }
        let answers = asking.health().await;
        let answers: Vec<bool> = answers.iter().map(|member| member.told.is_ok()).collect();
        assert_eq!(answers, [false, true, true]);
        counter.raise(20).await;
        etcd.free_disk(0);
        etcd.restart(0);
        etcd.wait_until_healthy();
        let answers = asking.health().await;
        assert!(answers.iter().all(|member| member.told.is_ok()), "{answers:?}");
    });
}
