//! Serves two shares in memory, to try clients and suites on the server alone.
//!
//! `cargo run -p smb_server --example memory_share -- 127.0.0.1:4450` and then, for instance,
//! `smbclient -p 4450 -U admin%secret //127.0.0.1/share -c ls`.

use std::net::SocketAddr;
use std::sync::Arc;

use file_store::MemoryStore;
use shard_runtime::{Clock, Shards, SystemClock, SystemEntropy};
use smb_auth::{Account, AccountState, Accounts, NtHash};
use smb_files::{FileSystem, VolumeOptions};
use smb_protocol::fsctl::network::{InterfaceCapabilities, NetworkInterface};
use smb_protocol::security::sid::Sid;
use smb_protocol::tree::CachingMode;
use smb_protocol::{FileTime, Guid};
use smb_security::Token;
use smb_server::{
    Directory, Interfaces, NoPipes, Parts, ServerConfig, ShareConfig, SharePermission, ShareRight, Signing,
    SmbServer,
};

/// Two users with the password "secret": `admin`, and `user`, who is nobody special.
struct TwoUsers;

impl TwoUsers {
    fn sid(rid: u32) -> Sid {
        Sid::new(5, &[21, 1, 2, 3, rid]).unwrap_or(Sid::ANONYMOUS)
    }
}

impl Accounts for TwoUsers {
    fn account(&self, _: &str, user: &str) -> Option<Account> {
        let rid = match user.to_lowercase().as_str() {
            "admin" => 500,
            "user" => 1001,
            _ => return None,
        };
        let nt_hash = NtHash::of_password("secret");
        Some(Account { name: user.to_lowercase(), sid: Self::sid(rid), nt_hash, state: AccountState::Active })
    }
}

impl Directory for TwoUsers {
    fn token(&self, user: Sid, _: &[Sid]) -> Option<Token> {
        Some(Token::new(user, Self::sid(513), &[], user.rid() == Some(500)))
    }

    fn anonymous(&self) -> Token {
        Token::new(Sid::ANONYMOUS, Sid::ANONYMOUS, &[], false)
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter("debug").init();
    let address: SocketAddr =
        std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:4450".to_owned()).parse()?;
    let unsigned = std::env::args().any(|arg| arg == "--unsigned");
    let shards = Shards::start(2)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = Arc::new(MemoryStore::new(16 << 30));
    let files = FileSystem::new(
        store,
        Arc::clone(&clock),
        &SystemEntropy,
        VolumeOptions {
            label: "memory".to_owned(),
            serial: 0x0123_4567_89ab_cdef,
            id: Guid([7; 16]),
            created: FileTime::from_unix_nanos(i64::try_from(clock.wall().0)?),
            cluster: 4096,
            kind: "NTFS".to_owned(),
        },
    );
    let config = ServerConfig {
        signing: if unsigned { Signing::Offered } else { Signing::Required },
        ..ServerConfig::default()
    };
    let server = SmbServer::new(
        config,
        Parts {
            spawner: Arc::new(shards.all().to_vec()),
            clock,
            entropy: Arc::new(SystemEntropy),
            directory: Arc::new(TwoUsers),
            pipes: Arc::new(NoPipes),
            interfaces: Arc::new(SameAddress),
            guid: Guid([9; 16]),
        },
    );
    for (name, continuously_available, encrypt) in
        [("share", false, false), ("ca", true, false), ("sealed", false, true)]
    {
        server.add_share(ShareConfig {
            name: name.to_owned(),
            comment: String::new(),
            files: files.clone(),
            folder: String::new(),
            permissions: vec![SharePermission { who: Sid::AUTHENTICATED_USERS, right: ShareRight::Full }],
            continuously_available,
            encrypt,
            caching: CachingMode::Manual,
            access_based_enumeration: false,
            hidden: false,
            read_only: false,
        })?;
    }
    println!("listening on {}", server.listen(address)?);
    loop {
        std::thread::park();
    }
}
