//! What clients that make the server hold memory cost the others: one process serves, this one attacks it and works beside.
//!
//! ```text
//!   hostile_clients BUDGET_MIB SECONDS LOGINS HALVES
//! ```
//! Four clients write and read 4 KiB and 64 KiB for SECONDS; then LOGINS further ones log in and announce a packet of 8 MiB
//! each of which nothing comes, HALVES more send half of one, and the four go on for SECONDS. Prints the 99th percentile of
//! their requests in both parts, the server's resident memory at first and at its highest, and how many of the attackers were still
//! connected at the end. `docs/results/memory.md` has a run.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a measurement of its own, on threads"
)]

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/common/wanted.rs"]
mod wanted;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command as Process, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use file_store::MemoryStore;
use smb_client::{Connection, Options};
use smb_protocol::access::ShareAccess;
use smb_protocol::message::Request;
use smb_protocol::read::ReadRequest;
use smb_protocol::write::WriteRequest;
use smb_server::ServerConfig;
use tcp_service::Budget;
use wanted::{ANY, Wanted, file_id};

type Failure = Box<dyn std::error::Error>;

/// What is announced: a WRITE of 8 MiB with its headers.
const PREFIX: [u8; 4] = [0, 0x80, 0, 0x70];
const HALF: usize = 4 << 20;
const WORKERS: usize = 4;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| -> Result<usize, Failure> {
        Ok(words.get(at).ok_or("hostile_clients BUDGET_MIB SECONDS LOGINS HALVES")?.parse()?)
    };
    if words.first().is_some_and(|word| word == "serve") {
        let store = Arc::new(MemoryStore::new(4 << 30));
        let served =
            common::serve_within(store, ServerConfig::default(), ANY, Budget::new(number(1)? << 20))?;
        println!("{}", served.address);
        // Until the other process is gone.
        let _ = std::io::stdin().read(&mut [0]);
        return Ok(());
    }
    let (budget, seconds, logins, halves) = (number(0)?, number(1)?, number(2)?, number(3)?);
    let mut server = Process::new(std::env::current_exe()?)
        .args(["serve", &budget.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(server.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let run = measure(line.trim().parse()?, server.id(), (seconds as u64, logins, halves));
    server.kill()?;
    server.wait()?;
    run
}

/// Who attacks: several users, as one alone gets a quarter of the connections that there is memory for.
const ATTACKERS: [&str; 4] = ["user", "owner", "stranger", "ended"];

fn client(address: SocketAddr, user: &str) -> Result<Connection, Failure> {
    let options = Options { timeout: Duration::from_secs(120), ..Options::default() };
    let mut connection = Connection::connect(address, options)?;
    connection.login(user, "secret")?;
    Ok(connection)
}

/// Kibibytes that a process has in memory.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// What the workers need, by part: 0 before, 1 during, 2 the end.
#[derive(Default)]
struct Parts {
    now: AtomicUsize,
    took: [Mutex<Vec<u64>>; 2],
}

fn work(address: SocketAddr, number: usize, parts: &Parts) -> Result<(), Failure> {
    let mut connection = client(address, "admin")?;
    let tree = connection.tree("share")?;
    let mut look = Wanted::plain();
    look.share = ShareAccess(7);
    let id = file_id(&look.open(&mut connection, tree));
    let base = number as u64 * (1 << 20);
    loop {
        for len in [4096_usize, 64 << 10] {
            let data = vec![number as u8; len];
            let part = parts.now.load(Ordering::SeqCst);
            let Some(took) = parts.took.get(part) else { return Ok(()) };
            let begun = Instant::now();
            let write = WriteRequest { offset: base, file_id: id, ..WriteRequest::default() };
            connection.call(&Request::Write(write, &data), tree)?.good()?;
            let written = begun.elapsed();
            let begun = Instant::now();
            let read =
                ReadRequest { offset: base, length: len as u32, file_id: id, ..ReadRequest::default() };
            connection.call(&Request::Read(read), tree)?.good()?;
            let nanos = [written, begun.elapsed()].map(|time| time.as_nanos() as u64);
            took.lock().map_err(|_| "a worker has failed")?.extend(nanos);
        }
    }
}

fn percentile(took: &Mutex<Vec<u64>>) -> (usize, f64, f64) {
    let mut took = took.lock().unwrap();
    took.sort_unstable();
    let at =
        |part: f64| took.get((took.len() as f64 * part) as usize).map_or(0.0, |nanos| *nanos as f64 / 1000.0);
    (took.len(), at(0.5), at(0.99))
}

/// Whether the server has not closed it.
fn is_open(stream: &TcpStream) -> bool {
    let _ = stream.set_nonblocking(true);
    match (&mut &*stream).read(&mut [0]) {
        Ok(got) => got > 0,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    }
}

fn measure(
    address: SocketAddr,
    server: u32,
    (seconds, logins, halves): (u64, usize, usize),
) -> Result<(), Failure> {
    let parts = Arc::new(Parts::default());
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| {
            let parts = Arc::clone(&parts);
            std::thread::spawn(move || work(address, number, &parts).map_err(|error| error.to_string()))
        })
        .collect();
    std::thread::sleep(Duration::from_secs(seconds));
    let first = resident(server);
    parts.now.store(1, Ordering::SeqCst);
    let highest = Arc::new(AtomicU64::new(0));
    let watch = {
        let (parts, highest) = (Arc::clone(&parts), Arc::clone(&highest));
        std::thread::spawn(move || {
            while parts.now.load(Ordering::SeqCst) == 1 {
                highest.fetch_max(resident(server), Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(20));
            }
        })
    };
    let mut attackers = Vec::new();
    for number in 0..logins + halves {
        let user = ATTACKERS.get(number % ATTACKERS.len()).ok_or("no attacker")?;
        let connection = client(address, user)?;
        let mut stream = TcpStream::from(connection.socket().try_clone_to_owned()?);
        let bytes = if number < logins { 16 } else { HALF };
        stream.set_write_timeout(Some(Duration::from_millis(20)))?;
        let mut message = PREFIX.to_vec();
        message.resize(PREFIX.len() + bytes, 0xfe);
        // The server stops reading where it has no memory for more.
        let _ = stream.write_all(&message);
        attackers.push((connection, stream));
    }
    std::thread::sleep(Duration::from_secs(seconds));
    parts.now.store(2, Ordering::SeqCst);
    let _ = watch.join();
    for worker in workers {
        worker.join().map_err(|_| "a worker has failed")??;
    }
    let open = attackers.iter().filter(|(_, stream)| is_open(stream)).count();
    for (name, took) in ["before", "during"].iter().zip(&parts.took) {
        let (count, half, most) = percentile(took);
        println!("{name}: {count} requests, p50 {half:.0} us, p99 {most:.0} us");
    }
    println!(
        "resident: {} MiB at first, {} MiB at its highest; {open} of {} attackers still connected",
        first >> 10,
        highest.load(Ordering::SeqCst) >> 10,
        attackers.len()
    );
    Ok(())
}
