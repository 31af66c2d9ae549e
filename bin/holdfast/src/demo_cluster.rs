//! `holdfast demo --nodes N`: a cluster on one machine, without root, to kill nodes of.
//!
//! ```text
//!   this process ─┬─ supervisor ─ shelf (127.0.0.10)   a node on its own; its LUNs are the disks that all nodes reach
//!                 ├─ supervisor ─ n1    (127.0.0.11)   cluster init; etcd, managed by the nodes
//!                 ├─ supervisor ─ n2    (127.0.0.12)   cluster join
//!                 └─ …                                 pools p1, p2, … : one for each node, each with a volume, a LUN and a share
//! ```
//! Every node is a `holdfast serve` with a data directory of its own, set up by the commands that a person would type. Another
//! run finds what is there and goes on with it.

mod make;
mod member;

use std::fs::{File, TryLockError};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::demo_share;
use crate::error::{CliError, CliResult};
use crate::serve::runtime;
use member::Member;

/// The iSCSI name that LUNs of all pools are under, on every node.
const TARGET: &str = "iqn.2026-01.io.holdfast:demo";
/// The port of SMB on each node.
const SMB_PORT: u16 = 4450;

/// How to run it.
pub(crate) struct Args {
    /// Where everything is kept.
    pub(crate) dir: PathBuf,
    /// How many nodes.
    pub(crate) nodes: u8,
    /// Where the first node serves iSCSI; the others have the addresses after it, the shelf the one before.
    pub(crate) iscsi: SocketAddr,
}

/// The cluster, as it runs.
struct Cluster {
    shelf: Member,
    nodes: Vec<Member>,
    password: String,
    /// Who owned each pool when all of it ran.
    owners: Vec<(String, String)>,
}

/// The folder, for one demo at a time: another one would take the nodes that run there for its own, and stop them.
fn lock(dir: &Path) -> CliResult<File> {
    std::fs::create_dir_all(dir).map_err(|error| CliError::here(format!("{}: {error}", dir.display())))?;
    let file = File::create(dir.join("lock")).map_err(CliError::here)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(CliError::here(format!(
            "a demo runs in {} already: end it, or take another --dir",
            dir.display()
        ))),
        Err(TryLockError::Error(error)) => Err(CliError::here(format!("{}: {error}", dir.display()))),
        Ok(()) => Ok(file),
    }
}

pub(crate) fn run(args: &Args, json: bool) -> CliResult {
    let _lock = lock(&args.dir)?;
    runtime()?.block_on(async {
        let signals = control_server::Signals::new().map_err(CliError::here)?;
        let made = tokio::select! {
            made = make::cluster(args) => made.map(Some),
            _ = signals.wait() => Ok(None),
        };
        // Dropped on every other way out, which stops all of it.
        let Some(cluster) = made? else { return Ok(()) };
        if json {
            outln!("{}", cluster.line());
        } else {
            cluster.print(&args.dir);
        }
        signals.wait().await;
        eprintln!("holdfast: stopping cleanly.");
        cluster.stop();
        Ok(())
    })
}

impl Cluster {
    /// Everything a script needs, on one line.
    fn line(&self) -> Value {
        let nodes = self.nodes.iter().enumerate().map(|(index, node)| {
            json!({
                "name": node.name(),
                "pid": node.pid(),
                "supervisor_pid": node.supervisor_pid(),
                "data_dir": node.dir(),
                "iscsi_address": node.at(node.iscsi_port()).to_string(),
                "iscsi_url": iscsi_url(node, index),
                "smb_address": node.at(SMB_PORT).to_string(),
                "smb_url": smb_url(node, index),
                "pool": pool(index),
            })
        });
        json!({
            "ready": true,
            "pid": std::process::id(),
            "cluster": make::CLUSTER,
            "nodes": nodes.collect::<Vec<_>>(),
            "iscsi_target": TARGET,
            "user": demo_share::USER,
            "password": self.password,
            "shelf": {
                "pid": self.shelf.pid(),
                "supervisor_pid": self.shelf.supervisor_pid(),
                "data_dir": self.shelf.dir(),
            },
        })
    }

    fn print(&self, dir: &Path) {
        let (count, user) = (self.nodes.len(), demo_share::USER);
        outln!(
            "A cluster of {count} nodes serves {count} pools; each is a mirror over two disks that all nodes reach.\n"
        );
        outln!("  data        {}", dir.display());
        outln!("  user        {user}, password {}\n", self.password);
        for (index, node) in self.nodes.iter().enumerate() {
            let pid = node.pid().map_or_else(|| "-".to_owned(), |pid| pid.to_string());
            outln!(
                "  {:<4}        node {pid}, its supervisor {}; had {} when this was printed",
                node.name(),
                node.supervisor_pid(),
                self.pools_of(node.name())
            );
            outln!("              {}", iscsi_url(node, index));
            outln!("              {}", smb_url(node, index));
        }
        let Some(first) = self.nodes.first() else { return };
        let second = self.nodes.get(1).unwrap_or(first);
        outln!("\nWho owns what, and who is away");
        outln!("  holdfast --node {} cluster status", second.dir().display());
        outln!("\nKill a node, and watch another one take its pool over (in another terminal)");
        outln!(
            "  kill -9 {}                # its process: it is started again at once, and goes on",
            first.pid().unwrap_or_default()
        );
        outln!(
            "  kill -9 {0} $(pgrep -P {0})  # with its supervisor: another node takes over",
            first.supervisor_pid()
        );
        outln!("  holdfast --node {} status", second.dir().display());
        outln!("\nBring it back, and give it its pool again");
        outln!("  holdfast serve --supervise --data-dir {} &", first.dir().display());
        outln!("  holdfast --node {} pool move {} {}", second.dir().display(), pool(0), first.name());
        outln!("\nOr have it give its pools away first, as before an upgrade");
        outln!("  holdfast --node {} node pause {} --drain", second.dir().display(), second.name());
        outln!(
            "\nCtrl-C stops all of it, and the disks of nodes that were started by hand with it. Another run goes on with the same data; remove {} to start afresh.",
            dir.display()
        );
    }

    /// The pools that a node owned, in words.
    fn pools_of(&self, node: &str) -> String {
        let own: Vec<&str> =
            self.owners.iter().filter(|(_, owner)| owner == node).map(|(pool, _)| pool.as_str()).collect();
        match own.as_slice() {
            [] => "no pools".to_owned(),
            [one] => format!("pool {one}"),
            more => format!("pools {}", more.join(" and ")),
        }
    }

    /// Stops the nodes, then what they need.
    fn stop(self) {
        self.nodes.iter().for_each(Member::tell_to_stop);
        drop(self.nodes);
        drop(self.shelf);
    }
}

/// The pool that is at home at a node.
fn pool(index: usize) -> String {
    format!("p{}", index + 1)
}

/// The share on a pool's volume.
fn share(index: usize) -> String {
    format!("vmstore{}", index + 1)
}

fn iscsi_url(node: &Member, index: usize) -> String {
    format!("iscsi://{}/{TARGET}/{index}", node.at(node.iscsi_port()))
}

fn smb_url(node: &Member, index: usize) -> String {
    format!("smb://{}@{}/{}", demo_share::USER, node.at(SMB_PORT), share(index))
}
