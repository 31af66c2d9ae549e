//! Images of virtual disks on a share: made, converted, checked and compared with QEMU's tools over the kernel's client, in
//! three formats; and the raw one as a LUN, which gives the same bytes.

use std::path::Path;
use std::time::Duration;

use super::Context;
use crate::guest::{Guest, Setup};
use crate::node::{Node, Options};
use crate::process::{command, need, run as run_program};
use crate::{Outcome, Result, ensure};

const LIMIT: Duration = Duration::from_secs(900);
/// One program on the host.
const TOOL: Duration = Duration::from_secs(120);

pub(super) fn run(context: &Context) -> Result {
    need("qemu-img", "qemu-utils")?;
    if !Path::new("/usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so").is_file() {
        return Err(Outcome::Skip("QEMU has no iSCSI client (package qemu-block-extra)".into()));
    }
    let node = Node::start(&context.folder, Options::default())?;
    take_along(&context.folder.join("share/qemu"))?;
    let port = node.told("smb_address").rsplit(':').next().unwrap_or_default().to_string();
    let size = if context.full { "256" } else { "32" };
    let env = vec![
        ("SRV", "10.0.2.2".to_string()),
        ("PORT", port),
        ("SHARE", node.told("smb_share")),
        ("SMB_USER", node.told("smb_user")),
        ("SMB_PASS", node.told("smb_password")),
        // QEMU asks whether the bytes that it has locked could be locked, which the kernel finds out by locking them on the
        // server: its own locks are in its way there, as on any server. So its locks stay in the guest.
        ("OPTS", "sign,persistenthandles,nobrl".to_string()),
        ("SIZE_MIB", size.to_string()),
    ];
    let options = vec!["--mem".to_string(), if context.full { "2048" } else { "1024" }.to_string()];
    let setup = Setup { script: "images.sh", env, options, limit: LIMIT, ..Setup::default() };
    let said = Guest::start(&context.folder, setup)?.finish()?;
    let sum = said.lines().find_map(|line| line.strip_prefix("SUM ")).unwrap_or_default().to_string();
    ensure(sum.len() == 64, || format!("the guest did not come to its end:\n{said}"))?;
    for line in said.lines().filter(|line| line.contains(" KiB of ")) {
        crate::note!("     {line}");
    }
    // The file that the guest wrote is a LUN as it is.
    node.cli(&[
        "lun",
        "create",
        "image",
        "--path",
        "/shares/vmstore/disk.raw",
        "--group",
        "everyone",
        "--number",
        "7",
    ])?;
    let url = format!("{}/7", node.ready().url.rsplit_once('/').map_or("", |(head, _)| head));
    let copy = context.folder.join("lun.raw");
    let mut read = command("qemu-img");
    read.args(["convert", "-f", "raw", "-O", "raw", &url]).arg(&copy);
    run_program(TOOL, &read)?.ok("qemu-img convert from the LUN")?;
    let mut check = command("sha256sum");
    check.arg(&copy);
    let found = run_program(TOOL, &check)?.ok("sha256sum")?;
    ensure(found.starts_with(&sum), || format!("the LUN's bytes are others: {found} instead of {sum}"))?;
    crate::note!("     as a LUN the same bytes");
    node.finish()
}

/// Puts qemu-img and the libraries that it needs into a folder that the guest sees.
fn take_along(folder: &Path) -> Result {
    std::fs::create_dir_all(folder)?;
    let mut shell = command("sh");
    shell.arg("-c").arg(
        "set -e; tool=$(command -v qemu-img); cp -L \"$tool\" \"$1/qemu-img\"; \
         ldd \"$tool\" | awk '/=> \\//{print $3}' | while read -r library; do cp -L \"$library\" \"$1/\"; done; \
         cp -L \"$(ldd \"$tool\" | awk '/ld-linux/{print $1}')\" \"$1/loader\"",
    );
    shell.arg("take-along").arg(folder);
    run_program(TOOL, &shell)?.ok("collecting qemu-img").map(drop)
}
