//! A small disk for a member of etcd, which can be full. It is a tmpfs in a mount namespace that a process of its own keeps: that needs no root, and
//! nothing of it is left behind, however a test ends.

use std::fs::{File, remove_file};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const BALLAST: &str = "ballast";

/// What a process has mounted at a place.
pub(crate) struct SmallDisk {
    holder: Child,
    place: PathBuf,
}

impl SmallDisk {
    /// A disk of so many bytes at this folder; none where the system lets nobody make one.
    pub(crate) fn mount(place: &Path, bytes: u64) -> Option<Self> {
        std::fs::create_dir_all(place).ok()?;
        let script = "mount -t tmpfs -o size=$2,mode=0700 none \"$1\" && echo ready && exec sleep infinity";
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--user", "--map-root-user", "--mount"]);
        command.args(["sh", "-c", script, "sh"]).arg(place).arg(bytes.to_string());
        let mut holder = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().ok()?;
        let mut told = String::new();
        BufReader::new(holder.stdout.take()?).read_line(&mut told).ok()?;
        let disk = Self { holder, place: place.to_owned() };
        (told.trim() == "ready").then_some(disk)
    }

    /// What runs a command where the disk is.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--preserve-credentials", "--user", "--mount", "--target"]);
        command.arg(self.holder.id().to_string());
        command
    }

    /// The ballast, as it is reached from here.
    fn ballast(&self) -> PathBuf {
        let place = self.place.strip_prefix("/").unwrap_or(&self.place);
        Path::new("/proc").join(self.holder.id().to_string()).join("root").join(place).join(BALLAST)
    }

    /// Nothing more can be written to it.
    pub(crate) fn fill(&self) {
        let mut ballast = File::create(self.ballast()).expect("a file");
        // Coarse at first; then what a single page is left for.
        for block in [1 << 20, 1 << 12] {
            let block = vec![1; block];
            while ballast.write_all(&block).is_ok() {}
        }
    }

    /// There is room again.
    pub(crate) fn free(&self) {
        remove_file(self.ballast()).expect("removed");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
