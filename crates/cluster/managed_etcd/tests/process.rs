//! The real etcd as a child of a node: it serves, comes back when it dies, ends with the node however that ends.
#![allow(clippy::expect_used, reason = "a test")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use cluster_store::{ClusterStore, Range, Step, Transaction};
use cluster_store_etcd::{EtcdStore, Options, Patience, Tls};
use managed_etcd::{Certificates, EtcdMemberConfig, EtcdProcess, EtcdStatus, First, has_data};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use test_etcd::{Authority, LIMIT, is_installed, own_address, own_port, wait_for};

/// In a process that is killed by a test: where its etcd's data are.
const AS_NODE: &str = "MANAGED_ETCD_TEST_DATA";

struct Scene {
    folder: PathBuf,
    config: EtcdMemberConfig,
    tls: Tls,
}

fn scene(folder: &Path) -> Scene {
    let address = own_address();
    let authority = Authority::new();
    let identity = authority.issue(&[&address.to_string(), "127.0.0.1", "node-1.holdfast"]);
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    let certificates = Certificates {
        authority: file("ca.pem", authority.pem()),
        certificate: file("node.pem", &identity.certificate),
        key: file("node.key", &identity.key),
    };
    let url = || format!("https://{address}:{}", own_port());
    let config = EtcdMemberConfig {
        name: "alpha".into(),
        client_url: url(),
        peer_url: url(),
        data: folder.join("etcd"),
        certificates,
    };
    let tls = Tls {
        ca: authority.pem().clone().into(),
        certificate: identity.certificate.into(),
        key: identity.key.into(),
    };
    Scene { folder: folder.to_owned(), config, tls }
}

fn start(scene: &Scene) -> EtcdProcess {
    EtcdProcess::start(scene.config.clone(), Some(First::New("test".into()))).expect("started")
}

fn pid(number: u32) -> Pid {
    i32::try_from(number).ok().and_then(Pid::from_raw).expect("a process")
}

fn running(etcd: &EtcdProcess) -> Option<u32> {
    match etcd.status() {
        EtcdStatus::Running(pid) => Some(pid),
        EtcdStatus::Waiting(_) => None,
    }
}

async fn until_done(store: &EtcdStore, transaction: Transaction) {
    let mut why = None;
    let trying = async {
        while let Err(error) = store.transact(transaction.clone()).await {
            why = Some(error);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let ended = tokio::time::timeout(LIMIT, trying).await;
    assert!(ended.is_ok(), "etcd takes changes: {why:?}");
}

#[tokio::test]
async fn it_serves_comes_back_and_ends() {
    if !is_installed() {
        return;
    }
    let dir = tempfile::tempdir().expect("temp dir");
    let scene = scene(dir.path());
    let etcd = start(&scene);
    let options = Options {
        endpoints: vec![scene.config.client_url.clone()],
        tls: Some(scene.tls.clone()),
        patience: Patience::default(),
        cluster_id: None,
    };
    let store = EtcdStore::new(options, tokio::runtime::Handle::current()).expect("options");
    let put = Transaction { steps: vec![Step::Put("/a".into(), b"1".to_vec())], ..Transaction::default() };
    until_done(&store, put.clone()).await;
    let members = store.members().await.expect("told");
    assert_eq!(members.len(), 1);
    assert_eq!(
        (members[0].name.as_str(), members[0].learner, &members[0].client_urls),
        ("alpha", false, &vec![scene.config.client_url.clone()])
    );
    assert!(has_data(&scene.config.data));
    let first = running(&etcd).expect("it runs");
    kill_process(pid(first), Signal::KILL).expect("killed");
    wait_for("etcd is started again", || running(&etcd).is_some_and(|now| now != first));
    until_done(&store, put).await;
    assert_eq!(store.get(Range::Key("/a".into())).await.expect("read").found.len(), 1);
    let second = running(&etcd).expect("it runs");
    etcd.stop().await;
    test_kill_process(pid(second)).expect_err("it has ended");
    // Dropped, it ends too.
    let etcd = start(&scene);
    wait_for("etcd runs", || running(&etcd).is_some());
    let third = running(&etcd).expect("it runs");
    drop(etcd);
    wait_for("etcd has ended", || test_kill_process(pid(third)).is_err());
    drop(scene.folder);
}

/// A learner is added, starts with what it was told, has what the first one has, gets its vote, and is removed.
#[tokio::test]
async fn a_second_member_learns_votes_and_leaves() {
    if !is_installed() {
        return;
    }
    let dirs = [tempfile::tempdir().expect("temp dir"), tempfile::tempdir().expect("temp dir")];
    let one = scene(dirs[0].path());
    let mut two = scene(dirs[1].path());
    two.config.name = "beta".into();
    two.config.certificates = one.config.certificates.clone();
    let _first = start(&one);
    let options = Options {
        endpoints: vec![one.config.client_url.clone()],
        tls: Some(one.tls.clone()),
        patience: Patience::default(),
        cluster_id: None,
    };
    let store = EtcdStore::new(options, tokio::runtime::Handle::current()).expect("options");
    let put = Transaction { steps: vec![Step::Put("/a".into(), b"1".to_vec())], ..Transaction::default() };
    until_done(&store, put.clone()).await;
    let members = store.add_learner(&two.config.peer_url).await.expect("added");
    let known = |url: &str| members.iter().find(|member| member.peer_urls == [url]).expect("there").clone();
    let added = known(&two.config.peer_url);
    assert!(added.learner && added.name.is_empty());
    store.add_learner(&two.config.peer_url).await.expect_err("it is there already");
    let all = vec![
        ("alpha".to_owned(), one.config.peer_url.clone()),
        ("beta".to_owned(), two.config.peer_url.clone()),
    ];
    let second = EtcdProcess::start(two.config.clone(), Some(First::Existing(all))).expect("started");
    let promoting = async {
        while store.promote(added.id).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(LIMIT, promoting).await.expect("it has learned");
    let members = store.members().await.expect("told");
    assert!(members.iter().all(|member| !member.learner) && members.len() == 2, "{members:?}");
    // From now on the other one is asked.
    store.set_endpoints(&[two.config.client_url.clone()]).expect("endpoints");
    assert_eq!(store.get(Range::Key("/a".into())).await.expect("read").found.len(), 1);
    store.set_endpoints(&[one.config.client_url.clone(), two.config.client_url.clone()]).expect("endpoints");
    let removing = async {
        // It has been a member for a moment only, and etcd wants to see that it stays.
        while store.remove_member(added.id).await.is_err() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(LIMIT, removing).await.expect("removed");
    second.stop().await;
    until_done(&store, put).await;
    assert_eq!(store.members().await.expect("told").len(), 1);
}

/// Not a test of its own: the node that the next one kills.
#[test]
fn as_node() {
    let Some(folder) = std::env::var_os(AS_NODE) else { return };
    let scene = scene(Path::new(&folder));
    let etcd = start(&scene);
    wait_for("etcd runs", || running(&etcd).is_some());
    println!("pid {}", running(&etcd).unwrap_or_default());
    wait_for("killed", || false);
}

#[test]
fn it_does_not_outlive_a_node_that_is_killed() {
    if !is_installed() {
        return;
    }
    let dir = tempfile::tempdir().expect("temp dir");
    let mut node = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "as_node", "--nocapture"])
        .env(AS_NODE, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let lines = BufReader::new(node.stdout.take().expect("piped")).lines();
    let told = lines.map_while(Result::ok).find_map(|line| {
        let (_, number) = line.split_once("pid ")?;
        number.trim().parse::<u32>().ok()
    });
    let etcd = pid(told.expect("its number"));
    test_kill_process(etcd).expect("it runs");
    node.kill().expect("killed");
    node.wait().expect("gone");
    wait_for("etcd has ended with its node", || {
        // Until init has waited for it, it is there as a zombie.
        let state = std::fs::read_to_string(format!("/proc/{}/stat", etcd.as_raw_nonzero()));
        state.map_or(true, |state| state.contains(") Z"))
    });
}
