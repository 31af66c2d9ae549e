//! A server over memory, for tests and the example.

#![allow(unreachable_pub, dead_code, reason = "each test uses a part of it")]

pub mod disks;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use file_store::{FileStore, MemoryStore};
use shard_runtime::{Clock, Shards, SystemClock, SystemEntropy};
use smb_auth::{Account, AccountState, Accounts, NtHash};
use smb_files::{FileSystem, VolumeOptions};
use smb_protocol::fsctl::network::{InterfaceCapabilities, NetworkInterface};
use smb_protocol::security::sid::Sid;
use smb_protocol::tree::CachingMode;
use smb_protocol::{FileTime, Guid};
use smb_security::Token;
use smb_server::{
    Directory, Interfaces, NoPipes, NoQueues, NoRecord, Parts, ServerConfig, ShareConfig, ShareKind,
    SharePermission, ShareRight, SmbServer,
};
use tcp_service::Budget;

/// What is done in the middle of a login.
type Then = Box<dyn FnOnce() + Send>;

/// Users with the password "secret": `admin`, and `user`, `owner`, `stranger` and `ended`, who are nobody special.
#[derive(Default)]
pub struct TwoUsers {
    disabled: AtomicBool,
    left: Mutex<Vec<Sid>>,
    then: Mutex<Option<Then>>,
}

impl TwoUsers {
    /// Right after the next login has been found good, and before it has ended, both are disabled, and this is done.
    pub fn disable_in_the_middle_of_a_login(&self, then: impl FnOnce() + Send + 'static) {
        if let Ok(mut place) = self.then.lock() {
            *place = Some(Box::new(then));
        }
    }

    /// A user is gone from now on. What it has open stays until the server is told.
    pub fn leaves(&self, user: Sid) {
        if let Ok(mut left) = self.left.lock() {
            left.push(user);
        }
    }

    pub fn sid(rid: u32) -> Sid {
        Sid::new(5, &[21, 1, 2, 3, rid]).unwrap_or(Sid::ANONYMOUS)
    }
}

impl Accounts for TwoUsers {
    fn account(&self, _: &str, user: &str) -> Option<Account> {
        let rid = match user.to_lowercase().as_str() {
            "admin" => 500,
            "user" => 1001,
            "owner" => 1002,
            "stranger" => 1003,
            "ended" => 1004,
            _ => return None,
        };
        let nt_hash = NtHash::of_password("secret");
        Some(Account { name: user.to_lowercase(), sid: Self::sid(rid), nt_hash, state: AccountState::Active })
    }
}

impl Directory for TwoUsers {
    fn token(&self, user: Sid, _: &[Sid]) -> Option<Token> {
        if self.disabled.load(Ordering::SeqCst) {
            return None;
        }
        let then = self.then.lock().ok().and_then(|mut then| then.take());
        if let Some(then) = then {
            self.disabled.store(true, Ordering::SeqCst);
            then();
        }
        Some(Token::new(user, Self::sid(513), &[], user.rid() == Some(500)))
    }

    fn anonymous(&self) -> Token {
        Token::new(Sid::ANONYMOUS, Sid::ANONYMOUS, &[], false)
    }

    fn has_left(&self, user: Sid) -> bool {
        self.left.lock().is_ok_and(|left| left.contains(&user))
    }

    fn is_group(&self, sid: Sid) -> bool {
        sid == Self::sid(513)
    }

    fn name_of(&self, user: Sid) -> Option<String> {
        let name = match user.rid()? {
            500 => "admin",
            1001 => "user",
            1002 => "owner",
            1003 => "stranger",
            _ => return None,
        };
        Some(name.to_owned())
    }
}

/// The address that the client came in by.
struct SameAddress;

impl Interfaces for SameAddress {
    fn interfaces(&self, local: SocketAddr, _: SocketAddr) -> Vec<NetworkInterface> {
        let capabilities = InterfaceCapabilities::RSS_CAPABLE;
        vec![NetworkInterface { index: 1, capabilities, link_speed: 10_000_000_000, address: local.ip() }]
    }
}

/// The server with the threads that it runs on.
pub struct Served {
    pub server: SmbServer,
    pub files: FileSystem,
    pub address: SocketAddr,
    pub users: Arc<TwoUsers>,
    pub disks: Arc<disks::MemoryDisks>,
    shards: Shards,
}

/// The files of a store.
pub fn files(store: Arc<impl FileStore>) -> FileSystem {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let options = VolumeOptions {
        label: "memory".to_owned(),
        serial: 0x0123_4567_89ab_cdef,
        id: Guid([7; 16]),
        created: FileTime::from_unix_nanos(clock.wall().0 as i64),
        cluster: MemoryStore::UNIT as u32,
        kind: "NTFS".to_owned(),
    };
    FileSystem::new(store, clock, Arc::new(SystemEntropy), options)
}

/// A share of all files for everybody.
pub fn share(files: &FileSystem) -> ShareConfig {
    ShareConfig {
        name: "share".to_owned(),
        comment: String::new(),
        files: files.clone(),
        folder: String::new(),
        permissions: vec![SharePermission { who: Sid::AUTHENTICATED_USERS, right: ShareRight::Full }],
        kind: ShareKind::Plain,
        encrypt: false,
        caching: CachingMode::Manual,
        access_based_enumeration: false,
        hidden: false,
        read_only: false,
    }
}

/// Serves the shares `share`, `ca` (scale-out), `clustered` (continuously available, too), `sealed` (encrypted), `read`
/// (read-only) and `hideunread` (listings leave out what the user may not read) of a store.
pub fn serve(
    store: Arc<impl FileStore>,
    config: ServerConfig,
    address: SocketAddr,
) -> Result<Served, Box<dyn std::error::Error>> {
    serve_within(store, config, address, Budget::default())
}

/// As [`serve`], with that much memory for requests.
pub fn serve_within(
    store: Arc<impl FileStore>,
    config: ServerConfig,
    address: SocketAddr,
    budget: Budget,
) -> Result<Served, Box<dyn std::error::Error>> {
    let shards = Shards::start(2)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let files = files(store);
    let users = Arc::new(TwoUsers::default());
    let disks: Arc<disks::MemoryDisks> = Arc::default();
    let server = SmbServer::new(
        config,
        Parts {
            spawner: Arc::new(shards.all().to_vec()),
            clock,
            entropy: Arc::new(SystemEntropy),
            directory: users.clone(),
            pipes: Arc::new(NoPipes),
            queues: Arc::new(NoQueues),
            disks: disks.clone(),
            interfaces: Arc::new(SameAddress),
            guid: Guid([9; 16]),
            record: Arc::new(NoRecord),
            budget,
        },
    );
    for name in ["share", "share2", "share3", "ca", "clustered", "sealed", "read", "hideunread"] {
        server.add_share(ShareConfig {
            name: name.to_owned(),
            kind: match name {
                "ca" => ShareKind::ScaleOut,
                "clustered" => ShareKind::Clustered,
                _ => ShareKind::Plain,
            },
            encrypt: name == "sealed",
            access_based_enumeration: name == "hideunread",
            read_only: name == "read",
            ..share(&files)
        })?;
    }
    let address = server.listen(address)?;
    Ok(Served { server, files, address, users, disks, shards })
}

impl Served {
    /// Runs something on a shard.
    pub fn spawn<F: Future<Output = ()> + 'static>(&self, work: impl FnOnce() -> F + Send + 'static) {
        assert!(self.shards.next().spawn(work).is_ok());
    }

    /// Brings the persistent opens back, as a node does when it starts.
    pub fn restore(&self) -> smb_server::Restored {
        let (server, files) = (self.server.clone(), self.files.clone());
        let (send, receive) = std::sync::mpsc::channel();
        let spawned = self.shards.next().spawn(move || async move {
            let _ = send.send(server.restore(&files).await);
        });
        assert!(spawned.is_ok());
        receive.recv().ok().and_then(Result::ok).unwrap_or_default()
    }
}
