//! Verified load on our own server: through a network that forgets connections, and where something lies.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    missing_docs,
    reason = "tests, on threads of their own"
)]

#[path = "../../../smb/smb_server/tests/common/mod.rs"]
mod common;
#[path = "../../spd_engine/tests/support/mod.rs"]
mod faults;
#[path = "../../../smb/smb_server/tests/common/held.rs"]
mod held;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::serve;
use faults::{VERIFIED, Yes};
use file_store::MemoryStore;
use held::{Gate, held};
use shard_runtime::{Clock, SystemClock};
use smb_server::{ServerConfig, Signing};
use spd_engine::{Control, Login, Progress, run_span};
use spd_profile::TimeSpan;
use spd_report::System;
use spd_smb::SmbBackend;

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
/// Bytes of the file: few blocks, so that each is written often.
const SIZE: u64 = 64 * faults::BLOCK;
/// Requests of the load that are outstanding at once.
const DEPTH: usize = 8;

fn span(address: SocketAddr) -> TimeSpan {
    let mut span = faults::span(&format!("smb://{address}/share/f"));
    span.targets[0].create = Some(SIZE);
    span
}

fn open(span: &TimeSpan) -> SmbBackend {
    let login = Login { user: "admin".into(), password: "secret".into() };
    let paths = [span.targets[0].path.clone()];
    SmbBackend::open(&span.targets, &paths, &[Some(login)], VERIFIED, &Yes).unwrap()
}

#[test]
fn every_lie_of_a_server_is_found() {
    // Signed, and in the clear, where data of answers are not looked at on their way.
    for signing in [Signing::Required, Signing::Offered] {
        let store = Arc::new(MemoryStore::new(1 << 30));
        let served = serve(store, ServerConfig { signing, ..ServerConfig::default() }, ANY).unwrap();
        let span = span(served.address);
        faults::every_lie_is_found(&span, || open(&span));
    }
}

/// Ends a run when it is told to.
#[derive(Default)]
struct Until(AtomicBool);

impl Control for Until {
    fn stop(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
    fn progress(&self, _: &Progress) {}
}

/// A network between client and server that can forget connections: the client hears so, the server does not.
struct Network {
    address: SocketAddr,
    /// The client's sides, and the server's, which stay open.
    sides: Arc<Mutex<Vec<(TcpStream, TcpStream)>>>,
}

impl Network {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(ANY).unwrap();
        let address = listener.local_addr().unwrap();
        let sides: Arc<Mutex<Vec<_>>> = Arc::default();
        let all = Arc::clone(&sides);
        // Its threads end with the process.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(server).unwrap();
                let again = |stream: &TcpStream| stream.try_clone().unwrap();
                let (to_server, to_client) =
                    ((again(&client), again(&server)), (again(&server), again(&client)));
                std::thread::spawn(move || pump(to_server));
                std::thread::spawn(move || pump(to_client));
                all.lock().unwrap().push((client, server));
            }
        });
        Self { address, sides }
    }

    fn forget(&self) {
        for (client, _) in &*self.sides.lock().unwrap() {
            let _ = client.shutdown(Shutdown::Both);
        }
    }
}

/// Passes on what comes.
fn pump((mut from, mut to): (TcpStream, TcpStream)) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..len]).is_err() {
            return;
        }
    }
}

/// Waits for something for at most ten seconds; whether it came.
fn came(mut holds: impl FnMut() -> bool) -> bool {
    (0..500).any(|_| {
        let holds = holds();
        if !holds {
            std::thread::sleep(Duration::from_millis(20));
        }
        holds
    })
}

#[test]
fn what_a_forgotten_connection_had_under_way_does_not_come_after_newer_writes() {
    let gate = Gate::new();
    let store = held(Arc::new(MemoryStore::new(1 << 30)), Arc::clone(&gate));
    let served = serve(store, ServerConfig::default(), ANY).unwrap();
    let network = Network::to(served.address);
    // Longer than anything here waits: a test that fails ends, too.
    let span = TimeSpan { duration: 60, ..span(network.address) };
    let (backend, until) = (open(&span), Until::default());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(came(|| gate.passed() > 500), "there is load");
            let mut old: Vec<u64> = served.server.sessions().iter().map(|session| session.id).collect();
            gate.close();
            // Reads end, and what comes in their place are writes in the end.
            assert!(came(|| gate.waiting() == DEPTH), "{} writes wait", gate.waiting());
            network.forget();
            gate.let_pass();
            // Both threads come back and say instead of what; had they not, they would be writing by now.
            let before = old.len();
            came(|| {
                old.retain(|id| served.server.sessions().iter().any(|session| session.id == *id));
                old.len() + 2 <= before
            });
            std::thread::sleep(Duration::from_millis(500));
            gate.release();
            let before = gate.passed();
            assert!(came(|| gate.passed() > before + 2000), "the load goes on");
            until.0.store(true, Ordering::SeqCst);
        });
        run_span(&span, &backend, &System::default(), &clock, &until, Some(7)).unwrap()
    });
    let verify = outcome.verify.clone().unwrap();
    assert!(verify.wrong() == 0 && verify.checked > 100, "{verify:?}");
    assert!(verify.longest_stall_ms > 0.0, "{verify:?}");
    let (read, write) = outcome.sum();
    assert_eq!((read.errors, write.errors), (0, 0));
    assert_eq!(outcome.ended_early.as_deref(), Some("interrupted"));
}
