//! The pipes against clients that we did not write: impacket, and Samba's Python bindings. Each pipe is served on a port of
//! its own, as both clients speak the same PDUs over TCP.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use rpc::fuzz;

const PIPES: [&str; 4] = ["srvsvc", "wkssvc", "lsarpc", "samr"];

/// Serves one connection as a pipe of a server of its own.
fn serve(mut stream: TcpStream, name: &str, administrator: bool) {
    let pipe = fuzz::service().open(name, fuzz::client(administrator)).expect("a pipe of ours");
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
    record(name, administrator, &sent);
}

/// Keeps what a client sent, as a seed for the fuzzer, in the folder that RPC_RECORD names.
fn record(name: &str, administrator: bool, sent: &[u8]) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let Ok(folder) = std::env::var("RPC_RECORD") else { return };
    let pipe = PIPES.iter().position(|known| *known == name).unwrap() as u8;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::path::Path::new(&folder).join(format!("{name}{number:03}"));
    std::fs::write(path, [&[pipe | if administrator { 0 } else { 4 }], sent].concat()).unwrap();
}

/// A port for each pipe and who opens it: an administrator, and somebody who is none.
fn listen() -> Vec<String> {
    let mut ports = Vec::new();
    for administrator in [true, false] {
        for pipe in PIPES {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    std::thread::spawn(move || serve(stream, pipe, administrator));
                }
            });
            ports.push(format!("{}{pipe}={port}", if administrator { "" } else { "plain-" }));
        }
    }
    ports
}

fn run(python: &str, module: &str, script: &str) {
    let there = Command::new(python).args(["-c", &format!("import {module}")]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        // Recordings of both are replayed in any case (`recorded_clients_are_served`).
        println!("skipped: {python} has no module {module}");
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
