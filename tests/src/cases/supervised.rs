//! `serve --supervise`: the node is killed, and clients that connect meanwhile wait instead of being refused; what stops on purpose stays
//! stopped; a supervisor that is killed leaves no node behind.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use super::Context;
use super::restart::qemu_io;
use crate::node::{Node, Options, binary};
use crate::process::{Deadline, Running, command, need, run as run_program};
use crate::{Outcome, Result, ensure};

/// From a start, or a death, to a node that answers.
const ANSWERS: Duration = Duration::from_secs(60);
/// A connection that is not refused comes at once.
const CONNECTS: Duration = Duration::from_secs(10);
/// How often the node is killed.
const KILLS: usize = 3;

fn failed(what: &str, why: impl std::fmt::Display) -> Outcome {
    Outcome::Fail(format!("{what}: {why}"))
}

/// The child of a process.
fn child(of: u32) -> Result<Option<u32>> {
    let children = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children"))?;
    Ok(children.split_whitespace().next().and_then(|pid| pid.parse().ok()))
}

/// Where iSCSI is served, when it is.
fn served_at(node: &Node) -> Result<String> {
    Deadline::after(ANSWERS).poll("a node with an open LUN", || {
        // Its socket may not be there yet.
        let (Ok(portals), Ok(status)) = (node.json(&["portal", "list"]), node.json(&["status"])) else {
            return Ok(None);
        };
        let at = portals["items"][0]["listening"].as_str().map(str::to_owned);
        Ok(at.filter(|_| status["counts"]["luns_online"] == 1))
    })
}

/// Serves the node as a service would.
fn supervise(node: &Node, log: &Path) -> Result<Running> {
    let mut serve = command(binary()?);
    serve.args(["serve", "--supervise", "--data-dir"]).arg(node.data_dir());
    Running::start("holdfast", serve, log)
}

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need("qemu-io", "qemu-utils")?;
    // The demo makes disks, pool, LUN and target; then it is served as a service would.
    let mut node = Node::start(&context.folder, Options::default())?;
    node.stop()?;
    let mut parent = supervise(&node, &context.folder.join("supervised.log"))?;
    let portal = served_at(&node)?;
    let at: SocketAddr = portal.parse().map_err(|why| failed("portal", why))?;
    let url = format!("iscsi://{portal}/{}/0", node.ready().iqn);
    qemu_io(&url, &["write -P 0x5a 0 4M", "flush"])?;
    for _ in 0..KILLS {
        let before = child(parent.id())?.ok_or_else(|| failed("supervisor", "it has no child"))?;
        run_program(CONNECTS, command("kill").args(["-9", &before.to_string()]))?.ok("kill")?;
        // Before, while and after the new one starts.
        for _ in 0..20 {
            TcpStream::connect_timeout(&at, CONNECTS).map_err(|why| failed("a connection", why))?;
        }
        qemu_io(&url, &["read -P 0x5a 0 4M"])?;
        ensure(served_at(&node)? == portal, || "the port is another one".into())?;
        ensure(child(parent.id())?.is_some_and(|now| now != before), || "nothing was started".into())?;
    }
    parent.signal("TERM")?;
    let ended = parent.wait(Deadline::after(ANSWERS))?;
    ensure(ended.success(), || format!("a clean stop ends with {ended}"))?;
    ensure(TcpStream::connect_timeout(&at, CONNECTS).is_err(), || "somebody still listens".into())?;
    orphaned(context, &node)
}

/// A supervisor that is killed: its child ends by itself, and cleanly, so that the next one can begin.
fn orphaned(context: &Context, node: &Node) -> Result {
    let log = context.folder.join("orphaned.log");
    let mut parent = supervise(node, &log)?;
    let portal = served_at(node)?;
    let at: SocketAddr = portal.parse().map_err(|why| failed("portal", why))?;
    let orphan = child(parent.id())?.ok_or_else(|| failed("supervisor", "it has no child"))?;
    parent.signal("KILL")?;
    parent.wait(Deadline::after(ANSWERS))?;
    Deadline::after(ANSWERS).poll("the end of a node without a supervisor", || {
        let stat = std::fs::read_to_string(format!("/proc/{orphan}/stat")).unwrap_or_default();
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        // One that nobody has waited for yet has ended, too.
        Ok(matches!(state, None | Some('Z' | 'X')).then_some(()))
    })?;
    ensure(TcpStream::connect_timeout(&at, CONNECTS).is_err(), || "somebody still listens".into())?;
    let said = std::fs::read_to_string(&log)?;
    ensure(said.contains("the supervisor has died"), || format!("it did not stop for that:\n{said}"))?;
    let mut next = supervise(node, &context.folder.join("next.log"))?;
    let url = format!("iscsi://{}/{}/0", served_at(node)?, node.ready().iqn);
    qemu_io(&url, &["read -P 0x5a 0 4M"])?;
    next.signal("TERM")?;
    let ended = next.wait(Deadline::after(ANSWERS))?;
    ensure(ended.success(), || format!("a clean stop ends with {ended}"))
}
