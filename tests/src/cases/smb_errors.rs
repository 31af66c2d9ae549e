//! What goes wrong is told rightly: the client gets the status that says what it was, and where somebody may have to act the
//! server's log has one line with the reason.

use std::time::Duration;

use super::Context;
use crate::guest::home;
use crate::node::{Node, Options};
use crate::process::{command, run as run_program};
use crate::{Outcome, Result, ensure};

/// All of the client's questions.
const LIMIT: Duration = Duration::from_secs(180);
/// A user who may read only, and one whose session is ended.
const READER: (&str, &str) = ("reader", "Secret-of-reader-1");

/// What the server's log says of each refusal that somebody may have to do something about: in how many lines, at least
/// and at most.
const LOGGED: [(&str, usize, usize); 6] = [
    ("SMB login refused", 2, 2),
    ("access to the share denied", 1, 1),
    ("SMB open refused", 1, 9),
    ("SMB write refused: no space", 1, 3),
    ("session has been ended", 0, 1),
    ("panicked", 0, 0),
];

pub(super) fn run(context: &Context) -> Result {
    let cache = super::smb_python::cache();
    if !cache.join("stamp").is_file() {
        return Err(Outcome::Skip("no Python clients: run tests/tools/prepare.sh".into()));
    }
    let mut node = Node::start(&context.folder, Options::default())?;
    let (name, password) = READER;
    let user = node.told("smb_user");
    node.cli_with(&["user", "create", name, "--password-stdin"], &format!("{password}\n"))?;
    node.cli(&["share", "create", "readonly", "--read-only", "--full", &user])?;
    node.cli(&["share", "create", "mine", "--full", &user])?;
    // A volume of its own that is soon full.
    let pool = node.ready().line.get("pool").and_then(|pool| pool.as_str()).unwrap_or("demo").to_string();
    node.cli(&["volume", "create", "tiny", "--pool", &pool, "--size", "1GiB"])?;
    node.cli(&["share", "create", "small", "--volume", "tiny", "--no-ca", "--full", &user])?;
    for text in ["SMB login refused", "access to the share denied", "SMB write refused", "no space", "full"] {
        node.expect_log(text);
    }
    let mut python = command(cache.join("venv/bin/python"));
    python.args(["-W", "ignore"]).arg(home().join("tools/smb_python/errors.py"));
    let address = node.told("smb_address");
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, "445"));
    python.args([host, port, &user, &node.told("smb_password"), name, password]);
    // The client has the server end one of its sessions.
    python.args([&node.told("api_socket"), &node.binary().display().to_string()]);
    let said = run_program(LIMIT, &python)?.ok("errors.py")?;
    print!("{}", said.lines().map(|line| format!("     {line}\n")).collect::<String>());
    let log = node.log()?;
    for (text, least, most) in LOGGED {
        let found = log.lines().filter(|line| line.contains(text)).count();
        ensure((least..=most).contains(&found), || {
            format!("{found} lines with {text:?} in the log:\n{log}")
        })?;
    }
    node.finish()
}
