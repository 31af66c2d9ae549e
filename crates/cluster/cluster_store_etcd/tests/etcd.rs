//! The store against the real etcd: the suite, TLS, limits.

mod scene;

use cluster_store::{
    ClusterStore, Condition, MAX_REQUEST, MAX_STEPS, MAX_VALUE, Range, Revision, Step, StoreError,
    Transaction,
};
use cluster_store_conformance::run_all;
use cluster_store_etcd::{Alarm, AlarmKind, EtcdStore, Options};
use scene::{Real, block_on, options, put, runtime, store};
use test_etcd::{Authority, Etcd, is_installed};

#[test]
fn etcd_does_what_every_store_does() {
    if !is_installed() {
        return;
    }
    let etcd = std::sync::Arc::new(Etcd::start(1, &[]));
    run_all(&|| Box::new(Real::new(etcd.clone())));
}

#[test]
fn who_is_not_of_the_cluster_is_not_let_in_and_not_asked() {
    if !is_installed() {
        return;
    }
    let (etcd, runtime) = (Etcd::start(1, &[]), runtime());
    let stranger = Authority::new();
    let address = test_etcd::own_address().to_string();
    let own = store(&etcd, &runtime);
    block_on(&runtime, own.transact(put("/a", "1"))).expect("done");
    let identity = stranger.issue(&[&address]);
    // Our certificate is not of their authority; theirs is not of ours.
    let mut unknown = options(&etcd);
    if let Some(tls) = &mut unknown.tls {
        (tls.certificate, tls.key) = (identity.certificate.into(), identity.key.into());
    }
    let mut trusts_others = options(&etcd);
    if let Some(tls) = &mut trusts_others.tls {
        tls.ca = stranger.pem().clone().into();
    }
    let mut plain = options(&etcd);
    plain.endpoints = plain.endpoints.iter().map(|url| url.replace("https", "http")).collect();
    plain.tls = None;
    for options in [unknown, trusts_others, plain] {
        let store = EtcdStore::new(options, runtime.handle().clone()).expect("options");
        let error = block_on(&runtime, store.transact(put("/a", "2"))).expect_err("not let in");
        assert!(matches!(error, StoreError::NotDone(_)), "it was not asked: {error}");
    }
    // Another etcd at the same place.
    let other = Options { cluster_id: Some(1), ..options(&etcd) };
    let other = EtcdStore::new(other, runtime.handle().clone()).expect("options");
    let error = block_on(&runtime, other.transact(put("/a", "2"))).expect_err("another cluster");
    assert!(
        matches!(&error, StoreError::NotDone(why) if why.contains("belongs to the etcd cluster")),
        "{error}"
    );
    let found = block_on(&runtime, own.get(Range::Key("/a".into()))).expect("read");
    assert_eq!(found.found[0].value, b"1");
    let same = Options { cluster_id: own.cluster_id(), ..options(&etcd) };
    let same = EtcdStore::new(same, runtime.handle().clone()).expect("options");
    block_on(&runtime, same.transact(put("/a", "3"))).expect("the same cluster");
}

/// What [`Transaction::check`] lets pass, etcd takes with its default limits.
#[test]
fn the_largest_transactions_fit() {
    if !is_installed() {
        return;
    }
    let (etcd, runtime) = (Etcd::start(1, &[]), runtime());
    let store = store(&etcd, &runtime);
    let long = |number: usize| format!("/{number:03}{}", "k".repeat(500));
    let many = Transaction {
        conditions: (0..MAX_STEPS).map(|number| Condition::Absent(long(number))).collect(),
        steps: (0..MAX_STEPS / 2).map(|number| Step::Put(long(number), vec![7; 1000])).collect(),
        reads: (0..MAX_STEPS / 2).map(long).collect(),
    };
    let outcome = block_on(&runtime, store.transact(many)).expect("it fits");
    assert!(outcome.done && outcome.reads.iter().all(Option::is_some));
    let large = Transaction {
        steps: vec![
            Step::Put("/large/1".into(), vec![1; MAX_VALUE]),
            Step::Put("/large/2".into(), vec![2; MAX_REQUEST - MAX_VALUE - 2 * "/large/1".len()]),
        ],
        ..Transaction::default()
    };
    let from = block_on(&runtime, store.transact(large)).expect("it fits").revision;
    let mut watch = block_on(&runtime, store.watch("/large/".into(), Revision(from.0 - 1))).expect("watched");
    let changes = block_on(&runtime, watch.next()).expect("told");
    assert_eq!(changes.len(), 2, "both of a revision that is longer than one of etcd's messages");
    // A read of more than fits in one answer comes in pages of one revision.
    for number in 0..24 {
        let step = Step::Put(format!("/many/{number:02}"), vec![number; MAX_VALUE]);
        let one = Transaction { steps: vec![step], ..Transaction::default() };
        block_on(&runtime, store.transact(one)).expect("done");
    }
    let snapshot = block_on(&runtime, store.get(Range::Prefix("/many/".into()))).expect("read");
    let fills: Vec<u8> = snapshot.found.iter().map(|found| found.value[MAX_VALUE - 1]).collect();
    assert_eq!(fills, (0..24).collect::<Vec<u8>>());
}

/// "database space exceeded" is what etcd answers to a transaction, and has done it.
#[test]
fn a_full_etcd_is_no_promise_that_nothing_was_done() {
    if !is_installed() {
        return;
    }
    let (etcd, runtime) = (Etcd::start(1, &["--quota-backend-bytes", "4194304"]), runtime());
    let store = store(&etcd, &runtime);
    let mut errors = Vec::new();
    for number in 0..16_u8 {
        let step = Step::Put("/fill".into(), vec![number; MAX_VALUE]);
        let fill = Transaction { steps: vec![step], ..Transaction::default() };
        errors.extend(block_on(&runtime, store.transact(fill)).err());
    }
    assert!(!errors.is_empty(), "the quota is reached");
    for error in errors {
        assert!(matches!(error, StoreError::Unknown(_)), "{error}");
    }
    block_on(&runtime, store.get(Range::Key("/fill".into()))).expect("reads go on");
    let health = block_on(&runtime, store.health());
    let told = health[0].told.as_ref().expect("it answers");
    let full = Alarm { kind: AlarmKind::NoSpace, member: Some(told.member) };
    assert!(told.alarms == [full] && told.has_leader && told.bytes > 0, "{told:?}");
}
