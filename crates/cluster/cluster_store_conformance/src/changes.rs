//! Watches: every change once, in order, whole transactions; or that some are forgotten.

use std::sync::Arc;

use cluster_store::{Change, ClusterStore, Range, Revision, StoreError, Watch};

use crate::{Bench, both, delete, key, put, refused, steps};

pub(crate) fn run(bench: &dyn Fn() -> Box<dyn Bench>) {
    let with = |test: &dyn Fn(&dyn Bench)| test(bench().as_ref());
    with(&|bench| bench.run(Box::pin(past(bench.store(0)))));
    with(&|bench| {
        let (writer, watcher) = (bench.store(0), bench.store(1));
        bench.run(Box::pin(future(writer, watcher)));
    });
    with(&|bench| bench.run(Box::pin(elsewhere(bench.store(0)))));
    with(&|bench| {
        let store = bench.store(0);
        bench.run(Box::pin(async move { compacted(bench, store.as_ref()).await }));
    });
}

/// Reads until so many changes have come.
async fn take(watch: &mut dyn Watch, count: usize) -> Vec<Change> {
    let mut changes = Vec::new();
    while changes.len() < count {
        let next = watch.next().await.unwrap_or_else(refused);
        assert!(!next.is_empty(), "a watch that answers has something to say");
        changes.extend(next);
    }
    assert!(changes.windows(2).all(|pair| pair[0].revision <= pair[1].revision), "in order: {changes:?}");
    changes
}

fn told(changes: &[Change]) -> Vec<(Revision, String, Option<Vec<u8>>)> {
    let tell = |change: &Change| {
        let name = change.key.strip_prefix(&key("")).unwrap_or(&change.key);
        (change.revision, name.to_owned(), change.now.as_ref().map(|found| found.value.clone()))
    };
    changes.iter().map(tell).collect()
}

async fn past(store: Arc<dyn ClusterStore>) {
    let store = store.as_ref();
    let one = steps(store, vec![put("w/a", "1")]).await.revision;
    let two = steps(store, vec![put("w/a", "2"), put("w/b", "2")]).await.revision;
    let three = steps(store, vec![delete("w/a"), put("other", "3")]).await.revision;
    let mut watch = store.watch(key("w/"), one).await.unwrap_or_else(refused);
    let changes = take(watch.as_mut(), 3).await;
    let expected = [
        (two, "w/a".to_owned(), Some(b"2".to_vec())),
        (two, "w/b".to_owned(), Some(b"2".to_vec())),
        (three, "w/a".to_owned(), None),
    ];
    assert_eq!(told(&changes), expected, "what was changed after the revision, and nothing else");
    let first =
        changes.first().and_then(|change| change.now.as_ref()).map(|found| (found.created, found.modified));
    assert_eq!(first, Some((one, two)), "a change tells the key's revisions");
}

async fn future(writer: Arc<dyn ClusterStore>, watcher: Arc<dyn ClusterStore>) {
    let from = watcher.get(Range::Prefix(key("w/"))).await.unwrap_or_else(refused).revision;
    let mut watch = watcher.watch(key("w/"), from).await.unwrap_or_else(refused);
    let write = async move {
        for number in 0..20 {
            let text = number.to_string();
            steps(writer.as_ref(), vec![put("w/x", &text), put("w/y", &text)]).await;
        }
    };
    let read = async move {
        let mut seen = Vec::new();
        while seen.len() < 40 {
            let changes = watch.next().await.unwrap_or_else(refused);
            assert_eq!(changes.len() % 2, 0, "both changes of a transaction come together: {changes:?}");
            seen.extend(changes);
        }
        let values: Vec<Option<Vec<u8>>> = told(&seen).into_iter().map(|(_, _, value)| value).collect();
        let expected: Vec<Option<Vec<u8>>> = (0..20)
            .flat_map(|number: u32| {
                [Some(number.to_string().into_bytes()), Some(number.to_string().into_bytes())]
            })
            .collect();
        assert_eq!(values, expected, "every change once");
    };
    both(Box::pin(write), Box::pin(read)).await;
}

/// Changes under other prefixes are not told, and make no gap.
async fn elsewhere(store: Arc<dyn ClusterStore>) {
    let store = store.as_ref();
    let from = steps(store, vec![put("x", "0")]).await.revision;
    let mut watch = store.watch(key("w/"), from).await.unwrap_or_else(refused);
    for _ in 0..5 {
        steps(store, vec![put("x", "1"), put("wa", "1")]).await;
    }
    let last = steps(store, vec![put("w/a", "1")]).await.revision;
    let changes = take(watch.as_mut(), 1).await;
    assert_eq!(told(&changes), [(last, "w/a".to_owned(), Some(b"1".to_vec()))]);
}

async fn compacted(bench: &dyn Bench, store: &dyn ClusterStore) {
    let one = steps(store, vec![put("w/a", "1")]).await.revision;
    let two = steps(store, vec![put("w/a", "2")]).await.revision;
    let three = steps(store, vec![put("w/a", "3")]).await.revision;
    if !bench.compact(two) {
        return;
    }
    let answer = match store.watch(key("w/"), one).await {
        Ok(mut watch) => watch.next().await,
        Err(error) => Err(error),
    };
    let Err(StoreError::Compacted { oldest }) = answer else {
        assert!(answer.is_err(), "changes that are forgotten are not left out: {answer:?}");
        return;
    };
    let mut watch = store.watch(key("w/"), oldest).await.unwrap_or_else(refused);
    let changes = take(watch.as_mut(), 1).await;
    assert_eq!(changes.last().map(|change| change.revision), Some(three), "what is known is told");
}
