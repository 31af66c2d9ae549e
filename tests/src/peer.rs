//! Debian's tgt in the node's place: a case that fails against both is a wrong case. Also the peer of `bench/`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::{Deadline, Running, command, need, need_root, run};
use crate::{Result, ensure};

/// The stand-in's target.
pub const IQN: &str = "iqn.2000-01.test.peer:disk";

/// A tgtd of our own: own port, own management socket.
#[derive(Debug)]
pub struct Tgt {
    control: String,
    /// `address:port`
    pub portal: String,
    process: Running,
    image: PathBuf,
}

impl Tgt {
    /// Starts tgtd in the foreground with one sparse LUN of `megabytes`. With CHAP when `chap` names user and secret.
    pub fn start(folder: &Path, port: u16, megabytes: u64, chap: Option<(&str, &str)>) -> Result<Self> {
        need("tgtd", "tgt")?;
        need_root("tgtd")?;
        let image = folder.join("tgt.img");
        std::fs::File::create(&image)?.set_len(megabytes << 20)?;
        // tgtd tells its instances apart by this number.
        let control = port.to_string();
        let portal = format!("127.0.0.1:{port}");
        let mut start = command("tgtd");
        start.args(["-f", "-C", &control, "--iscsi", &format!("portal={portal}")]);
        let process = Running::start("tgtd", start, &folder.join("tgtd.log"))?;
        let peer = Self { control, portal, process, image };
        Deadline::after(Duration::from_secs(20))
            .poll("tgtd", || Ok(peer.admin(&["--op", "show", "--mode", "sys"]).ok()))?;
        peer.admin(&["--op", "new", "--mode", "target", "--tid", "1", "-T", IQN])?;
        let image = peer.image.to_string_lossy().into_owned();
        peer.admin(&["--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "-b", &image])?;
        peer.admin(&["--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL"])?;
        if let Some((user, secret)) = chap {
            peer.admin(&["--op", "new", "--mode", "account", "--user", user, "--password", secret])?;
            peer.admin(&["--op", "bind", "--mode", "account", "--tid", "1", "--user", user])?;
        }
        Ok(peer)
    }

    fn admin(&self, arguments: &[&str]) -> Result<String> {
        let mut tgtadm = command("tgtadm");
        tgtadm.args(["-C", &self.control, "--lld", "iscsi"]).args(arguments);
        run(Duration::from_secs(10), &tgtadm)?.ok("tgtadm")
    }

    /// Lets initiators choose digests, which it does not by itself.
    pub fn allow_digests(&self) -> Result {
        for name in ["HeaderDigest", "DataDigest"] {
            let update = ["--op", "update", "--mode", "target", "--tid", "1", "--name", name];
            self.admin(&[&update[..], &["--value", "CRC32C,None"]].concat())?;
        }
        Ok(())
    }

    /// Ends it. It does not listen to SIGTERM.
    pub fn stop(mut self) -> Result {
        self.process.kill()?;
        ensure(std::fs::remove_file(&self.image).is_ok(), || "the image is gone".into())
    }
}
