//! The real SMB server with volumes in memory: what is served when, and why the rest is not.

use std::net::TcpStream;
use std::sync::atomic::Ordering;

use control_api::{ShareCaching, ShareConfig, ShareKind, SharePermission, ShareRight};
use file_store::{
    Attributes, FileKind, FileStore, MemoryStore, NewFile, StateChange, StateRow, StoreError, StoreErrorKind,
    StoreFuture,
};
use shard_runtime::SystemClock;
use smb_auth::Accounts as _;
use smb_server::Directory as _;
use smb_users::{Files, NewUser, Policy, Secret, UserChange};
use test_layers::{Layered, StoreLayer};

use super::*;
use crate::backend::OpenVolume;
use crate::system::SystemShards;
use crate::system::test_volume::TestVolume;

mod pipes;
mod recorded;

/// What is before the reading of the volume's durable state.
#[derive(Default)]
struct Hurdle {
    /// Locked, reading waits.
    held: tokio::sync::Mutex<()>,
    /// How often reading was begun.
    begun: std::sync::atomic::AtomicUsize,
    broken: std::sync::atomic::AtomicBool,
}

struct Hindered(Arc<MemoryStore>, Arc<Hurdle>);

impl StoreLayer for Hindered {
    fn below(&self) -> &dyn FileStore {
        &*self.0
    }

    fn state_scan<'a>(&'a self, table: &'a str, prefix: &'a [u8]) -> StoreFuture<'a, Vec<StateRow>> {
        Box::pin(async move {
            if table != file_store::OPENS_TABLE {
                // Rows of disks whose files are gone are looked for, too.
                return self.0.state_scan(table, prefix).await;
            }
            self.1.begun.fetch_add(1, Ordering::SeqCst);
            let _passed = self.1.held.lock().await;
            if self.1.broken.load(Ordering::SeqCst) {
                return Err(StoreError::new(StoreErrorKind::Corrupt, "the rows cannot be read"));
            }
            self.0.state_scan(table, prefix).await
        })
    }
}

fn hindered(store: &Arc<MemoryStore>, hurdle: &Arc<Hurdle>) -> Arc<dyn VolumeHandle> {
    Arc::new(TestVolume::new(Arc::new(Layered(Hindered(store.clone(), hurdle.clone())))))
}

const POOL: Uuid = Uuid::from_u128(1);

struct Bench {
    _dir: tempfile::TempDir,
    users: Arc<Users>,
    smb: Smb,
    store: Arc<MemoryStore>,
    hurdle: Arc<Hurdle>,
    volume: Arc<dyn VolumeHandle>,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let files = Files::in_directory(dir.path());
        let users = Users::open(files, Policy::default(), clock.clone(), Arc::new(SystemEntropy));
        let users = Arc::new(users.expect("users"));
        let shards = SystemShards::start(Some(1)).expect("a shard");
        let disks = SharedVirtualDisks::new(shards.clone(), vhdx::unlimited());
        let smb = Smb::new(
            shards,
            clock,
            Some(users.clone()),
            identity(dir.path()).expect("kept"),
            tcp_service::Budget::default(),
            Arc::new(smb_server::NoQueues),
            Arc::new(disks),
        );
        let store = Arc::new(MemoryStore::new(1 << 30));
        let hurdle: Arc<Hurdle> = Arc::default();
        let volume = hindered(&store, &hurdle);
        Self { _dir: dir, users, smb, store, hurdle, volume }
    }

    async fn folder(&self, name: &str) {
        let new =
            NewFile { kind: FileKind::Directory, attributes: Attributes::default(), security: Vec::new() };
        self.store.create(self.store.root(), name, new).await.expect("made");
    }

    fn user(&self, name: &str) -> smb_users::User {
        let new = NewUser {
            name: name.into(),
            full_name: String::new(),
            comment: String::new(),
            disabled: false,
            groups: Vec::new(),
            secret: Secret::Password("correct horse".into()),
        };
        self.users.create_user(new).expect("made")
    }

    /// Applies with the volume, or without; returns what could not be done.
    async fn apply(&self, config: &Config, there: bool) -> Vec<String> {
        self.apply_undecided(config, there, &[]).await
    }

    /// The same with the SIDs of those who are there, as the node keeps it.
    fn settled(&self, config: &Config) -> Config {
        let (mut config, directory) = (config.clone(), self.users.snapshot());
        for permission in config.shares.iter_mut().flat_map(|share| &mut share.permissions) {
            if let Some(found) = directory.find_name(&permission.who, "") {
                permission.who = found.sid.to_string();
            }
        }
        config
    }

    /// Puts a configuration in effect, each time a newer one.
    async fn put(&self, config: &Config, volumes: Vec<OpenVolume>) -> Vec<(String, String)> {
        let config = &self.settled(config);
        self.configure(config);
        let wanted = WantedShares { shares: config.shares.clone(), volumes, admit: true };
        let mut trouble = self.smb.apply_pool(Some(POOL), wanted).await.expect("applied");
        trouble.extend(self.smb.listen(config).await.expect("applied"));
        trouble
    }

    fn configure(&self, config: &Config) {
        static REVISION: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let revision = REVISION.fetch_add(1, Ordering::SeqCst);
        let current = Current { revision, config: Arc::new(config.clone()) };
        self.smb.configure(&current, "node1.example.com");
    }

    /// The same where it is not said whether some shares are on the volume.
    async fn apply_undecided(&self, config: &Config, there: bool, undecided: &[&str]) -> Vec<String> {
        let undecided = undecided.iter().map(|name| (*name).to_owned()).collect();
        let open = OpenVolume { name: "v".into(), volume: self.volume.clone(), undecided };
        let volumes = if there { vec![open] } else { Vec::new() };
        let trouble = self.put(config, volumes).await;
        trouble.into_iter().map(|(subject, why)| format!("{subject}: {why}")).collect()
    }
}

fn config() -> Config {
    Config {
        shares: vec![ShareConfig {
            name: "vmstore".into(),
            volume: "v".into(),
            volume_guid: None,
            folder: "/vms".into(),
            comment: String::new(),
            kind: ShareKind::ScaleOut,
            encrypt: false,
            caching: ShareCaching::None,
            access_based_enumeration: false,
            hidden: false,
            read_only: false,
            permissions: vec![SharePermission { who: "alice".into(), right: ShareRight::Change }],
        }],
        ..Config::default()
    }
}

#[tokio::test]
async fn shares_come_and_go_with_their_volume() {
    let bench = Bench::new();
    let config = config();
    assert_eq!(bench.apply(&config, false).await, ["share vmstore: volume v is not there"]);
    assert!(bench.smb.server.shares().is_empty());
    let trouble = bench.apply(&config, true).await;
    assert_eq!(trouble.len(), 2, "{trouble:?}");
    assert!(trouble[0].contains("are for alice"), "{trouble:?}");
    assert!(trouble[1].starts_with("share vmstore: /vms"), "{trouble:?}");
    assert_eq!(bench.smb.traffic("vmstore"), None, "nobody can connect to it");

    let alice = bench.user("alice");
    bench.folder("vms").await;
    assert_eq!(bench.apply(&config, true).await, [""; 0], "what was missing has come");
    let shares = bench.smb.server.shares();
    assert_eq!((shares[0].folder.as_str(), shares[0].kind), ("vms", smb_server::ShareKind::ScaleOut));
    assert_eq!(shares[0].permissions[0].who, alice.sid);
    assert_eq!(bench.smb.traffic("VMSTORE"), Some(ShareTraffic::default()));
    drop(shares);

    assert_eq!(bench.apply(&config, false).await.len(), 1);
    assert!(bench.smb.server.shares().is_empty());
    assert_eq!(Arc::strong_count(&bench.volume), 1, "nothing of the volume is held any more");
    assert_eq!(bench.apply(&config, true).await, [""; 0]);
    assert_eq!(bench.smb.server.shares().len(), 1);
}

/// A permission is for who was meant, not for whoever has the name.
#[tokio::test]
async fn who_gets_a_name_does_not_get_what_another_one_had_by_it() {
    let bench = Bench::new();
    let alice = bench.user("alice");
    bench.folder("vms").await;
    let config = bench.settled(&config());
    assert_eq!(bench.apply(&config, true).await, [""; 0]);
    let served = || bench.smb.server.shares()[0].permissions.iter().map(|one| one.who).collect::<Vec<_>>();
    let change = UserChange { name: Some("alicia".into()), ..UserChange::default() };
    bench.users.change_user(alice.sid, &change).expect("renamed");
    let other = bench.user("alice");
    assert_eq!(bench.apply(&config, true).await, [""; 0]);
    assert_eq!(served(), [alice.sid], "by whatever name");
    bench.users.remove_user(alice.sid).expect("removed");
    let trouble = bench.apply(&config, true).await;
    assert!(trouble.len() == 1 && trouble[0].contains(&alice.sid.to_string()), "{trouble:?}");
    assert!(!served().contains(&other.sid), "nobody else has it then");
    // Nor does a name that was never settled give anything.
    let by_name = super::tests::config();
    bench.configure(&by_name);
    let open = OpenVolume { name: "v".into(), volume: bench.volume.clone(), undecided: Vec::new() };
    let wanted = WantedShares { shares: by_name.shares.clone(), volumes: vec![open], admit: true };
    let trouble = bench.smb.apply_pool(Some(POOL), wanted).await.expect("applied");
    assert!(trouble.len() == 1 && served().is_empty(), "{trouble:?}");
}

/// What clients have open lies in the file system that the share leads to: it stays the same one.
#[tokio::test]
async fn a_share_goes_on_when_its_volume_gets_another_name() {
    let bench = Bench::new();
    bench.user("alice");
    bench.folder("vms").await;
    let mut config = config();
    assert_eq!(bench.apply(&config, true).await, [""; 0]);
    let before = bench.smb.server.shares()[0].files.clone();
    config.shares[0].volume = "w".into();
    let renamed = OpenVolume { name: "w".into(), volume: bench.volume.clone(), undecided: Vec::new() };
    assert_eq!(bench.put(&config, vec![renamed]).await, []);
    let shares = bench.smb.server.shares();
    assert!(shares.len() == 1 && shares[0].files.is(&before), "it was closed and opened again");
    assert_eq!(bench.hurdle.begun.load(Ordering::SeqCst), 1, "what clients have open was brought back again");
    // Under its former name another volume may come.
    let other = hindered(&bench.store, &bench.hurdle);
    let both = [("v", other), ("w", bench.volume.clone())];
    let both = both.map(|(name, volume)| OpenVolume { name: name.into(), volume, undecided: Vec::new() });
    assert_eq!(bench.put(&config, both.to_vec()).await, []);
    assert!(bench.smb.server.shares()[0].files.is(&before));
}

#[tokio::test]
async fn shares_are_published_when_what_clients_had_open_is_back() {
    let bench = Bench::new();
    bench.user("alice");
    bench.folder("vms").await;
    let config = config();
    let held = bench.hurdle.held.lock().await;
    {
        let mut applying = std::pin::pin!(bench.apply(&config, true));
        while bench.hurdle.begun.load(Ordering::SeqCst) == 0 {
            tokio::select! {
                trouble = &mut applying => panic!("it did not wait: {trouble:?}"),
                () = tokio::time::sleep(LISTEN_PAUSE) => {}
            }
        }
        assert!(bench.smb.server.shares().is_empty(), "clients could take what others have open");
        assert_eq!(bench.smb.traffic("vmstore"), None, "and nobody is told that it is served");
        // Who wanted it does not wait any more.
    }
    let mut again = std::pin::pin!(bench.apply(&config, true));
    tokio::select! {
        trouble = &mut again => panic!("two at once: {trouble:?}"),
        () = tokio::time::sleep(LISTEN_PAUSE) => {}
    }
    drop(held);
    assert_eq!(again.await, [""; 0]);
    assert_eq!(bench.smb.server.shares().len(), 1);
    assert_eq!(bench.hurdle.begun.load(Ordering::SeqCst), 1, "what was begun went on to its end");
}

#[tokio::test]
async fn what_cannot_come_back_keeps_its_shares_away() {
    let bench = Bench::new();
    bench.user("alice");
    bench.folder("vms").await;
    let config = config();
    bench.hurdle.broken.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let trouble = bench.apply(&config, true).await;
        assert!(
            trouble.len() == 1 && trouble[0].starts_with("share vmstore: what clients had open cannot"),
            "{trouble:?}"
        );
        assert!(bench.smb.server.shares().is_empty());
        assert_eq!(bench.smb.traffic("vmstore"), None);
    }
    bench.hurdle.broken.store(false, Ordering::SeqCst);
    assert_eq!(bench.apply(&config, true).await, [""; 0], "it is tried again");
    assert_eq!(bench.smb.server.shares().len(), 1);
}

#[tokio::test]
async fn what_is_open_in_shares_that_may_be_on_the_volume_is_not_given_up() {
    let bench = Bench::new();
    bench.user("alice");
    bench.folder("vms").await;
    let config = config();
    let row =
        StateChange { table: "smb-open".into(), key: vec![1], value: Some(b"of another share".to_vec()) };
    bench.store.state_write(vec![row]).await.expect("written");
    let rows = async || bench.store.state_scan("smb-open", &[]).await.expect("read").len();
    let trouble = bench.apply_undecided(&config, true, &["other"]).await;
    assert!(trouble.len() == 1 && trouble[0].contains("whether the shares other are on it"), "{trouble:?}");
    assert_eq!((rows().await, bench.smb.server.shares().len()), (1, 0));
    assert_eq!(bench.apply(&config, true).await, [""; 0]);
    assert_eq!((rows().await, bench.smb.server.shares().len()), (0, 1), "now it is known to be nobody's");
    // What is served goes on.
    assert_eq!(bench.apply_undecided(&config, true, &["other"]).await, [""; 0]);
    assert_eq!(bench.smb.server.shares().len(), 1);
}

#[tokio::test]
async fn changes_reach_shares_that_are_served() {
    let bench = Bench::new();
    bench.user("alice");
    bench.folder("vms").await;
    bench.folder("other").await;
    let mut config = config();
    bench.apply(&config, true).await;
    config.shares[0].encrypt = true;
    config.shares[0].permissions[0].right = ShareRight::Read;
    bench.apply(&config, true).await;
    let share = bench.smb.server.shares().remove(0);
    assert!(share.encrypt && share.permissions[0].right == smb_server::ShareRight::Read);
    config.shares[0].folder = "/other".into();
    bench.apply(&config, true).await;
    assert_eq!(bench.smb.server.shares()[0].folder, "other");
    config.shares[0].name = "renamed".into();
    bench.apply(&config, true).await;
    assert_eq!(bench.smb.server.shares().len(), 1);
    assert_eq!(bench.smb.server.shares()[0].name, "renamed");
}

#[tokio::test]
async fn listeners_follow_the_configuration() {
    let bench = Bench::new();
    let mut config = Config::default();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    config.smb.listen = vec![address.clone(), "127.0.0.1:0".into()];
    let trouble = bench.apply(&config, false).await;
    assert!(trouble.len() == 1 && trouble[0].contains("in use"), "{trouble:?}");
    let info = bench.smb.info();
    assert_eq!(info.netbios_name, "NODE1");
    let at = |address: &str| {
        let found = info.listeners.iter().find(|listener| listener.address == address);
        found.and_then(|listener| listener.listening.clone())
    };
    assert_eq!(at(&address), None);
    TcpStream::connect(at("127.0.0.1:0").expect("listens")).expect("somebody is there");
    drop(taken);
    assert_eq!(bench.apply(&config, false).await, [""; 0], "the port is free now");
    config.smb.listen.clear();
    bench.apply(&config, false).await;
    assert!(bench.smb.server.listeners().is_empty());
    bench.smb.stop().await.expect("stopped");
}

#[tokio::test]
async fn the_directory_knows_administrators_and_forgets_the_disabled() {
    let bench = Bench::new();
    let directory = NodeUsers(Some(bench.users.clone()));
    let alice = bench.user("alice");
    assert!(directory.account("ANY", "ALICE").is_some());
    let token = directory.token(alice.sid, &[]).expect("a user");
    assert!(!token.is_admin && !token.privileges.backup && token.is(&Sid::EVERYONE));
    bench.users.change(|all| all.add_member("Backup Operators", alice.sid)).expect("added");
    let token = directory.token(alice.sid, &[]).expect("a user");
    assert!(token.privileges.backup && token.privileges.restore && !token.privileges.take_ownership);
    bench.users.change(|all| all.add_member("Administrators", alice.sid)).expect("added");
    let token = directory.token(alice.sid, &[]).expect("a user");
    assert!(token.is_admin && token.privileges == smb_security::Privileges::ADMINISTRATOR);
    let change = UserChange { disabled: Some(true), ..UserChange::default() };
    bench.users.change_user(alice.sid, &change).expect("changed");
    assert!(directory.token(alice.sid, &[]).is_none());
    assert!(!directory.anonymous().is(&Sid::EVERYONE));
    assert!(NodeUsers(None).account("", "alice").is_none());
}

#[test]
fn names_are_made_netbios_names() {
    assert_eq!(netbios_name("", "storage-node-17.example.com"), "STORAGE-NODE-17");
    assert_eq!(netbios_name("", "a-very-long-machine-name"), "A-VERY-LONG-MAC");
    assert_eq!(netbios_name("Store1", "node"), "STORE1");
    assert_eq!(netbios_name("", ""), "HOLDFAST");
}

#[test]
fn the_identity_stays() {
    let dir = tempfile::tempdir().expect("temp dir");
    let first = identity(dir.path()).expect("made");
    assert_eq!(identity(dir.path()).expect("kept"), first);
    std::fs::write(dir.path().join("smb.guid"), "no").expect("written");
    assert!(identity(dir.path()).expect_err("no GUID").to_string().contains("Remove it"));
}

/// Of two pools one does not answer: shares of the other come, and go.
#[tokio::test]
async fn a_volume_that_does_not_answer_holds_up_its_own_shares_only() {
    let bench = Bench::new();
    bench.user("alice");
    bench.folder("vms").await;
    let config = bench.settled(&config());
    bench.configure(&config);
    let hurdle: Arc<Hurdle> = Arc::default();
    let slow = hindered(&bench.store, &hurdle);
    let wanted = |share: &str, name: &str, volume: &Arc<dyn VolumeHandle>, admit: bool| WantedShares {
        shares: vec![ShareConfig { name: share.into(), volume: name.into(), ..config.shares[0].clone() }],
        volumes: vec![OpenVolume { name: name.into(), volume: volume.clone(), undecided: Vec::new() }],
        admit,
    };
    let names = || bench.smb.server.shares().iter().map(|share| share.name.clone()).collect::<Vec<_>>();
    let held = hurdle.held.lock().await;
    let mut waits = bench.smb.apply_pool(Some(Uuid::from_u128(2)), wanted("slow", "w", &slow, true));
    while hurdle.begun.load(Ordering::SeqCst) == 0 {
        tokio::select! {
            _ = &mut waits => panic!("it did not wait"),
            () = tokio::time::sleep(LISTEN_PAUSE) => {}
        }
    }
    // Restored first, and nobody is let in before that is said.
    let restored = bench.smb.apply_pool(Some(POOL), wanted("quick", "v", &bench.volume, false));
    assert_eq!(restored.await.expect("applied"), []);
    assert_eq!((names(), bench.hurdle.begun.load(Ordering::SeqCst)), (Vec::new(), 1));
    let admitted = bench.smb.apply_pool(Some(POOL), wanted("quick", "v", &bench.volume, true));
    assert_eq!(admitted.await.expect("applied"), []);
    assert_eq!((names(), bench.hurdle.begun.load(Ordering::SeqCst)), (vec!["quick".to_owned()], 1));
    bench
        .smb
        .apply_pool(Some(POOL), WantedShares { admit: true, ..WantedShares::default() })
        .await
        .expect("gone");
    assert_eq!(names(), [""; 0]);
    assert_eq!(Arc::strong_count(&bench.volume), 1, "nothing of the volume is held any more");
    drop(held);
    assert_eq!(waits.await.expect("applied"), []);
    assert_eq!(names(), ["slow"]);
}
