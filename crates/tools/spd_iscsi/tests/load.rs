//! Verified load on our own target: through a restart of it, and not through what would be another disk.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[path = "../../spd_engine/tests/support/mod.rs"]
mod faults;
#[path = "../../../scsi/iscsi_target/tests/support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iscsi_protocol::IscsiName;
use iscsi_protocol::chap::{ChapUser, Secret};
use iscsi_target::{AuthConfig, IscsiServer, PortalConfig, ServerConfig, TargetConfig};
use shard_runtime::{Clock, SystemClock};
use spd_engine::{Backend as _, Confirm, Control, Login, Preparation, Progress, run_span};
use spd_iscsi::IscsiBackend;
use spd_profile::{Target, TimeSpan};
use spd_report::{SpanOutcome, System};
use support::initiator::TARGET;
use support::{MemoryDisk, Threads, eventually};

const SIZE: usize = 1 << 20;

struct Answers(bool);

impl Confirm for Answers {
    fn may_destroy(&self, what: &str) -> bool {
        assert!(what.contains("all data of LUN iscsi://") && !what.contains("secret"), "{what}");
        self.0
    }
    fn made(&self, _: &str, _: u64, _: u64) -> bool {
        true
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

fn serve(disk: &Arc<MemoryDisk>, address: &str, auth: AuthConfig) -> (IscsiServer, SocketAddr) {
    let server = IscsiServer::new(ServerConfig::default(), Threads::start(1), support::random()).unwrap();
    let mut target = TargetConfig::new(IscsiName::parse(TARGET).unwrap(), disk.clone());
    target.auth = auth;
    server.add_target(target).unwrap();
    let address = server.add_portal(PortalConfig { address: address.parse().unwrap(), group: 1 }).unwrap();
    (server, address)
}

fn stop(server: IscsiServer) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(server.shutdown(Duration::ZERO));
}

/// Two threads with four operations each, verified.
fn span(path: &str) -> TimeSpan {
    let target = Target { block: 4096, write_percent: 60, threads: 2, requests: 4, ..Target::new(path) };
    let target = Target { alignment: Some(4096), random_percent: 100, ..target };
    // Longer than anything in these tests waits: one that fails ends, too.
    TimeSpan { duration: 60, warm_up: 0, targets: vec![target], ..TimeSpan::default() }
}

const HOW: Preparation = Preparation { sparse: false, verify: true };

fn open(span: &TimeSpan, login: Option<&Login>, yes: bool) -> Result<IscsiBackend, String> {
    let paths = [span.targets[0].path.clone()];
    let opened = IscsiBackend::open(&span.targets, &paths, &[login.cloned()], HOW, &Answers(yes));
    opened.map_err(|error| error.to_string())
}

/// Runs verified load while `meanwhile` does something, until that has ended.
fn load(span: &TimeSpan, meanwhile: impl FnOnce() + Send) -> SpanOutcome {
    let (backend, until) = (open(span, None, true).unwrap(), Until::default());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            meanwhile();
            until.0.store(true, Ordering::SeqCst);
        });
        run_span(span, &backend, &System::default(), &clock, &until, Some(7)).unwrap()
    })
}

/// Waits until the disk has carried out `more` commands.
fn under_way(disk: &MemoryDisk, more: usize) {
    let until = disk.started.lock().len() + more;
    eventually("load", || disk.started.lock().len() >= until);
}

#[test]
fn a_restart_is_survived_and_seen() {
    let disk = MemoryDisk::new(SIZE);
    let (server, address) = serve(&disk, "127.0.0.1:0", AuthConfig::None);
    let span = span(&format!("iscsi://{address}/{TARGET}/0?header_digest=crc32c"));
    let mut second = None;
    let outcome = load(&span, || {
        under_way(&disk, 500);
        stop(server);
        assert!(disk.lost.load(Ordering::SeqCst) >= 3, "the sessions of both threads end");
        second = Some(serve(&disk, &address.to_string(), AuthConfig::None));
        under_way(&disk, 500);
    });
    assert_eq!(outcome.ended_early.as_deref(), Some("interrupted"));
    let verify = outcome.verify.clone().unwrap();
    assert!(verify.wrong() == 0 && verify.checked > 100 && verify.longest_stall_ms > 0.0, "{verify:?}");
    let (read, write) = outcome.sum();
    assert_eq!((read.errors, write.errors), (0, 0));
    assert!(read.count > 0 && write.count > 0);
}

#[test]
fn another_disk_is_not_written_to() {
    let (disk, small) = (MemoryDisk::new(SIZE), MemoryDisk::new(SIZE / 2));
    let (server, address) = serve(&disk, "127.0.0.1:0", AuthConfig::None);
    let span = span(&format!("iscsi://{address}/{TARGET}/0"));
    let mut second = None;
    let outcome = load(&span, || {
        under_way(&disk, 500);
        stop(server);
        second = Some(serve(&small, &address.to_string(), AuthConfig::None));
        eventually("it is looked at", || small.lost.load(Ordering::SeqCst) > 0);
    });
    let why = outcome.ended_early.unwrap();
    assert!(why.contains("another disk"), "{why}");
    assert!(small.bytes.read().iter().all(|byte| *byte == 0));
}

#[test]
fn who_may_and_what_fits() {
    let account = |name: &str, secret: &str| ChapUser { name: name.into(), secret: Secret::new(secret) };
    let auth = AuthConfig::Chap {
        users: vec![account("me", "a-secret-of-mine").into()],
        mutual: Some(account("it", "a-secret-of-its")),
    };
    let disk = MemoryDisk::new(SIZE);
    let (_server, address) = serve(&disk, "127.0.0.1:0", auth);
    let at = |login: &str, query: &str| span(&format!("iscsi://{login}{address}/{TARGET}/0{query}"));
    let with = |span: TimeSpan, change: &dyn Fn(&mut Target)| {
        let mut span = span;
        change(&mut span.targets[0]);
        span
    };
    let me = "me%a-secret-of-mine@";
    let login = Login { user: "me".into(), password: "a-secret-of-mine".into() };
    let good = open(&at(me, ""), None, true).unwrap();
    assert_eq!(good.sizes(), [SIZE as u64]);
    assert!(open(&at(me, "?target_user=it&target_password=a-secret-of-its"), None, true).is_ok());
    assert!(open(&at("", ""), Some(&login), true).is_ok());
    assert!(open(&at("me@", ""), Some(&login), true).is_ok());
    for (span, login, yes, why) in [
        (at("", ""), None, true, "authentication failed"),
        (at("me@", ""), None, true, "--password-file"),
        (at("me%another-secret@", ""), None, true, "authentication failed"),
        (at(me, "?target_user=it&target_password=another-secret"), None, true, "authentication"),
        (at(me, "?target_user=it"), None, true, "mutual CHAP"),
        (at("", "?data_digest=md5"), None, true, "data_digest"),
        (at(me, ""), None, false, "this would destroy all data of LUN"),
        (with(at(me, ""), &|target| target.block = 1000), None, true, "no multiple of 512"),
        (with(at(me, ""), &|target| target.base = SIZE as u64), None, true, "too small"),
        (with(at(me, ""), &|target| target.create = Some(1 << 20)), None, true, "leave out -c"),
        (with(at(me, ""), &|target| target.write_through = true), None, true, "(FUA)"),
    ] {
        let Err(said) = open(&span, login, yes) else { panic!("{why}") };
        assert!(said.contains(why) && !said.contains("secret-of"), "{why}: {said}");
        assert!(!said.contains("another-secret"), "{said}");
    }
}

#[test]
fn every_lie_of_a_lun_is_found() {
    let disk = MemoryDisk::new(SIZE);
    let (_server, address) = serve(&disk, "127.0.0.1:0", AuthConfig::None);
    let span = faults::span(&format!("iscsi://{address}/{TARGET}/0"));
    faults::every_lie_is_found(&span, || open(&span, None, true).unwrap());
}
