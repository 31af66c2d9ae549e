//! Persistent reservations of two initiators, kept through kill -9 (APTPL).

use std::path::PathBuf;
use std::time::Duration;

use super::{Context, Server};
use crate::guest::home;
use crate::node::Options;
use crate::process::{command, need, run as run_program};
use crate::{Outcome, Result, ensure};

/// The little initiator with a name and ISID of our choice.
pub(super) struct Tool {
    pub(super) binary: PathBuf,
    pub(super) url: String,
}

impl Tool {
    pub(super) fn build(context: &Context, url: String) -> Result<Self> {
        need("gcc", "gcc")?;
        if !std::path::Path::new("/usr/include/iscsi/iscsi.h").is_file() {
            return Err(Outcome::Skip("libiscsi's headers are missing (package libiscsi-dev)".into()));
        }
        let binary = context.folder.join("iscsi_pr");
        let mut compile = command("gcc");
        compile.args(["-O1", "-Wall", "-o"]).arg(&binary).arg(home().join("tools/iscsi_pr.c")).arg("-liscsi");
        run_program(Duration::from_secs(60), &compile)?.ok("gcc iscsi_pr.c")?;
        Ok(Self { binary, url })
    }

    /// What the initiator `who` (1 or 2) is answered.
    pub(super) fn ask(&self, who: &str, words: &[&str]) -> Result<String> {
        let mut tool = command(&self.binary);
        tool.args([&self.url, who]).args(words);
        Ok(run_program(Duration::from_secs(40), &tool)?
            .ok(&format!("iscsi_pr {who} {words:?}"))?
            .trim()
            .to_string())
    }

    pub(super) fn expect(&self, who: &str, words: &[&str], answer: &str) -> Result {
        let got = self.ask(who, words)?;
        ensure(got == answer, || format!("initiator {who} {words:?}: `{got}` instead of `{answer}`"))
    }
}

const CONFLICT: &str = "RESERVATION CONFLICT";

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip(
            "needs a node of its own (and tgt forgets a registration at logout)".into(),
        ));
    }
    let mut server = Server::start(context, Options::default())?;
    let tool = Tool::build(context, server.url())?;
    tool.expect("1", &["register", "0xabc1", "aptpl"], "GOOD")?;
    tool.expect("2", &["register", "0xabc2", "aptpl"], "GOOD")?;
    // Type 5: write exclusive, registrants only.
    tool.expect("1", &["reserve", "0xabc1", "5"], "GOOD")?;
    tool.expect("2", &["write"], "GOOD")?;
    tool.expect("3", &["write"], CONFLICT)?;
    tool.expect("3", &["read"], "GOOD")?;
    for round in 0..2 {
        if let Some(node) = server.node() {
            node.crash_and_restart()?;
            tool.expect("1", &["keys"], "0xabc1 0xabc2")?;
            tool.expect("2", &["holder"], "0xabc1 type 5")
                .map_err(|e| Outcome::Fail(format!("round {round}: {e}")))?;
            tool.expect("3", &["write"], CONFLICT)?;
            tool.expect("2", &["write"], "GOOD")?;
        }
    }
    // The other initiator takes over, as a cluster does when a node dies.
    tool.expect("2", &["preempt", "0xabc2", "0xabc1", "5"], "GOOD")?;
    tool.expect("2", &["holder"], "0xabc2 type 5")?;
    tool.expect("1", &["write"], CONFLICT)?;
    if let Some(node) = server.node() {
        node.crash_and_restart()?;
    }
    tool.expect("2", &["keys"], "0xabc2")?;
    tool.expect("1", &["write"], CONFLICT)?;
    tool.expect("2", &["clear", "0xabc2"], "GOOD")?;
    tool.expect("3", &["write"], "GOOD")?;
    server.finish()
}
