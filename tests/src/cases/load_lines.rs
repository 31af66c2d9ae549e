//! Command lines that were written for DiskSpd and SQLIO run unchanged, under those names, and scripts read the reports.
//!
//! What runs for ten seconds over a terabyte runs here for one second over a few megabytes; nothing else is changed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::Context;
use crate::guest::home;
use crate::node::{Node, Options};
use crate::process::{Finished, command, need, run as run_program, run_with};
use crate::{Outcome, Result, ensure};

/// One command, on a machine that does much else.
const RUN: Duration = Duration::from_secs(120);
/// The lines, with comments.
const LINES: &str = include_str!("load_lines.txt");
/// How many run at once: they are to run, not to be quick.
const AT_ONCE: usize = 8;
/// Size of what is measured.
const SIZE: &str = "-c8M";
/// Seconds that a line measures for. A second is enough, unless the machine is so busy that nothing ends within it.
const SECONDS: [u64; 3] = [1, 10, 60];
/// The file for lines that expect one.
const BYTES: usize = 8 << 20;

/// Where the tools are, and what they are told by the environment.
struct Tools {
    links: PathBuf,
    folder: PathBuf,
    address: String,
    user: String,
    password: String,
}

pub(super) fn run(context: &Context) -> Result {
    need("sh", "dash")?;
    let node = Node::start(&context.folder, Options::default())?;
    for share in ["Share1", "X$"] {
        node.cli(&["share", "create", share, "--full", &node.told("smb_user")])?;
    }
    let tools = Tools::new(context, &node)?;
    let lines: Vec<Vec<String>> =
        LINES.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(words).collect();
    ensure(lines.len() == 33, || format!("{} lines instead of 33", lines.len()))?;
    // SQLIO measures what is there already.
    let there = ["diskspd", "-c1G", "-d1", r"\\FSC5-D\X$\TestFile.DAT"].map(str::to_owned);
    line(&tools, 0, &there)?;
    let numbered: Vec<(usize, &Vec<String>)> = (1..).zip(&lines).collect();
    for some in numbered.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            let running: Vec<_> =
                some.iter().map(|(number, words)| scope.spawn(|| line(&tools, *number, words))).collect();
            running.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| Err("a thread panicked".to_string().into()))
            })
        })?;
    }
    scripts(&tools)?;
    node.finish()
}

/// The words of a line as a shell would split it.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in line.split('"').enumerate() {
        match number % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

impl Tools {
    fn new(context: &Context, node: &Node) -> Result<Self> {
        let folder = context.folder.canonicalize()?;
        let links = folder.join("links");
        std::fs::create_dir_all(&links)?;
        for name in ["diskspd", "sqlio", "sqlio2"] {
            std::os::unix::fs::symlink(node.binary().canonicalize()?, links.join(name))?;
        }
        let (user, password) = (node.told("smb_user"), node.told("smb_password"));
        Ok(Self { links, folder, address: node.told("smb_address").replace(':', "@"), user, password })
    }

    /// A program that finds the tools in its path, in a folder of its own with a file there and on each of the drives.
    fn command(&self, program: impl AsRef<OsStr>, name: &str, drives: &[char]) -> Result<Command> {
        let here = self.folder.join(name);
        let content: Vec<u8> = (0..BYTES).map(|at| (at ^ (at >> 9)) as u8).collect();
        let places: Vec<_> = drives.iter().map(|drive| (drive, here.join(drive.to_string()))).collect();
        for folder in places.iter().map(|(_, folder)| folder).chain([&here]) {
            std::fs::create_dir_all(folder)?;
            std::fs::write(folder.join("testfile.dat"), &content)?;
        }
        let drives: Vec<String> =
            places.iter().map(|(drive, at)| format!("{drive}={}", at.display())).collect();
        let mut program = command(program);
        let path = std::env::var("PATH").unwrap_or_default();
        program.env("PATH", format!("{}:{path}", self.links.display())).current_dir(&here);
        program.env("HOLDFAST_SPD_DRIVES", drives.join(";")).env("HOLDFAST_SPD_YES", "1");
        program.env("HOLDFAST_SPD_USER", &self.user).env("HOLDFAST_SPD_PASSWORD", &self.password);
        Ok(program)
    }
}

/// Runs a line and holds its report against what the line asks for, and against itself.
fn line(tools: &Tools, number: usize, words: &[String]) -> Result {
    let (tool, options) = words.split_first().ok_or_else(|| "an empty line".to_string())?;
    let about = |what: String| Outcome::Fail(format!("line {number}, {}: {what}", words.join(" ")));
    let asked = Asked::of(tool, options);
    let drives = asked.targets.iter().filter_map(|path| path.split_once(":\\")?.0.chars().next());
    let drives: Vec<char> = drives.collect();
    if tool == "diskspd" {
        // As it stands: it is understood.
        let mut unchanged = command(tools.links.join(tool));
        let said = run_program(RUN, unchanged.arg("-Rp").args(options))?.ok(&words.join(" "))?;
        ensure(said.contains("path: '"), || format!("no profile: {said}"))?;
    }
    let measure = |seconds: u64| -> Result<String> {
        let mut program = tools.command(tools.links.join(tool), &format!("line{number}"), &drives)?;
        if tool == "diskspd" {
            program.arg("-W0");
        }
        for word in options {
            let server = word.strip_prefix(r"\\").and_then(|rest| rest.split_once('\\'));
            program.arg(match (word.as_bytes().get(1), server) {
                (_, Some((_, path))) => format!(r"\\{}\{path}", tools.address),
                (Some(b'c'), _) => SIZE.into(),
                (Some(b'd'), _) if tool == "diskspd" => format!("-d{seconds}"),
                (Some(b's'), _) if tool != "diskspd" => format!("-s{seconds}"),
                _ => word.clone(),
            });
        }
        run_program(RUN, &program)?.ok(&words.join(" "))
    };
    let (mut report, mut seconds) = (String::new(), 0);
    for longer in SECONDS {
        (report, seconds) = (measure(longer)?, longer);
        if !completed_nothing(&report) {
            break;
        }
    }
    let figures = match tool.as_str() {
        "diskspd" => diskspd(&report, &asked),
        _ => sqlio(&report, &asked, seconds),
    };
    let figures = figures.map_err(|why| about(format!("{why}\n{report}")))?;
    // The script that people cut their figures out of reports with says the same.
    let mut script = command(home().join("../docs/guide/scripts/figures.sh"));
    let said = run_with(RUN, script.env("LC_ALL", "C"), &report)?.ok("figures.sh")?;
    if asked.targets.len() == 1 || tool == "diskspd" {
        ensure(said.trim_end() == figures, || {
            about(format!("figures.sh says {said:?} instead of {figures:?}")).to_string()
        })?;
    }
    Ok(())
}

/// Whether no I/O ended while a report was measured. DiskSpd's tables of reads and of writes follow that of both, and one of
/// them is empty wherever a line only reads.
fn completed_nothing(report: &str) -> bool {
    report.lines().find_map(|line| match line.split_once(':') {
        Some(("IOs/sec", number)) => Some(number.trim() == "0.00"),
        Some(("total", cells)) => Some(cells.split('|').next().is_some_and(|bytes| bytes.trim() == "0")),
        _ => None,
    }) == Some(true)
}

/// What a line asks for, read here once more.
struct Asked {
    numbers: BTreeMap<char, u64>,
    random: bool,
    targets: Vec<String>,
}

impl Asked {
    fn of(tool: &str, words: &[String]) -> Self {
        let mut numbers = BTreeMap::from([('t', 1), ('o', 2)]);
        let (mut random, mut targets, mut drives) = (false, Vec::new(), String::new());
        for word in words {
            let Some(option) = word.strip_prefix('-') else {
                targets.push(word.clone());
                continue;
            };
            let (letter, value) = option.split_at(1);
            let letter = letter.chars().next().unwrap_or_default();
            random |= option == "r" || option == "frandom";
            if letter == 'd' && tool != "diskspd" {
                drives = value.into();
            }
            let digits: String = value.trim().chars().take_while(char::is_ascii_digit).collect();
            let unit = if letter == 'b' { 1024 } else { 1 };
            if let Ok(number) = digits.parse::<u64>() {
                numbers.insert(letter, number * unit);
            }
        }
        if !drives.is_empty() {
            targets = drives.chars().map(|drive| format!("{drive}:\\testfile.dat")).collect();
        }
        numbers.entry('b').or_insert(64 << 10);
        Self { numbers, random, targets }
    }

    fn number(&self, letter: char) -> u64 {
        self.numbers.get(&letter).copied().unwrap_or_default()
    }
}

/// Checks a report of `diskspd`, and gives its figures by the names of their columns.
fn diskspd(report: &str, asked: &Asked) -> Result<String> {
    let (block, threads) = (asked.number('b'), asked.number('t') * asked.targets.len() as u64);
    let order = if asked.random { "using random I/O" } else { "using sequential I/O" };
    let outstanding = format!("number of outstanding I/O operations per thread: {}\n", asked.number('o'));
    for part in [format!("block size: {}KiB\n", block >> 10), outstanding, order.into()] {
        ensure(report.contains(&part), || format!("{part:?} is not in the report"))?;
    }
    let after = |name: &str| report.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    ensure(after("thread count:").trim() == threads.to_string(), || "another number of threads".to_string())?;
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let table = report.lines().skip_while(|line| *line != "Total IO").skip(1);
    let table: Vec<Vec<String>> = table.take_while(|line| !line.is_empty()).map(cells).collect();
    let names = table.first().cloned().unwrap_or_default();
    let rows: Vec<&Vec<String>> = table.iter().filter(|row| row.len() >= 4).skip(1).collect();
    let (total, rows) = rows.split_last().ok_or_else(|| "no rows".to_string())?;
    ensure(rows.len() as u64 == threads, || format!("{} rows for {threads} threads", rows.len()))?;
    let column = |name: &str| names.iter().position(|other| other == name);
    let value = |row: &[String], name: &str| -> Result<f64> {
        // The line of totals has its first cell in front of a number, as DiskSpd's has.
        let at = column(name).ok_or_else(|| format!("no column {name}"))?;
        let cells = row.iter().map(|cell| cell.trim_start_matches("total:").trim());
        let shift = usize::from(row.first().is_some_and(|cell| cell.starts_with("total:")));
        let text = cells.clone().nth(at - shift).unwrap_or_default();
        Ok(text.parse().map_err(|_| format!("{name}: {text:?}"))?)
    };
    for name in ["bytes", "I/Os"] {
        let sum = rows.iter().map(|row| value(row, name)).sum::<Result<f64>>()?;
        ensure(sum == value(total, name)? && sum > 0.0, || format!("{name}: the total is not the sum"))?;
    }
    ensure(value(total, "bytes")? == value(total, "I/Os")? * block as f64, || {
        "another block size".to_string()
    })?;
    let (mib, iops) = (value(total, "MiB/s")?, value(total, "I/O per s")?);
    ensure((iops * block as f64 / 1_048_576.0 - mib).abs() < 0.02 + iops * 1e-5, || {
        format!("{iops} I/O per s are not {mib} MiB/s")
    })?;
    let latency = if names.iter().any(|name| name == "AvgLat") {
        format!("{:.3}", value(total, "AvgLat")?)
    } else {
        String::new()
    };
    let cpus = report.lines().find(|line| line.starts_with("avg.|")).map(cells).unwrap_or_default();
    let usage = cpus.get(1).cloned().unwrap_or_default();
    Ok(format!("{iops:.2} iops, {mib:.2} MB/sec, {latency} ms, {usage} CPU"))
}

/// Checks a report of `sqlio`, and gives its figures by the names of their lines.
fn sqlio(report: &str, asked: &Asked, seconds: u64) -> Result<String> {
    let after =
        |name: &str| report.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
    let (threads, block) = (asked.number('t') * asked.targets.len() as u64, asked.number('b') >> 10);
    let plural = if threads == 1 { "" } else { "s" };
    let order = if asked.random { "random" } else { "sequential" };
    let beginning = format!("{threads} thread{plural} reading for {seconds} secs from file");
    for part in [
        beginning,
        format!("\tusing {block}KB {order} IOs\n"),
        format!("with {} outstanding\n", asked.number('o')),
        "as is SQL Server".into(),
    ] {
        ensure(report.contains(&part), || format!("{part:?} is not in the report"))?;
    }
    let number = |name: &str| -> Result<f64> {
        Ok(after(name).parse().map_err(|_| format!("{name} {:?}", after(name)))?)
    };
    let (iops, mb, ms) = (number("IOs/sec:")?, number("MBs/sec:")?, number("Avg_Latency(ms):")?);
    ensure(iops > 0.0 && (iops * block as f64 / 1024.0 - mb).abs() < 0.02 + iops * 1e-5, || {
        format!("{iops} IOs/sec are not {mb} MBs/sec")
    })?;
    let percents: Vec<i64> = after("%:").split_whitespace().filter_map(|cell| cell.parse().ok()).collect();
    let sum: i64 = percents.iter().sum();
    // Each of the 25 may be rounded by half.
    ensure(percents.len() == 25 && (sum - 100).abs() <= 12, || format!("a histogram of {sum} %"))?;
    let indexed: Vec<&str> = report.split('\n').collect();
    if asked.targets.len() == 1 {
        for (index, name) in [(10, "IOs/sec:"), (11, "MBs/sec:"), (14, "Avg_Latency(ms):")] {
            let there = indexed.get(index).is_some_and(|line| line.starts_with(name));
            ensure(there, || format!("line {index} is not {name}"))?;
        }
    }
    Ok(format!("{iops:.2} iops, {mb:.2} MB/sec, {ms} ms"))
}

/// The scripts of the guide: depths, threads with depth, repeated runs, workers that wait for a file.
fn scripts(tools: &Tools) -> Result {
    let folder = home().join("../docs/guide/scripts").canonicalize()?;
    let of_diskspd = ["diskspd", "-W0", "-d1", "-r", "-b8K", "-h", "-L", r"X:\testfile.dat"];
    let of_sqlio = ["sqlio", "-s1", "-frandom", "-b8", "-LS", "-BN", r"X:\testfile.dat"];
    let begun = |script: &str, first: &[&str], line: &[&str]| -> Result<Vec<String>> {
        let name = format!("{script}-{}", line.first().unwrap_or(&""));
        let mut program = tools.command(folder.join(script), &name, &['X'])?;
        let said: Finished = run_program(RUN, program.args(first).args(line))?;
        Ok(said.ok(script)?.lines().map(str::to_owned).collect())
    };
    for line in [&of_diskspd[..], &of_sqlio[..]] {
        let (depths, threads, runs) = std::thread::scope(|scope| {
            let depths = scope.spawn(|| begun("depths.sh", &["1", "2"], line));
            let threads = scope.spawn(|| begun("threads.sh", &["2"], line));
            let runs = scope.spawn(|| begun("runs.sh", &["3"], line));
            (depths.join(), threads.join(), runs.join())
        });
        let lines =
            |ended: std::thread::Result<Result<Vec<String>>>| ended.unwrap_or_else(|_| Ok(Vec::new()));
        begin_with(&lines(depths)?, &["-o 1, ", "-o 2, "])?;
        begin_with(&lines(threads)?, &["-t 1 -o 2, ", "-t 2 -o 1, "])?;
        let runs = lines(runs)?;
        begin_with(&runs, &["Run 1, ", "Run 2, ", "Run 3, ", "Average, "])?;
        let iops = |line: &String| -> Result<f64> {
            let number = line.split(", ").nth(1).and_then(|part| part.split(' ').next()).unwrap_or_default();
            Ok(number.parse().map_err(|_| format!("no figure in {line:?}"))?)
        };
        let all = runs.iter().map(iops).collect::<Result<Vec<f64>>>()?;
        let mean = all.iter().take(3).sum::<f64>() / 3.0;
        ensure(all.last().is_some_and(|said| (said - mean).abs() < 0.01), || format!("no mean: {runs:?}"))?;
    }
    // Two workers on one folder: nothing until the file is there, then both results.
    let shared = tools.folder.join("workers");
    let mut worker = tools.command("sh", "workers", &['E'])?;
    std::fs::write(shared.join("worker.sh"), std::fs::read(folder.join("worker.sh"))?)?;
    for name in ["large.sh", "small.sh"] {
        let text = std::fs::read_to_string(folder.join(name))?;
        ensure(text.contains(" -s20 "), || format!("{name} does not run for 20 seconds"))?;
        std::fs::write(shared.join(name), text.replace(" -s20 ", " -s1 "))?;
    }
    let go = "chmod +x *.sh; ./worker.sh 11 & ./worker.sh 12 & sleep 1; ls large*.txt 2>/dev/null && exit 1; \
              touch go.go; until [ -s small11.txt ] && [ -s small12.txt ]; do sleep 0.2; done; touch stop; wait";
    run_program(RUN, worker.env("PAUSE", "0").args(["-c", go]))?.ok("worker.sh")?;
    for name in ["large11.txt", "large12.txt", "small11.txt", "small12.txt"] {
        let text = std::fs::read_to_string(shared.join(name))?;
        let size =
            if name.starts_with('l') { "\tusing 512KB sequential IOs" } else { "\tusing 32KB random IOs" };
        ensure(text.starts_with("sqlio v1.5.SG\n") && text.contains(size), || format!("{name}: {text}"))?;
    }
    Ok(())
}

fn begin_with(lines: &[String], beginnings: &[&str]) -> Result {
    let all = lines.len() == beginnings.len()
        && lines.iter().zip(beginnings).all(|(line, beginning)| line.starts_with(beginning));
    ensure(all, || format!("{lines:?} do not begin with {beginnings:?}"))
}

#[cfg(test)]
mod tests {
    use super::{Asked, words};

    #[test]
    fn words_in_quotes_hold_spaces() {
        let words = words(r#"sqlio -b8 "-o 64" -dEF "-t 4" testfile.dat"#);
        assert_eq!(words, ["sqlio", "-b8", "-o 64", "-dEF", "-t 4", "testfile.dat"]);
        let asked = Asked::of("sqlio", &words[1..]);
        assert_eq!((asked.number('o'), asked.number('b'), asked.number('t')), (64, 8192, 4));
        assert_eq!(asked.targets, [r"E:\testfile.dat", r"F:\testfile.dat"]);
    }
}
