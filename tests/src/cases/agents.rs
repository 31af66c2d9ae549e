//! Three agents in three network namespaces generate load together; the coordinator is interrupted, the cable of one agent
//! is pulled under load, and another one is killed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::Context;
use super::multipath::{Net, admin};
use crate::process::{Deadline, Finished, Running, command, need, need_root, pause};
use crate::{Outcome, Result, ensure};

/// A program that listens.
const LISTENS: Duration = Duration::from_secs(30);
/// One run, on a machine that does much else.
const RUN: Duration = Duration::from_secs(120);
/// By how much the beginnings may differ, in milliseconds: half of the run, so that all of them measure beside each other. How
/// exactly they begin depends on what else the machine does, and is printed only.
const TOGETHER: f64 = 1000.0;
/// The coordinator's network namespace; agents are in 1 to 3.
const COORDINATOR: usize = 4;

/// The agents, and what a coordinator needs.
struct Fleet {
    net: Net,
    binary: PathBuf,
    folder: PathBuf,
    agents: Vec<Running>,
}

impl Fleet {
    fn new(context: &Context) -> Result<Self> {
        let binary = std::env::var_os("HOLDFAST_BIN").map(PathBuf::from);
        let binary =
            binary.ok_or_else(|| Outcome::Skip("HOLDFAST_BIN does not say where the binary is".into()))?;
        let net = Net::of("4", "1")?;
        let folder = context.folder.clone();
        std::fs::write(folder.join("secret"), "the secret of this case\n")?;
        std::fs::write(folder.join("wrong"), "another secret, as long\n")?;
        let mut fleet = Self { net, binary, folder, agents: Vec::new() };
        for number in 1..=3 {
            let mut agent = fleet.inside(number);
            agent.args(["spd", "agent", "--secret-file", "secret"]);
            let mut agent = Running::start("agent", agent, &fleet.folder.join("agents.log"))?;
            let line = agent.line(Deadline::after(LISTENS))?.unwrap_or_default();
            ensure(line.starts_with("agent listening on "), || format!("agent {number} says {line:?}"))?;
            fleet.agents.push(agent);
        }
        Ok(fleet)
    }

    /// The binary in one of the namespaces.
    fn inside(&self, number: usize) -> std::process::Command {
        let mut inside = command("ip");
        inside.args(["netns", "exec", &format!("{}-n{number}", self.net.0)]).arg(&self.binary);
        inside.current_dir(&self.folder);
        inside
    }

    fn coordinator(&self, secret: &str, options: &[&str]) -> std::process::Command {
        self.coordinator_of(&["spd"], secret, options)
    }

    fn coordinator_of(&self, verb: &[&str], secret: &str, options: &[&str]) -> std::process::Command {
        let mut spd = self.inside(COORDINATOR);
        spd.args(verb).args(["--agents", "10.99.0.11,10.99.0.12,10.99.0.13", "--secret-file", secret]);
        spd.args(["--quiet", "--json", "-W0", "-c4M", "-b4K", "-r", "-t2", "-o4", "-L"]);
        spd.args(options).arg("vm{agent}.dat");
        spd
    }

    /// Starts a coordinator, does `meanwhile` some seconds into the load, returns its exit code and what it said.
    fn disturbed(
        &mut self,
        run: std::process::Command,
        meanwhile: impl FnOnce(&mut Self, &mut Running) -> Result,
    ) -> Result<(Option<i32>, String)> {
        // Its beginning shows in the agents' files, which are made before.
        (1..=3).for_each(|number| drop(std::fs::remove_file(self.folder.join(format!("vm{number}.dat")))));
        let mut run = Running::start("coordinator", run, &self.log())?;
        let made = |number: usize| is_whole(&self.folder.join(format!("vm{number}.dat")));
        Deadline::after(LISTENS).poll("the agents' files", || Ok((1..=3).all(made).then_some(())))?;
        pause(Duration::from_secs(3));
        meanwhile(self, &mut run)?;
        let mut text = String::new();
        while let Some(line) = run.line(Deadline::after(RUN))? {
            text.push_str(&line);
            text.push('\n');
        }
        let status = run.wait(Deadline::after(RUN))?;
        Ok((status.code(), text))
    }

    /// The same for a run that loses an agent; returns its report.
    fn robbed(&mut self, rob: impl FnOnce(&mut Self) -> Result) -> Result<Value> {
        let run = self.coordinator("secret", &["-d12"]);
        let (code, text) = self.disturbed(run, |fleet, _| rob(fleet))?;
        ensure(code == Some(1), || format!("a run that lost an agent ended with {code:?}:\n{text}"))?;
        report(&text)
    }

    fn log(&self) -> PathBuf {
        self.folder.join("coordinator.log")
    }
}

fn is_whole(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.len() == 4 << 20)
}

fn report(text: &str) -> Result<Value> {
    let report: Value = serde_json::from_str(text).map_err(|e| format!("no report: {e}: {text}"))?;
    Ok(report["spans"][0].clone())
}

/// Counts of the rows, which must be what the sum says.
fn rows(span: &Value) -> Result<Vec<u64>> {
    let agents = span["agents"].as_array().cloned().unwrap_or_default();
    let rows: Vec<u64> =
        agents.iter().map(|agent| agent["read"]["count"].as_u64().unwrap_or_default()).collect();
    let sum = span["read"]["count"].as_u64().unwrap_or_default();
    ensure(rows.len() == 3 && sum == rows.iter().sum::<u64>(), || {
        format!("rows {rows:?} are not {sum}: {span}")
    })?;
    Ok(rows)
}

/// The run that lost agent `lost` (from 0): its row is empty and says so, those of the others are not.
fn lost_one(span: &Value, lost: usize, address: &str) -> Result {
    let rows = rows(span)?;
    let others = rows.iter().enumerate().all(|(at, count)| (*count > 0) == (at != lost));
    let why = span["ended_early"].as_str().unwrap_or_default();
    let named =
        why.starts_with(&format!("agent {address}: vanished ")) && why.contains("after the load began");
    ensure(others && named, || format!("rows {rows:?}, ended early: {why:?}"))?;
    crate::note!("     {why}");
    Ok(())
}

/// Ctrl-C of a coordinator ends all agents, whose hour of load it is that ends, and what was measured is reported. That the
/// agents are free again shows in the next run.
fn interrupted(fleet: &mut Fleet) -> Result {
    let run = fleet.coordinator("secret", &["-d3600"]);
    let (code, text) = fleet.disturbed(run, |_, run| run.signal("INT"))?;
    let span = report(&text)?;
    ensure(code == Some(0) && span["ended_early"] == "interrupted", || {
        format!("an interrupted run: exit code {code:?}, {}", span["ended_early"])
    })?;
    ensure(rows(&span)?.iter().all(|count| *count > 0), || format!("an agent measured nothing: {span}"))?;
    // A sweep: its first point takes an hour, and nothing but whole points is a measurement.
    let run = fleet.coordinator_of(&["spd", "sweep", "--depths", "1,2"], "secret", &["-d3600"]);
    let (code, text) = fleet.disturbed(run, |_, run| run.signal("INT"))?;
    let said = std::fs::read_to_string(fleet.log())?;
    ensure(code == Some(0) && said.contains("interrupted: 0 of 2 points"), || {
        format!("an interrupted sweep: exit code {code:?}:\n{text}{said}")
    })
}

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("is about the load generator alone".into()));
    }
    need("ip", "iproute2")?;
    need_root("network namespaces")?;
    let mut fleet = Fleet::new(context)?;

    let Finished { status, output, errors } =
        crate::process::run(RUN, &fleet.coordinator("wrong", &["-d1"]))?;
    ensure(status.code() == Some(1) && output.is_empty() && errors.contains("same secret"), || {
        format!("a wrong secret: {status}\n{output}{errors}")
    })?;

    let said = crate::process::run(RUN, &fleet.coordinator("secret", &["-d2"]))?.ok("three agents")?;
    let span = report(&said)?;
    ensure(rows(&span)?.iter().all(|count| *count > 0), || format!("an agent measured nothing: {span}"))?;
    for agent in span["agents"].as_array().into_iter().flatten() {
        let (after, error) = (agent["start_ms"].as_f64(), agent["start_error_ms"].as_f64());
        let apart = after.zip(error).map(|(after, error)| after + error);
        let together = apart.is_some_and(|apart| apart <= TOGETHER);
        ensure(together, || format!("its beginning is not known, or not beside the others: {agent}"))?;
        crate::note!("     {} began after {:.3} ms", agent["name"], after.unwrap_or_default());
    }

    interrupted(&mut fleet)?;

    let span = fleet.robbed(|fleet| admin(&["cut", &fleet.net.0, "2"]))?;
    lost_one(&span, 1, "10.99.0.12")?;
    admin(&["mend", &fleet.net.0, "2"])?;

    let span = fleet.robbed(|fleet| fleet.agents.get_mut(2).map_or(Ok(()), Running::kill))?;
    lost_one(&span, 2, "10.99.0.13")
}
