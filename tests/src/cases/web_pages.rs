//! The web pages in headless Chromium, against a node of their own: `web/e2e/run.mjs` has the cases. Each page and each flow
//! that creates, changes or destroys; login over TLS; axe; keyboard; dark and narrow; a lost disk; load; 10,000 rows.

use std::time::Duration;

use super::Context;
use crate::guest::home;
use crate::node::{Node, Options};
use crate::process::{command, need, run as run_program};
use crate::{Outcome, Result, ensure};

/// All of them, at most: they take three minutes on two cores.
const LIMIT: Duration = Duration::from_secs(900);

pub(super) fn run(context: &Context) -> Result {
    need("node", "nodejs")?;
    need("chromium", "chromium")?;
    let web = home().join("../web");
    for (path, what) in [("dist/index.html", "pages"), ("node_modules/playwright-core", "driver of Chromium")]
    {
        if !web.join(path).exists() {
            return Err(Outcome::Skip(format!("no {what}: run make web")));
        }
    }
    let mut node = Node::start(&context.folder, Options::default())?;
    // A disk is lost, and a password is wrong, both on purpose.
    node.expect_log("is offline: ");
    node.expect_log("login refused");
    let mut cases = command("node");
    cases.arg(web.join("e2e/run.mjs")).args(["--socket", &node.told("api_socket")]);
    cases.arg("--disks").arg(&context.folder).arg("--work").arg(context.folder.join("pictures"));
    cases.args(["--url", &node.told("http_url"), "--user", &node.told("http_user")]);
    cases.args(["--password", &node.told("http_password")]);
    let lun = node.told("iscsi_url");
    let binary = node.binary().display();
    cases.arg("--load").arg(format!("{binary} spd --yes -d20 -W0 -w50 -r -b4K -o4 '{lun}'"));
    let said = run_program(LIMIT, &cases)?;
    let sum = said.output.lines().last().unwrap_or_default();
    crate::note!("     {sum}");
    ensure(said.status.success(), || format!("the pages:\n{}\n{}", said.output, said.errors))?;
    node.finish()
}
