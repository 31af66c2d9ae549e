//! A real etcd (Debian's package `etcd-server`) for tests: one member or several, on tmpfs, with TLS on both sides.
//!
//! Addresses are the process's own part of 127.0.0.0/8, so that tests of several processes never meet. All waits end after
//! [`LIMIT`], which is far beyond what a busy machine needs.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test helper: what it cannot set up is a failed test"
)]

mod authority;
mod disk;
mod proxy;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub use authority::{Authority, Identity};
use disk::SmallDisk;
pub use proxy::Proxy;

/// How long anything is waited for.
pub const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// An address that no other process's tests use.
#[must_use]
pub fn own_address() -> IpAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(127, 64 + (high & 63), middle, low))
}

/// A port of [`own_address`] that nobody in this process has; below those that the system gives away by itself.
#[must_use]
pub fn own_port() -> u16 {
    own_ports(1)
}

/// The first of so many such ports in a row. They are taken in one step: tests run beside each other.
#[must_use]
pub fn own_ports(count: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    NEXT.fetch_add(count, Ordering::Relaxed)
}

/// Waits until this is so.
///
/// # Panics
/// When it is not so after [`LIMIT`].
#[expect(clippy::disallowed_methods, reason = "a thread of a test, which waits for a process")]
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LIMIT.as_millis() / PAUSE.as_millis() {
        if is_so() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    panic!("{what}: not after {LIMIT:?}");
}

/// Whether all threads in this folder of /proc have stopped: `T` follows the name in parentheses, which may have any character in it.
fn all_stopped(threads: &str) -> bool {
    let has_stopped = |thread: &Path| {
        let stat = std::fs::read_to_string(thread.join("stat")).unwrap_or_default();
        stat.rsplit_once(')').is_none_or(|(_, after)| after.trim_start().starts_with('T'))
    };
    let all = std::fs::read_dir(threads).expect("it runs");
    all.flatten().all(|thread| has_stopped(&thread.path()))
}

/// Whether etcd is installed. Where it is not, it says that the test is skipped; CI has to have it.
///
/// # Panics
/// Under CI, where nothing may be skipped.
#[must_use]
pub fn is_installed() -> bool {
    let there = Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if there.is_ok_and(|status| status.success()) {
        return true;
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "etcd is not installed (package etcd-server), and CI skips nothing"
    );
    println!("skipped: etcd is not installed (package etcd-server)");
    false
}

struct Member {
    name: String,
    child: Option<Child>,
    client: u16,
    peer: u16,
    metrics: u16,
}

/// A cluster of etcd. It ends with this value.
pub struct Etcd {
    members: Vec<Member>,
    authority: Authority,
    folder: TempDir,
    address: IpAddr,
    extra: Vec<String>,
    /// Of members that have one of their own.
    disks: BTreeMap<usize, SmallDisk>,
}

impl Etcd {
    /// So many members, ready to be asked; `extra` are more options for each.
    ///
    /// # Panics
    /// When they do not start.
    #[must_use]
    pub fn start(members: usize, extra: &[&str]) -> Self {
        Self::start_at(own_address(), members, extra)
    }

    /// The same at an address of the network namespace that this thread is in.
    ///
    /// # Panics
    /// As [`Etcd::start`].
    #[must_use]
    pub fn start_at(address: IpAddr, members: usize, extra: &[&str]) -> Self {
        Self::prepare(address, members, extra).begun()
    }

    /// The same with a disk of `bytes` for each of the members that `small` names, which can be full; etcd sets 128 MB aside for its log at once. None
    /// where the system lets nobody mount one; it says that the test is skipped.
    ///
    /// # Panics
    /// As [`Etcd::start`]; under CI, where nothing may be skipped.
    #[must_use]
    pub fn start_on_small_disks(members: usize, small: &[usize], bytes: u64) -> Option<Self> {
        let mut etcd = Self::prepare(own_address(), members, &[]);
        for number in small {
            let place = etcd.folder.path().join(&etcd.members[*number].name);
            let Some(disk) = SmallDisk::mount(&place, bytes) else {
                assert!(std::env::var_os("CI").is_none(), "no namespace for a disk, and CI skips nothing");
                println!("skipped: the system lets nobody mount a disk in a namespace of users");
                return None;
            };
            etcd.disks.insert(*number, disk);
        }
        Some(etcd.begun())
    }

    fn prepare(address: IpAddr, members: usize, extra: &[&str]) -> Self {
        let mut builder = tempfile::Builder::new();
        let folder = builder.prefix("holdfast-etcd-");
        let folder =
            if Path::new("/dev/shm").is_dir() { folder.tempdir_in("/dev/shm") } else { folder.tempdir() };
        let folder = folder.expect("a folder");
        let authority = Authority::new();
        let identity = authority.issue(&[&address.to_string(), "127.0.0.1", "localhost"]);
        for (name, content) in
            [("ca.pem", authority.pem()), ("etcd.pem", &identity.certificate), ("etcd.key", &identity.key)]
        {
            std::fs::write(folder.path().join(name), content).expect("written");
        }
        let members = (0..members).map(|number| Member {
            name: format!("etcd{number}"),
            child: None,
            client: own_port(),
            peer: own_port(),
            metrics: own_port(),
        });
        let members = members.collect();
        let extra = extra.iter().map(|option| (*option).to_owned()).collect();
        Self { members, authority, folder, address, extra, disks: BTreeMap::new() }
    }

    fn begun(mut self) -> Self {
        for number in 0..self.members.len() {
            self.spawn(number, "new");
        }
        self.wait_until_healthy();
        self
    }

    /// Nothing more can be written to the disk of a member.
    ///
    /// # Panics
    /// When it has none of its own.
    pub fn fill_disk(&self, number: usize) {
        self.disks[&number].fill();
    }

    /// There is room on it again.
    ///
    /// # Panics
    /// As [`Etcd::fill_disk`].
    pub fn free_disk(&self, number: usize) {
        self.disks[&number].free();
    }

    /// Whether the process of a member has ended by itself.
    #[must_use]
    pub fn has_ended(&mut self, number: usize) -> bool {
        self.members[number]
            .child
            .as_mut()
            .is_none_or(|child| child.try_wait().is_ok_and(|end| end.is_some()))
    }

    fn spawn(&mut self, number: usize, state: &str) {
        let url = |port: u16| format!("https://{}:{port}", self.address);
        let all: Vec<String> =
            self.members.iter().map(|member| format!("{}={}", member.name, url(member.peer))).collect();
        let member = &self.members[number];
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join(format!("{}.log", member.name)))
            .expect("a log");
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        let (authority, certificate, key) = (file("ca.pem"), file("etcd.pem"), file("etcd.key"));
        // It does not outlive a test that is killed.
        let mut command = match self.disks.get(&number) {
            Some(disk) => {
                let mut command = disk.command();
                command.arg("setpriv");
                command
            }
            None => Command::new("setpriv"),
        };
        command.args(["--pdeathsig", "KILL", "etcd", "--logger", "zap", "--log-level", "warn"]);
        for (option, value) in [
            ("name", member.name.as_str()),
            ("data-dir", &file(&member.name)),
            ("listen-client-urls", &url(member.client)),
            ("advertise-client-urls", &url(member.client)),
            ("listen-peer-urls", &url(member.peer)),
            ("initial-advertise-peer-urls", &url(member.peer)),
            ("initial-cluster", &all.join(",")),
            ("initial-cluster-state", state),
            ("listen-metrics-urls", &format!("http://{}:{}", self.address, member.metrics)),
            ("trusted-ca-file", &authority),
            ("cert-file", &certificate),
            ("key-file", &key),
            ("peer-trusted-ca-file", &authority),
            ("peer-cert-file", &certificate),
            ("peer-key-file", &key),
        ] {
            command.args([format!("--{option}"), value.to_owned()]);
        }
        command.args(["--client-cert-auth", "--peer-client-cert-auth"]).args(&self.extra);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("etcd starts");
        self.members[number].child = Some(child);
    }

    /// How many members there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Where clients reach the members.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("https://{}:{}", self.address, member.client)).collect()
    }

    /// Host and port of a member, for a [`Proxy`].
    #[must_use]
    pub fn client_address(&self, number: usize) -> (IpAddr, u16) {
        (self.address, self.members[number].client)
    }

    /// Who has signed all certificates.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The members that have not been killed.
    #[must_use]
    pub fn running(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|number| self.members[*number].child.is_some()).collect()
    }

    /// Ends a member as `kill -9` does.
    pub fn kill(&mut self, number: usize) {
        if let Some(mut child) = self.members[number].child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts a member that was killed, with what it has on its disk.
    pub fn restart(&mut self, number: usize) {
        self.kill(number);
        self.spawn(number, "existing");
    }

    fn signal(&self, number: usize, signal: Signal) {
        let child = self.members[number].child.as_ref().expect("it runs");
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, signal).expect("signalled");
    }

    /// A member stands still, its connections stay. It does when this returns: a thread that runs meanwhile may still answer.
    ///
    /// # Panics
    /// When it does not after [`LIMIT`].
    pub fn freeze(&self, number: usize) {
        self.signal(number, Signal::STOP);
        let child = self.members[number].child.as_ref().expect("it runs");
        let threads = format!("/proc/{}/task", child.id());
        wait_for("it stands still", || all_stopped(&threads));
    }

    /// And goes on.
    pub fn thaw(&self, number: usize) {
        self.signal(number, Signal::CONT);
    }

    /// The member that leads, as the members see it.
    ///
    /// # Panics
    /// When there is none after [`LIMIT`].
    #[must_use]
    pub fn leader(&self) -> usize {
        let mut leader = None;
        wait_for("etcd has a leader", || {
            leader = (0..self.members.len()).find(|number| self.metric(*number, "etcd_server_is_leader 1"));
            leader.is_some()
        });
        leader.unwrap_or_default()
    }

    fn metric(&self, number: usize, line: &str) -> bool {
        self.http(number, "/metrics").is_some_and(|text| text.lines().any(|told| told == line))
    }

    /// Waits until every member that runs says that it can serve.
    ///
    /// # Panics
    /// When one cannot after [`LIMIT`]; with its log.
    pub fn wait_until_healthy(&self) {
        for (number, member) in self.members.iter().enumerate().filter(|(_, member)| member.child.is_some()) {
            let log = self.folder.path().join(format!("{}.log", member.name));
            let what = format!("{} is healthy; its log is {}", member.name, log.display());
            wait_for(&what, || self.http(number, "/health").is_some_and(|text| text.contains("\"true\"")));
        }
    }

    fn http(&self, number: usize, path: &str) -> Option<String> {
        let at = (self.address, self.members[number].metrics).into();
        let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(1)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for number in 0..self.members.len() {
            self.kill(number);
        }
    }
}
