//! libiscsi's test suite, suite by suite, over LUNs whose data it destroys.
//!
//! One LUN does not suit all of it: two of its tests are wrong on one block size or the other, one needs a LUN that is
//! write-protected, one a SANITIZE that takes its time. So there are several [`Pass`]es, and each test counts that ran
//! in one of them. What a test says is CUnit's verdict, see tests/tools/libiscsi/run_iscsi_cu.py.

mod report;

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Context, Server};
use crate::guest::home;
use crate::node::{Node, Options};
use crate::process::{command, need, run as run_program};
use crate::{Result, ensure};

/// Fewer means that something which used to be tested is no longer.
const MINIMUM_PASSED: usize = 200;
/// All suites of a pass.
const LIMIT: Duration = Duration::from_secs(900);
/// Large enough for every test, small enough to be overwritten some times in a second or two.
const SIZE: &str = "1GiB";
/// Milliseconds that each write of a slow disk takes: an overwrite of [`SIZE`] then takes ten seconds and more, on
/// any machine. The test looks at it for five, and again a minute later.
const SLOW_WRITE: &str = "10";

/// One run of the program over one LUN.
struct Pass {
    /// Title of its column in the table of results.
    column: &'static str,
    /// The LUN's number.
    lun: u16,
    /// Suites and tests; none for all.
    only: &'static [&'static str],
    /// Suites and tests that are not run here, with the reason.
    without: &'static [(&'static str, &'static str)],
    /// Whether the disks are slow meanwhile.
    slow: bool,
}

const SMALL_BLOCKS: &str = "512-byte blocks";
const LARGE_BLOCKS: &str = "4096-byte blocks";
const RESET: (&str, &str) =
    ("ALL.Sanitize.Reset", "has a pass of its own, with slow disks: it wants a SANITIZE that lasts");
const READ_ONLY: (&str, &str) = ("ALL.ReadOnly", "has a pass of its own, on a LUN that is mapped read-only");

const PASSES: [Pass; 4] = [
    Pass {
        column: SMALL_BLOCKS,
        lun: 1,
        only: &[],
        without: &[
            (
                "ALL.GetLBAStatus.UnmapSingle",
                "asks about block i + 1 and wants an answer that begins at block i + 8 where a physical block has \
                 eight logical ones; passes on 4096-byte blocks",
            ),
            RESET,
            READ_ONLY,
        ],
        slow: false,
    },
    Pass { column: SMALL_BLOCKS, lun: 1, only: &["ALL.Sanitize.Reset"], without: &[], slow: true },
    Pass { column: SMALL_BLOCKS, lun: 3, only: &["ALL.ReadOnly"], without: &[], slow: false },
    Pass {
        column: LARGE_BLOCKS,
        lun: 2,
        only: &[],
        without: &[
            (
                "ALL.WriteSame16.Unmap",
                "writes 65536 blocks, here 256 MiB, with one command, whatever MAXIMUM TRANSFER LENGTH says \
                 (32 MiB); passes on 512-byte blocks",
            ),
            RESET,
            READ_ONLY,
        ],
        slow: false,
    },
];
/// What `make test` runs on 4096-byte blocks; all the rest is run there on 512-byte blocks too.
const LARGE_BLOCKS_IN_CI: &[&str] = &["ALL.GetLBAStatus"];

/// What came of one test.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    column: &'static str,
    suite: String,
    test: String,
    result: String,
    reason: String,
}

impl Verdict {
    /// `ALL.Read10.Simple`
    fn name(&self) -> String {
        format!("{}.{}", self.suite, self.test)
    }
}

pub(super) fn run(context: &Context) -> Result {
    need("iscsi-test-cu", "libiscsi-bin")?;
    need("python3", "python3")?;
    let mut server = Server::start(context, Options::default())?;
    let url = server.url();
    let Some(node) = server.node() else {
        // Shows what the suite thinks of somebody else's LUN. SANITIZE on one of 20 GiB would take all day.
        let pass =
            Pass { column: SMALL_BLOCKS, lun: 0, only: &[], without: &[("ALL.Sanitize", "")], slow: false };
        let verdicts = suite(context, &pass, pass.only, (&url, &url))?;
        judge(&verdicts)?;
        return server.finish();
    };
    make_luns(node)?;
    let base = url.rsplit_once('/').map_or(url.as_str(), |(base, _)| base).to_string();
    let mut verdicts = Vec::new();
    for pass in &PASSES {
        let only = if pass.column == LARGE_BLOCKS && !context.full { LARGE_BLOCKS_IN_CI } else { pass.only };
        let slow = pass.slow.then_some(["delay", "--operation", "write", "--delay-ms", SLOW_WRITE]);
        if let Some(slow) = slow {
            all_disks(node, &slow)?;
        }
        let url = format!("{base}/{}", pass.lun);
        verdicts.extend(suite(context, pass, only, (&url, &url))?);
        if slow.is_some() {
            all_disks(node, &["none"])?;
        }
    }
    let passed = judge(&verdicts)?;
    if let Some(folder) = std::env::var_os("E2E_RESULTS") {
        report::write(std::path::Path::new(&folder), &verdicts, &expected_skips()?, context.full)?;
    }
    crate::note!("     {passed} tests of libiscsi passed");
    server.finish()
}

/// Runs suites over a LUN of 512-byte blocks; how many tests passed.
pub(super) fn over(context: &Context, url: &str, second: &str, only: &[&str]) -> Result<usize> {
    need("iscsi-test-cu", "libiscsi-bin")?;
    need("python3", "python3")?;
    let pass =
        Pass { column: "over another node", lun: 0, only: &[], without: PASSES[0].without, slow: false };
    let verdicts = suite(context, &pass, only, (url, second))?;
    judge_by(&verdicts, &expected_skips()?)
}

/// The LUNs of [`PASSES`].
fn make_luns(node: &Node) -> Result {
    let volume = node.told("volume");
    let create = |name: &str, more: &[&str]| {
        node.cli(&[&["lun", "create", name, "--volume", &volume, "--size", SIZE], more].concat())
    };
    create("small-blocks", &["--group", "everyone", "--number", "1"])?;
    create("large-blocks", &["--group", "everyone", "--number", "2", "--block-size", "4096"])?;
    create("read-only", &[])?;
    node.cli(&["lun", "map", "read-only", "--group", "everyone", "--number", "3", "--read-only"])?;
    Ok(())
}

fn all_disks(node: &Node, fault: &[&str]) -> Result {
    for n in 0..4 {
        let disk = node.disk(n)?;
        node.cli(&[&["disk", "fault", &disk], fault].concat())?;
    }
    Ok(())
}

/// Runs a pass.
fn suite(context: &Context, pass: &Pass, only: &[&str], (url, second): (&str, &str)) -> Result<Vec<Verdict>> {
    let csv = context.folder.join(format!("lun{}{}.csv", pass.lun, if pass.slow { "-slow" } else { "" }));
    let mut program = command("python3");
    // The second address is the same LUN over a second session, for the multipath suite.
    program.arg(home().join("tools/libiscsi/run_iscsi_cu.py")).arg(url).arg(&csv).arg(second);
    let without: Vec<&str> = pass.without.iter().map(|(name, _)| *name).collect();
    program.env("ONLY", only.join(" ")).env("WITHOUT", without.join(" "));
    if pass.slow {
        program.env("TEST_TIMEOUT", "200").env("SUITE_TIMEOUT", "400");
    }
    run_program(LIMIT, &program)?.ok("libiscsi's suite")?;
    let table = std::fs::read_to_string(&csv)?;
    let rows = table.lines().skip(1).filter_map(|row| {
        // suite,test,result,seconds,reason (the reason may hold commas)
        let fields: Vec<&str> = row.splitn(5, ',').collect();
        let [suite, test, result, _, reason] = fields[..] else { return None };
        Some(Verdict {
            column: pass.column,
            suite: suite.into(),
            test: test.into(),
            result: result.into(),
            reason: reason.trim_matches('"').into(),
        })
    });
    Ok(rows.collect())
}

/// How many passed; a failure when any did not and was not expected to skip itself, or too few did.
fn judge(verdicts: &[Verdict]) -> Result<usize> {
    let passed = judge_by(verdicts, &expected_skips()?)?;
    ensure(passed >= MINIMUM_PASSED, || format!("{passed} passed, at least {MINIMUM_PASSED} wanted"))?;
    Ok(passed)
}

/// How many passed; a failure when any did not and was not expected to skip itself.
fn judge_by(verdicts: &[Verdict], expected: &Skips) -> Result<usize> {
    let mut wrong = Vec::new();
    for verdict in verdicts {
        let excused = verdict.result == "skip" && reason_to_skip(expected, verdict).is_some();
        if verdict.result != "pass" && !excused {
            wrong.push(format!(
                "{} ({}): {}: {}",
                verdict.name(),
                verdict.column,
                verdict.result,
                verdict.reason
            ));
        }
    }
    // A test counts once, on however many LUNs it ran.
    let passed: std::collections::BTreeSet<String> =
        verdicts.iter().filter(|v| v.result == "pass").map(Verdict::name).collect();
    let passed = passed.len();
    ensure(wrong.is_empty(), || format!("{passed} passed, {} not:\n{}", wrong.len(), wrong.join("\n")))?;
    Ok(passed)
}

/// Tests and suites that may skip themselves, with the reason.
type Skips = BTreeMap<String, String>;

fn expected_skips() -> Result<Skips> {
    let text = std::fs::read_to_string(home().join("tools/libiscsi/expected_skips.tsv"))?;
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    Ok(lines.filter_map(|l| l.split_once('\t')).map(|(name, why)| (name.into(), why.into())).collect())
}

/// The line that lets a test skip itself: its name or its suite's, and the reason.
fn reason_to_skip<'a>(expected: &'a Skips, verdict: &Verdict) -> Option<(&'a str, &'a str)> {
    let line = expected.get_key_value(&verdict.name()).or_else(|| expected.get_key_value(&verdict.suite));
    line.map(|(name, why)| (name.as_str(), why.as_str()))
}
