//! XML results are read by a parser that is not ours, have all of DiskSpd's elements, and the profile cut out of one
//! runs the same test again.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::Context;
use crate::guest::home;
use crate::process::{command, need, run as run_program};
use crate::{Result, ensure};

/// One run, on a machine that does much else.
const RUN: Duration = Duration::from_secs(60);
/// Threads, targets of each, bytes of a block, and a command line without its targets.
const LINES: [(u32, u32, u32, &str); 5] = [
    (2, 1, 8192, "-c8M -b8K -r -w30 -t2 -o4 -h"),
    (4, 1, 65_536, "-c8M -b64K -si -t2 -o2 -Su -Z1M a"),
    (3, 2, 4096, "-c8M -b4K -F3 -O4 -rs70 -r4K -rdpct90/10:5/20 -w100 -Zr -a0,1 a"),
    (1, 1, 16_384, "-c8M -b16K -s32K -B1M -f6M -w50 -g400i -fs -I2 -vs -P1000"),
    (2, 1, 4096, "-c8M -b4K -t2 -T1M -o1 -i4 -j2 -n -Sw -z7 -C1"),
];

pub(super) fn run(context: &Context) -> Result {
    need("python3", "python3")?;
    std::fs::create_dir_all(&context.folder)?;
    let binary = crate::node::binary()?.canonicalize()?;
    let link = context.folder.canonicalize()?.join("diskspd");
    std::os::unix::fs::symlink(binary, &link)?;
    std::thread::scope(|scope| {
        let link = &link;
        let running: Vec<_> =
            (0..LINES.len()).map(|number| scope.spawn(move || one(context, link, number))).collect();
        running.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err("a thread panicked".to_string().into()))
        })
    })
}

fn one(context: &Context, diskspd: &Path, number: usize) -> Result {
    let Some((threads, targets, block, line)) = LINES.get(number) else { return Ok(()) };
    let folder = context.folder.join(number.to_string());
    std::fs::create_dir_all(&folder)?;
    let here = |program: &Path| -> Command {
        let mut command = command(program);
        command.current_dir(&folder).env("HOLDFAST_SPD_YES", "1");
        command
    };
    let keep = |name: &str, command: &mut Command| -> Result<String> {
        let text = run_program(RUN, command)?.ok(&format!("{name} of `diskspd {line}`"))?;
        std::fs::write(folder.join(name), &text)?;
        Ok(text)
    };
    let cut = |result: &str, profile: &str| -> Result<String> {
        keep(profile, here(&home().join("../docs/guide/scripts/profile.py")).arg(result))
    };
    let check = |result: &str| -> Result {
        let mut script = here(&home().join("tools/diskspd_xml.py"));
        script.args([threads, targets, block].map(u32::to_string)).arg(result);
        run_program(RUN, &script)?.ok(&format!("{result} of `diskspd {line}`")).map(drop)
    };
    let mut first = here(diskspd);
    first.args(["-Rxml", "-d1", "-W0", "-L", "-D100"]).args(line.split(' ')).arg("file with a & in it");
    keep("result.xml", &mut first)?;
    check("result.xml")?;
    let profile = cut("result.xml", "profile.xml")?;

    keep("again.xml", here(diskspd).arg("-Xprofile.xml"))?;
    check("again.xml")?;
    let second = cut("again.xml", "profile2.xml")?;
    ensure(profile == second, || format!("`diskspd {line}`: the second run had another profile:\n{second}"))?;

    // Printed and not run, it is the same text.
    let printed = keep("printed.xml", here(diskspd).args(["-Rpxml", "-Xprofile.xml"]))?;
    // Python puts a blank before the end of an empty element.
    let plain = |text: &str| {
        let text = text.replace(" />", "/>");
        text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    };
    ensure(plain(&printed) == plain(&profile), || format!("`diskspd {line}`: -Rpxml prints\n{printed}"))
}
