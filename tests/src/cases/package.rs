//! The Debian package, as an administrator handles it: on a root of its own (this machine's, with an overlay) it is installed, serves a
//! pool, is upgraded, removed and purged. `tests/tools/package.sh` says what has to hold.

use std::path::Path;
use std::time::Duration;

use super::Context;
use crate::node::binary;
use crate::process::{command, need, need_root, run as run_program};
use crate::{Outcome, Result, ensure};

const PACKING: Duration = Duration::from_secs(180);
const HANDLING: Duration = Duration::from_secs(300);

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need_root("it mounts a root of its own")?;
    need("dpkg-deb", "dpkg")?;
    need("unshare", "util-linux")?;
    need("systemd-analyze", "systemd")?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut packages = Vec::new();
    // A file is its version: the later one is the same program under another number.
    for version in ["0.0.1", "0.0.2"] {
        let mut pack = command(here.join("../packaging/deb.sh"));
        let packed = run_program(PACKING, pack.arg(binary()?).arg(&context.folder).arg(version))?;
        packages.push(packed.ok("deb.sh")?.trim().to_owned());
    }
    let mut handle = command("unshare");
    handle.args(["--mount", "--pid", "--fork", "--kill-child"]).arg(here.join("tools/package.sh"));
    let handled = run_program(HANDLING, handle.arg(context.folder.join("root")).args(&packages))?;
    let told = handled.ok("package.sh")?;
    ensure(told.lines().all(|line| line.starts_with("holds: ")), || told.to_owned())
}
