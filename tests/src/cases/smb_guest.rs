//! The Linux kernel as SMB client: a continuously available share with persistent handles, verified load on it, and the
//! node dying meanwhile.

use std::path::Path;
use std::time::Duration;

use super::Context;
use super::qos::wait_for_flow;
use crate::guest::{Guest, Setup};
use crate::node::{Node, Options};
use crate::process::{command, need, run};
use crate::{Result, ensure};

/// Boot, write and verify under emulation on two busy cores.
const LIMIT: Duration = Duration::from_secs(900);
const LIMIT_FULL: Duration = Duration::from_secs(2400);
/// What is written and verified, in MiB, at least.
const SIZE: &str = "32";
const SIZE_FULL: &str = "512";

/// A maximum of IOPS that the guest's files have for a while.
const IOPS: u64 = 200;

/// Signed; many small files, and random operations compared with memory, besides.
pub(super) fn files(context: &Context) -> Result {
    need("gcc", "gcc")?;
    let share = context.folder.join("share");
    std::fs::create_dir_all(&share)?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest/torture.c");
    // Static: the guest has no more than it needs.
    let mut compile = command("gcc");
    compile.args(["-O1", "-static", "-o"]).arg(share.join("torture")).arg(source);
    run(Duration::from_secs(60), &compile)?.ok("gcc")?;
    one(context, "sign", "files", |_, _| Ok(()))
}

/// Encrypted, with persistent handles: the node is killed and started again as rounds of load begin, and then limits come and go. Not in the other
/// order: Linux gives up the request that it is just sending when a connection is reset, and amid a round there often is one.
pub(super) fn kill(context: &Context) -> Result {
    one(context, "seal,persistenthandles", "load", |node, guest| {
        node.crash_and_restart()?;
        guest.wait_for("PROGRESS")?;
        node.crash_and_restart()?;
        limits_come_and_go(node)
    })
}

/// The kernel's client feels a policy of its share, its change, its going and coming, all while it writes.
fn limits_come_and_go(node: &Node) -> Result {
    let (share, limit) = (node.told("smb_share"), IOPS.to_string());
    node.cli(&["qos", "policy", "create", "guest", "--max-iops", &limit])?;
    node.cli(&["qos", "assign", "guest", "--share", &share])?;
    is_limited(node, "limited")?;
    node.cli(&["qos", "policy", "set", "guest", "--max-iops", "100000000"])?;
    let moves = |flow: &serde_json::Value| flow["normalized_iops"].as_u64() > Some(0);
    wait_for_flow(node, "of the changed policy", |flow| moves(flow) && flow["max_iops"] == 100_000_000)?;
    node.cli(&["qos", "unassign", "--share", &share])?;
    wait_for_flow(node, "without a policy", |flow| moves(flow) && flow["policy"].is_null())?;
    node.cli(&["qos", "policy", "set", "guest", "--max-iops", &limit])?;
    node.cli(&["qos", "assign", "guest", "--share", &share])?;
    is_limited(node, "limited again")?;
    node.cli(&["qos", "unassign", "--share", &share])?;
    wait_for_flow(node, "without a policy again", |flow| moves(flow) && flow["policy"].is_null())
}

/// A file is held back, and gets no more than it may over the window of the list; there is a twentieth for the window's ends.
fn is_limited(node: &Node, what: &str) -> Result {
    wait_for_flow(node, what, |flow| {
        let number = |field: &str| flow[field].as_u64().unwrap_or_default();
        let is_whole = flow["window_ms"].as_u64() >= Some(5000);
        let within = (1..=IOPS + IOPS / 20).contains(&number("normalized_iops"));
        flow["policy"] == "guest" && number("max_iops") == IOPS && number("held_us") > 0 && is_whole && within
    })
}

fn one(
    context: &Context,
    options: &str,
    work: &str,
    hurt: impl Fn(&mut Node, &mut Guest) -> Result,
) -> Result {
    let mut node = Node::start(&context.folder, Options::default())?;
    let port = node.told("smb_address").rsplit(':').next().unwrap_or_default().to_string();
    let env = vec![
        ("SRV", "10.0.2.2".to_string()),
        ("PORT", port),
        ("SHARE", node.told("smb_share")),
        ("SMB_USER", node.told("smb_user")),
        ("SMB_PASS", node.told("smb_password")),
        ("OPTS", options.to_string()),
        ("WORK", work.to_string()),
        ("SIZE_MIB", if context.full { SIZE_FULL } else { SIZE }.to_string()),
        ("TORTURE", if context.full { "20000" } else { "800" }.to_string()),
        ("FILES", if context.full { "20000" } else { "300" }.to_string()),
    ];
    let limit = if context.full { LIMIT_FULL } else { LIMIT };
    let mut guest =
        Guest::start(&context.folder, Setup { script: "smb.sh", env, limit, ..Setup::default() })?;
    guest.wait_for("READY")?;
    hurt(&mut node, &mut guest)?;
    guest.tell("hurt")?;
    let said = guest.finish()?;
    ensure(said.contains("DONE"), || format!("the guest did not come to its end:\n{said}"))?;
    node.finish()
}
