//! What initiators that make the target hold memory cost the others: one process serves, this one attacks it and works beside.
//!
//! ```text
//!   hostile_initiators BUDGET_MIB SECONDS LOGINS HALVES PAUSE_MS
//! ```
//! Four initiators write and read 4 KiB and 64 KiB for SECONDS; then LOGINS further ones log in and announce a write of 32 MiB
//! each of which nothing comes. HALVES more log in, write 8 MiB and stop in the middle: half of the data where they are asked for
//! it, then the header of one more PDU without the data that it announces. As many again send half of a login. One comes every
//! PAUSE_MS milliseconds: this machine's processors have to make the attack, too. They all hold on for SECONDS, then go, and the four have SECONDS more. Prints the 99th percentile of their commands in each part, the target's
//! resident memory at first and at its highest, what its budget came to, and how many of the attackers were still connected
//! before they went. `docs/results/memory.md` has runs.
//!
//! A budget of 1,048,576 is none. Each login is 32 MiB of memory then: keep LOGINS below what the machine has.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a measurement of its own, on threads"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command as Process, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use iscsi_protocol::IscsiName;
use iscsi_protocol::pdu::{Bhs, flag, opcode};
use iscsi_target::{IscsiServer, PortalConfig, ServerConfig, TargetConfig};
use support::initiator::{Initiator, TARGET, rw};
use support::{MemoryDisk, Threads};
use tcp_service::Budget;

type Failure = Box<dyn std::error::Error>;

const WORKERS: usize = 4;
const MIB: usize = 1 << 20;
/// The longest write that is taken, and the one that stops in the middle.
const ANNOUNCED: usize = 32 * MIB;
const HALVED: usize = 8 * MIB;
/// Data of a PDU: what the target takes.
const SEGMENT: usize = 256 << 10;
/// Sessions of one target, below its limit.
const PER_TARGET: usize = 1000;
/// How long one that would send half of its data waits to be asked for it.
const ASKED: Duration = Duration::from_millis(100);

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| -> Result<usize, Failure> {
        Ok(words.get(at).ok_or("hostile_initiators BUDGET_MIB SECONDS LOGINS HALVES PAUSE_MS")?.parse()?)
    };
    if words.first().is_some_and(|word| word == "serve") {
        return serve(Budget::new(number(1)? << 20), number(2)?);
    }
    let (budget, seconds, logins, halves) = (number(0)?, number(1)?, number(2)?, number(3)?);
    let pause = Duration::from_millis(number(4)? as u64);
    let targets = (logins + halves).div_ceil(PER_TARGET) + 1;
    let mut child = Process::new(std::env::current_exe()?)
        .args(["serve", &budget.to_string(), &targets.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = BufReader::new(child.stdout.take().ok_or("no output")?);
    let run = measure(&mut child, &mut said, (seconds as u64, logins, halves, pause));
    child.kill()?;
    child.wait()?;
    run
}

fn target(number: usize) -> String {
    format!("{TARGET}{number}")
}

/// Serves at two portals, each of which takes 2,048 connections, and says on demand what the budget came to.
fn serve(budget: Budget, targets: usize) -> Result<(), Failure> {
    let threads = Threads::start(2);
    let server =
        IscsiServer::with_budget(ServerConfig::default(), threads, support::random(), budget.clone())?;
    for number in 0..targets {
        let name = IscsiName::parse(&target(number)).map_err(|_| "a name")?;
        server.add_target(TargetConfig::new(name, MemoryDisk::new(64 * MIB)))?;
    }
    for _ in 0..2 {
        println!("{}", server.add_portal(PortalConfig { address: "127.0.0.1:0".parse()?, group: 1 })?);
    }
    let highest = Arc::new(AtomicU64::new(0));
    std::thread::spawn({
        let (budget, highest) = (budget.clone(), Arc::clone(&highest));
        move || loop {
            highest.fetch_max(budget.usage().used, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    // Until the other process is gone.
    while std::io::stdin().read(&mut [0])? > 0 {
        let (highest, usage) = (highest.load(Ordering::SeqCst) >> 20, budget.usage());
        println!("budget: {highest} MiB of {} at its highest, {} refused", usage.limit >> 20, usage.refused);
    }
    Ok(())
}

/// A session of its own at a target.
fn initiator(address: SocketAddr, at: usize, number: usize, keys: &[(&str, &str)]) -> Option<Initiator> {
    let mut initiator = Initiator::connect(address);
    initiator.stream.set_read_timeout(Some(Duration::from_secs(120))).ok()?;
    initiator.isid[3..].copy_from_slice(&(number as u32).to_be_bytes()[1..]);
    // The last of two keys of one name would be a protocol error, so this is not `Initiator::login`.
    let name = target(at);
    let mut all = vec![("InitiatorName", support::initiator::INITIATOR), ("TargetName", &name)];
    all.extend_from_slice(keys);
    (initiator.login_request(0x87, &all).bhs.u16_at(36) == 0).then_some(initiator)
}

/// Kibibytes that a process has in memory.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

const PARTS: [&str; 4] = ["before", "while they come", "while they hold", "after"];

/// What the workers need: the part that is now, as a place in [`PARTS`], behind the last at the end.
#[derive(Default)]
struct Parts {
    now: AtomicUsize,
    took: [Mutex<Vec<u64>>; PARTS.len()],
}

/// Waits for the end of a command, which must be good; how many bytes came.
fn answer(i: &mut Initiator) -> Result<usize, &'static str> {
    let mut here = 0;
    loop {
        let pdu = i.try_receive().ok_or("a worker lost its connection")?;
        let status = match pdu.bhs.opcode() {
            opcode::DATA_IN => {
                here += pdu.data.len();
                pdu.bhs.flags() & flag::STATUS != 0
            }
            opcode::SCSI_RESPONSE => true,
            _ => false,
        };
        match status {
            true if pdu.bhs.0[3] == 0 => return Ok(here),
            true => return Err("a worker's command failed"),
            false => {}
        }
    }
}

fn work(address: SocketAddr, number: usize, parts: &Parts) -> Result<(), &'static str> {
    let keys = [("InitialR2T", "No"), ("ImmediateData", "Yes"), ("FirstBurstLength", "262144")];
    let mut i = initiator(address, 0, number, &keys).ok_or("a worker is refused")?;
    let base = (number * MIB / support::BLOCK) as u32;
    loop {
        for len in [4096_usize, 64 << 10] {
            let (blocks, data) = ((len / support::BLOCK) as u16, vec![number as u8; len]);
            let part = parts.now.load(Ordering::SeqCst);
            let Some(took) = parts.took.get(part) else { return Ok(()) };
            let begun = Instant::now();
            i.command(0xa1, &rw(0x2a, base, blocks), len as u32, &data);
            answer(&mut i)?;
            let written = begun.elapsed();
            let begun = Instant::now();
            i.command(0xc1, &rw(0x28, base, blocks), len as u32, &[]);
            if answer(&mut i)? != len {
                return Err("a worker was sent something else");
            }
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

/// Whether the target has not closed it, whatever it has said.
fn is_open(stream: &TcpStream) -> bool {
    let _ = stream.set_nonblocking(true);
    loop {
        match (&mut &*stream).read(&mut [0; 4096]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// WRITE(16) of so many bytes, without data.
fn announce(i: &mut Initiator, len: usize) -> u32 {
    let mut cdb = [0; 16];
    cdb[0] = 0x8a;
    cdb[10..14].copy_from_slice(&((len / support::BLOCK) as u32).to_be_bytes());
    i.command(0xa1, &cdb, len as u32, &[])
}

/// Sends half of a write as far as it is asked for, and the header of one more PDU.
fn halve(i: &mut Initiator) {
    let itt = announce(i, HALVED);
    let _ = i.stream.set_read_timeout(Some(ASKED));
    let _ = i.stream.set_write_timeout(Some(ASKED));
    let (mut sent, mut last) = (0, (0, 0, SEGMENT));
    while let Some(pdu) = i.try_receive() {
        if pdu.bhs.opcode() != opcode::R2T {
            continue;
        }
        let (offset, len) = (pdu.bhs.u32_at(40) as usize, pdu.bhs.u32_at(44) as usize);
        last = (pdu.bhs.ttt(), offset, len.min(SEGMENT));
        if sent >= HALVED / 2 || len <= SEGMENT {
            break;
        }
        for (sn, at) in (offset..offset + len).step_by(SEGMENT).enumerate() {
            let here = SEGMENT.min(offset + len - at);
            i.data_out(itt, last.0, (sn as u32, at as u32), at + here == offset + len, &vec![0xee; here]);
            sent += here;
        }
    }
    let mut bhs = Bhs::new(opcode::DATA_OUT, flag::FINAL);
    bhs.set_u32(16, itt);
    bhs.set_u32(20, last.0);
    bhs.set_u32(40, last.1 as u32);
    bhs.set_data_len(last.2);
    let _ = i.stream.write_all(&bhs.0);
}

/// A login that announces 8 KiB of text and sends half of it.
fn half_login(address: SocketAddr) -> Result<TcpStream, Failure> {
    let mut stream = TcpStream::connect(address)?;
    let mut bhs = Bhs::new(opcode::LOGIN | 0x40, 0x87);
    bhs.set_data_len(8192);
    let mut half = bhs.0.to_vec();
    half.resize(48 + 4096, b'x');
    let _ = stream.write_all(&half);
    Ok(stream)
}

fn attack(
    portals: [SocketAddr; 2],
    logins: usize,
    halves: usize,
    pause: Duration,
) -> Result<(Vec<TcpStream>, usize), Failure> {
    let (mut streams, mut refused) = (Vec::new(), 0);
    for number in 0..logins + halves {
        std::thread::sleep(pause);
        let half = number >= logins;
        let keys = [("InitialR2T", "Yes"), ("ImmediateData", "No"), ("MaxBurstLength", "16776192")];
        let at = 1 + number / PER_TARGET;
        match initiator(portals[usize::from(half)], at, WORKERS + number, &keys) {
            None => refused += 1,
            Some(mut i) => {
                match half {
                    false => {
                        announce(&mut i, ANNOUNCED);
                    }
                    true => {
                        halve(&mut i);
                        streams.push(half_login(portals[1])?);
                    }
                }
                streams.push(i.stream);
            }
        }
    }
    Ok((streams, refused))
}

fn measure(
    server: &mut Child,
    said: &mut BufReader<ChildStdout>,
    (seconds, logins, halves, pause): (u64, usize, usize, Duration),
) -> Result<(), Failure> {
    let mut line = || -> Result<String, Failure> {
        let mut line = String::new();
        said.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    };
    let portals = [line()?.parse()?, line()?.parse()?];
    let process = server.id();
    let parts = Arc::new(Parts::default());
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| {
            let parts = Arc::clone(&parts);
            std::thread::spawn(move || work(portals[0], number, &parts))
        })
        .collect();
    std::thread::sleep(Duration::from_secs(seconds));
    let first = resident(process);
    parts.now.store(1, Ordering::SeqCst);
    let highest = Arc::new(AtomicU64::new(0));
    let watch = {
        let (parts, highest) = (Arc::clone(&parts), Arc::clone(&highest));
        std::thread::spawn(move || {
            while parts.now.load(Ordering::SeqCst) < PARTS.len() {
                highest.fetch_max(resident(process), Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(20));
            }
        })
    };
    let begun = Instant::now();
    let (streams, refused) = attack(portals, logins, halves, pause)?;
    let took = begun.elapsed().as_secs();
    parts.now.store(2, Ordering::SeqCst);
    std::thread::sleep(Duration::from_secs(seconds));
    server.stdin.as_mut().ok_or("no input")?.write_all(b"\n")?;
    let budget = line()?;
    let open = streams.iter().filter(|stream| is_open(stream)).count();
    let count = streams.len();
    drop(streams);
    parts.now.store(3, Ordering::SeqCst);
    std::thread::sleep(Duration::from_secs(seconds));
    parts.now.store(PARTS.len(), Ordering::SeqCst);
    let _ = watch.join();
    for worker in workers {
        worker.join().map_err(|_| "a worker has failed")??;
    }
    for (name, took) in PARTS.iter().zip(&parts.took) {
        let (count, half, most) = percentile(took);
        println!("{name}: {count} commands, p50 {half:.0} us, p99 {most:.0} us");
    }
    let highest = highest.load(Ordering::SeqCst) >> 10;
    println!("resident: {} MiB at first, {highest} MiB at its highest", first >> 10);
    println!("{budget}");
    println!("{open} of {count} attackers still connected, {refused} logins refused; it took them {took} s");
    Ok(())
}
