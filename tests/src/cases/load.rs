//! Verified load of two clients at once: fio over iSCSI, through QEMU's initiator, and the load generator over SMB. It
//! goes on in rounds until it is told to stop, so that whatever a case does meanwhile meets load, however fast the machine.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use super::Context;
use crate::node::Node;
use crate::process::{Deadline, Running, command, run};
use crate::{Outcome, Result, ensure};

/// One round, on a machine that does much else.
const ROUND: Duration = Duration::from_secs(300);
/// A program that listens.
const LISTENS: Duration = Duration::from_secs(30);

/// Rounds of load in a thread of their own.
#[derive(Debug)]
pub(super) struct Load {
    name: String,
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result>>,
}

impl Load {
    /// Does `round` again and again, with numbers from 1, until it fails or is told to stop.
    pub(super) fn start(name: &str, mut round: impl FnMut(u64) -> Result + Send + 'static) -> Self {
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (told, done) = (stop.clone(), rounds.clone());
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::SeqCst) {
                round(done.load(Ordering::SeqCst) + 1)?;
                done.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        });
        Self { name: name.into(), stop, rounds, thread: Some(thread) }
    }

    /// Waits until a whole round has begun and ended since this was called.
    pub(super) fn round(&mut self) -> Result {
        let until = self.rounds.load(Ordering::SeqCst) + 2;
        Deadline::after(2 * ROUND).poll(&format!("{}: a round", self.name), || {
            if self.rounds.load(Ordering::SeqCst) >= until {
                return Ok(Some(()));
            }
            if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                self.join()?;
                return Err(format!("{}: ended by itself", self.name).into());
            }
            Ok(None)
        })
    }

    /// Lets the round that is under way end. Fails when any failed; else how many there were.
    pub(super) fn finish(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::SeqCst);
        self.join()?;
        Ok(self.rounds.load(Ordering::SeqCst))
    }

    fn join(&mut self) -> Result {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let ended = thread.join().unwrap_or_else(|_| Err(Outcome::Fail("its thread panicked".into())));
        ended.map_err(|why| Outcome::Fail(format!("{}: {why}", self.name)))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = self.join();
    }
}

/// fio on the first bytes of a LUN. Debian's has no iSCSI client, so QEMU's gives it the LUN as a network block device.
#[derive(Debug)]
pub(super) struct Fio {
    socket: PathBuf,
    mib: u64,
    export: Running,
}

impl Fio {
    /// Attaches the LUN. `mib`: how much of it fio uses.
    pub(super) fn new(context: &Context, url: &str, mib: u64) -> Result<Self> {
        let socket = context.folder.join("nbd.sock");
        let mut export = command("qemu-nbd");
        export.args(["-f", "raw", "--persistent", "--cache=none", "--shared=8", "--socket"]);
        export.arg(&socket).arg(url);
        let export = Running::start("qemu-nbd", export, &context.folder.join("nbd.log"))?;
        Deadline::after(LISTENS).poll("qemu-nbd", || Ok(socket.exists().then_some(())))?;
        Ok(Self { socket, mib, export })
    }

    /// Rounds in which all of it is written in mixed sizes and in disorder; each piece carries its place and the
    /// round's number, and is read again within the round.
    pub(super) fn load(&self) -> Load {
        let (socket, mib) = (self.socket.clone(), self.mib);
        Load::start("fio over iSCSI", move |round| fio(&socket, mib, round, &["--verify_backlog=64"]))
    }

    /// Whether everything is what that round has written: not damaged, and not of an earlier round.
    pub(super) fn holds(&self, round: u64) -> Result {
        fio(&self.socket, self.mib, round, &["--verify_only"])
    }

    /// Detaches the LUN.
    pub(super) fn finish(mut self) -> Result {
        self.export.signal("TERM")?;
        self.export.wait(Deadline::after(LISTENS)).map(drop)
    }
}

fn fio(socket: &std::path::Path, mib: u64, round: u64, more: &[&str]) -> Result {
    let mut fio = command("fio");
    fio.args(["--name=load", "--ioengine=nbd", &format!("--uri=nbd+unix:///?socket={}", socket.display())]);
    fio.args(["--rw=randwrite", "--bsrange=4k-64k", "--blockalign=4k", "--iodepth=8", "--do_verify=1"]);
    fio.args(["--verify=pattern", "--verify_fatal=1", "--verify_dump=0", "--verify_state_save=0"]);
    // A checksum alone would not tell an earlier round's bytes from this one's.
    fio.args([&format!("--verify_pattern=%o0x{round:08x}"), &format!("--randseed={round}")]);
    fio.args([&format!("--size={mib}M"), "--output-format=json"]);
    let said = run(ROUND, fio.args(more))?;
    let output = said.output.clone();
    said.ok("fio")?;
    let begin = output.find('{').unwrap_or_default();
    let report: Value = serde_json::from_str(&output[begin..]).map_err(|e| format!("fio: {e}: {output}"))?;
    let job = &report["jobs"][0];
    let read = job["read"]["io_bytes"].as_u64().unwrap_or_default();
    let wrong = job["error"].as_i64().unwrap_or(-1);
    ensure(wrong == 0 && read >= mib << 19, || {
        format!("round {round}: error {wrong}, only {read} bytes were read again:\n{output}")
    })
}

/// The load generator on a file of a share: two threads with four operations each, some 60 % of them writes, verified.
pub(super) fn smb(context: &Context, node: &Node, share: &str, mib: u64) -> Result<Load> {
    let mut spd = Spd::new(context, node)?;
    let (url, size) = (spd.url(share, "load"), format!("-c{mib}M"));
    Ok(Load::start("load over SMB", move |round| {
        let mut options = vec!["-d1", "-b8K", "-r", "-w60", "-t2", "-o4"];
        if round == 1 {
            options.push(&size);
        }
        spd.run(&options, &[&url])
    }))
}

/// The load generator as a client of a node.
#[derive(Debug)]
pub(super) struct Spd {
    binary: PathBuf,
    login: Vec<String>,
    address: String,
}

impl Spd {
    /// With the demo's user of SMB.
    pub(super) fn new(context: &Context, node: &Node) -> Result<Self> {
        let password = context.folder.join("password");
        std::fs::write(&password, node.told("smb_password"))?;
        let login = ["--user", &node.told("smb_user"), "--password-file", &password.to_string_lossy()];
        let login = login.iter().map(ToString::to_string).collect();
        Ok(Self { binary: node.binary().into(), login, address: node.told("smb_address") })
    }

    /// With what the target's address says, if anything.
    pub(super) fn without_user() -> Result<Self> {
        Ok(Self { binary: crate::node::binary()?, login: Vec::new(), address: String::new() })
    }

    /// How it names a file of a share.
    pub(super) fn url(&self, share: &str, path: &str) -> String {
        format!("smb://{}/{share}/{path}", self.address)
    }

    /// Runs it with verification; each block that is read must be what was written, and no operation may fail.
    pub(super) fn run(&mut self, options: &[&str], targets: &[&str]) -> Result {
        verified(&self.report(options, targets)?).map(drop)
    }

    /// Runs it with verification, and gives its report.
    pub(super) fn report(&self, options: &[&str], targets: &[&str]) -> Result<Value> {
        let mut spd = command(&self.binary);
        spd.arg("spd").args(&self.login);
        spd.args(["--yes", "--quiet", "--json", "--verify", "-W0"]).args(options).args(targets);
        let said = run(ROUND, &spd)?.ok("holdfast spd")?;
        serde_json::from_str(&said).map_err(|e| format!("holdfast spd: {e}: {said}").into())
    }
}

/// The spans of a report, if something was verified in each of them and all of it was right.
pub(super) fn verified(report: &Value) -> Result<Vec<Value>> {
    let found = report["spans"].as_array().cloned().unwrap_or_default();
    for span in &found {
        let verify = &span["verify"];
        let clean = ["stale", "lost", "misplaced", "torn"].iter().all(|kind| verify[*kind] == 0);
        let checked = verify["checked"].as_u64().unwrap_or_default();
        ensure(clean && checked > 0, || format!("holdfast spd finds wrong blocks: {verify}"))?;
    }
    ensure(!found.is_empty(), || format!("holdfast spd reports nothing: {report}"))?;
    Ok(found)
}
