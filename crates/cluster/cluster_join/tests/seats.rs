//! Three nodes with the real etcd, as far as this crate goes: seats are taken step by step, each of which may be the last before a kill.
#![allow(clippy::expect_used, reason = "a test")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cluster_identity::{
    Authority, CertificateRequest, ClusterIdentity, EtcdAccess, EtcdId, NodeName, NodePem, NodeRecord,
    new_key,
};
use cluster_join::{
    JoinRequest, Kind, Standing, Steward, admit, depart, etcd_of, found, make_token, member_config, standing,
    wait_for_etcd,
};
use cluster_store::keys::{ClusterName, NodeId};
use cluster_store::{ClusterStore, LocalStore, Range};
use cluster_store_etcd::{EtcdStore, Options, Patience, Tls};
use managed_etcd::{EtcdProcess, First};
use test_etcd::{LIMIT, is_installed, own_address, own_ports};
use tokio::runtime::Handle;
use zeroize::Zeroizing;

const NOW: u64 = 1_700_000_000;

fn addresses() -> (SocketAddr, SocketAddr) {
    let port = own_ports(4);
    (SocketAddr::new(own_address(), port), SocketAddr::new(own_address(), port + 1))
}

fn store(identity: &ClusterIdentity) -> EtcdStore {
    let pem = identity.etcd_pem().expect("with certificates");
    let tls = Tls {
        ca: pem.ca.into_bytes(),
        certificate: pem.certificate.into_bytes(),
        key: pem.key.as_bytes().to_vec(),
    };
    let options = Options {
        endpoints: identity.record.etcd.endpoints.clone(),
        tls: Some(tls),
        patience: Patience::default(),
        cluster_id: identity.record.etcd.id.map(|id| id.0),
    };
    EtcdStore::new(options, Handle::current()).expect("options")
}

async fn first(folder: &Path) -> ClusterIdentity {
    let (link, api) = addresses();
    let authority = Authority::new(NOW).expect("made");
    let (node_key, request) = new_key().expect("made");
    let request = CertificateRequest::from_pem(&request).expect("right");
    let node = NodeId::new(1).expect("a number");
    let name = NodeName::new("alpha").expect("a name");
    let certificate = authority.issue(&request, node, &name, &[own_address()], NOW).expect("signed");
    let own = etcd_of(node, api);
    let record = NodeRecord {
        cluster: ClusterName::new("store1").expect("a name"),
        node,
        name,
        link_listen: link,
        link_addresses: vec![link.to_string()],
        api_address: api,
        etcd: EtcdAccess {
            endpoints: vec![own.client_url.clone()],
            id: None,
            own_certificates: false,
            managed: Some(own.clone()),
        },
    };
    let pem = NodePem {
        ca: authority.pem().into(),
        ca_key: authority.key_pem(),
        node: certificate,
        node_key,
        etcd: None,
    };
    let mut identity = ClusterIdentity { record, pem };
    identity.prepare(folder).expect("written");
    let config = member_config(folder, &own);
    let process = EtcdProcess::start(config, Some(First::New("test".into()))).expect("started");
    let store = store(&identity);
    let id = wait_for_etcd(&store, LIMIT).await.expect("it answers");
    identity.record.etcd.id = Some(EtcdId(id));
    let own = LocalStore::open(&folder.join("own")).expect("a store");
    let alone = ClusterName::new("local").expect("a name");
    found(&store, &identity.record, "1", &own, &alone, NOW).await.expect("founded");
    process.stop().await;
    identity.create(folder).expect("written");
    identity
}

async fn join(folder: &Path, store: &EtcdStore, member: &ClusterIdentity, name: &str) {
    let (link, api) = addresses();
    let (token, _) = make_token(store, member, NOW).await.expect("made");
    let (node_key, csr) = new_key().expect("made");
    let request = JoinRequest {
        secret: token.secret().to_string(),
        release: "1".into(),
        name: NodeName::new(name).expect("a name"),
        api,
        addresses: vec![own_address()],
        request: csr,
    };
    let admission = admit(store, member, "1", &request, NOW).await.expect("let in");
    let record = NodeRecord {
        cluster: ClusterName::new(&admission.cluster).expect("a name"),
        node: admission.node,
        name: request.name,
        link_listen: link,
        link_addresses: vec![link.to_string()],
        api_address: api,
        etcd: admission.etcd,
    };
    let pem = NodePem {
        ca: admission.ca,
        ca_key: Zeroizing::new(admission.ca_key),
        node: admission.certificate,
        node_key,
        etcd: None,
    };
    ClusterIdentity { record, pem }.create(folder).expect("written");
}

fn steward(folder: &Path) -> (Arc<Steward>, EtcdStore) {
    let identity = ClusterIdentity::load(folder).expect("right").expect("there");
    let store = store(&identity);
    (Steward::start(folder, identity, store.clone(), None).expect("started"), store)
}

/// So often a node is killed right after a step that did something: at least once at each.
const KILLS: u32 = 4;

/// Lets nodes do steps until this is so (told of each member: it has begun, and learns). A node that has done something is killed, and comes back
/// from what is on its disk.
async fn until(folders: &[&Path], store: &EtcdStore, what: &str, is_so: impl Fn(&[(bool, bool)]) -> bool) {
    let going = async {
        let mut nodes: Vec<_> = folders.iter().map(|folder| (0, steward(folder))).collect();
        loop {
            for (index, folder) in folders.iter().enumerate() {
                let did = nodes[index].1.0.step().await;
                if nodes[index].0 < KILLS && did == Ok(true) {
                    // As a kill: the process goes with it at once, and nothing is told to anybody.
                    let (kills, old) = nodes.remove(index);
                    drop(old);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    nodes.insert(index, (kills + 1, steward(folder)));
                }
            }
            let members = store.members().await.unwrap_or_default();
            let seen: Vec<(bool, bool)> =
                members.iter().map(|member| (!member.name.is_empty(), member.learner)).collect();
            if is_so(&seen) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    assert!(tokio::time::timeout(2 * LIMIT, going).await.is_ok(), "{what}");
}

#[tokio::test]
async fn seats_are_taken_and_given_up_and_the_majority_is_never_lost() {
    if !is_installed() {
        return;
    }
    let dirs: Vec<_> = (0..4).map(|_| tempfile::tempdir().expect("temp dir")).collect();
    let folder = |index: usize| dirs[index].path();
    let one = first(folder(0)).await;
    let (alpha, store) = steward(folder(0));
    wait_for_etcd(&store, LIMIT).await.expect("it is there again");
    assert!(!alpha.step().await.expect("looked"), "nothing to do");
    let cluster = one.record.cluster.clone();
    let error = depart(&store, &cluster, one.record.node).await.expect_err("it is the last one");
    assert_eq!(error.kind, Kind::State);
    join(folder(1), &store, &one, "beta").await;
    // A copy without a vote: alpha goes on alone whenever beta is away.
    until(&[folder(1)], &store, "beta learns", |seen| {
        seen == [(true, false), (true, true)] || seen == [(true, true), (true, false)]
    })
    .await;
    assert!(store.get(Range::Prefix("/holdfast/".into())).await.is_ok(), "beta is away");
    join(folder(2), &store, &one, "gamma").await;
    join(folder(3), &store, &one, "delta").await;
    let votes = |seen: &[(bool, bool)]| seen.len() == 3 && seen.iter().all(|one| *one == (true, false));
    until(&[folder(1), folder(2), folder(3)], &store, "three vote", votes).await;
    // Two that live on, while the first one is gone.
    let (beta, other) = steward(folder(1));
    let (gamma, _) = steward(folder(2));
    let _ = tokio::time::timeout(LIMIT, async {
        while beta.identity().await.record.etcd.endpoints.len() < 3 {
            let _ = beta.step().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
    .await;
    assert_eq!(beta.identity().await.record.etcd.endpoints.len(), 3, "it knows them all");
    alpha.stop().await;
    let reading = async {
        while other.get(Range::Prefix("/holdfast/".into())).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(LIMIT, reading).await.expect("two of three are a majority");
    drop(alpha);
    let (alpha, store) = steward(folder(0));
    wait_for_etcd(&store, LIMIT).await.expect("it is there again");
    // One with a seat goes, and the one without gets it.
    let gone = gamma.identity().await.record.node;
    // etcd elects a leader perhaps.
    let leaving = async {
        while let Err(error) = depart(&store, &cluster, gone).await {
            assert_eq!(error.kind, Kind::Away, "{error}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::time::timeout(LIMIT, leaving).await.expect("left");
    depart(&store, &cluster, gone).await.expect("done already");
    assert_eq!(standing(&store, &cluster, gone).await.expect("readable"), Standing::Removed);
    gamma.stop().await;
    assert!(!gamma.step().await.expect("looked"), "it takes no part any more");
    until(&[folder(3)], &store, "delta votes", votes).await;
    alpha.stop().await;
    beta.stop().await;
}
