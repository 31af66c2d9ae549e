//! Removing a node that is silent, with the real etcd: one that gives a sign of life stays.
#![allow(clippy::expect_used, reason = "a test")]

use cluster_join::{Kind, Standing, check_leave, last_beat, remove, standing};
use cluster_store::keys::{ClusterName, Key, NodeId, PoolId};
use cluster_store::values::{Holder, Incarnation, NodeEntry, Owner, Value as _};
use cluster_store::{ClusterStore, Revision, Step, Transaction};
use cluster_store_etcd::{EtcdStore, Options, Patience, Tls};
use test_etcd::{Etcd, is_installed};
use tokio::runtime::Handle;

fn store(etcd: &Etcd) -> EtcdStore {
    let identity = etcd.authority().issue(&["node-1.holdfast"]);
    let tls = Tls {
        ca: etcd.authority().pem().clone().into(),
        certificate: identity.certificate.into(),
        key: identity.key.into(),
    };
    let options = Options {
        endpoints: etcd.endpoints(),
        tls: Some(tls),
        patience: Patience::default(),
        cluster_id: None,
    };
    EtcdStore::new(options, Handle::current()).expect("options")
}

#[tokio::test]
async fn a_node_that_gives_a_sign_of_life_is_not_removed() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start(1, &[]);
    etcd.wait_until_healthy();
    let store = store(&etcd);
    let cluster = ClusterName::new("c").expect("a name");
    let id = |number| NodeId::new(number).expect("a number");
    let put = async |key: Key, value: Vec<u8>| {
        let steps = vec![Step::Put(key.path(&cluster), value)];
        let done = store.transact(Transaction { steps, ..Transaction::default() }).await;
        assert!(done.expect("etcd answers").done);
    };
    for (number, name) in [(1, "alpha"), (2, "beta")] {
        let entry = NodeEntry {
            name: name.into(),
            api: String::new(),
            release: String::new(),
            joined: 0,
            removed: false,
            token: String::new(),
            key: String::new(),
        };
        put(Key::Node(id(number)), entry.encode().expect("a value")).await;
    }
    put(Key::Member(id(2)), b"x".to_vec()).await;
    put(Key::Beat(id(2)), b"1".to_vec()).await;
    let seen = last_beat(&store, &cluster, id(2)).await.expect("read");
    assert!(seen > Revision(0));
    put(Key::Beat(id(2)), b"2".to_vec()).await;
    let error = remove(&store, &cluster, id(2), seen).await.expect_err("it lives");
    assert!(error.kind == Kind::State && error.what.contains("sign of life"), "{error}");
    assert_eq!(standing(&store, &cluster, id(2)).await.expect("read"), Standing::Member);

    // One that owns a pool keeps it until another node has taken it.
    let seen = last_beat(&store, &cluster, id(2)).await.expect("read");
    let pool = PoolId(uuid::Uuid::from_u128(7));
    let owner = |holder| Owner { epoch: 3, holder }.encode().expect("a value");
    put(Key::Owner(pool), owner(Some(Holder { node: id(2), incarnation: Incarnation(1) }))).await;
    let error = remove(&store, &cluster, id(2), seen).await.expect_err("it owns a pool");
    assert!(error.what.contains(&pool.to_string()), "{error}");
    put(Key::Owner(pool), owner(None)).await;

    remove(&store, &cluster, id(2), seen).await.expect("it is silent");
    assert_eq!(standing(&store, &cluster, id(2)).await.expect("read"), Standing::Removed);
    remove(&store, &cluster, id(2), seen).await.expect("done already");
    // A cluster whose state was restored from a backup of before a node joined does not keep that.
    check_leave(&store, &cluster, id(9)).await.expect("it is not known");
}
