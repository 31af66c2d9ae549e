//! The load generator as its users meet it: command lines and scripts of the published how-tos, refusals, exit codes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory with links to the program under the names of the tools.
struct Tools {
    dir: tempfile::TempDir,
}

impl Tools {
    fn new() -> Self {
        // Not on tmpfs: its reads never wait.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for name in ["diskspd", "sqlio", "sqlio2", "holdfast"] {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_holdfast"), dir.path().join(name)).unwrap();
        }
        for drive in ["X", "C", "E", "F", "G", "H", "I", "J"] {
            std::fs::create_dir(dir.path().join(drive)).unwrap();
        }
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn drives(&self) -> String {
        let drive = |name: &&str| format!("{name}={}", self.path(name).display());
        ["X", "C", "E", "F", "G", "H", "I", "J"].iter().map(drive).collect::<Vec<_>>().join(";")
    }

    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(self.path("").join(program));
        command.env("HOLDFAST_SPD_DRIVES", self.drives()).current_dir(self.dir.path());
        command
    }

    fn run(&self, line: &str) -> Output {
        let mut words = line.split_whitespace();
        self.command(words.next().unwrap()).args(words).output().unwrap()
    }

    /// Runs a line that must succeed; returns what it printed.
    fn text(&self, line: &str) -> String {
        let output = self.run(line);
        let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{line}: {} {err}{out}", output.status);
        out
    }
}

fn cells<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let line =
        text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start} in\n{text}"));
    line.split('|').map(str::trim).collect()
}

/// Command lines of the how-to of 2014, but for the length of the runs: `{}` stands for that. The case `load-lines` runs all of
/// them.
const DISKSPD: &[&str] = &[
    "diskspd -c1000G -d10 -r -w0 -t8 -o8 -b8K -h -L {} X:\\testfile.dat",
    "diskspd -c8192K -d1 {} testfile.dat",
    "diskspd -c1G -b4K -t2 -d10 -a0,1 {} testfile1.dat testfile2.dat",
    "diskspd -c1G -d10 -w0 -r -b8k -o1 -t8 -h -L {} C:\\testfile.dat",
];

/// Command lines of the how-tos of 2013.
const SQLIO: &[&str] = &[
    "sqlio2 -s10 -T100 -t4 -o16 -b512 -BN -LS -fsequential -dEFGHIJ {} testfile.dat",
    "sqlio2 -s20 -T100 -t2 -o16 -b512 -BN -LS -fsequential -dE {} testfile.dat",
    "sqlio -s10 -kR -frandom -b8 -t8 -o16 -LS -BN {} X:\\TestFile.DAT",
    "sqlio -s10 -kR -frandom -b8 -o1 -t32 -LS -BN {} X:\\testfile.dat",
];

#[test]
fn diskspd_lines_of_the_how_tos_run() {
    let tools = Tools::new();
    for line in DISKSPD {
        let text = tools.text(&line.replace("{}", "--sparse -d1 -W0"));
        let total = cells(&text, "total:");
        let iops: f64 = total[3].parse().unwrap();
        assert!(iops > 0.0, "{line}: {text}");
        assert_eq!(total.len() > 4, line.contains("-L"), "{line}");
        assert!(cells(&text, "avg.")[1].ends_with('%'));
        assert!(text.contains(&format!("Command Line: {}", tools.path("diskspd").display())), "{text}");
    }
}

#[test]
fn sqlio_lines_of_the_how_tos_run() {
    let tools = Tools::new();
    for file in ["X/TestFile.DAT", "X/testfile.dat", "E/testfile.dat", "F/testfile.dat", "G/testfile.dat"]
        .into_iter()
        .chain(["H/testfile.dat", "I/testfile.dat", "J/testfile.dat"])
    {
        std::fs::File::create(tools.path(file)).unwrap().set_len(64 << 20).unwrap();
    }
    for line in SQLIO {
        let text = tools.text(&line.replace("{}", "-s1"));
        let lines: Vec<&str> = text.lines().collect();
        let files = if line.contains("-dEFGHIJ") { 6 } else { 1 };
        assert_eq!(lines[0], "sqlio v1.5.SG");
        assert_eq!(lines[6 + files], "initialization done", "{line}\n{text}");
        let at = 9 + files;
        assert!(lines[at].starts_with("IOs/sec: ") && lines[at + 1].starts_with("MBs/sec: "), "{text}");
        assert!(lines[at + 4].starts_with("Avg_Latency(ms): ") && lines[at + 8].starts_with("%: "), "{text}");
        let iops: f64 = lines[at].split(':').nth(1).unwrap().trim().parse().unwrap();
        assert!(iops > 0.0, "{line}");
    }
}

#[test]
fn scripts_of_the_how_tos_read_the_reports() {
    let tools = Tools::new();
    std::fs::File::create(tools.path("X/testfile.dat")).unwrap().set_len(16 << 20).unwrap();
    for (script, variable, tool, lines, words) in [
        ("sqlio_loop.sh", "SQLIO", "sqlio", 3, ["iops,", "MB/sec,", "ms"]),
        ("diskspd_loop.sh", "DISKSPD", "diskspd", 3, ["iops,", "MB/sec,", "ms,"]),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/spd").join(script);
        let output = Command::new("bash")
            .arg(path)
            .env(variable, tools.path(tool))
            .env("DEPTHS", "1 8 64")
            .env("SECONDS_EACH", "1")
            .env("HOLDFAST_SPD_DRIVES", tools.drives())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{script}: {}\n{text}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(text.lines().count(), lines, "{text}");
        for line in text.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            for word in words {
                let at = fields
                    .iter()
                    .position(|field| *field == word)
                    .unwrap_or_else(|| panic!("{word} in {line}"));
                assert!(fields[at - 1].parse::<f64>().is_ok(), "{line}");
            }
        }
    }
}

#[test]
fn refusals_and_exit_codes() {
    let tools = Tools::new();
    for (line, code, part) in [
        ("diskspd", 3, ""),
        ("diskspd -?", 0, ""),
        ("holdfast spd -?", 0, ""),
        ("diskspd -t0 a", 3, "ERROR: incorrectly provided option: '-t0'"),
        ("holdfast spd -t0 a", 2, "ERROR: incorrectly provided option: '-t0'"),
        ("sqlio -q a", 2, "ERROR: invalid option: '-q'"),
        ("holdfast sqlio -q a", 2, "ERROR: invalid option: '-q'"),
        ("diskspd -Sm a", 3, "-Sm memory mapped"),
        ("diskspd -d1 Y:\\a", 3, "drive Y of Windows is not mapped"),
        ("diskspd -d1 missing", 1, "make it with -c"),
        ("diskspd -d1 -w100 missing", 1, "does not exist: make it with -c"),
        ("diskspd -d1 .", 1, "neither a file nor a block device"),
        ("diskspd -d1 -b4K small", 1, "is too small"),
        ("diskspd -d1 -b1000 -Su big", 1, "no multiple of"),
        ("diskspd -d1 -b4K -w1 big", 1, "which was not made by this tool"),
        ("diskspd -d1 -c1M big", 1, "which was not made by this tool"),
        ("diskspd -d1 -a999 big", 1, "affinity assignment to group 0 cpu 999 not possible"),
        ("diskspd -d1 -b4K -n -a0 big", 3, "-n and -a"),
        ("diskspd -d1 --agents a,,b big", 3, "--agents is a list of addresses"),
        ("diskspd -d1 --agents localhost:1 big", 1, "HOLDFAST_SPD_SECRET"),
        ("diskspd -d1 --agents localhost:1 --secret-file small big", 1, "cannot be reached"),
        ("diskspd -d1 --agents localhost:1 --drive=Z=/x big", 3, "are options of each `holdfast spd agent`"),
        ("diskspd -d1 --secret-file small big", 3, "give --agents too"),
        ("holdfast spd agent --listen nowhere --secret-file small", 1, "cannot listen on nowhere"),
        ("holdfast spd agent --secret-file big", 1, "must have 16 to 4096"),
        ("holdfast spd agent --lissten x", 2, "unexpected argument '--lissten'"),
        ("sqlio -s1 -b2 missing", 1, "does not exist"),
    ] {
        std::fs::write(tools.path("small"), [1; 100]).unwrap();
        std::fs::write(tools.path("big"), vec![1; 1 << 20]).unwrap();
        let output = tools.run(line);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {err}");
        assert!(err.contains(part), "{line}: {err}");
        assert_eq!(std::fs::read(tools.path("big")).unwrap(), vec![1; 1 << 20], "{line}");
    }
}

#[test]
fn what_we_made_may_be_overwritten_without_a_question() {
    let tools = Tools::new();
    tools.text("diskspd -c1M -d1 -W0 -b4K -w100 mine");
    let marked = tools.run("diskspd -d1 -W0 -b4K -w50 mine");
    // Without extended attributes the tool asks rather than guesses.
    let err = String::from_utf8_lossy(&marked.stderr).into_owned();
    assert!(marked.status.success() || err.contains("not made by this tool"), "{err}");
    std::fs::write(tools.path("theirs"), vec![1; 1 << 20]).unwrap();
    tools.text("diskspd -d1 -W0 -b4K -w100 --yes theirs");
    assert_ne!(std::fs::read(tools.path("theirs")).unwrap(), vec![1; 1 << 20]);
}

#[test]
fn a_profile_of_a_result_runs_the_same_test_again() {
    let tools = Tools::new();
    let result = tools.text("diskspd -c8M -d1 -W0 -r -w30 -t2 -o4 -b8K -L -D100 -Rxml mine");
    assert_eq!(result.lines().next(), Some("<Results>"));
    // As DiskSpd has it, "2024/6/3": what parses results reads year, month and day of it.
    let (_, date) = result.split_once("<VersionDate>").unwrap();
    let (date, _) = date.split_once("</VersionDate>").unwrap();
    let parts: Vec<u32> = date.split('/').map(|part| part.parse().unwrap()).collect();
    assert!(matches!(parts[..], [2026..=9999, 1..=12, 1..=31]) && !date.contains("/0"), "{date}");
    let (start, end) = (result.find("<Profile>").unwrap(), result.find("</Profile>").unwrap() + 10);
    std::fs::write(tools.path("profile.xml"), &result[start..end]).unwrap();
    let again = tools.text("diskspd -Xprofile.xml");
    let inner = |text: &str| {
        let spans = &text[text.find("<TimeSpans>").unwrap()..text.find("</TimeSpans>").unwrap()];
        spans.lines().map(str::trim).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(inner(&again), inner(&result));
    assert!(again.contains("<WriteCount>"));
    let text = tools.text("diskspd -Rp -Xprofile.xml");
    assert_eq!(inner(&text), inner(&result));
}

#[test]
fn interrupted_runs_report_what_they_measured() {
    let tools = Tools::new();
    let child = tools
        .command("diskspd")
        .args(["-c1M", "-d3600", "-W0", "-b4K", "-L", "mine"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // The file is made first; then the load begins and the program has its own threads for it.
    let tasks = format!("/proc/{}/task", child.id());
    let deadline = std::time::Duration::from_secs(60);
    let waited = (0..).map(|_| std::thread::park_timeout(std::time::Duration::from_millis(300)));
    let mut seen = std::time::Duration::ZERO;
    for () in waited {
        seen += std::time::Duration::from_millis(300);
        if std::fs::read_dir(&tasks).is_ok_and(|list| list.count() >= 3) || seen > deadline {
            break;
        }
    }
    std::thread::park_timeout(std::time::Duration::from_millis(500));
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("Ended early: interrupted"), "{text}");
    assert!(cells(&text, "total:")[3].parse::<f64>().unwrap() > 0.0, "{text}");
}

#[test]
fn json_and_the_open_loop() {
    let tools = Tools::new();
    let text = tools.text("holdfast spd --json --rate=200 -c4M -d1 -W0 -r -b4K -o8 mine");
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let span = &value["spans"][0];
    let intended = span["open_loop"]["intended"].as_u64().unwrap();
    assert!((199..=201).contains(&intended), "{span:#}");
    assert!(span["read"]["latency_ms"]["p99"].is_f64());
}

#[test]
fn a_sweep_writes_its_table_and_its_page() {
    let tools = Tools::new();
    let line =
        "holdfast spd sweep --depths 1,4 --writes 0,50 --csv s.csv --html s.html -c4M -d1 -W0 -r -b4K mine";
    let text = tools.text(line);
    assert_eq!(text.matches("<- knee").count(), 2, "{text}");
    assert_eq!(std::fs::read_to_string(tools.path("s.csv")).unwrap().lines().count(), 5);
    let page = std::fs::read_to_string(tools.path("s.html")).unwrap();
    // Two series with four charts each.
    assert_eq!((page.matches("<h2>").count(), page.matches("<svg").count()), (2, 8));
    assert_eq!(page.matches("knee: ").count(), 4);
    let value: serde_json::Value =
        serde_json::from_str(&tools.text("holdfast spd sweep --json --depths 1 -d1 -W0 -b4K mine")).unwrap();
    assert_eq!(value["series"][0]["knee_depth"], 1);
    assert_eq!(tools.run("holdfast spd sweep --runs 0 mine").status.code(), Some(2));
}

#[test]
fn a_parameter_file_makes_what_it_names() {
    let tools = Tools::new();
    std::fs::write(tools.path("param.txt"), "E:\\a.dat 2 0x0 4\nF:\\b.dat 1 0x0 2 # smaller\n").unwrap();
    let text = tools.text("sqlio -kR -s1 -frandom -o4 -b8 -LS -Fparam.txt");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[2], "3 threads reading for 1 secs from files E:\\a.dat and F:\\b.dat");
    assert_eq!(lines[6], "using specified size: 4 MB for file: E:\\a.dat");
    assert_eq!(std::fs::metadata(tools.path("E/a.dat")).unwrap().len(), 4 << 20);
    // The second run takes the files that are there.
    tools.text("sqlio -kR -s1 -frandom -o4 -b8 -LS -Fparam.txt");
}
