//! Founding a cluster and letting nodes in: tokens that count and those that do not, names, numbers, and answers that were lost.
#![allow(clippy::expect_used, reason = "a test")]

use cluster_identity::{
    Authority, CertificateRequest, ClusterIdentity, EtcdAccess, JoinToken, NodeName, NodePem, NodeRecord,
    TOKEN_SECONDS, new_key,
};
use cluster_join::{
    Admission, JoinError, JoinRequest, Kind, Standing, admit, found, make_token, nodes, standing,
};
use cluster_store::keys::{ClusterName, Key, NodeId, PoolId};
use cluster_store::values::{Owner, Value as _, Vote};
use cluster_store::{ClusterStore, LocalStore, Range, Step, Transaction};

const NOW: u64 = 1_800_000_000;
const RELEASE: &str = "1.2.3";

fn node(number: u16) -> NodeId {
    NodeId::new(number).expect("a number")
}

struct World {
    store: LocalStore,
    first: ClusterIdentity,
    _folder: tempfile::TempDir,
}

fn record(number: u16, name: &str) -> NodeRecord {
    NodeRecord {
        cluster: ClusterName::new("store1").expect("a name"),
        node: node(number),
        name: NodeName::new(name).expect("a name"),
        link_listen: format!("10.0.0.{number}:7400").parse().expect("an address"),
        link_addresses: vec![format!("10.0.0.{number}:7400")],
        api_address: format!("10.0.0.{number}:7401").parse().expect("an address"),
        etcd: EtcdAccess {
            endpoints: vec!["https://10.0.0.1:7402".into()],
            id: None,
            own_certificates: false,
            managed: None,
        },
    }
}

fn identity() -> ClusterIdentity {
    let authority = Authority::new(NOW).expect("made");
    let (node_key, request) = new_key().expect("made");
    let request = CertificateRequest::from_pem(&request).expect("right");
    let record = record(1, "alpha");
    let certificate = authority.issue(&request, node(1), &record.name, &[], NOW).expect("signed");
    let pem = NodePem {
        ca: authority.pem().into(),
        ca_key: authority.key_pem(),
        node: certificate,
        node_key,
        etcd: None,
    };
    ClusterIdentity { record, pem }
}

fn local(folder: &tempfile::TempDir, name: &str) -> LocalStore {
    LocalStore::open(&folder.path().join(name)).expect("a store")
}

async fn world() -> World {
    let folder = tempfile::tempdir().expect("temp dir");
    let (store, own) = (local(&folder, "shared"), local(&folder, "own"));
    let first = identity();
    let alone = ClusterName::new("local").expect("a name");
    found(&store, &first.record, RELEASE, &own, &alone, NOW).await.expect("founded");
    World { store, first, _folder: folder }
}

impl World {
    async fn token(&self) -> JoinToken {
        make_token(&self.store, &self.first, NOW).await.expect("made").0
    }

    async fn admit(&self, request: &JoinRequest, now: u64) -> Result<Admission, JoinError> {
        admit(&self.store, &self.first, RELEASE, request, now).await
    }
}

fn request(token: &JoinToken, name: &str, number: u8) -> JoinRequest {
    JoinRequest {
        secret: token.secret().to_string(),
        release: RELEASE.into(),
        name: NodeName::new(name).expect("a name"),
        api: format!("10.0.0.{number}:7401").parse().expect("an address"),
        addresses: vec!["192.0.2.7".parse().expect("an address")],
        request: new_key().expect("made").1,
    }
}

fn kind(result: Result<Admission, JoinError>) -> Kind {
    result.expect_err("refused").kind
}

#[tokio::test]
async fn a_token_lets_one_node_in() {
    let world = world().await;
    let token = world.token().await;
    let kept = world.store.get(Range::Prefix("/holdfast/store1/tokens/".into())).await.expect("readable");
    assert_eq!(kept.found.len(), 1);
    let text = format!("{:?}", kept.found);
    assert!(!text.contains(token.secret().as_str()), "only its hash is kept");
    let beta = request(&token, "beta", 2);
    let admission = world.admit(&beta, NOW + 1).await.expect("let in");
    assert_eq!((admission.node, admission.cluster.as_str()), (node(2), "store1"));
    assert!(token.is_of(&der(&admission.ca)));
    let kept = world.store.get(Range::Prefix("/holdfast/store1/tokens/".into())).await.expect("readable");
    assert!(kept.found.is_empty(), "it is used");
    // The same node again, as after an answer that was lost: the same number, also much later.
    let again = world.admit(&beta, NOW + 10 * TOKEN_SECONDS).await.expect("the same answer");
    assert_eq!(again.node, node(2));
    // Somebody else with the same token, by the same name and by another one.
    for name in ["beta", "gamma"] {
        assert_eq!(kind(world.admit(&request(&token, name, 3), NOW).await), Kind::Token);
    }
    assert_eq!(nodes(&world.store, &world.first.record.cluster).await.expect("readable").len(), 2);
    // What it was given makes an identity.
    let authority = Authority::from_pem(&admission.ca, &admission.ca_key).expect("an authority");
    assert_eq!(authority.fingerprint(), world.first.authority().expect("its own").fingerprint());
}

fn der(pem: &str) -> Vec<u8> {
    use rustls::pki_types::pem::PemObject as _;
    rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate").to_vec()
}

#[tokio::test]
async fn what_does_not_count_lets_nobody_in() {
    let world = world().await;
    let token = world.token().await;
    let other = JoinToken::new([1; 32], "10.0.0.1:7401".parse().expect("an address")).expect("made");
    assert_eq!(kind(world.admit(&request(&other, "beta", 2), NOW).await), Kind::Token, "another cluster's");
    let mut wrong = request(&token, "beta", 2);
    wrong.secret = "x".into();
    assert_eq!(kind(world.admit(&wrong, NOW).await), Kind::Token);
    let late = NOW + TOKEN_SECONDS;
    assert_eq!(kind(world.admit(&request(&token, "beta", 2), late).await), Kind::Token, "too old");
    // None of these costs the token.
    let mut release = request(&token, "beta", 2);
    release.release = "1.2.4".into();
    assert_eq!(kind(world.admit(&release, NOW).await), Kind::Release);
    assert_eq!(kind(world.admit(&request(&token, "alpha", 2), NOW).await), Kind::Taken);
    assert_eq!(kind(world.admit(&request(&token, "beta", 1), NOW).await), Kind::Taken, "alpha's address");
    let mut csr = request(&token, "beta", 2);
    csr.request = "x".into();
    assert_eq!(kind(world.admit(&csr, NOW).await), Kind::Invalid);
    let mut unreachable = request(&token, "beta", 2);
    unreachable.api = "0.0.0.0:7401".parse().expect("an address");
    assert_eq!(kind(world.admit(&unreachable, NOW).await), Kind::Invalid);
    assert_eq!(nodes(&world.store, &world.first.record.cluster).await.expect("readable").len(), 1);
    world.admit(&request(&token, "beta", 2), late - 1).await.expect("it counts still");
}

#[tokio::test]
async fn one_of_two_at_once_gets_in_and_numbers_are_given_once() {
    let world = world().await;
    let cluster = &world.first.record.cluster;
    let token = world.token().await;
    let (beta, gamma) = (request(&token, "beta", 2), request(&token, "gamma", 3));
    let (one, two) = tokio::join!(world.admit(&beta, NOW), world.admit(&gamma, NOW));
    assert!(one.is_ok() != two.is_ok(), "one token, one node");
    // Two tokens at once: two numbers.
    let (first, second) = (world.token().await, world.token().await);
    let (delta, epsilon) = (request(&first, "delta", 4), request(&second, "epsilon", 5));
    let (delta, epsilon) = tokio::join!(world.admit(&delta, NOW), world.admit(&epsilon, NOW));
    let mut numbers = [delta.expect("let in").node.number(), epsilon.expect("let in").node.number()];
    numbers.sort_unstable();
    assert_eq!(numbers, [3, 4]);
    // The entry of one that is gone stays, and so does its number; its name is free.
    let (_, _, mut entry) = nodes(&world.store, cluster).await.expect("readable").remove(3);
    entry.removed = true;
    let steps = vec![
        Step::Put(Key::Node(node(4)).path(cluster), entry.encode().expect("right")),
        Step::Delete(Key::NodeName(entry.name.clone()).path(cluster)),
    ];
    world.store.transact(Transaction { steps, ..Transaction::default() }).await.expect("written");
    assert_eq!(standing(&world.store, cluster, node(4)).await.expect("readable"), Standing::Removed);
    assert_eq!(standing(&world.store, cluster, node(3)).await.expect("readable"), Standing::Member);
    assert_eq!(standing(&world.store, cluster, node(9)).await.expect("readable"), Standing::Unknown);
    let token = world.token().await;
    let back = world.admit(&request(&token, &entry.name, 6), NOW).await.expect("let in");
    assert_eq!(back.node, node(5));
}

#[tokio::test]
async fn the_first_node_brings_its_epochs_and_votes_and_finds_an_empty_place() {
    let folder = tempfile::tempdir().expect("temp dir");
    let (store, own) = (local(&folder, "shared"), local(&folder, "own"));
    let alone = ClusterName::new("local").expect("a name");
    let first = identity();
    let cluster = &first.record.cluster;
    let pool = |number: u128| PoolId(uuid(number));
    // More pools than one transaction takes.
    for number in 1..=150_u128 {
        let epoch = u64::try_from(number).expect("small");
        let owner = Owner { epoch, holder: None }.encode().expect("right");
        let mut steps = vec![Step::Put(Key::Owner(pool(number)).path(&alone), owner)];
        if number % 2 == 0 {
            let vote = Vote { epoch, sequence: 7 }.encode().expect("right");
            steps.push(Step::Put(Key::Witness(pool(number)).path(&alone), vote));
        }
        own.transact(Transaction { steps, ..Transaction::default() }).await.expect("written");
    }
    // What an attempt that was killed has left: an older epoch, and a vote that is none any more.
    let stale = Owner { epoch: 1, holder: None }.encode().expect("right");
    let vote = Vote { epoch: 1, sequence: 1 }.encode().expect("right");
    let steps = vec![
        Step::Put(Key::Owner(pool(149)).path(cluster), stale),
        Step::Put(Key::Witness(pool(149)).path(cluster), vote),
    ];
    store.transact(Transaction { steps, ..Transaction::default() }).await.expect("written");
    found(&store, &first.record, RELEASE, &own, &alone, NOW).await.expect("founded");
    for number in [1, 2, 149, 150_u128] {
        let get = async |key: Key| store.get(Range::Key(key.path(cluster))).await.expect("readable").found;
        let owner = get(Key::Owner(pool(number))).await;
        let owner = Owner::decode(&owner.first().expect("there").value).expect("right");
        assert_eq!((u128::from(owner.epoch), owner.holder), (number, None));
        assert_eq!(get(Key::Witness(pool(number))).await.len(), usize::from(number % 2 == 0), "{number}");
    }
    let error = found(&store, &first.record, RELEASE, &own, &alone, NOW).await.expect_err("there is one");
    assert_eq!(error.kind, Kind::Taken);
}

fn uuid(number: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(number)
}
