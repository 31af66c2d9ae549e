//! The guide's pages that measure step by step: every command of them runs, one after the other, as its reader has them.
//!
//! What takes minutes there takes seconds here: runs are of one second, files of some megabytes, series short.

use std::path::PathBuf;
use std::time::Duration;

use super::Context;
use super::page::blocks;
use crate::guest::home;
use crate::node::{Node, Options};
use crate::process::{command, need, run as run_program, tail};
use crate::{Result, ensure};

/// A page, on a machine that does much else.
const PAGE: Duration = Duration::from_secs(240);
/// The pages, and how many blocks of commands they have at the least.
const PAGES: [(&str, usize); 2] = [("measuring-step-by-step.md", 10), ("measuring-a-share.md", 8)];

/// The node that pages speak of.
struct There {
    binary: PathBuf,
    socket: String,
    smb: String,
    iscsi: String,
    password: String,
    disks: String,
}

pub(super) fn run(context: &Context) -> Result {
    need("bash", "bash")?;
    let node = Node::start(&context.folder, Options::default())?;
    let there = &There {
        binary: node.binary().canonicalize()?,
        socket: node.told("api_socket"),
        smb: node.told("smb_address"),
        iscsi: node.ready().portal.clone(),
        password: node.told("smb_password"),
        disks: format!("{}/disks", node.data_dir().display()),
    };
    std::thread::scope(|scope| {
        let running = PAGES.map(|(name, least)| scope.spawn(move || page(context, there, name, least)));
        running.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err("a thread panicked".to_string().into()))
        })
    })?;
    node.finish()
}

fn page(context: &Context, there: &There, name: &str, least: usize) -> Result {
    let guide = home().join("../docs/guide").canonicalize()?;
    let text = std::fs::read_to_string(guide.join(name))?;
    let blocks = blocks(&text);
    ensure(blocks.len() >= least, || format!("{name}: only {} blocks of commands", blocks.len()))?;
    let folder = context.folder.canonicalize()?.join(name);
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin)?;
    std::os::unix::fs::symlink(&there.binary, bin.join("holdfast"))?;
    // The first command that fails ends it, and says where it stands.
    let mut script = String::from(
        "set -Eeuo pipefail\nexec 2>&1\ntrap 'echo \"commands that end in line $at failed\"' ERR\n",
    );
    for block in &blocks {
        script.push_str(&format!("at={}\n{}", block.line, shorter(&block.commands, there, name)));
    }
    let mut shell = command("bash");
    let path = std::env::var("PATH").unwrap_or_default();
    shell.arg("-c").arg(script).current_dir(&folder);
    shell.env("PATH", format!("{}:{path}", bin.display())).env("GUIDE", &guide).env("HOME", &folder);
    shell.env("HOLDFAST_SOCKET", &there.socket).env("password", &there.password);
    let said = run_program(PAGE, &shell)?;
    ensure(said.status.success(), || format!("{name}: {}\n{}", said.status, tail(&said.output, 25)))?;
    let pictures = picture_names(&text);
    pictures.iter().try_for_each(|picture| {
        ensure(guide.join(picture).is_file(), || format!("{name}: {picture} is not there"))
    })
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
            _ if number("-f") => "-f8M",
            _ => bare,
        };
        out.push_str(short);
        out.push_str(word.get(bare.len()..).unwrap_or_default());
        before = bare.to_owned();
    }
    out.replace("127.0.0.1:4450", &there.smb)
        .replace("127.0.0.1@4450", &there.smb.replace(':', "@"))
        .replace("127.0.0.1:3260", &there.iscsi)
        .replace("$PWD/holdfast-demo/disks", &there.disks)
        .replace("testfile.dat", &format!("{page}.dat"))
}

#[cfg(test)]
mod tests {
    use super::picture_names;

    #[test]
    fn pictures_of_a_page() {
        assert_eq!(picture_names("a ![b](c.svg)\n[d](e.md) ![f](g/h.svg)"), ["c.svg", "g/h.svg"]);
    }
}
