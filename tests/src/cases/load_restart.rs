//! A node is killed and started again under the load generator's verified load, over iSCSI and SMB at once: no operation
//! fails, nothing that was acknowledged is lost, and the report says how long clients stood still.

use std::time::Duration;

use serde_json::Value;

use super::load::{Spd, verified};
use super::{Context, PEER_CHAP, Server};
use crate::node::{Node, Options};
use crate::process::Deadline;
use crate::{Outcome, Result, ensure};

/// Threads of each load, each with a session of its own.
const THREADS: usize = 2;
/// Operations of each session that show that the load is under way.
const UNDER_WAY: u64 = 200;
/// From the start of a load, or of the node, until that many.
const BEGIN: Duration = Duration::from_secs(120);

pub(super) fn run(context: &Context) -> Result {
    let mut server = Server::start(context, Options { chap: true, ..Options::default() })?;
    let Some(node) = server.node() else {
        elsewhere(&server)?;
        return server.finish();
    };
    // Over iSCSI with digests; user and secret are in the address.
    let lun = format!("{}?header_digest=crc32c&data_digest=crc32c", node.ready().url);
    let mut loads = Vec::new();
    let (seconds, kills) = if context.full { ("-d120", 5) } else { ("-d20", 1) };
    let share = Spd::new(context, node)?;
    let file = share.url(&node.told("smb_share"), "restart");
    let with = |more: &[&'static str]| [&[seconds, "-b8K", "-r", "-w60", "-t2", "-o8", "-Sh"], more].concat();
    for (spd, options, target) in
        [(share, with(&["-c64M"]), file), (Spd::without_user()?, with(&["-f64M"]), lun)]
    {
        loads.push(std::thread::spawn(move || spd.report(&options, &[&target])));
    }
    under_way(node, "before")?;
    for kill in 1..=kills {
        node.crash_and_restart()?;
        under_way(node, &format!("after kill {kill}"))?;
    }
    for (name, load) in ["SMB", "iSCSI"].iter().zip(loads) {
        let report = load.join().map_err(|_| Outcome::Fail(format!("{name}: its thread panicked")))??;
        let spans = verified(&report).map_err(|why| Outcome::Fail(format!("{name}: {why}")))?;
        let span = &spans[0];
        let (checked, stall) = (&span["verify"]["checked"], span["verify"]["longest_stall_ms"].as_f64());
        crate::note!(
            "     {name}: {checked} blocks verified, longest stall {:.0} ms",
            stall.unwrap_or_default()
        );
        ensure(stall.is_some_and(|stall| stall > 0.0), || format!("{name}: no stall is reported: {span}"))?;
        let said = report.to_string();
        ensure(!said.contains(&node.told("iscsi_password")), || {
            format!("{name}: a secret is in the report")
        })?;
    }
    node.wait_redundant()?;
    server.finish()
}

/// The load alone, on a server that cannot be killed: what our initiator says is understood elsewhere.
fn elsewhere(server: &Server) -> Result {
    let (user, secret) = PEER_CHAP;
    let url = match server {
        Server::Peer(tgt, _) => {
            tgt.allow_digests()?;
            server.url().replace("iscsi://", &format!("iscsi://{user}%{secret}@"))
        }
        _ => server.url(),
    };
    for (query, block) in [("", "-b8K"), ("?header_digest=crc32c&data_digest=crc32c", "-b8K"), ("", "-b1M")] {
        let options = ["-d3", block, "-r", "-w60", "-t2", "-o8", "-f64M"];
        let spans = verified(&Spd::without_user()?.report(&options, &[&format!("{url}{query}")])?)?;
        crate::note!("     {block} {query}: {} blocks verified", spans[0]["verify"]["checked"]);
    }
    Ok(())
}

/// Waits until every session of both loads has done something.
fn under_way(node: &Node, when: &str) -> Result {
    Deadline::after(BEGIN).poll(&format!("load {when}"), || {
        let list = node.json(&["session", "list"])?;
        let busy = |smb: bool| {
            let sessions = list["items"].as_array().into_iter().flatten();
            let mine = sessions.filter(|each| matches!(each["smb"], Value::Null) != smb);
            mine.filter(|each| each["commands"].as_u64().unwrap_or_default() >= UNDER_WAY).count()
        };
        Ok((busy(true) >= THREADS && busy(false) >= THREADS).then_some(()))
    })
}
