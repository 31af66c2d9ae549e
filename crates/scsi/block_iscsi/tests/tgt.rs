//! The disk over Debian's tgt, which runs in user space. Without it, or without root, the tests say so and do nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod rig;
#[path = "../../iscsi_target/tests/support/mod.rs"]
mod support;

use std::cell::Cell;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_conformance::{SharedSubject, Subject, SubjectFuture};
use block_device::{BlockDevice, BlockErrorKind, Device, Durability};
use rig::{on_shard, open, settings};

const IQN: &str = "iqn.2000-01.test.peer:disk";

/// A tgtd of our own: own port, own management socket.
struct Tgt {
    process: Child,
    control: String,
    address: SocketAddr,
    folder: PathBuf,
}

impl Tgt {
    /// `None`, said aloud, where it cannot be.
    async fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = std::env::temp_dir().join(format!("block_iscsi-tgt-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (control, address) = (port.to_string(), SocketAddr::from(([127, 0, 0, 1], port)));
        let portal = format!("portal={address}");
        let started = Command::new("tgtd")
            .args(["-f", "-C", &control, "--iscsi", &portal])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = started else {
            eprintln!("skipped: no tgtd here (Debian's package tgt)");
            let _ = std::fs::remove_dir_all(&folder);
            return None;
        };
        let tgt = Self { process, control, address, folder };
        for _ in 0..100 {
            if tgt.admin(&["--op", "show", "--mode", "sys"]) {
                assert!(tgt.admin(&["--op", "new", "--mode", "target", "--tid", "1", "-T", IQN]));
                assert!(tgt.admin(&["--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL"]));
                return Some(tgt);
            }
            shard_runtime::sleep(Duration::from_millis(50)).await;
        }
        eprintln!("skipped: tgtd does not start here (it needs root)");
        None
    }

    fn admin(&self, arguments: &[&str]) -> bool {
        let mut tgtadm = Command::new("tgtadm");
        tgtadm.args(["-C", &self.control, "--lld", "iscsi"]).args(arguments);
        tgtadm.stderr(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// A new unit of zeros.
    fn add_unit(&self, lun: u16) {
        let image = self.folder.join(format!("{lun}.img"));
        std::fs::File::create(&image).unwrap().set_len(12 << 20).unwrap();
        let (lun, image) = (lun.to_string(), image.to_string_lossy().into_owned());
        let unit = ["--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", &lun, "-b", &image];
        assert!(self.admin(&unit), "tgtadm makes no unit");
    }
}

impl Drop for Tgt {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

struct Units {
    tgt: Tgt,
    lanes: usize,
    last: Cell<u16>,
}

impl Units {
    async fn disks(&self, initiators: usize) -> Vec<Device> {
        let lun = self.last.get() + 1;
        self.last.set(lun);
        self.tgt.add_unit(lun);
        let mut disks = Vec::new();
        for node in 0..initiators {
            let settings = settings(self.tgt.address, IQN, lun, node as u8 + 1, self.lanes, "");
            disks.push(Arc::new(open(settings).await.unwrap()) as Device);
        }
        disks
    }
}

impl Subject for Units {
    fn create(&self) -> SubjectFuture<'_, Device> {
        Box::pin(async { self.disks(1).await.remove(0) })
    }
}

impl SharedSubject for Units {
    fn create_shared(&self, initiators: usize) -> SubjectFuture<'_, Vec<Device>> {
        Box::pin(self.disks(initiators))
    }
}

#[test]
fn conforms_over_tgt() {
    on_shard(async {
        let Some(tgt) = Tgt::start().await else { return };
        let units = Units { tgt, lanes: 2, last: Cell::new(0) };
        let options =
            block_conformance::Options { random_ops: 200, ..block_conformance::Options::seeded(18) };
        block_conformance::run(&units, options).await.unwrap_or_else(|failure| panic!("{failure}"));
    });
}

#[test]
fn reservations_conform_over_tgt() {
    on_shard(async {
        let Some(tgt) = Tgt::start().await else { return };
        let units = Units { tgt, lanes: 2, last: Cell::new(0) };
        block_conformance::run_reservations(&units).await.unwrap_or_else(|failure| panic!("{failure}"));
    });
}

/// A target that is killed with writes in its cache: they are not called durable afterwards.
#[test]
fn a_killed_tgt_is_noticed() {
    on_shard(async {
        let Some(mut tgt) = Tgt::start().await else { return };
        tgt.add_unit(1);
        let disk = open(settings(tgt.address, IQN, 1, 1, 2, "")).await.unwrap();
        let block = || IoBuf::copy_from(&[5; 4096]).freeze();
        disk.write(0, block(), Durability::Durable).await.unwrap();
        disk.write(4096, block(), Durability::Volatile).await.unwrap();
        tgt.process.kill().unwrap();
        let gone = disk.flush().await.expect_err("the target is dead");
        assert!(matches!(gone.kind(), BlockErrorKind::Gone | BlockErrorKind::Poisoned), "{gone}");
        disk.flush().await.expect_err("no flush is called good after that");
    });
}
