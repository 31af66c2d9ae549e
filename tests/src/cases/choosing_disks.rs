//! The guide's page on choosing disks, word by word: each command of it is run, and says what the page says it does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Context;
use super::page::{Block, blocks};
use crate::guest::home;
use crate::process::{Deadline, Running, command, need, run as run_program, tail};
use crate::{Outcome, Result, ensure};

/// Where the page has its disks.
const PAGE_FOLDER: &str = "/srv/shelves";
/// One block of commands.
const BLOCK: Duration = Duration::from_secs(180);
/// From start to the first answer.
const READY: Duration = Duration::from_secs(60);
/// From SIGTERM to the end.
const STOP: Duration = Duration::from_secs(30);

pub(super) fn run(context: &Context) -> Result {
    need("bash", "bash")?;
    need("curl", "curl")?;
    need("jq", "jq")?;
    let binary = std::env::var_os("HOLDFAST_BIN")
        .map(PathBuf::from)
        .ok_or_else(|| Outcome::Skip("HOLDFAST_BIN does not say where the binary is".into()))?;
    let page = std::fs::read_to_string(home().join("../docs/guide/choosing-disks.md"))?;
    let blocks = blocks(&page);
    ensure(blocks.len() > 10, || format!("only {} blocks of commands are in the page", blocks.len()))?;

    std::fs::create_dir_all(&context.folder)?;
    let folder = context.folder.canonicalize()?;
    let (shelves, data) = (folder.join("shelves"), folder.join("data"));
    std::fs::create_dir_all(&shelves)?;
    let log = folder.join("holdfast.log");
    let mut start = command(&binary);
    start.arg("serve").arg("--data-dir").arg(&data);
    let mut node = Running::start("holdfast", start, &log)?;
    Deadline::after(READY).poll("a node that answers", || {
        let answer = run_program(READY, command(&binary).arg("status").arg("--node").arg(&data))?;
        Ok(answer.status.success().then_some(()))
    })?;

    for block in &blocks {
        one(block, &binary, &data, &shelves)?;
    }

    node.signal("TERM")?;
    let status = node.wait(Deadline::after(STOP))?;
    ensure(status.success(), || format!("holdfast ended with {status} after SIGTERM"))?;
    let log = std::fs::read_to_string(log)?;
    let complaints = log.lines().filter(|line| line.contains(" WARN ") || line.contains(" ERROR "));
    let complaints: Vec<&str> = complaints.collect();
    ensure(complaints.is_empty(), || tail(&complaints.join("\n"), 12))
}

fn one(block: &Block, binary: &Path, data: &Path, shelves: &Path) -> Result {
    let here = shelves.to_string_lossy();
    // The page's reader has `holdfast` in the path, and a node where it looks for one.
    let script = format!(
        "exec 2>&1\nholdfast() {{ {:?} \"$@\"; }}\nset -o pipefail\n{}",
        binary.to_string_lossy(),
        block.commands.replace(PAGE_FOLDER, &here).replace("/run/holdfast/", &format!("{}/", data.display()))
    );
    let mut shell = command("bash");
    shell.arg("-c").arg(script).env("HOLDFAST_SOCKET", data);
    let finished = run_program(BLOCK, &shell)?;
    let said = finished.output.replace(&*here, PAGE_FOLDER);
    let wanted = block.said.as_deref().unwrap_or_default();
    // What the page shows as refused has to be refused.
    let code = match wanted.lines().last().unwrap_or_default() {
        _ if wanted.contains("holdfast: ") => 1,
        _ if wanted.contains("error: ") => 2,
        _ => 0,
    };
    let at = format!("docs/guide/choosing-disks.md, the commands that end in line {}", block.line);
    ensure(finished.status.code() == Some(code), || {
        format!("{at}: {} where {code} was expected:\n{}", finished.status, tail(&said, 12))
    })?;
    ensure(block.said.is_none() || agree(wanted, &said), || {
        format!("{at}: the page says\n{wanted}\nand the program\n{said}")
    })
}

/// Whether what was said is what the page has. Tables are as wide as the names of the disks, so that blanks count as
/// one; a line with nothing but dots stands for any lines.
fn agree(page: &str, said: &str) -> bool {
    let plain = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        lines.filter(|line| !line.is_empty()).collect()
    };
    let (page, said) = (plain(page), plain(said));
    let mut rest = said.as_slice();
    let mut pieces = page.split(|line| line == "...").peekable();
    let mut first = true;
    while let Some(piece) = pieces.next() {
        let last = pieces.peek().is_none();
        let fits = |at: usize| rest.get(at..at + piece.len()) == Some(piece);
        let found = match (first, last) {
            (true, true) => return rest == piece,
            (true, false) => fits(0).then_some(0),
            (false, true) => rest.len().checked_sub(piece.len()).filter(|at| fits(*at)),
            (false, false) => (0..=rest.len()).find(|at| fits(*at)),
        };
        let Some(found) = found else { return false };
        rest = rest.get(found + piece.len()..).unwrap_or_default();
        first = false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::agree;

    #[test]
    fn dots_stand_for_any_lines() {
        assert!(agree("a  b\nc\n", "a b\n\n  c\n"));
        assert!(!agree("a\n", "a\nb\n") && !agree("a\nb\n", "a\n"));
        assert!(agree("a\n...\nz\n", "a\nz\n") && agree("a\n...\nz\n", "a\nb\nc\nz\n"));
        assert!(!agree("a\n...\nz\n", "b\nz\n") && !agree("a\n...\nz\n", "a\nz\ny\n"));
        assert!(agree("...\nm\n...\n", "a\nm\nz\n") && !agree("...\nm\n...\n", "a\nz\n"));
    }
}
