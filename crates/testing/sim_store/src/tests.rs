//! The suite in good and bad weather, and what faults may do to an answer.

use std::sync::Arc;

use cluster_store::{ClusterStore, Condition, Range, Revision, Step, StoreError, Transaction};
use cluster_store_conformance::{Bench, Work, run_all};
use sim::Dice;

use crate::{SimClient, SimStore, Weather, run};

struct Sim(SimClient);

impl Bench for Sim {
    fn store(&self, client: usize) -> Arc<dyn ClusterStore> {
        Arc::new(self.0.client(client as u64))
    }

    fn run(&self, work: Work<'_>) {
        run(&self.0, work);
    }

    fn compact(&self, through: Revision) -> bool {
        self.0.with(|store| store.compact(through));
        true
    }
}

fn put(key: &str, value: &str) -> Transaction {
    Transaction { steps: vec![Step::Put(key.into(), value.into())], ..Transaction::default() }
}

#[test]
fn the_simulated_store_does_what_every_store_does() {
    for seed in 0..10 {
        let late = Weather { late_percent: 30, late: 500_000_000, ..Weather::default() };
        for weather in [Weather::default(), late] {
            run_all(&|| {
                let mut store = SimStore::new(Dice::new(seed));
                store.set_weather(weather);
                Box::new(Sim(SimClient::new(store)))
            });
        }
    }
}

/// An unknown outcome is one or the other; one that is certain is certain; both kinds of unknown come up.
#[test]
fn an_answer_that_is_missing_says_nothing() {
    let (mut done, mut undone, mut refused) = (0, 0, 0);
    for seed in 0..300 {
        let mut store = SimStore::new(Dice::new(seed));
        store.set_weather(Weather {
            lost_percent: 20,
            unanswered_percent: 20,
            refused_percent: 20,
            ..Weather::default()
        });
        let client = SimClient::new(store);
        let answer = run(&client, client.transact(put("/a", "1")));
        let there = client.with(|store| store.tree().find("/a").is_some());
        match answer {
            Ok(outcome) => assert!(outcome.done && there),
            Err(StoreError::Unknown(_)) if there => done += 1,
            Err(StoreError::Unknown(_)) => undone += 1,
            Err(error) => {
                assert!(error.is_certainly_not_done() && !there, "{error}");
                refused += 1;
            }
        }
    }
    assert!(done > 20 && undone > 20 && refused > 20, "{done} {undone} {refused}");
}

/// A request that comes long after its sender gave up is done, unless a condition has become untrue.
#[test]
fn a_late_request_is_done_unless_a_condition_keeps_it_away() {
    for guarded in [false, true] {
        let client = SimClient::new(SimStore::new(Dice::new(1)));
        let made = run(&client, client.transact(put("/a", "1"))).expect("done").revision;
        client.with(|store| store.stall(10_000_000_000));
        let conditions = if guarded { vec![Condition::Modified("/a".into(), made)] } else { Vec::new() };
        let late = Transaction { conditions, ..put("/a", "late") };
        assert!(matches!(run(&client, client.transact(late)), Err(StoreError::Unknown(_))));
        client.with(|store| store.apply(0, &put("/a", "2"))).expect("another client's");
        client.with(|store| store.advance(20_000_000_000));
        let value = client.with(|store| store.tree().find("/a").map(|found| found.value.clone()));
        assert_eq!(value, Some(if guarded { b"2".to_vec() } else { b"late".to_vec() }));
    }
}

/// A link that is cut one way: what is asked is done and not told; watches go on where they were.
#[test]
fn a_link_cut_one_way_loses_answers_and_no_changes() {
    let client = SimClient::new(SimStore::new(Dice::new(1)));
    let other = client.client(1);
    let from = run(&client, client.get(Range::Prefix("/".into()))).expect("read").revision;
    let mut watch = run(&client, client.watch("/".into(), from)).expect("a watch");
    client.with(|store| store.set_link(0, true, false));
    assert!(matches!(run(&client, client.transact(put("/a", "1"))), Err(StoreError::Unknown(_))));
    assert!(run(&other, other.get(Range::Key("/a".into()))).is_ok_and(|snapshot| snapshot.found.len() == 1));
    client.with(|store| store.set_link(0, false, true));
    assert!(matches!(run(&client, client.transact(put("/b", "1"))), Err(StoreError::Unknown(_))));
    run(&other, other.transact(put("/c", "1"))).expect("done");
    let mut keys = Vec::new();
    while keys.len() < 2 {
        let changes = run(&client, watch.next()).expect("changes");
        keys.extend(changes.into_iter().map(|change| change.key));
    }
    assert_eq!(keys, ["/a", "/c"], "what did not arrive was not done");
}
