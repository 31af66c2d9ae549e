//! Load on an SMB server over one connection: a pipeline of reads or writes of one file, or storms of small requests.
//!
//! ```text
//!   smb_bench ADDRESS SHARE USER PASSWORD MODE SIZE DEPTH SECONDS PROTECTION MIB [PID]
//!     MODE        randread randwrite seqread seqwrite | stat openclose files persistent
//!                 | sessions opens openers (SIZE of them)
//!     PROTECTION  none gmac gcm
//!     PID         the server, whose processor time is measured with that of its children
//! ```
//! `files` makes a small file, writes SIZE bytes, closes it, and deletes it with a second open; `persistent` opens with a
//! persistent handle and closes. One operation is all of that. Prints `iops=… p50=… p99=… srv_cpu_us_per_io=…`.

mod client;
mod process;
mod scale;

use std::collections::BTreeMap;
use std::time::Duration;

use client::{Client, Failure, Place};
use process::processor_time;
use shard_runtime::{Clock as _, Entropy as _, Monotonic, SeededEntropy, SystemClock, SystemEntropy};
use smb_client::Protection;
use smb_protocol::access::{CreateDisposition, CreateOptions};
use smb_protocol::file::FileId;
use smb_protocol::message::Request;
use smb_protocol::read::ReadRequest;
use smb_protocol::write::WriteRequest;
use smb_protocol::{Command, Guid, NtStatus};

/// The file that reads and writes use.
const FILE: &str = "bench.dat";
/// Length of one write while the file is filled.
const FILL: usize = 1 << 20;

/// What is to be done.
struct Load {
    mode: String,
    size: usize,
    depth: usize,
    length: Duration,
    bytes: u64,
    server: Option<u32>,
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, share, user, password, mode, size, depth, seconds, protection, mib, rest @ ..] =
        words.as_slice()
    else {
        return Err(
            "usage: smb_bench ADDRESS SHARE USER PASSWORD MODE SIZE DEPTH SECONDS PROTECTION MIB [PID]"
                .into(),
        );
    };
    let load = Load {
        mode: mode.clone(),
        size: size.parse()?,
        depth: depth.parse()?,
        length: Duration::from_secs_f64(seconds.parse()?),
        bytes: mib.parse::<u64>()? << 20,
        server: rest.first().map(|pid| pid.parse()).transpose()?,
    };
    let place = Place { address: address.parse()?, share, user, password };
    let protection = match protection.as_str() {
        "none" => Protection::None,
        "gmac" => Protection::Sign,
        "gcm" => Protection::Seal,
        other => return Err(format!("{other}: not none, gmac or gcm").into()),
    };
    let line = match mode.as_str() {
        "sessions" | "opens" | "openers" => scale::run(&place, mode, load.size, load.server)?,
        _ => Client::connect(&place, protection)?.run(&load)?,
    };
    println!("{line}");
    Ok(())
}

impl Client {
    fn run(&mut self, load: &Load) -> Result<String, Failure> {
        self.gather_credits()?;
        let clock = SystemClock::new();
        let file = match load.mode.as_str() {
            "randread" | "randwrite" | "seqread" | "seqwrite" => Some(self.filled(load.bytes)?),
            "stat" => Some(self.open(FILE, CreateDisposition::OPEN_IF, CreateOptions::NONE, None)?),
            _ => None,
        };
        let before = load.server.map(processor_time);
        let begin = clock.now();
        let mut latencies = match file {
            Some(file) if load.mode != "stat" => self.pipeline(load, file, &clock)?,
            file => self.storm(load, file.unwrap_or_default(), &clock)?,
        };
        let seconds = clock.now().since(begin).as_secs_f64();
        let cpu = load.server.map(processor_time).zip(before).map_or(0.0, |(now, then)| now - then);
        latencies.sort_unstable();
        let count = latencies.len().max(1) as f64;
        let at = |part: f64| {
            latencies.get((count * part) as usize).copied().unwrap_or_default().as_secs_f64() * 1e6
        };
        Ok(format!(
            "iops={:.0} p50={:.1} p99={:.1} srv_cpu_us_per_io={:.2}",
            count / seconds,
            at(0.5),
            at(0.99),
            cpu * 1e6 / count
        ))
    }

    /// Keeps `depth` reads or writes of a file under way.
    fn pipeline(&mut self, load: &Load, file: FileId, clock: &SystemClock) -> Result<Vec<Duration>, Failure> {
        let (write, random) = (load.mode.ends_with("write"), load.mode.starts_with("rand"));
        let data = vec![0x5a; if write { load.size } else { 0 }];
        let places = load.bytes / load.size as u64;
        let dice = SeededEntropy::new(1);
        let (mut latencies, mut under_way, mut next) = (Vec::new(), BTreeMap::<u64, Monotonic>::new(), 0);
        let start = clock.now();
        loop {
            while under_way.len() < load.depth && clock.now().since(start) < load.length {
                next = if random { dice.next_u64() % places } else { (next + 1) % places };
                let offset = next * load.size as u64;
                let (command, request) = if write {
                    (
                        Command::WRITE,
                        Request::Write(
                            WriteRequest { file_id: file, offset, ..WriteRequest::default() },
                            &data,
                        ),
                    )
                } else {
                    let length = load.size as u32;
                    (
                        Command::READ,
                        Request::Read(ReadRequest {
                            file_id: file,
                            offset,
                            length,
                            ..ReadRequest::default()
                        }),
                    )
                };
                under_way.insert(self.send(command, &request, load.size)?, clock.now());
            }
            if under_way.is_empty() {
                return Ok(latencies);
            }
            let answer = self.connection.receive()?;
            if answer.header.status == NtStatus::PENDING {
                continue;
            }
            if answer.header.status != NtStatus::SUCCESS {
                return Err(format!("{} failed: {}", load.mode, answer.header.status).into());
            }
            if let Some(begin) = under_way.remove(&answer.header.message_id) {
                latencies.push(clock.now().since(begin));
            }
        }
    }

    fn send(&mut self, command: Command, request: &Request<'_>, bytes: usize) -> Result<u64, Failure> {
        let header = self.connection.header_for(command, self.tree, bytes);
        let packet = self.connection.packet(&[(header, request)])?;
        let packet = self.connection.protect(packet)?;
        self.connection.send_raw(&packet)?;
        Ok(header.message_id)
    }

    /// One small operation after the other.
    fn storm(&mut self, load: &Load, file: FileId, clock: &SystemClock) -> Result<Vec<Duration>, Failure> {
        let mut latencies = Vec::new();
        let start = clock.now();
        let data = vec![0x5a; load.size];
        let normal = CreateOptions::NON_DIRECTORY_FILE;
        while clock.now().since(start) < load.length {
            let begin = clock.now();
            match load.mode.as_str() {
                "stat" => self.stat(file)?,
                "openclose" => {
                    let file = self.open(FILE, CreateDisposition::OPEN_IF, normal, None)?;
                    self.close(file)?;
                }
                "persistent" => {
                    let guid = Guid(SystemEntropy.next_id());
                    let file = self.open(FILE, CreateDisposition::OPEN_IF, normal, Some(guid))?;
                    self.close(file)?;
                }
                "files" => {
                    // Several of these processes may work in one folder.
                    let name = format!("f{}-{}", std::process::id(), latencies.len() % 1000);
                    let file = self.open(&name, CreateDisposition::CREATE, normal, None)?;
                    let write = WriteRequest { file_id: file, ..WriteRequest::default() };
                    self.call(&Request::Write(write, &data))?;
                    self.close(file)?;
                    let gone = normal | CreateOptions::DELETE_ON_CLOSE;
                    let file = self.open(&name, CreateDisposition::OPEN, gone, None)?;
                    self.close(file)?;
                }
                other => return Err(format!("{other}: unknown mode").into()),
            }
            latencies.push(clock.now().since(begin));
        }
        Ok(latencies)
    }

    /// The file, with all its bytes written once.
    fn filled(&mut self, bytes: u64) -> Result<FileId, Failure> {
        let file = self.open(FILE, CreateDisposition::OPEN_IF, CreateOptions::NON_DIRECTORY_FILE, None)?;
        let last = ReadRequest { file_id: file, offset: bytes - 1, length: 1, ..ReadRequest::default() };
        if self.connection.call(&Request::Read(last), self.tree)?.header.status == NtStatus::SUCCESS {
            return Ok(file);
        }
        let data = vec![0xa5; FILL];
        for at in (0..bytes).step_by(FILL) {
            let write = WriteRequest { file_id: file, offset: at, ..WriteRequest::default() };
            let id = self.send(Command::WRITE, &Request::Write(write, &data), FILL)?;
            self.connection.answer_to(id)?.good()?;
        }
        Ok(file)
    }
}
