//! `holdfast demo --nodes 3`, as a new user runs it: a node is killed, a node with its supervisor, a node stands still; each time another
//! one, or the next process, serves what was written, over iSCSI and SMB.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::Context;
use super::restart::qemu_io;
use crate::node::binary;
use crate::process::{Deadline, Running, command, need, run as run_program};
use crate::{Outcome, Result, ensure};

/// Three nodes, a shelf and three etcds on two processors, which do much else.
const READY: Duration = Duration::from_secs(240);
/// A takeover.
const TAKEOVER: Duration = Duration::from_secs(120);
const VERB: Duration = Duration::from_secs(60);
/// First of the addresses of this case: no other one's.
const FIRST: &str = "127.0.77.11:3260";

fn failed(what: &str, why: impl std::fmt::Display) -> Outcome {
    Outcome::Fail(format!("{what}: {why}"))
}

/// What the demo has said of a node.
pub(super) struct Member {
    pub(super) name: String,
    dir: String,
    supervisor: u64,
    smb: String,
    pub(super) iscsi: String,
}

pub(super) struct Demo {
    binary: PathBuf,
    process: Running,
    pub(super) nodes: Vec<Member>,
    pub(super) target: String,
    password: String,
}

impl Demo {
    /// `first` is the iSCSI address of the first node: no other case has it.
    pub(super) fn start(context: &Context, first: &str) -> Result<Self> {
        let binary = binary()?;
        let mut demo = command(&binary);
        demo.args(["--json", "demo", "--nodes", "3", "--iscsi", first, "--dir"])
            .arg(context.folder.join("demo"));
        let mut process = Running::start("holdfast", demo, &context.folder.join("demo.log"))?;
        let deadline = Deadline::after(READY);
        let line = loop {
            match process.line(deadline)? {
                Some(line) if line.starts_with('{') => break line,
                Some(_) => {}
                None => return Err(failed("demo", "it ended before it was ready")),
            }
        };
        let line: Value = serde_json::from_str(&line).map_err(|why| failed(&line, why))?;
        let text = |of: &Value, key: &str| of[key].as_str().unwrap_or_default().to_owned();
        let nodes = line["nodes"].as_array().cloned().unwrap_or_default();
        let nodes = nodes.iter().map(|node| Member {
            name: text(node, "name"),
            dir: text(node, "data_dir"),
            supervisor: node["supervisor_pid"].as_u64().unwrap_or_default(),
            smb: text(node, "smb_address"),
            iscsi: text(node, "iscsi_address"),
        });
        let (nodes, target, password) =
            (nodes.collect(), text(&line, "iscsi_target"), text(&line, "password"));
        Ok(Self { binary, process, nodes, target, password })
    }

    pub(super) fn ask(&self, node: usize, arguments: &[&str]) -> Result<String> {
        let mut asked = command(&self.binary);
        asked.arg("--node").arg(&self.nodes[node].dir).args(arguments);
        run_program(VERB, &asked)?.ok(&arguments.join(" "))
    }

    /// The node that serves the first pool, as node `seen_by` sees it: one that is not `not`.
    pub(super) fn owner(&self, seen_by: usize, not: Option<usize>) -> Result<usize> {
        Deadline::after(TAKEOVER).poll("an owner of pool p1", || {
            let Ok(told) = self.ask(seen_by, &["cluster", "status", "--json"]) else { return Ok(None) };
            let told: Value = serde_json::from_str(&told).map_err(|why| failed(&told, why))?;
            let pools = told["pools"].as_array().cloned().unwrap_or_default();
            let pool = pools.iter().find(|pool| pool["name"] == "p1" && pool["state"] == "online");
            let owner = pool.and_then(|pool| self.nodes.iter().position(|node| pool["owner"] == *node.name));
            // One that has just died is not known to be dead yet, and its next process has it soon.
            let serves = |owner: &usize| qemu_io(&self.url(*owner), &["read 0 4k"]).is_ok();
            Ok(owner.filter(|owner| Some(*owner) != not).filter(serves))
        })
    }

    fn url(&self, node: usize) -> String {
        format!("iscsi://{}/{}/0", self.nodes[node].iscsi, self.target)
    }

    fn smb(&self, node: usize, commands: &str) -> Result<String> {
        let (host, port) = self.nodes[node].smb.split_once(':').unwrap_or_default();
        let mut client = command("smbclient");
        client.args([
            "-p",
            port,
            "-U",
            &format!("demo%{}", self.password),
            &format!("//{host}/vmstore1"),
            "-c",
            commands,
        ]);
        run_program(VERB, &client)?.ok("smbclient")
    }

    /// The processes of a node: its supervisor, and the child of that.
    pub(super) fn processes(&self, node: usize) -> Result<Vec<String>> {
        let supervisor = self.nodes[node].supervisor;
        let children = std::fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"))?;
        let mut all = vec![supervisor.to_string()];
        all.extend(children.split_whitespace().map(str::to_owned));
        Ok(all)
    }

    /// The process of etcd that a node's supervisor runs, if there is one.
    fn etcd(&self, node: usize) -> Result<Option<String>> {
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.nodes[node].supervisor))?.flatten() {
            let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            let is_etcd = |pid: &&str| {
                std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "etcd")
            };
            if let Some(pid) = children.split_whitespace().find(is_etcd) {
                return Ok(Some(pid.to_owned()));
            }
        }
        Ok(None)
    }

    pub(super) fn signal(&self, signal: &str, processes: &[String]) -> Result {
        let mut kill = command("kill");
        kill.arg(signal).args(processes);
        run_program(VERB, &kill)?.ok("kill").map(drop)
    }

    pub(super) fn stop(mut self) -> Result {
        self.process.signal("TERM")?;
        let ended = self.process.wait(Deadline::after(READY))?;
        ensure(ended.success(), || format!("the demo ended with {ended}"))
    }

    /// What was written is there at a node, and more can be written.
    fn holds(&self, node: usize, folder: &std::path::Path, more: u64) -> Result {
        qemu_io(&self.url(node), &["read -P 0x5a 0 8M", &format!("write -P 0x33 {more}M 1M"), "flush"])?;
        self.smb(node, &format!("get data {}", folder.join("back").display()))?;
        let same = std::fs::read(folder.join("data"))? == std::fs::read(folder.join("back"))?;
        ensure(same, || "the file on the share is another one".into())
    }
}

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs nodes of its own".into()));
    }
    need("etcd", "etcd-server")?;
    need("qemu-io", "qemu-utils")?;
    need("smbclient", "smbclient")?;
    let folder = &context.folder;
    let demo = Demo::start(context, FIRST)?;
    let first = demo.owner(0, None)?;
    ensure(first == 0, || format!("{} has the first node's pool", demo.nodes[first].name))?;
    let data: Vec<u8> =
        (0..4 << 20_u32).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(folder.join("data"), data)?;
    qemu_io(&demo.url(0), &["write -P 0x5a 0 8M", "flush"])?;
    demo.smb(0, &format!("put {} data", folder.join("data").display()))?;

    // Its process: the supervisor starts the next one, and whoever has the pool then serves it.
    let etcd = demo.etcd(0)?;
    ensure(etcd.is_some(), || "the supervisor of the first node runs no etcd".into())?;
    let child = demo.processes(0)?.split_off(1);
    demo.signal("-9", &child)?;
    Deadline::after(TAKEOVER).poll("another process of the first node", || {
        Ok(demo.processes(0)?.get(1).filter(|now| **now != child[0]).map(drop))
    })?;
    let owner = demo.owner(1, None)?;
    demo.holds(owner, folder, 16)?;
    ensure(demo.etcd(0)? == etcd, || "etcd did not outlive the process of its node".into())?;

    // Where it should be, as any node is told.
    let (before, home) = (owner, (owner + 1) % demo.nodes.len());
    let name = demo.nodes[home].name.clone();
    demo.ask(before, &["pool", "set", "p1", "--home", &name])?;
    let plan = demo.ask(before, &["cluster", "rebalance", "--dry-run"])?;
    ensure(plan.contains("its home") && plan.contains(&name), || format!("it should go home: {plan}"))?;
    ensure(demo.owner(home, None)? == before, || "what is only shown was done".into())?;
    demo.ask(before, &["cluster", "rebalance"])?;
    let owner = demo.owner(home, Some(before))?;
    ensure(owner == home, || "it has not gone home".into())?;
    demo.ask(before, &["pool", "set", "p1", "--no-home"])?;
    demo.holds(owner, folder, 20)?;

    // A node stands still: another one takes its pool, and its own writes do no harm when it goes on.
    let frozen = demo.processes(owner)?;
    demo.signal("-STOP", &frozen)?;
    let other = (owner + 1) % demo.nodes.len();
    let taken = demo.owner(other, Some(owner))?;
    demo.holds(taken, folder, 17)?;
    demo.signal("-CONT", &frozen)?;
    demo.ask(other, &["pool", "list"])?;
    ensure(demo.owner(other, Some(owner))? == taken, || "the node that stood still took it back".into())?;
    demo.holds(taken, folder, 18)?;

    // With its supervisor: it is gone for good, and its etcd with it.
    let etcd = demo.etcd(taken)?.ok_or_else(|| Outcome::Fail("a node runs no etcd".into()))?;
    demo.signal("-9", &demo.processes(taken)?)?;
    Deadline::after(TAKEOVER).poll("the end of its etcd", || {
        let name = std::fs::read_to_string(format!("/proc/{etcd}/comm")).unwrap_or_default();
        Ok((name.trim() != "etcd").then_some(()))
    })?;
    let other = (taken + 1) % demo.nodes.len();
    let last = demo.owner(other, Some(taken))?;
    demo.holds(last, folder, 19)?;
    qemu_io(&demo.url(last), &["read -P 0x33 16M 4M", "read -P 0 32M 1M"])?;
    let status = demo.ask(other, &["status"])?;
    ensure(status.contains("away"), || format!("nobody says that a node is away: {status}"))?;

    demo.stop()
}
