//! SMB clients in Python with their own test suites: smbprotocol and its smbclient, impacket, pike. Signed and encrypted, in
//! all versions, with leases, durable and persistent handles. All of it is captured, and tshark must find no malformed
//! frame of ours.

use std::time::Duration;

use super::Context;
use super::smb_capture::Capture;
use crate::guest::home;
use crate::node::{Node, Options};
use crate::process::{command, need, need_root, run as run_program};
use crate::{Outcome, Result, ensure};

/// All suites, at most.
const LIMIT: Duration = Duration::from_secs(400);
const LIMIT_FULL: Duration = Duration::from_secs(1200);
/// An address of our own: SMB's own port is free there, and the suites know no other.
const ADDRESS: &str = "127.0.44.7";
/// Shares for what is not about continuous availability, and the one that impacket knows.
const SHARES: [(&str, &[&str]); 3] = [("py", &[]), ("py-encrypted", &["--encrypt"]), ("C$", &[])];

pub(super) fn run(context: &Context) -> Result {
    need_root("capturing packets, and serving on port 445")?;
    need("tshark", "tshark")?;
    need("dumpcap", "tshark")?;
    let cache = cache();
    if !cache.join("stamp").is_file() {
        return Err(Outcome::Skip("no Python clients: run tests/tools/prepare.sh".into()));
    }
    let smb = Some(format!("{ADDRESS}:445"));
    let mut node = Node::start(&context.folder, Options { smb, ..Options::default() })?;
    for (name, options) in SHARES {
        let user = node.told("smb_user");
        node.cli(&[&["share", "create", name, "--no-ca", "--full", &user], options].concat())?;
    }
    // What the suites do on purpose.
    for text in [
        "SMB login refused",
        "SMB request refused",
        "SMB connection closed: protocol error",
        "SMB reconnection refused",
        "access to the share denied",
        "SMB 1 refused",
    ] {
        node.expect_log(text);
    }
    let capture = Capture::start(&context.folder, 445)?;
    suites(context, &node, "signed")?;
    node.cli(&["smb", "set", "--signing", "offered"])?;
    suites(context, &node, "unsigned")?;
    capture.finish(2000)?;
    let open = node.json(&["open", "list"])?;
    let left = open.get("items").and_then(|items| items.as_array()).map_or(0, Vec::len);
    // Tests that were cut off leave durable handles; none may be many.
    ensure(left < 50, || format!("{left} opens are left behind"))?;
    node.finish()
}

/// Where `prepare.sh` leaves the clients.
pub(super) fn cache() -> std::path::PathBuf {
    std::env::var_os("PYTHON_CACHE")
        .map_or_else(|| crate::guest::cache().with_file_name("holdfast-python"), std::path::PathBuf::from)
}

fn suites(context: &Context, node: &Node, phase: &str) -> Result {
    let mut python = command("python3");
    python.arg(home().join("tools/smb_python/suites.py")).arg("--folder").arg(cache());
    python.arg("--work").arg(&context.folder).args(["--server", ADDRESS, "--phase", phase]);
    python.args(["--user", &node.told("smb_user"), "--password", &node.told("smb_password")]);
    let status = node.json(&["smb", "status"])?;
    let name = status.get("netbios_name").and_then(|name| name.as_str()).unwrap_or_default();
    python.args(["--share", "py", "--ca-share", &node.told("smb_share"), "--name", name]);
    if context.full {
        python.arg("--full");
    }
    let limit = if context.full { LIMIT_FULL } else { LIMIT };
    let said = run_program(limit, &python)?;
    let lines: Vec<&str> = said.output.lines().filter(|line| line.contains(" passed, ")).collect();
    crate::note!("     {}", lines.join("\n     "));
    ensure(said.status.success(), || {
        format!("{phase}: a suite failed unexpectedly:\n{}\n{}", said.output, said.errors)
    })
}
