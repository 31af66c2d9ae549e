//! The guide's pages on measuring: every command of them runs, one after the other, as its reader has them.
//!
//! What takes minutes there takes seconds here: runs are of one second, files of some megabytes, series short.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Context;
use super::page::{Block, blocks};
use crate::guest::home;
use crate::node::{Node, Options};
use crate::process::{command, need, run as run_program, tail};
use crate::{Result, ensure};

/// A page, on a machine that does much else.
const PAGE: Duration = Duration::from_secs(240);
/// The pages that go step by step, and how many blocks of commands they have at the least.
const PAGES: [(&str, usize); 2] = [("measuring-step-by-step.md", 10), ("measuring-a-share.md", 8)];
/// The page that has everything.
const REFERENCE: (&str, usize) = ("measuring.md", 12);
/// A trace as fio writes it.
const TRACE: &str = "fio version 2 iolog\n/dev/x add\n/dev/x open\n/dev/x write 0 4096\n/dev/x read 8192 4096\n\
                     /dev/x write 65536 8192\n/dev/x close\n";
/// What `holdfast spd agent` is on three machines, here on one, beside what comes next.
const AGENTS: &str = "agents=
for number in 1 2 3; do
    holdfast spd agent --listen 127.0.0.1:0 > agent$number.txt 2>&1 &
    until grep -q listening agent$number.txt; do kill -0 $!; sleep 0.1; done
    agents=$agents,$(sed -n 's/^agent listening on //p' agent$number.txt)
done ";

/// The node that pages speak of.
struct There {
    binary: PathBuf,
    guide: PathBuf,
    socket: String,
    password: String,
    /// What pages call it, and what it is called here.
    names: Vec<(&'static str, String)>,
}

impl There {
    fn of(node: &Node) -> Result<Self> {
        let (smb, iscsi) = (node.told("smb_address"), &node.ready().portal);
        let data = node.data_dir().canonicalize()?;
        let names = vec![
            ("127.0.0.1:4450", smb.clone()),
            ("127.0.0.1@4450", smb.replace(':', "@")),
            ("127.0.0.1:3260", iscsi.clone()),
            ("127.0.0.1/iqn", format!("{iscsi}/iqn")),
            ("@server/iqn", format!("@{iscsi}/iqn")),
            ("@server/vmstore", format!("@{smb}/vmstore")),
            ("$PWD/holdfast-demo/disks", format!("{}/disks", data.display())),
            ("--data holdfast-demo", format!("--data {}", data.display())),
        ];
        Ok(Self {
            binary: node.binary().canonicalize()?,
            guide: home().join("../docs/guide").canonicalize()?,
            socket: node.told("api_socket"),
            password: node.told("smb_password"),
            names,
        })
    }
}

/// The pages that go step by step.
pub(super) fn run(context: &Context) -> Result {
    need("bash", "bash")?;
    let node = Node::start(&context.folder, Options::default())?;
    let there = &There::of(&node)?;
    std::thread::scope(|scope| {
        let running = PAGES.map(|page| {
            scope.spawn(move || {
                let folder = folder_of(context, page.0)?;
                carry_out(there, page.0, &folder, &commands_of(there, page)?)
            })
        });
        running.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err("a thread panicked".to_string().into()))
        })
    })?;
    node.finish()
}

/// The reference. It asks for a file of a volume whose node does not run, too.
pub(super) fn reference(context: &Context) -> Result {
    need("bash", "bash")?;
    let mut node = Node::start(&context.folder, Options::default())?;
    let mut there = There::of(&node)?;
    let folder = folder_of(context, REFERENCE.0)?;
    let drive = folder.join("x");
    std::fs::create_dir(&drive)?;
    std::fs::write(folder.join("io.log"), TRACE)?;
    std::fs::write(folder.join("secret"), "5ec4e7".repeat(8))?;
    there.names.extend([
        ("/mnt/x", drive.to_string_lossy().into_owned()),
        ("holdfast spd agent  ", AGENTS.to_owned()),
        ("10.99.0.11,10.99.0.12,10.99.0.13", "${agents#,}".to_owned()),
    ]);
    let (without_node, with_node): (Vec<_>, Vec<_>) =
        commands_of(&there, REFERENCE)?.into_iter().partition(|block| block.commands.contains("holdfast://"));
    ensure(!without_node.is_empty(), || format!("{}: no file of a volume without its node", REFERENCE.0))?;
    carry_out(&there, REFERENCE.0, &folder, &with_node)?;
    node.stop()?;
    carry_out(&there, REFERENCE.0, &folder, &without_node)?;
    node.finish()
}

/// A page's blocks of commands. Its pictures are there, too.
fn commands_of(there: &There, (name, least): (&str, usize)) -> Result<Vec<Block>> {
    let text = std::fs::read_to_string(there.guide.join(name))?;
    let blocks = blocks(&text);
    ensure(blocks.len() >= least, || format!("{name}: only {} blocks of commands", blocks.len()))?;
    picture_names(&text).iter().try_for_each(|picture| {
        ensure(there.guide.join(picture).is_file(), || format!("{name}: {picture} is not there"))
    })?;
    Ok(blocks)
}

/// Where a page's reader is.
fn folder_of(context: &Context, name: &str) -> Result<PathBuf> {
    let folder = context.folder.canonicalize()?.join(name);
    std::fs::create_dir_all(folder.join("bin"))?;
    Ok(folder)
}

fn carry_out(there: &There, name: &str, folder: &Path, blocks: &[Block]) -> Result {
    let bin = folder.join("bin");
    if !bin.join("holdfast").exists() {
        std::os::unix::fs::symlink(&there.binary, bin.join("holdfast"))?;
    }
    // The first command that fails ends it, and says where it stands. What was left in the background ends with it.
    let mut script = String::from(
        "set -Eeuo pipefail\nexec 2>&1\ntrap 'echo \"commands that end in line $at failed\"' ERR\n\
         trap 'kill $(jobs -p) 2>/dev/null || :' EXIT\n",
    );
    for block in blocks {
        script.push_str(&format!("at={}\n{}", block.line, shorter(&block.commands, there, name)));
    }
    let mut shell = command("bash");
    let path = std::env::var("PATH").unwrap_or_default();
    shell.arg("-c").arg(script).current_dir(folder);
    shell.env("PATH", format!("{}:{path}", bin.display())).env("GUIDE", &there.guide).env("HOME", folder);
    shell.env("HOLDFAST_SOCKET", &there.socket).env("password", &there.password);
    // What a reader would be asked for.
    shell.env("HOLDFAST_SPD_YES", "1").env("HOLDFAST_SPD_PASSWORD", &there.password);
    let said = run_program(PAGE, &shell)?;
    ensure(said.status.success(), || format!("{name}: {}\n{}", said.status, tail(&said.output, 25)))
}

/// Files of `![…](file)` in a page.
fn picture_names(text: &str) -> Vec<String> {
    let names = text.split("![").skip(1).filter_map(|rest| rest.split_once("](")?.1.split_once(')'));
    names.map(|(name, _)| name.to_owned()).collect()
}

/// The same commands with little to do, and on this node. Pages run side by side: names of shares' files are their own.
fn shorter(commands: &str, there: &There, page: &str) -> String {
    let (mut out, mut before) = (String::new(), String::new());
    for word in commands.split_inclusive([' ', '\n']) {
        let bare = word.trim_end();
        let number = |prefix: &str| {
            bare.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        let short = match before.as_str() {
            "--depths" => "1,2",
            "--runs" | "--samples" => "1",
            _ if before.ends_with("runs.sh") || before.ends_with("threads.sh") => "2",
            // The second of two numbers: where the depths end.
            "1" if bare.parse::<u32>().is_ok() => "2",
            _ if number("-d") => "-d1",
            _ if number("-s") => "-s1",
            _ if number("-W") => "-W0",
            _ if number("-c") => "-c8M",
            // A field of `cut` has no unit.
            _ if number("-f") && bare.ends_with(char::is_alphabetic) => "-f8M",
            _ => bare,
        };
        out.push_str(short);
        out.push_str(word.get(bare.len()..).unwrap_or_default());
        before = bare.to_owned();
    }
    // Five seconds of warm-up, where a command says nothing of it.
    let warm =
        |line: &str| if line.contains(" -W") { line.to_owned() } else { line.replace(" -d1 ", " -d1 -W0 ") };
    let mut out: String = out.split_inclusive('\n').map(warm).collect();
    for (name, here) in &there.names {
        out = out.replace(name, here);
    }
    out.replace("testfile.dat", &format!("{page}.dat"))
}

#[cfg(test)]
mod tests {
    use super::picture_names;

    #[test]
    fn pictures_of_a_page() {
        assert_eq!(picture_names("a ![b](c.svg)\n[d](e.md) ![f](g/h.svg)"), ["c.svg", "g/h.svg"]);
    }
}
