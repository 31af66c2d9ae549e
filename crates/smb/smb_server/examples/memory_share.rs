//! Serves shares in memory, to try clients and suites on the server alone.
//!
//! `cargo run -p smb_server --example memory_share -- 127.0.0.1:4450` and then, for instance,
//! `smbclient -p 4450 -U admin%secret //127.0.0.1/share -c ls`. With `--unsigned` signing is left to clients.

#[path = "../tests/common/mod.rs"]
mod common;

use std::net::SocketAddr;
use std::sync::Arc;

use file_store::MemoryStore;
use smb_server::{ServerConfig, Signing};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter("debug").init();
    let address: SocketAddr =
        std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:4450".to_owned()).parse()?;
    let signing =
        if std::env::args().any(|arg| arg == "--unsigned") { Signing::Offered } else { Signing::Required };
    let config = ServerConfig { signing, ..ServerConfig::default() };
    let served = common::serve(Arc::new(MemoryStore::new(16 << 30)), config, address)?;
    println!("listening on {}", served.address);
    loop {
        std::thread::park();
    }
}
