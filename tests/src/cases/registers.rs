//! A LUN as an array of registers, each written by one client and read by another, while anything happens to the nodes between.
//!
//! ```text
//!   4 KiB at each MiB of the LUN = one register: (number, value) again and again
//!   writer:  begun = v ─► WRITE, FUA ─► GOOD: acknowledged = v          the next value is v + 1, whatever became of v
//!   reader:  low = the most that is acknowledged or was read ─► READ ─► every value in it is low ≤ value ≤ begun
//! ```
//! Where it has had no answer the writer reads all of them before it writes on: what was acknowledged last before a takeover would soon be
//! overwritten otherwise. When all is over and at rest, each node is asked for all of them once more: each has one value only, the same at all nodes.
//!
//! A value below `low` is an acknowledged write that is lost, hidden by a node that is no owner any more, or overwritten by one that
//! came late; one above `begun`, or another number, are wrong bytes. A client that gets no answer goes to the next node, with a
//! session of its own, so what it sent before may still be under way there: it must not arrive after what was acknowledged since.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use iscsi_client::{Answer, Buffers, Command, Options, Session, Transfer};
use iscsi_protocol::{IscsiName, url::Url};
use scsi_core::WireLun;
use scsi_defs::request;

use super::cluster::failed;
use super::failover::inside;
use crate::process::{Deadline, pause};
use crate::{Outcome, Result};

/// Registers of a LUN. Few, so that each is written and read often.
const REGISTERS: usize = 48;
/// Bytes of a register, and from one to the next: each lies in a region of its own, whose copies are made equal by itself.
const SIZE: usize = 4096;
const STRIDE: usize = 1 << 20;
/// Bytes of a block of the LUN.
const BLOCK: usize = 512;
/// What a client without an answer waits before it asks another node.
const PATIENCE: Duration = Duration::from_secs(4);
/// Between two of its attempts, so that a cluster that serves nobody is not kept busy by who asks.
const BETWEEN: Duration = Duration::from_millis(20);
/// Findings that are kept: the first say it all.
const TOLD: usize = 8;
const GOOD: u8 = 0;
const INITIATOR: &str = "iqn.2026-11.test.holdfast:registers";
/// The ports of the writer and of who reads at the end; those of readers lie between.
const WRITER: u8 = 1;
const LAST: u8 = 0xff;
/// All registers can be read at a node at the end.
const READ_BACK: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Default)]
struct Register {
    begun: u64,
    acknowledged: u64,
    seen: u64,
}

/// What the clients of a LUN did, and what was wrong.
pub(super) struct Registers {
    name: String,
    /// Addresses of the LUN, one for each node.
    urls: Vec<String>,
    registers: Vec<Mutex<Register>>,
    stop: AtomicBool,
    writes: AtomicU64,
    /// Reads of readers: what writers look back at does not show that readers are served.
    reads: AtomicU64,
    /// Attempts that were not answered, or with an error.
    in_vain: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

/// A client with a session to one node after the other.
struct Client<'a> {
    of: &'a Registers,
    /// Its port: who has the same one ends the session of the other.
    port: u8,
    at: usize,
    session: Option<Session>,
}

/// The buffers of the one command under way.
struct One {
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Buffers for One {
    fn input(&mut self, _: usize) -> &mut [u8] {
        &mut self.input
    }

    fn output(&self, _: usize) -> &[u8] {
        &self.output
    }
}

impl Client<'_> {
    fn open(&self) -> Result<Session> {
        let text = self.of.urls.get(self.at).cloned().unwrap_or_default();
        let url = Url::parse(&text).map_err(|why| failed("URL", why))?;
        let initiator = IscsiName::parse(INITIATOR).map_err(|why| failed("name", why))?;
        let isid = [0x80, 0, 0, 0, 0, self.port];
        let options = Options { url, initiator, isid, user: None, target_user: None, depth: 1 };
        Session::open(&options).map_err(|why| failed("session", why))
    }

    /// One command at the node that it is with; an end that is not GOOD, or none in time, is an error, and the session is given up.
    fn ask(&mut self, cdb: &[u8], transfer: Transfer, output: &[u8]) -> Result<Answer> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.open()?,
        };
        let length = if let Transfer::In(length) = transfer { length as usize } else { 0 };
        let mut buffers = One { input: vec![0; length], output: output.to_vec() };
        let command = Command { lun: WireLun::from_number(0).0, cdb, transfer };
        let (mut ended, mut begun, limit) = (Vec::new(), false, Deadline::after(PATIENCE));
        while ended.is_empty() {
            if !begun {
                begun = session.start(0, &command, &buffers).map_err(|why| failed("command", why))?;
            }
            session
                .turn(Duration::from_millis(100), &mut buffers, &mut ended)
                .map_err(|why| failed("turn", why))?;
            if ended.is_empty() && limit.left().is_zero() {
                return Err(failed("command", "no answer"));
            }
        }
        let end = ended[0].end;
        // What is told once of a new session (unit attention) is no reason to leave the node.
        self.session = Some(session);
        if end.status != GOOD {
            return Err(failed("command", format!("{end:?}")));
        }
        Ok(Answer { end, data: buffers.input })
    }

    /// Goes on to the next node, after a moment. What was under way at the last one is left to its fate.
    fn next(&mut self) {
        self.of.in_vain.fetch_add(1, Ordering::Relaxed);
        self.session = None;
        self.at = (self.at + 1) % self.of.urls.len();
        pause(BETWEEN);
    }

    /// A command that is tried twice at a node: the first one may meet a unit attention.
    fn try_here(&mut self, cdb: &[u8], transfer: Transfer, output: &[u8]) -> Result<Answer> {
        let first = self.ask(cdb, transfer, output);
        if first.is_err() && self.session.is_some() { self.ask(cdb, transfer, output) } else { first }
    }
}

fn content(number: usize, value: u64) -> Vec<u8> {
    let one: Vec<u8> = [number as u64, value].iter().flat_map(|part| part.to_le_bytes()).collect();
    one.repeat(SIZE / one.len())
}

/// The block in which a register begins.
fn lba(number: usize) -> u64 {
    (number * STRIDE / BLOCK) as u64
}

/// The oldest value in what was read of a register, or the first part (number, value) that cannot be there. `at_rest`: nobody writes, so that all
/// parts have one value.
fn seen(
    number: u64,
    (low, high): (u64, u64),
    data: &[u8],
    at_rest: bool,
) -> std::result::Result<u64, (u64, u64)> {
    let mut oldest = high;
    let mut first = None;
    for part in data.chunks_exact(16) {
        let word = |at: usize| u64::from_le_bytes(part[at..at + 8].try_into().unwrap_or_default());
        let (found, value) = (word(0), word(8));
        // Nobody has written it yet.
        let empty = (found, value) == (0, 0);
        let torn = at_rest && *first.get_or_insert((found, value)) != (found, value);
        if !(found == number || empty) || value < low || value > high || torn {
            return Err((found, value));
        }
        oldest = oldest.min(value);
    }
    Ok(oldest)
}

impl Registers {
    pub(super) fn new(name: &str, urls: Vec<String>) -> Self {
        let registers = (0..REGISTERS).map(|_| Mutex::default()).collect();
        let (writes, reads, in_vain) = Default::default();
        let (stop, wrong) = Default::default();
        Self { name: name.to_owned(), urls, registers, stop, writes, reads, in_vain, wrong }
    }

    fn with<T>(&self, number: usize, look: impl FnOnce(&mut Register) -> T) -> T {
        let mut register = self.registers[number].lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        look(&mut register)
    }

    /// The writer, until [`Registers::end`].
    fn write(&self) {
        let mut client = Client { of: self, port: WRITER, at: 0, session: None };
        let mut number = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let value = self.with(number, |register| {
                register.begun += 1;
                register.begun
            });
            let cdb = request::write(lba(number), (SIZE / BLOCK) as u32, true);
            match client.try_here(&cdb, Transfer::Out(SIZE as u32), &content(number, value)) {
                Ok(_) => {
                    self.with(number, |register| register.acknowledged = value);
                    self.writes.fetch_add(1, Ordering::Relaxed);
                    number = (number + 1) % REGISTERS;
                }
                Err(_) => {
                    client.next();
                    self.look_back(&mut client);
                }
            }
        }
    }

    /// Reads all of them at whichever node answers.
    fn look_back(&self, client: &mut Client<'_>) {
        for number in 0..REGISTERS {
            while !self.stop.load(Ordering::Relaxed) && self.read_one(client, number, false).is_err() {
                client.next();
            }
        }
    }

    /// Reads all of them at each node, when nobody writes any more: each has one value.
    fn read_back(&self) -> Result {
        for at in 0..self.urls.len() {
            let limit = Deadline::after(READ_BACK);
            let mut client = Client { of: self, port: LAST, at, session: None };
            for number in 0..REGISTERS {
                limit.poll("a register that can be read", || {
                    client.at = at;
                    Ok(self.read_one(&mut client, number, true).ok())
                })?;
                // What was begun last and never answered is there or is not: the first node has said which, and the others have to agree.
                self.with(number, |register| register.begun = register.seen);
            }
        }
        self.sound()
    }

    /// A reader, until [`Registers::end`], which begins with a node and changes it from time to time by itself.
    fn read(&self, from: usize) {
        let mut client = Client { of: self, port: WRITER + 1 + from as u8, at: from, session: None };
        let mut number = 0;
        while !self.stop.load(Ordering::Relaxed) {
            if self.read_one(&mut client, number, false).is_err() {
                client.next();
                continue;
            }
            self.reads.fetch_add(1, Ordering::Relaxed);
            number = (number + 7) % REGISTERS;
            if number == 0 {
                client.session = None;
                client.at = (client.at + 1) % self.urls.len();
            }
        }
    }

    fn read_one(&self, client: &mut Client<'_>, number: usize, at_rest: bool) -> Result {
        let low = self.with(number, |register| register.acknowledged.max(register.seen));
        let cdb = request::read(lba(number), (SIZE / BLOCK) as u32);
        let node = client.at;
        let answer = client.try_here(&cdb, Transfer::In(SIZE as u32), &[])?;
        let high = self.with(number, |register| register.begun);
        match seen(number as u64, (low, high), &answer.data, at_rest) {
            // A read beside a write may see parts of both: what is seen for good is the older one.
            Ok(value) => self.with(number, |register| register.seen = register.seen.max(value)),
            Err(wrong) => self.tell(format!(
                "{}: register {number} read at node {} is {wrong:?}; acknowledged or read before: {low}, begun: {high}",
                self.name,
                node + 1
            )),
        }
        Ok(())
    }

    fn tell(&self, what: String) {
        let mut wrong = self.wrong.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if wrong.len() < TOLD {
            wrong.push(what);
        }
    }

    /// Ends writers and readers.
    fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Writes acknowledged, reads answered, attempts in vain.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.writes), count(&self.reads), count(&self.in_vain))
    }

    /// Fails if anything was wrong until now.
    pub(super) fn sound(&self) -> Result {
        let wrong = self.wrong.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if wrong.is_empty() { Ok(()) } else { Err(Outcome::Fail(wrong.join("\n"))) }
    }
}

/// What a client came to that is a thread.
fn joined<T>(client: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    client.join().unwrap_or_else(|_| Err(failed("a client", "panicked")))
}

/// Writers and readers in a namespace use the LUNs while something happens.
pub(super) fn under_load(namespace: &str, luns: &[Registers], happen: impl FnOnce() -> Result) -> Result {
    std::thread::scope(|scope| {
        let mut clients = Vec::new();
        for lun in luns {
            clients.push(scope.spawn(move || inside(namespace, || lun.write())));
            for from in 0..2 {
                clients.push(scope.spawn(move || inside(namespace, || lun.read(from))));
            }
        }
        let happened = happen();
        luns.iter().for_each(Registers::end);
        // One that could not begin, or panicked, has tested nothing.
        let ended: Result = clients.into_iter().try_for_each(joined);
        happened.and(ended)
    })
}

/// All LUNs are read back by clients in a namespace, at each node.
pub(super) fn read_back(namespace: &str, luns: &[Registers]) -> Result {
    std::thread::scope(|scope| {
        let reads = luns.iter().map(|lun| scope.spawn(move || inside(namespace, || lun.read_back())));
        let reads: Vec<_> = reads.collect();
        reads.into_iter().try_for_each(|read| joined(read)?)
    })
}

#[cfg(test)]
mod tests {
    use super::{content, seen};

    #[test]
    fn what_is_lost_late_or_of_somebody_else_is_noticed() {
        let read = content(7, 20);
        assert_eq!(seen(7, (18, 21), &read, false), Ok(20));
        assert_eq!(seen(7, (20, 20), &read, false), Ok(20));
        assert_eq!(seen(7, (21, 22), &read, false), Err((7, 20)), "an acknowledged write is lost");
        assert_eq!(seen(7, (18, 19), &read, false), Err((7, 20)), "nobody has written that");
        assert_eq!(seen(6, (18, 21), &read, false), Err((7, 20)), "another register");
        let torn = [&read[..2048], &content(7, 21)[2048..]].concat();
        assert_eq!(seen(7, (20, 21), &torn, false), Ok(20), "beside a write");
        assert_eq!(seen(7, (21, 21), &torn, false), Err((7, 20)), "after it");
        assert_eq!(seen(7, (20, 21), &torn, true), Err((7, 21)), "torn, and nobody writes");
        assert_eq!(seen(7, (20, 21), &read, true), Ok(20));
        assert_eq!(seen(7, (0, 0), &[0; 4096], false), Ok(0), "never written");
        assert_eq!(seen(7, (1, 1), &[0; 4096], false), Err((0, 0)), "zeros in its place");
    }
}
