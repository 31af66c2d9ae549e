//! The configuration is a file: show it, lose it, apply it, and initiators find their LUNs again.

use super::restart::qemu_io;
use super::{Context, Server};
use crate::node::Options;
use crate::process::need;
use crate::{Result, ensure};

pub(super) fn run(context: &Context) -> Result {
    need("qemu-io", "qemu-utils")?;
    let mut server = Server::start(context, Options { chap: true, ..Options::default() })?;
    let Some(node) = server.node() else { return server.finish() };
    // The first start asked for any free port, and that is what its configuration says: applied again it would get
    // another. From the second start on the port is part of the configuration, as it is on a real node.
    node.stop()?;
    node.start_again()?;
    let url = node.ready().url.clone();
    qemu_io(&url, &["write -P 0x42 0 8M", "flush"])?;
    let group = "iqn.2000-01.test:a-host";
    node.cli(&["initiator-group", "create", "one-host", group])?;
    node.cli(&["lun", "create", "second", "--volume", &node.told("volume"), "--size", "1GiB"])?;
    let target = node.ready().iqn.clone();
    node.cli(&["lun", "map", "second", "--target", &target, "--number", "300", "--group", "one-host"])?;
    let before = node.cli(&["config", "show"])?;
    ensure(before.contains("one-host") && before.contains("second"), || format!("config show:\n{before}"))?;
    let kept = context.folder.join("kept.toml");
    std::fs::write(&kept, &before)?;

    // The node forgets what it serves; its pools and their data stay.
    let wiped = keep_sections(&before, &["node", "policy", "disk", "pool"]);
    let empty = context.folder.join("empty.toml");
    std::fs::write(&empty, wiped)?;
    node.cli(&["config", "apply", &empty.to_string_lossy()])?;
    let luns = node.json(&["lun", "list"])?;
    let count = luns.get("items").and_then(|i| i.as_array()).map_or(99, Vec::len);
    ensure(count == 0, || format!("LUNs are left after the wipe: {luns}"))?;
    ensure(qemu_io(&url, &["read 0 4k"]).is_err(), || "a LUN is served after the wipe".into())?;

    node.cli(&["config", "apply", &kept.to_string_lossy()])?;
    let after = node.cli(&["config", "show"])?;
    ensure(after == before, || {
        format!("not the same after wipe and apply:\n--- before\n{before}\n--- after\n{after}")
    })?;
    qemu_io(&url, &["read -P 0x42 0 8M"])?;
    // The secret is in force again too, not only accepted.
    let password = node.told("iscsi_password");
    ensure(!password.is_empty(), || "a demo with CHAP says no password".into())?;
    let wrong = url.replace(&password, "wrong-secret-12");
    ensure(qemu_io(&wrong, &["read 0 4k"]).is_err(), || "a wrong secret is accepted after apply".into())?;
    server.finish()
}

/// The TOML text with only these top-level tables (and what stands above the first table).
fn keep_sections(text: &str, names: &[&str]) -> String {
    let mut keep = true;
    let mut kept = String::new();
    for line in text.lines() {
        if line.starts_with('[') {
            let name = line.trim_matches(['[', ']']).split('.').next().unwrap_or_default().trim();
            keep = names.contains(&name);
        }
        if keep {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}
