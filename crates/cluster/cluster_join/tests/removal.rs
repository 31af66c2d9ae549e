//! Removing a node that is silent, with the real etcd: one that gives a sign of life stays.
#![allow(clippy::expect_used, reason = "a test")]

use cluster_join::{Kind, Standing, check_leave, check_member, last_beat, remove, standing};
use cluster_store::keys::{ClusterName, Key, NodeId, PoolId};
use cluster_store::values::{Holder, Incarnation, NodeEntry, Owner, Seats, Value as _};
use cluster_store::{ClusterStore, Range, Revision, Step, Transaction};
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

    // One that owns a pool does not leave by itself. Of one that is gone it is nobody's: no other node may see its disks.
    let seen = last_beat(&store, &cluster, id(2)).await.expect("read");
    let pool = PoolId(uuid::Uuid::from_u128(7));
    let owner = |holder| Owner { epoch: 3, holder }.encode().expect("a value");
    put(Key::Owner(pool), owner(Some(Holder { node: id(2), incarnation: Incarnation(1) }))).await;
    let error = check_leave(&store, &cluster, id(2)).await.expect_err("it owns a pool");
    assert!(error.what.contains(&pool.to_string()), "{error}");

    remove(&store, &cluster, id(2), seen).await.expect("it is silent");
    let found = store.get(Range::Key(Key::Owner(pool).path(&cluster))).await.expect("etcd answers").found;
    assert_eq!(found[0].value, owner(None));
    assert_eq!(standing(&store, &cluster, id(2)).await.expect("read"), Standing::Removed);
    remove(&store, &cluster, id(2), seen).await.expect("done already");
    // A cluster whose state was restored from a backup of before a node joined does not keep that.
    check_leave(&store, &cluster, id(9)).await.expect("it is not known");
}

/// Before a node stops to leave, it knows whether etcd will let its member go.
#[tokio::test]
async fn etcd_lets_no_member_go_without_which_it_has_no_majority() {
    if !is_installed() {
        return;
    }
    let mut etcd = Etcd::start(3, &[]);
    etcd.wait_until_healthy();
    let store = store(&etcd);
    let cluster = ClusterName::new("c").expect("a name");
    let id = |number| NodeId::new(number).expect("a number");
    let members = store.members().await.expect("etcd answers");
    // In the order in which they were started.
    let peer_of = |number: usize| {
        let named = members.iter().find(|member| member.name == format!("etcd{number}"));
        named.expect("it is there").peer_urls[0].clone()
    };
    let seats = Seats { seats: vec![(id(1), peer_of(0)), (id(2), peer_of(1)), (id(3), peer_of(2))] };
    let steps = vec![Step::Put(Key::EtcdSeats.path(&cluster), seats.encode().expect("a value"))];
    let put = store.transact(Transaction { steps, ..Transaction::default() }).await;
    assert!(put.expect("etcd answers").done);

    check_member(&store, &cluster, id(1)).await.expect("two others answer");
    check_member(&store, &cluster, id(9)).await.expect("it runs none");
    etcd.kill(2);
    let error = check_member(&store, &cluster, id(1)).await.expect_err("one of two others is no majority");
    assert!(error.kind == Kind::State && error.what.contains("1 answers"), "{error}");
    check_member(&store, &cluster, id(3)).await.expect("the one that is away may go");
    etcd.restart(2);
    etcd.wait_until_healthy();
    check_member(&store, &cluster, id(1)).await.expect("two others answer again");
    drop(etcd);

    // The only one.
    let etcd = Etcd::start(1, &[]);
    let store = self::store(&etcd);
    let peer = store.members().await.expect("etcd answers")[0].peer_urls[0].clone();
    let seats = Seats { seats: vec![(id(1), peer)] };
    let steps = vec![Step::Put(Key::EtcdSeats.path(&cluster), seats.encode().expect("a value"))];
    let put = store.transact(Transaction { steps, ..Transaction::default() }).await;
    assert!(put.expect("etcd answers").done);
    let error = check_member(&store, &cluster, id(1)).await.expect_err("nothing would be left");
    assert!(error.what.contains("only member"), "{error}");
}
