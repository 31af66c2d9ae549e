//! The pipes against clients that we did not write: impacket, and Samba's Python bindings. Each pipe is served on a port of
//! its own, as both clients speak the same PDUs over TCP.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rpc::view::ServerView as _;
use rpc::view::memory::Memory;
use rpc::{Authenticator, RpcClient, RpcService};
use smb_auth::{
    Acceptor, Account, AccountState, Accounts, Authenticated, Identity, NtHash, NtlmAcceptor, NtlmServer,
};
use smb_protocol::FileTime;
use smb_protocol::security::sid::Sid;

const PIPES: [&str; 4] = ["srvsvc", "wkssvc", "lsarpc", "samr"];

/// Lets alice in, who is an administrator, and bob, who is not.
struct Users(Sid, AtomicU64);

impl Accounts for Users {
    fn account(&self, _: &str, user: &str) -> Option<Account> {
        let rid = match user {
            "alice" => 1001,
            "bob" => 1000,
            _ => return None,
        };
        let nt_hash = NtHash::of_password("secret");
        Some(Account { name: user.to_owned(), sid: self.0.child(rid)?, nt_hash, state: AccountState::Active })
    }
}

impl Authenticator for Users {
    fn acceptor(&self) -> Option<Acceptor> {
        let name = "NODE1".to_owned();
        let server = NtlmServer { computer: name.clone(), domain: name, ..NtlmServer::default() };
        let challenge = self.1.fetch_add(1, Ordering::Relaxed).to_le_bytes();
        let ntlm = NtlmAcceptor::new(Arc::new(server), challenge, FileTime(133_000_000_000_000_000));
        Some(Acceptor::new(vec![Box::new(ntlm)]))
    }

    fn accounts(&self) -> &dyn Accounts {
        self
    }

    fn client(&self, who: &Authenticated) -> Option<RpcClient> {
        let Identity::User { name, sid, .. } = &who.identity else { return None };
        let is_administrator = name == "alice";
        Some(RpcClient { user: name.clone(), domain: "NODE1".to_owned(), sid: *sid, is_administrator })
    }
}

fn serve(mut stream: TcpStream, service: &RpcService, name: &str, client: RpcClient) {
    let pipe = service.open(name, client).expect("a pipe of ours");
    let mut sent = Vec::new();
    let mut bytes = [0; 65_536];
    while let Ok(len @ 1..) = stream.read(&mut bytes) {
        sent.extend_from_slice(&bytes[..len]);
        if pipe.write(&bytes[..len]).is_err() {
            break;
        }
        let mut answered = true;
        while answered {
            let Some((part, _)) = pipe.read(1000) else { break };
            answered = stream.write_all(&part).is_ok();
        }
    }
    record(name, &sent);
}

/// Keeps what a client sent, as a seed for the fuzzer, where RPC_RECORD says.
fn record(name: &str, sent: &[u8]) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let Ok(folder) = std::env::var("RPC_RECORD") else { return };
    let pipe = PIPES.iter().position(|known| *known == name).unwrap() as u8;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::path::Path::new(&folder).join(format!("client{number:03}"));
    std::fs::write(path, [&[pipe], sent].concat()).unwrap();
}

/// Ports for an administrator, and one for srvsvc and lsarpc for somebody who is not.
fn listen() -> Vec<String> {
    let memory = Arc::new(Memory::sample());
    let users = Arc::new(Users(memory.machine(), AtomicU64::new(0x0123_4567_89ab_cdef)));
    let service = RpcService::new(memory, users);
    let plain = PIPES.map(|pipe| (pipe, false));
    PIPES
        .map(|pipe| (pipe, true))
        .into_iter()
        .chain(plain)
        .map(|(pipe, administrator)| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let service = service.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let client = rpc::fuzz::client(administrator);
                    let service = service.clone();
                    std::thread::spawn(move || serve(stream, &service, pipe, client));
                }
            });
            format!("{}{pipe}={port}", if administrator { "" } else { "plain-" })
        })
        .collect()
}

fn run(python: &str, module: &str, script: &str) {
    let there = Command::new(python).args(["-c", &format!("import {module}")]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none() || module == "impacket", "{python} has no {module}");
        println!("skipped: {python} has no {module}");
        return;
    }
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script);
    let output = Command::new(python).arg(script).args(listen()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

#[test]
fn impacket() {
    let python = std::env::var("IMPACKET_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    run(&python, "impacket", "impacket_client.py");
}

#[test]
fn samba() {
    run("/usr/bin/python3", "samba", "samba_client.py");
}
