//! The disk in an image on a share is a LUN: written over iSCSI, cut off by kill -9, and then read by QEMU from the file.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Context;
use super::restart::qemu_io;
use crate::node::{Node, Options};
use crate::process::{Running, command, need, run as run_program};
use crate::{Result, ensure};

const TOOL: Duration = Duration::from_secs(120);

struct Rig {
    node: Node,
    folder: PathBuf,
}

impl Rig {
    /// A program on files of this machine.
    fn tool(&self, program: &Path, line: &str) -> Result<String> {
        let mut tool = command(program);
        tool.args(line.split(' ')).current_dir(&self.folder);
        run_program(TOOL, &tool)?.ok(&format!("{} {line}", program.display()))
    }

    fn image(&self, line: &str) -> Result<String> {
        self.tool(self.node.binary(), &format!("disk-image {line}"))
    }

    /// An image on the share, as the API names it.
    fn place(&self, name: &str) -> String {
        format!("{}:/shares/{}/{name}", self.node.told("volume"), self.node.told("smb_share"))
    }

    fn put(&self, name: &str) -> Result {
        let from = self.folder.join(name);
        self.node.smbclient(&format!("put {} {name}", from.display()))?.ok("smbclient put").map(drop)
    }

    fn serve(&self, lun: &str, image: &str, number: &str) -> Result<String> {
        let place = self.place(image);
        self.node
            .cli(&["lun", "create", lun, "--image", &place, "--group", "everyone", "--number", number])?;
        Ok(format!("{}/{number}", self.node.ready().url.rsplit_once('/').map_or("", |(head, _)| head)))
    }

    /// What a client of the share is told.
    fn share_says(&self, commands: &str) -> Result<String> {
        let said = self.node.smbclient(commands)?;
        Ok(format!("{}{}", said.output, said.errors))
    }
}

pub(super) fn run(context: &Context) -> Result {
    need("qemu-img", "qemu-utils")?;
    need("qemu-io", "qemu-utils")?;
    need("smbclient", "smbclient")?;
    std::fs::create_dir_all(context.folder.join("images"))?;
    let node = Node::start(&context.folder, Options::default())?;
    let mut rig = Rig { node, folder: context.folder.join("images").canonicalize()? };
    // One of QEMU's, and a child of ours over a parent with content.
    let qemu = Path::new("qemu-img");
    rig.tool(qemu, "create -q -f vhdx -o subformat=dynamic,block_size=1M theirs.vhdx 256M")?;
    rig.tool(qemu, "create -q -f raw golden.raw 256M")?;
    let mut fill = command("qemu-io");
    fill.args(["-f", "raw", "-c", "write -P 0x61 0 8M", "golden.raw"]).current_dir(&rig.folder);
    run_program(TOOL, &fill)?.ok("qemu-io")?;
    rig.image("convert golden.raw golden.vhdx")?;
    rig.image("create child.vhdx --parent golden.vhdx")?;
    for name in ["theirs.vhdx", "golden.vhdx", "child.vhdx"] {
        rig.put(name)?;
    }
    let theirs = rig.serve("theirs", "theirs.vhdx", "8")?;
    let child = rig.serve("child", "child.vhdx", "9")?;
    kept_from_others(&rig)?;

    qemu_io(&theirs, &["write -f -P 0x11 0 4M", "write -P 0x12 100M 3M", "flush"])?;
    qemu_io(&child, &["read -P 0x61 0 8M", "write -f -P 0x21 4M 64k", "write -z 6M 1M", "flush"])?;
    let size = rig.node.json(&["lun", "show", "theirs"]).or_else(|_| rig.node.json(&["lun", "list"]))?;
    ensure(size.to_string().contains("268435456"), || format!("the size of the disk is not told: {size}"))?;
    // Load that is cut off by kill -9, on both.
    let load = |url: &str, name: &str| {
        let mut load = command("qemu-io");
        load.args(["-f", "raw", "-c", "write -P 0x33 128M 64M", url]);
        Running::start(name, load, &context.folder.join(name))
    };
    let loads = (load(&theirs, "load-1.log")?, load(&child, "load-2.log")?);
    rig.node.crash_and_restart()?;
    drop(loads);
    let of_theirs = ["read -P 0x11 0 4M", "read -P 0x12 100M 3M", "read -P 0 50M 1M"];
    let of_child = [
        "read -P 0x61 0 4M",
        "read -P 0x21 4M 64k",
        "read -P 0 6M 1M",
        "read -P 0x61 7M 1M",
        "read -P 0 9M 1M",
    ];
    qemu_io(&theirs, &of_theirs)?;
    qemu_io(&child, &of_child)?;
    rig.node.cli(&["lun", "resize", "theirs", "300MiB"])?;
    qemu_io(&theirs, &["read -P 0 299M 1M", "write -f -P 0x44 299M 1M"])?;

    quiesced(&rig, &theirs)?;
    many_from_one(&rig)?;

    // The files are images as any other, and have no log that waits.
    for lun in ["theirs", "child"] {
        rig.node.cli(&["lun", "delete", lun, "--keep-file"])?;
    }
    for name in ["theirs.vhdx", "child.vhdx"] {
        std::fs::remove_file(rig.folder.join(name))?;
        let to = rig.folder.join(name);
        rig.node.smbclient(&format!("get {name} {}", to.display()))?.ok("smbclient get")?;
        rig.image(&format!("check {name}"))?;
        rig.image(&format!("convert {name} {name}.raw"))?;
    }
    rig.tool(qemu, "check -q -f vhdx theirs.vhdx")?;
    rig.tool(qemu, "compare -q -f vhdx -F raw theirs.vhdx theirs.vhdx.raw")?;
    let verify =
        |file: &str, commands: &[&str]| qemu_io(&rig.folder.join(file).display().to_string(), commands);
    verify("theirs.vhdx.raw", &of_theirs)?;
    verify("theirs.vhdx.raw", &["read -P 0x44 299M 1M"])?;
    verify("child.vhdx.raw", &of_child)?;
    parents_are_kept(&mut rig)?;
    rig.image("merge child.vhdx --into golden.vhdx --yes")?;
    rig.tool(qemu, "check -q -f vhdx golden.vhdx")?;
    rig.tool(qemu, "compare -q -f vhdx -F raw golden.vhdx child.vhdx.raw")?;
    rig.node.finish()
}

/// The image in a quiesced snapshot has what was written before, and no log that a program which only reads it would have to replay;
/// also while somebody writes.
fn quiesced(rig: &Rig, url: &str) -> Result {
    qemu_io(url, &["write -P 0x55 40M 2M", "flush"])?;
    let mut load = command("qemu-io");
    load.args(["-f", "raw"]);
    for round in 0..40 {
        load.args(["-c", &format!("write -P {} {}M 1M", 0x60 + round, 200 + round)]);
    }
    load.arg(url);
    let load = Running::start("load", load, &rig.folder.join("load-quiesced.log"))?;
    let volume = rig.node.told("volume");
    for name in ["quiet-1", "quiet-2"] {
        rig.node.cli(&["snapshot", "create", &rig.place("theirs.vhdx"), name, "--quiesce"])?;
    }
    drop(load);
    for name in ["quiet-1", "quiet-2"] {
        let file = format!("{name}.vhdx");
        let to = rig.folder.join(&file);
        rig.node.cli(&["file", "get", &format!("{volume}:@{name}"), &to.to_string_lossy()])?;
        rig.image(&format!("check {file}"))?;
        // It opens none whose log counts.
        rig.tool(Path::new("qemu-img"), &format!("check -q -f vhdx {file}"))?;
        rig.image(&format!("convert {file} {file}.raw"))?;
        let raw = rig.folder.join(format!("{file}.raw")).display().to_string();
        qemu_io(&raw, &["read -P 0x11 0 4M", "read -P 0x55 40M 2M", "read -P 0x44 299M 1M"])?;
    }
    Ok(())
}

/// No child is open any more, and the node has been killed since one was: what they need is there nevertheless.
fn parents_are_kept(rig: &mut Rig) -> Result {
    rig.node.cli(&["lun", "delete", "desk", "--keep-file"])?;
    for restarted in [false, true] {
        for does in ["del golden.vhdx", "rename golden.vhdx other.vhdx"] {
            let said = rig.share_says(does)?;
            ensure(said.contains("NT_STATUS_SHARING_VIOLATION"), || format!("{does}: {said}"))?;
        }
        let golden = rig.place("golden.vhdx");
        for refused in [
            rig.node.cli(&["file", "rm", &golden, "--yes"]),
            rig.node.cli(&["lun", "create", "wrong", "--image", &golden]),
        ] {
            let told = format!("{refused:?}");
            let says = refused.is_err() && told.contains("golden.vhdx is the parent of ");
            ensure(says, || format!("restarted: {restarted}: {told}"))?;
        }
        if !restarted {
            rig.node.crash_and_restart()?;
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "how long it took is noted")]
fn now() -> Instant {
    Instant::now()
}

/// Clones and children of an image: each a disk of its own, and one of them a LUN.
fn many_from_one(rig: &Rig) -> Result {
    let golden = rig.place("golden.vhdx");
    let provision =
        |more: &[&str]| rig.node.json(&[&["file", "provision", "--from", &golden, "--name"], more].concat());
    let begun = now();
    let clones = provision(&["desk-{001..}.vhdx", "--count", "20"])?;
    let cloned = begun.elapsed();
    provision(&["child-{1..20}.vhdx", "--differencing"])?;
    crate::note!(
        "     20 clones in {} ms, 20 children in {} ms",
        cloned.as_millis(),
        (begun.elapsed() - cloned).as_millis()
    );
    ensure(clones["paths"].as_array().map(Vec::len) == Some(20), || clones.to_string())?;
    ensure(provision(&["desk-{020..021}.vhdx"]).is_err(), || "a name that is taken was made again".into())?;
    let said = rig.share_says("ls desk-021.vhdx")?;
    ensure(said.contains("NT_STATUS_NO_SUCH_FILE"), || said.clone())?;
    let mut ids = std::collections::BTreeSet::new();
    for name in ["golden.vhdx", "desk-001.vhdx", "desk-020.vhdx", "child-7.vhdx"] {
        let to = rig.folder.join(name);
        rig.node.smbclient(&format!("get {name} {}", to.display()))?.ok("smbclient get")?;
        rig.image(&format!("check {name}"))?;
        let info: serde_json::Value = serde_json::from_str(&rig.image(&format!("info {name} --json"))?)
            .map_err(|error| error.to_string())?;
        for id in ["disk_id", "data_write_guid"] {
            let told = info[id].as_str().unwrap_or_default().to_owned();
            ensure(told.len() == 36 && ids.insert(told), || {
                format!("{name} has no {id} of its own: {info}")
            })?;
        }
    }
    rig.tool(Path::new("qemu-img"), "compare -q -f vhdx -F vhdx golden.vhdx desk-001.vhdx")?;
    rig.tool(Path::new("qemu-img"), "check -q -f vhdx desk-020.vhdx")?;
    let desk = rig.serve("desk", "child-7.vhdx", "10")?;
    qemu_io(&desk, &["read -P 0x61 0 8M", "write -f -P 0x71 1M 64k", "read -P 0x71 1M 64k"])
}

/// Neither the image of a LUN nor its parent is somebody else's to change, and what is no image is refused.
fn kept_from_others(rig: &Rig) -> Result {
    let golden = rig.folder.join("golden.vhdx");
    for (does, is_refused) in [
        ("get child.vhdx /dev/null".to_owned(), true),
        ("del child.vhdx".to_owned(), true),
        ("rename child.vhdx other.vhdx".to_owned(), true),
        (format!("put {} child.vhdx", golden.display()), true),
        (format!("put {} golden.vhdx", golden.display()), true),
        ("get golden.vhdx /dev/null".to_owned(), false),
        ("ls child.vhdx".to_owned(), false),
    ] {
        let said = rig.share_says(&does)?;
        ensure(said.contains("NT_STATUS_SHARING_VIOLATION") == is_refused, || format!("{does}: {said}"))?;
    }
    let place = rig.place("golden.vhdx");
    let refused = rig.node.cli(&["lun", "create", "wrong", "--image", &place]);
    ensure(refused.is_err(), || "a parent of an image that is written became a LUN".into())?;
    std::fs::write(rig.folder.join("wrong.vhdx"), vec![7; 1 << 20])?;
    rig.put("wrong.vhdx")?;
    let refused = rig.node.cli(&["lun", "create", "wrong", "--image", &rig.place("wrong.vhdx")]);
    match refused {
        Err(error) => {
            let told = format!("{error:?}");
            ensure(told.contains("no VHDX file"), || told)
        }
        Ok(told) => Err(format!("what is no image became a LUN: {told}").into()),
    }
}
