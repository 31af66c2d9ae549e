//! Transactions: revisions, conditions, what is refused.

use std::sync::Arc;

use cluster_store::{
    ClusterStore, Condition, MAX_KEY, MAX_STEPS, MAX_VALUE, Range, Revision, Step, StoreError, Transaction,
};

use crate::{Bench, both, delete, find, key, put, refused, steps};

pub(crate) fn run(bench: &dyn Fn() -> Box<dyn Bench>) {
    let with = |test: &dyn Fn(&dyn Bench)| test(bench().as_ref());
    with(&|bench| bench.run(Box::pin(revisions(bench.store(0)))));
    with(&|bench| bench.run(Box::pin(conditions(bench.store(0)))));
    with(&|bench| bench.run(Box::pin(all_or_nothing(bench.store(0)))));
    with(&|bench| bench.run(Box::pin(prefixes(bench.store(0)))));
    with(&|bench| bench.run(Box::pin(refusals(bench.store(0)))));
    with(&|bench| bench.run(Box::pin(any_bytes(bench.store(0)))));
    with(&|bench| {
        let (one, other) = (bench.store(0), bench.store(1));
        let reader = bench.store(2);
        bench.run(Box::pin(async move {
            both(Box::pin(count(one, 15)), Box::pin(count(other, 15))).await;
            let found = find(reader.as_ref(), "counter").await;
            assert_eq!(found.map(|found| found.value), Some(b"30".to_vec()), "no increment is lost");
        }));
    });
}

async fn revisions(store: Arc<dyn ClusterStore>) {
    let store = store.as_ref();
    let first = steps(store, vec![put("a", "1"), put("b", "1")]).await.revision;
    let (a, b) = (find(store, "a").await, find(store, "b").await);
    for found in [a, b] {
        let found = found.map(|found| (found.created, found.modified));
        assert_eq!(found, Some((first, first)), "both keys are of one transaction");
    }
    let second = steps(store, vec![put("a", "2")]).await.revision;
    assert_eq!(second.0, first.0 + 1, "each transaction that changes something takes the next revision");
    let found = find(store, "a").await.map(|found| (found.created, found.modified, found.value));
    assert_eq!(found, Some((first, second, b"2".to_vec())), "a changed key stays the key that was made");
    steps(store, vec![delete("a")]).await;
    assert_eq!(find(store, "a").await, None, "a deleted key is gone");
    let again = steps(store, vec![put("a", "3")]).await.revision;
    let found = find(store, "a").await.map(|found| found.created);
    assert_eq!(found, Some(again), "a key that is made again is a new one");
    let nothing = steps(store, vec![delete("never")]).await.revision;
    assert_eq!(nothing, again, "what changes nothing has no revision of its own");
    let snapshot = store.get(Range::Key(key("a"))).await.unwrap_or_else(refused);
    assert_eq!(snapshot.revision, again, "a read tells the store's revision");
}

async fn conditions(store: Arc<dyn ClusterStore>) {
    let store = store.as_ref();
    let made = steps(store, vec![put("a", "1")]).await.revision;
    let changed = steps(store, vec![put("a", "2")]).await.revision;
    let (a, none) = (key("a"), key("none"));
    let cases = [
        (Condition::Modified(a.clone(), changed), true),
        (Condition::Modified(a.clone(), made), false),
        (Condition::Modified(a.clone(), Revision(0)), false),
        (Condition::Modified(none.clone(), Revision(0)), true),
        (Condition::Modified(none.clone(), changed), false),
        (Condition::Created(a.clone(), made), true),
        (Condition::Created(a.clone(), changed), false),
        (Condition::Created(none.clone(), Revision(0)), true),
        (Condition::Value(a.clone(), b"2".to_vec()), true),
        (Condition::Value(a.clone(), b"1".to_vec()), false),
        (Condition::Value(none.clone(), Vec::new()), false),
        (Condition::Present(a.clone()), true),
        (Condition::Present(none.clone()), false),
        (Condition::Absent(a.clone()), false),
        (Condition::Absent(none.clone()), true),
    ];
    for (number, (condition, holds)) in cases.into_iter().enumerate() {
        let name = format!("case{number}");
        let transaction = Transaction {
            conditions: vec![condition.clone()],
            steps: vec![put(&name, "x")],
            reads: vec![a.clone(), key(&name), none.clone()],
        };
        let outcome = store.transact(transaction).await.unwrap_or_else(refused);
        assert_eq!(outcome.done, holds, "{condition:?}");
        let read: Vec<bool> = outcome.reads.iter().map(Option::is_some).collect();
        assert_eq!(read, [true, holds, false], "reads see what the steps made: {condition:?}");
        assert_eq!(find(store, &name).await.is_some(), holds, "{condition:?}");
    }
}

async fn all_or_nothing(store: Arc<dyn ClusterStore>) {
    let store = store.as_ref();
    let before = steps(store, vec![put("a", "1"), put("b", "1")]).await.revision;
    let transaction = Transaction {
        conditions: vec![Condition::Modified(key("a"), before), Condition::Modified(key("b"), Revision(0))],
        steps: vec![put("a", "2"), delete("b"), put("c", "2")],
        reads: Vec::new(),
    };
    let outcome = store.transact(transaction.clone()).await.unwrap_or_else(refused);
    assert!(!outcome.done, "one condition that does not hold is enough");
    assert_eq!(outcome.revision, before, "and nothing has changed");
    let conditions = vec![Condition::Modified(key("a"), before), Condition::Modified(key("b"), before)];
    let outcome = store.transact(Transaction { conditions, ..transaction }).await.unwrap_or_else(refused);
    assert!(outcome.done, "all conditions hold");
    let snapshot = store.get(Range::Prefix(key(""))).await.unwrap_or_else(refused);
    let found: Vec<(&str, Revision)> =
        snapshot.found.iter().map(|found| (found.key.as_str(), found.modified)).collect();
    assert_eq!(found, [(key("a").as_str(), outcome.revision), (key("c").as_str(), outcome.revision)]);
}

async fn prefixes(store: Arc<dyn ClusterStore>) {
    let store = store.as_ref();
    steps(store, vec![put("p/b", "2"), put("p/a", "1"), put("pa", "no"), put("p", "no"), put("p/a/x", "3")])
        .await;
    let snapshot = store.get(Range::Prefix(key("p/"))).await.unwrap_or_else(refused);
    let keys: Vec<String> = snapshot.found.into_iter().map(|found| found.key).collect();
    assert_eq!(keys, [key("p/a"), key("p/a/x"), key("p/b")], "those that begin so, in order");
    let snapshot = store.get(Range::Prefix(key("q/"))).await.unwrap_or_else(refused);
    assert_eq!(snapshot.found, []);
}

async fn refusals(store: Arc<dyn ClusterStore>) {
    let store = store.as_ref();
    let before = steps(store, vec![put("a", "1")]).await.revision;
    let long = format!("/{}", "k".repeat(MAX_KEY));
    let of = |steps: Vec<Step>| Transaction { steps, ..Transaction::default() };
    let wrong = [
        of(vec![put("a", "2"), delete("a")]),
        of(vec![Step::Put(long.clone(), Vec::new())]),
        of(vec![Step::Put("no slash".into(), Vec::new())]),
        of(vec![Step::Put("/line\nbreak".into(), Vec::new())]),
        of(vec![Step::Put(key("big"), vec![0; MAX_VALUE + 1])]),
        of((0..=MAX_STEPS).map(|number| put(&format!("n{number}"), "")).collect()),
        of(vec![Step::Put(key("m"), vec![1; MAX_VALUE]), Step::Put(key("n"), vec![1; MAX_VALUE])]),
        Transaction { conditions: vec![Condition::Present(long)], ..Transaction::default() },
        Transaction { reads: vec![String::new()], ..Transaction::default() },
    ];
    for transaction in wrong {
        let answer = store.transact(transaction).await;
        assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
    }
    let snapshot = store.get(Range::Prefix(key(""))).await.unwrap_or_else(refused);
    assert_eq!((snapshot.found.len(), snapshot.revision), (1, before), "nothing of it was done");
}

async fn any_bytes(store: Arc<dyn ClusterStore>) {
    let store = store.as_ref();
    let every: Vec<u8> = (0..MAX_VALUE).map(|at| (at % 251) as u8).collect();
    for value in [Vec::new(), vec![0, 255, 10, 0], every] {
        steps(store, vec![Step::Put(key("bytes"), value.clone())]).await;
        let found = find(store, "bytes").await.map(|found| found.value);
        assert!(found == Some(value), "a value comes back as it was");
    }
}

/// Adds one as often as asked, by comparing and setting.
async fn count(store: Arc<dyn ClusterStore>, times: u32) {
    let store = store.as_ref();
    for _ in 0..times {
        loop {
            let found = find(store, "counter").await;
            let number = found
                .as_ref()
                .map_or(0, |found| String::from_utf8_lossy(&found.value).parse::<u32>().unwrap_or_default());
            let seen = found.map_or(Revision(0), |found| found.modified);
            let transaction = Transaction {
                conditions: vec![Condition::Modified(key("counter"), seen)],
                steps: vec![put("counter", &(number + 1).to_string())],
                reads: Vec::new(),
            };
            if store.transact(transaction).await.unwrap_or_else(refused).done {
                break;
            }
        }
    }
}
