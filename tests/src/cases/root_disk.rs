//! A Debian guest whose root file system lies on a LUN. QEMU's own iSCSI client is the initiator; the guest sees a disk.

use std::time::Duration;

use super::{Context, Server};
use crate::guest::{Guest, Setup, home};
use crate::node::Options;
use crate::process::need;
use crate::{Outcome, Result, ensure};

pub(super) fn run(context: &Context) -> Result {
    need("qemu-system-x86_64", "qemu-system-x86")?;
    if !std::path::Path::new("/usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so").is_file() {
        return Err(Outcome::Skip("QEMU has no iSCSI client (package qemu-block-extra)".into()));
    }
    let mut server = Server::start(context, Options::default())?;
    let limit = Duration::from_secs(900);
    let url = server.url();
    let disk = || vec!["--disk".to_string(), url.clone()];
    // Puts the guest's own system on the LUN.
    let setup = Setup { script: "install_root.sh", options: disk(), limit, ..Setup::default() };
    let said = Guest::start(&context.folder, setup)?.finish()?;
    ensure(said.contains("INSTALLED"), || format!("not installed:\n{said}"))?;
    // Boots from it, twice: what the first run left on its root the second must find, and the node dies in between.
    for round in ["1", "2"] {
        let init = format!("{}:/init", home().join("guest/switch_root.sh").display());
        let setup = Setup {
            script: "on_root.sh",
            env: vec![("ROUND", round.to_string())],
            options: [disk(), vec!["--add".into(), init]].concat(),
            limit,
            ..Setup::default()
        };
        let said = Guest::start(&context.folder, setup)?.finish()?;
        ensure(said.contains("ROOT-ON-LUN"), || format!("round {round}:\n{said}"))?;
        if let Some(node) = server.node() {
            node.crash_and_restart()?;
        }
    }
    server.finish()
}
