//! Serves shares in memory, to try clients and suites on the server alone.
//!
//! `cargo run -p smb_server --example memory_share -- 127.0.0.1:4450` and then, for instance,
//! `smbclient -p 4450 -U admin%secret //127.0.0.1/share -c ls`. With `--unsigned` signing is left to clients. The shares'
//! folder grants everybody everything: `user`, who is no administrator, can work there too.

#[path = "../tests/common/mod.rs"]
mod common;

use std::net::SocketAddr;
use std::sync::Arc;

use file_store::{Attributes, FileKind, FileStore, MemoryStore, NewFile, StoreFuture};
use shard_runtime::{Clock, SystemClock};
use smb_protocol::access::AccessMask;
use smb_protocol::security::sid::Sid;
use smb_protocol::security::{Ace, AceFlags, Acl, Control, SecurityDescriptor};
use smb_server::{ServerConfig, ShareConfig, Signing};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter("debug").init();
    let address: SocketAddr =
        std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:4450".to_owned()).parse()?;
    let signing =
        if std::env::args().any(|arg| arg == "--unsigned") { Signing::Offered } else { Signing::Required };
    let config = ServerConfig { signing, ..ServerConfig::default() };
    let clock = SystemClock::new();
    let store = Arc::new(MemoryStore::with_clock(16 << 30, move || clock.wall().0));
    let root = store.root();
    at_once(store.set_security(root, everybody()))?;
    // A folder for administrators, in a share for everybody.
    let closed =
        NewFile { kind: FileKind::Directory, attributes: Attributes::default(), security: Vec::new() };
    at_once(store.create(root, "closed", closed))?;
    let served = common::serve(store, config, address)?;
    served.server.add_share(ShareConfig {
        name: "noperm".to_owned(),
        folder: "closed".to_owned(),
        ..common::share(&served.files)
    })?;
    println!("listening on {}", served.address);
    loop {
        std::thread::park();
    }
}

/// A store in memory never waits.
fn at_once<T>(work: StoreFuture<'_, T>) -> Result<T, Box<dyn std::error::Error>> {
    let done = futures_util::FutureExt::now_or_never(work).ok_or("a store in memory waited")?;
    Ok(done?)
}

/// Everybody may do everything in the folder and below.
fn everybody() -> Vec<u8> {
    let down = AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT;
    let descriptor = SecurityDescriptor {
        control: Control::SELF_RELATIVE | Control::DACL_PRESENT | Control::DACL_AUTO_INHERITED,
        owner: Some(Sid::ADMINISTRATORS),
        group: Some(Sid::ADMINISTRATORS),
        sacl: None,
        dacl: Some(Acl { aces: vec![Ace::allow(Sid::EVERYONE, AccessMask::FILE_ALL, down)] }),
    };
    descriptor.encode()
}
