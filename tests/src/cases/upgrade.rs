//! The data of a node of an earlier release: this one serves it as a node of one, makes a cluster of it, and another node joins; nothing moves.
//!
//! The archives in `tests/upgrade` were made with `tests/upgrade/make.sh` by the release of their date.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use test_etcd::{own_address, own_ports};

use super::Context;
use super::restart::qemu_io;
use crate::node::binary;
use crate::process::{Deadline, Running, command, need, run as run_program};
use crate::{Outcome, Result, ensure};

const TARGET: &str = "iqn.2026-11.test.holdfast:upgrade";
const USER: &str = "alice%Upgrade-of-a-node-1";
/// A command of the CLI, and one run of a client.
const VERB: Duration = Duration::from_secs(90);
/// From a start to a node that serves everything.
const SERVES: Duration = Duration::from_secs(90);

/// A node of the test, under a supervisor as a service would have it.
struct Member {
    dir: PathBuf,
    /// Where the other nodes reach it.
    address: String,
    process: Running,
}

impl Member {
    fn start(dir: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&dir)?;
        let mut serve = command(binary()?);
        serve.args(["serve", "--supervise", "--shards", "1", "--data-dir"]).arg(&dir);
        let process = Running::start("holdfast", serve, &dir.with_extension("log"))?;
        // A node has six ports in a row.
        Ok(Self { dir, address: format!("{}:{}", own_address(), own_ports(6)), process })
    }

    fn ask(&self, arguments: &[&str]) -> Result<Value> {
        let mut asked = command(binary()?);
        asked.arg("--node").arg(&self.dir).arg("--json").args(arguments);
        let what = arguments.join(" ");
        let told = run_program(VERB, &asked)?.ok(&what)?;
        serde_json::from_str(&told).map_err(|why| Outcome::Fail(format!("{what}: {why}")))
    }

    /// Waits until the LUN and the share are served.
    fn serves(&self) -> Result {
        Deadline::after(SERVES).poll("a node that serves its LUN and its share", || {
            // Its socket may not be there yet.
            let Ok(status) = self.ask(&["status"]) else { return Ok(None) };
            let counts = &status["counts"];
            Ok((counts["luns_online"] == 1 && counts["shares_online"] == 1).then_some(()))
        })
    }

    fn stop(mut self) -> Result {
        self.process.signal("TERM")?;
        let status = self.process.wait(Deadline::after(VERB))?;
        ensure(status.success(), || format!("a clean stop ended with {status}"))
    }
}

fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// What was there before, and the addresses that it is served at now.
struct Kept {
    portal: String,
    smb: String,
}

impl Kept {
    /// Unpacks an archive into `folder`.
    fn unpack(archive: &Path, folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let mut tar = command("tar");
        tar.arg("xf").arg(archive).arg("-C").arg(folder);
        run_program(VERB, &tar)?.ok("tar")?;
        let kept = Self { portal: free_address()?, smb: free_address()? };
        let config = folder.join("data/config.toml");
        let text = std::fs::read_to_string(&config)?
            .replace("@FOLDER@", &folder.display().to_string())
            .replace("@PORTAL@", &kept.portal)
            .replace("@SMB@", &kept.smb);
        std::fs::write(&config, text)?;
        Ok(kept)
    }

    fn smbclient(&self, line: &str) -> Result<String> {
        let port = self.smb.rsplit(':').next().unwrap_or_default();
        let mut client = command("smbclient");
        client.args(["//127.0.0.1/docs", "-p", port, "-U", USER, "-c", line]);
        run_program(VERB, &client)?.ok(line)
    }

    /// Clients find what the earlier release has written for them, and its snapshot.
    fn is_served(&self) -> Result {
        let url = format!("iscsi://{}/{TARGET}/0", self.portal);
        qemu_io(&url, &["read -P 0x5a 0 1M", "read -P 0 1M 1M", "read -P 0xa5 33M 256k"])?;
        let now = self.smbclient("get sub/note.txt -")?;
        ensure(now.contains("changed after the snapshot"), || format!("note.txt has {now:?}"))?;
        let versions = self.smbclient("allinfo sub/note.txt")?;
        let version = versions.split_whitespace().find(|word| word.starts_with("@GMT-"));
        let version = version.ok_or_else(|| Outcome::Fail(format!("no earlier version: {versions}")))?;
        let before = self.smbclient(&format!("get {version}/sub/note.txt -"))?;
        ensure(before.contains("written by an earlier release"), || format!("the snapshot has {before:?}"))
    }
}

/// What must not change when a node becomes a cluster: which pool it is, and which disks its data lies on.
fn whereabouts(node: &Member) -> Result<Value> {
    let pool = node.ask(&["pool", "show", "p"])?;
    let member = |of: &Value| ["guid", "disk", "state", "allocated_bytes"].map(|field| of[field].clone());
    let members: Vec<_> = pool["members"].as_array().into_iter().flatten().map(member).collect();
    ensure(members.len() == 3, || format!("the pool has other disks: {pool}"))?;
    Ok(serde_json::json!({ "guid": pool["guid"], "members": members, "copied": pool["copied_bytes"] }))
}

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need("etcd", "etcd-server")?;
    need("qemu-io", "qemu-utils")?;
    need("smbclient", "smbclient")?;
    let archives = Path::new(env!("CARGO_MANIFEST_DIR")).join("upgrade");
    let mut tried = 0;
    for entry in std::fs::read_dir(archives)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(release) = name.strip_suffix(".tar.xz") {
            upgrade(&path, &context.folder.join(release))
                .map_err(|why| Outcome::Fail(format!("data of {release}: {why:?}")))?;
            tried += 1;
        }
    }
    ensure(tried > 0, || "there is no data of an earlier release".into())?;
    crate::note!("     data of {tried} earlier releases served, and made a cluster of");
    Ok(())
}

fn upgrade(archive: &Path, folder: &Path) -> Result {
    let kept = Kept::unpack(archive, folder)?;
    let alpha = Member::start(folder.join("data"))?;
    alpha.serves()?;
    kept.is_served()?;
    let assigned = alpha.ask(&["qos", "policy", "list"])?;
    ensure(assigned["items"][0]["name"] == "gold", || format!("the policy is gone: {assigned}"))?;
    let before = whereabouts(&alpha)?;

    alpha.ask(&[
        "cluster",
        "init",
        "--name",
        "grown",
        "--address",
        &alpha.address,
        "--node-name",
        "alpha",
    ])?;
    alpha.serves()?;
    kept.is_served()?;
    let after = whereabouts(&alpha)?;
    ensure(before == after, || format!("what was {before} is {after}"))?;

    // Another node sees it all, and owns nothing of it.
    let beta = Member::start(folder.join("beta"))?;
    Deadline::after(SERVES).poll("beta", || Ok(beta.ask(&["cluster", "place"]).ok()))?;
    let token = alpha.ask(&["cluster", "token"])?["token"].as_str().unwrap_or_default().to_owned();
    beta.ask(&["cluster", "join", &token, "--address", &beta.address, "--node-name", "beta"])?;
    let owner = Deadline::after(SERVES).poll("the pool as beta sees it", || {
        let Ok(cluster) = beta.ask(&["cluster", "status"]) else { return Ok(None) };
        let pool = &cluster["pools"][0];
        Ok((pool["state"] == "online").then(|| pool["owner"].clone()))
    })?;
    ensure(owner == "alpha", || format!("the pool has gone to {owner}"))?;
    qemu_io(
        &format!("iscsi://{}/{TARGET}/0", kept.portal),
        &["write -P 0x77 2M 64k", "read -P 0x77 2M 64k"],
    )?;
    kept.is_served()?;
    ensure(whereabouts(&alpha)? == after, || "joining has moved something".into())?;
    beta.stop()?;
    alpha.stop()
}
