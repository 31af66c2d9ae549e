//! VHDX images between us, QEMU and libvhdi: what one writes the others read, of each type, size and kind of block.
//!
//! Logs that wait to be replayed are in `crates/image/vhdx/src/tests/qemu.rs`: no program leaves one when it is asked to.

mod merges;

use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::Context;
use crate::process::{Finished, command, need, run as run_program};
use crate::{Outcome, Result, ensure};

/// One program.
const TOOL: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;

struct Rig {
    binary: PathBuf,
    folder: PathBuf,
}

impl Rig {
    fn run(&self, program: &Path, line: &str) -> Result<Finished> {
        let mut command = command(program);
        command.args(line.split(' ')).current_dir(&self.folder);
        run_program(TOOL, &command)
    }

    fn ours(&self, line: &str) -> Result<Finished> {
        self.run(&self.binary, &format!("disk-image {line}"))
    }

    fn ok(&self, line: &str) -> Result<String> {
        self.ours(line)?.ok(line)
    }

    /// It is refused, with a word that says why.
    fn refused(&self, line: &str, word: &str) -> Result {
        let refused = self.ours(line)?;
        let said = refused.output + &refused.errors;
        ensure(refused.status.code() == Some(1) && said.contains(word), || format!("{line}: {said}"))
    }

    fn json(&self, line: &str) -> Result<Value> {
        let said = self.ok(&format!("{line} --json"))?;
        serde_json::from_str(&said).map_err(|error| format!("{line}: {error}: {said}").into())
    }

    fn qemu(&self, line: &str) -> Result<String> {
        self.run(Path::new("qemu-img"), line)?.ok(&format!("qemu-img {line}"))
    }

    fn qemu_io(&self, line: &str) -> Result<Finished> {
        let mut command = command("qemu-io");
        let (options, words) = line.split_once(" | ").unwrap_or((line, ""));
        command.args(options.split(' '));
        for word in words.split("; ").filter(|word| !word.is_empty()) {
            command.args(["-c", word]);
        }
        command.current_dir(&self.folder);
        run_program(TOOL, &command)
    }

    /// A raw disk with content here and there.
    fn raw(&self, name: &str, size: u64) -> Result {
        let mut file = std::fs::File::create(self.folder.join(name))?;
        file.set_len(size)?;
        let spots = [0, 65536 + 512, MIB - 512, 3 * MIB + 4096, size / 2, size - 1024];
        for (number, at) in spots.into_iter().enumerate().filter(|(_, at)| at + 1024 <= size) {
            file.seek(SeekFrom::Start(at))?;
            let word = format!("{name} {number} at {at};");
            let content: Vec<u8> = word.bytes().cycle().take(1024).collect();
            file.write_all(&content)?;
        }
        Ok(())
    }

    /// The image is sound, and holds what the raw one does.
    fn holds(&self, image: &str, raw: &str) -> Result {
        let checked = self.json(&format!("check {image}"))?;
        ensure(checked["sound"] == true, || format!("{image}: {checked}"))?;
        self.ok(&format!("convert {image} back.raw --replace"))?;
        let same = same(&self.folder.join("back.raw"), &self.folder.join(raw))?;
        ensure(same, || format!("{image} became another raw disk than {raw}"))
    }

    /// QEMU says the same.
    fn agree(&self, image: &str, raw: &str) -> Result {
        self.holds(image, raw)?;
        self.qemu(&format!("check -q -f vhdx {image}"))?;
        self.qemu(&format!("compare -q -f raw -F vhdx {raw} {image}")).map(drop)
    }
}

/// Whether two raw disks have the same bytes. By a program that passes over holes: 100 GiB read byte by byte take minutes.
fn same(a: &Path, b: &Path) -> Result<bool> {
    let mut compare = command("qemu-img");
    compare.args(["compare", "-q", "-f", "raw", "-F", "raw"]).arg(a).arg(b);
    let done = run_program(TOOL, &compare)?;
    match done.status.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => done.ok("qemu-img compare").map(|_| false),
    }
}

pub(super) fn run(context: &Context) -> Result {
    need("qemu-img", "qemu-utils")?;
    need("qemu-io", "qemu-utils")?;
    need("vhdiinfo", "libvhdi-utils")?;
    let binary = std::env::var_os("HOLDFAST_BIN")
        .ok_or_else(|| Outcome::Skip("HOLDFAST_BIN does not say where the binary is".into()))?;
    std::fs::create_dir_all(&context.folder)?;
    let rig = Rig { binary: Path::new(&binary).canonicalize()?, folder: context.folder.canonicalize()? };
    let ours = ours_are_read(&rig, context.full)?;
    let theirs = theirs_are_read(&rig, context.full)?;
    other_sizes(&rig)?;
    children_have_their_parents(&rig)?;
    merges::run(&rig)?;
    refusals(&rig)?;
    other_formats(&rig)?;
    qemu_is_kept_out_and_keeps_out(&rig)?;
    interrupted(&rig)?;
    nothing_takes_no_time(&rig)?;
    crate::note!("     {ours} images of ours and {theirs} of QEMU's read by each other");
    Ok(())
}

/// Sizes of disks: small, with a last block that is not whole, large.
fn sizes(full: bool) -> Vec<u64> {
    if full { vec![MIB, 70 * MIB + 512 * 7, 3 << 30, 100 << 30] } else { vec![MIB, 70 * MIB + 512 * 7] }
}

fn ours_are_read(rig: &Rig, full: bool) -> Result<u32> {
    let mut count = 0;
    for size in sizes(full) {
        rig.raw("source.raw", size)?;
        for (kind, block) in
            [("dynamic", "1M"), ("dynamic", "32M"), ("dynamic", "256M"), ("fixed", "2M"), ("fixed", "32M")]
        {
            if kind == "fixed" && size > 100 * MIB {
                continue;
            }
            let image = "ours.vhdx";
            rig.ok(&format!("convert source.raw {image} --type {kind} --block-size {block} --replace"))?;
            rig.agree(image, "source.raw")?;
            let told: Value =
                serde_json::from_str(&rig.qemu(&format!("info --output=json -f vhdx {image}"))?)
                    .map_err(|error| error.to_string())?;
            ensure(told["virtual-size"] == size, || format!("qemu-img info: {told}"))?;
            let told = rig.run(Path::new("vhdiinfo"), image)?.ok("vhdiinfo")?;
            let wanted = if kind == "fixed" { "Fixed" } else { "Dynamic" };
            ensure(
                told.contains(&format!("Disk type\t\t: {wanted}"))
                    && told.contains(&format!("({size} bytes)")),
                || told,
            )?;
            count += 1;
        }
    }
    // Sectors of 4096 bytes, which QEMU does not read.
    rig.raw("source.raw", 40 * MIB)?;
    rig.ok("convert source.raw 4k.vhdx --logical-sector 4096")?;
    rig.holds("4k.vhdx", "source.raw")?;
    // A source that ends within such a sector.
    rig.raw("odd.raw", 5 * MIB + 512)?;
    rig.ok("convert odd.raw odd.vhdx --logical-sector 4096")?;
    std::fs::OpenOptions::new().write(true).open(rig.folder.join("odd.raw"))?.set_len(5 * MIB + 4096)?;
    rig.holds("odd.vhdx", "odd.raw")?;
    let told = rig.run(Path::new("vhdiinfo"), "4k.vhdx")?.ok("vhdiinfo")?;
    ensure(told.contains("4096 bytes"), || told)?;
    Ok(count + 1)
}

fn theirs_are_read(rig: &Rig, full: bool) -> Result<u32> {
    let mut count = 0;
    for size in sizes(full) {
        rig.raw("source.raw", size)?;
        for options in [
            "subformat=dynamic,block_size=1M",
            "subformat=dynamic,block_size=32M,log_size=4M",
            "subformat=dynamic,block_size=256M,block_state_zero=off",
            "subformat=fixed,block_size=2M",
        ] {
            if options.contains("fixed") && size > 100 * MIB {
                continue;
            }
            let image = "theirs.vhdx";
            rig.qemu(&format!("convert -q -f raw -O vhdx -o {options} source.raw {image}"))?;
            rig.agree(image, "source.raw")?;
            let told = rig.json(&format!("info {image}"))?;
            let fixed = if options.contains("fixed") { "fixed" } else { "dynamic" };
            ensure(told["type"] == fixed && told["disk_bytes"] == size, || told.to_string())?;
            count += 1;
        }
    }
    Ok(count)
}

fn other_sizes(rig: &Rig) -> Result {
    rig.raw("source.raw", 70 * MIB)?;
    for kind in ["dynamic", "fixed"] {
        rig.ok(&format!("convert source.raw size.vhdx --type {kind} --block-size 2M --replace"))?;
        let before = std::fs::metadata(rig.folder.join("size.vhdx"))?.len();
        // The table moves: one of 1 MiB has room for 256 GiB in blocks of 2 MiB.
        let sizes = if kind == "dynamic" { ["400G", "90M", "71M"] } else { ["90M", "80M", "71M"] };
        for size in sizes {
            rig.ok(&format!("resize size.vhdx {size} --shrink --yes"))?;
            rig.qemu("check -q -f vhdx size.vhdx")?;
        }
        std::fs::copy(rig.folder.join("source.raw"), rig.folder.join("larger.raw"))?;
        std::fs::OpenOptions::new().write(true).open(rig.folder.join("larger.raw"))?.set_len(71 * MIB)?;
        rig.agree("size.vhdx", "larger.raw")?;
        // 35 blocks before, 36 now: what was more is given back.
        let after = std::fs::metadata(rig.folder.join("size.vhdx"))?.len();
        ensure(kind == "dynamic" || after == before + 2 * MIB, || format!("{before} became {after}"))?;
    }
    let wrong = rig.ours("resize size.vhdx 10M --yes")?;
    ensure(wrong.status.code() == Some(1) && wrong.errors.contains("--shrink"), || wrong.errors)?;
    // What QEMU has written and trimmed becomes a smaller file.
    rig.ok("create hole.vhdx --size 64M --block-size 1M")?;
    rig.qemu_io("-f vhdx hole.vhdx | write -P 1 0 32M; write -P 0 0 16M")?.ok("qemu-io")?;
    let before = std::fs::metadata(rig.folder.join("hole.vhdx"))?.len();
    rig.qemu("convert -q -f vhdx -O raw hole.vhdx hole.raw")?;
    rig.ok("compact hole.vhdx")?;
    let after = std::fs::metadata(rig.folder.join("hole.vhdx"))?.len();
    ensure(after + 16 * MIB <= before, || format!("compacted from {before} to {after}"))?;
    rig.agree("hole.vhdx", "hole.raw")
}

fn children_have_their_parents(rig: &Rig) -> Result {
    rig.raw("source.raw", 20 * MIB)?;
    std::fs::create_dir_all(rig.folder.join("sub"))?;
    rig.ok("convert source.raw base.vhdx --block-size 1M")?;
    let told = rig.ok("create sub/child.vhdx --parent base.vhdx")?;
    ensure(told.contains("--parents-anywhere"), || told)?;
    rig.ok("create grandchild.vhdx --parent sub/child.vhdx --parents-anywhere")?;
    // The parent of the child lies outside of its folder.
    for line in ["info grandchild.vhdx --chain", "check sub/child.vhdx", "convert grandchild.vhdx never.vhdx"]
    {
        let refused = rig.ours(line)?;
        let said = refused.output + &refused.errors;
        ensure(refused.status.code() == Some(1) && said.contains("--parents-anywhere"), || {
            format!("{line}: {said}")
        })?;
    }
    let chain = rig.json("info grandchild.vhdx --chain --parents-anywhere")?;
    ensure(chain["items"].as_array().map(Vec::len) == Some(3), || chain.to_string())?;
    rig.ok("convert grandchild.vhdx flat.vhdx --parents-anywhere")?;
    rig.agree("flat.vhdx", "source.raw")?;
    let told = rig.run(Path::new("vhdiinfo"), "sub/child.vhdx")?.ok("vhdiinfo")?;
    let id = rig.json("info base.vhdx")?["data_write_guid"].as_str().unwrap_or_default().to_owned();
    ensure(told.contains("Differential") && told.contains(&id), || told)?;
    // A parent that QEMU writes to is another one.
    rig.qemu_io("-f vhdx base.vhdx | write -P 1 0 512")?.ok("qemu-io")?;
    for line in ["info grandchild.vhdx --chain", "convert grandchild.vhdx never.vhdx", "check sub/child.vhdx"]
    {
        let line = format!("{line} --parents-anywhere");
        let refused = rig.ours(&line)?;
        let said = refused.output + &refused.errors;
        ensure(refused.status.code() == Some(1) && said.contains("was changed after"), || {
            format!("{line}: {said}")
        })?;
    }
    ensure(!rig.folder.join("never.vhdx").exists(), || "a conversion that was refused left a file".into())
}

/// A running qemu-io that has an image open; it closes it and ends when it is told nothing more.
struct Open {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Open {
    fn start(rig: &Rig, options: &str) -> Result<Self> {
        let mut command = command("qemu-io");
        command.args(options.split(' ')).current_dir(&rig.folder);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (orders, answers) =
            (child.stdin.take(), child.stdout.take().ok_or_else(|| "no output".to_owned())?);
        Ok(Self { child, orders, answers: BufReader::new(answers) })
    }

    /// Gives an order and waits until a line of the answer has a word.
    fn order(&mut self, order: &str, word: &str) -> Result {
        let orders = self.orders.as_mut().ok_or_else(|| "no input".to_owned())?;
        writeln!(orders, "{order}")?;
        orders.flush()?;
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            ensure(self.answers.read_line(&mut line)? > 0, || format!("qemu-io ended at {order}"))?;
        }
        Ok(())
    }

    fn end(mut self) -> Result {
        drop(self.orders.take());
        std::io::copy(&mut self.answers, &mut std::io::sink())?;
        let ended = self.child.wait()?;
        ensure(ended.success(), || format!("qemu-io: {ended}"))
    }
}

/// Who writes to an image has it alone, be it QEMU or we.
fn qemu_is_kept_out_and_keeps_out(rig: &Rig) -> Result {
    let refused = |line: &str| -> Result {
        let refused = rig.ours(line)?;
        let said = refused.output + &refused.errors;
        ensure(refused.status.code() == Some(1) && said.contains("another program uses the file"), || {
            format!("{line}: {:?} {said}", refused.status)
        })
    };
    let writing =
        ["compact used.vhdx", "resize used.vhdx 80M --yes", "convert plain.raw used.vhdx --replace"];
    rig.ok("create used.vhdx --size 64M --block-size 1M")?;
    let mut qemu = Open::start(rig, "-f vhdx used.vhdx")?;
    qemu.order("write -P 1 0 64k", "wrote")?;
    writing.into_iter().try_for_each(refused)?;
    ["info used.vhdx", "check used.vhdx", "convert used.vhdx never.raw"].into_iter().try_for_each(refused)?;
    qemu.order("write -P 2 1M 64k", "wrote")?;
    qemu.end()?;
    let content = "-r -f vhdx used.vhdx | read -P 1 0 64k; read -P 2 1M 64k";
    let read = rig.qemu_io(content)?.ok("qemu-io")?;
    ensure(!read.contains("failed"), || read)?;
    // What QEMU only reads may be read.
    let mut qemu = Open::start(rig, "-r -f vhdx used.vhdx")?;
    qemu.order("read -P 1 0 64k", "read")?;
    writing.into_iter().try_for_each(refused)?;
    rig.ok("check used.vhdx")?;
    rig.ok("create under.vhdx --parent used.vhdx")?;
    qemu.end()?;
    writing[..2].iter().try_for_each(|line| rig.ok(line).map(drop))?;

    // A conversion that is stopped has its source, and what it replaces, open.
    much(rig)?;
    let before = std::fs::read_dir(&rig.folder)?.count();
    let mut command = command(&rig.binary);
    command.args(["disk-image", "convert", "much.raw", "used.vhdx", "--replace"]).current_dir(&rig.folder);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    while std::fs::read_dir(&rig.folder)?.count() == before && child.try_wait()?.is_none() {
        std::thread::yield_now();
    }
    rig.run(Path::new("kill"), &format!("-s STOP {}", child.id()))?;
    let tried = [
        ("-f raw much.raw | write 0 512", true),
        ("-r -f raw much.raw | read 0 512", false),
        ("-f vhdx used.vhdx | write 0 512", true),
        ("-r -f vhdx used.vhdx | read 0 512", true),
    ]
    .map(|(line, wanted)| rig.qemu_io(line).map(|ended| (line, wanted, ended.output + &ended.errors)));
    child.kill()?;
    let ended = child.wait()?;
    ensure(!ended.success(), || "the conversion was over before it was stopped".into())?;
    for tried in tried {
        let (line, wanted, said) = tried?;
        ensure(said.contains("lock") == wanted, || format!("qemu-io {line}: {said}"))?;
    }
    for left in std::fs::read_dir(&rig.folder)? {
        let left = left?.path();
        if left.to_string_lossy().contains(".part") {
            std::fs::remove_file(left)?;
        }
    }
    Ok(std::fs::remove_file(rig.folder.join("much.raw"))?)
}

/// What QEMU makes of other formats is not taken for a raw disk.
fn other_formats(rig: &Rig) -> Result {
    rig.raw("source.raw", 2 * MIB)?;
    for (format, options, name) in [
        ("qcow2", "", "qcow2"),
        ("vmdk", " -o subformat=monolithicSparse", "VMDK"),
        ("vmdk", " -o subformat=monolithicFlat", "VMDK"),
        ("vpc", " -o subformat=dynamic", "VHD"),
        ("vpc", " -o subformat=fixed", "VHD"),
        ("vdi", "", "VDI"),
    ] {
        rig.qemu(&format!("convert -q -f raw -O {format}{options} source.raw foreign.disk"))?;
        let refused = rig.ours("convert foreign.disk never.vhdx")?;
        let said = refused.errors;
        let told = said.contains(&format!("a {name} file")) && said.contains("qemu-img convert");
        ensure(refused.status.code() == Some(2) && told, || format!("{format}{options}: {said}"))?;
        ensure(!rig.folder.join("never.vhdx").exists(), || "what was refused left a file".into())?;
        rig.ok("convert foreign.disk said.vhdx --from-format raw --replace")?;
        std::fs::remove_file(rig.folder.join("foreign.disk"))?;
    }
    Ok(())
}

/// A raw disk that takes its time.
fn much(rig: &Rig) -> Result {
    let piece: Vec<u8> = (1..=u8::MAX).cycle().take(1 << 20).collect();
    let mut file = std::fs::File::create(rig.folder.join("much.raw"))?;
    (0..512).try_for_each(|_| file.write_all(&piece))?;
    Ok(())
}

/// What is interrupted leaves nothing.
fn interrupted(rig: &Rig) -> Result {
    much(rig)?;
    let before = std::fs::read_dir(&rig.folder)?.count();
    for signal in ["TERM", "INT"] {
        let mut command = std::process::Command::new(&rig.binary);
        command.args(["disk-image", "convert", "much.raw", "stopped.vhdx"]).current_dir(&rig.folder);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut child = command.spawn()?;
        // The file that is being made is there, so the signal is heard.
        while std::fs::read_dir(&rig.folder)?.count() == before && child.try_wait()?.is_none() {
            std::thread::yield_now();
        }
        rig.run(Path::new("kill"), &format!("-s {signal} {}", child.id()))?;
        let ended = child.wait()?;
        let left = std::fs::read_dir(&rig.folder)?.count() - before;
        ensure(ended.code() == Some(1) && left == 0, || format!("{signal}: {ended}, {left} files left"))?;
    }
    Ok(std::fs::remove_file(rig.folder.join("much.raw"))?)
}

/// A disk of 64 TiB with nothing in it, and a child of it, are not read.
fn nothing_takes_no_time(rig: &Rig) -> Result {
    rig.ok("create empty.vhdx --size 64T")?;
    rig.ok("create over.vhdx --parent empty.vhdx --block-size 32M")?;
    rig.ok("convert over.vhdx copy.vhdx")?;
    let copy = rig.json("info copy.vhdx")?;
    ensure(copy["disk_bytes"] == 64_u64 << 40, || copy.to_string())
}

fn refusals(rig: &Rig) -> Result {
    rig.raw("plain.raw", MIB)?;
    rig.run(Path::new("mkfifo"), "pipe.raw")?.ok("mkfifo")?;
    std::fs::copy(rig.folder.join("base.vhdx"), rig.folder.join("mask.raw"))?;
    for (line, code, told) in [
        ("create base.vhdx --size 1M", 1, "another name"),
        ("create new.qcow2 --size 1M", 2, "qemu-img"),
        ("create new.raw --size 1M", 2, "truncate"),
        ("convert plain.raw new.vmdk", 2, "qemu-img"),
        ("resize base.vhdx 30M", 1, "--yes"),
        ("resize base.vhdx 30M --json", 1, "children"),
        ("create new.vhdx", 2, "--size"),
        ("create new.vhdx --size 1M --block-size 3M", 1, "power of two"),
        ("create new.vhdx --size 65T", 1, "64 TiB"),
        ("info nothing.vhdx", 1, "nothing.vhdx"),
        ("info plain.raw", 1, "no VHDX file"),
        ("convert mask.raw new.raw", 2, "--from-format"),
        ("convert base.vhdx plain.raw", 1, "--replace"),
        ("compact plain.raw", 1, "no VHDX file"),
        ("convert base.vhdx pipe.raw --replace", 1, "only a plain file"),
        ("convert base.vhdx base.vhdx --replace", 1, "another name"),
        ("info pipe.raw", 1, "not a plain file"),
    ] {
        let refused = rig.ours(line)?;
        ensure(refused.status.code() == Some(code) && refused.errors.contains(told), || {
            format!("{line}: {:?} {}", refused.status, refused.errors)
        })?;
    }
    ensure(!rig.folder.join("new.vhdx").exists(), || "what was refused left a file".into())
}
