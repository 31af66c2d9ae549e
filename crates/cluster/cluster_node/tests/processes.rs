//! Three processes and a real etcd: stopped by a signal, continued, killed, started again. Each writes down when its permit held, in the
//! machine's one clock; no two epochs' times may meet.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod scene;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster_node::{ClusterNode, DriverFuture, Order, Ownership, Phase, PoolDriver, Settings, boot_time};
use rustix::process::{Pid, Signal, kill_process};
use scene::{Papers, make_pool, runtime};
use test_etcd::{Etcd, is_installed, own_address, wait_for};

/// Where a child finds what it needs; without it the child's test does nothing.
const CHILD: &str = "HOLDFAST_TEST_CHILD";

/// What a process has served.
#[derive(Default)]
struct Served(Mutex<Vec<Ownership>>);

impl PoolDriver for Served {
    fn carry_out<'a>(&'a self, of: &'a Ownership, order: Order) -> DriverFuture<'a> {
        Box::pin(async move {
            if order == Order::Publish {
                self.0.lock().expect("sound").push(of.clone());
            }
            Ok(())
        })
    }

    fn hung(&self, _: cluster_store::keys::PoolId) {}
}

/// Adds a line as one write: two threads write, and the process may be killed in the middle of a line, which then stands alone.
fn add(log: &mut File, line: &str) {
    log.write_all(format!("\n{line}\n").as_bytes()).expect("written");
}

/// Writes down, for each epoch, times at which the permit held: `epoch first last`, and each life: `life number`.
#[expect(clippy::disallowed_methods, reason = "a thread of a test")]
fn write_down(served: &Served, log: &mut File) {
    let mut held: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for _ in 0..20 {
        for ownership in served.0.lock().expect("sound").iter() {
            let now = boot_time();
            if ownership.permit.allows(now) {
                held.entry(ownership.epoch).or_insert((now.0, now.0)).1 = now.0;
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    for (epoch, (first, last)) in held {
        add(log, &format!("{epoch} {first} {last}"));
    }
}

/// A node as a process of its own; a test only when it is started by the one below.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("there");
    let papers = Papers {
        number: read("number").parse().expect("a number"),
        endpoints: read("endpoints").lines().map(str::to_owned).collect(),
        authority: read("authority"),
        certificate: read("certificate"),
        key: read("key"),
        port: read("port").parse().expect("a port"),
        folder: folder.clone(),
    };
    let address = read("address").parse().expect("an address");
    let mut log = OpenOptions::new().create(true).append(true).open(folder.join("log")).expect("a log");
    let served = Arc::new(Served::default());
    let recorded = served.clone();
    let mut lives = log.try_clone().expect("cloned");
    std::thread::spawn(move || {
        loop {
            write_down(&recorded, &mut log);
        }
    });
    let runtime = runtime();
    let store = Arc::new(papers.store(&runtime));
    let options = papers.options(address, Settings::default());
    let node = ClusterNode::start(options, store, served, runtime.handle()).expect("starts");
    let mut status = node.status();
    runtime.block_on(async move {
        let mut told = 0;
        while status.changed().await.is_ok() {
            let now = status.borrow_and_update().clone();
            if now.phase == Some(Phase::Member) && now.incarnation != told {
                told = now.incarnation;
                add(&mut lives, &format!("life {told}"));
            }
        }
    });
}

struct Process {
    folder: PathBuf,
    child: Option<Child>,
}

impl Process {
    fn new(papers: &Papers) -> Self {
        let folder = papers.folder.clone();
        std::fs::create_dir_all(&folder).expect("a folder");
        for (name, text) in [
            ("number", papers.number.to_string()),
            ("endpoints", papers.endpoints.join("\n")),
            ("authority", papers.authority.clone()),
            ("certificate", papers.certificate.clone()),
            ("key", papers.key.clone()),
            ("port", papers.port.to_string()),
            ("address", own_address().to_string()),
        ] {
            std::fs::write(folder.join(name), text).expect("written");
        }
        let mut process = Self { folder, child: None };
        process.start();
        process
    }

    fn start(&mut self) {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(std::env::current_exe().expect("this one"));
        command.args(["--exact", "child", "--nocapture"]).env(CHILD, &self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        self.child = Some(command.spawn().expect("it starts"));
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, signal).expect("signalled");
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn lives(&self) -> u64 {
        self.log()
            .lines()
            .filter_map(|line| line.strip_prefix("life ")?.parse().ok())
            .max()
            .unwrap_or_default()
    }

    /// For each epoch, when the permit held first and last.
    fn held(&self) -> BTreeMap<u64, (u64, u64)> {
        let mut held: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for line in self.log().lines() {
            let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            if let [epoch, first, last] = numbers[..] {
                let known = held.entry(epoch).or_insert((first, last));
                *known = (known.0.min(first), known.1.max(last));
            }
        }
        held
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Who holds the newest epoch's permit, now.
fn serving(processes: &[Process]) -> Option<(usize, u64)> {
    let newest =
        |process: &Process| process.held().last_key_value().map(|(epoch, (_, last))| (*epoch, *last));
    let all = processes.iter().enumerate().filter_map(|(at, process)| Some((newest(process)?, at)));
    let ((epoch, last), at) = all.max()?;
    (boot_time().0.saturating_sub(last) < 500_000_000).then_some((at, epoch))
}

/// Waits until such a process serves the pool in such an epoch.
fn served(what: &str, processes: &[Process], by: impl Fn(usize, u64) -> bool) -> (usize, u64) {
    let mut found = None;
    wait_for(what, || {
        found = serving(processes).filter(|(process, epoch)| by(*process, *epoch));
        found.is_some()
    });
    found.expect("found")
}

/// Times of different epochs do not meet, and come in the order of epochs.
fn check(processes: &[Process]) -> usize {
    let mut all: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (epoch, times) in processes.iter().flat_map(Process::held) {
        assert!(all.insert(epoch, times).is_none(), "epoch {epoch} is of two nodes");
    }
    let times: Vec<_> = all.iter().collect();
    for pair in times.windows(2) {
        let ((one, (_, last)), (other, (first, _))) = (pair[0], pair[1]);
        assert!(last < first, "epoch {one} could answer until {last}, epoch {other} from {first} on");
    }
    all.len()
}

#[test]
fn processes_that_are_stopped_and_killed() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start(1, &[]);
    let folder = tempfile::tempdir().expect("temp dir");
    let papers: Vec<Papers> = (1..=3).map(|number| Papers::new(&etcd, number, folder.path())).collect();
    let mut processes: Vec<Process> = papers.iter().map(Process::new).collect();
    wait_for("all take part", || processes.iter().all(|process| process.lives() >= 1));
    make_pool(&papers[0]);
    let (first, epoch) =
        served("a process serves the pool, and its permit was renewed", &processes, |at, epoch| {
            let held = processes[at].held();
            held.get(&epoch).is_some_and(|(since, last)| last - since > 1_000_000_000)
        });
    processes[first].signal(Signal::STOP);
    let (second, epoch) =
        served("another process serves it", &processes, |process, later| process != first && later > epoch);
    processes[first].signal(Signal::CONT);
    wait_for("the one that was stopped begins another life", || processes[first].lives() >= 2);

    let lives = processes[second].lives();
    processes[second].kill();
    let (third, epoch) =
        served("another process serves it", &processes, |process, later| process != second && later > epoch);
    processes[second].start();
    wait_for("the one that was killed begins another life", || processes[second].lives() > lives);

    processes[third].kill();
    processes[third].start();
    served("somebody serves it", &processes, |_, later| later > epoch);
    // The last word is that of those who write no more.
    processes.iter_mut().for_each(Process::kill);
    assert!(check(&processes) >= 4, "one epoch for each that was there");
}
